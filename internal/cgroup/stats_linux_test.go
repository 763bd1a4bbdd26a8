// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const everything = CPUTime | Throttling | OOMKills | Pressures

func some[T uint64 | time.Duration](value T) Figure[T] { return Figure[T]{Value: value, Known: true} }

// in puts files into a folder of the group file systems.
func in(dir string, f files) files {
	all := files{}
	for name, content := range f {
		all[filepath.Join(fsV2, dir, name)] = content
	}
	return all
}

// usedV2 is a group of version 2 whose CPU time is this many microseconds.
func usedV2(dir string, usage int) files {
	return in(dir, files{
		"cgroup.controllers": "cpu memory\n",
		"cpu.stat":           fmt.Sprintf("usage_usec %d\nuser_usec 1\nnr_periods 7\nnr_throttled 3\nthrottled_usec 250\n", usage),
		"memory.events":      "low 0\noom 9\noom_kill 2\noom_group_kill 0\n",
		"cpu.pressure":       "some avg10=0.00 avg60=0.00 avg300=0.00 total=10\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=11\n",
		"memory.pressure":    "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=21\n",
		"io.pressure":        "some avg10=0.00 avg60=0.00 avg300=0.00 total=30\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=31\n",
	})
}

func allOfV2(usage time.Duration) Stats {
	pressure := func(n time.Duration) Pressure {
		return Pressure{Some: some(n * time.Microsecond), Full: some((n + 1) * time.Microsecond)}
	}
	return Stats{
		CPU: some(usage * time.Microsecond), Periods: some[uint64](7), Throttled: some[uint64](3),
		ThrottledTime: some(250 * time.Microsecond), OOMKills: some[uint64](2),
		CPUPressure: pressure(10), MemoryPressure: pressure(20), IOPressure: pressure(30),
	}
}

// The hierarchies of version 1, one by one.
func cpuacctV1(dir, usage string) files { return in(dir, files{"cpuacct.usage": usage + "\n"}) }

func throttledV1(dir string) files {
	return in(dir, files{"cpu.stat": "nr_periods 7\nnr_throttled 3\nthrottled_time 250\nnr_bursts 0\nburst_time 0\n"})
}

func killedV1(dir string) files {
	return in(dir, files{"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"})
}

func TestStats(t *testing.T) {
	throttled := Stats{Periods: some[uint64](7), Throttled: some[uint64](3), ThrottledTime: some(250 * time.Nanosecond)}
	with := func(s Stats, change func(*Stats)) Stats {
		change(&s)
		return s
	}
	inV1 := func(usage time.Duration) Stats {
		return with(throttled, func(s *Stats) { s.CPU, s.OOMKills = some(usage), some[uint64](2) })
	}
	const v1Lines = "4:memory:/a/b\n3:cpu,cpuacct:/a/b\n"
	tests := []struct {
		name  string
		files []files
		group string
		want  Stats
		none  bool
	}{
		{name: "v2: the own group", files: []files{process("0::/a/b\n"), usedV2("a/b", 500), usedV2("a", 900)}, want: allOfV2(500)},
		{name: "v2: the same by name", files: []files{process("0::/a/b\n"), usedV2("a/b", 500), usedV2("a", 900)}, group: "/a/b", want: allOfV2(500)},
		{name: "v2: an ancestor", files: []files{process("0::/a/b\n"), usedV2("a/b", 500), usedV2("a", 900)}, group: "/a", want: allOfV2(900)},
		{name: "v2: the root", files: []files{process("0::/a/b\n"), usedV2("a/b", 500), usedV2("", 900)}, group: "/", want: allOfV2(900)},
		{name: "v2: a sibling", files: []files{process("0::/a/b\n"), usedV2("a/b", 500), usedV2("a/c", 900)}, group: "/a/c", none: true},
		{name: "v2: further down", files: []files{process("0::/a\n"), usedV2("a", 500), usedV2("a/b", 900)}, group: "/a/b", none: true},
		{name: "v2: a name that begins alike", files: []files{process("0::/a/bc\n"), usedV2("a/bc", 500), usedV2("a/b", 900)}, group: "/a/b", none: true},
		{name: "v2: a path that leads out", files: []files{process("0::/a\n"), usedV2("a", 500)}, group: "/../a", none: true},
		{name: "v2: no path", files: []files{process("0::/a\n"), usedV2("a", 500)}, group: "a", none: true},
		{name: "no groups", files: []files{process("")}, none: true},
		{name: "v2: the own group is not shown", files: []files{process("0::/a/b\n"), usedV2("a", 900)}, none: true},
		{name: "v2: but an ancestor is", files: []files{process("0::/a/b\n"), usedV2("a", 900)}, group: "/a", want: allOfV2(900)},
		{name: "v2: a group that tells nothing", files: []files{process("0::/a\n"), in("a", files{"x": ""})}},
		{
			name: "v2: without a CPU controller", files: []files{process("0::/a\n"), in("a", files{"cpu.stat": "usage_usec 5\n"})},
			want: Stats{CPU: some(5 * time.Microsecond)},
		},
		{
			name: "v2: old kernels tell no full pressure of CPUs", files: []files{process("0::/a\n"), in("a", files{"cpu.pressure": "some avg10=0.00 total=5\n"})},
			want: Stats{CPUPressure: Pressure{Some: some(5 * time.Microsecond)}},
		},
		{
			name: "v2: nothing understood", files: []files{process("0::/a\n"), in("a", files{
				"cpu.stat": "usage_usec x\nnr_periods -1\nthrottled_usec 18446744073709551615\n", "memory.events": "oom_kill\n", "io.pressure": "some total=x\nfull\n",
			})},
		},
		{
			name: "v2: a part is mounted", group: "/docker/a", want: allOfV2(500),
			files: []files{process("0::/docker/a/b\n"), usedV2("", 500), usedV2("b", 100), {"proc/self/mountinfo": mountLine("/docker/a", "/sys/fs/cgroup", "cgroup2", "x")}},
		},
		{
			name: "v2: above the part that is mounted", group: "/docker", none: true,
			files: []files{process("0::/docker/a/b\n"), usedV2("", 500), usedV2("b", 100), {"proc/self/mountinfo": mountLine("/docker/a", "/sys/fs/cgroup", "cgroup2", "x")}},
		},
		{
			name: "v2: found out of our own group", group: "/kubepods/podX/c", want: allOfV2(500),
			files: []files{process("0::/../podX/c/d\n"), usedV2("kubepods/podX/c", 500), usedV2("kubepods/podX/c/d", 100)},
		},

		{name: "v1: the own group", files: []files{process(v1Lines), cpuacctV1("cpu,cpuacct/a/b", "500"), throttledV1("cpu,cpuacct/a/b"), killedV1("memory/a/b")}, want: inV1(500)},
		{name: "v1: an ancestor", files: []files{process(v1Lines), cpuacctV1("cpu,cpuacct/a/b", "500"), cpuacctV1("cpu,cpuacct/a", "900")}, group: "/a", want: Stats{CPU: some[time.Duration](900)}},
		{name: "v1: the other way round", files: []files{process("3:cpuacct,cpu:/a\n"), cpuacctV1("cpu,cpuacct/a", "500"), throttledV1("cpu,cpuacct/a")}, want: with(throttled, func(s *Stats) { s.CPU = some[time.Duration](500) })},
		{
			name:  "v1: hierarchies of their own",
			files: []files{process("4:memory:/a\n3:cpu:/a\n2:cpuacct:/a\n"), cpuacctV1("cpuacct/a", "500"), cpuacctV1("cpu/a", "1"), throttledV1("cpu/a"), killedV1("memory/a")},
			want:  inV1(500),
		},
		{
			name: "v1: CPU time is counted elsewhere", group: "/a", want: with(throttled, func(s *Stats) { s.OOMKills = some[uint64](2) }),
			files: []files{process("4:memory:/a/b\n3:cpu:/a\n2:cpuacct:/x\n"), cpuacctV1("cpuacct/a", "500"), cpuacctV1("cpuacct/x", "1"), throttledV1("cpu/a"), killedV1("memory/a"), killedV1("memory/a/b")},
		},
		{name: "v1: CPU time is not shown", files: []files{process("3:cpu:/a\n2:cpuacct:/a\n"), throttledV1("cpu/a"), throttledV1("cpuacct")}, want: throttled},
		{name: "v1: old kernels count no kills", files: []files{process("4:memory:/a\n"), in("memory/a", files{"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"})}},
		{
			name: "hybrid: pressure is told by the unified hierarchy", want: with(allOfV2(0), func(s *Stats) {
				s.CPU, s.ThrottledTime, s.OOMKills = some[time.Duration](500), some(250*time.Nanosecond), some[uint64](2)
			}),
			files: []files{process(v1Lines + "0::/a/b\n"), cpuacctV1("cpu,cpuacct/a/b", "500"), throttledV1("cpu,cpuacct/a/b"), killedV1("memory/a/b"), usedV2("unified/a/b", 1)},
		},
		{
			name: "hybrid: the process is elsewhere there", group: "/a", want: Stats{CPU: some[time.Duration](500)},
			files: []files{process("3:cpu,cpuacct:/a\n0::/x\n"), cpuacctV1("cpu,cpuacct/a", "500"), usedV2("unified/x", 1), usedV2("unified/a", 1)},
		},
		{
			name: "hybrid: CPU time is not in version 1", want: with(throttled, func(s *Stats) { s.CPU = some(5 * time.Microsecond) }),
			files: []files{process("3:cpu:/a\n0::/a\n"), throttledV1("cpu/a"), in("unified/a", files{"cpu.stat": "usage_usec 5\n"})},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(machine(t, tt.files...), WorkingSet)
			_, err := r.Limits(77)
			require.NoError(t, err)
			for range 2 {
				got, ok := r.Stats(tt.group, everything)
				assert.Equal(t, tt.want, got)
				assert.Equal(t, tt.none, !ok)
			}
		})
	}
}

// Only what is wanted is read, in any combination.
func TestStatsThatAreWanted(t *testing.T) {
	for name, all := range map[string][]files{
		"v2": {process("0::/a\n"), usedV2("a", 500)},
		"v1": {process("4:memory:/a\n3:cpu,cpuacct:/a\n"), cpuacctV1("cpu,cpuacct/a", "500"), throttledV1("cpu,cpuacct/a"), killedV1("memory/a")},
	} {
		r := NewReader(machine(t, all...), WorkingSet)
		_, err := r.Limits(77)
		require.NoError(t, err)
		for want := range everything + 1 {
			s, ok := r.Stats("", want)
			require.True(t, ok)
			assert.Equal(t, want&CPUTime != 0, s.CPU.Known, name)
			assert.Equal(t, want&Throttling != 0, s.Periods.Known && s.Throttled.Known && s.ThrottledTime.Known, name)
			assert.Equal(t, want&OOMKills != 0, s.OOMKills.Known, name)
			assert.Equal(t, want&Pressures != 0 && name == "v2", s.IOPressure.Full.Known, name)
		}
	}
}

func TestStatsBeforeLimitsAndAfterAMove(t *testing.T) {
	root := machine(t, process("0::/a\n"), usedV2("a", 500), usedV2("b", 900))
	r := NewReader(root, WorkingSet)
	_, ok := r.Stats("", CPUTime)
	require.False(t, ok, "of no process")

	_, err := r.Limits(77)
	require.NoError(t, err)
	s, _ := r.Stats("", CPUTime)
	assert.Equal(t, some(500*time.Microsecond), s.CPU)

	write(t, root, process("0::/b\n"))
	_, err = r.Limits(77)
	require.NoError(t, err)
	s, _ = r.Stats("", CPUTime)
	assert.Equal(t, some(900*time.Microsecond), s.CPU)
	_, ok = r.Stats("/a", CPUTime)
	assert.False(t, ok)

	require.NoError(t, os.RemoveAll(filepath.Join(root, fsV2, "b")))
	s, _ = r.Stats("", everything)
	assert.Equal(t, Stats{}, s)
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// Our own groups on a real machine are found once.
func TestReleaseClosesFilesAndRemembersPlaces(t *testing.T) {
	before := descriptors(t)
	r := NewReader("/", WorkingSet)
	defer r.Close()
	first, err := r.Limits(os.Getpid())
	require.NoError(t, err)
	if !r.places.lasting {
		t.Skip("our own groups are not shown here")
	}
	stats, ok := r.Stats("", everything)
	require.Greater(t, descriptors(t), before)

	r.Release()
	require.Equal(t, before, descriptors(t))
	r.Release()
	require.Equal(t, before, descriptors(t), "nothing is closed twice")

	kept := r.places.accounts
	r.root = filepath.Join(t.TempDir(), "nothing is found here")
	again, err := r.Limits(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, first.Path, again.Path)
	assert.Len(t, again.Groups, len(first.Groups))
	require.Same(t, kept, r.places.accounts)
	statsAgain, okAgain := r.Stats("", everything)
	assert.Equal(t, ok, okAgain)
	assert.Equal(t, stats.CPU.Known, statsAgain.CPU.Known)
	assert.GreaterOrEqual(t, statsAgain.CPU.Value, stats.CPU.Value)

	r.Close()
	require.Equal(t, before, descriptors(t))
	require.Nil(t, r.places.accounts)
}

func TestReleaseOfAReaderThatReadNothing(t *testing.T) {
	r := NewReader(t.TempDir(), WorkingSet)
	r.Release()
	r.Close()
}

// realUsage returns where groups are made that count CPU time.
func realUsage(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if exists(dir+"/cpuacct.usage") || (exists(dir+"/cpu.stat") && exists(dir+"/cgroup.controllers")) {
			return dir
		}
	}
	t.Skip("no groups are mounted here")
	return ""
}

// A real process burns CPU time in a real group below another one.
func TestCPUTimeOfARealGroup(t *testing.T) {
	const burnt = 300 * time.Millisecond
	name := fmt.Sprintf("/wandbsys-test-usage-%d", os.Getpid())
	outer := realUsage(t) + name
	makeGroup(t, outer)
	inner := outer + "/inner"
	makeGroup(t, inner)
	pid := burning(t)
	set(t, inner+"/cgroup.procs", strconv.Itoa(pid))

	r := NewReader("/", WorkingSet)
	defer r.Close()
	_, err := r.Limits(pid)
	require.NoError(t, err)
	groups := []string{name, name + "/inner"}
	usage := func() (all []time.Duration) {
		for _, group := range groups {
			s, ok := r.Stats(group, CPUTime)
			require.True(t, ok, group)
			require.True(t, s.CPU.Known, group)
			all = append(all, s.CPU.Value)
		}
		return all
	}
	// The process is alone in the group: its clock ticks as the group's figure
	// does.
	first, clock := usage(), cpuClock(t, pid)
	for cpuClock(t, pid)-clock < burnt {
		time.Sleep(10 * time.Millisecond)
	}
	last, clocked := usage(), cpuClock(t, pid)-clock
	for i, group := range groups {
		assert.InDelta(t, clocked, last[i]-first[i], float64(100*time.Millisecond), group)
	}
}

// burning starts a process that burns CPU time until the test ends.
func burning(t *testing.T) int {
	t.Helper()
	return start(t, burnEnv)
}

// cpuClock reads the CPU time of a process.
func cpuClock(t *testing.T, pid int) time.Duration {
	t.Helper()
	const perProcess = 2 // CPUCLOCK_SCHED, of all threads
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(int32(^pid<<3|perProcess), &ts))
	return time.Duration(ts.Nano())
}

// FuzzStats: whatever the files hold, no time is negative, and nothing is told
// that no line tells.
func FuzzStats(f *testing.F) {
	f.Add([]byte("usage_usec 5\nnr_periods 1\nthrottled_usec 7\n"), []byte("oom_kill 3\n"), []byte("some avg10=0.00 total=5\nfull total=6"))
	f.Add([]byte("usage_usec 18446744073709551615"), []byte("oom_kill"), []byte("full total=18446744073709551615\n"))
	f.Add([]byte("\n \n"), []byte(""), []byte("some total=\n total=5\nsome avg10=1 total=5 x\n"))
	root := f.TempDir()
	require.NoError(f, os.MkdirAll(filepath.Join(root, fsV2, "a"), 0o755))
	require.NoError(f, os.MkdirAll(filepath.Join(root, "proc/77"), 0o755))
	f.Fuzz(func(t *testing.T, cpu, events, pressure []byte) {
		write(t, root, process("0::/a\n"))
		write(t, root, in("a", files{"cpu.stat": string(cpu), "memory.events": string(events), "io.pressure": string(pressure)}))
		r := NewReader(root, WorkingSet)
		_, err := r.Limits(77)
		require.NoError(t, err)
		s, ok := r.Stats("/a", everything)
		require.True(t, ok)
		for _, time := range []Figure[time.Duration]{s.CPU, s.ThrottledTime, s.IOPressure.Some, s.IOPressure.Full} {
			require.GreaterOrEqual(t, time.Value, 0*time.Value)
			require.True(t, time.Known || time.Value == 0)
		}
		_, told := statValue(events, "oom_kill")
		require.Equal(t, told, s.OOMKills.Known)
		require.Equal(t, Pressure{}, s.CPUPressure)
	})
}

// BenchmarkStats reads what our own groups on this machine have used.
func BenchmarkStats(b *testing.B) {
	for name, want := range map[string]Wanted{"CPUTime": CPUTime, "everything": everything} {
		b.Run(name, func(b *testing.B) {
			r := NewReader("/", WorkingSet)
			defer r.Close()
			_, err := r.Limits(os.Getpid())
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				r.Stats("", want)
			}
		})
	}
}
