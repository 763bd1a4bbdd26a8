// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// kfdUse is the memory that the processes of the KFD have of each GPU.
type kfdUse struct {
	// byGPU is in bytes, by the KFD's number of the GPU; nil when it is not known.
	byGPU map[uint64]int64
}

// readKFDMemory takes what the KFD tells: the size of the node, and what the
// processes have of it. (Its own used_memory is the whole chip's in every
// partition.)
func (d *device) readKFDMemory(r *card.Reading, use *kfdUse) {
	if d.gpuID == 0 || d.bank == 0 || use.byGPU == nil {
		return
	}
	r.Memory.Used, r.Memory.Total = optional.Some(use.byGPU[d.gpuID]), optional.Some(d.bank)
}

// readMemory takes the pool that is the GPU's memory. It needs no hardware, so
// that a GPU may be asleep.
func (d *device) readMemory(r *card.Reading) {
	f, m := &d.files, &r.Memory
	vram := d.size(&d.vram, f.vramTotal)
	switch {
	case vram.Known && vram.Value == 0: // MI300A: its memory is the machine's
		m.Used, m.Total = d.bytes(f.gttUsed), optional.If(d.bank, d.bank > 0).Or(d.size(&d.gtt, f.gttTotal))
	case d.isAPU.Value && d.size(&d.gtt, f.gttTotal).Value > vram.Value:
		// A small carve-out is always full; the memory is in the other pool.
		m.Used, m.Total = d.bytes(f.gttUsed), d.gtt
	default:
		m.Used, m.Total = d.bytes(f.vramUsed), vram
	}
}

// size reads the size of a pool once.
func (d *device) size(known *optional.Of[int64], file *guard.KeptFile) card.Int {
	if !known.Known {
		*known = d.bytes(file)
	}
	return *known
}

func (d *device) bytes(file *guard.KeptFile) card.Int {
	n, ok := parseNumber(d.line(file))
	return optional.If(n, ok && n >= 0)
}
