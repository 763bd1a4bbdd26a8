// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package dist has the distributions that a TPU runtime counts, and what can be told
// of them: mean and percentiles.
package dist

import (
	"math"
	"slices"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// Kind says how the bounds of buckets are given.
type Kind uint8

// The kinds of buckets. None has no bounds, or such as are not understood.
const (
	None Kind = iota
	Exponential
	Linear
	Explicit
)

const (
	// maxBuckets is above what a runtime has.
	maxBuckets = 1000
	// maxCount is what a float64 holds exactly.
	maxCount = 1 << 53
)

// Buckets say where the bounds of buckets are.
type Buckets struct {
	Kind Kind
	// Finite is the number of buckets between the first and the last bound, for
	// exponential and linear ones.
	Finite int
	// Bound i of exponential ones is Scale x Growth^i, that of linear ones
	// Offset + i x Width.
	Scale, Growth, Offset, Width float64
	// Explicit has explicit bounds.
	Explicit []float64
}

// Equal tells whether two distributions with these may be added up.
func (b *Buckets) Equal(other *Buckets) bool {
	return b.Kind == other.Kind && b.Finite == other.Finite &&
		b.Scale == other.Scale && b.Growth == other.Growth &&
		b.Offset == other.Offset && b.Width == other.Width &&
		slices.Equal(b.Explicit, other.Explicit)
}

// Bounds returns the bounds, which are finite and ascend, or none where they do not:
// the percentiles are unknown then.
func (b *Buckets) Bounds() []float64 {
	bounds := b.compute()
	for i, bound := range bounds {
		if math.IsNaN(bound) || math.IsInf(bound, 0) || (i > 0 && bound <= bounds[i-1]) {
			return nil
		}
	}
	return bounds
}

func (b *Buckets) compute() []float64 {
	switch b.Kind {
	case Exponential:
		if b.Growth > 1 && b.Scale > 0 {
			return b.each(func(i float64) float64 { return b.Scale * math.Pow(b.Growth, i) })
		}
	case Linear:
		if b.Width > 0 {
			return b.each(func(i float64) float64 { return b.Offset + b.Width*i })
		}
	case Explicit:
		if len(b.Explicit)+1 <= maxBuckets {
			return b.Explicit
		}
	}
	return nil
}

func (b *Buckets) each(bound func(i float64) float64) []float64 {
	if b.Finite < 0 || b.Finite+2 > maxBuckets {
		return nil
	}
	bounds := make([]float64, b.Finite+1)
	for i := range bounds {
		bounds[i] = bound(float64(i))
	}
	return bounds
}

// Distribution is what was counted since a start.
type Distribution struct {
	Count int64
	Mean  float64
	// Min and Max are 0 where they are not known.
	Min, Max float64
	Buckets  Buckets
	// Counts are those below the first bound, between the bounds and from the last
	// bound on. Zeros at the end may be missing.
	Counts []int64
	// Start is zero where it is not known.
	Start time.Time
}

// usable tells whether the distribution counted something that makes sense.
func (d *Distribution) usable() bool {
	return d.Count > 0 && d.Count <= maxCount && !math.IsNaN(d.Mean) && !math.IsInf(d.Mean, 0)
}

// Merge makes one distribution of those that have one label. Counts are added up, and
// the mean is weighted by them. Those with other bounds than most of what was counted
// has are left out. It tells whether anything was counted.
func Merge(all []Distribution) (Distribution, bool) {
	var groups []Distribution
	for i := range all {
		d := &all[i]
		if !d.usable() {
			continue
		}
		at := slices.IndexFunc(groups, func(g Distribution) bool { return g.Buckets.Equal(&d.Buckets) })
		if at < 0 {
			first := *d
			first.Counts = slices.Clone(d.Counts)
			groups = append(groups, first)
			continue
		}
		groups[at].add(d)
	}
	var best Distribution
	for _, g := range groups {
		if g.Count > best.Count {
			best = g
		}
	}
	return best, best.usable()
}

// add adds another with the same bounds.
func (d *Distribution) add(other *Distribution) {
	sum := d.Count + other.Count
	d.Mean += (other.Mean - d.Mean) * (float64(other.Count) / float64(sum))
	d.Count = sum
	d.Min = smaller(d.Min, other.Min)
	d.Max = larger(d.Max, other.Max)
	for len(d.Counts) < len(other.Counts) {
		d.Counts = append(d.Counts, 0)
	}
	for i, n := range other.Counts {
		d.Counts[i] = plus(d.Counts[i], n)
	}
	if other.Start.IsZero() || d.Start.IsZero() {
		d.Start = time.Time{}
	} else if other.Start.Before(d.Start) {
		d.Start = other.Start
	}
}

// Since returns what was counted since an earlier state, and whether that can be told.
// What counts anew since then was counted since then.
func (d *Distribution) Since(earlier *Distribution) (Distribution, bool) {
	if !d.Start.Equal(earlier.Start) || d.Count < earlier.Count {
		return *d, true
	}
	if !d.Buckets.Equal(&earlier.Buckets) || !d.usable() || !earlier.usable() {
		return Distribution{}, false
	}
	since := *d
	since.Count = d.Count - earlier.Count
	if since.Count == 0 {
		return since, true
	}
	since.Mean = d.Mean + (d.Mean-earlier.Mean)*(float64(earlier.Count)/float64(since.Count))
	since.Counts = slices.Clone(d.Counts)
	for i, n := range earlier.Counts {
		if i == len(since.Counts) {
			since.Counts = append(since.Counts, 0)
		}
		since.Counts[i] -= n // one below 0 makes the percentiles unknown
	}
	return since, true
}

// plus is a number that no counts have where one of them is none that makes sense.
func plus(a, b int64) int64 {
	if a < 0 || b < 0 || a > maxCount || b > maxCount {
		return -1
	}
	return a + b
}

// smaller returns the smaller one of those that are set.
func smaller(a, b float64) float64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

func larger(a, b float64) float64 {
	if a == 0 || (b != 0 && b > a) {
		return b
	}
	return a
}

// Histogram returns the bounds and the counts of all buckets, one more than the bounds.
// There are none where the buckets are not understood, or empty.
func (d *Distribution) Histogram() (bounds []float64, counts []int64) {
	if !d.usable() {
		return nil, nil
	}
	bounds = d.Buckets.Bounds()
	if len(bounds) == 0 || len(d.Counts) > len(bounds)+1 {
		return nil, nil
	}
	if slices.ContainsFunc(d.Counts, func(n int64) bool { return n < 0 || n > maxCount }) {
		return nil, nil
	}
	if !slices.ContainsFunc(d.Counts, func(n int64) bool { return n > 0 }) {
		return nil, nil
	}
	counts = make([]int64, len(bounds)+1)
	copy(counts, d.Counts)
	return bounds, counts
}

// Stats are what is told of a distribution.
type Stats struct {
	Mean, P50, P90, P95, P99, P999 optional.Of[float64]
}

// Or fills what is missing.
func (s Stats) Or(other Stats) Stats {
	return Stats{
		Mean: s.Mean.Or(other.Mean), P50: s.P50.Or(other.P50), P90: s.P90.Or(other.P90),
		P95: s.P95.Or(other.P95), P99: s.P99.Or(other.P99), P999: s.P999.Or(other.P999),
	}
}

// Stats estimates mean and percentiles; nothing where nothing was counted.
func (d *Distribution) Stats() Stats {
	if !d.usable() {
		return Stats{}
	}
	s := Stats{Mean: optional.Some(d.Mean)}
	bounds, counts := d.Histogram()
	if bounds == nil {
		return s
	}
	s.P50 = d.percentile(0.5, bounds, counts)
	s.P90 = d.percentile(0.9, bounds, counts)
	s.P95 = d.percentile(0.95, bounds, counts)
	s.P99 = d.percentile(0.99, bounds, counts)
	s.P999 = d.percentile(0.999, bounds, counts)
	return s
}

// percentile takes the values of a bucket for evenly spread.
func (d *Distribution) percentile(q float64, bounds []float64, counts []int64) optional.Of[float64] {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	rank, before := q*total, 0.0
	for i, n := range counts {
		if n == 0 || before+float64(n) < rank {
			before += float64(n)
			continue
		}
		lower, upper := d.limits(i, bounds)
		return d.clamped(lower + (rank-before)/float64(n)*(upper-lower))
	}
	return optional.Of[float64]{}
}

// limits are those of a bucket.
func (d *Distribution) limits(i int, bounds []float64) (lower, upper float64) {
	switch {
	case i == 0 && d.Min > 0 && d.Min < bounds[0]:
		return d.Min, bounds[0]
	case i == 0:
		return min(0, bounds[0]), bounds[0]
	case i < len(bounds):
		return bounds[i-1], bounds[i]
	}
	lower = bounds[len(bounds)-1]
	if d.Max > lower {
		return lower, d.Max
	}
	return lower, lower
}

// clamped keeps an estimate within what was seen.
func (d *Distribution) clamped(v float64) optional.Of[float64] {
	if d.Max != 0 && d.Max >= d.Min {
		v = min(v, d.Max)
	}
	if d.Min != 0 && (d.Max == 0 || d.Max >= d.Min) {
		v = max(v, d.Min)
	}
	return Finite(v)
}

// Finite returns a number that is one, else none.
func Finite(v float64) optional.Of[float64] {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return optional.Of[float64]{}
	}
	return optional.Some(v)
}
