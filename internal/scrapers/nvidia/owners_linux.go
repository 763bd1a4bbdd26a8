// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
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
	if !set.Workloads.IsSet() || (!usesProcesses(&set.Metrics.Metrics) && !set.Workloads.WantsHolders()) {
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
	view, err := o.view(ctx, pids)
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

// view is the latest, or a new one where that does not know a process.
func (o *pidOwners) view(ctx context.Context, pids []int) (*workload.View, error) {
	view, err := o.workloads.Recent(ctx, o.interval)
	if err != nil || !slices.ContainsFunc(pids, func(pid int) bool { return view.Snapshot.Find(pid) == nil }) {
		return view, err
	}
	return o.workloads.Take(ctx)
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

// initialNamespace is the number of the machine's own pid namespace.
const initialNamespace = "pid:[4026531836]"

// seesMachine tells whether the pids below the root path are the machine's: there
// pid 2 is the parent of the kernel's threads. It says once when they are not.
func (o *pidOwners) seesMachine() bool {
	content, err := guard.ReadFile(filepath.Join("/", o.rootPath, "proc/2/stat"), 4096)
	sees := err == nil && bytes.HasPrefix(content, []byte("2 (kthreadd) "))
	if !sees && o.rootPath == "" {
		link, err := os.Readlink("/proc/self/ns/pid")
		sees = err == nil && link == initialNamespace
	}
	if sees == o.foreign {
		o.foreign = !sees
		if o.foreign {
			o.logger.Warn("GPUs are not attributed to workloads: the driver tells the machine's process ids, which are not visible here",
				zap.String("cure", "run the collector in the machine's pid namespace (hostPID), or mount the machine's / and set root_path"))
		}
	}
	return sees
}
