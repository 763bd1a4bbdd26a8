// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpumetrics reads gpu_metrics, the binary file in which the amdgpu driver
// gives what the firmware of a GPU measures. The layouts are those of the kernel's
// drivers/gpu/drm/amd/include/kgd_pp_interface.h.
package gpumetrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// ErrShort says that not even the header was there.
var ErrShort = errors.New("gpu_metrics: shorter than its header")

// UnknownError is a revision that the package does not know.
type UnknownError struct {
	Format, Content uint8
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("gpu_metrics: unknown revision %d.%d", e.Format, e.Content)
}

// Metrics is what one blob tells. What the firmware does not tell is missing, and
// so is what cannot be true.
type Metrics struct {
	// Format and Content are the revision: 1 and 3 for v1.3.
	Format, Content uint8
	// Size is the one that the driver says, in bytes; more or fewer may have been
	// read.
	Size int

	// Temperatures are by sensor, in degrees Celsius. An APU's own is at its edge.
	Temperatures [card.Sensors]card.Float
	// GFX and UMC, the memory controller, are active for so many percent of the
	// time.
	GFX, UMC card.Float
	// Power of the socket is in watts. v2.x has none: there the unit depends on the
	// firmware.
	Power card.Float
	// Energy is in joules; it grows from a time of the device's own.
	Energy card.Float
	// Throttles tells for each reason whether it holds the clocks down now. v1.3
	// and v2.2 to v2.4 tell it.
	Throttles [card.Reasons]optional.Of[bool]
	// Residency has v1.6 to v1.8, from which Throttled tells the same.
	Residency Residency
}

// IsAPU tells whether the layout is one that only APUs have. Those with the memory
// of an accelerator (MI300A) have the accelerators' layouts.
func (m *Metrics) IsAPU() bool { return m.Format == 2 || m.Format == 3 }

// Decode reads the bytes of a gpu_metrics file into m, whose old contents it
// forgets. Of a file that was cut off, the fields that are there count. The error
// is ErrShort or *UnknownError, which leaves what the header says in m.
func Decode(b []byte, m *Metrics) error {
	*m = Metrics{}
	if len(b) < headerSize {
		return ErrShort
	}
	m.Size, m.Format, m.Content = int(binary.LittleEndian.Uint16(b)), b[2], b[3]
	if m.Format == 1 && m.Content == streamContent {
		m.readStream(b)
		return nil
	}
	if int(m.Format) >= len(formats) || int(m.Content) >= len(formats[m.Format].layouts) {
		return &UnknownError{m.Format, m.Content}
	}
	format := &formats[m.Format]
	m.read(b, format, &format.layouts[m.Content])
	return nil
}

func (m *Metrics) read(b blob, f *format, l *layout) {
	m.Temperatures[card.Edge] = b.figure(l.edge, 2, f.celsius)
	m.Temperatures[card.Junction] = b.figure(l.junction, 2, f.celsius)
	m.Temperatures[card.Mem] = b.figure(l.memory, 2, f.celsius).Or(b.hottest(l.hbm))
	m.GFX = b.figure(l.gfx, 2, f.percent)
	m.UMC = b.figure(l.umc, 2, f.percent)
	m.Power = b.figure(l.power, f.powerWidth, f.watts)
	m.Energy = b.figure(l.energy, 8, joules)
	m.Throttles = b.throttles(l.throttles)
	m.Residency = b.residency(l.residency)
}

// blob is a file's contents, little-endian.
type blob []byte

// uint reads an integer of so many bytes. It is not ok where the layout has none
// (offset 0), beyond the end, and when all bits are ones: the driver fills the file
// with ones before it writes what the firmware tells.
func (b blob) uint(offset, width int) (v uint64, ok bool) {
	if offset == 0 || offset+width > len(b) {
		return 0, false
	}
	for i, c := range b[offset : offset+width] {
		v |= uint64(c) << (8 * i)
	}
	if v == math.MaxUint64>>(64-8*width) {
		return 0, false
	}
	return v, true
}

// figure reads an integer, and keeps what its unit and its range make of it.
func (b blob) figure(offset, width int, keep func(float64) card.Float) card.Float {
	v, ok := b.uint(offset, width)
	if !ok {
		return card.Float{}
	}
	return keep(float64(v))
}

// stacks is the kernel's NUM_HBM_INSTANCES.
const stacks = 4

// hottest returns the highest temperature of the stacks of memory, in degrees
// Celsius. All of them must be inside, for it is not the highest of a part.
func (b blob) hottest(offset int) (highest card.Float) {
	if offset == 0 || offset+2*stacks > len(b) {
		return highest
	}
	for i := range stacks {
		t := b.figure(offset+2*i, 2, card.Celsius)
		if t.Known && t.Value > highest.Value {
			highest = t
		}
	}
	return highest
}

// throttles reads indep_throttle_status, whose bits are the kernel's own
// (SMU_THROTTLER_*_BIT in drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h): 16 for
// power, 16 for currents, 16 for temperatures, 16 for anything else.
func (b blob) throttles(offset int) (reasons [card.Reasons]optional.Of[bool]) {
	bits, ok := b.uint(offset, 8)
	if !ok {
		return reasons
	}
	for i, reason := range [...]card.Reason{card.ByPower, card.ByCurrent, card.ByHeat, card.ByOther} {
		reasons[reason] = optional.Some(uint16(bits>>(16*i)) != 0)
	}
	return reasons
}
