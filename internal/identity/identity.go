// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity names what is measured: the machine, and the workloads on
// it. Every family takes its resources from here, so that they are the same.
package identity

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

const (
	serviceName = "wandbsys"
	// maxHostNameFile is far above what a host name can be (64 bytes on Linux).
	maxHostNameFile = 4096
	// hardwarePatience is a small part of a scrape's time: the counts are not
	// worth the points that wait for them.
	hardwarePatience = 2 * time.Second
)

// HostName returns the machine's name: configured, else the environment's
// NODE_NAME (Kubernetes), else <rootPath>/etc/hostname, else the system's
// answer, else "unknown". It reads a file and never fails.
func HostName(ctx context.Context, configured, rootPath string) string {
	if configured != "" {
		return configured
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}
	if name := hostNameFile(ctx, rootPath); name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "unknown"
}

// hostNameFile reads etc/hostname as hostname(5) defines it: the first line
// that is neither empty nor a comment.
func hostNameFile(ctx context.Context, rootPath string) string {
	if runtime.GOOS != "linux" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, hardwarePatience)
	defer cancel()
	content, err := guard.Call(ctx, new(guard.Slot), func(context.Context) ([]byte, error) {
		// A link must not lead out of the machine that is mounted there.
		path, err := securejoin.SecureJoin(filepath.Join("/", rootPath), "etc/hostname")
		if err != nil {
			return nil, err
		}
		return guard.ReadFile(path, maxHostNameFile)
	})
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

// Machine makes the resources of one machine and its workloads.
type Machine struct {
	hostName string
	label    string
	rootPath string
	attrs    metadata.ResourceAttributesConfig
	// patience is how long the hardware counts may take.
	patience time.Duration

	slot guard.Slot
	mu   sync.Mutex
	// host is the machine's resource, once it is complete.
	host *pcommon.Resource
	// gpus are those of each family.
	gpus map[string]GPUs
}

// GPUs describes the machine's GPUs; what is empty is unknown.
type GPUs struct {
	Count                            int
	Type, DriverVersion, CUDAVersion string
}

// SetGPUs says what GPUs of a family the machine has: from then on its resource
// does. With several families it has the sum of the counts, and the texts of all.
func (m *Machine) SetGPUs(family string, gpus GPUs) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gpus[family] == gpus {
		return
	}
	if m.gpus == nil {
		m.gpus = map[string]GPUs{}
	}
	m.gpus[family], m.host = gpus, nil
}

// allGPUs are those of all families, in the order of their names.
func (m *Machine) allGPUs() GPUs {
	var all GPUs
	for _, family := range slices.Sorted(maps.Keys(m.gpus)) {
		g := m.gpus[family]
		all.Count += g.Count
		all.Type = joined(all.Type, g.Type)
		all.DriverVersion = joined(all.DriverVersion, g.DriverVersion)
		all.CUDAVersion = joined(all.CUDAVersion, g.CUDAVersion)
	}
	return all
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// hardware holds the counts that describe the machine; 0 means unknown.
type hardware struct {
	physicalCPUs, logicalCPUs int
	memoryTotal               uint64
}

// New returns the identity of a machine. label is W&B's x_label, rootPath
// where the machine's / is seen.
func New(hostName, label, rootPath string, attrs metadata.ResourceAttributesConfig) *Machine {
	return &Machine{hostName: hostName, label: label, rootPath: rootPath, attrs: attrs, patience: hardwarePatience}
}

// HostName is the name that all resources carry.
func (m *Machine) HostName() string { return m.hostName }

// Host returns the machine's resource, which must not be changed. The hardware
// counts are read once, at the first call that finds any; a read that hangs
// costs the counts, not the resource.
func (m *Machine) Host(ctx context.Context) pcommon.Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host != nil {
		return *m.host
	}
	rb := metadata.NewResourceBuilder(m.attrs)
	m.common(rb, m.hostName)
	hw, known := m.hardware(ctx)
	if hw.physicalCPUs > 0 {
		rb.SetWandbCPUCount(int64(hw.physicalCPUs))
	}
	if hw.logicalCPUs > 0 {
		rb.SetWandbCPUCountLogical(int64(hw.logicalCPUs))
	}
	if hw.memoryTotal > 0 {
		rb.SetWandbMemoryTotal(int64(hw.memoryTotal))
	}
	gpus := m.allGPUs()
	if gpus.Count > 0 {
		rb.SetWandbGpuCount(int64(gpus.Count))
	}
	setText(rb.SetWandbGpuType, gpus.Type)
	setText(rb.SetWandbGpuDriverVersion, gpus.DriverVersion)
	setText(rb.SetWandbCudaVersion, gpus.CUDAVersion)
	resource := rb.Emit()
	if known {
		m.host = &resource
	}
	return resource
}

func (m *Machine) common(rb *metadata.ResourceBuilder, instance string) {
	rb.SetHostName(m.hostName)
	rb.SetOsType(runtime.GOOS)
	rb.SetServiceName(serviceName)
	rb.SetServiceInstanceID(instance)
	setText(rb.SetWandbLabel, m.label)
}

// hardware returns the counts, and whether there are any.
func (m *Machine) hardware(ctx context.Context) (hardware, bool) {
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	hw, err := guard.Call(ctx, &m.slot, m.readHardware)
	return hw, err == nil && hw != (hardware{})
}

// readHardware asks gopsutil, since it is done once: what cannot be told stays
// unknown.
func (m *Machine) readHardware(ctx context.Context) (hardware, error) {
	var hw hardware
	ctx = GopsutilContext(ctx, m.rootPath)
	if n, err := cpu.CountsWithContext(ctx, false); err == nil {
		hw.physicalCPUs = n
	}
	if n, err := cpu.CountsWithContext(ctx, true); err == nil {
		hw.logicalCPUs = n
	}
	if vm, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		hw.memoryTotal = vm.Total
	}
	return hw, nil
}

// GopsutilContext points gopsutil below rootPath, and away from the HOST_PROC
// of the process environment: other receivers in the collector share that.
func GopsutilContext(ctx context.Context, rootPath string) context.Context {
	if runtime.GOOS != "linux" {
		return ctx
	}
	rootPath = filepath.Join("/", rootPath)
	return context.WithValue(ctx, common.EnvKey, common.EnvMap{
		common.HostProcEnvKey: filepath.Join(rootPath, "proc"),
		common.HostSysEnvKey:  filepath.Join(rootPath, "sys"),
		common.HostEtcEnvKey:  filepath.Join(rootPath, "etc"),
		common.HostVarEnvKey:  filepath.Join(rootPath, "var"),
		common.HostRunEnvKey:  filepath.Join(rootPath, "run"),
		common.HostDevEnvKey:  filepath.Join(rootPath, "dev"),
		common.HostRootEnvKey: rootPath,
	})
}
