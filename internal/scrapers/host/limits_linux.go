// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"

	"github.com/shirou/gopsutil/v4/cpu"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// limitsReading is what control groups allow the target.
type limitsReading struct {
	limits cgroup.Limits
}

// askPhysical asks for the physical CPUs, once, where `cpu` is a percentage of
// them. The files can hang as any (LXCFS).
func (s *linuxSource) askPhysical(b *guard.Batch) *guard.Pending[*int] {
	if !s.hasTarget || s.denominator != denominatorPhysical || s.physical != 0 {
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
