// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

// readMemory reads the memory of a GPU, or of one that has none of its own what
// its processes have of the machine's.
func (p *pass) readMemory(g *gpu, r *deviceReading) optional.Of[memoryReading] {
	m, c := p.readOwnMemory(g)
	if c == codeSuccess {
		return optional.Some(m)
	}
	if c == codeNotSupported && isIntegrated(r.name) {
		return p.unified(g)
	}
	return optional.Of[memoryReading]{}
}

// readOwnMemory reads the newer form, in which what the driver reserves is not
// used, or the older one. Which of them, is decided once: figures of the two
// must not mix. No memory at all is as good as none that is told.
func (p *pass) readOwnMemory(g *gpu) (memoryReading, code) {
	st := g.state
	if !st.old {
		m, c := try(g, symMemoryV2, g.handle.GetMemoryInfo_v2)
		switch {
		case c == codeSuccess && m.Total > 0:
			st.worked = true
			return memoryReading{used: m.Used, total: m.Total}, c
		case c == codeSuccess, c == codeNotSupported, c == codeFunctionNotFound, c == codeArgumentVersion, c == codeDeprecated,
			c == codeUnknown && !st.worked:
			st.old = true
			p.logger.Debug("Memory is read in the older form, in which what the driver reserves counts as used",
				zap.String("gpu", st.name), zap.String("cause", c.Error()))
		default:
			g.judge(symMemoryV2, c)
			return memoryReading{}, c
		}
	}
	m, c := try(g, symMemory, g.handle.GetMemoryInfo)
	g.judge(symMemory, c)
	if c == codeSuccess && m.Total == 0 {
		c = codeNotSupported
	}
	return memoryReading{used: m.Used, total: m.Total}, c
}

// isIntegrated tells the GPUs that share the machine's memory, by name.
func isIntegrated(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"gb10", "orin", "thor", "xavier", "tegra", "jetson"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// unified adds up what the processes have of the machine's memory. Where the
// lists were not told, or no figure of a process is, nothing is known.
func (p *pass) unified(g *gpu) optional.Of[memoryReading] {
	users := p.listUsers(g)
	var used uint64
	known := false
	for _, q := range users.processes {
		used += q.memory.Value
		known = known || q.memory.Known
	}
	if !users.told || (len(users.processes) > 0 && !known) {
		return optional.Of[memoryReading]{}
	}
	content, err := guard.ReadFile(filepath.Join(p.proc, "meminfo"), 1<<20)
	if err != nil {
		return optional.Of[memoryReading]{}
	}
	machine, err := procread.ParseMeminfo(content)
	if err != nil {
		return optional.Of[memoryReading]{}
	}
	return optional.Some(memoryReading{used: used, total: machine.Total, unified: true})
}

// clean makes a name fit for a label.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
}

// MIG

// maxInstances is far above what a board can have.
const maxInstances = 64

// readInstances reads the MIG instances of a board. Their numbers have gaps.
func (p *pass) readInstances(g *gpu, r *deviceReading) {
	if !p.want.mig {
		return
	}
	seen := map[int]bool{}
	for _, m := range p.instances(g, r.key()) {
		if !seen[m.gi] || m.gi < 0 { // compute instances share the memory of theirs
			seen[m.gi] = true
			if u, c := p.readOwnMemory(m.gpu); c == codeSuccess {
				m.usage = optional.Some(u)
			}
			if p.want.migProfiling && m.gi >= 0 {
				m.metrics = m.state.gpm.read(g, p.now(), gpmPercent, func(s nvml.GpmSample) nvml.Return { return g.handle.GpmMigSampleGet(m.gi, s) })
			}
		}
		if g.fault == nil {
			g.fault = m.fault
		}
		if g.dead == codeSuccess && m.dead != codeGPUNotFound { // which says that of the instance only
			g.dead = m.dead
		}
		r.instances = append(r.instances, m.instanceReading)
	}
}

// instance is a MIG instance while it is read.
type instance struct {
	instanceReading
	*gpu
}

// instances lists those that are there, on a board that is named by its key.
func (p *pass) instances(g *gpu, key string) []*instance {
	most := ask(g, symMaxMIGCount, g.handle.GetMaxMigDeviceCount)
	var all []*instance
	for slot := range min(most.Value, maxInstances) {
		h := ask(g, symMIGHandle, func() (nvml.Device, nvml.Return) { return g.handle.GetMigDeviceHandleByIndex(slot) })
		if !h.Known {
			continue
		}
		m := &instance{instanceReading{slot: slot, gi: -1, ci: -1}, &gpu{driver: g.driver, handle: h.Value, dead: g.dead}}
		m.uuid = ask(m.gpu, symUUID, h.Value.GetUUID).Value
		if _, profile, ok := strings.Cut(ask(m.gpu, symName, h.Value.GetName).Value, " MIG "); ok {
			m.profile = clean(profile)
		}
		if gi := ask(m.gpu, symGPUInstance, h.Value.GetGpuInstanceId); gi.Known {
			m.gi = gi.Value
		}
		if ci := ask(m.gpu, symComputeInstance, h.Value.GetComputeInstanceId); ci.Known {
			m.ci = ci.Value
		}
		m.state = p.stateOf(cmp.Or(m.uuid, fmt.Sprintf("%s slot %d", key, slot)))
		m.state.gpm.mig = true
		all = append(all, m)
	}
	return all
}
