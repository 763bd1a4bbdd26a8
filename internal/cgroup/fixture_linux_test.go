// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// total is the memory of the machines below.
const total = 1 << 40

// The group file systems' places below the root.
const (
	fsV2     = "sys/fs/cgroup/"
	memoryFS = "sys/fs/cgroup/memory/"
	cpuFS    = "sys/fs/cgroup/cpu,cpuacct/"
)

type files map[string]string

// machine makes a root of files; a name that ends in a slash is a folder.
func machine(t *testing.T, all ...files) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, f := range all {
		write(t, root, f)
	}
	return root
}

func write(t *testing.T, root string, f files) {
	t.Helper()
	for name, content := range f {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// process is process 77 with this cgroup file.
func process(lines string) files { return files{"proc/77/cgroup": lines} }

// v2 is a group of the unified hierarchy.
func v2(dir, limit, current, stat string) files {
	dir = fsV2 + strings.Trim(dir, "/") + "/"
	f := files{dir + "cgroup.controllers": "cpu memory\n"}
	for name, content := range map[string]string{"memory.max": limit, "memory.current": current, "memory.stat": stat} {
		if content != "" {
			f[dir+name] = content + "\n"
		}
	}
	return f
}

// v1 is a group of the memory hierarchy.
func v1(dir, limit, usage, stat string) files {
	f := files{memoryFS + dir + "/memory.limit_in_bytes": limit + "\n", memoryFS + dir + "/memory.usage_in_bytes": usage + "\n"}
	if stat != "" {
		f[memoryFS+dir+"/memory.stat"] = stat + "\n"
	}
	return f
}

func limitsOf(t *testing.T, root string, use MemoryUse) Limits {
	t.Helper()
	l, err := NewReader(root, use).Limits(77)
	require.NoError(t, err)
	return l
}
