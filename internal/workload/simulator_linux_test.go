// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// simulator is a machine whose processes fork, use CPU time, end, wait for
// their children, ignore them, are adopted, and get the pids of others. It
// knows what really happened.
type simulator struct {
	rand  *rand.Rand
	rules simRules
	now   uint64 // ticks since boot
	procs map[int]*simProcess
	// sorted are their pids.
	sorted []int
	init   *simProcess
	root   *simProcess
	// lastStart is when a pid was given out last: not twice in a tick.
	lastStart map[int]uint64
	// used is what the members of the tree used while they were members. A torn
	// pass may take one that just left for a member still: then all that they
	// and their children ever use.
	used uint64
	// all is what everybody on the machine used.
	all uint64
}

type simRules struct {
	// orderly parents wait for all of their children before they end.
	orderly bool
	// ignoring parents exist, who never wait.
	ignoring bool
	// subreapers exist in the tree, who adopt orphans.
	subreapers bool
	// torn passes see some processes later than others. No pid is used again
	// then: within one pass that does not happen.
	torn bool
}

func (r simRules) pids() int {
	if r.torn {
		return 2000
	}
	return 24
}

type simProcess struct {
	Process
	parent               *simProcess
	children             []*simProcess
	ignores, isSubreaper bool
	wasMember            bool
	// group, when it is not 0, is the container that it is in, which its children
	// inherit.
	group int
	// isRun makes a workload of its tree, isHelper none of it.
	isRun, isHelper bool
}

const rootPid = 10

func newSimulator(seed uint64, rules simRules) *simulator {
	s := &simulator{
		rand: rand.New(rand.NewPCG(seed, 1)), rules: rules, now: 1000,
		procs: map[int]*simProcess{}, lastStart: map[int]uint64{},
	}
	s.init = s.add(1, nil)
	s.root = s.add(rootPid, s.init)
	s.root.wasMember = true
	s.root.isSubreaper = rules.subreapers && s.chance(2)
	return s
}

func (s *simulator) chance(n int) bool { return s.rand.IntN(n) == 0 }

func (s *simulator) add(pid int, parent *simProcess) *simProcess {
	p := &simProcess{Process: Process{Pid: pid, Start: s.now, Threads: 1}, parent: parent}
	if parent != nil {
		p.Parent = parent.Pid
		parent.children = append(parent.children, p)
	}
	s.procs[pid] = p
	at, _ := slices.BinarySearch(s.sorted, pid)
	s.sorted = slices.Insert(s.sorted, at, pid)
	s.lastStart[pid] = s.now
	return p
}

func (p *simProcess) inTree(root *simProcess) bool {
	for ; p != nil; p = p.parent {
		if p == root {
			return true
		}
	}
	return false
}

// anyone picks a living process, mostly of the tree.
func (s *simulator) anyone() *simProcess {
	for {
		p := s.procs[s.sorted[s.rand.IntN(len(s.sorted))]]
		if !p.Zombie && p != s.init {
			return p
		}
	}
}

// step lets something happen.
func (s *simulator) step() {
	p := s.anyone()
	switch s.rand.IntN(12) {
	case 0, 1, 2:
		s.fork(p)
	case 3, 4:
		s.now += 1 + uint64(s.rand.IntN(3))
	case 5:
		s.end(p)
	case 6:
		s.wait(p)
	case 7, 8: // a shell, or an init in a container
		for range len(p.children) {
			s.wait(p)
		}
	default:
		s.use(p, uint64(s.rand.IntN(50)))
	}
}

func (s *simulator) use(p *simProcess, ticks uint64) {
	p.Own += ticks
	s.all += ticks
	if p.inTree(s.root) || (s.rules.torn && p.wasMember) {
		s.used += ticks
	}
}

func (s *simulator) fork(parent *simProcess) {
	if s.chance(8) {
		parent = s.init
	}
	pid := 2 + s.rand.IntN(s.rules.pids())
	last, given := s.lastStart[pid]
	if s.procs[pid] != nil || (given && (s.rules.torn || last == s.now)) {
		return
	}
	child := s.add(pid, parent)
	child.wasMember, child.group = parent.wasMember, parent.group
	child.ignores = s.rules.ignoring && s.chance(4)
	child.isSubreaper = s.rules.subreapers && s.chance(4)
}

// wait waits for one child that ended.
func (s *simulator) wait(p *simProcess) {
	for _, child := range p.children {
		if child.Zombie {
			p.Children += child.Total()
			s.remove(child)
			return
		}
	}
}

func (s *simulator) remove(p *simProcess) {
	delete(s.procs, p.Pid)
	at, _ := slices.BinarySearch(s.sorted, p.Pid)
	s.sorted = slices.Delete(s.sorted, at, at+1)
	p.parent.children = slices.DeleteFunc(p.parent.children, func(c *simProcess) bool { return c == p })
}

// end ends a process: its children are adopted.
func (s *simulator) end(p *simProcess) {
	if p == s.root {
		return
	}
	if s.rules.orderly {
		for _, child := range p.children {
			if !child.Zombie {
				return
			}
		}
		for len(p.children) > 0 {
			s.wait(p)
		}
	}
	heir := p.parent
	for heir != s.init && !heir.isSubreaper {
		heir = heir.parent
	}
	for _, child := range slices.Clone(p.children) {
		child.parent, child.Parent = heir, heir.Pid
		heir.children = append(heir.children, child)
		if child.Zombie {
			s.ended(child)
		}
	}
	p.children = nil
	p.Zombie = true
	s.ended(p)
}

// ended tells the parent: one that ignores it lets the time get lost, and init
// waits at once.
func (s *simulator) ended(p *simProcess) {
	switch {
	case p.parent.ignores:
		s.remove(p)
	case p.parent == s.init:
		s.init.Children += p.Total()
		s.remove(p)
	}
}

// snapshot makes a pass in the order of the pids, in which things happen when
// it is torn.
func (s *simulator) snapshot(torn bool) *Snapshot {
	s.now++ // what starts in the tick of a snapshot comes after it
	snap := &Snapshot{BootTicks: s.now, Boot: "boot"}
	for pid := range s.rules.pids() + 2 {
		p, ok := s.procs[pid]
		if !ok {
			continue
		}
		snap.Processes = append(snap.Processes, p.Process)
		if torn && s.chance(2) {
			s.step()
		}
	}
	snap.index()
	snap.dropEnded(func(pid int) bool { return s.procs[pid] != nil })
	return snap
}

// checkTree lets a simulated machine run, and compares.
func checkTree(t *testing.T, seed uint64, rules simRules) (counted, used uint64) {
	t.Helper()
	s := newSimulator(seed, rules)
	for range s.rand.IntN(60) {
		s.step()
	}
	var u TreeUsage
	var before *Snapshot
	usedBefore := uint64(0) // as of the snapshot before
	for range 12 {
		// Of what ends during the very first pass nothing can be known.
		snap := s.snapshot(rules.torn && before != nil)
		tree := snap.Tree(rootPid)
		require.NotEmpty(t, tree)
		ticks, ok := u.Update(snap, tree)
		require.Equal(t, before != nil, ok)
		if ok {
			counted += ticks
			require.GreaterOrEqual(t, ticks, grownAlive(before, snap), "less than the living used; seed %d, %+v", seed, rules)
			require.LessOrEqual(t, counted, s.used, "more than all used; seed %d, %+v", seed, rules)
			if !rules.torn {
				require.LessOrEqual(t, ticks, s.used-usedBefore, "more than was used in the interval; seed %d, %+v", seed, rules)
			}
			if rules.orderly && !rules.torn {
				require.Equal(t, s.used, counted, "not exact; seed %d, %+v", seed, rules)
			}
		} else {
			require.Zero(t, ticks)
			s.used = 0
		}
		before, usedBefore = snap, s.used
		for range s.rand.IntN(120) {
			s.step()
		}
	}
	return counted, s.used
}

// grownAlive is what those used themselves who were in the tree both times.
func grownAlive(before, after *Snapshot) uint64 {
	members := map[Key]*Process{}
	for _, p := range before.Tree(rootPid) {
		members[p.Key()] = p
	}
	var sum uint64
	for _, p := range after.Tree(rootPid) {
		if was, ok := members[p.Key()]; ok {
			sum += p.Own - was.Own
		}
	}
	return sum
}

// Over many machines: never more than was used, never less than the living
// used themselves, and exact where everybody waits.
func TestTreeUsageOfSimulatedMachines(t *testing.T) {
	runs := 500
	if testing.Short() {
		runs = 50
	}
	tests := []struct {
		name  string
		rules simRules
	}{
		{"everybody waits", simRules{orderly: true}},
		{"parents end first, orphans go to init", simRules{}},
		{"parents ignore their children", simRules{ignoring: true}},
		{"orphans are adopted within the tree", simRules{subreapers: true}},
		{"all of it", simRules{ignoring: true, subreapers: true}},
		{"a pass takes time", simRules{torn: true}},
		{"a pass takes time, everybody waits", simRules{orderly: true, torn: true}},
		{"a pass takes time, all of it", simRules{ignoring: true, subreapers: true, torn: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var counted, used uint64
			runs := runs
			if tt.rules.torn {
				runs /= 8 // they take longer
			}
			for seed := range uint64(runs) {
				c, u := checkTree(t, seed, tt.rules)
				counted, used = counted+c, used+u
			}
			require.NotZero(t, counted)
			t.Logf("counted %.2f %% of what was used", 100*float64(counted)/float64(used))
		})
	}
}
