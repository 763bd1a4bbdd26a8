// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package figures makes figures of what a Mac tells. It is arithmetic alone, the same on
// every system.
package figures

import (
	"cmp"
	"math"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// Float is a figure that may be missing.
type Float = optional.Of[float64]

// Whole is a whole number that may be missing.
type Whole = optional.Of[int64]

// Figures are those of a Mac with its one GPU.
type Figures struct {
	// Model is the chip's name; empty where that is unknown.
	Model string
	// Cores is the number of the GPU's cores; 0 where that is unknown.
	Cores int64
	// LimitWatts is the configured limit of the GPU's power; 0 when there is none.
	LimitWatts float64

	// GPU is the share of time in which it was busy, Allocated its share of the
	// machine's memory. Both are in percent.
	GPU, Allocated Float
	// Temperature is in degrees Celsius, Power in watts, Clock in MHz.
	Temperature, Power, Clock Float
	// Used and AllocatedBytes are memory in bytes.
	Used, AllocatedBytes Whole
	// Recoveries counts the GPU's restarts since boot.
	Recoveries Whole

	// SystemPower, NeuralPower and CPUPower are in watts.
	SystemPower, NeuralPower, CPUPower Float
	// CPUTemperature is in degrees Celsius.
	CPUTemperature Float
	// Efficiency and Performance are the CPU's cores of either kind.
	Efficiency, Performance Cluster
}

// Cluster are cores of one kind: Busy is in percent, Clock in MHz.
type Cluster struct {
	Busy, Clock Float
}

// Any tells whether there is anything of the GPU.
func (f *Figures) Any() bool {
	return f.GPU.Known || f.Temperature.Known || f.Power.Known || f.Clock.Known ||
		f.Allocated.Known || f.Used.Known || f.AllocatedBytes.Known || f.Recoveries.Known
}

const (
	// baseLimit is the power of an M1's GPU with its baseCores cores, in watts.
	baseLimit = 16.5
	baseCores = 8
)

// PowerPercent is the power in percent of the limit, which is an estimate where none is
// configured: Apple publishes none. It may exceed 100.
func (f *Figures) PowerPercent() Float {
	limit := f.LimitWatts
	if limit <= 0 {
		limit = baseLimit * float64(f.Cores) / baseCores
	}
	if !f.Power.Known || limit <= 0 {
		return Float{}
	}
	return finite(100 * f.Power.Value / limit)
}

// Meter makes figures of captures that follow each other. The zero value is ready. It
// keeps the last sample, from which the next one differs.
type Meter struct {
	last *capture.Sample
	// counts says that the GPU's states were seen: what is used in their place has
	// another meaning, and would mix two in a series.
	counts bool
	// model and cores are those of the last time that the IORegistry could be read.
	model string
	cores int64
}

// Read returns the figures of a capture: of its last sample and the one before, which is
// of the capture before if this one has no more.
func (m *Meter) Read(c *capture.Capture) *Figures {
	f := &Figures{}
	if c.Config != nil {
		f.LimitWatts = max(c.Config.GPUPowerLimitWatts, 0)
	}
	f.temperatures(c)
	f.registry(c)
	m.recall(f, c.Registry != nil)
	samples := c.Report.Samples
	for i := range samples[max(0, len(samples)-2):] {
		m.interval(f, &samples[max(0, len(samples)-2)+i], c.Pmgr)
	}
	if !f.GPU.Known && !m.counts {
		f.GPU = utilisation(c)
	}
	return f
}

// recall has the GPU's name where the IORegistry could not be read this time: series and
// resources would be others without it.
func (m *Meter) recall(f *Figures, isRead bool) {
	if isRead {
		m.model, m.cores = f.Model, f.Cores
		return
	}
	f.Model, f.Cores = m.model, m.cores
}

// minInterval is the shortest time, in nanoseconds, of which a difference says anything.
const minInterval = 50e6

// interval makes the figures of the time since the last sample.
func (m *Meter) interval(f *Figures, now *capture.Sample, tables map[string][]byte) {
	m.counts = m.counts || hasStates(now, gpuStates)
	last := m.last
	switch {
	case last == nil || now.At <= last.At:
		m.last = now
		return
	case now.At-last.At < minInterval && now.At-last.At > 0:
		return // the next one is long enough
	}
	m.last = now
	seconds := float64(uint64(now.At)-uint64(last.At)) / 1e9
	f.Power = power(last, now, seconds, isGPUEnergy, isGPURail)
	f.NeuralPower = power(last, now, seconds, isNeuralRail)
	f.CPUPower = power(last, now, seconds, isCPUEnergy, isDieCPUEnergy)
	f.GPU, f.Clock = busy(last, now, gpuStates, clocks(tables, hertz, "voltage-states9", "voltage-states9-sram"))
	f.Efficiency.Busy, f.Efficiency.Clock = busy(last, now, efficiencyStates, clocks(tables, hertzOrKilohertz, "voltage-states1-sram", "voltage-states1"))
	f.Performance.Busy, f.Performance.Clock = busy(last, now, performanceStates, clocks(tables, hertzOrKilohertz, "voltage-states5-sram", "voltage-states5"))
}

// registry takes the figures of the accelerator's entry.
func (f *Figures) registry(c *capture.Capture) {
	entry := c.GPU()
	if entry == nil {
		return
	}
	f.Model = cmp.Or(strings.TrimRight(entry.Properties.Model, "\x00"), c.System.Chip)
	f.Cores = max(entry.Properties.Cores, 0)
	statistics := entry.Properties.Statistics
	f.Used = count(statistics, "In use system memory")
	f.AllocatedBytes = count(statistics, "Alloc system memory")
	f.Recoveries = count(statistics, "recoveryCount")
	if f.Used.Known && c.System.Memory > 0 {
		f.Allocated = optional.Some(min(100*float64(f.Used.Value)/float64(c.System.Memory), 100))
	}
}

// utilisation is the driver's own short look back.
func utilisation(c *capture.Capture) Float {
	entry := c.GPU()
	if entry == nil {
		return Float{}
	}
	for _, name := range []string{"Device Utilization %", "GPU Activity(%)"} {
		if percent, ok := entry.Properties.Statistics[name]; ok {
			return optional.Some(float64(min(max(percent, 0), 100)))
		}
	}
	return Float{}
}

func count(statistics capture.Statistics, name string) Whole {
	n, ok := statistics[name]
	return optional.If(n, ok && n >= 0)
}

func finite(v float64) Float {
	return optional.If(v, !math.IsNaN(v) && !math.IsInf(v, 0))
}
