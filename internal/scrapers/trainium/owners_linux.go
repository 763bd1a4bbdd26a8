// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// pidOwners finds the workloads by the pids that the tool gives, which the driver
// tells it: they are the machine's whatever namespace we are in.
type pidOwners struct {
	workloads *workload.Discovery
	rootPath  string
	interval  time.Duration
	logger    *zap.Logger
	// told are the holders that were told last.
	told []int
	// foreign says that the pids that we see are not the machine's.
	foreign bool
}

func newOwners(cfg *Config, set scrapers.Settings) owners {
	if !set.Workloads.IsSet() {
		return nil
	}
	return &pidOwners{
		workloads: set.Workloads, rootPath: set.RootPath, logger: set.Receiver.Logger,
		interval: cfg.CommonConfig.Timing.CollectionInterval,
	}
}

// of implements owners.
func (o *pidOwners) of(ctx context.Context, holders, others []int) ([]user, error) {
	if !o.seesMachine(len(holders)+len(others) > 0) {
		holders, others = nil, nil
	}
	isNew := o.tell(holders)
	if len(holders)+len(others) == 0 {
		return nil, nil
	}
	view, err := gpus.View(ctx, o.workloads, o.interval, holders)
	if err == nil && isNew {
		view, err = o.workloads.Take(ctx)
	}
	if err != nil {
		return nil, err
	}
	pids := slices.Concat(holders, others)
	var users []user
	for _, w := range view.Workloads {
		owns := func(pid int) bool { return pid > 0 && view.Of(pid) == w }
		if slices.ContainsFunc(pids, owns) {
			users = append(users, user{who: &w.Identity, owns: owns})
		}
	}
	return users, nil
}

// tell says who holds devices, and tells whether that makes other workloads than
// there were.
func (o *pidOwners) tell(holders []int) bool {
	o.workloads.SetHolders(familyName, holders)
	changed := !slices.Equal(holders, o.told)
	o.told = slices.Clone(holders)
	return changed && o.workloads.WantsHolders()
}

// seesMachine tells whether the pids that we see are the machine's. It says once
// when they are not, if there are any to tell of.
func (o *pidOwners) seesMachine(matters bool) bool {
	sees := gpus.SeesMachine(o.rootPath)
	if matters && sees == o.foreign {
		o.foreign = !sees
		if o.foreign {
			o.logger.Warn("Neuron runtimes are not attributed to workloads: the driver tells the machine's process ids, which are not visible here",
				zap.String("cure", "run the collector in the machine's pid namespace (hostPID), or mount the machine's / and set root_path"))
		}
	}
	return sees
}
