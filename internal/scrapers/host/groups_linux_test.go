// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// groupPlace is where the files of a control group are, below sys/fs/cgroup. Empty is
// nowhere.
type groupPlace struct {
	v1                        bool
	usage, quota, memory, psi string
}

func unifiedPlace(dir string) groupPlace {
	return groupPlace{usage: dir, quota: dir, memory: dir, psi: dir}
}

func v1Place(dir string) groupPlace {
	return groupPlace{v1: true, usage: "cpuacct" + dir, quota: "cpu" + dir, memory: "memory" + dir}
}

// write writes the files of a group in which everything was counted so often.
func (p groupPlace) write(m *testMachine, n int) {
	m.t.Helper()
	quota := fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", 10*n, 3*n)
	if p.v1 {
		m.groupFiles(p.usage, map[string]string{"cpuacct.usage": fmt.Sprintf("%d\n", n*1_234_567_891)})
		m.groupFiles(p.quota, map[string]string{"cpu.stat": quota + fmt.Sprintf("throttled_time %d\n", n*2_500_000)})
		m.groupFiles(p.memory, map[string]string{"memory.oom_control": fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", n)})
		return
	}
	m.groupFiles(p.usage, map[string]string{
		"cpu.stat":      fmt.Sprintf("usage_usec %d\nuser_usec 5\n%sthrottled_usec %d\nnr_bursts 0\n", n*1_234_567, quota, n*2_500),
		"memory.events": fmt.Sprintf("low 0\nhigh 0\nmax 9\noom 7\noom_kill %d\noom_group_kill 5\n", n),
	})
	for i, resource := range []string{"cpu", "memory", "io"} {
		m.groupFiles(p.psi, map[string]string{resource + ".pressure": fmt.Sprintf(
			"some avg10=1.00 avg60=2.00 avg300=3.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", n*(i+2)*1000, n*(i+1)*100)})
	}
}

// words are a file's, by shell: nothing of what is tested reads them.
func (m *testMachine) words(dir, name string) []string {
	content, err := os.ReadFile(filepath.Join(m.root, "sys/fs/cgroup", dir, name))
	if dir == "" || err != nil {
		return nil
	}
	return strings.Fields(string(content))
}

// after is the number behind a word.
func after(words []string, word string) (float64, bool) {
	for i := range words {
		if words[i] == word && i+1 < len(words) {
			n, err := strconv.ParseFloat(words[i+1], 64)
			return n, err == nil
		}
	}
	return 0, false
}

// truth is what the files of a group say, by tag. CPU time is in seconds.
func (p groupPlace) truth(m *testMachine) (tags map[string]float64, cpuTime float64) {
	tags = map[string]float64{}
	put := func(tag string, words []string, word string, unit float64) {
		if n, ok := after(words, word); ok {
			tags[tag] = n * unit
		}
	}
	stat := m.words(p.quota, "cpu.stat")
	put("cgroup.cpu.periods", stat, "nr_periods", 1)
	put("cgroup.cpu.throttledPeriods", stat, "nr_throttled", 1)
	if p.v1 {
		put("cgroup.cpu.throttledTime", stat, "throttled_time", 1e-9)
		put("cgroup.memory.oomKills", m.words(p.memory, "memory.oom_control"), "oom_kill", 1)
		cpuTime, _ = strconv.ParseFloat(m.words(p.usage, "cpuacct.usage")[0], 64)
		return tags, cpuTime / 1e9
	}
	put("cgroup.cpu.throttledTime", stat, "throttled_usec", 1e-6)
	put("cgroup.memory.oomKills", m.words(p.memory, "memory.events"), "oom_kill", 1)
	for _, resource := range []string{"cpu", "memory", "io"} {
		words := m.words(p.psi, resource+".pressure")
		for i, word := range words {
			if total, ok := strings.CutPrefix(word, "total="); ok {
				n, _ := strconv.ParseFloat(total, 64)
				tags["cgroup."+resource+".pressure."+words[i-4]] = n
			}
		}
	}
	cpuTime, _ = after(m.words(p.usage, "cpu.stat"), "usage_usec")
	return tags, cpuTime / 1e6
}

// groupTags are those that control groups tell.
func groupTags(tags map[string]float64) map[string]float64 {
	told := maps.Clone(tags)
	maps.DeleteFunc(told, func(tag string, _ float64) bool { return !strings.HasPrefix(tag, "cgroup.") })
	return told
}

func TestFiguresOfControlGroups(t *testing.T) {
	v1Lines := func(group string) string {
		return "6:memory:" + group + "\n5:cpuacct:" + group + "\n4:cpu:" + group + "\n1:name=systemd:/x\n0::/\n"
	}
	const service = "/system.slice/train.service"
	tests := []struct {
		name   string
		id     string
		people []person
		place  groupPlace
		// quota is a file of the group that limits CPUs to 1.5.
		quota map[string]string
	}{
		{"a container", containerID, []person{{pid: 100, group: dockerGroup + "/init.scope"}}, unifiedPlace(dockerGroup), nil},
		{
			"a container with a quota",
			containerID,
			[]person{{pid: 100, group: dockerGroup}},
			unifiedPlace(dockerGroup),
			map[string]string{"cpu.max": "150000 100000\n"},
		},
		{"a container of version 1", containerID, []person{{pid: 100, groups: v1Lines(dockerGroup)}}, v1Place(dockerGroup), nil},
		{
			"a container of version 1 with a quota",
			containerID,
			[]person{{pid: 100, groups: v1Lines(dockerGroup)}},
			v1Place(dockerGroup),
			map[string]string{"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"},
		},
		{"a step", "slurm-42.0", []person{{pid: 100, group: stepGroup + "/user/task_0"}}, unifiedPlace(stepGroup), nil},
		{
			"a run in a container", "run-abc-100",
			[]person{{pid: 99, name: "bash", group: podContainer}, {pid: 100, parent: 99, group: podContainer}, core(101, 100, "abc", podContainer)},
			unifiedPlace(podContainer), nil,
		},
		{
			"a run in a service",
			"run-abc-100",
			[]person{{pid: 100, group: service}, core(101, 100, "abc", service)},
			unifiedPlace(service),
			nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := aNode(t)
			m.runs(tt.people...)
			for _, p := range tt.people { // its own group, which may be below
				m.groupFiles(p.group, map[string]string{"cgroup.controllers": ""})
			}
			tt.place.write(m, 3)
			capacity := 2.0
			if tt.quota != nil {
				m.groupFiles(tt.place.quota, tt.quota)
				capacity = 1.5
			}
			s := m.scraper(true)
			s.Prime(t.Context())
			first, before := tt.place.truth(m)
			want := map[string]float64{} // what was counted before it was seen is not its
			for tag := range first {
				want[tag] = 0
			}
			require.NotContains(t, want, "cgroup.cpu")
			seen := m.now
			compareTags(t, "first", want, groupTags(s.scrape(t)[tt.id]))

			m.pass(8)
			tt.place.write(m, 5)
			md, err := s.Scrape(t.Context())
			require.NoError(t, err)
			requireStarts(t, md, tt.id, testStart.Add(-(bootTicks-500_000)*10*time.Millisecond), seen)
			want, now := tt.place.truth(m)
			for tag := range want {
				want[tag] -= first[tag]
				require.Positive(t, want[tag], tag)
			}
			want["cgroup.cpu"] = 100 * (now - before) / 8 / capacity
			require.NotZero(t, want["cgroup.cpu"])
			compareTags(t, "second", want, groupTags(workloadsOf(t, md)[tt.id]))
		})
	}
}

// requireStarts wants the points of a workload to have begun when it did, and the
// sums of its control group when they were first seen.
func requireStarts(t *testing.T, md pmetric.Metrics, id string, began, seen time.Time) {
	t.Helper()
	found := 0
	for _, rm := range md.ResourceMetrics().All() {
		instance, _ := rm.Resource().Attributes().Get("service.instance.id")
		if !strings.HasSuffix(instance.Str(), "/"+id) {
			continue
		}
		for _, metric := range rm.ScopeMetrics().At(0).Metrics().All() {
			want := began
			if metric.Type() == pmetric.MetricTypeSum {
				want = seen
				found++
			}
			for _, p := range pointsOf(metric).All() {
				require.Equal(t, want.UTC(), p.StartTimestamp().AsTime(), metric.Name())
			}
		}
	}
	require.GreaterOrEqual(t, found, 4)
}

// Whatever is not told is absent, and not 0.
func TestFiguresThatAreNotTold(t *testing.T) {
	const dir = "sys/fs/cgroup" + dockerGroup
	pressure := func(resources ...string) (tags []string) {
		for _, resource := range resources {
			tags = append(tags, "cgroup."+resource+".pressure.some", "cgroup."+resource+".pressure.full")
		}
		return tags
	}
	throttling := []string{"cgroup.cpu.periods", "cgroup.cpu.throttledPeriods", "cgroup.cpu.throttledTime"}
	all := append(append(pressure("cpu", "memory", "io"), throttling...), "cgroup.cpu", "cgroup.memory.oomKills")
	tests := []struct {
		name   string
		change func(m *testMachine)
		absent []string
	}{
		{"everything", func(*testMachine) {}, nil},
		{"no cpu.stat", func(m *testMachine) { m.remove(dir + "/cpu.stat") }, append(throttling, "cgroup.cpu")},
		{
			"no quota was ever set",
			func(m *testMachine) { m.write(map[string]string{dir + "/cpu.stat": cpuStat(3 * time.Second)}) }, throttling,
		},
		{
			"only the quota is told",
			func(m *testMachine) {
				m.write(map[string]string{dir + "/cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_usec 1\n"})
			},
			[]string{"cgroup.cpu"},
		},
		{"no memory.events", func(m *testMachine) { m.remove(dir + "/memory.events") }, []string{"cgroup.memory.oomKills"}},
		{
			"an old kernel's memory.events",
			func(m *testMachine) { m.write(map[string]string{dir + "/memory.events": "low 0\noom 3\n"}) },
			[]string{"cgroup.memory.oomKills"},
		},
		{
			"an old kernel's cpu.pressure",
			func(m *testMachine) {
				m.write(map[string]string{dir + "/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"})
			},
			[]string{"cgroup.cpu.pressure.full"},
		},
		{
			"no pressure",
			func(m *testMachine) {
				m.remove(dir+"/cpu.pressure", dir+"/memory.pressure", dir+"/io.pressure")
			},
			pressure("cpu", "memory", "io"),
		},
		{"pressure that is turned off", func(m *testMachine) { m.write(map[string]string{dir + "/io.pressure": ""}) }, pressure("io")},
		{"no group", func(m *testMachine) { m.remove(dir) }, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := aNode(t)
			m.runs(person{pid: 100, own: 1000, group: dockerGroup})
			unifiedPlace(dockerGroup).write(m, 1)
			s := m.scraper(true)
			first := groupTags(s.scrape(t)[containerID])
			require.Len(t, first, len(all)-1)
			m.pass(10)
			m.runs(person{pid: 100, own: 1100, group: dockerGroup})
			unifiedPlace(dockerGroup).write(m, 2)
			tt.change(m)
			tags := s.scrape(t)[containerID]
			for _, tag := range all {
				_, has := tags[tag]
				assert.Equal(t, !slices.Contains(tt.absent, tag), has, tag)
			}
			assert.Contains(t, tags, "cpu", "the processes tell it too")
		})
	}
}

// The root group is the machine.
func TestTheRootGroupTellsNothingOfAWorkload(t *testing.T) {
	for _, groups := range []string{"0::/\n", "4:cpu,cpuacct:/\n3:memory:/\n0::/\n", ""} {
		m := aNode(t)
		m.target = scrapers.Target{Pid: 100}
		m.runs(person{pid: 100, groups: groups})
		for _, dir := range []string{"", "cpu,cpuacct", "memory"} {
			unifiedPlace(dir).write(m, 1)
			m.groupFiles(dir, map[string]string{"cpuacct.usage": "1\n", "memory.oom_control": "oom_kill 1\n", "cgroup.controllers": "cpu\n"})
		}
		s := m.scraper(true)
		s.scrape(t)
		m.pass(10)
		assert.Empty(t, groupTags(s.scrape(t)["pid-100"]))
	}
}

// What is off is not read.
func TestFiguresThatAreOffAreNotRead(t *testing.T) {
	tests := []struct {
		want  want
		whole bool
		files cgroup.Wanted
	}{
		{want{}, false, 0},
		{want{}, true, cgroup.CPUTime},
		{want{groupCPU: true}, false, cgroup.CPUTime},
		{want{groupCPU: true}, true, cgroup.CPUTime},
		{want{throttling: true}, false, cgroup.Throttling},
		{want{oomKills: true}, false, cgroup.OOMKills},
		{want{pressure: true, cores: true, pss: true}, false, cgroup.Pressures},
		{want{groupCPU: true, throttling: true, oomKills: true, pressure: true}, false, cgroup.CPUTime | cgroup.Throttling | cgroup.OOMKills | cgroup.Pressures},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.files, tt.want.figures(tt.whole), "%+v", tt)
	}
}

// Of a workload whose group tells its time the group wins, as long as the
// workload is all that it holds at both ends of the interval.
func TestCPUUseOfGroups(t *testing.T) {
	type at struct {
		whole        bool
		group        string
		own, used    int // seconds
		known        bool
		capacity     float64
		start        uint64
		statsSeconds int
	}
	reading := func(seconds int, a at) *workloadReading {
		w := &workloadReading{
			at: testStart.Add(time.Duration(seconds) * time.Second), key: processKey{"b", a.start}, whole: a.whole,
			cpuTime: time.Duration(a.own) * time.Second, capacity: a.capacity,
		}
		w.group, w.statsAt = a.group, testStart.Add(time.Duration(a.statsSeconds)*time.Second)
		w.stats.CPU = cgroup.Figure[time.Duration]{Value: time.Duration(a.used) * time.Second, Known: a.known}
		return w
	}
	before := at{whole: true, group: "/g", own: 100, used: 1000, known: true, capacity: 2}
	now := at{whole: true, group: "/g", own: 101, used: 1008, known: true, capacity: 2, statsSeconds: 20}
	const byGroup, byProcesses = 20, 5 // of 20 s and of 10 s on 2 CPUs
	tests := []struct {
		name          string
		change        func(before, now *at)
		percent       float64
		group         float64
		noCPU, noneOf bool
	}{
		{"all of its group", func(_, _ *at) {}, byGroup, byGroup, false, false},
		{"no longer all", func(_, now *at) { now.whole = false }, byProcesses, byGroup, false, false},
		{"all since now", func(before, _ *at) { before.whole = false }, byProcesses, byGroup, false, false},
		{"never all", func(before, now *at) { before.whole, now.whole = false, false }, byProcesses, byGroup, false, false},
		{"moved to another group", func(_, now *at) { now.group = "/h" }, byProcesses, 0, false, true},
		{"the group tells no more", func(_, now *at) { now.known = false }, byProcesses, 0, false, true},
		{"the group tells since now", func(before, _ *at) { before.known = false }, byProcesses, 0, false, true},
		{"a counter of the group that fell", func(_, now *at) { now.used = 999 }, byProcesses, 0, false, true},
		{"a counter of the group that rests", func(_, now *at) { now.used = 1000 }, 0, 0, false, false},
		{"times of processes that fell", func(_, now *at) { now.whole, now.own = false, 99 }, 0, byGroup, true, false},
		{"another process", func(_, now *at) { now.start = 1 }, 0, byGroup, true, false},
		{"CPUs not known", func(_, now *at) { now.capacity = 0 }, 0, 0, true, true},
		{"no time between the readings of the group", func(_, now *at) { now.statsSeconds = 0 }, byProcesses, 0, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, n := before, now
			tt.change(&b, &n)
			first, second := reading(0, b), reading(10, n)
			percent, ok := cpuPercent(first, second)
			assert.Equal(t, !tt.noCPU, ok)
			assert.InDelta(t, tt.percent, percent, 1e-9)
			use, ok := groupUse(first, second)
			percent = 0
			if ok {
				percent, ok = use.percent(second.capacity)
			}
			assert.Equal(t, !tt.noneOf, ok)
			assert.InDelta(t, tt.group, percent, 1e-9)
		})
	}
	_, ok := groupUse(nil, reading(10, now))
	assert.False(t, ok)
}
