// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// openFiles is how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no list of open files: ", err)
	}
	return len(entries)
}

// startIdle starts processes that do nothing until the end of the test.
func startIdle(t *testing.T, n int) []int {
	t.Helper()
	pids := make([]int, 0, n)
	for range n {
		cmd := exec.CommandContext(t.Context(), "cat")
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		if err := cmd.Start(); err != nil {
			t.Skip("no cat here: ", err)
		}
		t.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Wait()
		})
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

// holdersSource measures processes of this machine, each as a workload.
func holdersSource(t *testing.T, pids []int) (*linuxSource, *workload.Discovery) {
	t.Helper()
	d := workload.NewDiscovery(workload.Options{Discover: workload.Discover{GPU: true}})
	d.SetHolders("gpu", pids)
	src, err := newLinuxSource(&Config{}, "", d, systemEnvironment())
	require.NoError(t, err)
	return src, d
}

var allFigures = want{groupCPU: true, throttling: true, oomKills: true, pressure: true}

func TestFewWorkloadsKeepTheirFilesOpen(t *testing.T) {
	pids := startIdle(t, keptOpen)
	src, d := holdersSource(t, pids)
	before := openFiles(t)
	kept := 0
	for i := range 4 {
		r := src.read(t.Context(), allFigures)
		require.Len(t, r.workloads, len(pids), "%v", r.errs)
		after := openFiles(t)
		switch i {
		case 0: // that finds the groups
		case 1:
			kept = after
			assert.GreaterOrEqual(t, after, before+3*len(pids), "statm, status and cgroup of each")
		default:
			assert.Equal(t, kept, after)
		}
	}
	src.close()
	d.Close()
	assert.Equal(t, before, openFiles(t))
}

// Neither during a scrape nor after it are files of all of many workloads open.
func TestManyWorkloadsDoNotKeepTheirFilesOpen(t *testing.T) {
	pids := startIdle(t, 40)
	src, d := holdersSource(t, pids)
	before := openFiles(t)
	const some = 40 // of one workload, and of the machine
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	lowered := limit
	lowered.Cur = uint64(before + some)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()

	kept := 0
	for range 3 {
		r := src.read(t.Context(), allFigures)
		require.Empty(t, r.errs)
		require.Len(t, r.workloads, len(pids))
		for _, w := range r.workloads {
			require.Positive(t, w.rss)
			require.Positive(t, w.capacity)
		}
		after := openFiles(t)
		if kept == 0 {
			kept = after
		}
		assert.Equal(t, kept, after)
		assert.Less(t, after, before+some)
	}
	// Fewer are left: theirs stay open again, and those of the others do not.
	d.SetHolders("gpu", pids[:2])
	require.Len(t, src.read(t.Context(), allFigures).workloads, 2)
	assert.Greater(t, openFiles(t), kept)
	assert.Len(t, src.workloads.followed, 2)

	src.close()
	d.Close()
	assert.Equal(t, before, openFiles(t))
}
