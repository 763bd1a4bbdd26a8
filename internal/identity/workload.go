// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// Workload is what is known of one workload. Texts that are not known are
// empty, numbers unknown.
type Workload struct {
	// ID tells workloads of one machine apart, and stays the same when the
	// collector is restarted.
	ID string
	// Kind is what makes it a workload: run, step, container, match, gpu, process.
	Kind string

	// Pid, Executable and Command are of the root process.
	Pid                 int
	Executable, Command string

	// W&B.
	RunID, RunIDs, Project, Entity, Group, JobType, SweepID, Mode string
	// Rank, LocalRank and WorldSize place the process in its distributed job.
	Rank, LocalRank, WorldSize Number

	SlurmJob, SlurmJobName, SlurmStep, SlurmTask, SlurmUID, SlurmSLUID string

	ContainerID, ContainerRuntime string
	// Namespace, Pod and Container are names that the kubelet gives.
	Namespace, Pod, Container string
	PodUID, QoS               string
	ECSTask                   string
}

// Number is an integer that may be unknown, as it is by default.
type Number struct {
	Value int
	Known bool
}

// Known returns a number.
func Known(n int) Number { return Number{Value: n, Known: true} }

// Workload returns the resource of a workload.
func (m *Machine) Workload(w *Workload) pcommon.Resource {
	rb := metadata.NewResourceBuilder(m.attrs)
	m.common(rb, m.hostName+"/"+w.ID)
	setText(rb.SetWandbsysWorkloadKind, w.Kind)
	if w.Pid > 0 {
		rb.SetProcessPid(int64(w.Pid))
	}
	setText(rb.SetProcessExecutableName, w.Executable)
	setText(rb.SetProcessCommand, w.Command)
	w.setRun(rb)
	w.setPlace(rb)
	return rb.Emit()
}

// setRun sets what W&B and launchers tell.
func (w *Workload) setRun(rb *metadata.ResourceBuilder) {
	setText(rb.SetWandbRunID, w.RunID)
	setText(rb.SetWandbRunIds, w.RunIDs)
	setText(rb.SetWandbProject, w.Project)
	setText(rb.SetWandbEntity, w.Entity)
	setText(rb.SetWandbGroup, w.Group)
	setText(rb.SetWandbJobType, w.JobType)
	setText(rb.SetWandbSweepID, w.SweepID)
	setText(rb.SetWandbMode, w.Mode)
	setNumber(rb.SetWandbRank, w.Rank)
	setNumber(rb.SetWandbLocalRank, w.LocalRank)
	setNumber(rb.SetWandbWorldSize, w.WorldSize)
}

// setPlace sets what the workload runs in.
func (w *Workload) setPlace(rb *metadata.ResourceBuilder) {
	setText(rb.SetSlurmJobID, w.SlurmJob)
	setText(rb.SetSlurmJobName, w.SlurmJobName)
	setText(rb.SetSlurmStepID, w.SlurmStep)
	setText(rb.SetSlurmTaskID, w.SlurmTask)
	setText(rb.SetSlurmUID, w.SlurmUID)
	setText(rb.SetSlurmSluid, w.SlurmSLUID)
	setText(rb.SetContainerID, w.ContainerID)
	setText(rb.SetContainerRuntime, w.ContainerRuntime)
	setText(rb.SetK8sContainerName, w.Container)
	setText(rb.SetK8sNamespaceName, w.Namespace)
	setText(rb.SetK8sPodName, w.Pod)
	setText(rb.SetK8sPodUID, w.PodUID)
	setText(rb.SetK8sQos, w.QoS)
	setText(rb.SetAwsEcsTaskID, w.ECSTask)
}

func setText(set func(string), value string) {
	if value != "" {
		set(value)
	}
}

func setNumber(set func(int64), n Number) {
	if n.Known {
		set(int64(n.Value))
	}
}
