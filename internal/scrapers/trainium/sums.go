// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"maps"
	"math"
	"slices"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// sums are the figures of some runtimes together. Each runtime lists all cores that
// it sees, with zeros for those of others, so that they can be added up.
type sums struct {
	// utilisation is in percent by core.
	utilisation map[int]float64
	// host and device are bytes, the others those in each part.
	host, device optional.Of[float64]
	hostParts    map[string]float64
	coreParts    map[int]map[string]float64
	// total and device latencies are seconds by percentile.
	totalLatency, deviceLatency map[string]float64
	// ran says that the tool tells what a runtime executed.
	ran bool
}

func sumOf(runtimes []*report.Runtime) *sums {
	s := &sums{
		utilisation: map[int]float64{}, hostParts: map[string]float64{}, coreParts: map[int]map[string]float64{},
		totalLatency: map[string]float64{}, deviceLatency: map[string]float64{},
	}
	for _, r := range runtimes {
		s.add(r)
	}
	return s
}

func (s *sums) add(r *report.Runtime) {
	for core, percent := range r.Utilisation {
		s.utilisation[core] = min(s.utilisation[core]+percent, 100)
	}
	s.host, s.device = plus(s.host, r.Host), plus(s.device, r.Device)
	tally(s.hostParts).add(r.HostParts)
	for core, parts := range r.CoreParts {
		if s.coreParts[core] == nil {
			s.coreParts[core] = make(map[string]float64, len(parts))
		}
		tally(s.coreParts[core]).add(parts)
	}
	if r.Execution == nil {
		return
	}
	s.ran = true
	raise(s.totalLatency, r.Execution.Total)
	raise(s.deviceLatency, r.Execution.Device)
}

func plus(sum, more optional.Of[float64]) optional.Of[float64] {
	if !more.Known {
		return sum
	}
	return optional.Some(sum.Value + more.Value)
}

// raise keeps the largest: percentiles cannot be added up.
func raise(all, more map[string]float64) {
	for percentile, seconds := range more {
		all[percentile] = max(all[percentile], seconds)
	}
}

// idle adds the cores that nobody uses, where that is known.
func (s *sums) idle(r *report.Report) {
	for i := range r.Runtimes {
		if r.Runtimes[i].Unread {
			return
		}
	}
	for core := range r.Cores {
		if _, used := s.utilisation[core]; !used {
			s.utilisation[core] = 0
		}
	}
}

// sorted lists the keys in their order, so that a limit of series always cuts the
// same ones.
func sorted[K int | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// whole is the integer that a point has, where it can have it.
func whole(v float64) (int64, bool) {
	return int64(v), v >= 0 && v < math.MaxInt64
}
