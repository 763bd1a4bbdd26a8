// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// rootWith makes a machine's root of files.
func rootWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}

func TestHostNameOfAFile(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	system, err := os.Hostname()
	require.NoError(t, err)
	tests := []struct{ name, content, want string }{
		{"a name", "node-7\n", "node-7"},
		{"blanks and no newline", "  node-7\t ", "node-7"},
		{"CRLF", "node-7\r\n", "node-7"},
		{"comments and blank lines first", "# a comment\n\n  # another\n node-7 \nnode-8\n", "node-7"},
		{"only comments", "# a comment\n\n", system},
		{"empty", "", system},
		{"too large", strings.Repeat("x", maxHostNameFile+1), system},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, HostName(t.Context(), "", rootWith(t, map[string]string{"etc/hostname": tt.content})))
		})
	}
}

func TestHostNamePrecedence(t *testing.T) {
	root := rootWith(t, map[string]string{"etc/hostname": "file\n"})
	t.Setenv("NODE_NAME", "node")
	assert.Equal(t, "configured", HostName(t.Context(), "configured", root))
	assert.Equal(t, "node", HostName(t.Context(), "", root))
	t.Setenv("NODE_NAME", "")
	assert.Equal(t, "file", HostName(t.Context(), "", root))
}

var hardwareFiles = map[string]string{
	"proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\n\nprocessor\t: 2\n\nprocessor\t: 3\n",
	"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n",
	"sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0-1\n",
	"sys/devices/system/cpu/cpu1/topology/core_cpus_list": "0-1\n",
	"sys/devices/system/cpu/cpu2/topology/core_cpus_list": "2-3\n",
	"sys/devices/system/cpu/cpu3/topology/core_cpus_list": "2-3\n",
}

// counts returns the hardware counts of the machine's resource.
func counts(t *testing.T, m *Machine) map[string]any {
	t.Helper()
	return countsWithin(t.Context(), m)
}

func countsWithin(ctx context.Context, m *Machine) map[string]any {
	got := map[string]any{}
	for name, value := range m.Host(ctx).Attributes().AsRaw() {
		switch name {
		case "wandb.cpu_count", "wandb.cpu_count_logical", "wandb.memory_total":
			got[name] = value
		}
	}
	return got
}

var allCounts = map[string]any{"wandb.cpu_count": int64(2), "wandb.cpu_count_logical": int64(4), "wandb.memory_total": int64(1000 << 10)}

func TestHardwareCounts(t *testing.T) {
	root := rootWith(t, hardwareFiles)
	m := newMachine("x", "", root)
	assert.Equal(t, allCounts, counts(t, m))

	// They are read once.
	require.NoError(t, os.RemoveAll(filepath.Join(root, "proc")))
	assert.Equal(t, allCounts, counts(t, m))
}

func TestHardwareCountsThatCannotBeReadAreAbsent(t *testing.T) {
	root := rootWith(t, map[string]string{"proc/meminfo": hardwareFiles["proc/meminfo"]})
	assert.Equal(t, map[string]any{"wandb.memory_total": int64(1000 << 10)}, counts(t, newMachine("x", "", root)))

	root = rootWith(t, map[string]string{"proc/stat": "cpu  1 1 1 1\ncpu0 1 1 1 1\ncpu3 1 1 1 1\n"})
	assert.Equal(t, map[string]any{"wandb.cpu_count_logical": int64(2)}, counts(t, newMachine("x", "", root)))
}

func TestAMachineThatIsMountedLaterIsCountedThen(t *testing.T) {
	root := t.TempDir()
	m := newMachine("x", "", root)
	assert.Empty(t, counts(t, m))
	require.NoError(t, os.CopyFS(root, os.DirFS(rootWith(t, hardwareFiles))))
	assert.Equal(t, allCounts, counts(t, m))
}

// Others in the collector may have set it, for themselves.
func TestTheEnvironmentOfGopsutilIsNotHeeded(t *testing.T) {
	t.Setenv("HOST_PROC", filepath.Join(rootWith(t, hardwareFiles), "proc"))
	total := counts(t, newMachine("x", "", ""))["wandb.memory_total"]
	assert.NotEqual(t, allCounts["wandb.memory_total"], total)
	if _, err := os.Stat("/proc/meminfo"); err == nil {
		assert.Positive(t, total)
	}
}

func TestHardwareThatHangsCostsItsCountsAndLittleTime(t *testing.T) {
	root := rootWith(t, hardwareFiles)
	fifo := filepath.Join(root, "proc/meminfo")
	require.NoError(t, os.Remove(fifo))
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	m := newMachine("x", "", root)
	assert.Equal(t, hardwarePatience, m.patience)
	m.patience = 50 * time.Millisecond

	// The scrape has all the time that there is: it is not used up.
	for range 3 {
		assert.Empty(t, counts(t, m))
		require.NoError(t, t.Context().Err())
	}
	assert.Equal(t, "x", m.Host(t.Context()).Attributes().AsRaw()["service.instance.id"])

	// It comes back, and all is well.
	m.patience = time.Hour
	require.NoError(t, os.Rename(fifo, fifo+".fifo"))
	require.NoError(t, os.WriteFile(fifo, []byte(hardwareFiles["proc/meminfo"]), 0o600))
	f, err := os.OpenFile(fifo+".fifo", os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.True(t, m.slot.Settle(t.Context()))
	assert.Equal(t, allCounts, counts(t, m))
}

func TestFamiliesAskSideBySide(t *testing.T) {
	m := newMachine("x", "", rootWith(t, hardwareFiles))
	var families sync.WaitGroup
	for range 8 {
		families.Go(func() { assert.Equal(t, allCounts, countsWithin(t.Context(), m)) })
	}
	families.Wait()
}

func TestAScrapeWithoutTimeGetsItsResource(t *testing.T) {
	m := newMachine("x", "", rootWith(t, hardwareFiles))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Empty(t, countsWithin(ended, m))
	assert.Equal(t, allCounts, counts(t, m))
}

func TestAHostNameFileThatHangsIsPassedOver(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o700))
	fifo := filepath.Join(root, "etc/hostname")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	t.Setenv("NODE_NAME", "")
	want, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, want, HostName(t.Context(), "", root))
	release, err := os.OpenFile(fifo, os.O_RDWR, 0) // lets the call that was left behind come back
	require.NoError(t, err)
	require.NoError(t, release.Close())
}

func TestAHostNameFileDoesNotLeadOutOfTheMachine(t *testing.T) {
	root := rootWith(t, map[string]string{"run/name": "inside\n", "etc/keep": ""})
	require.NoError(t, os.Symlink("/run/name", filepath.Join(root, "etc/hostname")))
	t.Setenv("NODE_NAME", "")
	assert.Equal(t, "inside", HostName(t.Context(), "", root))
}
