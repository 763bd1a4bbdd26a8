// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The lines of a process tell different things.
func TestIdentityOfSeveralLines(t *testing.T) {
	const (
		job = "/slurm/uid_1/job_5"
		pod = "/kubepods/burstable/pod" + uid
	)
	inTask := Identity{SlurmJob: "5", SlurmStep: "0", SlurmTask: "2", SlurmUID: "1", StepGroup: job + "/step_0"}
	inDocker := Identity{ContainerID: ctr, Runtime: "docker", ContainerGroup: "/docker/" + ctr}
	tests := []struct {
		name, lines string
		want        Identity
	}{
		{name: "no lines"},
		{name: "lines that say nothing", lines: "0::/\n1:name=systemd:/\nx\n:::\n4:memory:docker/" + ctr + "\n"},
		{name: "one line", lines: "0::/docker/" + ctr + "\n", want: inDocker},
		{name: "only one controller", lines: "4:memory:/docker/" + ctr + "\n3:pids:/\n1:name=systemd:/\n0::/\n", want: inDocker},
		{name: "only systemd's own hierarchy", lines: "4:memory:/\n1:name=systemd:/docker/" + ctr + "\n", want: inDocker},
		{name: "the first of two", lines: "4:memory:/docker/" + ctr + "\n0::/docker/" + outer + "\n", want: inDocker},
		{name: "a pod, then its container", lines: "4:memory:" + pod + "\n3:cpu:" + pod + "/" + ctr + "\n", want: Identity{
			ContainerID: ctr, PodUID: uid, QoS: "burstable", ContainerGroup: pod + "/" + ctr,
		}},
		{name: "a pod, then its monitor", lines: "4:memory:" + pod + "\n1:name=systemd:" + pod + "/crio-conmon-" + ctr + "\n", want: Identity{
			PodUID: uid, QoS: "burstable", Helper: true,
		}},
		{name: "a monitor, then nothing", lines: "1:name=systemd:/machine.slice/libpod-conmon-" + ctr + ".scope\n0::/\n", want: Identity{Helper: true}},
		{name: "Slurm uses some controllers", lines: "9:pids:/system.slice/slurmd.service\n8:freezer:" + job + "/step_0\n4:memory:" + job + "/step_0/task_2\n", want: inTask},
		{name: "the same the other way round", lines: "9:memory:" + job + "/step_0/task_2\n4:freezer:" + job + "/step_0\n2:cpuset:" + job + "\n", want: inTask},
		{name: "a job, then its step", lines: "9:cpuset:" + job + "\n4:freezer:" + job + "/step_0\n", want: Identity{
			SlurmJob: "5", SlurmStep: "0", SlurmUID: "1", StepGroup: job + "/step_0",
		}},
		{name: "a step's daemon", lines: "0::/system.slice/slurmstepd.scope/job_5/step_0/slurm\n", want: Identity{
			SlurmJob: "5", SlurmStep: "0", StepGroup: "/system.slice/slurmstepd.scope/job_5/step_0", Helper: true,
		}},
		{name: "a job and a container in different lines", lines: "9:memory:" + job + "/step_0/task_2\n4:freezer:/docker/" + ctr + "\n", want: Identity{
			ContainerID: ctr, Runtime: "docker", ContainerGroup: "/docker/" + ctr,
			SlurmJob: "5", SlurmStep: "0", SlurmTask: "2", SlurmUID: "1", StepGroup: job + "/step_0",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := NewIdentifier(t.TempDir())
			for range 2 {
				assert.Equal(t, tt.want, i.Identify(77, []byte(tt.lines)))
			}
		})
	}
}

const (
	podSlice  = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + sliceUID + ".slice"
	criPrefix = "cri-containerd-"
)

// A path that leads out of our own group tells more where it is found.
func TestIdentityOfPathsOutOfOurOwnGroup(t *testing.T) {
	scope := "/" + criPrefix + ctr + ".scope"
	inPod := Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "burstable", ContainerGroup: "/" + podSlice + scope}
	tests := []struct {
		name, lines, dir string
		want             Identity
	}{
		{name: "a container of our own pod", lines: "0::/.." + scope + "\n", dir: podSlice + scope, want: inPod},
		{name: "a container of another pod", lines: "0::/../../" + filepath.Base(podSlice) + scope + "\n", dir: podSlice + scope, want: inPod},
		{name: "a hybrid system", lines: "0::/.." + scope + "\n", dir: "unified/" + podSlice + scope, want: inPod},
		{name: "version 1", lines: "4:memory:/.." + scope + "\n", dir: "memory/" + podSlice + scope, want: inPod},
		{name: "version 1, two controllers", lines: "4:cpu,cpuacct:/.." + scope + "\n", dir: "cpuacct,cpu/" + podSlice + scope, want: inPod},
		{name: "systemd's own hierarchy", lines: "1:name=systemd:/.." + scope + "\n", dir: "systemd/" + podSlice + scope, want: inPod},
		{
			name: "one hierarchy shows it", lines: "5:pids:/.." + scope + "\n4:memory:/.." + scope + "\n3:cpu:/.." + scope + "\n",
			dir: "memory/" + podSlice + scope, want: inPod,
		},
		{
			name: "nowhere", lines: "0::/.." + scope + "\n", dir: "elsewhere",
			want: Identity{ContainerID: ctr, Runtime: "containerd", ContainerGroup: "/.." + scope},
		},
		{name: "an ancestor of ours", lines: "0::/../..\n", dir: podSlice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := NewIdentifier(machine(t, files{fsV2 + tt.dir + "/cgroup.procs": ""}))
			for range 2 {
				assert.Equal(t, tt.want, i.Identify(77, []byte(tt.lines)))
			}
		})
	}
}

// What was found holds as long as it is there; what was not is not looked for
// at every call.
func TestFoundIdentitiesAreCheckedAgain(t *testing.T) {
	content := []byte("0::/../" + ctr + "\n")
	root := machine(t, files{fsV2: ""})
	i := NewIdentifier(root)
	require.Empty(t, i.Identify(77, content).PodUID)

	pod := files{fsV2 + "kubepods/pod" + uid + "/" + ctr + "/": ""}
	write(t, root, pod)
	for range retryAfter {
		require.Empty(t, i.Identify(77, content).PodUID)
	}
	require.Equal(t, uid, i.Identify(77, content).PodUID)

	require.NoError(t, os.RemoveAll(filepath.Join(root, fsV2, "kubepods")))
	require.Empty(t, i.Identify(77, content).PodUID)
}

func TestIdentitiesThatAreRememberedAreBounded(t *testing.T) {
	i := NewIdentifier(t.TempDir())
	for n := range 2*maxKnown + 1 {
		i.Identify(77, []byte("0::/slurm/job_"+strconv.Itoa(n)+"\n"))
		require.LessOrEqual(t, len(i.known), maxKnown)
	}
	require.Len(t, i.known, 1)
}

func TestAKnownIdentityCostsNoAllocation(t *testing.T) {
	content := []byte("0::/" + podSlice + "/" + criPrefix + ctr + ".scope\n")
	i := NewIdentifier(t.TempDir())
	i.Identify(77, content)
	assert.Zero(t, testing.AllocsPerRun(100, func() { i.Identify(77, content) }))
}

func FuzzIdentifier(f *testing.F) {
	for _, tt := range pathTests {
		path, _ := barred(tt.path)
		f.Add([]byte("4:memory:" + path + "\n0::/x\n"))
	}
	f.Add([]byte("3:name=:/../x\n2:,:/../y\n0::/../\n0::/..\n0:::\n"))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		before := string(content)
		i := NewIdentifier(root)
		id := i.Identify(77, content)
		require.Equal(t, id, i.Identify(77, content))
		require.Equal(t, before, string(content), "the input is left alone")
		if id.ContainerGroup != "" {
			requireContainer(t, id.ContainerGroup, id)
			require.Contains(t, before, ":"+id.ContainerGroup)
		}
		if id.StepGroup != "" {
			requireJob(t, id.StepGroup, id)
			require.Contains(t, before, ":"+id.StepGroup)
		}
	})
}

// BenchmarkIdentifier takes a process of version 1 and one of version 2, known
// and not, and one whose path leads out of our own group.
func BenchmarkIdentifier(b *testing.B) {
	scope := podSlice + "/" + criPrefix + ctr + ".scope"
	root := b.TempDir()
	require.NoError(b, os.MkdirAll(filepath.Join(root, fsV2, scope), 0o755))
	contents := map[string][]byte{
		"v1":       []byte(strings.Repeat("4:memory:/"+scope+"\n", 12)),
		"v2":       []byte("0::/" + scope + "\n"),
		"leadsOut": []byte("0::/../" + filepath.Base(scope) + "\n"),
	}
	for name, content := range contents {
		b.Run(name+"/known", func(b *testing.B) {
			i := NewIdentifier(root)
			b.ReportAllocs()
			for b.Loop() {
				i.Identify(77, content)
			}
		})
		b.Run(name+"/new", func(b *testing.B) {
			i := NewIdentifier(root)
			b.ReportAllocs()
			for b.Loop() {
				clear(i.known)
				clear(i.found)
				i.Identify(77, content)
			}
		})
	}
}
