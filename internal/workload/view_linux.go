// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// Workload is a part of the machine's processes that belongs together. Each
// process belongs to one workload at most. It is read-only.
type Workload struct {
	Kind Kind
	// Identity says who it is.
	Identity identity.Workload
	// Root is the first process: that of the run, the container's init.
	Root *Process
	// Single is true for a process that is measured without its descendants.
	Single bool
	// Members are the processes that are alive, the root first.
	Members []*Process
	// Group is the path of the control group that tells of what the workload
	// runs in: its container's, else its Slurm step's; empty for that of the root
	// process.
	Group string
	// Whole is true when the workload is all that runs in Group.
	Whole bool

	// around are the processes among which CPU time is handed on: the members,
	// those of the tree or group that belong to others, and zombies; parents first.
	around []*Process
	// foreign are those of them that belong to others.
	foreign map[int]bool
}

// View is the workloads at one moment.
type View struct {
	Snapshot *Snapshot
	// Workloads are the most specific first, of one kind the oldest first.
	Workloads []*Workload
	// Gone says that the configured process is not there, or no longer.
	Gone string
	// Runs are the live runs of W&B, those without a process included.
	Runs []Run
	// Jobs are the processes, by pid, whose environment places them in a
	// distributed job: those that did not inherit that from their parents.
	Jobs map[int]Job
	// Helpers are the processes of W&B itself: wandb-core and its side processes.
	Helpers []int

	byPid map[int]*Workload
}

// Of returns the workload that a process belongs to; nil for none.
func (v *View) Of(pid int) *Workload { return v.byPid[pid] }

// IsGroup tells whether the workload is a set of processes, such as a container,
// which stays the same when its first process ends.
func (w *Workload) IsGroup() bool { return w.Kind == KindStep || w.Kind == KindContainer }

// Firsts are the members whose parents are none.
func (w *Workload) Firsts() []*Process {
	in := make(map[int]bool, len(w.Members))
	for _, p := range w.Members {
		in[p.Pid] = true
	}
	var firsts []*Process
	for _, p := range w.Members {
		if !in[p.Parent] {
			firsts = append(firsts, p)
		}
	}
	return firsts
}
