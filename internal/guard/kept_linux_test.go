// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const keptLimit = 1 << 20

func TestKeptFileOfProcStaysOpen(t *testing.T) {
	f := KeptFile{Path: "/proc/self/mountinfo"}
	defer f.Close()
	first, err := f.ReadInto(nil, keptLimit)
	require.NoError(t, err)
	want, err := os.ReadFile(f.Path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(first))
	assert.True(t, f.kept)
	second, err := f.ReadInto(nil, keptLimit)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(second), "every read begins at the start")
	assert.False(t, f.Changed(), "no mount changed meanwhile")
}

func TestKeptFileElsewhereIsOpenedAnew(t *testing.T) {
	f := KeptFile{Path: filepath.Join(t.TempDir(), "meminfo")}
	for _, content := range []string{"one", "two, longer"} {
		require.NoError(t, os.RemoveAll(f.Path))
		require.NoError(t, os.WriteFile(f.Path, []byte(content), 0o600))
		got, err := f.ReadInto(nil, keptLimit)
		require.NoError(t, err)
		assert.Equal(t, content, string(got))
		assert.False(t, f.kept)
		assert.True(t, f.Changed())
	}
}

func TestKeptFileOfAnEndedProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	f := KeptFile{Path: fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)}
	defer f.Close()
	content, err := f.ReadInto(nil, keptLimit)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(content), strconv.Itoa(cmd.Process.Pid)))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	_, err = f.ReadInto(nil, keptLimit)
	require.ErrorIs(t, err, unix.ESRCH, "never another process that got the pid")
	_, err = f.ReadInto(nil, keptLimit)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestKeptFileLimit(t *testing.T) {
	f := KeptFile{Path: "/proc/self/status"}
	defer f.Close()
	buf, err := f.ReadInto(make([]byte, 0, 4096), 10)
	var limit *LimitError
	require.ErrorAs(t, err, &limit)
	assert.Empty(t, buf)
}

func TestKeptFileLeaksNoDescriptor(t *testing.T) {
	before := descriptors(t)
	for range 100 {
		f := KeptFile{Path: "/proc/self/stat"}
		_, err := f.ReadInto(nil, keptLimit)
		require.NoError(t, err)
		f.Close()
		f.Close()
	}
	assert.LessOrEqual(t, descriptors(t), before)
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestKeptFileSeesMountsChange(t *testing.T) {
	dir := t.TempDir()
	f := KeptFile{Path: "/proc/self/mountinfo"}
	defer f.Close()
	_, err := f.ReadInto(nil, keptLimit)
	require.NoError(t, err)
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("mounting needs privileges: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, 0) }()
	require.True(t, f.Changed())
	content, err := f.ReadInto(nil, keptLimit)
	require.NoError(t, err)
	assert.Contains(t, string(content), dir)
}
