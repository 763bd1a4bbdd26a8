// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryLimits(t *testing.T) {
	const (
		noneV1       = "9223372036854771712"
		noneV1Large  = "9223372036854710272" // with pages of 64 KiB
		podPath      = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-a.scope"
		podSlice     = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"
		burstable    = "/kubepods.slice/kubepods-burstable.slice"
		kubepodsRoot = "/kubepods.slice"
	)
	tests := []struct {
		name  string
		files []files
		use   MemoryUse // working_set when empty
		want  *Memory
		path  string
	}{
		{
			name:  "v2: the group itself",
			files: []files{process("0::/a/b\n"), v2("", "", "", ""), v2("a", "max", "900", ""), v2("a/b", "1000", "600", "anon 1\ninactive_file 100\nfile 300")},
			want:  &Memory{Limit: 1000, Used: 500, Headroom: 500},
			path:  "/a/b",
		},
		{
			name:  "v2: an ancestor is tighter, and its own use counts",
			files: []files{process("0::/a/b\n"), v2("a", "800", "700", "inactive_file 50"), v2("a/b", "1000", "600", "inactive_file 100")},
			want:  &Memory{Limit: 800, Used: 650, Headroom: 150},
			path:  "/a/b",
		},
		{
			name:  "v2: of equal limits the nearest",
			files: []files{process("0::/a/b/c\n"), v2("a", "1000", "900", ""), v2("a/b", "1000", "700", ""), v2("a/b/c", "max", "600", "")},
			want:  &Memory{Limit: 1000, Used: 700, Headroom: 100},
			path:  "/a/b/c",
		},
		{
			name: "v2: a pod in kubepods with a larger limit",
			files: []files{
				process("0::" + podPath + "\n"), v2(podPath, "1000", "500", ""), v2(podSlice, "max", "510", ""),
				v2(burstable, "max", "90000", ""), v2(kubepodsRoot, "100000", "99900", ""),
			},
			want: &Memory{Limit: 1000, Used: 500, Headroom: 100},
			path: podPath,
		},
		{
			name:  "v2: 0 is no limit",
			files: []files{process("0::/a\n"), v2("a", "0", "500", "")},
			path:  "/a",
		},
		{
			name:  "v2: 0 here, a limit above",
			files: []files{process("0::/a/b\n"), v2("a", "1000", "600", ""), v2("a/b", "0", "500", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a/b",
		},
		{
			name:  "v2: max",
			files: []files{process("0::/a\n"), v2("a", "max", "500", "")},
			path:  "/a",
		},
		{
			name:  "v2: garbage",
			files: []files{process("0::/a/b\n"), v2("a", "-5", "500", ""), v2("a/b", "1e3", "500", "")},
			path:  "/a/b",
		},
		{
			name:  "v2: an empty file",
			files: []files{process("0::/a\n"), v2("a", " ", "500", "")},
			path:  "/a",
		},
		{
			name:  "v2: no files at all",
			files: []files{process("0::/a/b\n"), v2("a", "", "", ""), v2("a/b", "", "", "")},
			path:  "/a/b",
		},
		{
			name:  "v2: the use is not told: another's does not stand for it",
			files: []files{process("0::/a/b\n"), v2("a", "2000", "1500", ""), v2("a/b", "1000", "", "inactive_file 1")},
			want:  &Memory{Limit: 2000, Used: 1500, Headroom: 500},
			path:  "/a/b",
		},
		{
			name:  "v2: memory.high only throttles",
			files: []files{process("0::/a\n"), v2("a", "max", "500", ""), {fsV2 + "a/memory.high": "100\n"}},
			path:  "/a",
		},
		{
			name:  "v2: as much as the machine has is no limit",
			files: []files{process("0::/a\n"), v2("a", "1099511627776", "500", "")},
			path:  "/a",
		},
		{
			name:  "v2: just below is one",
			files: []files{process("0::/a\n"), v2("a", "1099511627775", "500", "")},
			want:  &Memory{Limit: 1099511627775, Used: 500, Headroom: 1099511627275},
			path:  "/a",
		},
		{
			name:  "v2: no memory.stat, all counts",
			files: []files{process("0::/a\n"), v2("a", "1000", "600", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
		{
			name:  "v2: memory.stat cannot be read",
			files: []files{process("0::/a\n"), v2("a", "1000", "600", ""), {fsV2 + "a/memory.stat/": ""}},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
		{
			name:  "v2: lines of memory.stat that say nothing",
			files: []files{process("0::/a\n"), v2("a", "1000", "600", "inactive_file\ninactive_file x\n\nfile 1 2\n inactive_file 7")},
			want:  &Memory{Limit: 1000, Used: 593, Headroom: 407},
			path:  "/a",
		},
		{
			name:  "v2: more cache than use",
			files: []files{process("0::/a\n"), v2("a", "1000", "600", "inactive_file 601")},
			want:  &Memory{Limit: 1000, Used: 0, Headroom: 1000},
			path:  "/a",
		},
		{
			name:  "v2: more in use than allowed, the limit was lowered",
			files: []files{process("0::/a\n"), v2("a", "1000", "1600", "")},
			want:  &Memory{Limit: 1000, Used: 1600, Headroom: 0},
			path:  "/a",
		},
		{
			name:  "v2: all that is charged",
			use:   Usage,
			files: []files{process("0::/a\n"), v2("a", "1000", "600", "inactive_file 100\nfile 300\nshmem 50")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
		{
			name:  "v2: without files, with shared memory",
			use:   Anon,
			files: []files{process("0::/a\n"), v2("a", "1000", "600", "inactive_file 100\nfile 300\nshmem 50")},
			want:  &Memory{Limit: 1000, Used: 350, Headroom: 650},
			path:  "/a",
		},
		{
			name:  "v2: more shared memory than files",
			use:   Anon,
			files: []files{process("0::/a\n"), v2("a", "1000", "600", "file 300\nshmem 400")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
		{
			name:  "v2: the machine's root group has no files",
			files: []files{process("0::/\n"), v2("", "", "", "inactive_file 1")},
			path:  "/",
		},
		{
			name:  "v2: a namespace of our own: the mount is the group",
			files: []files{process("0::/\n"), v2("", "1000", "600", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/",
		},
		{
			name:  "v2: headroom is the least of all, not that of the smallest limit",
			files: []files{process("0::/a/b/c\n"), v2("a", "5000", "4990", ""), v2("a/b", "2000", "900", ""), v2("a/b/c", "1000", "800", "")},
			want:  &Memory{Limit: 1000, Used: 800, Headroom: 10},
			path:  "/a/b/c",
		},
		{
			name:  "v2: colons in the path",
			files: []files{process("0::/system.slice/kubepods-pod1.slice:cri-containerd:abc\n"), v2("system.slice/kubepods-pod1.slice:cri-containerd:abc", "1000", "600", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/system.slice/kubepods-pod1.slice:cri-containerd:abc",
		},
		{
			name:  "v2: a name that begins with dots leads nowhere else",
			files: []files{process("0::/..data/x\n"), v2("..data/x", "1000", "600", ""), v2("x", "500", "1", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/..data/x",
		},
		{
			name:  "v1: unlimited",
			files: []files{process("3:memory:/a\n"), v1("", noneV1, "900", ""), v1("a", noneV1, "600", "hierarchical_memory_limit "+noneV1)},
			path:  "/a",
		},
		{
			name:  "v1: unlimited with large pages",
			files: []files{process("3:memory:/a\n"), v1("a", noneV1Large, "600", "hierarchical_memory_limit "+noneV1Large)},
			path:  "/a",
		},
		{
			name:  "v1: the hierarchical form of memory.stat",
			files: []files{process("3:memory:/a\n"), v1("", noneV1, "900", ""), v1("a", "1000", "600", "inactive_file 7\ntotal_inactive_file 100\nfile 9")},
			want:  &Memory{Limit: 1000, Used: 500, Headroom: 500},
			path:  "/a",
		},
		{
			name:  "v1: without files",
			use:   Anon,
			files: []files{process("3:memory:/a\n"), v1("a", "1000", "600", "cache 1\nshmem 2\ntotal_cache 300\ntotal_shmem 50")},
			want:  &Memory{Limit: 1000, Used: 350, Headroom: 650},
			path:  "/a",
		},
		{
			name:  "v1: ancestors",
			files: []files{process("3:memory:/a/b\n"), v1("", noneV1, "9", ""), v1("a", "800", "700", "total_inactive_file 1"), v1("a/b", "1000", "600", "")},
			want:  &Memory{Limit: 800, Used: 699, Headroom: 101},
			path:  "/a/b",
		},
		{
			name:  "v1: the limit of ancestors that a namespace hides",
			files: []files{process("3:memory:/\n"), v1("", noneV1, "600", "hierarchical_memory_limit 1000\ntotal_inactive_file 100")},
			want:  &Memory{Limit: 1000, Used: 500, Headroom: 500},
			path:  "/",
		},
		{
			name:  "hybrid: a line of version 1 decides",
			files: []files{process("3:memory:/a\n0::/b\n"), v1("a", "1000", "600", ""), v2("unified/b", "10", "1", ""), v2("b", "10", "1", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
		{
			name:  "hybrid: version 2 lies in unified",
			files: []files{process("3:cpu,cpuacct:/x\n1:name=systemd:/a\n0::/a\n"), v2("unified/a", "1000", "600", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
		{
			name:  "name=systemd is no controller",
			files: []files{process("1:name=systemd:/a\n2:name=memory:/a\n"), v1("a", "1000", "600", "")},
		},
		{
			name:  "no groups",
			files: []files{process("")},
		},
		{
			name:  "a group that is gone",
			files: []files{process("0::/a (deleted)\n"), v2("", "", "", "")},
		},
		{
			name:  "lines that say nothing",
			files: []files{process("0::\n0:/a\n:::\nx\n0::a\n3:memory:a\n\n0::/a\n"), v2("a", "1000", "600", "")},
			want:  &Memory{Limit: 1000, Used: 600, Headroom: 400},
			path:  "/a",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			use := tt.use
			if use == "" {
				use = WorkingSet
			}
			l := limitsOf(t, machine(t, tt.files...), use)
			assert.Equal(t, tt.want, l.Memory(total))
			assert.Equal(t, tt.path, l.Path)
			assert.Zero(t, l.CPUs)
		})
	}
}

func TestWhereHierarchiesOfVersion1Lie(t *testing.T) {
	tests := []struct {
		name, cgroup, memory, cpu string
	}{
		{"single names", "4:memory:/a\n2:cpu:/a\n", "memory", "cpu"},
		{"as listed", "4:memory:/a\n2:cpu,cpuacct:/a\n", "memory", "cpu,cpuacct"},
		{"listed the other way round", "4:memory:/a\n2:cpuacct,cpu:/a\n", "memory", "cpu,cpuacct"},
		{"mounted the other way round", "4:memory:/a\n2:cpu,cpuacct:/a\n", "memory", "cpuacct,cpu"},
		{"listed together, mounted alone", "4:memory,hugetlb:/a\n2:cpu,cpuacct:/a\n", "memory", "cpu"},
		{"three together", "4:cpuset,memory,cpu:/a\n", "cpuset,memory,cpu", "cpuset,memory,cpu"},
		{"a cpuset decides nothing", "9:cpuset:/x\n4:memory:/a\n2:cpu:/a\n1:name=systemd:/y\n0::/z\n", "memory", "cpu"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := machine(t, process(tt.cgroup), files{
				fsV2 + tt.memory + "/a/memory.limit_in_bytes": "1000\n",
				fsV2 + tt.memory + "/a/memory.usage_in_bytes": "600\n",
				fsV2 + tt.cpu + "/a/cpu.cfs_quota_us":         "150000\n",
				fsV2 + tt.cpu + "/a/cpu.cfs_period_us":        "100000\n",
			})
			l := limitsOf(t, root, WorkingSet)
			assert.Equal(t, []Group{{Limit: 1000, Used: 600}}, l.Groups)
			assert.InDelta(t, 1.5, l.CPUs, 1e-9)
			assert.Equal(t, "/a", l.Path)
		})
	}
}

func TestQuota(t *testing.T) {
	maxOf := func(dir, content string) files {
		return files{fsV2 + dir + "/cpu.max": content, fsV2 + dir + "/cgroup.controllers": "cpu\n"}
	}
	cfs := func(dir, quota, period string) files {
		return files{cpuFS + dir + "/cpu.cfs_quota_us": quota, cpuFS + dir + "/cpu.cfs_period_us": period}
	}
	const inV2, inV1 = "0::/a/b\n", "5:cpu,cpuacct:/a/b\n"
	tests := []struct {
		name  string
		files []files
		want  float64
	}{
		{"v2: none", []files{process(inV2), maxOf("a/b", "max 100000\n")}, 0},
		{"v2: 2.5", []files{process(inV2), maxOf("a/b", "250000 100000\n")}, 2.5},
		{"v2: below 1", []files{process(inV2), maxOf("a/b", "1000 100000\n")}, 0.01},
		{"v2: another period", []files{process(inV2), maxOf("a/b", "1000 2000\n")}, 0.5},
		{"v2: no period is the kernel's", []files{process(inV2), maxOf("a/b", "150000\n")}, 1.5},
		{"v2: max alone", []files{process(inV2), maxOf("a/b", "max\n")}, 0},
		{"v2: empty", []files{process(inV2), maxOf("a/b", "")}, 0},
		{"v2: garbage", []files{process(inV2), maxOf("a/b", "lots 100000\n")}, 0},
		{"v2: garbage as period", []files{process(inV2), maxOf("a/b", "100000 x\n")}, 0},
		{"v2: period 0", []files{process(inV2), maxOf("a/b", "100000 0\n")}, 0},
		{"v2: negative", []files{process(inV2), maxOf("a/b", "-1 100000\n")}, 0},
		{"v2: beyond 64 bit", []files{process(inV2), maxOf("a/b", "18446744073709551616 100000\n")}, 0},
		{"v2: no file", []files{process(inV2), v2("a/b", "", "", "")}, 0},
		{"v2: an ancestor allows less", []files{process(inV2), maxOf("a", "100000 100000\n"), maxOf("a/b", "250000 100000\n")}, 1},
		{"v2: an ancestor allows more", []files{process(inV2), maxOf("a", "400000 100000\n"), maxOf("a/b", "250000 100000\n")}, 2.5},
		{"v2: only an ancestor has one", []files{process(inV2), maxOf("a", "400000 100000\n"), maxOf("a/b", "max 100000\n")}, 4},
		{"v2: at the mount itself", []files{process("0::/\n"), maxOf("", "50000 100000\n")}, 0.5},
		{"v1: none", []files{process(inV1), cfs("a/b", "-1\n", "100000\n")}, 0},
		{"v1: fractional", []files{process(inV1), cfs("a/b", "125000\n", "50000\n")}, 2.5},
		{"v1: no period", []files{process(inV1), {cpuFS + "a/b/cpu.cfs_quota_us": "100000\n"}}, 0},
		{"v1: period 0", []files{process(inV1), cfs("a/b", "100000\n", "0\n")}, 0},
		{"v1: garbage", []files{process(inV1), cfs("a/b", "many\n", "100000\n")}, 0},
		{"v1: an ancestor allows less", []files{process(inV1), cfs("", "-1\n", "100000\n"), cfs("a", "30000\n", "100000\n"), cfs("a/b", "250000\n", "100000\n")}, 0.3},
		{"hybrid: the line of version 1 decides", []files{process(inV1 + inV2), cfs("a/b", "300000\n", "100000\n"), maxOf("a/b", "10000 100000\n"), maxOf("unified/a/b", "10000 100000\n")}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limitsOf(t, machine(t, tt.files...), WorkingSet)
			assert.InDelta(t, tt.want, l.CPUs, 1e-9)
			assert.Nil(t, l.Memory(total))
		})
	}
}

// Limits change while a process runs, and a process moves.
func TestEverythingIsReadAnew(t *testing.T) {
	root := machine(t, process("0::/a\n"), v2("a", "1000", "600", "inactive_file 100"), files{fsV2 + "a/cpu.max": "200000 100000\n"},
		v2("b", "3000", "10", ""))
	r := NewReader(root, WorkingSet)
	read := func() Limits {
		l, err := r.Limits(77)
		require.NoError(t, err)
		return l
	}
	l := read()
	assert.Equal(t, &Memory{Limit: 1000, Used: 500, Headroom: 500}, l.Memory(total))
	assert.InDelta(t, 2.0, l.CPUs, 1e-9)

	write(t, root, v2("a", "2000", "700", "inactive_file 200"))
	write(t, root, files{fsV2 + "a/cpu.max": "max 100000\n"})
	l = read()
	assert.Equal(t, &Memory{Limit: 2000, Used: 500, Headroom: 1500}, l.Memory(total))
	assert.Zero(t, l.CPUs)

	write(t, root, process("0::/b\n"))
	l = read()
	assert.Equal(t, &Memory{Limit: 3000, Used: 10, Headroom: 2990}, l.Memory(total))

	require.NoError(t, os.RemoveAll(filepath.Join(root, fsV2, "b")))
	l = read()
	assert.Nil(t, l.Memory(total))
}

func TestAProcessThatIsGone(t *testing.T) {
	root := machine(t, v2("a", "1000", "600", ""))
	r := NewReader(root, WorkingSet)
	_, err := r.Limits(77)
	require.ErrorIs(t, err, fs.ErrNotExist)
	write(t, root, process("0::/a\n"))
	l, err := r.Limits(77)
	require.NoError(t, err)
	assert.NotNil(t, l.Memory(total))
}

func TestGroupsOfAProcessThatCannotBeRead(t *testing.T) {
	root := machine(t, files{"proc/77/cgroup/": ""})
	_, err := NewReader(root, WorkingSet).Limits(77)
	require.ErrorContains(t, err, "reading the groups: read "+root+"/proc/77/cgroup")
}
