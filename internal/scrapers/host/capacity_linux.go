// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"

	"github.com/shirou/gopsutil/v4/cpu"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// askPhysical asks for the physical CPUs, once, where `cpu` is a percentage of
// them. The files can hang as any (LXCFS).
func (s *linuxSource) askPhysical(b *guard.Batch) *guard.Pending[*int] {
	if s.workloads == nil || s.denominator != denominatorPhysical || s.physical != 0 {
		return nil
	}
	return guard.Add(b, &s.physicalSlot, func(ctx context.Context) (*int, error) {
		n, err := cpu.CountsWithContext(identity.GopsutilContext(ctx, s.rootPath), false)
		if err != nil || n <= 0 {
			n = -1
		}
		return &n, nil
	})
}

// limit puts into the readings of workloads the CPUs that they can use and the
// memory limit that is in force.
func (s *linuxSource) limit(r *reading, online int) {
	total := uint64(unknownTotal)
	if r.memory != nil {
		total = r.memory.total
	}
	for _, w := range r.workloads {
		w.capacity = s.capacity(w, online)
		if m := w.limits.Memory(total); m != nil {
			w.memory = &limitReading{limit: m.Limit, used: m.Used, headroom: m.Headroom}
		}
	}
}

// unknownTotal stands for the machine's memory where it cannot be read: far
// above any, and below what version 1 of control groups writes for "no limit".
const unknownTotal = 1 << 62

// capacity is how many CPUs a workload can use: those online that its affinity
// (and with it its cpuset) names, as far as its quota goes. 0 is unknown.
func (s *linuxSource) capacity(w *workloadReading, online int) float64 {
	switch s.denominator {
	case denominatorLogical:
		return float64(online)
	case denominatorPhysical:
		if s.physical < 0 {
			return float64(online)
		}
		return float64(s.physical)
	}
	if online == 0 {
		return 0 // affinity names CPUs that are not online too: alone it says nothing
	}
	return smallest(float64(online), w.capacity, w.limits.CPUs)
}

// smallest ignores what is not known.
func smallest(values ...float64) float64 {
	least := 0.0
	for _, v := range values {
		if v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	return least
}
