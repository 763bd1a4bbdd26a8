// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"encoding/binary"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// states says which channels tell the time that something spent in each of its states.
type states struct {
	group, subgroup string
	is              func(name string) bool
}

const cpuStates = "CPU Core Performance States"

var (
	gpuStates = states{"GPU Stats", "GPU Performance States", func(name string) bool { return name == "GPUPH" }}
	// The CPU has a channel for each of its cores.
	efficiencyStates  = states{"CPU Stats", cpuStates, func(name string) bool { return isCore(name, "ECPU") }}
	performanceStates = states{"CPU Stats", cpuStates, func(name string) bool { return isCore(name, "PCPU") }}
)

func isCore(name, stem string) bool { return isNumbered(withoutDie(name), stem) }

func hasStates(s *capture.Sample, which states) bool { return len(channels(s, which)) > 0 }

// channels are ordered as rails are.
func channels(s *capture.Sample, which states) []*capture.Channel {
	var found []*capture.Channel
	for i := range s.Channels {
		c := &s.Channels[i]
		if c.Group == which.group && c.Subgroup == which.subgroup && c.Kind == capture.State && which.is(c.Name) {
			found = append(found, c)
		}
	}
	sortByName(found)
	return found
}

// busy is the share of time in active states, in percent, and the mean clock in them, in
// MHz. The active states have the clocks in their order. Several channels are one thing.
func busy(last, now *capture.Sample, which states, clocks []float64) (percent, clock Float) {
	before, after := channels(last, which), channels(now, which)
	if len(before) != len(after) {
		return Float{}, Float{}
	}
	var t times
	for i := range after {
		if before[i].Name != after[i].Name || !t.add(before[i].States, after[i].States, clocks) {
			return Float{}, Float{}
		}
	}
	if t.all <= 0 {
		return Float{}, Float{}
	}
	percent = optional.Some(min(100*(t.active/t.all), 100))
	if t.clocked <= 0 {
		return percent, Float{}
	}
	return percent, optional.Some(t.product / t.clocked)
}

// times are ticks; clocked are those of states with a clock, product those times it.
type times struct {
	all, active, clocked, product float64
}

// add is false when the states cannot be compared.
func (t *times) add(before, after []capture.Residency, clocks []float64) bool {
	if len(before) != len(after) {
		return false
	}
	active := 0
	for i, now := range after {
		last := before[i]
		if last.Name != now.Name || now.Ticks < last.Ticks {
			return false
		}
		ticks := float64(uint64(now.Ticks) - uint64(last.Ticks))
		t.all += ticks
		if isIdle(now.Name) {
			continue
		}
		t.active += ticks
		if active < len(clocks) {
			t.clocked += ticks
			t.product += ticks * clocks[active]
		}
		active++
	}
	return true
}

func isIdle(state string) bool {
	switch strings.TrimSpace(state) {
	case "OFF", "IDLE", "DOWN":
		return true
	}
	return false
}

// The clocks of a table that count, in MHz.
const minClock, maxClock = 100, 6000

// clocks are those of the first table that has any, in MHz and in its order.
func clocks(tables map[string][]byte, megahertz func(uint32) float64, names ...string) []float64 {
	for _, name := range names {
		if found := table(tables[name], megahertz); len(found) > 0 {
			return found
		}
	}
	return nil
}

// table reads pairs of a clock and a voltage.
func table(data []byte, megahertz func(uint32) float64) []float64 {
	var found []float64
	for ; len(data) >= 8; data = data[8:] {
		if clock := megahertz(binary.LittleEndian.Uint32(data)); clock >= minClock && clock <= maxClock {
			found = append(found, clock)
		}
	}
	return found
}

// hertz is the unit of the GPU's clocks on every chip that is known.
func hertz(value uint32) float64 { return float64(value) / 1e6 }

// hertzOrKilohertz are those of the CPU's: kHz from the M4 on. No value is a clock in
// both.
func hertzOrKilohertz(value uint32) float64 {
	if value <= maxClock*1000 {
		return float64(value) / 1e3
	}
	return hertz(value)
}
