// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// bootTicks is when the first scrape of a machine with workloads is, long after
// its processes started.
const bootTicks = 1_000_000

// aNode is a machine on which everything is discovered, and nothing runs yet.
func aNode(t testing.TB) *testMachine {
	t.Helper()
	m := aWholeMachine(t)
	m.remove("proc/77")
	m.target = scrapers.Target{}
	m.discovery = workload.Options{Discover: workload.Discover{Runs: true, Steps: true, Containers: true}}
	m.bootTicks = bootTicks
	return m
}

// pass lets both clocks go on.
func (m *testMachine) pass(seconds int) {
	m.wait(time.Duration(seconds) * time.Second)
	m.bootTicks += uint64(100 * seconds)
}

// person is a process of a machine of files. What is not given is usual.
type person struct {
	pid, parent int
	name, state string
	// own and children are ticks.
	own, children int
	start         int
	threads       int
	// pages are those in memory.
	pages int
	// group is the path in version 2; groups are whole lines instead.
	group, groups string
	environ       []string
	command       []string
	// log is the open transaction log of a run.
	log string
	// allowed are the CPUs that it may use; 0 and 1 by default.
	allowed string
}

// runs writes the files of processes.
func (m *testMachine) runs(people ...person) {
	m.t.Helper()
	for _, p := range people {
		dir := "proc/" + strconv.Itoa(p.pid) + "/"
		stat := treeStat(p.pid, max(p.parent, 1), cmp.Or(p.state, "S"), p.own, p.children, max(p.threads, 1), cmp.Or(p.start, 500_000))
		files := map[string]string{
			dir + "stat":   strings.Replace(stat, "(python3)", "("+cmp.Or(p.name, "python3")+")", 1),
			dir + "statm":  fmt.Sprintf("10000 %d 100 1 0 1000 0\n", cmp.Or(p.pages, 256)),
			dir + "status": fmt.Sprintf("Name:\tx\nNSpid:\t%d\nCpus_allowed_list:\t%s\n", p.pid, cmp.Or(p.allowed, "0-1")),
			dir + "cgroup": cmp.Or(p.groups, "0::"+cmp.Or(p.group, "/")+"\n"),
		}
		if p.environ != nil {
			files[dir+"environ"] = strings.Join(p.environ, "\x00") + "\x00"
		}
		if p.command != nil {
			files[dir+"cmdline"] = strings.Join(p.command, "\x00") + "\x00"
		}
		if p.log != "" {
			files[dir+"fd/20"] = "-> " + p.log
		}
		m.write(files)
	}
}

// core is the wandb-core that a process started for a run.
func core(pid, owner int, run, group string) person {
	return person{
		pid: pid, parent: owner, name: "wandb-core", start: 600_000, group: group,
		command: []string{"/site-packages/wandb/bin/wandb-core", "--pid", strconv.Itoa(owner)},
		log:     "/w/wandb/run-20260301_120000-" + run + "/run-" + run + ".wandb",
	}
}

// ends takes processes away.
func (m *testMachine) ends(pids ...int) {
	m.t.Helper()
	for _, pid := range pids {
		m.remove("proc/" + strconv.Itoa(pid))
	}
}

// groupFiles writes files of a control group, below the place of its hierarchy.
func (m *testMachine) groupFiles(dir string, files map[string]string) {
	m.t.Helper()
	for name, content := range files {
		m.write(map[string]string{"sys/fs/cgroup/" + strings.Trim(dir, "/") + "/" + name: content})
	}
}

// cpuStat is a cpu.stat of version 2.
func cpuStat(usage time.Duration) string {
	return fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 1\n", usage.Microseconds())
}

// byWorkload are the points by workload: the id's part after the host's name;
// the machine's are under the empty name.
type byWorkload map[string]map[string]float64

func workloadsOf(t *testing.T, md pmetric.Metrics) byWorkload {
	t.Helper()
	requireSane(t, md)
	all := byWorkload{}
	for _, rm := range md.ResourceMetrics().All() {
		instance, _ := rm.Resource().Attributes().Get("service.instance.id")
		one := pmetric.NewMetrics()
		rm.CopyTo(one.ResourceMetrics().AppendEmpty())
		_, name, _ := strings.Cut(instance.Str(), "/")
		all[name] = tagsOf(one)
	}
	return all
}

// scrape is one without errors.
func (s *hostScraper) scrape(t *testing.T) byWorkload {
	t.Helper()
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	return workloadsOf(t, md)
}

// names are those of the workloads.
func (b byWorkload) names() []string {
	names := []string{}
	for name := range b {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

const (
	containerHash  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	containerHash2 = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
	containerID    = "container-0123456789ab"
	containerID2   = "container-fedcba987654"
	dockerGroup    = "/system.slice/docker-" + containerHash + ".scope"
	podGroup       = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
	podContainer   = podGroup + "/cri-containerd-" + containerHash + ".scope"
	stepGroup      = "/system.slice/slurmstepd.scope/job_42/step_0"
)
