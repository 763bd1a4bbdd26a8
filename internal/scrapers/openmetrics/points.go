// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"encoding/hex"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/datapoints"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/series"
)

const (
	metricPrefix = "openmetrics."
	// indexKey is the number of a label set, which W&B's tags end in.
	indexKey = "wandb.index"
	// maxPast and maxFuture bound explicit timestamps: what is beyond is no point of now.
	maxPast, maxFuture = 5 * time.Minute, 10 * time.Minute
	// latestMillis is the last time that OpenTelemetry's nanoseconds can express.
	latestMillis = math.MaxInt64 / int64(time.Millisecond)
)

// writer turns the families of one scrape into metrics.
type writer struct {
	prefix  string // of metric names
	tracker *series.Tracker
	limits  exposition.Limits
	honor   bool // explicit timestamps count

	out pmetric.MetricSlice
	now pcommon.Timestamp
	// owned are the scrape's texts that are copies, see detach; nil where they are none.
	owned map[string]string
}

// sparse is how many bytes a body may have for each byte of labels that is kept of it.
const sparse = 4

// detach makes the points' texts copies if few are kept of a large body. They are parts
// of it, and would keep all of it in memory for as long as the points wait to be sent.
func (w *writer) detach(families []exposition.Family, bodySize int) {
	w.owned = nil
	if labelBytes(families)*sparse < bodySize {
		w.owned = map[string]string{}
	}
}

// labelBytes is how long the labels of all series are.
func labelBytes(families []exposition.Family) (n int) {
	add := func(labels exposition.Labels) {
		for i := range labels {
			n += len(labels[i].Name) + len(labels[i].Value)
		}
	}
	for i := range families {
		f := &families[i]
		for j := range f.Samples {
			add(f.Samples[j].Labels)
		}
		for j := range f.Histograms {
			add(f.Histograms[j].Labels)
		}
		for j := range f.Natives {
			add(f.Natives[j].Labels)
		}
		for j := range f.Summaries {
			add(f.Summaries[j].Labels)
		}
	}
	return n
}

// own returns a text that may be kept; each one is copied once.
func (w *writer) own(text string) string {
	if w.owned == nil || text == "" {
		return text
	}
	own, ok := w.owned[text]
	if !ok {
		own = strings.Clone(text)
		w.owned[own] = own
	}
	return own
}

// begin starts a scrape whose metrics go to out.
func (w *writer) begin(out pmetric.MetricSlice, now pcommon.Timestamp) {
	w.out, w.now = out, now
	w.tracker.Begin(now)
}

// family writes all series of a family.
func (w *writer) family(f *exposition.Family) {
	if len(f.Samples) > 0 {
		w.samples(f)
	}
	if len(f.Histograms)+len(f.Natives)+len(f.Summaries) == 0 {
		return
	}
	name := w.name(f, false)
	w.histograms(f, name)
	w.natives(f, name)
	w.summaries(f, name)
}

// name returns what is remembered of the family's metric.
func (w *writer) name(f *exposition.Family, numbered bool) *series.Name {
	name, fresh := w.tracker.Name(f.Name, numbered)
	if fresh || name.Type != f.Type {
		name.Metric, name.Unit, name.Type = w.prefix+strings.Clone(f.Name), unitOf(f.Name, f.Unit), f.Type
	}
	return name
}

func (w *writer) metric(f *exposition.Family, name *series.Name) pmetric.Metric {
	m := w.out.AppendEmpty()
	m.SetName(name.Metric)
	m.SetDescription(f.Help)
	m.SetUnit(name.Unit)
	return m
}

// isNegative: a counter cannot be, so that what is below 0 is another thing.
func isNegative(s *exposition.Sample) bool { return s.Value < 0 }

func isFinite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

// samples writes single values.
func (w *writer) samples(f *exposition.Family) {
	name := w.name(f, true)
	cumulative := f.Type == exposition.TypeCounter || f.Type == exposition.TypeInfo || f.Type == exposition.TypeStateset
	var gauge, sum pmetric.NumberDataPointSlice
	haveGauge, haveSum := false, false
	for i := range f.Samples {
		s := &f.Samples[i]
		if !cumulative || (f.Type == exposition.TypeCounter && isNegative(s)) {
			if !haveGauge {
				gauge, haveGauge = w.metric(f, name).SetEmptyGauge().DataPoints(), true
				gauge.EnsureCapacity(len(f.Samples) - i)
			}
			w.gauge(gauge, name, s)
			continue
		}
		if !haveSum {
			sum, haveSum = w.sum(f, name), true
			sum.EnsureCapacity(len(f.Samples) - i)
		}
		w.cumulative(sum, name, s, f.Type == exposition.TypeCounter)
	}
}

func (w *writer) sum(f *exposition.Family, name *series.Name) pmetric.NumberDataPointSlice {
	sum := w.metric(f, name).SetEmptySum()
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	sum.SetIsMonotonic(f.Type == exposition.TypeCounter)
	return sum.DataPoints()
}

func (w *writer) gauge(to pmetric.NumberDataPointSlice, name *series.Name, s *exposition.Sample) {
	remembered := name.Gauge(s.Labels)
	at, ok := w.time(s.Timestamp)
	if !ok || !isFinite(s.Value) {
		return
	}
	p := to.AppendEmpty()
	p.SetTimestamp(at)
	p.SetDoubleValue(s.Value)
	w.labels(p.Attributes(), s.Labels, remembered)
}

func (w *writer) cumulative(to pmetric.NumberDataPointSlice, name *series.Name, s *exposition.Sample, monotonic bool) {
	if !isFinite(s.Value) {
		name.Gauge(s.Labels) // only its number is known
		return
	}
	counted := s.Value
	if !monotonic {
		counted = 0 // what may fall was not reset when it does
	}
	at, ok := w.time(s.Timestamp)
	remembered, start := name.Cumulative(s.Labels, counted, s.Start, at)
	if !ok {
		return
	}
	p := to.AppendEmpty()
	p.SetTimestamp(at)
	p.SetStartTimestamp(min(start, at))
	p.SetDoubleValue(s.Value)
	w.labels(p.Attributes(), s.Labels, remembered)
	if s.Exemplar != nil {
		w.exemplar(p.Exemplars().AppendEmpty(), s.Exemplar)
	}
}

// distribution is what histograms and summaries have in common.
type distribution struct {
	labels          exposition.Labels
	explicit, start exposition.Time
	count           uint64
	sum             float64
	hasSum          bool
}

// distributionPoint is a point of a histogram, of either kind, or of a summary.
type distributionPoint interface {
	point
	SetStartTimestamp(pcommon.Timestamp)
	SetCount(uint64)
	SetSum(float64)
}

// fill writes what they have in common into a new point, and tells whether there is
// one.
func fill[P distributionPoint](w *writer, name *series.Name, d *distribution, native bool, newPoint func() P) (p P, ok bool) {
	at, ok := w.time(d.explicit)
	remembered, start := name.Cumulative(d.labels, float64(d.count), d.start, at)
	remembered.Native = native
	if !ok {
		return p, false
	}
	p = newPoint()
	p.SetTimestamp(at)
	p.SetStartTimestamp(min(start, at))
	p.SetCount(d.count)
	if d.hasSum {
		p.SetSum(d.sum)
	}
	w.labels(p.Attributes(), d.labels, nil)
	return p, true
}

func (w *writer) histograms(f *exposition.Family, name *series.Name) {
	if len(f.Histograms) == 0 {
		return
	}
	m := w.metric(f, name).SetEmptyHistogram()
	m.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	points := m.DataPoints()
	points.EnsureCapacity(len(f.Histograms))
	for i := range f.Histograms {
		h := &f.Histograms[i]
		d := distribution{labels: h.Labels, explicit: h.Timestamp, start: h.Start, count: h.Count, sum: h.Sum, hasSum: h.HasSum}
		if p, ok := fill(w, name, &d, false, points.AppendEmpty); ok {
			p.ExplicitBounds().FromRaw(h.Bounds)
			p.BucketCounts().FromRaw(h.Counts)
			w.exemplars(p.Exemplars(), h.Exemplars)
		}
	}
}

func (w *writer) natives(f *exposition.Family, name *series.Name) {
	if len(f.Natives) == 0 {
		return
	}
	m := w.metric(f, name).SetEmptyExponentialHistogram()
	m.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	points := m.DataPoints()
	points.EnsureCapacity(len(f.Natives))
	for i := range f.Natives {
		h := &f.Natives[i]
		d := distribution{labels: h.Labels, explicit: h.Timestamp, start: h.Start, count: h.Count, sum: h.Sum, hasSum: h.HasSum}
		if p, ok := fill(w, name, &d, true, points.AppendEmpty); ok {
			p.SetScale(h.Scale)
			p.SetZeroCount(h.ZeroCount)
			p.SetZeroThreshold(h.ZeroThreshold)
			fillBuckets(p.Positive(), h.Positive)
			fillBuckets(p.Negative(), h.Negative)
			w.exemplars(p.Exemplars(), h.Exemplars)
		}
	}
}

func fillBuckets(to pmetric.ExponentialHistogramDataPointBuckets, from exposition.ExponentialBuckets) {
	to.SetOffset(from.Offset)
	to.BucketCounts().FromRaw(from.Counts)
}

func (w *writer) summaries(f *exposition.Family, name *series.Name) {
	if len(f.Summaries) == 0 {
		return
	}
	points := w.metric(f, name).SetEmptySummary().DataPoints()
	points.EnsureCapacity(len(f.Summaries))
	for i := range f.Summaries {
		s := &f.Summaries[i]
		d := distribution{labels: s.Labels, explicit: s.Timestamp, start: s.Start, count: s.Count, sum: s.Sum, hasSum: s.HasSum}
		p, ok := fill(w, name, &d, false, points.AppendEmpty)
		if !ok {
			continue
		}
		for _, q := range s.Quantiles {
			v := p.QuantileValues().AppendEmpty()
			v.SetQuantile(q.Quantile)
			v.SetValue(q.Value)
		}
	}
}

// time returns when a point was measured; an explicit time that is not about now makes
// it no point, and leaves the scrape's.
func (w *writer) time(explicit exposition.Time) (pcommon.Timestamp, bool) {
	if !w.honor || !explicit.Known {
		return w.now, true
	}
	at, now := time.UnixMilli(explicit.Millis), w.now.AsTime()
	if at.Before(now.Add(-maxPast)) || at.After(now.Add(maxFuture)) {
		return w.now, false
	}
	return pcommon.NewTimestampFromTime(at), true
}

// labels are a point's attributes, and with them the number of its label set.
func (w *writer) labels(to pcommon.Map, labels exposition.Labels, remembered *series.Series) {
	to.EnsureCapacity(len(labels) + 1)
	for _, l := range labels {
		to.PutStr(w.own(l.Name), w.own(w.limits.Shown(l.Value)))
	}
	if remembered == nil {
		return
	}
	if index, ok := remembered.Index(); ok {
		to.PutInt(indexKey, int64(index))
	}
}

func (w *writer) exemplars(to pmetric.ExemplarSlice, from []exposition.Exemplar) {
	to.EnsureCapacity(len(from))
	for i := range from {
		w.exemplar(to.AppendEmpty(), &from[i])
	}
}

// exemplar copies one; the labels that name a span go to the fields for that.
func (w *writer) exemplar(to pmetric.Exemplar, from *exposition.Exemplar) {
	to.SetDoubleValue(from.Value)
	to.SetTimestamp(w.now)
	if from.Timestamp.Known && from.Timestamp.Millis > 0 && from.Timestamp.Millis <= latestMillis {
		to.SetTimestamp(pcommon.NewTimestampFromTime(time.UnixMilli(from.Timestamp.Millis)))
	}
	for _, l := range from.Labels {
		if !setSpan(to, l) {
			to.FilteredAttributes().PutStr(w.own(l.Name), w.own(w.limits.Shown(l.Value)))
		}
	}
}

// setSpan tells whether a label names the trace or the span, as far as its form says.
func setSpan(to pmetric.Exemplar, l exposition.Label) bool {
	switch l.Name {
	case "trace_id":
		var id pcommon.TraceID
		if fillID(id[:], l.Value) {
			to.SetTraceID(id)
			return true
		}
	case "span_id":
		var id pcommon.SpanID
		if fillID(id[:], l.Value) {
			to.SetSpanID(id)
			return true
		}
	}
	return false
}

// fillID reads an id that is as long as to.
func fillID(to []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(to)) {
		return false
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// finish ends the scrape. Metrics whose values are all not finite have numbers in
// tags, and no point.
func (w *writer) finish(markers bool) {
	if markers {
		w.stale()
	}
	w.out.RemoveIf(func(m pmetric.Metric) bool { return datapoints.Count(m) == 0 })
	w.tracker.End()
	w.owned = nil
}
