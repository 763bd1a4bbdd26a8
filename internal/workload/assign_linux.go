// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"

	"go.uber.org/zap"
)

// assignment shares the processes of a snapshot out among workloads. Who claims a
// process first has it.
type assignment struct {
	d *Discovery
	s *Snapshot
	// helpers are W&B's own processes.
	helpers map[int]bool
	// owners are by pid.
	owners map[int]*draft
	drafts []*draft
}

// draft is a workload in the making.
type draft struct {
	Workload
	runs []Run
	// jobs are the places of the members that have a rank.
	jobs []Job
	// inGroup is how many of those around are in the group, as far as that can be
	// told; shared says that more may be, or fewer.
	inGroup int
	shared  bool
}

func newAssignment(d *Discovery, s *Snapshot) *assignment {
	return &assignment{d: d, s: s, helpers: map[int]bool{}, owners: make(map[int]*draft, len(d.people))}
}

func (a *assignment) add(kind Kind, root *Process) *draft {
	w := &draft{Workload: Workload{Kind: kind, Root: root}}
	a.drafts = append(a.drafts, w)
	return w
}

func (a *assignment) claim(p *Process, w *draft) {
	if a.owners[p.Pid] == nil {
		a.owners[p.Pid] = w
	}
}

// claimTarget claims the configured process. It says so when that is gone.
func (a *assignment) claimTarget() (gone string) {
	t := &a.d.target
	if t.pid == 0 {
		return ""
	}
	p := a.s.Find(t.pid)
	if p == nil && a.s.Unread != nil {
		return "" // which may be it
	}
	if p == nil || p.Zombie || !t.is(a.s, p) {
		if t.known {
			return "process " + strconv.Itoa(t.pid) + " is gone"
		}
		return "there is no process " + strconv.Itoa(t.pid) + " below " + a.d.proc
	}
	w := a.add(KindProcess, p)
	w.Single = !a.d.opts.Target.Tree
	w.around = []*Process{p}
	if !w.Single {
		w.around = a.s.Tree(p.Pid)
	}
	for _, p := range w.around {
		a.claim(p, w)
	}
	return ""
}

// is tells whether the process that has the pid now is the target. The first one
// is. A boot that is not shown tells nothing.
func (t *target) is(s *Snapshot, p *Process) bool {
	if t.known && (t.start != p.Start || (t.boot != "" && s.Boot != "" && t.boot != s.Boot)) {
		return false
	}
	t.known, t.start = true, p.Start
	t.boot = cmp.Or(s.Boot, t.boot)
	return true
}

// claimRuns claims the trees of the training processes, without W&B's own
// processes. Several runs of one process are one workload.
func (a *assignment) claimRuns(runs []Run) {
	byRoot := map[int][]Run{}
	var roots []*Process
	for _, r := range runs {
		if r.TargetPid == 0 {
			continue
		}
		if byRoot[r.TargetPid] == nil {
			roots = append(roots, a.s.Find(r.TargetPid))
		}
		byRoot[r.TargetPid] = append(byRoot[r.TargetPid], r)
	}
	for _, w := range a.claimTrees(KindRun, roots, a.helpers) {
		w.runs = byRoot[w.Root.Pid]
		slices.SortFunc(w.runs, byStart)
	}
}

// claimTrees claims the trees of these processes: of one within another the
// inner one is its own.
func (a *assignment) claimTrees(kind Kind, roots []*Process, without map[int]bool) []*draft {
	stop := map[int]bool{}
	for _, p := range roots {
		stop[p.Pid] = true
	}
	drafts := make([]*draft, 0, len(roots))
	for _, root := range roots {
		if a.owners[root.Pid] != nil {
			continue // the configured process; without its root a tree is nothing
		}
		w := a.add(kind, root)
		w.around = a.s.Tree(root.Pid)
		inside := map[int]bool{root.Pid: true}
		for _, p := range w.around { // parents first
			if p != root && (!inside[p.Parent] || stop[p.Pid] || without[p.Pid]) {
				continue
			}
			inside[p.Pid] = true
			a.claim(p, w)
		}
		drafts = append(drafts, w)
	}
	return drafts
}

// claimGroups claims what Slurm steps and then containers have.
func (a *assignment) claimGroups() {
	a.d.slurmGroups = a.d.slurmGroups || slices.ContainsFunc(a.d.people, func(p person) bool {
		return p.facts.group.SlurmJob != "" || p.facts.group.SlurmSLUID != ""
	})
	if a.d.opts.Discover.Steps {
		a.claimSets(KindStep, a.stepOf)
	}
	if a.d.opts.Discover.Containers {
		a.claimSets(KindContainer, containerOf)
	}
}

// claimSets claims the processes that have the same key; those without one are
// left.
func (a *assignment) claimSets(kind Kind, keyOf func(person) (key, group string)) {
	sets := map[string]*draft{}
	setOf := map[int]*draft{}
	for _, p := range a.d.people {
		key, group := keyOf(p)
		if key == "" {
			continue
		}
		w := sets[key]
		if w == nil {
			w = a.add(kind, p.Process)
			w.Group, w.Identity.ID = group, key
			sets[key] = w
		}
		w.shared = w.shared || group != w.Group
		w.Group = cmp.Or(w.Group, group)
		w.around = append(w.around, p.Process)
		setOf[p.Pid] = w
		a.claim(p.Process, w)
	}
	below := belowSets{a: a, setOf: setOf, seen: map[int]*draft{}}
	outer := map[string]bool{}
	for _, w := range sets {
		below.add(w)
		for group := path.Dir(w.Group); len(group) > 1; group = path.Dir(group) {
			outer[group] = true
		}
	}
	for _, w := range sets {
		w.shared = w.shared || outer[w.Group]
	}
}

// belowSets finds what is not in a set and was started from within.
type belowSets struct {
	a     *assignment
	setOf map[int]*draft
	// seen are those that were looked at, for which set the last time.
	seen  map[int]*draft
	stack []*Process
}

// add puts the descendants of a set around it: their time comes to the set when
// they are waited for. Those that ended are put into the set of their parents:
// nothing else tells of them.
func (b *belowSets) add(w *draft) {
	members := w.around
	w.inGroup = len(members)
	for _, top := range members {
		if b.setOf[top.Parent] == w {
			continue
		}
		for b.stack = append(b.stack[:0], top); len(b.stack) > 0; {
			p := b.stack[len(b.stack)-1]
			b.stack = b.stack[:len(b.stack)-1]
			if b.seen[p.Pid] == w {
				continue
			}
			b.seen[p.Pid] = w
			if b.setOf[p.Pid] != w {
				b.addOther(w, p)
			}
			for _, i := range b.a.s.children[p.Pid] {
				b.stack = append(b.stack, &b.a.s.Processes[i])
			}
		}
	}
}

func (b *belowSets) addOther(w *draft, p *Process) {
	w.around = append(w.around, p)
	if !p.Zombie || b.setOf[p.Parent] != w {
		return
	}
	w.inGroup++
	if b.a.owners[p.Parent] == w {
		b.a.claim(p, w)
	}
}

// slurmStep is what runs the tasks of a step.
const slurmStep = "slurmstepd"

// stepOf tells the Slurm step of a process: by its control group, else by its
// environment where control groups are not used. What Slurm itself runs in a step
// is nobody's work: slurmstepd, and the sleep that keeps the extern step alive.
func (a *assignment) stepOf(p person) (key, group string) {
	g := &p.facts.group
	if p.Name == slurmStep {
		return "", ""
	}
	if g.SlurmJob == "" && g.SlurmSLUID == "" {
		if a.d.slurmGroups {
			return "", "" // what has left its job's groups is no part of the job
		}
		job := p.facts.env.place()
		return stepKey(job.SlurmJob, job.SlurmStep), ""
	}
	if g.Helper && g.StepGroup != "" && g.ContainerGroup == "" {
		return "", ""
	}
	if parent := a.s.Find(p.Parent); p.Name == "sleep" && g.SlurmStep == "extern" && parent != nil && parent.Name == slurmStep {
		return "", ""
	}
	return stepKey(cmp.Or(g.SlurmSLUID, g.SlurmJob), g.SlurmStep), g.StepGroup
}

// stepKey is the id of a step's workload; a job without a step is one, too.
func stepKey(job, step string) string {
	switch {
	case job == "":
		return ""
	case step == "":
		return "slurm-" + job
	}
	return "slurm-" + job + "." + step
}

// shortID is how much of a container's id is unique on a machine, as runtimes
// show it.
const shortID = 12

func containerOf(p person) (key, group string) {
	g := &p.facts.group
	if g.ContainerID == "" || g.Helper {
		return "", ""
	}
	id := g.ContainerID
	if len(id) == 64 {
		id = id[:shortID]
	}
	return "container-" + id, g.ContainerGroup
}

// claimMatches claims the trees of processes that a rule matches, the topmost of
// each rule.
func (a *assignment) claimMatches() {
	rules := map[int]int{}
	for _, p := range a.d.people {
		if p.facts.rule >= 0 {
			rules[p.Pid] = p.facts.rule + 1
		}
	}
	a.claimTrees(KindMatch, a.topmost(rules), nil)
}

// claimHolders claims the trees of processes that hold an accelerator, and are in
// no other workload.
func (a *assignment) claimHolders(holders map[int]int) {
	a.claimTrees(KindGPU, a.topmost(holders), nil)
}

// topmost returns the processes, of those that are marked and free, that have no
// ancestor with the same mark.
func (a *assignment) topmost(marks map[int]int) []*Process {
	var roots []*Process
	if len(marks) == 0 {
		return nil
	}
	for _, p := range a.d.people {
		mark := marks[p.Pid]
		if mark > 0 && a.owners[p.Pid] == nil && !a.isBelow(p.Process, marks, mark) {
			roots = append(roots, p.Process)
		}
	}
	return roots
}

func (a *assignment) isBelow(p *Process, marks map[int]int, mark int) bool {
	first := p
	for range a.s.Processes {
		parent := a.s.Find(p.Parent)
		if parent == nil || parent == first || parent == p || parent.Start > p.Start {
			// A pass is not one instant, so that parents may form a ring: one that is
			// younger than its child has only got the pid of the parent.
			return false
		}
		if p = parent; marks[p.Pid] == mark && a.owners[p.Pid] == nil {
			return true
		}
	}
	return false
}

// workloads finishes the drafts that have got something, up to the limits.
func (a *assignment) workloads() []*Workload {
	kept := make([]*draft, 0, len(a.drafts))
	groups := map[string]bool{}
	for _, w := range a.drafts {
		if w.IsGroup() {
			groups[w.Identity.ID] = true
		}
		if a.finish(w); len(w.Members) > 0 {
			kept = append(kept, w)
		}
	}
	maps.DeleteFunc(a.d.severalRanks, func(id string, _ bool) bool { return !groups[id] })
	slices.SortStableFunc(kept, func(x, y *draft) int {
		return cmp.Or(cmp.Compare(x.order(), y.order()), oldestFirst(x.Root, y.Root))
	})
	limit := a.d.opts.MaxWorkloads
	left := max(0, len(kept)-limit)
	a.d.noticeLimit("max_workloads", limit, left, "There are more workloads than are looked into; the rest is left out")
	a.drafts = kept[:len(kept)-left]
	all := make([]*Workload, 0, len(a.drafts))
	for _, w := range a.drafts {
		all = append(all, &w.Workload)
	}
	return all
}

var order = map[Kind]int{KindProcess: 0, KindRun: 1, KindStep: 2, KindContainer: 3, KindMatch: 4, KindGPU: 5}

// order puts the most specific first. What only environments tell comes last:
// there may be any number of that.
func (w *Workload) order() int {
	if w.Kind == KindStep && w.Group == "" {
		return len(order)
	}
	return order[w.Kind]
}

// finish tells members from others.
func (a *assignment) finish(w *draft) {
	if w.IsGroup() {
		w.around = parentsFirst(w.around)
	}
	own := 0
	for _, p := range w.around {
		if a.owners[p.Pid] != w {
			if w.foreign == nil {
				w.foreign = map[int]bool{}
			}
			w.foreign[p.Pid] = true
			continue
		}
		own++
		if !p.Zombie {
			w.Members = append(w.Members, p)
		}
	}
	if !w.IsGroup() || len(w.Members) == 0 {
		return
	}
	w.Root = w.Members[0]
	w.Whole = w.Group != "" && own == w.inGroup && !w.shared
	if a.isNobodysWork(w) {
		w.Members = nil
	}
}

// isNobodysWork tells a pod's sandbox, and what is left of a container when a run
// took all but W&B's own processes.
func (a *assignment) isNobodysWork(w *draft) bool {
	for _, p := range w.Members {
		if !a.helpers[p.Pid] && (p.Name != "pause" || w.Kind != KindContainer) {
			return false
		}
	}
	return true
}

// parentsFirst puts parents before their children, and of those that have no
// parent among them the oldest first.
func parentsFirst(set []*Process) []*Process {
	children := map[int][]*Process{}
	in := map[int]bool{}
	for _, p := range set {
		in[p.Pid] = true
	}
	sorted := make([]*Process, 0, len(set))
	for _, p := range set {
		if in[p.Parent] && p.Parent != p.Pid {
			children[p.Parent] = append(children[p.Parent], p)
			continue
		}
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, oldestFirst)
	for i := 0; i < len(sorted); i++ {
		sorted = append(sorted, children[sorted[i].Pid]...)
	}
	if len(sorted) == len(set) {
		return sorted
	}
	// A ring, which a pass that is not one instant may show, has no first.
	seen := map[int]bool{}
	for _, p := range sorted {
		seen[p.Pid] = true
	}
	for _, p := range slices.SortedFunc(slices.Values(set), oldestFirst) {
		if !seen[p.Pid] {
			sorted = append(sorted, p)
		}
	}
	return sorted
}

func oldestFirst(a, b *Process) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Pid, b.Pid))
}

// place is where the members of a workload are in their job; several ranks are
// none.
func (w *draft) place(env *environment) Job {
	switch {
	case w.IsGroup():
		return oneJob(w.jobs)
	case w.Kind == KindRun && w.runs[0].started.isRank():
		return w.runs[0].started
	}
	return env.place()
}

// oneJob is the place of the one process that has one; of several it is what they
// share, which is the size at most.
func oneJob(jobs []Job) Job {
	if len(jobs) == 0 {
		return Job{}
	}
	one := jobs[0]
	if slices.ContainsFunc(jobs, func(j Job) bool { return j.WorldSize != one.WorldSize }) {
		return Job{}
	}
	if len(jobs) > 1 {
		return Job{WorldSize: one.WorldSize}
	}
	return one
}

// noticeDenied says what is missing to look into processes that matter.
func (a *assignment) noticeDenied() {
	denied, example := 0, person{Process: &Process{}}
	for _, p := range a.d.people {
		if !p.facts.denied || (a.owners[p.Pid] == nil && p.Name != coreName && !a.d.rulesNeedExe()) {
			continue
		}
		if denied++; denied == 1 {
			example = p
		}
	}
	if denied == 0 {
		return // it is said once: who has not got the right will not get it
	}
	a.d.notice("denied", true,
		"Processes of other users cannot be looked into: W&B runs among them are not found, and projects, ranks and Slurm jobs that only the environment tells are missing",
		zap.Int("processes", denied), zap.Int("pid", example.Pid), zap.String("name", example.Name),
		zap.String("cure", "run as root, or with the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; in a container with these, also unconfined by AppArmor and SELinux"))
}

func (d *Discovery) rulesNeedExe() bool {
	return slices.ContainsFunc(d.opts.Match, func(r Rule) bool { return r.Exe != nil })
}
