// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package card is what the sources of the AMD family have in common: what one GPU
// tells, and which figures cannot be true. A figure that cannot be true is
// missing: the next field of the source is asked.
package card

import "github.com/wandbsys/otelcol-wandbsys/internal/optional"

// Float is a figure that may be missing.
type Float = optional.Of[float64]

// Int is a count that may be missing.
type Int = optional.Of[int64]

// Reading is what a source tells of one GPU, or of one partition of one.
type Reading struct {
	// Index is rocm-smi's.
	Index int
	// PCI is the address in lower case with its domain (0000:c1:00.0); UniqueID
	// the chip's (16 hexadecimal digits in lower case). Each may be empty.
	PCI, UniqueID string
	// Model is the marketing name, else the target (gfx942); it may be empty.
	Model string

	// GPU, MemoryActivity and OverDrive are in percent.
	GPU, MemoryActivity, OverDrive Float
	Memory                         Memory
	// Temperatures are by sensor, in degrees Celsius.
	Temperatures [Sensors]Float
	// Power and Cap are in watts, Cap above 0.
	Power, Cap Float

	// GraphicsClock and MemoryClock are in MHz.
	GraphicsClock, MemoryClock Int
	// Corrected and Uncorrected are errors of the GPU's memory since the driver
	// was loaded.
	Corrected, Uncorrected Int
	// Energy is in joules; it grows from a time of the device's own.
	Energy Float
	PCIe   PCIe
	// Throttles tells for each reason whether it holds the clocks down.
	Throttles [Reasons]optional.Of[bool]
}

// Memory is the pool that counts as the GPU's memory.
type Memory struct {
	// Used and Total are in bytes.
	Used, Total Int
	// Rounded is the allocated share in whole percent, from sources that tell no
	// bytes.
	Rounded Float
}

// PCIe is the link of a GPU.
type PCIe struct {
	// Gen is the generation, Width the number of lanes.
	Gen, Width, MaxGen, MaxWidth Int
	// Replays counts packets that were sent again.
	Replays Int
}

// Sensor is a place on a card.
type Sensor int

// The sensors, in the order in which they give the GPU's temperature.
const (
	Mem Sensor = iota
	Junction
	Edge
	Sensors = iota
)

// Reason is why clocks are held down.
type Reason int

// The reasons.
const (
	ByPower Reason = iota
	ByCurrent
	ByHeat
	ByOther
	Reasons = iota
)

const (
	maxPercent     = 100
	maxTemperature = 200
	// maxWatts is beyond any card, and below what sentinels make.
	maxWatts = 10_000
)

// Percent keeps what a share can be.
func Percent(v float64) Float { return optional.If(v, v >= 0 && v <= maxPercent) }

// Celsius keeps what a temperature can be: firmware answers 0 for a sensor that is
// not there.
func Celsius(v float64) Float { return optional.If(v, v > 0 && v < maxTemperature) }

// Watts keeps what a power or its cap can be: 0 is no reading, for the driver
// answers it for second dies.
func Watts(v float64) Float { return optional.If(v, v > 0 && v < maxWatts) }

// Share returns the allocated share of the memory in percent.
func (m *Memory) Share() Float {
	if m.HasBytes() {
		return Percent(100 * float64(m.Used.Value) / float64(m.Total.Value))
	}
	return m.Rounded
}

// HasBytes tells whether there are bytes that can be true.
func (m *Memory) HasBytes() bool {
	return m.Used.Known && m.Total.Known && m.Total.Value > 0 && m.Used.Value >= 0 && m.Used.Value <= m.Total.Value
}

// Temperature returns the one that stands for the GPU, and where it comes from:
// the memory's, since that is what W&B charts, else the hot spot's, else the
// edge's.
func (r *Reading) Temperature() (Float, Sensor) {
	for sensor, t := range r.Temperatures {
		if t.Known {
			return t, Sensor(sensor)
		}
	}
	return Float{}, Edge
}

// PowerPercent returns the power in percent of its cap; it may exceed 100.
func (r *Reading) PowerPercent() Float {
	if !r.Power.Known || !r.Cap.Known || r.Cap.Value <= 0 {
		return Float{}
	}
	return optional.Some(100 * r.Power.Value / r.Cap.Value)
}
