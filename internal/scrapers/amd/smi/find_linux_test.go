// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

func getenv(env map[string]string) func(string) string {
	return func(key string) string { return env[key] }
}

func TestSearchBeginsWithROCmAndItsNewestVersion(t *testing.T) {
	opt := t.TempDir()
	for _, dir := range []string{"rocm", "rocm-7.2.0", "rocm-7.10.0", "rocm-6.4.3", "rocm-core", "rocm-7.2", "rocm-99999999999999999999", "other"} {
		require.NoError(t, os.Mkdir(filepath.Join(opt, dir), 0o700))
	}
	dirs := searchDirs(getenv(map[string]string{rocmPath: "/sw/rocm", "PATH": "/usr/local/bin::relative:/sw/rocm/bin:/usr/bin:/bin"}), opt)
	assert.Equal(t, []string{
		"/sw/rocm/bin", opt + "/rocm/bin", opt + "/rocm-99999999999999999999/bin", opt + "/rocm-7.10.0/bin", opt + "/rocm-7.2.0/bin", opt + "/rocm-7.2/bin",
		opt + "/rocm-6.4.3/bin", opt + "/rocm-core/bin", "/usr/local/bin", "/usr/bin", "/bin",
	}, dirs)
}

func TestSearchWithoutAnEnvironment(t *testing.T) {
	assert.Equal(t, []string{"/none/rocm/bin", "/usr/bin"}, searchDirs(getenv(nil), "/none"))
	assert.Equal(t, []string{"/none/rocm/bin", "/usr/bin"}, searchDirs(getenv(map[string]string{rocmPath: "relative"}), "/none"))
	assert.Contains(t, SystemDirs(), "/opt/rocm/bin")
}

func TestFindTakesTheFirstExecutable(t *testing.T) {
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }
	write := func(mode os.FileMode, parts ...string) string {
		path := filepath.Join(append([]string{root}, parts...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, mode))
		return path
	}
	write(0o600, "text", "rocm-smi")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "folder", "rocm-smi"), 0o700))
	require.NoError(t, os.MkdirAll(dir("dangling"), 0o700))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling", "rocm-smi")))
	script := write(0o700, "libexec", "rocm_smi.py")
	require.NoError(t, os.MkdirAll(dir("link"), 0o700))
	require.NoError(t, os.Symlink(script, filepath.Join(root, "link", "rocm-smi")))
	other := write(0o700, "other", "rocm-smi")

	dirs := []string{dir("missing"), dir("text"), dir("folder"), dir("dangling"), dir("link"), dir("other")}
	tool := NewROCm(Options{Dirs: func() []string { return dirs }})
	path, err := tool.Find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(root, "link", "rocm-smi"), path, "the link is run, not what it leads to")

	path, err = NewROCm(Options{Path: other, Dirs: func() []string { return dirs }}).Find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, other, path, "the configured one alone")
}

func TestFindSaysWhereItLooked(t *testing.T) {
	_, err := NewAMD(Options{Dirs: func() []string { return []string{"/none/a", "/none/b"} }}).Find(t.Context())
	require.ErrorIs(t, err, ErrNotFound)
	require.EqualError(t, err, "look for amd-smi: not found in /none/a, /none/b")

	_, cost, err := NewROCm(Options{Path: "/none/rocm-smi"}).Read(t.Context(), false)
	require.ErrorIs(t, err, ErrNotFound)
	require.EqualError(t, err, "look for rocm-smi: not found: there is no executable /none/rocm-smi")
	assert.Zero(t, cost)
}

func TestEnvironmentIsMinimal(t *testing.T) {
	assert.Equal(t, []string{"PATH=" + toolrun.SystemPath, "LC_ALL=C", "PYTHONWARNINGS=ignore"}, environment(getenv(map[string]string{"HOME": "/root"})))
	assert.Equal(t,
		[]string{"PATH=/bin", "LC_ALL=C", "PYTHONWARNINGS=ignore", "ROCM_PATH=/sw/rocm", "LD_LIBRARY_PATH=/sw/lib"},
		environment(getenv(map[string]string{"PATH": "/bin", rocmPath: "/sw/rocm", "LD_LIBRARY_PATH": "/sw/lib", "SECRET": "x", "LC_ALL": "de_DE"})))
}
