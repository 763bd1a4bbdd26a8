// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	uid      = "5d0c3a55-77aa-4e21-9d10-0011223344ff"
	sliceUID = "5d0c3a55_77aa_4e21_9d10_0011223344ff"
	hash     = "0123456789abcdef0123456789abcdef"
)

// Two containers.
var (
	ctr   = strings.Repeat("0f1e2d3c", 8)
	outer = strings.Repeat("a", 64)
)

// pathTests are the forms of paths. ContainerGroup and StepGroup are what the
// path has before its bars "|": what follows them is further down.
var pathTests = []struct {
	name, path string
	want       Identity
}{
	{"nothing", "", Identity{}},
	{"the root", "/", Identity{}},
	{"a service", "/system.slice/otelcol.service", Identity{}},
	{"a session", "/user.slice/user-1000.slice/session-4.scope", Identity{}},
	{"LXC", "/lxc.payload.web/init.scope", Identity{}},

	{"kubelet's cgroupfs driver", "/kubepods/burstable/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "burstable"}},
	{"cgroupfs: besteffort", "/kubepods/besteffort/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "besteffort"}},
	{"cgroupfs: guaranteed", "/kubepods/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "guaranteed"}},
	{"cgroupfs: a static pod", "/kubepods/burstable/pod" + hash + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: hash, QoS: "burstable"}},
	{"cgroupfs: cri-o", "/kubepods/burstable/pod" + uid + "/crio-" + ctr + "|", Identity{ContainerID: ctr, Runtime: "cri-o", PodUID: uid, QoS: "burstable"}},
	{"cgroupfs: the pod's own group", "/kubepods/burstable/pod" + uid, Identity{PodUID: uid, QoS: "burstable"}},
	{"cgroupfs: a group of pods", "/kubepods/burstable", Identity{}},
	{"cgroupfs: another root", "/kubelet/kubepods/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "guaranteed"}},
	{"cgroupfs: no UID", "/kubepods/podium/" + ctr + "|", Identity{ContainerID: ctr}},
	{"cgroupfs: no UID of this length", "/kubepods/pod5d0c3a55-77aa-4e21-9d10x0011223344ff/pod5g0c3a55-77aa-4e21-9d10-0011223344ff", Identity{}},

	{
		"kubelet's systemd driver", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + sliceUID + ".slice/cri-containerd-" + ctr + ".scope|",
		Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "burstable"},
	},
	{
		"systemd: besteffort, docker", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + sliceUID + ".slice/docker-" + ctr + ".scope|",
		Identity{ContainerID: ctr, Runtime: "docker", PodUID: uid, QoS: "besteffort"},
	},
	{
		"systemd: guaranteed, cri-o", "/kubepods.slice/kubepods-pod" + sliceUID + ".slice/crio-" + ctr + ".scope|/container",
		Identity{ContainerID: ctr, Runtime: "cri-o", PodUID: uid, QoS: "guaranteed"},
	},
	{
		"systemd: a static pod", "/kubepods.slice/kubepods-pod" + hash + ".slice/cri-containerd-" + ctr + ".scope|",
		Identity{ContainerID: ctr, Runtime: "containerd", PodUID: hash, QoS: "guaranteed"},
	},
	{"systemd: the monitor of cri-o", "/kubepods.slice/kubepods-pod" + sliceUID + ".slice/crio-conmon-" + ctr + ".scope", Identity{PodUID: uid, QoS: "guaranteed", Helper: true}},
	{"systemd: no UID", "/kubepods.slice/kubepods-podium.slice", Identity{}},
	{"systemd: no pod of kubelet's", "/machine.slice/machine-pod" + sliceUID + ".slice", Identity{}},
	{
		"systemd: kind", "/docker/" + outer + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod" + sliceUID + ".slice/cri-containerd-" + ctr + ".scope|",
		Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "besteffort"},
	},
	{"kind on cgroupfs: the outer runtime is not the inner one", "/docker/" + outer + "/kubelet/kubepods/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "guaranteed"}},
	{
		"kubelet with systemd, the runtime without", "/system.slice/containerd.service/kubepods-burstable-pod" + sliceUID + ".slice:cri-containerd:" + ctr + "|",
		Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "burstable"},
	},
	{"the same at the root", "/kubepods-pod" + sliceUID + ".slice:cri-containerd:" + ctr + "|", Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "guaranteed"}},
	{
		"a pod in a pod", "/kubepods/burstable/pod" + hash + "/" + outer + "/kubepods/pod" + uid + "/" + ctr + "|",
		Identity{ContainerID: ctr, PodUID: uid, QoS: "guaranteed"},
	},

	{"docker", "/docker/" + ctr + "|", Identity{ContainerID: ctr, Runtime: "docker"}},
	{"docker with systemd", "/system.slice/docker-" + ctr + ".scope|", Identity{ContainerID: ctr, Runtime: "docker"}},
	{"docker with systemd inside", "/system.slice/docker-" + ctr + ".scope|/system.slice/train.service", Identity{ContainerID: ctr, Runtime: "docker"}},
	{"docker with an init", "/docker/" + ctr + "|/init.scope", Identity{ContainerID: ctr, Runtime: "docker"}},
	{"docker in docker", "/docker/" + outer + "/docker/" + ctr + "|", Identity{ContainerID: ctr, Runtime: "docker"}},
	{"docker in a pod", "/kubepods/burstable/pod" + uid + "/" + outer + "/docker/" + ctr + "|", Identity{ContainerID: ctr, Runtime: "docker", PodUID: uid, QoS: "burstable"}},
	{"docker below a group of one's own", "/actions_job/" + ctr + "|", Identity{ContainerID: ctr}},
	{"nerdctl", "/system.slice/nerdctl-" + ctr + ".scope|", Identity{ContainerID: ctr, Runtime: "containerd"}},
	{"a runtime that is not known", "/system.slice/other-" + ctr + ".scope|", Identity{ContainerID: ctr}},
	{"hex digits of a service", "/system.slice/run-r" + hash + ".service", Identity{}},
	{"an ID of a service", "/system.slice/" + ctr + ".service/docker-" + ctr + ".mount", Identity{}},
	{"too few digits", "/docker/" + ctr[1:], Identity{}},
	{"too many digits", "/docker/a" + ctr, Identity{}},
	{"other digits", "/docker/" + ctr[1:] + "g", Identity{}},

	{
		"podman", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + ctr + ".scope|/container",
		Identity{ContainerID: ctr, Runtime: "podman"},
	},
	{"podman in a service", "/system.slice/train.service/libpod-payload-" + ctr + "|", Identity{ContainerID: ctr, Runtime: "podman"}},
	{"podman: a pod of its own", "/machine.slice/machine-libpod_pod_" + outer + ".slice/libpod-" + ctr + ".scope|", Identity{ContainerID: ctr, Runtime: "podman"}},
	{"podman: a monitor", "/machine.slice/libpod-conmon-" + ctr + ".scope", Identity{Helper: true}},
	{"podman: a monitor in a container", "/docker/" + outer + "/libpod_parent/libpod-conmon-" + ctr, Identity{Helper: true}},

	{"ECS", "/ecs/" + hash + "/" + ctr + "|", Identity{ContainerID: ctr, ECSTask: hash}},
	{"ECS: old tasks", "/ecs/" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, ECSTask: uid}},
	{"ECS with systemd", "/ecstasks.slice/ecstasks-" + hash + ".slice/docker-" + ctr + ".scope|", Identity{ContainerID: ctr, Runtime: "docker", ECSTask: hash}},
	{"Fargate", "/ecs/" + hash + "/" + hash + "-2495160603|", Identity{ContainerID: hash + "-2495160603", ECSTask: hash}},
	{"Fargate: another's", "/ecs/" + hash + "/" + outer[:32] + "-2495160603", Identity{ECSTask: hash}},
	{"Fargate: no number", "/ecs/" + hash + "/" + hash + "-x/" + hash + "1", Identity{ECSTask: hash}},
	{"ECS: no task", "/ecs/agent", Identity{}},

	{"Slurm, version 1", "/slurm/uid_1001/job_55786247/step_0|/task_9", Identity{SlurmJob: "55786247", SlurmStep: "0", SlurmTask: "9", SlurmUID: "1001"}},
	{"Slurm on one of several nodes", "/slurm_n01/uid_1001/job_5/step_batch|/task_0", Identity{SlurmJob: "5", SlurmStep: "batch", SlurmTask: "0", SlurmUID: "1001"}},
	{"Slurm: the job's own group", "/slurm/uid_1001/job_5", Identity{SlurmJob: "5", SlurmUID: "1001"}},
	{"Slurm: a step", "/slurm/uid_1001/job_5/step_extern|", Identity{SlurmJob: "5", SlurmStep: "extern", SlurmUID: "1001"}},
	{"Slurm: a user", "/slurm/uid_1001", Identity{}},
	{"Slurm: its own", "/slurm/system", Identity{Helper: true}},
	{"Slurm, version 2", "/system.slice/slurmstepd.scope/job_4242/step_batch|/user/task_0", Identity{SlurmJob: "4242", SlurmStep: "batch", SlurmTask: "0"}},
	{"Slurm 2 on one of several nodes", "/system.slice/n01_slurmstepd.scope/job_4242/step_interactive|/user/task_0", Identity{SlurmJob: "4242", SlurmStep: "interactive", SlurmTask: "0"}},
	{"Slurm 2: what logs in", "/system.slice/slurmstepd.scope/job_4242/step_extern|/user/task_special", Identity{SlurmJob: "4242", SlurmStep: "extern"}},
	{"Slurm 2: the step's daemon", "/system.slice/slurmstepd.scope/job_4242/step_0|/slurm", Identity{SlurmJob: "4242", SlurmStep: "0", Helper: true}},
	{"Slurm 2: the node's daemon", "/system.slice/slurmstepd.scope/system", Identity{Helper: true}},
	{"Slurm: a part of a job", "/system.slice/slurmstepd.scope/job_4242/step_0+1|/user/task_0", Identity{SlurmJob: "4242", SlurmStep: "0+1", SlurmTask: "0"}},
	{"Slurm 26.05", "/system.slice/slurmstepd.scope/s0123456789ABC/step_0|/user/task_1", Identity{SlurmSLUID: "s0123456789ABC", SlurmStep: "0", SlurmTask: "1"}},
	{"Slurm 26.05: a digit less", "/system.slice/slurmstepd.scope/s0123456789AB/step_0", Identity{}},
	{"Slurm 26.05: another sign", "/system.slice/slurmstepd.scope/s0123456789AB-/step_0", Identity{}},
	{"jobs of others", "/job_5/step_0/task_1", Identity{}},
	{"jobs in a session", "/user.slice/job_5/step_0", Identity{}},
	{"a step of no job", "/slurm/uid_1/step_0/task_1", Identity{}},
	{"numbers that are none", "/slurm/uid_x/job_5/step_0", Identity{}},
	{"a job that is no number", "/slurm/uid_1/job_x/step_0", Identity{}},
	{"a step that has another name", "/slurm/uid_1/job_5/step_/task_1", Identity{SlurmJob: "5", SlurmUID: "1"}},
	{"a step that is no number", "/slurm/uid_1/job_5/step_0+/task_1", Identity{SlurmJob: "5", SlurmUID: "1"}},
	{"a task elsewhere", "/slurm/uid_1/job_5/step_0|/mine/task_1", Identity{SlurmJob: "5", SlurmStep: "0", SlurmUID: "1"}},
	{"a group that a user calls slurm", "/system.slice/slurmstepd.scope/job_5/step_0|/user/slurm", Identity{SlurmJob: "5", SlurmStep: "0"}},

	{
		"docker in a job", "/slurm/uid_1/job_5/step_0|/docker/" + ctr + "|",
		Identity{ContainerID: ctr, Runtime: "docker", SlurmJob: "5", SlurmStep: "0", SlurmUID: "1"},
	},
	{
		"podman in a job", "/system.slice/slurmstepd.scope/job_5/step_0|/user/task_0/libpod-" + ctr + ".scope|/container",
		Identity{ContainerID: ctr, Runtime: "podman", SlurmJob: "5", SlurmStep: "0", SlurmTask: "0"},
	},
	{
		"podman's monitor in a job", "/system.slice/slurmstepd.scope/job_5/step_0|/user/task_0/libpod-conmon-" + ctr + ".scope",
		Identity{SlurmJob: "5", SlurmStep: "0", SlurmTask: "0", Helper: true},
	},
	{
		"a job in a pod", "/kubepods.slice/kubepods-pod" + sliceUID + ".slice/cri-containerd-" + ctr + ".scope|/system.slice/slurmstepd.scope/job_1/step_0|/user/task_3",
		Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "guaranteed", SlurmJob: "1", SlurmStep: "0", SlurmTask: "3"},
	},
	{
		"a job's daemon in a pod", "/kubepods/pod" + uid + "/" + ctr + "|/system.slice/slurmstepd.scope/job_1/step_0|/slurm",
		Identity{ContainerID: ctr, PodUID: uid, QoS: "guaranteed", SlurmJob: "1", SlurmStep: "0", Helper: true},
	},
	{
		"a job in the container of a job", "/slurm/uid_1/job_5/step_0/docker/" + ctr + "|/system.slice/slurmstepd.scope/job_6",
		Identity{ContainerID: ctr, Runtime: "docker", SlurmJob: "6"},
	},

	{"another pod, seen from a pod", "/../../kubepods-burstable-pod" + sliceUID + ".slice/cri-containerd-" + ctr + ".scope|", Identity{ContainerID: ctr, Runtime: "containerd", PodUID: uid, QoS: "burstable"}},
	{"another pod, whose class is not seen", "/../../pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid}},
	{"another pod, whose class is", "/../../../burstable/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "burstable"}},
	{"a pod in a place of its own", "/mine/pod" + uid + "/" + ctr + "|", Identity{ContainerID: ctr, PodUID: uid, QoS: "guaranteed"}},
	{"a sibling", "/../cri-containerd-" + ctr + ".scope|", Identity{ContainerID: ctr, Runtime: "containerd"}},
}

// barred returns the path without its bars, and what is before each.
func barred(marked string) (path string, before []string) {
	for part := range strings.SplitAfterSeq(marked, "|") {
		name, isBarred := strings.CutSuffix(part, "|")
		path += name
		if isBarred {
			before = append(before, path)
		}
	}
	return path, before
}

func TestIdentify(t *testing.T) {
	for _, tt := range pathTests {
		t.Run(tt.name, func(t *testing.T) {
			path, groups := barred(tt.path)
			got := Identify(path)
			var found []string
			for _, group := range []string{got.ContainerGroup, got.StepGroup} {
				if group != "" {
					found = append(found, group)
				}
			}
			assert.ElementsMatch(t, groups, found)
			got.ContainerGroup, got.StepGroup = "", ""
			assert.Equal(t, tt.want, got)
		})
	}
}

// The groups are told apart by what they are of.
func TestTheGroupsOfAContainerInAJob(t *testing.T) {
	id := Identify("/slurm/uid_1/job_5/step_0/docker/" + ctr + "/init.scope")
	assert.Equal(t, "/slurm/uid_1/job_5/step_0/docker/"+ctr, id.ContainerGroup)
	assert.Equal(t, "/slurm/uid_1/job_5/step_0", id.StepGroup)
}

func FuzzIdentify(f *testing.F) {
	for _, tt := range pathTests {
		path, _ := barred(tt.path)
		f.Add(path)
	}
	f.Add("//..//../docker/:" + ctr + ".scope.scope")
	f.Fuzz(func(t *testing.T, path string) {
		id := Identify(path)
		requireContainer(t, path, id)
		requireJob(t, path, id)
		require.True(t, id.PodUID == "" || isUID(id.PodUID))
		require.NotContains(t, id.PodUID, "_")
		if id.PodUID == "" {
			require.Empty(t, id.QoS)
		}
		require.Equal(t, id, Identify(path+"/"), "what follows tells nothing")
	})
}

func requireContainer(t *testing.T, path string, id Identity) {
	t.Helper()
	if id.ContainerID == "" {
		require.Empty(t, id.Runtime)
		require.Empty(t, id.ContainerGroup)
		return
	}
	require.True(t, isContainerID(id.ContainerID) || strings.HasPrefix(id.ContainerID, id.ECSTask+"-"))
	require.Contains(t, id.ContainerGroup, id.ContainerID)
	require.True(t, strings.HasPrefix(path+"/", id.ContainerGroup+"/"))
	own := Identify(id.ContainerGroup)
	require.Equal(t, id.ContainerID, own.ContainerID)
	require.Equal(t, id.Runtime, own.Runtime)
}

func requireJob(t *testing.T, path string, id Identity) {
	t.Helper()
	for _, number := range []string{id.SlurmJob, id.SlurmTask, id.SlurmUID} {
		require.True(t, number == "" || isNumber(number))
	}
	require.False(t, id.SlurmJob != "" && id.SlurmSLUID != "")
	if id.SlurmJob == "" && id.SlurmSLUID == "" {
		require.Empty(t, id.SlurmStep+id.SlurmUID)
	}
	if id.SlurmStep == "" {
		require.Empty(t, id.SlurmTask+id.StepGroup)
		return
	}
	require.True(t, strings.HasSuffix(id.StepGroup, "/step_"+id.SlurmStep))
	require.True(t, strings.HasPrefix(path+"/", id.StepGroup+"/"))
}
