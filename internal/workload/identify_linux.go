// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// identify says who the workloads are.
func (a *assignment) identify(ctx context.Context, v *View) {
	roots := make([]person, 0, len(a.drafts))
	for _, w := range a.drafts {
		if f := a.d.facts[w.Root.Key()]; f != nil {
			roots = append(roots, person{w.Root, f})
		}
	}
	a.d.lookInto(ctx, lookRoot|lookEnviron, roots)
	for _, r := range v.Runs { // the configured process has them in its tree
		if w := a.owners[r.TargetPid]; w != nil && w.Kind == KindProcess {
			w.runs = append(w.runs, r)
		}
	}
	for pid, job := range v.Jobs {
		w := a.owners[pid]
		if w == nil {
			continue
		}
		if job = a.counted(a.d.find(a.s, pid), job); job.isRank() {
			w.jobs = append(w.jobs, job)
		}
	}
	for _, w := range a.drafts {
		slices.SortFunc(w.runs, byStart)
		a.identifyOne(w)
		if w.IsGroup() && (len(w.jobs) > 1 || a.d.severalRanks[w.Identity.ID]) {
			// One that is left of several does not become the one.
			a.d.severalRanks[w.Identity.ID] = true
			w.Identity.Rank, w.Identity.LocalRank = identity.Number{}, identity.Number{}
		}
	}
	a.d.names.add(ctx, a)
	a.noticeDenied()
}

// nobody is what is known of a process that there was no room to look into.
var nobody = &facts{}

func (a *assignment) identifyOne(w *draft) {
	f := a.d.facts[w.Root.Key()]
	if f == nil {
		f = nobody
	}
	id := &w.Identity
	id.Kind = string(w.Kind)
	if !w.IsGroup() { // which has many, that come and go
		id.Pid, id.Executable, id.Command = w.Root.Pid, clean(w.Root.Name), f.command
	}
	setRuns(id, w.runs)
	group := f.place()
	a.setPlace(id, &group, f.env)
	if w.Kind == KindStep {
		id.SlurmTask = "" // it may have several
	}
	job := a.counted(f, w.place(f.env))
	id.Rank, id.LocalRank, id.WorldSize = job.Rank, job.LocalRank, job.WorldSize
	if !w.IsGroup() {
		w.Group = cmp.Or(group.ContainerGroup, group.StepGroup)
		id.ID = "pid-" + strconv.Itoa(id.Pid)
	}
	if w.Kind == KindRun {
		id.ID = "run-" + id.RunID + "-" + strconv.Itoa(id.Pid)
	}
}

// place is what the control group tells, else, for a process whose control group
// says nothing (it has a namespace of its own), its mounts.
func (f *facts) place() cgroup.Identity {
	group := f.group
	if group.ContainerID == "" && group.PodUID == "" {
		group.ContainerID, group.Runtime, group.PodUID = f.mounts.ContainerID, f.mounts.Runtime, f.mounts.PodUID
	}
	return group
}

func setRuns(id *identity.Workload, runs []Run) {
	if len(runs) == 0 {
		return
	}
	first := &runs[0]
	id.RunID, id.Mode = first.ID, first.Mode
	id.Project, id.Entity, id.Group = first.Project, first.Entity, first.Group
	id.JobType, id.SweepID = first.JobType, first.SweepID
	ids := make([]string, 0, len(runs))
	for i := range runs {
		if !slices.Contains(ids, runs[i].ID) { // resumed, and the old log still open
			ids = append(ids, runs[i].ID)
		}
	}
	if len(ids) > 1 {
		id.RunIDs = join(ids)
	}
}

// join lists as many as there is room for in a value, and says how many more
// there are.
func join(ids []string) string {
	if all := strings.Join(ids, ","); len(all) <= maxValue {
		return all
	}
	const room = maxValue - len(",+1000000")
	list := cut(ids[0], room)
	for i, id := range ids[1:] {
		if len(list)+1+len(id) > room {
			return list + ",+" + strconv.Itoa(len(ids)-1-i)
		}
		list += "," + id
	}
	return list
}

func (a *assignment) setPlace(id *identity.Workload, g *cgroup.Identity, env *environment) {
	id.ContainerID, id.ContainerRuntime = g.ContainerID, g.Runtime
	id.PodUID, id.QoS, id.ECSTask = g.PodUID, g.QoS, g.ECSTask
	id.SlurmTask, id.SlurmUID, id.SlurmSLUID = g.SlurmTask, g.SlurmUID, g.SlurmSLUID
	told := env.place()
	id.SlurmJob, id.SlurmStep = a.slurmOf(g, &told)
	if id.SlurmJob != "" && id.SlurmJob == told.SlurmJob {
		id.SlurmJobName = env.get(envSlurmJobName)
	}
}

// slurmOf is the job and the step of a process: those that its control group tells,
// else those of its environment, if these count.
func (a *assignment) slurmOf(g *cgroup.Identity, told *Job) (job, step string) {
	if a.d.slurmGroups && g.SlurmJob == "" && g.SlurmSLUID == "" {
		return "", "" // it has left its job
	}
	job, step = cmp.Or(g.SlurmJob, told.SlurmJob), g.SlurmStep
	if job == told.SlurmJob {
		step = cmp.Or(step, told.SlurmStep)
	}
	return job, step
}

// counted is the place in a job that counts. Slurm's own numbers do within a step
// alone: it calls the script of a batch job 0, too.
func (a *assignment) counted(f *facts, job Job) Job {
	if !job.slurmRank {
		return job
	}
	if _, step := a.slurmOf(&f.group, &job); step == "" || step == "batch" {
		return Job{}
	}
	return job
}
