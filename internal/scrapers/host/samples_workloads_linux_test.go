// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// placeAttributes are those that control groups tell.
var placeAttributes = []string{
	"container.id", "container.runtime", "k8s.pod.uid", "k8s.qos", "aws.ecs.task.id",
	"slurm.job.id", "slurm.step.id", "slurm.task.id", "slurm.uid", "slurm.sluid",
}

// identityOf returns what the workload's resource says of where it runs.
func identityOf(md pmetric.Metrics) map[string]any {
	for _, rm := range md.ResourceMetrics().All() {
		if all := rm.Resource().Attributes().AsRaw(); all["process.pid"] != nil {
			maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(placeAttributes, key) })
			return all
		}
	}
	return nil
}

// compareIdentities reads files that are each the /proc/PID/cgroup of a process.
func compareIdentities(t *testing.T, want map[string]any, files []string) {
	t.Helper()
	got := map[string]any{}
	machine := identity.New("sample", "", "", metadata.DefaultResourceAttributesConfig())
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		g := cgroup.NewIdentifier(t.TempDir()).Identify(1, content)
		who := identity.Workload{
			Pid: 1, ContainerID: g.ContainerID, ContainerRuntime: g.Runtime, PodUID: g.PodUID, QoS: g.QoS, ECSTask: g.ECSTask,
			SlurmJob: g.SlurmJob, SlurmStep: g.SlurmStep, SlurmTask: g.SlurmTask, SlurmUID: g.SlurmUID, SlurmSLUID: g.SlurmSLUID,
		}
		md := pmetric.NewMetrics()
		machine.Workload(&who).CopyTo(md.ResourceMetrics().AppendEmpty().Resource())
		got[strings.TrimSuffix(filepath.Base(file), ".cgroup")] = identityOf(md)
	}
	assert.Equal(t, want, got)
}

// compareDiscovery discovers everything below a recorded root. Links are files
// there. Nothing that must not be told is.
func compareDiscovery(t *testing.T, want map[string]any, root string) {
	t.Helper()
	d := workload.NewDiscovery(workload.Options{
		RootPath: root,
		Discover: workload.Discover{Runs: true, Steps: true, Containers: true},
	}).WithReadlink(func(name string) (string, error) {
		if target, err := os.Readlink(name); err == nil {
			return target, nil
		}
		content, err := os.ReadFile(name)
		return strings.TrimSpace(string(content)), err
	})
	view, err := d.Take(t.Context())
	require.NoError(t, err)
	secrets, _ := want["must_not_contain"].([]any)
	found := []string{fmt.Sprintf("%+v", view)}
	for _, w := range view.Workloads {
		found = append(found, fmt.Sprintf("%+v", w.Identity))
	}
	for _, secret := range secrets {
		assert.NotContains(t, strings.Join(found, "\n"), secret)
	}
	delete(want, "must_not_contain")
	got := map[string]any{"runs": sampleRuns(view), "jobs": sampleJobs(view), "helpers": view.Helpers}
	for key := range want {
		wantList, isList := want[key].([]any)
		if gotList, ok := asGeneric(t, got[key]).([]any); ok && isList { // in no order
			assert.ElementsMatch(t, wantList, gotList, key)
			continue
		}
		assert.Equal(t, want[key], asGeneric(t, got[key]), key)
	}
}

// asGeneric is a value as JSON has it.
func asGeneric(t *testing.T, value any) (generic any) {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &generic))
	return generic
}

func sampleRuns(view *workload.View) []map[string]any {
	runs := []map[string]any{}
	for _, r := range view.Runs {
		run := map[string]any{"run_id": r.ID, "core_pid": r.CorePid}
		if r.TargetPid != 0 {
			run["target_pid"] = r.TargetPid
		}
		for key, value := range map[string]string{
			"mode": r.Mode, "started": r.Started, "project": r.Project, "entity": r.Entity,
			"group": r.Group, "job_type": r.JobType, "sweep_id": r.SweepID,
		} {
			if value != "" {
				run[key] = value
			}
		}
		runs = append(runs, run)
	}
	return runs
}

func sampleJobs(view *workload.View) map[string]any {
	jobs := map[string]any{}
	for pid, j := range view.Jobs {
		job := map[string]any{}
		for key, n := range map[string]identity.Number{"rank": j.Rank, "local_rank": j.LocalRank, "world_size": j.WorldSize} {
			if n.Known {
				job[key] = n.Value
			}
		}
		for key, value := range map[string]string{"slurm.job.id": j.SlurmJob, "slurm.step.id": j.SlurmStep} {
			if value != "" {
				job[key] = value
			}
		}
		jobs[strconv.Itoa(pid)] = job
	}
	return jobs
}
