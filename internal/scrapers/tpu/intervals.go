// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"slices"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
)

// intervals make statistics of the time since the last scrape: the runtimes count from
// the start of the job on.
type intervals struct {
	earlier map[string]dist.Distribution
	// runtimes are those that told of the earlier ones.
	runtimes []int
}

// apply replaces the statistics of what is counted. There are none at the first sight
// of a distribution, where nothing was counted since, and where other runtimes answered
// than before: what one of them counted in all its life is not of this interval.
func (v *intervals) apply(f *figures) {
	if !slices.Equal(v.runtimes, f.runtimes) {
		v.earlier = nil
	}
	v.runtimes = f.runtimes
	seen := map[string]dist.Distribution{}
	for d := range f.counted {
		for name, now := range f.counted[d] {
			key := startKey(distribution(d), name)
			seen[key] = now
			delete(f.stats[d], name)
			earlier, known := v.earlier[key]
			if !known {
				continue
			}
			if since, ok := now.Since(&earlier); ok && since.Count > 0 {
				f.stats[d][name] = since.Stats()
			}
		}
	}
	v.earlier = seen
}
