// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"

// streamContent is the revision of format 1 that has no layout: a count, and so
// many attributes, each of which says what it is.
const (
	streamContent = 9
	streamCount   = 4 // s32
	streamStart   = 8
)

// The attributes that are read: enum amdgpu_metrics_attr_id.
const (
	idJunction = 0
	idMemory   = 1
	idPower    = 3
	idGFX      = 4
	idUMC      = 5
	idEnergy   = 7
)

// attribute is the u64 before the values of an attribute.
type attribute uint64

const encodingSize = 8

// instances is how many values follow, packed.
func (a attribute) instances() int { return int(a & 0x3ff) }

func (a attribute) id() int { return int(a >> 10 & 0x3ff) }

func (a attribute) kind() int { return int(a >> 20 & 0xf) }

// signed: the kinds are u8, s8, u16, s16, u32, s32, u64, s64.
func (a attribute) signed() bool { return a.kind()%2 == 1 }

// width is the size of a value in bytes; it is not ok for kinds that are not known.
func (a attribute) width() (bytes int, ok bool) {
	if a.kind() > 7 {
		return 0, false
	}
	return 1 << (a.kind() / 2), true
}

// readStream reads as far as it can: what follows an attribute of a size that is
// not known, or one that was cut off, cannot be found.
func (m *Metrics) readStream(b blob) {
	count, ok := b.uint(streamCount, 4)
	if !ok {
		return
	}
	offset := streamStart
	for range int32(count) {
		encoding, ok := b.uint(offset, encodingSize)
		if !ok {
			return
		}
		a := attribute(encoding)
		offset += encodingSize
		width, ok := a.width()
		end := offset + a.instances()*width
		if !ok || end > len(b) {
			return
		}
		if a.instances() > 0 {
			m.take(a, b, offset, width)
		}
		offset = end
	}
}

// take keeps the first value of an attribute. Of two attributes with one id the
// first one that tells anything counts.
func (m *Metrics) take(a attribute, b blob, offset, width int) {
	dst, keep := m.destination(a.id())
	if dst == nil || dst.Known {
		return
	}
	v, ok := b.uint(offset, width)
	if !ok {
		return
	}
	if shift := 64 - 8*width; a.signed() {
		*dst = keep(float64(int64(v<<shift) >> shift))
		return
	}
	*dst = keep(float64(v))
}

// destination returns where an attribute goes, and what its unit and its range make
// of it; nil for attributes that are not read.
func (m *Metrics) destination(id int) (*card.Float, func(float64) card.Float) {
	switch id {
	case idJunction:
		return &m.Temperatures[card.Junction], card.Celsius
	case idMemory:
		return &m.Temperatures[card.Mem], card.Celsius
	case idPower:
		return &m.Power, card.Watts
	case idGFX:
		return &m.GFX, card.Percent
	case idUMC:
		return &m.UMC, card.Percent
	case idEnergy:
		return &m.Energy, joules
	}
	return nil, nil
}
