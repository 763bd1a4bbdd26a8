// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// pidOwners finds the workloads by the pids that the driver gives, which are the
// machine's whatever namespace we are in.
type pidOwners struct {
	workloads *workload.Discovery
	rootPath  string
	interval  time.Duration
	logger    *zap.Logger
	// foreign says that the pids that we see are not the machine's.
	foreign bool
}

func newOwners(set scrapers.Settings, cfg *Config) owners {
	if !set.Workloads.IsSet() || (!gpus.UsesProcesses(&set.Metrics.Metrics) && !set.Workloads.WantsHolders()) {
		return nil
	}
	return &pidOwners{
		workloads: set.Workloads, rootPath: set.RootPath, logger: set.Receiver.Logger,
		interval: cfg.CommonConfig.Timing.CollectionInterval,
	}
}

// of implements owners.
func (o *pidOwners) of(ctx context.Context, r *reading) ([]user, error) {
	pids := pidsOf(r)
	sees := len(pids) > 0 && o.seesMachine()
	if !sees {
		pids = nil
	}
	if r.complete { // what was not read holds what it held
		o.workloads.SetHolders(familyName, pids)
	}
	if !sees {
		return nil, nil
	}
	view, err := gpus.View(ctx, o.workloads, o.interval, pids)
	if err != nil {
		return nil, err
	}
	var users []user
	for _, w := range view.Workloads {
		u := user{who: &w.Identity}
		for i := range r.devices {
			if g, ok := usedBy(view, w, &r.devices[i]); ok {
				u.gpus = append(u.gpus, g)
			}
		}
		if len(u.gpus) > 0 {
			users = append(users, u)
		}
	}
	return users, nil
}

func pidsOf(r *reading) []int {
	var pids []int
	for i := range r.devices {
		for _, p := range r.devices[i].processes {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// usedBy tells whether processes of the workload are on the GPU. What they have
// there is known when one's is.
func usedBy(view *workload.View, w *workload.Workload, d *deviceReading) (usedGPU, bool) {
	g := usedGPU{device: d}
	uses := false
	for _, p := range d.processes {
		if view.Of(p.pid) != w {
			continue
		}
		uses = true
		g.memory.Value += p.memory.Value
		g.memory.Known = g.memory.Known || p.memory.Known
	}
	return g, uses
}

// seesMachine tells whether the driver's pids are those that we see. It says once
// when they are not.
func (o *pidOwners) seesMachine() bool {
	sees := gpus.SeesMachine(o.rootPath)
	if sees == o.foreign {
		o.foreign = !sees
		if o.foreign {
			o.logger.Warn("GPUs are not attributed to workloads: the driver tells the machine's process ids, which are not visible here",
				zap.String("cure", "run the collector in the machine's pid namespace (hostPID), or mount the machine's / and set root_path"))
		}
	}
	return sees
}
