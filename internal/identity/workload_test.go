// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// workloadAttributes are the fields of a Workload and their attributes.
var workloadAttributes = map[string]string{
	"Kind": "wandbsys.workload.kind",
	"Pid":  "process.pid", "Executable": "process.executable.name", "Command": "process.command",
	"RunID": "wandb.run_id", "RunIDs": "wandb.run_ids", "Project": "wandb.project", "Entity": "wandb.entity",
	"Group": "wandb.group", "JobType": "wandb.job_type", "SweepID": "wandb.sweep_id", "Mode": "wandb.mode",
	"Rank": "wandb.rank", "LocalRank": "wandb.local_rank", "WorldSize": "wandb.world_size",
	"SlurmJob": "slurm.job.id", "SlurmJobName": "slurm.job.name", "SlurmStep": "slurm.step.id",
	"SlurmTask": "slurm.task.id", "SlurmUID": "slurm.uid", "SlurmSLUID": "slurm.sluid",
	"ContainerID": "container.id", "ContainerRuntime": "container.runtime",
	"Namespace": "k8s.namespace.name", "Pod": "k8s.pod.name", "Container": "k8s.container.name",
	"PodUID": "k8s.pod.uid", "QoS": "k8s.qos", "ECSTask": "aws.ecs.task.id",
}

// ofEvery are those that every resource has.
var ofEvery = []string{"host.name", "os.type", "service.instance.id", "service.name"}

// set fills one field with a value of its own, and returns that of the attribute.
func set(w *Workload, field string) any {
	v := reflect.ValueOf(w).Elem().FieldByName(field)
	switch v.Interface().(type) {
	case Number:
		v.Set(reflect.ValueOf(Known(0)))
		return int64(0)
	case int:
		v.SetInt(77)
		return int64(77)
	}
	v.SetString("a " + field)
	return "a " + field
}

func attributes(w *Workload, config metadata.ResourceAttributesConfig) map[string]any {
	return New("node-1", "", "", config).Workload(w).Attributes().AsRaw()
}

func TestEachFieldHasItsAttribute(t *testing.T) {
	fields := reflect.TypeFor[Workload]()
	require.Len(t, workloadAttributes, fields.NumField()-1, "all but ID")
	names := slices.Sorted(maps.Values(workloadAttributes))
	require.Len(t, slices.Compact(names), len(workloadAttributes), "each once")
	config := metadata.DefaultResourceAttributesConfig()

	assert.ElementsMatch(t, ofEvery, slices.Collect(maps.Keys(attributes(&Workload{}, config))), "what is not known is absent")
	var all Workload
	wanted := map[string]any{}
	for field, name := range workloadAttributes {
		t.Run(field, func(t *testing.T) {
			var w Workload
			value := set(&w, field)
			got := attributes(&w, config)
			assert.Equal(t, value, got[name])
			assert.Len(t, got, len(ofEvery)+1)
		})
		wanted[name] = set(&all, field)
	}
	got := attributes(&all, config)
	for _, name := range ofEvery {
		delete(got, name)
	}
	assert.Equal(t, wanted, got)
}

// Each attribute can be switched off, and takes no other along.
func TestEachAttributeCanBeOff(t *testing.T) {
	var all Workload
	for field := range workloadAttributes {
		set(&all, field)
	}
	on := attributes(&all, metadata.DefaultResourceAttributesConfig())
	switchable := 0
	config := reflect.TypeFor[metadata.ResourceAttributesConfig]()
	for i := range config.NumField() {
		name := config.Field(i).Tag.Get("mapstructure")
		if _, isThere := on[name]; !isThere {
			continue // the machine's
		}
		switchable++
		off := metadata.DefaultResourceAttributesConfig()
		reflect.ValueOf(&off).Elem().Field(i).FieldByName("Enabled").SetBool(false)
		without := maps.Clone(on)
		delete(without, name)
		assert.Equal(t, without, attributes(&all, off), name)
	}
	assert.Equal(t, len(on), switchable)
}

func TestARankOfZeroIsARank(t *testing.T) {
	config := metadata.DefaultResourceAttributesConfig()
	got := attributes(&Workload{Rank: Known(0), LocalRank: Known(3)}, config)
	assert.Equal(t, int64(0), got["wandb.rank"])
	assert.Equal(t, int64(3), got["wandb.local_rank"])
	assert.NotContains(t, got, "wandb.world_size")
	assert.NotContains(t, attributes(&Workload{Rank: Number{Value: 3}}, config), "wandb.rank")
}

// What changes about a workload does not make it another one.
func TestInstancesOfWorkloadsStayTheSame(t *testing.T) {
	m := newMachine("node-1", "", "")
	instance := func(w *Workload) string {
		id, ok := m.Workload(w).Attributes().Get("service.instance.id")
		require.True(t, ok)
		return id.Str()
	}
	seen := map[string]bool{}
	for i := range 100 {
		w := Workload{ID: "container-" + strconv.Itoa(i)}
		first := instance(&w)
		for field := range workloadAttributes {
			set(&w, field)
			require.Equal(t, first, instance(&w), field)
		}
		require.False(t, seen[first], first)
		seen[first] = true
	}
}

// Who has one resource may not see it change with the next.
func TestResourcesOfWorkloadsAreTheirOwn(t *testing.T) {
	m := newMachine("node-1", "", "")
	w := Workload{ID: "pid-1", Kind: "run", RunID: "a"}
	first := m.Workload(&w)
	w.RunID = "b"
	second := m.Workload(&w)
	assert.Equal(t, "a", first.Attributes().AsRaw()["wandb.run_id"])
	assert.Equal(t, "b", second.Attributes().AsRaw()["wandb.run_id"])
}
