// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"
)

// jobs returns the processes that are placed in a distributed job and did not
// inherit their place: a rank, not its DataLoader workers.
func (d *Discovery) jobs(s *Snapshot) map[int]Job {
	jobs := map[int]Job{}
	for _, p := range d.people {
		job := p.facts.env.place()
		if job == (Job{}) || d.isHelper(s, p) {
			continue
		}
		if parent := d.find(s, p.Parent); parent == nil || parent.env.place() != job {
			jobs[p.Pid] = job
		}
	}
	return jobs
}

// find returns the facts of the process with this pid; nil when there are none.
func (d *Discovery) find(s *Snapshot, pid int) *facts {
	p := s.Find(pid)
	if p == nil {
		return nil
	}
	return d.facts[p.Key()]
}

// isHelper tells W&B's own processes: by their programs, or by who started them.
func (d *Discovery) isHelper(s *Snapshot, p person) bool {
	if p.facts.inWandb {
		return true
	}
	if _, isSide := sideNames[p.Name]; !isSide {
		return false
	}
	parent := d.find(s, p.Parent)
	return parent != nil && parent.inWandb
}

// helpers returns the pids of W&B's own processes.
func (d *Discovery) helpers(s *Snapshot) []int {
	pids := []int{}
	for _, p := range d.people {
		if d.isHelper(s, p) {
			pids = append(pids, p.Pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// runs finds the live runs of W&B.
func (d *Discovery) runs(ctx context.Context, s *Snapshot) []Run {
	if !d.opts.Discover.Runs {
		return nil
	}
	var cores []person
	var wanted []look
	for _, p := range d.within() {
		if p.Name != coreName {
			continue
		}
		cores = append(cores, p)
		if !p.Blocked {
			wanted = append(wanted, look{pid: p.Pid, key: p.Key(), name: p.Name, want: lookOpen})
		}
	}
	for _, k := range d.learn(ctx, wanted) {
		d.facts[k.key].runs = liveRuns(k.open, k.onlyRead...)
	}
	d.lookInto(ctx, lookPids, cores)
	d.nested = nil
	var all []Run
	for _, core := range cores {
		all = append(all, d.runsOf(ctx, s, core)...)
	}
	return all
}

// runsOf describes the runs of one wandb-core.
func (d *Discovery) runsOf(ctx context.Context, s *Snapshot, core person) []Run {
	runs := slices.Clone(core.facts.runs)
	if len(runs) == 0 {
		return nil
	}
	coreEnv := core.facts.env
	if core.facts.core.detached && len(runs) > 1 {
		coreEnv = nil
	}
	var targetEnv *environment
	targetPid := 0
	if t := d.targetOf(ctx, s, core); t != nil {
		targetPid = t.Pid
		if f := d.facts[t.Key()]; f != nil {
			targetEnv = f.env
		}
	}
	for i := range runs {
		runs[i].CorePid, runs[i].TargetPid = core.Pid, targetPid
		runs[i].started = coreEnv.place()
		runs[i].describe(coreEnv, targetEnv)
	}
	return runs
}

// targetOf finds the training process, which wandb-core was given as a pid of
// its own pid namespace; nil when it is gone. A process that is younger than
// wandb-core got the pid of one that ended.
func (d *Discovery) targetOf(ctx context.Context, s *Snapshot, core person) *Process {
	pid := core.facts.core.pid
	if pid == 0 || (core.facts.pids == nil && core.facts.looked&lookPids == 0) {
		return nil // in which namespace the pid is meant is not known
	}
	var t *Process
	if len(core.facts.pids) > 1 {
		t = d.nestedTarget(ctx, s, core, pid)
	} else {
		t = s.Find(pid)
	}
	if t == nil || t.Zombie || t.Start > core.Start {
		return nil
	}
	return t
}

// nestedTarget finds a pid of a nested pid namespace: the process that started
// wandb-core as a rule, else the one that has this pid there.
func (d *Discovery) nestedTarget(ctx context.Context, s *Snapshot, core person, pid int) *Process {
	if parent := s.Find(core.Parent); parent != nil && parent.Start <= core.Start && d.facts[parent.Key()] != nil {
		f := d.facts[parent.Key()]
		d.lookInto(ctx, lookPids, []person{{parent, f}})
		if f.isNested(core.facts, pid) {
			return parent
		}
	}
	if d.nested == nil {
		d.indexNested(ctx)
	}
	var found []person
	for _, p := range d.nested[pid] {
		if p.Start <= core.Start && p.facts.isNested(core.facts, pid) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil // rather no process than a wrong one
	}
	return found[0].Process
}

// indexNested finds the processes of nested namespaces by their pids there.
func (d *Discovery) indexNested(ctx context.Context) {
	d.lookInto(ctx, lookPids, d.within())
	d.nested = map[int][]person{}
	for _, p := range d.within() {
		if depth := len(p.facts.pids); depth > 1 {
			inner := p.facts.pids[depth-1]
			d.nested[inner] = append(d.nested[inner], p)
		}
	}
}

// isNested tells whether the process may be the one that has this pid in the pid
// namespace of another. Where the namespace is not told the container does as well.
func (f *facts) isNested(other *facts, pid int) bool {
	depth := len(other.pids)
	if len(f.pids) != depth || f.pids[depth-1] != pid {
		return false
	}
	if f.namespace == "" || other.namespace == "" {
		return f.group.ContainerID == other.group.ContainerID
	}
	return f.namespace == other.namespace
}
