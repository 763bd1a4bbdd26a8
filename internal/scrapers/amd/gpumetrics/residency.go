// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// Counter is a counter of 32 bits that may be missing. It wraps around.
type Counter = optional.Of[uint32]

// Residency counts in how many of the firmware's cycles each limit held the clocks
// down.
type Residency struct {
	// Cycles is how many there were.
	Cycles Counter
	// Prochot is the signal of a hot processor, Power the limit of the package, the
	// others are temperatures: the socket's, the voltage regulators' and the
	// memory's.
	Prochot, Power, Socket, Regulator, Memory Counter
}

// residency reads accumulation_counter and the five *_residency_acc after it.
func (b blob) residency(offset int) (r Residency) {
	if offset == 0 {
		return r
	}
	for i, dst := range [...]*Counter{&r.Cycles, &r.Prochot, &r.Power, &r.Socket, &r.Regulator, &r.Memory} {
		v, ok := b.uint(offset+4*i, 4)
		*dst = optional.If(uint32(v), ok)
	}
	return r
}

// Throttled tells for each reason whether it held the clocks down at some time
// between two readings of one GPU. A reason is missing when the counters cannot
// tell: nothing was counted between the two, or they began anew. Currents and
// other reasons are not counted.
func Throttled(before, now *Residency) (reasons [card.Reasons]optional.Of[bool]) {
	if !grew(before.Cycles, now.Cycles).Value {
		return reasons
	}
	reasons[card.ByPower] = grew(before.Power, now.Power)
	reasons[card.ByHeat] = either(
		grew(before.Prochot, now.Prochot),
		grew(before.Socket, now.Socket),
		grew(before.Regulator, now.Regulator),
		grew(before.Memory, now.Memory),
	)
	return reasons
}

// grew is not known for a counter that is missing, and for one that fell.
func grew(before, now Counter) optional.Of[bool] {
	known := before.Known && now.Known && now.Value >= before.Value
	return optional.If(known && now.Value > before.Value, known)
}

// either is true when one is, and false only when all are.
func either(all ...optional.Of[bool]) optional.Of[bool] {
	known := true
	for _, one := range all {
		if one.Value {
			return one
		}
		known = known && one.Known
	}
	return optional.If(false, known)
}
