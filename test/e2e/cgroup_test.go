// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// groupsKey names the control groups that a helper enters before all else.
const groupsKey = "E2E_GROUPS"

func enterGroups() {
	for dir := range strings.SplitSeq(os.Getenv(groupsKey), ":") {
		if dir == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			panic(err)
		}
	}
	_ = os.Unsetenv(groupsKey)
}

const (
	groupLimit = 256 * mebi
	groupQuota = 0.5 // CPUs
)

// groups are control groups of the test's own.
type groups struct {
	memory, cpu     string // may be the same
	usage, inactive string // file and field of the version
}

// makeGroups makes groups with a memory limit and a quota, in version 1 or 2,
// and skips where that is not permitted.
func makeGroups(t *testing.T) groups {
	t.Helper()
	const mount = "/sys/fs/cgroup"
	if exists(mount + "/cgroup.controllers") {
		g := groups{usage: "memory.current", inactive: "inactive_file"}
		g.memory = makeGroup(t, mount, map[string]string{
			"memory.max": strconv.Itoa(groupLimit), "cpu.max": "50000 100000",
		})
		g.cpu = g.memory
		return g
	}
	g := groups{usage: "memory.usage_in_bytes", inactive: "total_inactive_file"}
	g.memory = makeGroup(t, mount+"/memory", map[string]string{"memory.limit_in_bytes": strconv.Itoa(groupLimit)})
	g.cpu = makeGroup(t, mount+"/cpu", map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"})
	return g
}

func makeGroup(t *testing.T, parent string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(parent, fmt.Sprintf("wandbsys-e2e-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	t.Cleanup(func() { removeGroup(t, dir) })
	for name, value := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Skipf("no limit can be set here: %v", err)
		}
	}
	return dir
}

// removeGroup waits for the kernel to let the last process go.
func removeGroup(t *testing.T, dir string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := os.Remove(dir)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("a control group is left: %v", err)
			return
		}
		time.Sleep(pollInterval)
	}
}

// used is the working set.
func (g groups) used(t *testing.T) float64 {
	t.Helper()
	used := number(t, fieldsOf(t, filepath.Join(g.memory, g.usage))[0][0])
	for _, f := range fieldsOf(t, filepath.Join(g.memory, "memory.stat")) {
		if f[0] == g.inactive {
			used -= number(t, f[1])
		}
	}
	return used
}

func TestAWorkloadUnderLimits(t *testing.T) {
	binary(t) // skips without
	g := makeGroups(t)
	target := startHelper(t, "burn", groupsKey+"="+g.memory+":"+g.cpu)
	w := startWatch(t, target.pid(), "/")
	readings := w.more(6)
	used := g.used(t)
	last := readings[len(readings)-1]
	ofTarget, ofMachine := last.points.ofPid(target.pid()), last.points.ofMachine()
	value := func(ps points, name string) float64 { return one(t, ps.named(name)).value }

	t.Run("memory in relation to the limit", func(t *testing.T) {
		assert.Greater(t, used, float64(helperMemory))
		assert.InDelta(t, 100*used/groupLimit, value(ofTarget, "memory_percent"), 5)
		assert.InDelta(t, (groupLimit-used)/mebi, value(ofTarget, "proc.memory.availableMB"), 16)
		assert.InDelta(t, 100*last.truth.process.rss/groupLimit, value(ofTarget, "proc.memory.percent"), 5)
	})
	t.Run("the machine's own beside it", func(t *testing.T) {
		tr := last.truth
		assert.InDelta(t, tr.memAvailable/mebi, value(ofMachine, "proc.memory.availableMB"), slackMemory/mebi)
		assert.InDelta(t, 100*(tr.memTotal-tr.memAvailable)/tr.memTotal, value(ofMachine, "memory_percent"), 100*slackMemory/tr.memTotal)
	})
	t.Run("CPU time in relation to the quota", func(t *testing.T) {
		first := readings[1]
		took := last.truth.process.cpu - first.truth.process.cpu
		want := 100 * took.Seconds() / last.truth.at.Sub(first.truth.at).Seconds() / groupQuota
		sum := 0.0
		for _, r := range readings[2:] {
			sum += one(t, r.points.named("cpu")).value
		}
		got := sum / float64(len(readings)-2)
		t.Logf("cpu %.1f %% of the quota, by the kernel %.1f %%", got, want)
		assert.InDelta(t, want, got, 25)
		assert.Less(t, got, 130.0)
	})
}
