// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// node is a machine of files, with processes and control groups (version 2).
type node struct {
	t    *testing.T
	root string
}

// nodeProcess is one of its processes.
type nodeProcess struct {
	pid, parent   int
	name          string
	start         int // ticks since boot
	ticks         int // of CPU time
	threads       int
	mebibytes     int // resident
	group         string
	environ, args []string
	open          []string
}

// makeNode makes a machine of 4 CPUs and 1000 MiB, 250 of them available.
func makeNode(t *testing.T) *node {
	t.Helper()
	n := &node{t, t.TempDir()}
	makeMachine(t, n.root)
	n.write("proc/stat", "cpu  4 0 4 4 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\ncpu1 1 0 1 1 0 0 0 0 0 0\ncpu2 1 0 1 1 0 0 0 0 0 0\ncpu3 1 0 1 1 0 0 0 0 0 0\n")
	n.write("proc/sys/kernel/random/boot_id", "0f0f0f0f-1111-2222-3333-444444444444\n")
	n.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n")
	n.run(nodeProcess{pid: 1, name: "systemd", start: 1, threads: 1, mebibytes: 8, group: "/init.scope"})
	return n
}

func (n *node) write(path, content string) {
	n.t.Helper()
	writeFile(n.t, filepath.Join(n.root, path), content)
}

// run puts a process there, or what became of it.
func (n *node) run(p nodeProcess) {
	n.t.Helper()
	pages := p.mebibytes * (mebi / os.Getpagesize())
	for name, content := range map[string]string{
		"stat": fmt.Sprintf("%d (%s) S %d %d 1 0 -1 4194304 1 2 3 4 %d 0 0 0 20 0 %d 0 %d 0 %d 1 2 3 4\n",
			p.pid, p.name, p.parent, p.pid, p.ticks, p.threads, p.start, pages),
		"statm":   fmt.Sprintf("%d %d 1 1 0 1 0\n", 2*pages, pages),
		"status":  fmt.Sprintf("Name:\t%s\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t%d\nThreads:\t%d\nCpus_allowed_list:\t0-3\n", p.name, p.pid, p.threads),
		"cgroup":  "0::" + p.group + "\n",
		"comm":    p.name + "\n",
		"cmdline": strings.Join(p.args, "\x00") + "\x00",
		"environ": strings.Join(p.environ, "\x00") + "\x00",
	} {
		n.write(fmt.Sprintf("proc/%d/%s", p.pid, name), content)
	}
	for i, target := range p.open {
		link := filepath.Join(n.root, fmt.Sprintf("proc/%d/fd/%d", p.pid, i+3))
		require.NoError(n.t, os.MkdirAll(filepath.Dir(link), 0o755))
		if exists(filepath.Dir(link)) {
			_ = os.Remove(link)
		}
		require.NoError(n.t, os.Symlink(target, link))
	}
}

// group writes the files of a control group.
func (n *node) group(path string, files map[string]string) {
	n.t.Helper()
	for name, content := range files {
		n.write(filepath.Join("sys/fs/cgroup", path, name), content+"\n")
	}
}

const (
	trainerID = "3333333333333333333333333333333333333333333333333333333333333333"
	loggerID  = "4444444444444444444444444444444444444444444444444444444444444444"
	sandboxID = "5555555555555555555555555555555555555555555555555555555555555555"
	podUID    = "0b1a2c3d-1111-4222-8333-abcdefabcdef"
)

// podGroup is the control group of a container of the pod.
func podGroup(id string) string {
	return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice/cri-containerd-" + id + ".scope"
}

const stepGroup = "/system.slice/slurmstepd.scope/job_99/step_0"

// fill puts a pod, a Slurm step and a run there.
func (n *node) fill() {
	n.t.Helper()
	n.group(filepath.Dir(podGroup(trainerID)), map[string]string{
		"memory.max": strconv.Itoa(800 * mebi), "memory.current": strconv.Itoa(500 * mebi), "memory.stat": "inactive_file 0", "cpu.max": "max 100000",
		"cpu.stat": "usage_usec 1",
	})
	n.group(podGroup(trainerID), map[string]string{
		"memory.max": strconv.Itoa(400 * mebi), "memory.current": strconv.Itoa(350 * mebi),
		"memory.stat": fmt.Sprintf("anon 1\ninactive_file %d\nactive_file 1", 50*mebi),
		"cpu.max":     "250000 100000",
		"cpu.stat":    "usage_usec 60000000\nuser_usec 1\nsystem_usec 1\nnr_periods 700\nnr_throttled 30\nthrottled_usec 1500000",
		// oom_group_kill must not be taken for it.
		"memory.events":   "low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 1",
		"cpu.pressure":    pressure(111, 11),
		"memory.pressure": pressure(222, 22),
		"io.pressure":     pressure(333, 33),
	})
	n.group(podGroup(loggerID), map[string]string{"memory.max": "max", "memory.current": strconv.Itoa(9 * mebi), "cpu.max": "max 100000", "cpu.stat": "usage_usec 5"})
	n.group(podGroup(sandboxID), map[string]string{"memory.max": "max", "cpu.max": "max 100000", "cpu.stat": "usage_usec 5"})
	n.group(stepGroup, map[string]string{"memory.max": "max", "cpu.max": "max 100000", "cpu.stat": "usage_usec 70000000", "memory.events": "oom_kill 0"})
	for _, task := range []string{"task_0", "task_1"} {
		n.group(stepGroup+"/user/"+task, map[string]string{"memory.max": "max", "cpu.max": "max 100000", "cpu.stat": "usage_usec 1"})
	}
	for _, p := range []nodeProcess{
		{pid: 60, parent: 1, name: "containerd-shim", start: 100, threads: 9, mebibytes: 9, group: "/system.slice/containerd.service"},
		{pid: 61, parent: 60, name: "pause", start: 110, threads: 1, mebibytes: 1, group: podGroup(sandboxID)},
		{pid: 70, parent: 60, name: "python", start: 1000, ticks: 400, threads: 3, mebibytes: 120, group: podGroup(trainerID), args: []string{"python", "train.py"}, environ: []string{"HOSTNAME=train-0", "RANK=4", "LOCAL_RANK=0", "WORLD_SIZE=16"}},
		{pid: 71, parent: 70, name: "worker", start: 1100, ticks: 100, threads: 2, mebibytes: 30, group: podGroup(trainerID), args: []string{"worker"}, environ: []string{"HOSTNAME=train-0", "RANK=4", "LOCAL_RANK=0", "WORLD_SIZE=16"}},
		{pid: 75, parent: 60, name: "fluent-bit", start: 1000, threads: 5, mebibytes: 6, group: podGroup(loggerID), args: []string{"/bin/fluent-bit"}},
		{pid: 80, parent: 1, name: "slurmstepd", start: 2000, threads: 4, mebibytes: 5, group: stepGroup + "/slurm"},
		{pid: 81, parent: 80, name: "rank", start: 2001, threads: 1, mebibytes: 40, group: stepGroup + "/user/task_0", args: []string{"./rank"}, environ: []string{"SLURM_JOB_ID=99", "SLURM_JOB_NAME=nightly", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2"}},
		{pid: 82, parent: 80, name: "rank", start: 2002, threads: 1, mebibytes: 50, group: stepGroup + "/user/task_1", args: []string{"./rank"}, environ: []string{"SLURM_JOB_ID=99", "SLURM_JOB_NAME=nightly", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2"}},
		{pid: 90, parent: 1, name: "python3", start: 3000, threads: 2, mebibytes: 10, group: "/user.slice", args: []string{"/usr/bin/python3", "sweep.py"}},
		{
			pid: 91, parent: 90, name: "wandb-core", start: 3100, threads: 8, mebibytes: 60, group: "/user.slice",
			args:    []string{"/venv/wandb/bin/wandb-core", "--pid", "90"},
			environ: []string{"WANDB_PROJECT=vision"},
			open:    []string{"/home/a/wandb/offline-run-20260102_030405-abc/run-abc.wandb", "/dev/null"},
		},
		{pid: 92, parent: 91, name: "wandb-xpu", start: 3200, threads: 2, mebibytes: 20, group: "/user.slice"},
	} {
		n.run(p)
	}
}

// resources are what is known of the workloads that fill puts there.
func nodeResources(host string) map[string]map[string]any {
	all := map[string]map[string]any{
		"container-" + trainerID[:12]: {
			"wandbsys.workload.kind": "container", "container.id": trainerID, "container.runtime": "containerd",
			"k8s.pod.uid": podUID, "k8s.qos": "burstable",
			"wandb.rank": int64(4), "wandb.local_rank": int64(0), "wandb.world_size": int64(16),
		},
		"container-" + loggerID[:12]: {
			"wandbsys.workload.kind": "container", "container.id": loggerID, "container.runtime": "containerd",
			"k8s.pod.uid": podUID, "k8s.qos": "burstable",
		},
		"slurm-99.0": {
			"wandbsys.workload.kind": "step", "slurm.job.id": "99", "slurm.job.name": "nightly", "slurm.step.id": "0",
			"wandb.world_size": int64(2),
		},
		"run-abc-90": {
			"wandbsys.workload.kind": "run", "wandb.run_id": "abc", "wandb.mode": "offline", "wandb.project": "vision",
			"process.pid": int64(90), "process.executable.name": "python3", "process.command": "/usr/bin/python3",
		},
	}
	for id, attrs := range all {
		maps.Copy(attrs, map[string]any{"host.name": host, "os.type": "linux", "service.name": "wandbsys", "service.instance.id": host + "/" + id})
	}
	return all
}

// resources are those of the points, by id; one that is not always the same fails.
func (ps points) resources(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, p := range ps {
		id := p.resource["service.instance.id"].(string)
		if known, ok := all[id]; ok {
			require.Equal(t, known, p.resource)
		}
		all[id] = p.resource
	}
	return all
}

// checkNode compares the resources of workloads with those of fill.
func checkNode(t *testing.T, ps points, host string, more map[string]map[string]any) {
	t.Helper()
	got := ps.from(host).ofProcess().resources(t)
	want := map[string]map[string]any{}
	for id, attrs := range nodeResources(host) {
		maps.Copy(attrs, more[id])
		want[host+"/"+id] = attrs
	}
	assert.Equal(t, want, got)
}

// pressure is a file of pressure stall information with these totals.
func pressure(some, full int) string {
	return fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d", some, full)
}

func TestANodeOfFiles(t *testing.T) {
	n, s := makeNode(t), startSink(t, nil)
	n.fill()
	config := settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: %s, initial_delay: 0s, host_name: n, root_path: %s, metrics: {"+
			"cgroup.cpu: {enabled: true}, cgroup.cpu.periods: {enabled: true}, cgroup.cpu.throttledPeriods: {enabled: true}, "+
			"cgroup.cpu.throttledTime: {enabled: true}, cgroup.memory.oomKills: {enabled: true}, cgroup.pressure: {enabled: true}}}", treeInterval, n.root),
		exporters: s.exporter(),
	}
	p := startCollector(t, config)
	of := func(id string) points { return s.points().ofWorkload("n", id) }
	trainer := "container-" + trainerID[:12]
	p.waitFor("two scrapes", func() bool { return len(of(trainer).named("cpu")) > 0 })

	t.Run("who there is", func(t *testing.T) { checkNode(t, s.points(), "n", nil) })
	t.Run("values", func(t *testing.T) {
		for id, values := range map[string]map[string]float64{
			trainer: {
				"proc.memory.rssMB": 150, "proc.cpu.threads": 5, "proc.memory.percent": 100. * 150 / 400,
				"memory_percent": 100. * 300 / 400, "proc.memory.availableMB": 100,
				"cgroup.cpu.periods": 0, "cgroup.cpu.throttledPeriods": 0, "cgroup.cpu.throttledTime": 0, "cgroup.memory.oomKills": 0,
				"cpu": 0, "cgroup.cpu": 0,
			},
			// The pod's limit is its, and more than the machine has left.
			"container-" + loggerID[:12]: {
				"proc.memory.rssMB": 6, "proc.cpu.threads": 5, "proc.memory.percent": 100. * 6 / 800,
				"memory_percent": 100. * 500 / 800, "proc.memory.availableMB": 250, "cpu": 0, "cgroup.cpu": 0,
			},
			"slurm-99.0": {
				"proc.memory.rssMB": 90, "proc.cpu.threads": 2, "proc.memory.percent": 9, "cgroup.memory.oomKills": 0, "cpu": 0, "cgroup.cpu": 0,
			},
			"run-abc-90": {"proc.memory.rssMB": 10, "proc.cpu.threads": 2, "proc.memory.percent": 1, "cpu": 0},
		} {
			names := []string{}
			for name, want := range values {
				names = append(names, name)
				require.NotEmpty(t, of(id).named(name), "%s of %s", name, id)
				assert.InDelta(t, want, of(id).named(name).last().value, 1e-9, "%s of %s", name, id)
			}
			if id == trainer {
				names = append(names, "cgroup.pressure")
			}
			assert.ElementsMatch(t, names, of(id).names(), id)
		}
	})
	for resource, totals := range map[string][2]int{"cpu": {111 + 5, 11 + 1}, "memory": {222 + 6, 22 + 2}, "io": {333 + 7, 33 + 3}} {
		n.group(podGroup(trainerID), map[string]string{resource + ".pressure": pressure(totals[0], totals[1])})
	}
	grown := time.Now()
	p.waitFor("more scrapes", func() bool { return of(trainer).scrapesAfter(grown) >= 3 })
	t.Run("pressure since it was seen", func(t *testing.T) {
		for resource, values := range map[string][2]float64{"cpu": {5, 1}, "memory": {6, 2}, "io": {7, 3}} {
			all := of(trainer).named("cgroup.pressure").with("resource", resource)
			assert.InDelta(t, values[0], all.with("stall", "some").last().value, 1e-9)
			assert.InDelta(t, values[1], all.with("stall", "full").last().value, 1e-9)
		}
	})

	// The whole container's account grows; of the step's processes one works, of
	// which the group says nothing.
	n.group(podGroup(trainerID), map[string]string{"cpu.stat": "usage_usec 63000000\nnr_periods 705\nnr_throttled 31\nthrottled_usec 1750000"})
	n.group(stepGroup, map[string]string{"cpu.stat": "usage_usec 72000000"})
	n.run(nodeProcess{pid: 90, parent: 1, name: "python3", start: 3000, ticks: 100, threads: 4, mebibytes: 12, group: "/user.slice", args: []string{"/usr/bin/python3", "sweep.py"}})
	n.run(nodeProcess{pid: 92, parent: 91, name: "wandb-xpu", start: 3200, ticks: 500, threads: 2, mebibytes: 20, group: "/user.slice"})
	changed := time.Now()
	p.waitFor("more scrapes", func() bool { return of("run-abc-90").scrapesAfter(changed) >= 4 })
	t.Run("CPU time", func(t *testing.T) {
		for id, tt := range map[string]struct{ want, capacity float64 }{
			trainer: {3, 2.5}, "slurm-99.0": {2, 4}, "run-abc-90": {1, 4}, "container-" + loggerID[:12]: {0, 4},
		} {
			longest, off := pace(of(id))
			got := total(of(id), tt.capacity).Seconds()
			t.Logf("%s: %.3f s, scrapes off by %s", id, got, off)
			assert.InDelta(t, tt.want, got, tt.want*(off+20*time.Millisecond).Seconds()/longest.Seconds()+0.001, id)
		}
		assert.InDelta(t, 5, of(trainer).named("cgroup.cpu.periods").last().value, 0)
		assert.InDelta(t, 0.25, of(trainer).named("cgroup.cpu.throttledTime").last().value, 1e-9)
		assert.InDelta(t, 12, of("run-abc-90").named("proc.memory.rssMB").last().value, 0)
	})
	t.Run("a pid that is used again", func(t *testing.T) {
		n.run(nodeProcess{pid: 90, parent: 1, name: "python3", start: 3150, ticks: 7, threads: 1, mebibytes: 10, group: "/user.slice"})
		other := time.Now()
		p.waitFor("more scrapes", func() bool { return of(trainer).scrapesAfter(other) >= 4 })
		assert.LessOrEqual(t, of("run-abc-90").scrapesAfter(other), 1, "it is younger than wandb-core")
		assert.LessOrEqual(t, s.points().ofPid(90).scrapesAfter(other), 1)
	})
	t.Run("a container that is restarted has another id", func(t *testing.T) {
		id := strings.Repeat("7", 64)
		for _, pid := range []string{"70", "71"} {
			require.NoError(t, os.RemoveAll(filepath.Join(n.root, "proc", pid)))
		}
		n.run(nodeProcess{pid: 170, parent: 60, name: "python", start: 4000, threads: 1, mebibytes: 20, group: podGroup(id)})
		p.waitFor("the new one", func() bool { return len(of("container-"+id[:12]).named("cpu")) > 0 })
		after := time.Now()
		p.waitFor("more scrapes", func() bool { return of("container-"+id[:12]).scrapesAfter(after) >= 2 })
		assert.Zero(t, of(trainer).scrapesAfter(after))
	})
	assert.Empty(t, append(p.logLines("warn"), p.logLines("error")...))
}

// A process that hangs in the kernel may hold a lock that whoever looks into it
// needs. The others go on, at every scrape.
func TestAProcessThatCannotBeLookedInto(t *testing.T) {
	n, s := makeNode(t), startSink(t, nil)
	n.fill()
	hung := filepath.Join(n.root, "proc/75/environ")
	makeHang(t, hung)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 1s, initial_delay: 0s, host_name: n, root_path: " + n.root + "}",
		exporters: s.exporter(),
	})
	of := func(id string) points { return s.points().ofWorkload("n", id) }
	p.waitFor("scrapes", func() bool { return s.points().ofMachine().scrapesAfter(p.started) >= 5 })
	for _, id := range []string{"container-" + trainerID[:12], "container-" + loggerID[:12], "slurm-99.0"} {
		assert.InDelta(t, s.points().ofMachine().scrapesAfter(p.started), of(id).scrapesAfter(p.started), 1, id)
	}
	assert.Empty(t, p.logLines("error"))
	warnings := p.logLines("warn")
	require.Len(t, warnings, 1)
	assert.Equal(t, "A process does not answer when it is looked into; what it runs stays unknown until it does", warnings[0].Msg)
	assert.Contains(t, p.stderr.String(), `"pid":75,"name":"fluent-bit"`)

	file := filepath.Join(t.TempDir(), "environ")
	require.NoError(t, os.WriteFile(file, []byte("HOSTNAME=train-0\x00"), 0o600))
	freeHang(t, hung, file)
	p.waitFor("all of them", func() bool { return len(of("run-abc-90").named("cpu")) > 0 })
	last := s.points().filter(func(p point) bool { return p.at.Equal(of("run-abc-90").last().at) })
	checkNode(t, last, "n", nil)
}

// A restart of the collector changes nothing of who is who.
func TestARestartKeepsTheResources(t *testing.T) {
	n := makeNode(t)
	n.fill()
	tr := startTraining(t, training{work: "idle", runs: []string{
		"run-20260102_030405-b/run-b.wandb", "run-20260102_030405-a/run-a.wandb",
	}, env: []string{"WANDB_ENTITY=team", "RANK=1"}})
	idle := startHelper(t, "idle")
	gather := func() map[string]map[string]any {
		s := startSink(t, nil)
		p := startCollector(t, settings{
			receivers: fmt.Sprintf(`
wandbsys/n: {collection_interval: 300ms, initial_delay: 0s, host_name: n, root_path: %s}
wandbsys/real: {collection_interval: 300ms, initial_delay: 0s, host_name: real, workloads: {pid: %d, match: [{name: wandb-xpu}]}}
`, n.root, idle.pid()),
			exporters: s.exporter(),
		})
		of := func(host string) points { return s.points().from(host).ofProcess() }
		p.waitFor("scrapes of both", func() bool { return of("n").scrapesAfter(p.started) >= 3 && of("real").scrapesAfter(p.started) >= 3 })
		p.stop()
		all := of("n").resources(t)
		for _, pid := range []int{tr.pid(), idle.pid(), tr.side} {
			maps.Copy(all, of("real").ofPid(pid).resources(t))
		}
		return all
	}
	first := gather()
	assert.Equal(t, first, gather())
	assert.Len(t, first, len(nodeResources("n"))+3)
	assert.Equal(t, "a,b", first[fmt.Sprintf("real/run-a-%d", tr.pid())]["wandb.run_ids"])
}

// podList is what a kubelet says of the pod of fill.
var podList = `{"kind": "PodList", "apiVersion": "v1", "items": [{
	"metadata": {"name": "train-0", "namespace": "ml", "uid": "` + podUID + `"},
	"spec": {"containers": [{"name": "trainer"}, {"name": "logger"}]},
	"status": {"containerStatuses": [
		{"name": "trainer", "containerID": "containerd://` + trainerID + `"},
		{"name": "logger", "containerID": "containerd://` + loggerID + `"}
	]}
}]}`

// silentAddress takes connections and never answers.
func silentAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestNamesOfContainersComeFromTheKubelet(t *testing.T) {
	const token = "t0k3n-of-the-test"
	var mu sync.Mutex
	asked := map[string]int{}
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.Header.Get("Authorization")]++
		if r.URL.Path != "/pods" || r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Forbidden (verb=get, resource=nodes, subresource=proxy)", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(podList))
	}))
	kubelet.Config.ErrorLog = log.New(io.Discard, "", 0) // who does not trust it hangs up
	kubelet.StartTLS()
	t.Cleanup(kubelet.Close)
	dir := t.TempDir()
	ca, good, bad := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token"), filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: kubelet.Certificate().Raw}), 0o600))
	require.NoError(t, os.WriteFile(good, []byte(token+"\n"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("another-t0k3n\n"), 0o600))
	n, s := makeNode(t), startSink(t, nil)
	n.fill()
	var receivers strings.Builder
	for host, section := range map[string]string{
		"known":     fmt.Sprintf("endpoint: '%s', token_file: %s, tls: {ca_file: %s}", kubelet.URL, good, ca),
		"refused":   fmt.Sprintf("endpoint: '%s', token_file: %s, tls: {ca_file: %s}", kubelet.URL, bad, ca),
		"untrusted": fmt.Sprintf("endpoint: '%s', token_file: %s", kubelet.URL, good),
		"hung":      fmt.Sprintf("endpoint: 'http://%s'", silentAddress(t)),
		"down":      fmt.Sprintf("endpoint: 'https://%s', token_file: %s, tls: {ca_file: %s}", freeAddress(t), good, ca),
	} {
		fmt.Fprintf(&receivers, "wandbsys/%s: {collection_interval: 1s, initial_delay: 0s, host_name: %s, root_path: %s, "+
			"workloads: {kubernetes: {kubelet: {%s}}}}\n", host, host, n.root, section)
	}
	p := startCollector(t, settings{receivers: receivers.String(), exporters: s.exporter(), logs: "level: debug"})
	hosts := []string{"known", "refused", "untrusted", "hung", "down"}
	for _, host := range hosts {
		p.waitFor("scrapes of "+host, func() bool { return s.points().from(host).ofProcess().scrapesAfter(p.started) >= 4 })
	}
	names := func(container string) map[string]any {
		return map[string]any{"k8s.namespace.name": "ml", "k8s.pod.name": "train-0", "k8s.container.name": container}
	}
	checkNode(t, s.points(), "known", map[string]map[string]any{
		"container-" + trainerID[:12]: names("trainer"), "container-" + loggerID[:12]: names("logger"),
	})
	warnings := map[string][]logLine{}
	for _, line := range p.logLines("warn") {
		warnings[line.Component] = append(warnings[line.Component], line)
	}
	for host, want := range map[string]string{
		"refused":   "403 Forbidden: Forbidden (verb=get, resource=nodes, subresource=proxy) (the service account needs the right to get nodes/proxy",
		"untrusted": "kubelet::tls::ca_file",
		"hung":      "no answer within",
		"down":      "connection refused",
	} {
		checkNode(t, s.points(), host, nil)
		own := warnings["wandbsys/"+host]
		require.Len(t, own, 1, host)
		assert.Contains(t, own[0].Msg, "The names of pods and containers cannot be had")
		assert.Contains(t, own[0].Error, want)
	}
	assert.Empty(t, warnings["wandbsys/known"])
	assert.Empty(t, p.logLines("error"))
	assert.NotContains(t, p.stderr.String(), "t0k3n")
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]int{"Bearer " + token: 1, "Bearer another-t0k3n": 1}, asked, "nobody is asked again soon")
}
