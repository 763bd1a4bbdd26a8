// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// makeGroup makes a real group and takes it away again, after what the test
// starts in it later was ended.
func makeGroup(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no group can be made here: %v", err)
	}
	t.Cleanup(func() {
		// A process that was just waited for may hold its group for a moment.
		for range 100 {
			err := os.Remove(dir)
			if !errors.Is(err, unix.EBUSY) {
				require.NoError(t, err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s is still there", dir)
	})
}

// waiting starts a process that waits until the test ends.
func waiting(t *testing.T) int {
	t.Helper()
	return start(t, helperEnv)
}

// start starts the test binary as one of its helpers.
func start(t *testing.T, env string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func set(t *testing.T, file, value string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Skipf("no limit can be set here: %v", err)
	}
}

// realFiles are the names of a real machine's memory and CPU files.
type realFiles struct {
	memory, cpu   string // folders in which groups are made
	limit, tasks  string
	setCPUs       func(t *testing.T, dir string, hundredths int)
	sameHierarchy bool
}

func realGroups(t *testing.T) realFiles {
	t.Helper()
	const base = "/sys/fs/cgroup"
	if exists(base + "/memory/memory.limit_in_bytes") {
		cpu := base + "/cpu"
		if !exists(cpu + "/cpu.cfs_quota_us") {
			t.Skip("no CPU quotas here")
		}
		return realFiles{
			memory: base + "/memory", cpu: cpu, limit: "memory.limit_in_bytes", tasks: "cgroup.procs",
			setCPUs: func(t *testing.T, dir string, hundredths int) {
				t.Helper()
				set(t, dir+"/cpu.cfs_quota_us", strconv.Itoa(hundredths*1000))
			},
		}
	}
	if exists(base + "/cgroup.controllers") {
		return realFiles{
			memory: base, cpu: base, limit: "memory.max", tasks: "cgroup.procs", sameHierarchy: true,
			setCPUs: func(t *testing.T, dir string, hundredths int) {
				t.Helper()
				set(t, dir+"/cpu.max", fmt.Sprintf("%d 100000", hundredths*1000))
			},
		}
	}
	t.Skip("no groups are mounted here")
	return realFiles{}
}

// A real process in real groups: a memory limit on the outer one, a larger one
// on the inner, and a CPU quota that changes.
func TestARealGroup(t *testing.T) {
	const mib = 1 << 20
	names := realGroups(t)
	name := fmt.Sprintf("wandbsys-test-%d", os.Getpid())
	outer := filepath.Join(names.memory, name)
	makeGroup(t, outer)
	if names.sameHierarchy {
		set(t, outer+"/cgroup.subtree_control", "+memory +cpu")
	}
	inner := outer + "/inner"
	makeGroup(t, inner)
	cpu := inner
	if !names.sameHierarchy {
		cpu = filepath.Join(names.cpu, name)
		makeGroup(t, cpu)
	}
	set(t, outer+"/"+names.limit, strconv.Itoa(200*mib))
	set(t, inner+"/"+names.limit, strconv.Itoa(300*mib))
	names.setCPUs(t, cpu, 150)

	pid := waiting(t)
	r := NewReader("/", WorkingSet)
	before, err := r.Limits(pid)
	require.NoError(t, err)
	set(t, inner+"/"+names.tasks, strconv.Itoa(pid))
	if cpu != inner {
		set(t, cpu+"/"+names.tasks, strconv.Itoa(pid))
	}

	l, err := r.Limits(pid)
	require.NoError(t, err)
	assert.NotEqual(t, before.Path, l.Path)
	assert.Equal(t, "/"+name+"/inner", l.Path)
	assert.InDelta(t, 1.5, l.CPUs, 1e-9)
	m := l.Memory(1 << 50)
	require.NotNil(t, m)
	assert.Equal(t, uint64(200*mib), m.Limit)
	assert.Less(t, m.Used, m.Limit)
	assert.Equal(t, m.Limit-m.Used, m.Headroom)

	names.setCPUs(t, cpu, 25)
	set(t, inner+"/"+names.limit, strconv.Itoa(100*mib))
	l, err = r.Limits(pid)
	require.NoError(t, err)
	assert.InDelta(t, 0.25, l.CPUs, 1e-9)
	require.NotNil(t, l.Memory(1<<50))
	assert.Equal(t, uint64(100*mib), l.Memory(1<<50).Limit)
}
