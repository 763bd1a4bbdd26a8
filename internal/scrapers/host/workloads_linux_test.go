// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// versions are how a container's control group can look.
var versions = []struct {
	name, groups string
	// used writes what its group used.
	used func(m *testMachine, d time.Duration)
}{
	{"version 2", "0::" + dockerGroup + "\n", func(m *testMachine, d time.Duration) {
		m.groupFiles(dockerGroup, map[string]string{"cpu.stat": cpuStat(d)})
	}},
	{
		"version 1", "5:memory:" + dockerGroup + "\n4:cpuacct,cpu:" + dockerGroup + "\n0::/\n",
		func(m *testMachine, d time.Duration) {
			m.groupFiles("memory"+dockerGroup, map[string]string{"memory.usage_in_bytes": "1\n"})
			m.groupFiles("cpu,cpuacct"+dockerGroup, map[string]string{"cpuacct.usage": strconv.FormatInt(d.Nanoseconds(), 10) + "\n"})
		},
	},
}

// A container is all that its group holds, so the group tells its CPU time. Then
// a run starts in it, which is a workload of its own, and ends. Both have 2 CPUs.
func TestCPUOfAContainerInWhichARunComesAndGoes(t *testing.T) {
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			m := aNode(t)
			shell := person{pid: 100, name: "bash", own: 1000, groups: v.groups}
			script := person{pid: 101, parent: 100, own: 50_000, start: 550_000, groups: v.groups}
			m.runs(shell, script)
			v.used(m, 600*time.Second)
			s := m.scraper(false)
			first := s.scrape(t)
			require.Equal(t, []string{containerID}, first.names())
			assert.NotContains(t, first[containerID], "cpu")

			// 6 s in 10 s, a third of them of processes that nobody saw.
			m.pass(10)
			script.own += 400
			m.runs(script)
			v.used(m, 606*time.Second)
			assert.InDelta(t, 30, s.scrape(t)[containerID]["cpu"], 1e-9)

			// The run begins: from now on the group holds more than the container.
			m.pass(10)
			shell.own += 100
			script.own += 1000
			wandb := core(102, 101, "abc", "")
			wandb.groups = v.groups
			m.runs(shell, script, wandb)
			v.used(m, 617*time.Second)
			got := s.scrape(t)
			require.ElementsMatch(t, []string{containerID, "run-abc-101"}, got.names())
			assert.InDelta(t, 5, got[containerID]["cpu"], 1e-9)
			assert.NotContains(t, got["run-abc-101"], "cpu", "it is seen for the first time")

			m.pass(10)
			shell.own += 200
			script.own += 800
			m.runs(shell, script)
			v.used(m, 627*time.Second)
			got = s.scrape(t)
			assert.InDelta(t, 10, got[containerID]["cpu"], 1e-9)
			assert.InDelta(t, 40, got["run-abc-101"]["cpu"], 1e-9)

			// It ends, and its time goes to the shell that waited for it. All but the
			// last 3 s counted as the run's.
			m.pass(10)
			m.ends(101, 102)
			shell.own += 100
			shell.children = script.own + 300
			m.runs(shell)
			v.used(m, 631*time.Second)
			got = s.scrape(t)
			require.Equal(t, []string{containerID}, got.names())
			assert.InDelta(t, 20, got[containerID]["cpu"], 1e-9, "at once")

			m.pass(10)
			v.used(m, 635*time.Second)
			assert.InDelta(t, 20, s.scrape(t)[containerID]["cpu"], 1e-9, "the group's again")
		})
	}
}

// The first process of a container is the run itself: there is no container
// beside it.
func TestARunThatIsAllOfAContainer(t *testing.T) {
	m := aNode(t)
	m.runs(person{pid: 100, own: 1000, group: dockerGroup})
	m.groupFiles(dockerGroup, map[string]string{"cpu.stat": cpuStat(10 * time.Second)})
	s := m.scraper(false)
	require.Equal(t, []string{containerID}, s.scrape(t).names())
	for _, running := range []bool{true, false} {
		want := containerID
		if m.ends(101); running {
			m.runs(core(101, 100, "abc", dockerGroup))
			want = "run-abc-100"
		}
		for i := range 2 {
			m.pass(10)
			got := s.scrape(t)
			require.Equal(t, []string{want}, got.names())
			_, has := got[want]["cpu"]
			assert.Equal(t, i == 1, has, "one interval without")
		}
	}
}

// What runs in a container of a container is not the outer one's, though the
// outer one's group counts it.
func TestCPUOfContainersInAContainer(t *testing.T) {
	m := aNode(t)
	inner := dockerGroup + "/kubelet.slice/cri-containerd-" + containerHash2 + ".scope"
	kubelet := person{pid: 100, name: "kubelet", own: 1000, group: dockerGroup + "/kubelet.slice"}
	work := person{pid: 200, parent: 100, own: 1000, group: inner}
	m.runs(kubelet, work)
	used := func(outer, inside time.Duration) {
		m.groupFiles(dockerGroup, map[string]string{"cpu.stat": cpuStat(outer)})
		m.groupFiles(inner, map[string]string{"cpu.stat": cpuStat(inside)})
	}
	used(100*time.Second, 10*time.Second)
	s := m.scraper(false)
	require.ElementsMatch(t, []string{containerID, containerID2}, s.scrape(t).names())
	m.pass(10)
	kubelet.own += 100
	work.own += 800
	m.runs(kubelet, work)
	used(109*time.Second, 18*time.Second)
	got := s.scrape(t)
	assert.InDelta(t, 5, got[containerID]["cpu"], 1e-9)
	assert.InDelta(t, 40, got[containerID2]["cpu"], 1e-9)
}

// A container that was started from a step has the step's environment, and a
// group of its own, which is none of Slurm's.
func TestCPUOfAContainerThatAStepStarted(t *testing.T) {
	job := []string{"SLURM_JOB_ID=42", "SLURM_STEP_ID=0"}
	for _, outsider := range []int{90, 300} { // before and after it in the list of processes
		t.Run(strconv.Itoa(outsider), func(t *testing.T) {
			m := aNode(t)
			task := person{pid: 200, own: 1000, group: stepGroup + "/user/task_0", environ: job}
			outside := person{pid: outsider, own: 1000, group: dockerGroup, environ: job}
			m.runs(task, outside)
			m.groupFiles(stepGroup, map[string]string{"cpu.stat": cpuStat(10 * time.Second)})
			m.groupFiles(stepGroup+"/user/task_0", map[string]string{"cpu.stat": cpuStat(10 * time.Second)})
			s := m.scraper(false)
			require.ElementsMatch(t, []string{"slurm-42.0", containerID}, s.scrape(t).names())
			m.pass(10)
			task.own += 100
			outside.own += 300
			m.runs(task, outside)
			m.groupFiles(stepGroup, map[string]string{"cpu.stat": cpuStat(11 * time.Second)})
			got := s.scrape(t)
			assert.InDelta(t, 5, got["slurm-42.0"]["cpu"], 1e-9)
			assert.InDelta(t, 15, got[containerID]["cpu"], 1e-9)
		})
	}
}

// aPod has a limit of 20 MiB, of which 10 are used; a run of 4 MiB in it.
func aPod(t *testing.T) *testMachine {
	t.Helper()
	m := aNode(t)
	m.runs(person{pid: 100, pages: 1024, threads: 3, group: podContainer}, core(101, 100, "abc", podContainer))
	m.groupFiles(podGroup, map[string]string{"memory.max": "20971520\n", "memory.current": "10485760\n", "memory.stat": "inactive_file 0\n"})
	m.groupFiles(podContainer, map[string]string{"memory.max": "max\n", "memory.current": "10485760\n"})
	return m
}

func TestMemoryOfARunInAPodWithALimit(t *testing.T) {
	got := aPod(t).scraper(false).scrape(t)
	run := got["run-abc-100"]
	compareTags(t, "run", map[string]float64{
		"memory_percent": 50, "proc.memory.availableMB": 10, "proc.memory.percent": 20, "proc.memory.rssMB": 4, "proc.cpu.threads": 3,
	}, run)
	assert.InDelta(t, 75, got[""]["memory_percent"], 1e-9)
	assert.InDelta(t, 25000.0/1024, got[""]["proc.memory.availableMB"], 1e-9)
	assert.NotContains(t, got[""], "proc.memory.percent")
}

func TestAStepWithSeveralTasks(t *testing.T) {
	m := aNode(t)
	m.runs(person{pid: 199, name: "slurmstepd", group: "/system.slice/slurmstepd.scope/job_42/step_0/slurm"})
	for rank := range 4 {
		m.runs(person{
			pid: 200 + rank, parent: 199, threads: 2, own: 1000, start: 500_000 + rank, group: stepGroup + "/user/task_" + strconv.Itoa(rank),
			environ: []string{"SLURM_JOB_ID=42", "SLURM_STEP_ID=0", "SLURM_JOB_NAME=train", "SLURM_NTASKS=4", "SLURM_PROCID=" + strconv.Itoa(rank)},
		})
	}
	m.groupFiles(stepGroup, map[string]string{"cpu.stat": cpuStat(50 * time.Second), "memory.max": "20971520\n", "memory.current": "1048576\n"})
	for rank := range 4 {
		m.groupFiles(stepGroup+"/user/task_"+strconv.Itoa(rank), map[string]string{"cpu.stat": cpuStat(10 * time.Second)})
	}
	s := m.scraper(false)
	s.scrape(t)
	m.pass(10)
	m.groupFiles(stepGroup, map[string]string{"cpu.stat": cpuStat(58 * time.Second)})
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	attributes := attributesOf(md, "slurm-42.0")
	compareTags(t, "step", map[string]float64{
		"cpu": 40, "proc.cpu.threads": 8, "proc.memory.rssMB": 4, "proc.memory.percent": 20, "memory_percent": 5, "proc.memory.availableMB": 19,
	}, workloadsOf(t, md)["slurm-42.0"])
	assert.Subset(t, attributes, map[string]any{
		"slurm.job.id": "42", "slurm.step.id": "0", "slurm.job.name": "train", "wandb.world_size": int64(4),
	})
	assert.NotContains(t, attributes, "process.pid", "it has several")
	assert.NotContains(t, attributes, "slurm.task.id", "it has several")
	assert.NotContains(t, attributes, "wandb.rank")
}

func attributesOf(md pmetric.Metrics, id string) map[string]any {
	for _, rm := range md.ResourceMetrics().All() {
		all := rm.Resource().Attributes().AsRaw()
		if strings.HasSuffix(all["service.instance.id"].(string), "/"+id) {
			return all
		}
	}
	return nil
}

func TestWorkloadsThatComeAndGoLeaveNothingBehind(t *testing.T) {
	m := aNode(t)
	s := m.scraper(true)
	followed := func() int { return len(s.source.(*linuxSource).workloads.followed) }
	for i := range 30 {
		m.pass(10)
		m.runs(person{pid: 100 + i, group: fmt.Sprintf("/docker/%012x%052x", i, 0)})
		m.ends(100 + i - 3)
		got := s.scrape(t)
		alive := min(i+1, 3)
		assert.Len(t, got.names(), alive)
		assert.Equal(t, alive, followed())
		assert.Len(t, s.previous, alive)
	}
	m.ends(127, 128, 129)
	assert.Empty(t, s.scrape(t).names())
	assert.Zero(t, followed())
	assert.Empty(t, s.previous)
}

// A container goes on when its first process ends. A process that gets its pid is
// another one.
func TestAContainerOutlivesItsFirstProcess(t *testing.T) {
	m := aNode(t)
	m.runs(person{pid: 100, start: 400_000, group: dockerGroup}, person{pid: 101, parent: 100, own: 1000, group: dockerGroup})
	used := func(d time.Duration) { m.groupFiles(dockerGroup, map[string]string{"cpu.stat": cpuStat(d)}) }
	used(10 * time.Second)
	s := m.scraper(true)
	scrape := func() (tags map[string]float64, attributes map[string]any) {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		return workloadsOf(t, md)[containerID], attributesOf(md, containerID)
	}
	_, first := scrape()

	m.pass(10)
	m.ends(100)
	used(14 * time.Second)
	got, attributes := scrape()
	assert.InDelta(t, 20, got["cpu"], 1e-9, "no interval is lost")
	assert.Equal(t, first, attributes, "it is the same")

	m.pass(10)
	m.ends(101)
	m.runs(person{pid: 101, start: int(m.bootTicks) - 100, group: dockerGroup, pages: 512})
	used(18 * time.Second)
	got, _ = scrape()
	assert.InDelta(t, 20, got["cpu"], 1e-9)
	assert.InDelta(t, 2, got["proc.memory.rssMB"], 1e-9)
}

// The first process ends after the snapshot: CPUs and limits are those of the
// next, and do not become the machine's for once.
func TestAContainerWhoseFirstProcessEndsAfterTheSnapshot(t *testing.T) {
	m := aNode(t)
	m.runs(person{pid: 100, start: 400_000, group: podContainer}, person{pid: 101, parent: 100, group: podContainer})
	m.groupFiles(podGroup, map[string]string{"memory.max": "20971520\n", "memory.current": "10485760\n"})
	m.groupFiles(podContainer, map[string]string{"memory.max": "max\n"})
	src := m.source()
	assert.Equal(t, []int{100, 101}, m.read(src).first().pids)
	m.remove("proc/100/statm", "proc/100/status", "proc/100/cgroup")
	for range 2 {
		r := m.read(src).first()
		require.NotNil(t, r)
		assert.Equal(t, []int{101}, r.pids)
		assert.InDelta(t, 2, r.capacity, 1e-9)
		require.NotNil(t, r.memory)
		assert.Equal(t, uint64(20971520), r.memory.limit)
	}
	m.remove("proc/101/statm")
	assert.Nil(t, m.read(src).first(), "all have ended")
}

// A file of one workload that cannot be read takes nothing from the others, and
// is one error.
func TestFilesOfOneWorkloadThatFail(t *testing.T) {
	tests := []struct {
		name    string
		files   []string
		message string
		isThere bool
	}{
		{"memory", []string{"proc/100/statm"}, "processes: read ROOT/proc/100/statm: is a directory", false},
		{"CPUs", []string{"proc/100/status"}, "processes: read ROOT/proc/100/status: is a directory", true},
		{"groups", []string{"proc/100/cgroup"}, "processes: reading the groups: read ROOT/proc/100/cgroup: is a directory", true},
		{
			"CPUs and groups",
			[]string{"proc/100/status", "proc/100/cgroup"},
			"processes: read ROOT/proc/100/status: is a directory (and 1 more)", true,
		},
		{
			"memory of all",
			[]string{"proc/100/statm", "proc/200/statm", "proc/300/statm"},
			"processes: read ROOT/proc/100/statm: is a directory (and 2 more)", false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := aNode(t)
			m.runs(
				person{pid: 100, start: 400_000}, core(101, 100, "one", ""),
				person{pid: 200, start: 400_001}, core(201, 200, "two", ""),
				person{pid: 300, group: dockerGroup},
			)
			src := m.source()
			require.Len(t, m.read(src).workloads, 3)
			for _, file := range tt.files {
				m.remove(file)
				m.write(map[string]string{file + "/": ""})
			}
			r := src.read(t.Context(), want{})
			requireSources(t, r, workloadsName)
			require.EqualError(t, r.errs[0], strings.ReplaceAll(tt.message, "ROOT", m.root))
			there := map[string]bool{}
			for _, w := range r.workloads {
				there[w.who.ID] = true
				assert.Positive(t, w.rss, w.who.ID)
			}
			assert.Equal(t, tt.isThere, there["run-one-100"])
			if tt.name != "memory of all" {
				assert.True(t, there["run-two-200"])
				assert.True(t, there[containerID])
			}
		})
	}
}

// The configured process is gone, and the others are measured.
func TestAConfiguredProcessThatIsGoneAmongOthers(t *testing.T) {
	m := aNode(t)
	m.target = scrapers.Target{Pid: 100}
	m.runs(person{pid: 100}, person{pid: 300, group: dockerGroup})
	src := m.source()
	require.Len(t, m.read(src).workloads, 2)
	m.remove("proc/100/statm")
	for _, end := range []func(){func() {}, func() { m.ends(100) }} {
		end()
		r := src.read(t.Context(), want{})
		require.Len(t, r.errs, 1)
		_, isGone := errors.AsType[*scrapers.GoneError](r.errs[0])
		assert.True(t, isGone, "%v", r.errs)
		require.Len(t, r.workloads, 1)
		assert.Equal(t, workload.KindContainer, workload.Kind(r.workloads[0].who.Kind))
	}
}

// What a resource says changes when what is known does, and only then.
func TestAWorkloadOfWhichMoreBecomesKnown(t *testing.T) {
	m := aNode(t)
	m.runs(person{pid: 100, group: dockerGroup}, core(101, 100, "abc", dockerGroup))
	s := m.scraper(false)
	attributes := func() map[string]any {
		m.pass(10)
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		return attributesOf(md, "run-abc-100")
	}
	first := attributes()
	assert.NotContains(t, first, "wandb.project")
	assert.Equal(t, first, attributes())
	m.runs(person{pid: 100, name: "train", group: dockerGroup, environ: []string{"WANDB_PROJECT=p"}})
	changed := attributes()
	assert.Equal(t, "p", changed["wandb.project"])
	assert.Equal(t, "train", changed["process.executable.name"])
	assert.Equal(t, changed, attributes())
}

// Each task of a step may be bound to a CPU of its own, and so may the first
// process of a container be. What all may use together counts, and the limits of
// the step or container, not of its first part.
func TestCapacityOfGroups(t *testing.T) {
	task := func(rank int, allowed string) person {
		return person{pid: 200 + rank, parent: 199, own: 1000, group: stepGroup + "/user/task_" + strconv.Itoa(rank), allowed: allowed}
	}
	tests := []struct {
		name   string
		people []person
		files  map[string]map[string]string
		want   float64
	}{
		{"tasks on CPUs of their own", []person{task(0, "0"), task(1, "1")}, nil, 2},
		{"tasks that share CPUs", []person{task(0, "0-1"), task(1, "1")}, nil, 2},
		{"one task", []person{task(0, "1")}, nil, 1},
		{"more than are online", []person{task(0, "0-63"), task(1, "1")}, nil, 3},
		{"children have what their parents have", []person{task(0, "0"), {pid: 300, parent: 200, group: stepGroup + "/user/task_0", allowed: "0-2"}}, nil, 1},
		{"a quota of the step", []person{task(0, "0"), task(1, "1")}, map[string]map[string]string{stepGroup: {"cpu.max": "50000 100000\n"}}, 0.5},
		{"a quota of one task", []person{task(0, "0"), task(1, "1")}, map[string]map[string]string{stepGroup + "/user/task_0": {"cpu.max": "50000 100000\n"}}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := aNode(t)
			m.runs(tt.people...)
			m.groupFiles(stepGroup, map[string]string{"cgroup.controllers": ""})
			for _, p := range tt.people {
				m.groupFiles(p.group, map[string]string{"cgroup.controllers": ""})
			}
			for group, files := range tt.files {
				m.groupFiles(group, files)
			}
			assert.InDelta(t, tt.want, m.read(m.source()).first().capacity, 1e-9)
		})
	}
}
