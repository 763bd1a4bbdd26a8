// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"github.com/prometheus/prometheus/model/histogram"
)

const (
	// maxNativeBuckets is how many neighbouring buckets one side of a native histogram
	// may have; OpenTelemetry's own have at most 160. Prometheus leaves gaps out, which
	// OpenTelemetry cannot, so that two observations could fill the memory.
	maxNativeBuckets = 1024
	// lowestSchema is the one with the widest buckets.
	lowestSchema = -4
)

const (
	malformedNative reason = "its native buckets are malformed"
	customBuckets   reason = "the bounds of its custom buckets are not part of the format"
	wideNative      reason = "its native buckets span too wide a range"
)

// finishNative makes a native histogram.
func (p *Parser) finishNative(f *Family, t *part) reason {
	h := t.native
	switch {
	case h == nil:
		return malformedNative
	case h.UsesCustomBuckets():
		return customBuckets
	case h.Validate() != nil:
		return malformedNative
	case !narrow(h):
		return wideNative
	}
	count, why := whole(h.Count)
	if why != "" {
		return why
	}
	zeros, why := whole(h.ZeroCount)
	if why != "" {
		return why
	}
	positive, why := p.exponential(h.PositiveSpans, h.PositiveBuckets)
	if why != "" {
		return why
	}
	negative, why := p.exponential(h.NegativeSpans, h.NegativeBuckets)
	if why != "" {
		return why
	}
	f.negative = f.negative || h.Sum < 0 || len(negative.Counts) > 0
	f.Natives = append(f.Natives, NativeHistogram{
		Labels: t.labels, Timestamp: t.timestamp, Start: t.start,
		Count: uint64(count), Sum: h.Sum, HasSum: true,
		Scale: h.Schema, ZeroCount: uint64(zeros), ZeroThreshold: h.ZeroThreshold,
		Positive: positive, Negative: negative, Exemplars: t.exemplars,
	})
	return ""
}

// narrow merges neighbouring buckets until there are few enough, and tells whether
// that can be had.
func narrow(h *histogram.FloatHistogram) bool {
	for max(width(h.PositiveSpans), width(h.NegativeSpans)) > maxNativeBuckets {
		if h.Schema <= lowestSchema || h.ReduceResolution(h.Schema-1) != nil {
			return false
		}
	}
	return true
}

// width returns how many buckets there are from the first span to the last.
func width(spans []histogram.Span) (buckets int64) {
	for i, s := range spans {
		buckets += int64(s.Length)
		if i > 0 {
			buckets += int64(s.Offset)
		}
	}
	return buckets
}

// exponential fills the gaps between spans. Prometheus numbers a bucket by its upper
// bound, OpenTelemetry by its lower one, so that its number is one less.
func (p *Parser) exponential(spans []histogram.Span, counts []float64) (ExponentialBuckets, reason) {
	if len(counts) == 0 {
		return ExponentialBuckets{}, ""
	}
	start := len(p.counts)
	for i, s := range spans {
		for gap := s.Offset; i > 0 && gap > 0; gap-- {
			p.counts = append(p.counts, 0)
		}
		for range s.Length {
			count, why := whole(counts[0])
			if why != "" {
				return ExponentialBuckets{}, why
			}
			p.counts = append(p.counts, uint64(count))
			counts = counts[1:]
		}
	}
	return ExponentialBuckets{Offset: spans[0].Offset - 1, Counts: p.counts[start:len(p.counts):len(p.counts)]}, ""
}
