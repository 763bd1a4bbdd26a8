// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
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
)

// realGroup is a control group in all hierarchies that matter.
type realGroup struct {
	groups
	// dirs are the folders of the group, cpuacct that of its CPU time.
	dirs    []string
	cpuacct string
}

// makeGroupAt makes a group with this path, and skips where that is not permitted.
func makeGroupAt(t *testing.T, path string) *realGroup {
	t.Helper()
	const mount = "/sys/fs/cgroup"
	g := &realGroup{groups: groups{usage: "memory.current", inactive: "inactive_file"}}
	if exists(mount + "/cgroup.controllers") {
		g.memory = makeGroupIn(t, mount, path, true)
		g.cpu, g.cpuacct, g.dirs = g.memory, g.memory, []string{g.memory}
		return g
	}
	g.usage, g.inactive = "memory.usage_in_bytes", "total_inactive_file"
	for controller, dir := range map[string]*string{"memory": &g.memory, "cpu": &g.cpu, "cpuacct": &g.cpuacct} {
		hierarchy, err := filepath.EvalSymlinks(filepath.Join(mount, controller))
		if err != nil {
			t.Skipf("no control group can be made here: %v", err)
		}
		*dir = filepath.Join(hierarchy, path)
		if !slices.Contains(g.dirs, *dir) {
			makeGroupIn(t, hierarchy, path, false)
			g.dirs = append(g.dirs, *dir)
		}
	}
	return g
}

// makeGroupIn makes what is missing of the path, and removes it at the end, but
// for parents that others use by then.
func makeGroupIn(t *testing.T, dir, path string, unified bool) string {
	t.Helper()
	names := strings.Split(path, "/")
	for i, name := range names {
		if unified {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory"), 0o600); err != nil {
				t.Skipf("no control group with its own figures can be made here: %v", err)
			}
		}
		dir = filepath.Join(dir, name)
		err := os.Mkdir(dir, 0o755)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			t.Skipf("no control group can be made here: %v", err)
		}
		made, own := dir, i == len(names)-1
		t.Cleanup(func() {
			if own {
				removeGroup(t, made)
			} else {
				_ = os.Remove(made)
			}
		})
	}
	return dir
}

func (g *realGroup) env() string { return groupsKey + "=" + strings.Join(g.dirs, ":") }

// cpuTime is that of all that ever was in the group.
func (g *realGroup) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	if content, err := os.ReadFile(filepath.Join(g.cpuacct, "cpuacct.usage")); err == nil {
		return time.Duration(number(t, strings.TrimSpace(string(content))))
	}
	for _, f := range fieldsOf(t, filepath.Join(g.cpuacct, "cpu.stat")) {
		if f[0] == "usage_usec" {
			return time.Duration(number(t, f[1])) * time.Microsecond
		}
	}
	t.Fatal("the group has no account of CPU time")
	return 0
}

func (g *realGroup) limit(t *testing.T) {
	t.Helper()
	file := "memory.max"
	if g.usage != "memory.current" {
		file = "memory.limit_in_bytes"
	}
	if err := os.WriteFile(filepath.Join(g.memory, file), []byte(strconv.Itoa(groupLimit)), 0o600); err != nil {
		t.Skipf("no limit can be set here: %v", err)
	}
}

func randomID(t *testing.T) string {
	t.Helper()
	b := make([]byte, 32)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return hex.EncodeToString(b)
}

// ofWorkload keeps points of the workload with this id.
func (ps points) ofWorkload(host, id string) points {
	return ps.filter(func(p point) bool { return p.resource["service.instance.id"] == host+"/"+id })
}

// Containers and Slurm steps, in real control groups: whatever starts and ends in
// them within an interval counts, to the account of the group.
func TestContainersAndStepsInControlGroups(t *testing.T) {
	binary(t) // skips without
	busyID, limitedID, runID := randomID(t), randomID(t), randomID(t)
	job := strconv.Itoa(os.Getpid())
	busy, limited := makeGroupAt(t, "docker/"+busyID), makeGroupAt(t, "docker/"+limitedID)
	run := makeGroupAt(t, "docker/"+runID)
	step := "slurm/uid_0/job_" + job + "/step_0"
	tasks := []*realGroup{makeGroupAt(t, step+"/task_0"), makeGroupAt(t, step+"/task_1")}
	batch := makeGroupAt(t, "slurm/uid_0/job_"+job+"/step_batch")
	limited.limit(t)

	start := func(role string, g *realGroup, env ...string) treeRoot {
		p, input := startHelperWithInput(t, role, append(env, g.env())...)
		return treeRoot{p, input}
	}
	roots := []treeRoot{
		start("quick", busy), start("fork", busy),
		start("exec", tasks[0], "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=2"),
		start("quick", tasks[1], "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2"),
		start("torchrun", batch, "SLURM_JOB_ID="+job, "SLURM_JOB_NAME=nightly"),
	}
	idle := start("idle", limited)
	tr := startTraining(t, training{
		work: "idle", runs: []string{"run-20260102_030405-in/run-in.wandb"}, env: []string{run.env()},
	})
	s := startSink(t, nil)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: %s, initial_delay: 0s, host_name: node, metrics: {cgroup.cpu: {enabled: true}}}", treeInterval),
		exporters: s.exporter(),
	})
	of := func(id string) points { return s.points().ofWorkload("node", id) }
	container := func(id string) string { return "container-" + id[:12] }
	accounts := map[string][]*realGroup{
		container(busyID): {busy}, "slurm-" + job + ".0": tasks, "slurm-" + job + ".batch": {batch},
	}
	began := map[string]time.Duration{}
	sumOf := func(all []*realGroup) (sum time.Duration) {
		for _, g := range all {
			sum += g.cpuTime(t)
		}
		return sum
	}
	for id, groups := range accounts {
		p.waitFor("two scrapes of "+id, func() bool { return len(of(id).named("cpu")) > 0 })
		began[id] = sumOf(groups)
	}
	skip := map[string]int{}
	for id := range accounts {
		skip[id] = len(of(id).named("proc.cpu.threads")) - 1
	}
	for _, root := range roots {
		_, err := io.WriteString(root.input, "go\n")
		require.NoError(t, err)
	}
	for _, root := range roots {
		p.waitFor("the end of the work", func() bool { _, done := root.said("done"); return done })
	}
	for id := range accounts {
		seen := len(of(id).named("cpu"))
		p.waitFor("two more scrapes of "+id, func() bool { return len(of(id).named("cpu")) >= seen+2 })
	}
	for id, groups := range accounts {
		t.Run("CPU time of "+id, func(t *testing.T) {
			counted := sumOf(groups) - began[id]
			all := of(id)
			all = all.filter(func(p point) bool { return !p.at.Before(all.named("proc.cpu.threads")[skip[id]].at) })
			_, off := pace(all)
			got := total(all, allowedCPUs(t, p.pid()))
			t.Logf("shown %s, the kernel %s, scrapes off by %s", got, counted, off)
			assert.InDelta(t, counted.Seconds(), got.Seconds(), (treeSlack+off).Seconds()+0.02*counted.Seconds())
			require.Greater(t, counted, 500*time.Millisecond)
			for i, own := range all.named("cgroup.cpu") {
				if i > 0 {
					assert.InDelta(t, own.value, all.named("cpu")[i].value, 1e-9, "all that is in the group")
				}
			}
		})
	}
	t.Run("who they are", func(t *testing.T) {
		same := map[string]any{"host.name": "node", "os.type": "linux", "service.name": "wandbsys"}
		for id, want := range map[string]map[string]any{
			container(busyID): {
				"wandbsys.workload.kind": "container", "container.id": busyID, "container.runtime": "docker",
			},
			container(limitedID): {
				"wandbsys.workload.kind": "container", "container.id": limitedID, "container.runtime": "docker",
			},
			"slurm-" + job + ".0": {
				"wandbsys.workload.kind": "step", "slurm.job.id": job, "slurm.step.id": "0", "slurm.uid": "0",
				"wandb.world_size": int64(2),
			},
			"slurm-" + job + ".batch": {
				"wandbsys.workload.kind": "step", "slurm.job.id": job, "slurm.step.id": "batch", "slurm.uid": "0",
				"slurm.job.name": "nightly",
			},
		} {
			maps.Copy(want, same)
			want["service.instance.id"] = "node/" + id
			require.NotEmpty(t, of(id), id)
			for _, p := range of(id) {
				require.Equal(t, want, p.resource)
			}
		}
	})
	t.Run("a limit", func(t *testing.T) {
		value := func(name string) float64 { return of(container(limitedID)).named(name).last().value }
		used := limited.used(t)
		assert.Greater(t, used, float64(helperMemory))
		assert.InDelta(t, 100*used/groupLimit, value("memory_percent"), 5)
		assert.InDelta(t, (groupLimit-used)/mebi, value("proc.memory.availableMB"), 16)
		assert.InDelta(t, 100*readProcess(t, idle.pid()).rss/groupLimit, value("proc.memory.percent"), 5)
		assert.Empty(t, of(container(busyID)).named("memory_percent"), "which has none")
	})
	t.Run("a run in a container", func(t *testing.T) {
		p.waitFor("the run", func() bool { return len(s.points().ofRun("in").named("cpu")) > 0 })
		want := tr.resource("node", "in", map[string]any{"container.id": runID, "container.runtime": "docker"})
		assert.Equal(t, want, s.points().ofRun("in").last().resource)
		assert.Empty(t, of(container(runID)), "of the container nothing is left but W&B's own processes")
	})
}
