// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mountLine(root, point, fsType, options string) string {
	return "36 25 0:31 " + root + " " + point + " ro,nosuid - " + fsType + " cgroup rw," + options + "\n"
}

// Where the usual places have no such group the mount tables tell.
func TestMountTables(t *testing.T) {
	const docker = "/docker/0123"
	limited := &Memory{Limit: 1000, Used: 600, Headroom: 400}
	tests := []struct {
		name  string
		files []files
		want  *Memory
		path  string
	}{
		{
			name: "v1: a part of the hierarchy is mounted",
			files: []files{
				process("4:memory:" + docker + "\n"), v1("", "1000", "600", ""),
				{"proc/self/mountinfo": mountLine(docker, "/sys/fs/cgroup/memory", "cgroup", "memory")},
			},
			want: limited, path: "/",
		},
		{
			name: "v1: a group below the part that is mounted",
			files: []files{
				process("4:memory:" + docker + "/x\n"), v1("", "9223372036854771712", "900", ""), v1("x", "1000", "600", ""),
				{"proc/self/mountinfo": mountLine(docker, "/sys/fs/cgroup/memory", "cgroup", "memory")},
			},
			want: limited, path: "/x",
		},
		{
			name: "v1: hidden ancestors allow less",
			files: []files{
				process("4:memory:" + docker + "\n"), v1("", "9223372036854771712", "600", "total_inactive_file 0\nhierarchical_memory_limit 1000"),
				{"proc/self/mountinfo": mountLine(docker, "/sys/fs/cgroup/memory", "cgroup", "memory")},
			},
			want: limited, path: "/",
		},
		{
			name: "v2: a part of the hierarchy is mounted",
			files: []files{
				process("0::" + docker + "\n"), v2("", "1000", "600", ""),
				{"proc/self/mountinfo": mountLine(docker, "/sys/fs/cgroup", "cgroup2", "nsdelegate")},
			},
			want: limited, path: "/",
		},
		{
			name: "another's part is not ours, whatever its name begins with",
			files: []files{
				process("0::" + docker + "4\n"),
				{fsV2 + "4/memory.max": "1000\n", fsV2 + "4/memory.current": "1\n"},
				{"proc/self/mountinfo": mountLine(docker, "/sys/fs/cgroup", "cgroup2", "nsdelegate")},
			},
		},
		{
			name: "blanks in names",
			files: []files{
				process("0::/my pod/x\n"),
				{"mnt/my groups/x/memory.max": "1000\n", "mnt/my groups/x/memory.current": "600\n"},
				{"proc/self/mountinfo": mountLine(`/my\040pod`, `/mnt/my\040groups`, "cgroup2", "nsdelegate")},
			},
			want: limited, path: "/x",
		},
		{
			name: "only the first process still has the mount",
			files: []files{
				process("4:memory:/a\n"),
				{"cgroups/mem/a/memory.limit_in_bytes": "1000\n", "cgroups/mem/a/memory.usage_in_bytes": "600\n"},
				{"proc/self/mountinfo": "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n"},
				{"proc/1/mountinfo": mountLine("/", "/cgroups/mem", "cgroup", "memory")},
			},
			want: limited, path: "/a",
		},
		{
			name: "we have no table, the first process has",
			files: []files{
				process("0::/a\n"),
				{"cgroups/a/memory.max": "1000\n", "cgroups/a/memory.current": "600\n"},
				{"proc/1/mountinfo": mountLine("/", "/cgroups", "cgroup2", "x")},
			},
			want: limited, path: "/a",
		},
		{
			name: "controllers of a hierarchy are its options, not its name",
			files: []files{
				process("4:hugetlb,memory:/a\n"),
				{
					"cg/first/a/memory.limit_in_bytes": "1000\n", "cg/first/a/memory.usage_in_bytes": "600\n",
					"cg/memory/a/memory.limit_in_bytes": "10\n", "cg/memory/a/memory.usage_in_bytes": "6\n",
				},
				{"proc/self/mountinfo": mountLine("/", "/cg/memory", "cgroup", "cpuset") + mountLine("/", "/cg/first", "cgroup", "hugetlb,memory")},
			},
			want: limited, path: "/a",
		},
		{
			name: "mounts of other kinds",
			files: []files{
				process("0::/a\n"),
				{"cg/a/memory.max": "10\n", "cg/a/memory.current": "6\n"},
				{"proc/self/mountinfo": mountLine("/", "/cg", "cgroup", "memory") + mountLine("/", "/cg", "tmpfs", "x") + "garbage\n"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limitsOf(t, machine(t, tt.files...), WorkingSet)
			assert.Equal(t, tt.want, l.Memory(total))
			assert.Equal(t, tt.path, l.Path)
		})
	}
}

// Our own mount table names the mounts of the machine as we see them, below the
// root path; that of the first process as the machine does.
func TestMountTablesOfAForeignRoot(t *testing.T) {
	for _, prefix := range []string{"", "root"} {
		root := machine(t, process("0::/docker/a\n"), files{"cg/memory.max": "1000\n", "cg/memory.current": "600\n"})
		point := "/cg"
		if prefix != "" {
			point = root + point
		}
		write(t, root, files{"proc/self/mountinfo": mountLine("/docker/a", point, "cgroup2", "x")})
		l := limitsOf(t, root, WorkingSet)
		assert.NotNil(t, l.Memory(total), point)
	}
}

// Paths that lead out of our own group are looked for below the root.
func TestPathsOutOfOurOwnGroup(t *testing.T) {
	const slice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice"
	tests := []struct {
		name, cgroup, at string
		v1               bool
		want             string
	}{
		{name: "at the root", cgroup: "/../../../kubepods/burstable/podX/c", at: "kubepods/burstable/podX/c", want: "/kubepods/burstable/podX/c"},
		{name: "one deeper", cgroup: "/../burstable/podX/c", at: "kubepods/burstable/podX/c", want: "/kubepods/burstable/podX/c"},
		{name: "two deeper", cgroup: "/../podX/c", at: "kubepods/burstable/podX/c", want: "/kubepods/burstable/podX/c"},
		{name: "three deeper: a container of our own pod", cgroup: "/../c", at: "kubepods/burstable/podX/c", want: "/kubepods/burstable/podX/c"},
		{name: "not four deeper", cgroup: "/../c", at: "a/kubepods/burstable/podX/c"},
		{name: "a slice tells its parents", cgroup: "/../../kubepods-burstable-podX.slice/c", at: slice + "/c", want: "/" + slice + "/c"},
		{name: "a slice somewhere else", cgroup: "/../a-b.slice/c", at: "x/a-b.slice/c", want: "/x/a-b.slice/c"},
		{name: "the first process", cgroup: "/../../../../init.scope", at: "init.scope", want: "/init.scope"},
		{name: "version 1", cgroup: "/../podX/c", at: "kubepods/burstable/podX/c", v1: true, want: "/kubepods/burstable/podX/c"},
		{name: "an ancestor of ours is not found", cgroup: "/../..", at: "a/b"},
		{name: "nowhere", cgroup: "/../elsewhere", at: "a/b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := machine(t, process("0::"+tt.cgroup+"\n"), v2(tt.at, "1000", "600", ""))
			if tt.v1 {
				root = machine(t, process("4:memory:"+tt.cgroup+"\n"), v1(tt.at, "1000", "600", ""))
			}
			r := NewReader(root, WorkingSet)
			for range 2 {
				l, err := r.Limits(77)
				require.NoError(t, err)
				assert.Equal(t, tt.want, l.Path)
				assert.Equal(t, tt.want != "", l.Memory(total) != nil)
			}
		})
	}
}

// The nearest to the root wins: a nested agent's groups have the same names.
func TestTheSearchIsBreadthFirst(t *testing.T) {
	root := machine(t, process("0::/../podX/c\n"), v2("a/b/podX/c", "10", "1", ""), v2("z/podX/c", "1000", "600", ""))
	l := limitsOf(t, root, WorkingSet)
	assert.Equal(t, "/z/podX/c", l.Path)
}

func TestPlacesAreRememberedAndChecked(t *testing.T) {
	root := machine(t, process("0::/../podX/c\n"), v2("a/podX/c", "1000", "600", ""))
	r := NewReader(root, WorkingSet)
	pathNow := func() string {
		l, err := r.Limits(77)
		require.NoError(t, err)
		return l.Path
	}
	require.Equal(t, "/a/podX/c", pathNow())
	require.Len(t, r.finder.found, 1)

	// It is looked for again only when it is not there any more.
	write(t, root, v2("podX/c", "1000", "600", ""))
	require.Equal(t, "/a/podX/c", pathNow())
	require.NoError(t, os.RemoveAll(filepath.Join(root, fsV2, "a")))
	require.Equal(t, "/podX/c", pathNow())
	require.NoError(t, os.RemoveAll(filepath.Join(root, fsV2, "podX")))
	require.Empty(t, pathNow())
	require.Len(t, r.finder.found, 1)
}

// pid 1 is in the root of the hierarchy, or in init.scope below it: its path
// tells how deep we are.
func TestTheDepthOfOurOwnGroupIsKnownFromPid1(t *testing.T) {
	for name, first := range map[string]string{"in init.scope": "/../../../init.scope", "in the root": "/../../.."} {
		t.Run(name, func(t *testing.T) {
			root := machine(t, process("0::/../app\n"), v2("a/app", "2000", "600", ""), v2("a/b/app", "1000", "600", ""),
				files{"proc/1/cgroup": "0::" + first + "\n"})
			l := limitsOf(t, root, WorkingSet)
			assert.Equal(t, "/a/b/app", l.Path)
		})
	}
	t.Run("deeper than is searched", func(t *testing.T) {
		root := machine(t, process("0::/../app\n"), v2("a/b/c/d/e/app", "1000", "600", ""),
			files{"proc/1/cgroup": "0::/../../../../../../init.scope\n"})
		assert.Equal(t, "/a/b/c/d/e/app", limitsOf(t, root, WorkingSet).Path)
	})
}

func TestOfSeveralGroupsTheOneWithTheProcessIsTaken(t *testing.T) {
	root := machine(t, process("0::/../step_0/task_0\n"), v2("job_1/step_0/task_0", "2000", "600", ""), v2("job_2/step_0/task_0", "1000", "600", ""),
		files{fsV2 + "job_2/step_0/task_0/cgroup.procs": "12\n77\n"})
	assert.Equal(t, "/job_2/step_0/task_0", limitsOf(t, root, WorkingSet).Path)
}

// What was not there at first is looked for again.
func TestGroupsThatAppearLaterAreFound(t *testing.T) {
	for _, groupPath := range []string{"/a/b", "/../late"} {
		t.Run(groupPath, func(t *testing.T) {
			root := machine(t, process("0::"+groupPath+"\n"))
			r := NewReader(root, WorkingSet)
			before, err := r.Limits(77)
			require.NoError(t, err)
			require.Empty(t, before.Groups)
			late := path.Join("a", path.Base(groupPath))
			write(t, root, v2(late, "1000", "600", ""))
			write(t, root, files{fsV2 + late + "/cpu.max": "50000 100000\n"})
			after, err := r.Limits(77)
			require.NoError(t, err)
			assert.Len(t, after.Groups, 1)
			assert.InDelta(t, 0.5, after.CPUs, 1e-9)
		})
	}
}

func TestOnARealMachineASearchInVainIsNotMadeAtEveryCall(t *testing.T) {
	r := NewReader("/", WorkingSet)
	r.places = places{pid: 1, membership: []byte("0::/x"), retry: retryAfter}
	for range retryAfter {
		require.True(t, r.isPlaced(1, []byte("0::/x")))
	}
	require.False(t, r.isPlaced(1, []byte("0::/x")), "the next one is")
	require.False(t, r.isPlaced(1, []byte("0::/y")))
	require.False(t, r.isPlaced(2, []byte("0::/x")))
}

// The group's own folder may be hidden, or tell nothing of itself.
func TestLimitsOfAncestorsOfAGroupThatTellsNothing(t *testing.T) {
	t.Run("not shown", func(t *testing.T) {
		root := machine(t, process("0::/pod/c\n"), v2("pod", "1000", "600", ""), files{fsV2 + "pod/cpu.max": "50000 100000\n"})
		l := limitsOf(t, root, WorkingSet)
		assert.Len(t, l.Groups, 1)
		assert.InDelta(t, 0.5, l.CPUs, 1e-9)
	})
	t.Run("without files of limits", func(t *testing.T) {
		root := machine(t, process("0::/pod/c\n"), v2("pod", "1000", "600", ""), files{fsV2 + "pod/c/memory.current": "5\n"})
		assert.Len(t, limitsOf(t, root, WorkingSet).Groups, 1)
	})
}

// A part of the hierarchy that only the process' own mount table shows.
func TestThePartThatTheProcessItselfSees(t *testing.T) {
	root := machine(t, process("0::/docker/abc\n"), v2("", "1000", "250", ""),
		files{"proc/77/mountinfo": "30 23 0:29 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"})
	l := limitsOf(t, root, WorkingSet)
	require.NotNil(t, l.Memory(total))
	assert.Equal(t, uint64(1000), l.Memory(total).Limit)
}

func TestAHiddenLimitIsToldByTheTopmostGroupThatTellsAnything(t *testing.T) {
	root := machine(t, process("4:memory:/docker/abc\n"), files{
		"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "9223372036854771712\n",
		"sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": "300\n",
		"sys/fs/cgroup/memory/docker/abc/memory.stat":           "total_inactive_file 50\nhierarchical_memory_limit 1000\n",
	})
	l := limitsOf(t, root, WorkingSet)
	m := l.Memory(total)
	require.NotNil(t, m)
	assert.Equal(t, &Memory{Limit: 1000, Used: 250, Headroom: 750}, m)
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	f := finder{found: map[string]string{}}
	for i := range 3 * maxFound {
		f.keep(strconv.Itoa(i), "/x")
		require.LessOrEqual(t, len(f.found), maxFound+1)
	}
}

func TestTheSearchIsBounded(t *testing.T) {
	mount := t.TempDir()
	for i := range maxFolders + 1 {
		require.NoError(t, os.Mkdir(filepath.Join(mount, fmt.Sprintf("p%05d", i)), 0o755))
	}
	deep := filepath.Join(mount, "p00000", "deeper", "target")
	require.NoError(t, os.MkdirAll(deep, 0o755))
	f := finder{found: map[string]string{}}
	_, ok := f.at(mount, wanted{rest: "/target", level: -1, v1: true})
	assert.False(t, ok)
	require.NoError(t, os.Mkdir(filepath.Join(mount, "target"), 0o755))
	found, ok := f.at(mount, wanted{rest: "/target", level: -1, v1: true})
	assert.True(t, ok)
	assert.Equal(t, "/target", found)
}

func TestSliceParents(t *testing.T) {
	tests := map[string][]string{
		"/a.slice":           nil,
		"/a-b.slice":         {"/a.slice"},
		"/a-b-c.slice/x":     {"/a.slice/a-b.slice"},
		"/-.slice":           {"/.slice"}, // the root slice has no folder; harmless
		"/a-b.scope":         nil,
		"/a-b/c-d.slice":     nil,
		"/":                  nil,
		"/a-b-c-d.slice/e-f": {"/a.slice/a-b.slice/a-b-c.slice"},
	}
	for rest, want := range tests {
		assert.Equal(t, want, sliceParents(rest), rest)
	}
}

func FuzzMembership(f *testing.F) {
	for _, content := range []string{
		"", "0::/\n", "0::/a:b/c\n", "12:cpu,cpuacct:/x\n4:memory:/y\n1:name=systemd:/z\n0::/w\n",
		"3:memory:relative\n", ":::\n::", "0::/../../x\n0::/.. /y", "4:,memory,,:/x\n", strings.Repeat("1:memory:/a\n", 50),
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		before := string(content)
		m := parseMembership(content)
		require.Equal(t, before, string(content), "the input is left alone")
		require.True(t, m.v2 == "" || strings.HasPrefix(m.v2, "/"))
		require.Equal(t, m.v2 != "", hasLine(before, "0::"+m.v2) && m.v2 != "")
		for controller, l := range m.v1 {
			require.NotEmpty(t, controller)
			require.False(t, strings.HasPrefix(controller, "name="))
			require.True(t, strings.HasPrefix(l.path, "/"))
			require.Contains(t, strings.Split(l.controllers, ","), controller)
			require.Contains(t, before, ":"+l.controllers+":"+l.path)
		}
	})
}

func hasLine(content, line string) bool {
	for l := range strings.Lines(content) {
		if strings.TrimSuffix(l, "\n") == line {
			return true
		}
	}
	return false
}

// FuzzGroupFiles: whatever the files hold, use is never more than is charged,
// and a quota is a positive number or none.
func FuzzGroupFiles(f *testing.F) {
	f.Add([]byte("100\n"), []byte("inactive_file 5\n"), []byte("max 100000\n"))
	f.Add([]byte("0"), []byte("file 18446744073709551615\nshmem 1"), []byte("250000 100000"))
	f.Add([]byte("18446744073709551615"), []byte("\n \nx\ninactive_file -1"), []byte("9223372036854775807 1"))
	f.Add([]byte("-1"), []byte(""), []byte("0 0"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, current, stat, cpu []byte) {
		write(t, dir, files{"memory.current": string(current), "memory.stat": string(stat), "cpu.max": string(cpu)})
		level := newMemoryLevel(dir, false)
		charged, ok := new(Reader).number(&level.usage)
		for _, use := range []MemoryUse{WorkingSet, Usage, Anon} {
			r := Reader{use: use}
			used, known := r.used(&level)
			require.Equal(t, ok, known)
			require.LessOrEqual(t, used, charged)
		}
		quota := parseQuota(cpu)
		require.GreaterOrEqual(t, quota, 0.0)
		require.LessOrEqual(t, quota, 9.3e18) // also: not infinite, not NaN
	})
}
