// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// headerSize is that of struct metrics_table_header: size, format, content.
const headerSize = 4

// layout has the offsets of the fields in bytes. They are u16 where nothing else
// is said; 0, where the header is, stands for a field that is not there.
type layout struct {
	edge, junction, memory int
	// hbm has a temperature for each stack.
	hbm      int
	gfx, umc int
	power    int
	// energy and throttles are u64.
	energy, throttles int
	// residency is six u32, the accumulation counter first.
	residency int
}

// format is what all layouts of a format have in common: the units, by what they
// make of a number.
type format struct {
	celsius, percent, watts func(float64) card.Float
	// powerWidth is the size of the power in bytes.
	powerWidth int
	// layouts are by content revision.
	layouts []layout
}

var formats = [...]format{
	// Discrete GPUs and accelerators. v1.4 and later have no edge sensor. The energy
	// of v1.0 is a u32, which wraps around within minutes.
	1: {
		celsius: card.Celsius, percent: card.Percent, watts: card.Watts, powerWidth: 2,
		layouts: []layout{
			0: {edge: 16, junction: 18, memory: 20, gfx: 28, umc: 30, power: 34},
			1: {edge: 4, junction: 6, memory: 8, hbm: 88, gfx: 16, umc: 18, power: 22, energy: 24},
			2: {edge: 4, junction: 6, memory: 8, hbm: 88, gfx: 16, umc: 18, power: 22, energy: 24},
			3: {edge: 4, junction: 6, memory: 8, hbm: 88, gfx: 16, umc: 18, power: 22, energy: 24, throttles: 112},
			4: {junction: 4, memory: 6, gfx: 12, umc: 14, power: 10, energy: 24},
			5: {junction: 4, memory: 6, gfx: 12, umc: 14, power: 10, energy: 88},
			6: {junction: 4, memory: 6, gfx: 12, umc: 14, power: 10, energy: 16, residency: 32},
			7: {junction: 4, memory: 6, gfx: 12, umc: 14, power: 10, energy: 24, residency: 40},
			8: {junction: 4, memory: 6, gfx: 12, umc: 14, power: 10, energy: 24, residency: 40},
		},
	},
	// APUs. The power is in milliwatts or, with some firmware, in watts: it is not
	// read. Nor is the activity of v2.3 and v2.4 (Van Gogh), in percent or in
	// hundredths of it.
	2: {
		celsius: hundredths(card.Celsius), percent: hundredths(card.Percent),
		layouts: []layout{
			0: {edge: 16, gfx: 40},
			1: {edge: 4, gfx: 28},
			2: {edge: 4, gfx: 28, throttles: 120},
			3: {edge: 4, throttles: 120},
			4: {edge: 4, throttles: 120},
		},
	},
	3: {
		celsius: hundredths(card.Celsius), percent: ambiguousPercent, watts: milliwatts, powerWidth: 4,
		layouts: []layout{
			0: {edge: 4, gfx: 42, power: 112},
		},
	},
}

func hundredths(keep func(float64) card.Float) func(float64) card.Float {
	return func(v float64) card.Float { return keep(v / 100) }
}

func milliwatts(v float64) card.Float { return card.Watts(v / 1000) }

// ambiguousPercent reads the activity of v3.0: in percent, but in hundredths of it
// from old firmware. What old firmware calls 1 % or less looks like percent.
func ambiguousPercent(v float64) card.Float {
	if v > 100 {
		v /= 100
	}
	return card.Percent(v)
}

// joules reads an accumulator, which counts 2^-16 J (15.259 µJ). It stays 0 where
// the energy is not measured, as on the second die of an MI200.
func joules(v float64) card.Float { return optional.If(v/(1<<16), v > 0) }
