// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

const (
	// maxPid and maxInstance are more than a pid and a MIG instance can be.
	maxPid      = 1 << 22
	maxInstance = 16
)

// readProcesses reads who uses the GPU.
func (p *pass) readProcesses(g *gpu, r *deviceReading, isMIG bool) {
	if !p.want.processes {
		return
	}
	users := p.listUsers(g)
	r.processes = users.processes
	if !isMIG || !users.denied {
		return
	}
	// The board's lists need more rights than those of the instances.
	for _, m := range p.instances(g, r.key()) {
		r.processes = merge(r.processes, p.listUsers(m.gpu).processes)
	}
}

// userList is who uses a device.
type userList struct {
	processes []processReading
	// told says that a list answered, denied that one may not be read.
	told, denied bool
}

// listUsers merges the lists of the device: of programs that compute, that draw,
// and that compute through a server (MPS).
func (p *pass) listUsers(g *gpu) *userList {
	if g.users != nil {
		return g.users
	}
	users := &userList{}
	g.users = users
	if p.listsAreBroken(g.driver) {
		return users
	}
	for _, list := range []struct {
		symbol symbol
		ask    func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{symComputeProcesses, g.handle.GetComputeRunningProcesses},
		{symGraphicsProcesses, g.handle.GetGraphicsRunningProcesses},
		{symMPSProcesses, g.handle.GetMPSComputeRunningProcesses},
	} {
		infos, c := try(g, list.symbol, list.ask)
		g.judge(list.symbol, c)
		users.denied = users.denied || c == codeNoPermission
		if c != codeSuccess || !areSane(infos) {
			continue
		}
		users.told = true
		more := make([]processReading, 0, len(infos))
		for i := range infos {
			more = append(more, newProcess(&infos[i]))
		}
		users.processes = merge(users.processes, more)
	}
	return users
}

// listsAreBroken tells the drivers that write entries of another size than the
// call's form has, beyond the end of the list: 535.43 to 535.98.
func (p *pass) listsAreBroken(d *driver) bool {
	broken := d.offers(symProcessesV3) && d.offers(symConfCompute) && !d.offers(symProcessDetail)
	if broken {
		p.warnOnce("lists", "The process lists of this NVIDIA driver cannot be read safely; GPUs are not attributed to workloads. Upgrade the driver (535.43 to 535.98 have this fault)")
	}
	return broken
}

// areSane tells a list of processes from rubbish, which some drivers give.
func areSane(infos []nvml.ProcessInfo) bool {
	return !slices.ContainsFunc(infos, func(i nvml.ProcessInfo) bool {
		return i.Pid == 0 || i.Pid > maxPid || !isInstance(i.GpuInstanceId) || !isInstance(i.ComputeInstanceId)
	})
}

func isInstance(n uint32) bool { return n < maxInstance || n == allOnes32 }

func newProcess(i *nvml.ProcessInfo) processReading {
	p := processReading{pid: int(i.Pid), gi: -1, ci: -1}
	p.memory = known64(optional.Some(i.UsedGpuMemory))
	if i.GpuInstanceId != allOnes32 {
		p.gi = int(i.GpuInstanceId)
	}
	if i.ComputeInstanceId != allOnes32 {
		p.ci = int(i.ComputeInstanceId)
	}
	if !p.memory.Known {
		p.memory.Value = 0
	}
	return p
}

// merge adds processes that are not there yet; of one that is, the larger figure
// counts.
func merge(processes, more []processReading) []processReading {
	for _, q := range more {
		i := slices.IndexFunc(processes, func(p processReading) bool { return p.pid == q.pid })
		if i < 0 {
			processes = append(processes, q)
			continue
		}
		p := &processes[i]
		if q.memory.Known && (!p.memory.Known || q.memory.Value > p.memory.Value) {
			p.memory = q.memory
		}
	}
	return processes
}
