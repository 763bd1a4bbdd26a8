// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
)

const (
	// maxCount is below the largest count, and a power of two.
	maxCount = 1 << 63
	// shownSeries is how many of the malformed series are told.
	shownSeries = 10
)

const (
	noCount     reason = "it has no count"
	badCount    reason = "a count is negative or no number"
	notCumulate reason = "its bucket counts do not ascend"
	aboveCount  reason = "a bucket count is above the count"
)

// part is a histogram or a summary that is put together from samples.
type part struct {
	family           int32
	labels           Labels
	timestamp, start Time
	count, sum       float64
	hasCount, hasSum bool
	// native is a native histogram, which comes in one piece; it is nil if it cannot be
	// read.
	isNative  bool
	native    *histogram.FloatHistogram
	exemplars []Exemplar
}

// point is a bucket or a quantile of a part: at is its upper bound or its quantile.
type point struct {
	part      int32
	at, value float64
	exemplar  *Exemplar
}

// addPoint adds a bucket or a quantile; label tells which.
func (p *Parser) addPoint(m *metric, s *sample, label string, missing reason) (reason, error) {
	at, ok := parseFloat(s.labels.take(label))
	if !ok || math.IsNaN(at) || math.IsInf(at, -1) {
		return missing, nil
	}
	i := p.partOf(m, s)
	if i < 0 {
		return "", nil
	}
	made := point{part: i, at: at, value: s.value}
	if label == "le" {
		made.exemplar = s.exemplar
	}
	p.points = append(p.points, made)
	return "", p.count()
}

// addTotal adds a count or a sum.
func (p *Parser) addTotal(as role, m *metric, s *sample) error {
	i := p.partOf(m, s)
	if i < 0 {
		return nil
	}
	value, has := &p.parts[i].sum, &p.parts[i].hasSum
	if as == roleCount {
		value, has = &p.parts[i].count, &p.parts[i].hasCount
	}
	if *has {
		p.out.Duplicates++
		*value = s.value
		return nil
	}
	*value, *has = s.value, true
	return p.count()
}

// partOf returns the part that a sample belongs to, -1 if the filter does not want
// it.
func (p *Parser) partOf(m *metric, s *sample) int32 {
	declared := m.declared
	if !p.keep(declared.name, s.labels) {
		return -1
	}
	p.out.Kept++
	k := kindHistogram
	if m.typ == TypeSummary {
		k = kindSummary
	}
	family := p.family(declared, declared, k, m.typ)
	at, key, found := p.find(family, s.labels)
	if !found {
		at = int32(len(p.parts))
		p.places[key] = place{family: family, at: at}
		p.parts = append(p.parts, part{family: family, labels: p.store(s.labels), start: s.start})
	}
	if s.timestamp.Known {
		p.parts[at].timestamp = s.timestamp
	}
	return at
}

// finishParts makes the histograms and summaries.
func (p *Parser) finishParts() {
	// Points with the same place stay in their order, for the last of them wins.
	slices.SortStableFunc(p.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.at, b.at))
	})
	points := p.lastOfEach()
	for i := range p.parts {
		n := 0
		for n < len(points) && int(points[n].part) == i {
			n++
		}
		p.finishPart(&p.parts[i], points[:n])
		points = points[n:]
	}
	for i := range p.out.Families {
		if f := &p.out.Families[i]; f.negative {
			f.dropSums()
		}
	}
}

// lastOfEach returns the points without those that a later one replaces.
func (p *Parser) lastOfEach() []point {
	kept := p.points[:0]
	for _, next := range p.points {
		if n := len(kept); n > 0 && kept[n-1].part == next.part && kept[n-1].at == next.at {
			p.out.Duplicates++
			kept[n-1] = next
			continue
		}
		kept = append(kept, next)
	}
	return kept
}

func (p *Parser) finishPart(t *part, points []point) {
	f := &p.out.Families[t.family]
	t.start = p.startOf(f.declared, t.labels, t.start)
	var why reason
	switch {
	case f.Type == TypeSummary:
		why = p.finishSummary(f, t, points)
	case t.isNative:
		why = p.finishNative(f, t)
	default:
		why = p.finishHistogram(f, t, points)
	}
	if why != "" {
		p.malformed(f, t, why)
	}
}

// malformed counts a histogram or summary that cannot be used.
func (p *Parser) malformed(f *Family, t *part, why reason) {
	p.out.Malformed++
	if len(p.out.MalformedSeries) == shownSeries {
		return
	}
	var b strings.Builder
	b.WriteString(beginning(f.Name, shownWord))
	for i := range t.labels {
		b.WriteString([...]string{"{", ","}[min(i, 1)])
		b.WriteString(beginning(t.labels[i].Name, shownWord) + "=" + beginning(t.labels[i].Value, shownWord))
	}
	b.WriteString(strings.Repeat("}", min(1, len(t.labels))) + ": " + string(why))
	p.out.MalformedSeries = append(p.out.MalformedSeries, b.String())
}

// whole rounds a count half away from zero; why tells that it is none.
func whole(count float64) (rounded float64, why reason) {
	rounded = math.Round(count)
	if !(rounded >= 0 && rounded < maxCount) {
		return 0, badCount
	}
	return rounded, ""
}

// finishHistogram makes a histogram with explicit bounds. The last bucket, if it has
// no bound, is the count.
func (p *Parser) finishHistogram(f *Family, t *part, points []point) reason {
	count, hasCount := t.count, t.hasCount
	bounded := points
	if n := len(points); n > 0 && math.IsInf(points[n-1].at, 1) {
		count, hasCount, bounded = points[n-1].value, true, points[:n-1]
	}
	if !hasCount {
		return noCount
	}
	total, why := whole(count)
	if why != "" {
		return why
	}
	bounds, counts := len(p.bounds), len(p.counts)
	if why := p.buckets(f, bounded, total); why != "" {
		p.bounds, p.counts = p.bounds[:bounds], p.counts[:counts]
		return why
	}
	h := Histogram{
		Labels: t.labels, Timestamp: t.timestamp, Start: t.start,
		Count: uint64(total), Sum: t.sum, HasSum: t.hasSum,
		Bounds: p.bounds[bounds:len(p.bounds):len(p.bounds)],
		Counts: p.counts[counts:len(p.counts):len(p.counts)],
	}
	for i := range points {
		if e := points[i].exemplar; e != nil {
			h.Exemplars = append(h.Exemplars, *e)
		}
	}
	f.negative = f.negative || t.sum < 0
	f.Histograms = append(f.Histograms, h)
	return ""
}

// buckets turns cumulative counts into those of each bucket.
func (p *Parser) buckets(f *Family, bounded []point, total float64) reason {
	before := 0.0
	for i := range bounded {
		count, why := whole(bounded[i].value)
		switch {
		case why != "":
			return why
		case count < before:
			return notCumulate
		case count > total:
			return aboveCount
		}
		f.negative = f.negative || bounded[i].at < 0 && count > 0
		p.bounds = append(p.bounds, bounded[i].at)
		p.counts = append(p.counts, uint64(count)-uint64(before))
		before = count
	}
	p.counts = append(p.counts, uint64(total)-uint64(before))
	return ""
}

// dropSums removes the sums of a histogram that observes negative values: they may
// fall, so that they are no cumulative values.
func (f *Family) dropSums() {
	for i := range f.Histograms {
		f.Histograms[i].Sum, f.Histograms[i].HasSum = 0, false
	}
	for i := range f.Natives {
		f.Natives[i].Sum, f.Natives[i].HasSum = 0, false
	}
}

func (p *Parser) finishSummary(f *Family, t *part, points []point) reason {
	if !t.hasCount {
		return noCount
	}
	count, why := whole(t.count)
	if why != "" {
		return why
	}
	start := len(p.quantiles)
	for i := range points {
		if !math.IsNaN(points[i].value) {
			p.quantiles = append(p.quantiles, Quantile{Quantile: points[i].at, Value: points[i].value})
		}
	}
	f.Summaries = append(f.Summaries, Summary{
		Labels: t.labels, Timestamp: t.timestamp, Start: t.start,
		Count: uint64(count), Sum: t.sum, HasSum: t.hasSum,
		Quantiles: p.quantiles[start:len(p.quantiles):len(p.quantiles)],
	})
	return ""
}
