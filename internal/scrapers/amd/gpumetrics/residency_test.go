// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

func residencyOf(cycles, prochot, power, socket, regulator, memory uint32) Residency {
	return Residency{
		Cycles:  optional.Some(cycles),
		Prochot: optional.Some(prochot), Power: optional.Some(power), Socket: optional.Some(socket),
		Regulator: optional.Some(regulator), Memory: optional.Some(memory),
	}
}

func TestResidencyIsRead(t *testing.T) {
	counters := accumulated{Cycles: 1, Prochot: 2, PPT: 3, Socket: 4, VR: 5, HBM: 6}
	for _, s := range []any{
		with(1, 6, func(s *v1x6early) { s.Residency = counters }),
		with(1, 6, func(s *v1x6) { s.Residency = counters }),
		with(1, 7, func(s *v1x7) { s.Residency = counters }),
		with(1, 8, func(s *v1x8) { s.Residency = counters }),
	} {
		assert.Equal(t, residencyOf(1, 2, 3, 4, 5, 6), decode(t, bytesOf(s)).Residency, "%T", s)
	}
}

func TestACounterThatIsNotToldOrCutOffIsMissing(t *testing.T) {
	b := bytesOf(with(1, 8, func(s *v1x8) {
		s.Residency = accumulated{Cycles: 0, Prochot: math.MaxUint32, PPT: 3, Socket: 4, VR: 5, HBM: 6}
	}))
	want := residencyOf(0, 0, 3, 4, 5, 6)
	want.Prochot = Counter{}
	assert.Equal(t, want, decode(t, b).Residency)
	want.Memory = Counter{}
	assert.Equal(t, want, decode(t, b[:63]).Residency)
}

// Prochot is the signal of a hot processor; currents and others are not counted.
func TestThrottledComparesTwoReadings(t *testing.T) {
	before := residencyOf(1000, 10, 20, 30, 40, 50)
	no, yes, unknown := optional.Some(false), optional.Some(true), optional.Of[bool]{}
	for name, c := range map[string]struct {
		before, now Residency
		power, heat optional.Of[bool]
	}{
		"nothing grew":             {before, residencyOf(2000, 10, 20, 30, 40, 50), no, no},
		"power":                    {before, residencyOf(2000, 10, 21, 30, 40, 50), yes, no},
		"the socket's heat":        {before, residencyOf(2000, 10, 20, 31, 40, 50), no, yes},
		"the regulators' heat":     {before, residencyOf(2000, 10, 20, 30, 41, 50), no, yes},
		"the memory's heat":        {before, residencyOf(2000, 10, 20, 30, 40, 51), no, yes},
		"prochot":                  {before, residencyOf(2000, 11, 20, 30, 40, 50), no, yes},
		"no earlier reading":       {Residency{}, before, unknown, unknown},
		"no later reading":         {before, Residency{}, unknown, unknown},
		"nothing was counted":      {before, residencyOf(1000, 11, 21, 31, 41, 51), unknown, unknown},
		"all began anew":           {before, residencyOf(1, 11, 21, 31, 41, 51), unknown, unknown},
		"the power's began anew":   {before, residencyOf(2000, 10, 19, 30, 40, 50), unknown, no},
		"one of heat's began anew": {before, residencyOf(2000, 10, 20, 30, 39, 50), no, unknown},
		"another of heat grew":     {before, residencyOf(2000, 10, 20, 30, 39, 51), no, yes},
		"a counter is not told": {
			before,
			Residency{Cycles: optional.Some(uint32(2000)), Power: optional.Some(uint32(20))},
			no, unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := [card.Reasons]optional.Of[bool]{card.ByPower: c.power, card.ByHeat: c.heat}
			assert.Equal(t, want, Throttled(&c.before, &c.now))
		})
	}
}
