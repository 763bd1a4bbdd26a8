// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// deviceState is what is remembered of a GPU or a MIG instance while the library
// is open.
type deviceState struct {
	// seen is the number of the last reading in which it was there.
	seen int
	name string
	// old says that the memory is read the old way, worked that the new way did
	// once.
	old, worked bool
	gpm         gpmState
	registered  bool
	// index is the number of the GPU, lastXID the last error that it gave.
	index     int
	lastXID   uint64
	xids      map[uint64]uint64
	xidsSince time.Time
}

func (p *pass) stateOf(key string) *deviceState {
	st := p.devices[key]
	if st == nil {
		st = &deviceState{}
		p.devices[key] = st
	}
	st.seen = p.readings
	return st
}

// gpu is a GPU or MIG instance while it is read.
type gpu struct {
	*driver
	handle nvml.Device
	state  *deviceState
	// dead is a code after which the device is asked nothing more.
	dead code
	// fault is the first error of a figure.
	fault error
	// inforom says that the board's configuration is damaged.
	inforom bool
	// users is who uses the device, once that was asked for.
	users *userList
}

// ask makes one call for the device. What NVML has not is absent; another error
// is a fault, of this figure and this scrape only.
func ask[T any](g *gpu, s symbol, fn func() (T, nvml.Return)) optional.Of[T] {
	v, c := try(g, s, fn)
	g.judge(s, c)
	return optional.If(v, c == codeSuccess)
}

// try is ask for calls whose errors mean something.
func try[T any](g *gpu, s symbol, fn func() (T, nvml.Return)) (T, code) {
	if g.dead != codeSuccess {
		var none T
		return none, g.dead
	}
	v, c := call(g.driver, s, fn)
	if c.isLost() || c.isGlobal() {
		g.dead = c
	}
	g.inforom = g.inforom || c == codeCorruptedInfoROM
	return v, c
}

func (g *gpu) judge(s symbol, c code) {
	if c == codeSuccess || c.isAbsent() || g.dead != codeSuccess || g.fault != nil {
		return
	}
	g.fault = fmt.Errorf("%s: %w", s.names[0], c)
}

// readOne reads a GPU that was opened.
func (p *pass) readOne(c candidate, handle nvml.Device) {
	g := &gpu{driver: p.driver, handle: handle}
	r := deviceReading{at: p.now(), index: c.index}
	if r.index < 0 {
		index := ask(g, symIndex, handle.GetIndex)
		if !index.Known {
			p.end(g, &c)
			return
		}
		r.index = index.Value
	}
	if r.uuid = ask(g, symUUID, handle.GetUUID).Value; g.fault != nil || g.dead != codeSuccess {
		p.end(g, &c) // who it is, is not known for once
		return
	}
	if slices.Contains(p.indices, r.index) || (p.cfg.SkipSuspended && !p.isSelected(r.index, r.uuid, gpus.CanonicalPCI(c.address))) {
		p.asked--
		return // named twice, or not wanted
	}
	p.indices = append(p.indices, r.index)
	g.state = p.stateOf(r.key())
	g.state.index = r.index
	if g.state.name == "" {
		g.state.name = clean(ask(g, symName, handle.GetName).Value)
	}
	r.name = g.state.name
	mode := ask(g, symMIGMode, func() (int, nvml.Return) { current, _, ret := handle.GetMigMode(); return current, ret })
	isMIG := mode.Known && mode.Value == nvml.DEVICE_MIG_ENABLE
	p.readProcesses(g, &r, isMIG)
	p.readFigures(g, &r, isMIG)
	p.readHealth(g, &r)
	if isMIG {
		p.readInstances(g, &r)
	}
	if p.want.profiling {
		r.profile = g.state.gpm.read(g, p.now(), gpmAll, handle.GpmSampleGet)
	}
	p.readXIDs(g, &r)
	if p.end(g, &c) {
		p.read++
		p.sink.put(func(all *reading) { all.devices = append(all.devices, r) })
	}
}

// end says what went wrong with a device, and whether its figures are good. Of
// one that was lost meanwhile they are not.
func (p *pass) end(g *gpu, c *candidate) bool {
	if g.inforom {
		name := c.name()
		p.warnOnce("inforom "+name, "The configuration of a GPU is damaged (corrupted infoROM); it works all the same", zap.String("gpu", name))
	}
	switch {
	case g.dead == codeUninitialized || g.dead == codeDriverNotLoaded || g.dead == codeVersionMismatch:
		p.global = g.dead
		return false
	case g.dead != codeSuccess:
		p.lost++
		index := c.index
		if g.state != nil {
			index = g.state.index
		}
		p.sink.fail(c.name(), p.lostError(index, g.dead))
		return false
	case g.ctx.Err() != nil:
		return false
	case g.fault != nil:
		p.sink.fail(c.name(), g.fault)
	}
	return true
}

// readFigures reads the published figures. A board in MIG mode has no utilization
// of its own.
func (p *pass) readFigures(g *gpu, r *deviceReading, isMIG bool) {
	h := g.handle
	if !isMIG {
		if u := ask(g, symUtilization, h.GetUtilizationRates); u.Known {
			r.gpu, r.memory = optional.Some(u.Value.Gpu), optional.Some(u.Value.Memory)
		}
		r.encoder = ask(g, symEncoder, func() (uint32, nvml.Return) { v, _, ret := h.GetEncoderUtilization(); return v, ret })
	}
	r.usage = p.readMemory(g, r)
	r.temperature = readTemperature(g)
	r.power = ask(g, symPower, h.GetPowerUsage)
	r.powerLimit = ask(g, symPowerLimit, h.GetEnforcedPowerLimit)
	clock := func(kind nvml.ClockType) optional.Of[uint32] {
		return known32(ask(g, symClock, func() (uint32, nvml.Return) { return h.GetClockInfo(kind) }))
	}
	r.clocks = clocksReading{graphics: clock(nvml.CLOCK_GRAPHICS), sm: clock(nvml.CLOCK_SM), memory: clock(nvml.CLOCK_MEM)}
	count := func(kind nvml.MemoryErrorType) optional.Of[uint64] {
		return known64(ask(g, symMemoryErrors, func() (uint64, nvml.Return) {
			return h.GetMemoryErrorCounter(kind, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_DEVICE_MEMORY)
		}))
	}
	r.corrected, r.uncorrected = count(nvml.MEMORY_ERROR_TYPE_CORRECTED), count(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
}

// readTemperature asks the newer call where the older one is not there any more.
func readTemperature(g *gpu) optional.Of[uint32] {
	v, c := try(g, symTemperature, func() (uint32, nvml.Return) { return g.handle.GetTemperature(nvml.TEMPERATURE_GPU) })
	switch c {
	case codeSuccess:
		return optional.Some(v)
	case codeNotSupported, codeFunctionNotFound, codeDeprecated:
	default:
		g.judge(symTemperature, c)
		return optional.Of[uint32]{}
	}
	t := ask(g, symTemperatureV, func() (nvml.Temperature, nvml.Return) { return g.handle.GetTemperatureV().V1() })
	if !t.Known || t.Value.Temperature < 0 {
		return optional.Of[uint32]{}
	}
	return optional.Some(uint32(t.Value.Temperature))
}

// known32 and known64 drop what NVML means by "not available", and what no point
// can hold.
func known32(v optional.Of[uint32]) optional.Of[uint32] {
	v.Known = v.Known && v.Value != allOnes32
	return v
}

func known64(v optional.Of[uint64]) optional.Of[uint64] {
	v.Known = v.Known && v.Value <= math.MaxInt64
	return v
}

// unsigned is for go-nvml's signed forms of unsigned figures.
func unsigned(v optional.Of[int]) optional.Of[uint32] {
	return known32(optional.If(uint32(v.Value), v.Known))
}

func (p *pass) readHealth(g *gpu, r *deviceReading) {
	h, out, w := g.handle, &r.health, p.want
	if w.fan {
		out.fan = ask(g, symFan, h.GetFanSpeed)
	}
	if w.pcieLink {
		out.linkGen = unsigned(ask(g, symLinkGen, h.GetCurrPcieLinkGeneration))
		out.linkWidth = unsigned(ask(g, symLinkWidth, h.GetCurrPcieLinkWidth))
		out.maxGen = unsigned(ask(g, symMaxLinkGen, h.GetMaxPcieLinkGeneration))
		out.maxWidth = unsigned(ask(g, symMaxLinkWidth, h.GetMaxPcieLinkWidth))
	}
	if w.pcieSpeed {
		out.linkSpeed = unsigned(ask(g, symLinkSpeed, h.GetPcieSpeed))
	}
	if w.energy {
		out.energy = known64(ask(g, symEnergy, h.GetTotalEnergyConsumption))
	}
	if w.replays {
		out.replays = unsigned(ask(g, symReplays, h.GetPcieReplayCounter))
	}
	if w.remapped {
		out.remapped = ask(g, symRemapped, func() (remappedReading, nvml.Return) {
			corrected, uncorrected, pending, failed, ret := h.GetRemappedRows()
			return remappedReading{corrected, uncorrected, pending, failed}, ret
		})
	}
	if w.retired {
		out.retiredSingle = retired(g, nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
		out.retiredDouble = retired(g, nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	}
	if w.retiredPending {
		pending := ask(g, symRetiredPending, h.GetRetiredPagesPendingStatus)
		out.retiredPending = optional.If(pending.Value == nvml.FEATURE_ENABLED, pending.Known)
	}
	if w.reasons {
		out.reasons = either(g, symReasons, symThrottle, h.GetCurrentClocksEventReasons, h.GetCurrentClocksThrottleReasons)
		out.supportedReasons = either(g, symSupportedReasons, symSupportedThrottle, h.GetSupportedClocksEventReasons, h.GetSupportedClocksThrottleReasons)
	}
}

func retired(g *gpu, cause nvml.PageRetirementCause) optional.Of[int] {
	pages := ask(g, symRetired, func() ([]uint64, nvml.Return) { return g.handle.GetRetiredPages(cause) })
	return optional.If(len(pages.Value), pages.Known)
}

// either asks the newer call, and the older one where the library lacks that.
func either(g *gpu, newer, older symbol, askNewer, askOlder func() (uint64, nvml.Return)) optional.Of[uint64] {
	v, c := try(g, newer, askNewer)
	if c == codeFunctionNotFound {
		return ask(g, older, askOlder)
	}
	g.judge(newer, c)
	return optional.If(v, c == codeSuccess)
}
