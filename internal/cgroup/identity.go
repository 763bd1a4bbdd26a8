// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import "strings"

// Identity is what the path of a control group tells of the process in it.
// What it does not tell is empty.
type Identity struct {
	// ContainerID is that of the innermost container: 64 hex digits, on Fargate
	// the task's and a number.
	ContainerID string
	// Runtime is docker, containerd, cri-o or podman.
	Runtime string
	// PodUID has dashes. A static pod has 32 hex digits without, which are the
	// hash of its configuration and not the UID that the API server knows.
	PodUID string
	// QoS is guaranteed, burstable or besteffort.
	QoS string
	// ECSTask is the task of Amazon's ECS.
	ECSTask string

	SlurmJob, SlurmStep, SlurmTask, SlurmUID string
	// SlurmSLUID is there in place of the job since Slurm 26.05.
	SlurmSLUID string

	// Helper is true for what is not the user's work: a container's monitor, and
	// Slurm's own daemons.
	Helper bool
	// ContainerGroup is the path down to the container's own group, StepGroup
	// that down to the Slurm step's.
	ContainerGroup, StepGroup string
}

// Runtimes of containers.
const (
	docker     = "docker"
	containerd = "containerd"
	crio       = "cri-o"
	podman     = "podman"
)

// Classes of pods, and of the groups that they lie in.
const (
	guaranteed = "guaranteed"
	burstable  = "burstable"
	besteffort = "besteffort"
)

// Identify reads a path from the outside in: of nested containers, pods and
// jobs the innermost counts. A path that leads out of the reader's own group
// ("/../../pod.../...") tells what the part that it shows does.
func Identify(path string) Identity {
	r := pathReader{relative: strings.HasPrefix(path, "/../")}
	for rest := path; rest != ""; {
		name, after, _ := strings.Cut(rest, "/")
		if name != "" && name != ".." {
			r.read(name, path[:len(path)-len(rest)+len(name)])
		}
		rest = after
	}
	return r.id
}

// pathReader reads the names of a path.
type pathReader struct {
	id       Identity
	relative bool
	// parent is the name before.
	parent string
	// qos is that of pods further down.
	qos string
	// slurm is where in Slurm's own part of the path we are, uid its user.
	slurm slurmPlace
	uid   string
}

// read takes the next name, and the path down to it.
func (r *pathReader) read(name, group string) {
	r.readPod(name)
	r.readTask(name)
	r.readContainer(name, group)
	r.readSlurm(name, group)
	r.parent = name
}

// readPod knows the names of kubelet's cgroupfs driver (kubepods/QOS/podUID)
// and of its systemd driver, whose slices a runtime of the other driver takes
// for part of a name ("kubepods-QOS-podUID.slice:cri-containerd:ID").
func (r *pathReader) readPod(name string) {
	slice, _, _ := strings.Cut(name, ":")
	if slice, ok := strings.CutSuffix(slice, ".slice"); ok {
		r.readSlice(slice)
		return
	}
	switch name {
	case "kubepods":
		r.qos = guaranteed
	case burstable, besteffort:
		r.qos = name
	default:
		if uid, ok := strings.CutPrefix(name, "pod"); ok && isUID(uid) {
			r.setPod(uid)
		}
	}
}

// readSlice reads "[ROOT-]kubepods[-QOS][-podUID]".
func (r *pathReader) readSlice(name string) {
	uid := ""
	if i := strings.LastIndex(name, "-pod"); i >= 0 {
		name, uid = name[:i], name[i+len("-pod"):]
	}
	root, qos := cutQoS(name)
	if root != "kubepods" && !strings.HasSuffix(root, "-kubepods") {
		return
	}
	r.qos = qos
	if isUID(uid) {
		r.setPod(uid)
	}
}

func cutQoS(name string) (root, qos string) {
	for _, qos := range []string{burstable, besteffort} {
		if root, ok := strings.CutSuffix(name, "-"+qos); ok {
			return root, qos
		}
	}
	return name, guaranteed
}

// setPod sets the pod and its class. Where the path begins below kubepods a
// class that is not named may also be hidden.
func (r *pathReader) setPod(uid string) {
	r.id.PodUID = strings.ReplaceAll(uid, "_", "-")
	r.id.QoS = r.qos
	if r.qos == "" && !r.relative {
		r.id.QoS = guaranteed
	}
}

// readTask reads ecs/TASK, and the slice ecstasks-TASK of systemd.
func (r *pathReader) readTask(name string) {
	task := name
	if r.parent != "ecs" {
		var isSlice bool
		task, isSlice = strings.CutPrefix(strings.TrimSuffix(name, ".slice"), "ecstasks-")
		if !isSlice {
			return
		}
	}
	if isUID(task) {
		r.id.ECSTask = task
	}
}

// readContainer reads the name of a container's own group. A monitor is no part
// of its container.
func (r *pathReader) readContainer(name, group string) {
	maker, id, ok := splitContainer(name)
	if !ok {
		if r.isFargate(name) {
			r.setContainer(name, "", group)
		}
		return
	}
	if strings.HasSuffix(maker, "conmon") {
		r.setContainer("", "", "")
		r.id.Helper = true
		return
	}
	if maker == "" && r.parent == docker {
		maker = docker
	}
	r.setContainer(id, runtimeOf(maker), group)
}

func (r *pathReader) setContainer(id, runtime, group string) {
	r.id.ContainerID, r.id.Runtime, r.id.ContainerGroup = id, runtime, group
	r.id.Helper = false
}

// idLength is that of a container's ID.
const idLength = 64

// splitContainer reads "[MAKER-]ID[.scope]" and "SLICE:MAKER:ID". An ID in the
// name of a service is none: that runs something for the container, outside.
func splitContainer(name string) (maker, id string, ok bool) {
	name = strings.TrimSuffix(name, ".scope")
	if len(name) < idLength {
		return "", "", false
	}
	maker, id = name[:len(name)-idLength], name[len(name)-idLength:]
	if !consistsOf(id, isHexDigit) {
		return "", "", false
	}
	if maker == "" {
		return "", id, true
	}
	last := len(maker) - 1
	if maker[last] != '-' && maker[last] != ':' {
		return "", "", false
	}
	maker = maker[:last]
	return maker[strings.LastIndexByte(maker, ':')+1:], id, true
}

// runtimeOf tells the runtime from what it puts before its containers' IDs.
func runtimeOf(maker string) string {
	switch maker {
	case docker:
		return docker
	case "cri-containerd", "nerdctl":
		return containerd
	case "crio":
		return crio
	case "libpod", "libpod-payload":
		return podman
	}
	return ""
}

// isFargate tells whether a name below a task is the task's own and a number,
// which is what Fargate calls its containers.
func (r *pathReader) isFargate(name string) bool {
	if r.id.ECSTask == "" || r.parent != r.id.ECSTask {
		return false
	}
	rest, ok := strings.CutPrefix(name, r.parent)
	return ok && strings.HasPrefix(rest, "-") && isNumber(rest[1:])
}

// slurmPlace is where in Slurm's own part of a path we are. Names count in
// their places alone: anyone may call a group job_1.
type slurmPlace int

const (
	outside slurmPlace = iota
	inRoot
	inJob
	inStep
	inUser
)

// readSlurm reads ROOT/[uid_N/]job_N/step_X/[user/]task_N.
func (r *pathReader) readSlurm(name, group string) {
	at := r.slurm
	r.slurm = outside
	switch {
	case at == inStep && name == "slurm", at == inRoot && name == "system":
		r.id.Helper = true
	case isSlurmRoot(name):
		r.slurm, r.uid = inRoot, ""
	case at == inRoot:
		r.readJob(name)
	case at == inJob:
		if step, ok := strings.CutPrefix(name, "step_"); ok && isStep(step) {
			r.slurm, r.id.SlurmStep, r.id.StepGroup = inStep, step, group
		}
	case at == inStep && name == "user":
		r.slurm = inUser
	case at == inStep, at == inUser:
		if task, ok := strings.CutPrefix(name, "task_"); ok && isNumber(task) {
			r.id.SlurmTask = task
		}
	}
}

// isSlurmRoot tells the group that all jobs lie in: of version 1 and of version
// 2, of one of several nodes on a machine too.
func isSlurmRoot(name string) bool {
	return name == "slurm" || strings.HasPrefix(name, "slurm_") ||
		name == "slurmstepd.scope" || strings.HasSuffix(name, "_slurmstepd.scope")
}

// readJob reads what follows the root. A job in the container of a job is
// another one: nothing of the outer stays.
func (r *pathReader) readJob(name string) {
	if uid, ok := strings.CutPrefix(name, "uid_"); ok && isNumber(uid) {
		r.slurm, r.uid = inRoot, uid
		return
	}
	job, isJob := strings.CutPrefix(name, "job_")
	isJob = isJob && isNumber(job)
	if !isJob && !isSLUID(name) {
		return
	}
	r.id.takeSlurm(&Identity{})
	r.slurm, r.id.SlurmUID = inJob, r.uid
	if isJob {
		r.id.SlurmJob = job
		return
	}
	r.id.SlurmSLUID = name
}

func (id *Identity) takeSlurm(from *Identity) {
	id.SlurmJob, id.SlurmStep, id.SlurmTask = from.SlurmJob, from.SlurmStep, from.SlurmTask
	id.SlurmUID, id.SlurmSLUID, id.StepGroup = from.SlurmUID, from.SlurmSLUID, from.StepGroup
}

// isStep knows numbers, those of a part of a heterogeneous job ("0+1"), and the
// steps that Slurm makes itself.
func isStep(s string) bool {
	switch s {
	case "batch", "extern", "interactive":
		return true
	}
	step, part, isPart := strings.Cut(s, "+")
	return isNumber(step) && (!isPart || isNumber(part))
}

// isSLUID knows an s and 13 digits of base 32.
func isSLUID(s string) bool {
	return len(s) == 14 && s[0] == 's' && consistsOf(s[1:], func(c byte) bool {
		return isDigit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')
	})
}

// isUID knows 32 hex digits, and a UUID in which systemd's names have
// underscores for dashes.
func isUID(s string) bool {
	if len(s) == 32 {
		return consistsOf(s, isHexDigit)
	}
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' && s[i] != '_' {
				return false
			}
		default:
			if !isHexDigit(s[i]) {
				return false
			}
		}
	}
	return true
}

func isNumber(s string) bool { return s != "" && consistsOf(s, isDigit) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isHexDigit knows lower case alone: nothing writes IDs otherwise.
func isHexDigit(c byte) bool { return isDigit(c) || (c >= 'a' && c <= 'f') }

func consistsOf(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
