// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkSnapshot reads all processes and follows our own tree.
func BenchmarkSnapshot(b *testing.B) {
	s := NewSnapshots("/")
	defer s.Close()
	var u TreeUsage
	b.ReportAllocs()
	for b.Loop() {
		followTree(b, s, &u)
	}
}

func followTree(b *testing.B, s *Snapshots, u *TreeUsage) {
	b.Helper()
	snap, err := s.Take(b.Context())
	require.NoError(b, err)
	u.Update(snap, snap.Tree(os.Getpid()))
}

// BenchmarkTreeAgainstChildren measures CPU time in one run: our snapshot with
// the times of a tree, and the walk through gopsutil's Children as W&B does it,
// per process and depth first, which reads the processes' times as well.
func BenchmarkTreeAgainstChildren(b *testing.B) {
	for _, size := range []struct{ members, all, walks int }{{31, 600, 2}, {200, 2000, 1}} {
		var theirs time.Duration // a walk takes up to half a minute, and is made for the first b.N only
		b.Run(fmt.Sprintf("tree of %d among %d processes", size.members, size.all), func(b *testing.B) {
			root := startSleepers(b, size.members-1)
			others := size.all - processesNow(b)
			if others < 1 {
				b.Skipf("%d more processes than %d run here", 1-others, size.all)
			}
			startSleepers(b, others-1)
			s := NewSnapshots("/")
			defer s.Close()
			var u TreeUsage
			ours := measured(max(b.N, 10), func() { // the walk takes all of the benchmark's time
				snap, err := s.Take(b.Context())
				require.NoError(b, err)
				u.Update(snap, snap.Tree(root))
			})
			if theirs == 0 {
				theirs = spent(size.walks, func() {
					p, err := process.NewProcessWithContext(b.Context(), int32(root))
					require.NoError(b, err)
					require.Equal(b, size.members, walk(b.Context(), p))
				})
			}
			b.ReportMetric(0, "ns/op") // of both together it says nothing
			b.ReportMetric(float64(ours.Microseconds()), "ours-cpu-us")
			b.ReportMetric(float64(theirs.Microseconds()), "gopsutil-cpu-us")
			b.ReportMetric(ours.Seconds()/theirs.Seconds(), "cpu-ratio")
		})
	}
}

func processesNow(b *testing.B) int {
	b.Helper()
	s := NewSnapshots("/")
	defer s.Close()
	snap, err := s.Take(b.Context())
	require.NoError(b, err)
	return len(snap.Processes)
}

// sleepers starts processes that do nothing, says so, and ends them all when its
// input ends, even if that is because we were killed.
const sleepers = `i=0
while [ $i -lt $1 ]; do sleep 600 & i=$((i+1)); done
trap '' TERM
echo started
read x
kill -s TERM 0
wait`

// startSleepers starts a process with so many children, which do nothing, and
// returns its pid. They end with the benchmark.
func startSleepers(b *testing.B, children int) int {
	b.Helper()
	cmd := exec.Command("/bin/sh", "-c", sleepers, "sh", strconv.Itoa(children))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(b, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	if err := cmd.Start(); err != nil {
		b.Skipf("no shell: %v", err)
	}
	b.Cleanup(func() {
		_ = stdin.Close()
		insist := time.AfterFunc(10*time.Second, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
		_ = cmd.Wait() // the shell waits for all of them
		insist.Stop()
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	s := NewSnapshots("/")
	defer s.Close()
	snap, err := s.Take(b.Context())
	require.NoError(b, err)
	if n := len(snap.Tree(cmd.Process.Pid)); line == "" || n != children+1 {
		b.Skipf("%d processes cannot be started here, but %d", children+1, n)
	}
	return cmd.Process.Pid
}

// walk reads a process and its descendants as W&B does, and counts them.
func walk(ctx context.Context, p *process.Process) int {
	n := 1
	_, _ = p.TimesWithContext(ctx)
	children, _ := p.ChildrenWithContext(ctx)
	for _, child := range children {
		n += walk(ctx, child)
	}
	return n
}

// BenchmarkManyProcesses follows a whole recorded machine, and tells how much
// more ten times the processes cost.
func BenchmarkManyProcesses(b *testing.B) {
	var took [2]time.Duration
	for i, n := range []int{1_000, 10_000} {
		f := newFixture(b)
		f.add(machineOf(n)...)
		s := f.snapshots()
		var u TreeUsage
		took[i] = measured(b.N, func() {
			snap, err := s.Take(b.Context())
			require.NoError(b, err)
			u.Update(snap, snap.Tree(1))
		})
		b.ReportMetric(took[i].Seconds()*1e6/float64(n), fmt.Sprintf("us/process-of-%d", n))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "linearity-ratio")
}

// BenchmarkDiscovery finds the workloads of a recorded machine: a fifth of its
// processes in workloads of twenty each, runs, steps and containers in turns. It
// tells the CPU time of the first pass and of those that follow, which includes
// the snapshot, what that alone takes, and how much more ten times the processes
// cost.
func BenchmarkDiscovery(b *testing.B) {
	var first, steady [2]time.Duration
	for i, n := range []int{1_000, 10_000} {
		f := newFixture(b)
		f.ticks = 1_000_000
		addWorkloads(f, n)
		s := f.snapshots()
		alone := measured(b.N, func() { take(b, s) })
		d := f.discovery(Options{Discover: everything, Match: []Rule{{Name: regexp.MustCompile("^jupyter")}}})
		find := func() {
			v, err := d.Take(b.Context())
			require.NoError(b, err)
			require.Len(b, v.Workloads, n/100)
		}
		first[i] = spent(1, find)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		steady[i] = spent(b.N, find)
		runtime.ReadMemStats(&after)
		b.ReportMetric(first[i].Seconds()*1e3, fmt.Sprintf("first-cpu-ms-of-%d", n))
		b.ReportMetric(steady[i].Seconds()*1e3, fmt.Sprintf("cpu-ms-of-%d", n))
		b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), fmt.Sprintf("allocs-of-%d", n))
		b.ReportMetric(alone.Seconds()*1e3, fmt.Sprintf("snapshot-cpu-ms-of-%d", n))
		b.ReportMetric((steady[i]-alone).Seconds()/alone.Seconds(), fmt.Sprintf("discovery/snapshot-of-%d", n))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(first[1].Seconds()/first[0].Seconds(), "first-growth-ratio")
	b.ReportMetric(steady[1].Seconds()/steady[0].Seconds(), "growth-ratio")
}

func take(b *testing.B, s *Snapshots) {
	b.Helper()
	_, err := s.Take(b.Context())
	require.NoError(b, err)
}

// addWorkloads makes a machine of so many processes.
func addWorkloads(f *fixture, n int) {
	for pid := 1; pid <= n; pid++ {
		p := stranger{pid: pid, parent: max(1, pid/8), name: "daemon", group: "/system.slice/daemon.service", env: []string{"HOME=/root", "LANG=C"}}
		if number, member := (pid-1)/20, (pid-1)%20; pid > n-n/5 {
			first := pid - member
			p.name, p.parent, p.env = "python3", first, []string{"RANK=" + strconv.Itoa(member%8), "WORLD_SIZE=8", "WANDB_API_KEY=x"}
			if member == 0 {
				p.parent = 1
			}
			switch number % 3 {
			case 0:
				if member == 1 {
					p = core(pid, first, first, fmt.Sprint("run", number))
				}
			case 1:
				p.group = fmt.Sprintf("/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0", number)
			case 2:
				p.group = inDocker(fmt.Sprintf("%012x%052d", number, 0))
			}
		}
		f.putOne(&p)
	}
}

// addNestedCores makes a machine of so many processes: containers whose detached
// wandb-core has to be asked whose it is, and others.
func addNestedCores(f *fixture, cores, n int) {
	f.put(systemd)
	for i := range cores {
		pid, namespace, group := 10+2*i, fmt.Sprintf("pid:[%d]", i), inDocker(fmt.Sprintf("%012x%052d", i, 0))
		f.put(
			python(pid, 1).nested(namespace, 7).in(group),
			core(pid+1, 1, 7, fmt.Sprint("run", i)).nested(namespace, 8).in(group).detached(),
		)
	}
	for pid := 10 + 2*cores; pid < 9+n; pid++ {
		f.put(named(pid, 1, "daemon"))
	}
}

// findNested finds the runs in nested namespaces again, and tells the bytes that
// it allocates.
func findNested(t testing.TB, d *Discovery, runs int) (allocated uint64) {
	t.Helper()
	s, err := d.snapshots.Take(t.Context())
	require.NoError(t, err)
	d.refresh(s)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found := d.runs(t.Context(), s)
	runtime.ReadMemStats(&after)
	require.Len(t, found, runs)
	for i := range found {
		require.Equal(t, found[i].CorePid-1, found[i].TargetPid)
	}
	return after.TotalAlloc - before.TotalAlloc
}

// BenchmarkNestedCores finds the processes of runs that are detached, each in a
// pid namespace of its own.
func BenchmarkNestedCores(b *testing.B) {
	const cores, all = 500, 10_000
	f := newFixture(b)
	addNestedCores(f, cores, all)
	d := f.discovery(Options{Discover: everything})
	f.view(d)
	allocated, runs := uint64(0), 0
	b.ReportMetric(float64(spent(max(b.N, 3), func() {
		allocated += findNested(b, d, cores)
		runs++
	}).Microseconds()), "cpu-us")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(allocated)/float64(runs), "bytes-for-all")
	require.Less(b, allocated/uint64(runs), uint64(cores*maxPerNestedCore))
}

// maxPerNestedCore is what it may cost, in bytes, to find out whose a wandb-core
// is; to search all processes for each of 500 would take some hundred thousand.
const maxPerNestedCore = 12 << 10

// Processes of nested namespaces are looked up, not searched for.
func TestNestedNamespacesAreIndexed(t *testing.T) {
	const cores, all = 200, 600
	f := newFixture(t)
	addNestedCores(f, cores, all)
	d := f.discovery(Options{Discover: everything})
	f.view(d)
	allocated := findNested(t, d, cores)
	t.Logf("%d bytes for %d", allocated, cores)
	require.Less(t, allocated, uint64(cores*maxPerNestedCore))
	index := d.nested
	require.Len(t, index[7], cores)
	f.remove(10)
	f.view(d)
	require.Len(t, d.nested[7], cores-1, "it is made in each pass")
}

// machineOf is the tree of a first process with some depth: each of the others
// has up to eight children.
func machineOf(n int) []Process {
	all := []Process{{Pid: 1, Start: 1, Own: 1, Threads: 1, Name: "init"}}
	for pid := 2; pid <= n; pid++ {
		all = append(all, Process{
			Pid: pid, Parent: max(1, pid/8), Start: uint64(pid), Own: uint64(pid), Threads: 1, Name: "worker",
		})
	}
	return all
}

// chainOf is a tree in which everybody has one child.
func chainOf(n int) []Process {
	all := machineOf(n)
	for i := range all {
		all[i].Parent = all[i].Pid - 1
	}
	return all
}

// Ten times the processes cost about ten times as much, not a hundred times,
// and so does a tree of which all but the first process end at once, or every
// second one does.
func TestCostGrowsWithProcesses(t *testing.T) {
	const few, many = 1_000, 10_000
	reading := func(n int) func() {
		f := newFixture(t)
		f.add(machineOf(n)...)
		s := f.snapshots()
		var u TreeUsage
		return func() {
			snap, err := s.Take(t.Context())
			require.NoError(t, err)
			tree := snap.Tree(1)
			require.Len(t, tree, n)
			u.Update(snap, tree)
		}
	}
	// following alternates between all the processes and a part of them.
	following := func(all, part []Process) func() {
		before, after := snapshotAt(20_000, all...), snapshotAt(30_000, part...)
		return func() {
			var u TreeUsage
			for _, s := range []*Snapshot{before, after, before} {
				u.Update(s, s.Tree(1))
			}
		}
	}
	tests := []struct {
		name   string
		factor time.Duration // a large map misses the caches that a small one fits in
		of     func(n int) func()
	}{
		{"a machine is read and its tree followed", 60, reading},
		{"a wide tree ends", 60, func(n int) func() { return following(machineOf(n), machineOf(1)) }},
		{"a chain ends", 60, func(n int) func() { return following(chainOf(n), chainOf(1)) }},
		{"the children of a chain end, in vain", 60, func(n int) func() {
			part := chainOf(n / 2)
			all := chainOf(n / 2)
			for pid := n/2 + 1; pid <= n; pid++ {
				all = append(all, Process{Pid: pid, Parent: pid - n/2, Start: 5, Own: 100})
			}
			return following(all, part)
		}},
		{"the grandchildren of a chain end, in vain", 60, func(n int) func() {
			part := chainOf(n / 3)
			all := chainOf(n / 3)
			for pid := n/3 + 1; pid <= n; pid++ {
				all = append(all, Process{Pid: pid, Parent: pid - n/3, Start: 5, Own: 100})
			}
			return following(all, part)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			small, large := best(tt.of(few)), best(tt.of(many))
			t.Logf("%v for %d processes, %v for %d: %.1f times", small, few, large, many, large.Seconds()/small.Seconds())
			require.Less(t, large, tt.factor*max(small, time.Millisecond/2))
		})
	}
}

// best is the least CPU time of a call, of three.
func best(fn func()) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 3 {
		runtime.GC()
		least = min(least, measured(1, fn))
	}
	return least
}

// measured is the CPU time of a call, after one that does what is done once.
func measured(n int, fn func()) time.Duration {
	fn()
	return spent(n, fn)
}

// spent is the CPU time of a call.
func spent(n int, fn func()) time.Duration {
	before := cpuTimeOf(unix.RUSAGE_SELF)
	for range n {
		fn()
	}
	return (cpuTimeOf(unix.RUSAGE_SELF) - before) / time.Duration(n)
}
