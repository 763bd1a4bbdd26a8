// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proc is a process with this parent and start, and these ticks of its own and
// of its children.
func proc(pid, parent int, start, own, children uint64) Process {
	return Process{Pid: pid, Parent: parent, Start: start, Own: own, Children: children, Threads: 1}
}

func zombie(p Process) Process {
	p.Zombie = true
	return p
}

func snapshotAt(ticks uint64, processes ...Process) *Snapshot {
	s := &Snapshot{BootTicks: ticks, Boot: "boot", Processes: processes}
	s.index()
	return s
}

func updated(u *TreeUsage, s *Snapshot) uint64 {
	ticks, _ := u.Update(s, s.Tree(10))
	return ticks
}

func TestTreeUsage(t *testing.T) {
	root := func(own, children uint64) Process { return proc(10, 1, 100, own, children) }
	init := proc(1, 0, 1, 0, 0)
	tests := []struct {
		name          string
		before, after []Process
		want          uint64
	}{
		{"alone", []Process{root(50, 7)}, []Process{root(80, 7)}, 30},
		{"a worker runs", []Process{root(50, 0), proc(11, 10, 200, 20, 0)}, []Process{root(50, 0), proc(11, 10, 200, 25, 0)}, 5},
		{
			"a worker ends and is waited for: its last interval",
			[]Process{root(50, 0), proc(11, 10, 200, 20, 0)},
			[]Process{root(51, 32)},
			1 + 12,
		},
		{
			"a worker ends and is not waited for yet",
			[]Process{root(50, 0), proc(11, 10, 200, 20, 0)},
			[]Process{root(50, 0), zombie(proc(11, 10, 200, 32, 0))},
			12,
		},
		{
			"then it is",
			[]Process{root(50, 0), zombie(proc(11, 10, 200, 32, 0))},
			[]Process{root(50, 32)},
			0,
		},
		{"a worker starts", []Process{root(50, 0)}, []Process{root(50, 0), proc(11, 10, 1001, 20, 4)}, 24},
		{"in the tick of the snapshot", []Process{root(50, 0)}, []Process{root(50, 0), proc(11, 10, 1000, 20, 0)}, 20},
		{"a worker starts and ends between", []Process{root(50, 0)}, []Process{root(50, 20)}, 20},
		{
			"an intermediate waits for its worker and ends itself, all in one interval",
			[]Process{root(0, 0), proc(11, 10, 200, 5, 0), proc(12, 11, 300, 1000, 0)},
			[]Process{root(0, 5+1000+7)}, // 7 since
			7,
		},
		{
			"an intermediate waits and stays",
			[]Process{root(0, 0), proc(11, 10, 200, 5, 0), proc(12, 11, 300, 1000, 0)},
			[]Process{root(0, 0), proc(11, 10, 200, 6, 1003)},
			1 + 3,
		},
		{
			"an orphan adopted by init is in the tree no more, and has left nothing",
			[]Process{init, root(0, 0), proc(11, 10, 200, 5, 0), proc(12, 11, 300, 1000, 0)},
			[]Process{init, root(0, 8), proc(12, 1, 300, 1500, 0)},
			3,
		},
		{
			"an orphan adopted by the root, who waits",
			[]Process{root(0, 0), proc(11, 10, 200, 0, 0), proc(12, 11, 300, 5, 0), proc(13, 12, 400, 1000, 0)},
			[]Process{root(0, 5+1010)},
			10,
		},
		{
			"an orphan adopted above a parent that is not waited for yet",
			[]Process{root(0, 0), proc(11, 10, 200, 0, 0), proc(12, 11, 300, 1000, 0)},
			[]Process{root(0, 1010), zombie(proc(11, 10, 200, 2, 0))},
			2 + 10,
		},
		{
			"children are ignored by a parent that lives: what its own parent got is of others",
			[]Process{root(0, 0), proc(11, 10, 200, 0, 0), proc(12, 11, 300, 500, 0)},
			[]Process{root(0, 300), proc(11, 10, 200, 0, 0)},
			300,
		},
		{
			"a parent that left the tree took its child's time along",
			[]Process{init, root(0, 0), proc(11, 10, 200, 5, 0), proc(12, 11, 300, 6, 0), proc(13, 12, 400, 500, 0)},
			[]Process{init, root(0, 5+300), proc(12, 1, 300, 6, 501)},
			300,
		},
		{
			"an orphan adopted by one that then ended below another",
			[]Process{root(0, 0), proc(11, 10, 200, 0, 0), proc(12, 11, 300, 0, 0), proc(13, 12, 400, 100, 0)},
			[]Process{root(0, 0), zombie(proc(11, 10, 200, 0, 103)), zombie(proc(12, 10, 300, 0, 0))},
			3,
		},
		{
			"what only the parent can have got is taken off first",
			[]Process{root(0, 0), proc(11, 10, 200, 0, 0), proc(12, 11, 300, 0, 0), proc(13, 12, 400, 0, 0), proc(14, 13, 500, 100, 0), proc(15, 11, 600, 100, 0)},
			[]Process{root(0, 104), proc(11, 10, 200, 0, 103), proc(12, 11, 300, 0, 0)},
			4 + 3,
		},
		{
			"an older process joins with nothing",
			[]Process{init, root(0, 0), proc(12, 1, 300, 1000, 500)},
			[]Process{init, root(2, 0), proc(12, 10, 300, 1400, 500)},
			2,
		},
		{
			"another process has the pid",
			[]Process{root(0, 0), proc(11, 10, 200, 1000, 0)},
			[]Process{root(0, 1003), proc(11, 10, 1005, 4, 0)},
			3 + 4,
		},
		{
			"another process, of others, has the pid",
			[]Process{init, root(0, 0), proc(11, 10, 200, 1000, 0)},
			[]Process{init, root(0, 1003), proc(11, 1, 1005, 4, 0)},
			3,
		},
		{
			"children are ignored: their last interval is lost, and nothing else",
			[]Process{root(10, 0), proc(11, 10, 200, 1000, 0)},
			[]Process{root(15, 0)},
			5,
		},
		{"counters that fall count nothing", []Process{root(50, 40), proc(11, 10, 200, 9, 0)}, []Process{root(20, 10), proc(11, 10, 200, 10, 0)}, 1},
		{"two end, each is known below its own parent", []Process{
			root(0, 0), proc(11, 10, 200, 0, 0), proc(12, 10, 200, 0, 0), proc(13, 11, 300, 100, 0), proc(14, 12, 300, 10, 0),
		}, []Process{root(0, 0), proc(11, 10, 200, 0, 101), proc(12, 10, 200, 0, 12)}, 1 + 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var u TreeUsage
			first := snapshotAt(1000, tt.before...)
			ticks, ok := u.Update(first, first.Tree(10))
			require.False(t, ok)
			require.Zero(t, ticks)
			second := snapshotAt(2000, tt.after...)
			ticks, ok = u.Update(second, second.Tree(10))
			assert.True(t, ok)
			assert.Equal(t, tt.want, ticks)
			// Nothing happens, nothing counts.
			third := snapshotAt(3000, tt.after...)
			assert.Zero(t, updated(&u, third))
		})
	}
}

// A pass takes time: the worker was gone when it was to be read, and its parent
// had been read before that.
func TestTreeUsageOfAWorkerThatEndsDuringThePass(t *testing.T) {
	var u TreeUsage
	root, worker := proc(10, 1, 100, 0, 0), proc(11, 10, 200, 5000, 0)
	updated(&u, snapshotAt(1000, root, worker))
	assert.Zero(t, updated(&u, snapshotAt(2000, root)))
	root.Children = 5008
	assert.Equal(t, uint64(8), updated(&u, snapshotAt(3000, root)), "not its whole life")
	root.Children += 100
	assert.Equal(t, uint64(100), updated(&u, snapshotAt(4000, root)))
}

// A worker that its parent ignores is waited for in vain, but not for ever.
func TestTreeUsageDoesNotLookForLostTimeForEver(t *testing.T) {
	var u TreeUsage
	root := proc(10, 1, 100, 0, 0)
	updated(&u, snapshotAt(1000, root, proc(11, 10, 200, 5000, 0)))
	updated(&u, snapshotAt(2000, root))
	updated(&u, snapshotAt(3000, root))
	root.Children = 70
	assert.Equal(t, uint64(70), updated(&u, snapshotAt(4000, root)))
}

func TestTreeUsageOfAnotherBoot(t *testing.T) {
	var u TreeUsage
	at := func(ticks uint64, boot string, own uint64) (uint64, bool) {
		s := snapshotAt(ticks, proc(10, 1, 100, own, 0))
		s.Boot = boot
		return u.Update(s, s.Tree(10))
	}
	steps := []struct {
		boot string
		own  uint64
		want uint64
		ok   bool
	}{
		{"first", 10, 0, false},
		{"first", 15, 5, true},
		{"", 16, 1, true}, // not shown for once
		{"first", 18, 2, true},
		{"second", 30, 0, false},
		{"second", 31, 1, true},
	}
	for i, step := range steps {
		ticks, ok := at(1000*uint64(i+1), step.boot, step.own)
		assert.Equal(t, step.want, ticks, "step %d", i)
		assert.Equal(t, step.ok, ok, "step %d", i)
	}
}

func TestTreeUsageOfParentsInARing(t *testing.T) {
	var u TreeUsage
	ring := func(own uint64) *Snapshot {
		return snapshotAt(1000, proc(10, 12, 100, own, 0), proc(11, 10, 100, own, 0), proc(12, 11, 100, own, 0))
	}
	updated(&u, ring(1))
	assert.Equal(t, uint64(6), updated(&u, ring(3)))
	assert.Zero(t, updated(&u, snapshotAt(2000, proc(10, 12, 100, 3, 0))))
	var nobody TreeUsage
	assert.Zero(t, updated(&nobody, snapshotAt(1000)))
	assert.Zero(t, updated(&nobody, snapshotAt(2000)))
}
