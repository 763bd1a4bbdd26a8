// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

func newMachine(hostName, label, rootPath string) *Machine {
	return New(hostName, label, rootPath, metadata.DefaultResourceAttributesConfig())
}

func TestHostNameIsTheConfiguredOneElseThatOfTheNode(t *testing.T) {
	t.Setenv("NODE_NAME", "node")
	assert.Equal(t, "configured", HostName(t.Context(), "configured", ""))
	assert.Equal(t, "node", HostName(t.Context(), "", ""))
	t.Setenv("NODE_NAME", "")
	assert.NotEmpty(t, HostName(t.Context(), "", ""))
}

func TestHostNameIsTheSystemsWithoutAFile(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	want, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, want, HostName(t.Context(), "", t.TempDir()))
}

func TestResourcesOfAMachine(t *testing.T) {
	m := newMachine("node-1", "rank-3", "")
	assert.Equal(t, "node-1", m.HostName())
	got := m.Host(t.Context()).Attributes().AsRaw()
	assert.Subset(t, got, map[string]any{
		"host.name":           "node-1",
		"os.type":             runtime.GOOS,
		"service.name":        "wandbsys",
		"service.instance.id": "node-1",
		"wandb.label":         "rank-3",
	})
	assert.NotContains(t, got, "process.pid")
}

func process(pid int, executable string) *Workload {
	return &Workload{Kind: "process", ID: "pid-" + strconv.Itoa(pid), Pid: pid, Executable: executable}
}

func TestResourcesOfAProcess(t *testing.T) {
	m := newMachine("node-1", "rank-3", "")
	assert.Equal(t, map[string]any{
		"host.name":               "node-1",
		"os.type":                 runtime.GOOS,
		"service.name":            "wandbsys",
		"service.instance.id":     "node-1/pid-77",
		"wandb.label":             "rank-3",
		"process.pid":             int64(77),
		"wandbsys.workload.kind":  "process",
		"process.executable.name": "python3",
	}, m.Workload(process(77, "python3")).Attributes().AsRaw())
	assert.NotContains(t, m.Workload(process(77, "")).Attributes().AsRaw(), "process.executable.name")
}

func TestWhatIsNotSetIsAbsent(t *testing.T) {
	assert.NotContains(t, newMachine("node-1", "", "").Host(t.Context()).Attributes().AsRaw(), "wandb.label")
}

func TestAttributesThatAreOffAreAbsent(t *testing.T) {
	attrs := metadata.DefaultResourceAttributesConfig()
	attrs.HostName.Enabled = false
	attrs.WandbCPUCount.Enabled = false
	m := New("node-1", "", "", attrs)
	got := m.Host(t.Context()).Attributes().AsRaw()
	assert.NotContains(t, got, "host.name")
	assert.NotContains(t, got, "wandb.cpu_count")
	assert.Contains(t, got, "service.instance.id")
}

// Prometheus paths merge resources with one instance id silently.
func TestInstanceIDsAreUniqueAndStable(t *testing.T) {
	m, other := newMachine("a", "", ""), newMachine("b", "", "")
	seen := map[string]bool{}
	for _, resource := range []pcommon.Resource{
		m.Host(t.Context()), m.Workload(process(1, "x")), m.Workload(process(2, "x")), other.Host(t.Context()), other.Workload(process(1, "x")),
	} {
		id, ok := resource.Attributes().Get("service.instance.id")
		require.True(t, ok)
		assert.False(t, seen[id.Str()], id.Str())
		seen[id.Str()] = true
	}
	first := m.Host(t.Context()).Attributes().AsRaw()
	assert.Equal(t, first, m.Host(t.Context()).Attributes().AsRaw())
	assert.Equal(t, m.Workload(process(1, "x")).Attributes().AsRaw(), newMachine("a", "", "").Workload(process(1, "x")).Attributes().AsRaw())
}

func TestGPUsOfTheMachine(t *testing.T) {
	m := newMachine("a", "", "")
	assert.NotContains(t, m.Host(t.Context()).Attributes().AsRaw(), "wandb.gpu_count")
	m.SetGPUs("nvidia", GPUs{Count: 8, Type: "NVIDIA H100", DriverVersion: "590.48.01", CUDAVersion: "13.1"})
	assert.Subset(t, m.Host(t.Context()).Attributes().AsRaw(), map[string]any{
		"wandb.gpu_count": int64(8), "wandb.gpu_type": "NVIDIA H100", "wandb.gpu_driver_version": "590.48.01", "wandb.cuda_version": "13.1",
	})
	m.SetGPUs("amd", GPUs{Count: 2, Type: "AMD Instinct MI300X", DriverVersion: "6.14.0"})
	assert.Subset(t, m.Host(t.Context()).Attributes().AsRaw(), map[string]any{
		"wandb.gpu_count": int64(10), "wandb.gpu_type": "AMD Instinct MI300X, NVIDIA H100",
		"wandb.gpu_driver_version": "6.14.0, 590.48.01", "wandb.cuda_version": "13.1",
	}, "of both makers")
	m.SetGPUs("amd", GPUs{})
	m.SetGPUs("nvidia", GPUs{Count: 7})
	got := m.Host(t.Context()).Attributes().AsRaw()
	assert.Equal(t, int64(7), got["wandb.gpu_count"])
	assert.NotContains(t, got, "wandb.gpu_type")
}
