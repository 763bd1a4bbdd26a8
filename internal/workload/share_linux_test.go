// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
)

// shuffle makes runs and helpers of some processes, and moves some to other
// containers.
func (s *simulator) shuffle() {
	for range s.rand.IntN(4) {
		p := s.anyone()
		switch s.rand.IntN(4) {
		case 0:
			p.isRun = !p.isRun
		case 1:
			p.isHelper = !p.isHelper
		default:
			p.group = s.rand.IntN(4)
		}
	}
}

// assigned shares a snapshot out as a pass does.
func (s *simulator) assigned(d *Discovery, snap *Snapshot) []*Workload {
	d.people = d.people[:0]
	helpers := map[int]bool{}
	var roots []*Process
	for i := range snap.Processes {
		p := &snap.Processes[i]
		is := s.procs[p.Pid]
		if p.Zombie {
			continue
		}
		f := &facts{rule: -1}
		if is.group > 0 {
			f.group = cgroup.Identity{ContainerID: strconv.Itoa(is.group), ContainerGroup: fmt.Sprint("/", is.group)}
		}
		d.people = append(d.people, person{p, f})
		helpers[p.Pid] = is.isHelper
		if is.isRun {
			roots = append(roots, p)
		}
	}
	a := newAssignment(d, snap)
	a.claimTarget()
	for _, w := range a.claimTrees(KindRun, roots, helpers) {
		w.Identity.ID = fmt.Sprint("run-", w.Root.Key())
	}
	a.claimSets(KindContainer, containerOf)
	all := a.workloads()
	for _, w := range all {
		if w.Kind == KindProcess {
			w.Identity.ID = "process"
		}
	}
	return all
}

// checkWorkloads lets a machine run whose workloads come, go, move and lie within
// each other.
func checkWorkloads(t *testing.T, seed uint64, rules simRules, target Target) (counted, all uint64) {
	t.Helper()
	s := newSimulator(seed, rules)
	for range s.rand.IntN(60) {
		s.step()
	}
	d := NewDiscovery(Options{Target: target, MaxWorkloads: 1000})
	usages := map[string]*TreeUsage{}
	before := map[string]map[Key]uint64{} // own times around each workload
	used := uint64(0)
	for range 14 {
		s.shuffle()
		snap := s.snapshot(false)
		sum := uint64(0)
		present, now := map[string]*TreeUsage{}, map[string]map[Key]uint64{}
		members := map[Key]bool{}
		for _, w := range s.assigned(d, snap) {
			id := w.Identity.ID
			u := usages[id]
			if u == nil {
				u = &TreeUsage{}
			}
			present[id] = u
			ticks, ok := u.Follow(snap, w)
			require.Equal(t, before[id] != nil, ok)
			sum += ticks
			own := uint64(0)
			now[id] = map[Key]uint64{}
			for _, p := range w.around {
				now[id][p.Key()] = p.Own
			}
			for _, p := range w.Members {
				require.False(t, members[p.Key()], "%v is in two; seed %d", p.Key(), seed)
				members[p.Key()] = true
				if was, known := before[id][p.Key()]; known {
					own += p.Own - was
				}
			}
			require.GreaterOrEqual(t, ticks, own, "less than its own used in %s; seed %d, %+v", id, seed, rules)
		}
		require.LessOrEqual(t, sum, s.all-used, "more than all used in the interval; seed %d, %+v", seed, rules)
		counted += sum
		usages, before, used = present, now, s.all
		for range s.rand.IntN(120) {
			s.step()
		}
	}
	return counted, s.all
}

// Of workloads that lie within each other, and change, no tick counts twice.
func TestWorkloadsOfSimulatedMachines(t *testing.T) {
	runs := 150
	if testing.Short() {
		runs = 40
	}
	for _, rules := range []simRules{
		{orderly: true}, {}, {ignoring: true}, {subreapers: true}, {ignoring: true, subreapers: true},
	} {
		for _, target := range []Target{{}, {Pid: rootPid, Tree: true}} {
			t.Run(fmt.Sprintf("%+v %v", rules, target.Pid), func(t *testing.T) {
				t.Parallel()
				var counted, all uint64
				for seed := range uint64(runs) {
					c, a := checkWorkloads(t, seed, rules, target)
					counted, all = counted+c, all+a
				}
				require.NotZero(t, counted)
				t.Logf("counted %.2f %% of what the machine used", 100*float64(counted)/float64(all))
			})
		}
	}
}
