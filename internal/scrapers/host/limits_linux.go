// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"

	"github.com/shirou/gopsutil/v4/cpu"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// limitsReading is what control groups allow the target.
type limitsReading struct {
	limits cgroup.Limits
	// quota is in CPUs; 0 is none.
	quota float64
}

// physicalCPUs asks gopsutil once; 0 is unknown.
func (s *linuxSource) physicalCPUs(ctx context.Context) int {
	if s.physical == 0 {
		s.physical, _ = cpu.CountsWithContext(identity.GopsutilContext(ctx, s.rootPath), false)
	}
	return s.physical
}
