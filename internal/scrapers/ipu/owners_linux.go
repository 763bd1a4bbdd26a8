// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"context"
	"slices"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu/gc"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// pidOwners finds the workloads by the pids that the tools give: the application told
// its own, as it is in its pid namespace. Where that is not the one that is seen
// here, or not even this machine, it mostly is nobody's.
type pidOwners struct {
	workloads *workload.Discovery
	interval  time.Duration
	// targeted says that a process is configured: only its devices count.
	targeted bool
	// told are the holders that were told last.
	told []int
	// strange are pids that a new look did not find either.
	strange []int
}

func newOwners(cfg *Config, set scrapers.Settings) owners {
	if !set.Workloads.IsSet() {
		return nil
	}
	return &pidOwners{
		workloads: set.Workloads, targeted: set.Target.IsSet(),
		interval: cfg.CommonConfig.Timing.CollectionInterval,
	}
}

// of implements owners.
func (o *pidOwners) of(ctx context.Context, devices []gc.Device) (attached, error) {
	who := attached{}
	if o.targeted {
		who.counts = func(int) bool { return false } // until the target is known
	}
	pids := pidsOf(devices)
	isNew := o.tell(pids)
	if len(pids) == 0 {
		return who, nil
	}
	view, err := o.view(ctx, pids, isNew)
	if err != nil {
		return who, err
	}
	for _, w := range view.Workloads {
		owns := func(pid int) bool { return pid > 0 && view.Of(pid) == w }
		if o.targeted && w.Kind == workload.KindProcess {
			who.counts = owns
		}
		if slices.ContainsFunc(pids, owns) {
			who.users = append(who.users, user{who: &w.Identity, owns: owns})
		}
	}
	return who, nil
}

// view returns the workloads, and looks anew for pids that were not asked for before.
func (o *pidOwners) view(ctx context.Context, pids []int, isNew bool) (*workload.View, error) {
	expected := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return slices.Contains(o.strange, pid) })
	view, err := gpus.View(ctx, o.workloads, o.interval, expected)
	if err == nil && isNew {
		view, err = o.workloads.Take(ctx)
	}
	if err != nil {
		return nil, err
	}
	o.strange = slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return view.Snapshot.Find(pid) != nil })
	return view, nil
}

// tell says who holds devices, and tells whether that makes other workloads than
// there were.
func (o *pidOwners) tell(holders []int) bool {
	o.workloads.SetHolders(familyName, holders)
	changed := !slices.Equal(holders, o.told)
	o.told = holders
	return changed && o.workloads.WantsHolders()
}

// pidsOf are the processes that are attached, each once.
func pidsOf(devices []gc.Device) []int {
	var pids []int
	for i := range devices {
		if pid := devices[i].Pid; pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
