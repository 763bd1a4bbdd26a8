// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type fixture struct {
	t    testing.TB
	root string
	now  time.Time
	// ticks is what the boot clock says.
	ticks    uint64
	ticksErr error
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, root: t.TempDir(), now: testStart, ticks: 5000}
	f.write("sys/kernel/random/boot_id", "the boot\n")
	return f
}

func (f *fixture) write(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.root, "proc", name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f.t, os.WriteFile(path, []byte(content), 0o600))
}

func statLine(p *Process) string {
	state := "S"
	switch {
	case p.Zombie:
		state = "Z"
	case p.Blocked:
		state = "D"
	}
	return fmt.Sprintf("%d (%s) %s %d 1 1 0 -1 4194304 1 2 3 4 %d 0 %d 0 20 0 %d 0 %d 1 2 3 4 5 %d 0\n",
		p.Pid, p.Name, state, p.Parent, p.Own, p.Children, p.Threads, p.Start, p.stack)
}

func (f *fixture) add(processes ...Process) {
	f.t.Helper()
	for i := range processes {
		f.write(strconv.Itoa(processes[i].Pid)+"/stat", statLine(&processes[i]))
	}
}

func (f *fixture) snapshots() *Snapshots {
	s := NewSnapshots(f.root).WithClock(func() time.Time { return f.now }, func() (uint64, error) { return f.ticks, f.ticksErr })
	f.t.Cleanup(s.Close)
	return s
}

func (f *fixture) take(s *Snapshots) *Snapshot {
	f.t.Helper()
	snap, err := s.Take(f.t.Context())
	require.NoError(f.t, err)
	slices.SortFunc(snap.Processes, func(a, b Process) int { return a.Pid - b.Pid })
	snap.index()
	return snap
}

func pidsOf(processes []*Process) []int {
	var pids []int
	for _, p := range processes {
		pids = append(pids, p.Pid)
	}
	return pids
}

func TestSnapshot(t *testing.T) {
	f := newFixture(t)
	all := []Process{
		{Pid: 1, Start: 1, Own: 9, Children: 99, Threads: 1, Name: "init"},
		{Pid: 20, Parent: 1, Start: 300, Own: 7, Threads: 4, Name: "a) R (b"},
		{Pid: 21, Parent: 20, Start: 400, Own: 1, Threads: 2, Name: "worker"},
		{Pid: 22, Parent: 21, Start: 500, Zombie: true, Threads: 1, Name: "worker"},
		{Pid: 30, Parent: 1, Start: 600, Threads: 1, Name: ""},
	}
	f.add(all...)
	f.write("self/stat", "x")
	f.write("uptime", "1 1\n")
	snap := f.take(f.snapshots())
	assert.Equal(t, all, snap.Processes)
	require.NoError(t, snap.Unread)
	assert.Equal(t, testStart, snap.At)
	assert.Equal(t, uint64(5000), snap.BootTicks)
	assert.Equal(t, "the boot\n", snap.Boot)

	assert.Equal(t, []int{20, 21, 22}, pidsOf(snap.Tree(20)))
	assert.Equal(t, []int{1, 20, 30, 21, 22}, pidsOf(snap.Tree(1)))
	assert.Nil(t, snap.Tree(23))
	assert.True(t, snap.Has(Key{22, 500}))
	assert.False(t, snap.Has(Key{22, 501}))
	assert.False(t, snap.Has(Key{23, 500}))
	assert.Equal(t, uint64(108), snap.Find(1).Total())
}

func TestProcessesThatEndOrHide(t *testing.T) {
	f := newFixture(t)
	f.add(Process{Pid: 20, Start: 1, Threads: 1, Name: "ok"})
	for pid, content := range map[int]string{40: "", 41: "41 (cut) S 1 1", 42: "42 (cut", 43: "43"} {
		f.write(strconv.Itoa(pid)+"/stat", content)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(f.root, "proc/44"), 0o755))      // hidden
	require.NoError(t, os.MkdirAll(filepath.Join(f.root, "proc/45/stat"), 0o755)) // unreadable
	f.write("46", "a file")
	require.NoError(t, os.Symlink("nowhere", filepath.Join(f.root, "proc/47")))
	f.write("0/stat", statLine(&Process{}))
	f.write("-5/stat", statLine(&Process{Pid: 5}))
	f.write("0x30/stat", statLine(&Process{Pid: 48}))
	f.write("99999999999999999999/stat", statLine(&Process{Pid: 49}))
	snap := f.take(f.snapshots())
	assert.Len(t, snap.Processes, 1)
	assert.NoError(t, snap.Unread)
}

func TestOneBadProcessTakesNoOtherAway(t *testing.T) {
	f := newFixture(t)
	f.add(Process{Pid: 20, Start: 1, Threads: 1, Name: "ok"}, Process{Pid: 22, Parent: 20, Start: 1, Threads: 1, Name: "ok"})
	f.write("21/stat", "21 (bad) S 20 1 1 0 -1 4194304 1 2 3 4 x 0 0 0 20 0 1 0 5 1 2\n")
	s := f.snapshots()
	snap := f.take(s)
	assert.Len(t, snap.Processes, 2)
	require.EqualError(t, snap.Unread, `process 21: stat: field 14 not understood: "x"`)
	f.add(Process{Pid: 21, Start: 1, Threads: 1, Name: "good"})
	snap = f.take(s)
	assert.Len(t, snap.Processes, 3)
	assert.NoError(t, snap.Unread)
}

func TestASnapshotThatFails(t *testing.T) {
	s := NewSnapshots(t.TempDir())
	_, err := s.Take(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)

	f := newFixture(t)
	f.ticksErr = errors.New("no clock")
	broken := f.snapshots()
	_, err = broken.Recent(t.Context(), time.Hour)
	require.ErrorIs(t, err, f.ticksErr)
	f.ticksErr = nil
	_, err = broken.Recent(t.Context(), time.Hour)
	require.NoError(t, err, "a failure is not remembered")
}

// Without file descriptors no process can be read: that none is there must not
// be concluded.
func TestASnapshotWithoutFileDescriptors(t *testing.T) {
	f := newFixture(t)
	f.add(Process{Pid: 20, Start: 1, Threads: 1, Name: "ok"})
	s := f.snapshots()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	next, err := unix.Open(f.root, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(next))
	// Room for the folder alone.
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: limit.Max}))
	_, err = s.Take(t.Context())
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, unix.EMFILE)
	assert.Len(t, f.take(s).Processes, 1)
}

func TestParentsInARing(t *testing.T) {
	f := newFixture(t)
	f.add(Process{Pid: 20, Parent: 22, Start: 1}, Process{Pid: 21, Parent: 20, Start: 1}, Process{Pid: 22, Parent: 21, Start: 1}, Process{Pid: 23, Parent: 23, Start: 1})
	snap := f.take(f.snapshots())
	assert.Equal(t, []int{21, 22, 20}, pidsOf(snap.Tree(21)))
	assert.Equal(t, []int{23}, pidsOf(snap.Tree(23)))
}

func TestProcessesThatEndDuringThePass(t *testing.T) {
	processes := []Process{
		{Pid: 5, Parent: 20},  // read before its parent, ended
		{Pid: 6, Parent: 20},  // read before its parent, lives
		{Pid: 7, Parent: 90},  // its parent was never seen: both ended
		{Pid: 8, Parent: 91},  // its parent was never seen
		{Pid: 20, Parent: 10}, // after its children
		{Pid: 10, Parent: 1},
		{Pid: 30, Parent: 10}, // ended, but its parent had been read
		{Pid: 31, Parent: 5},  // below one that ended: ended
		{Pid: 32, Parent: 5},  // below one that ended: lives
		{Pid: 1},
	}
	ended := map[int]bool{5: true, 7: true, 30: true, 31: true}
	snap := &Snapshot{Processes: processes}
	snap.index()
	snap.dropEnded(func(pid int) bool { return !ended[pid] })
	var pids []int
	for _, p := range snap.Processes {
		pids = append(pids, p.Pid)
		assert.Equal(t, p.Pid, snap.Find(p.Pid).Pid, "the tables are those of what is left")
	}
	assert.Equal(t, []int{6, 8, 20, 10, 30, 32, 1}, pids)
	assert.Nil(t, snap.Find(5))
}

func TestNamesAreKeptOnce(t *testing.T) {
	f := newFixture(t)
	f.add(Process{Pid: 20, Start: 1, Name: "python3"}, Process{Pid: 21, Start: 1, Name: "python3"})
	s := f.snapshots()
	address := func(p *Process) *byte { return unsafe.StringData(p.Name) }
	first := f.take(s)
	assert.Same(t, address(first.Find(20)), address(first.Find(21)))
	second := f.take(s)
	assert.Same(t, address(first.Find(20)), address(second.Find(20)))

	// What nobody is called any more is forgotten.
	f.add(Process{Pid: 20, Start: 1, Name: "x"}, Process{Pid: 21, Start: 1, Name: "y"})
	f.take(s)
	assert.Len(t, s.names, 2)
	assert.Equal(t, "python3", second.Find(20).Name, "a snapshot does not change")
}

func TestRecent(t *testing.T) {
	f := newFixture(t)
	f.add(Process{Pid: 20, Start: 1})
	s := f.snapshots()
	recent := func(maxAge time.Duration) *Snapshot {
		snap, err := s.Recent(t.Context(), maxAge)
		require.NoError(t, err)
		return snap
	}
	first := recent(time.Minute)
	f.now = f.now.Add(time.Minute)
	assert.Same(t, first, recent(time.Minute))
	f.now = f.now.Add(1)
	second := recent(time.Minute)
	assert.NotSame(t, first, second)
	assert.Equal(t, f.now, second.At, "each carries its own time")
	assert.Equal(t, testStart, first.At)
	third, err := s.Take(t.Context())
	require.NoError(t, err)
	assert.NotSame(t, second, third, "taking is always anew")
	assert.Same(t, third, recent(0))
}

func TestManyAskAndOnePassAnswers(t *testing.T) {
	f := newFixture(t)
	for pid := range 50 {
		f.add(Process{Pid: 100 + pid, Parent: 1, Start: 1, Name: "p"})
	}
	s := f.snapshots()
	var passes int
	s.bootTicks = func() (uint64, error) { passes++; return 1, nil } // under the lock
	var group sync.WaitGroup
	snaps := make([]*Snapshot, 32)
	for i := range snaps {
		group.Go(func() {
			snap, err := s.Recent(t.Context(), time.Hour)
			if assert.NoError(t, err) {
				assert.Len(t, snap.Tree(120), 1)
			}
			snaps[i] = snap
		})
	}
	group.Wait()
	assert.Equal(t, 1, passes)
	for _, snap := range snaps {
		assert.Same(t, snaps[0], snap)
	}
}

func TestCloseAndGoOn(t *testing.T) {
	s := NewSnapshots("/")
	first, err := s.Take(t.Context())
	require.NoError(t, err)
	s.Close()
	s.Close()
	second, err := s.Take(t.Context())
	require.NoError(t, err)
	assert.Equal(t, first.Boot, second.Boot)
	s.Close()
}

func TestBootTicks(t *testing.T) {
	before, err := BootTicks()
	require.NoError(t, err)
	uptime, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	after, err := BootTicks()
	require.NoError(t, err)
	seconds, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	require.NoError(t, err)
	// Inside a container with LXCFS uptime is another clock.
	if shown := uint64(seconds * procread.TicksPerSecond); shown+10 < before || shown > after+10 {
		t.Logf("/proc/uptime says %d ticks, the clock %d", shown, before)
	}
	assert.GreaterOrEqual(t, after, before)
}

// What we see of known processes is what others see.
func TestSnapshotOfThisMachine(t *testing.T) {
	s := NewSnapshots("")
	t.Cleanup(s.Close)
	ticks, err := BootTicks()
	require.NoError(t, err)
	children := []*child{startHeld("20"), startHeld("0"), startHeld("0")}
	t.Cleanup(func() {
		for _, c := range children {
			c.release()
		}
	})
	snap, err := s.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, snap.Unread)
	assert.NotEmpty(t, snap.Boot)
	proc, err := procfs.NewFS("/proc")
	require.NoError(t, err)
	tree := pidsOf(snap.Tree(os.Getpid()))
	for _, c := range children {
		pid := c.cmd.Process.Pid
		assert.Contains(t, tree, pid)
		p := snap.Find(pid)
		require.NotNil(t, p)
		assert.Equal(t, os.Getpid(), p.Parent)
		assert.GreaterOrEqual(t, p.Start, ticks-1)
		assert.LessOrEqual(t, p.Start, snap.BootTicks)

		oracle, err := proc.Proc(pid)
		require.NoError(t, err)
		stat, err := oracle.Stat()
		require.NoError(t, err)
		assert.Equal(t, stat.Starttime, p.Start)
		assert.Equal(t, stat.PPID, p.Parent)
		assert.Equal(t, stat.Comm, p.Name)
		assert.InDelta(t, float64(stat.UTime+stat.STime), float64(p.Own), 2)
		other := process.Process{Pid: int32(pid)}
		parent, err := other.Ppid()
		require.NoError(t, err)
		assert.Equal(t, int(parent), p.Parent)
	}
	pids, err := process.Pids()
	require.NoError(t, err)
	seen := 0
	for _, pid := range pids {
		if snap.Find(int(pid)) != nil {
			seen++
		}
	}
	assert.Greater(t, seen, len(pids)*9/10, "but for those that started since")
}
