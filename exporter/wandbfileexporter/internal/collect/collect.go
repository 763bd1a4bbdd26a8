// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package collect sorts the points of payloads into records: what one machine or
// workload had within one interval, under the tags that W&B's SDK writes.
package collect

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
	"github.com/wandbsys/otelcol-wandbsys/internal/datapoints"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
)

const (
	attrVendor = "gpu_vendor"
	gpuPrefix  = "gpu."
	// maxKey bounds a tag; a path has up to 4096 bytes.
	maxKey = 8 << 10
)

// Reasons for which points are not written.
const (
	Duplicate = "duplicate"
	Histogram = "histogram"
	TooLong   = "key"
	Limit     = "limit"
	NoTag     = "no_tag"
	NotFinite = "not_finite"
	Unknown   = "unknown"
)

// Options say what is collected.
type Options struct {
	// Hosts and Workloads say which runs are asked for.
	Hosts, Workloads bool
	// IncludeUnknown takes metrics that W&B has no tag for, under their own name.
	IncludeUnknown bool
	// Interval is the longest time that the parts of a record are apart, and waited for.
	Interval time.Duration
	// IdleTimeout is after how long without points a source is finished; 0 is never.
	IdleTimeout time.Duration
	// MaxRuns is how many sources there may be.
	MaxRuns int
	// LocalHost is the name for resources that have none.
	LocalHost string
	// Now is the clock.
	Now func() time.Time
	// Dropped is told how many points were not taken, and why.
	Dropped func(reason string, points int)
}

// Collector holds the sources. It is not for concurrent use.
type Collector struct {
	Options
	// began is when the exporter did: counters that start later count for its runs only.
	began   pcommon.Timestamp
	keys    *naming.Keys
	sources map[string]*Source
	// ordered are the sources by their keys, nil if they are to be sorted anew.
	ordered []*Source
	// buf and part are memory for Add, tally counts what it drops by reason.
	buf   []byte
	part  []placed
	tally map[string]int
}

// New returns a Collector without sources.
func New(o Options) *Collector {
	return &Collector{Options: o, began: pcommon.NewTimestampFromTime(o.Now()), keys: naming.NewKeys(), sources: map[string]*Source{}, tally: map[string]int{}}
}

// Add sorts a payload in. The points of resources that refuse says no to are left, and
// their places in the payload returned.
func (c *Collector) Add(md pmetric.Metrics, refuse func(*Source) bool) (left []int) {
	for i, rm := range md.ResourceMetrics().All() {
		subject := c.subjectOf(rm)
		if (subject.workload && !c.Workloads) || (!subject.workload && !c.Hosts) {
			continue
		}
		a := adder{Collector: c, subject: subject, label: text(rm.Resource().Attributes(), attrLabel), part: c.part[:0]}
		a.source = c.sources[subject.key]
		if a.source != nil && refuse(a.source) {
			left = append(left, i)
			continue
		}
		for _, sm := range rm.ScopeMetrics().All() {
			own := ownScope(sm.Scope())
			for _, m := range sm.Metrics().All() {
				a.add(sm.Scope(), own, m)
			}
		}
		a.place()
		c.part = a.part
	}
	for reason, points := range c.tally {
		c.Dropped(reason, points)
	}
	clear(c.tally)
	return left
}

// adder sorts in the points of one resource.
type adder struct {
	*Collector
	subject subject
	label   string
	source  *Source
	learned bool
	// part are points of one time that are not in a record yet.
	part []placed
}

func (a *adder) add(scope pcommon.InstrumentationScope, own bool, m pmetric.Metric) {
	var points pmetric.NumberDataPointSlice
	kind := runs.Value
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		points = m.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		points = m.Sum().DataPoints()
		kind = kindOf(m.Sum())
	default:
		a.drop(a.reason(own, Histogram), datapoints.Count(m))
		return
	}
	var key naming.Key
	known := false
	if own {
		key, known = a.keys.Metric(scope, m.Name())
	}
	for _, p := range points.All() {
		a.addPoint(m, key, known, own, kind, p)
	}
}

// kindOf tells how the values of a sum follow each other. Of those that count from
// a start only disk and network tags count from the run's start in W&B: see countsFromRun.
func kindOf(sum pmetric.Sum) runs.Kind {
	switch {
	case sum.AggregationTemporality() == pmetric.AggregationTemporalityDelta:
		return runs.Delta
	case sum.IsMonotonic():
		return runs.Counter
	default:
		return runs.Value
	}
}

func (a *adder) addPoint(m pmetric.Metric, key naming.Key, known, own bool, kind runs.Kind, p pmetric.NumberDataPoint) {
	if p.Flags().NoRecordedValue() || p.ValueType() == pmetric.NumberDataPointValueTypeEmpty {
		return // the series has ended
	}
	value, ok := number(p)
	if !ok {
		a.drop(NotFinite, 1)
		return
	}
	tag := a.buf[:0]
	if known {
		tag, known = key.Append(tag, p.Attributes(), a.label)
	}
	if !known {
		if !a.IncludeUnknown {
			a.drop(a.reason(own, NoTag), 1)
			return
		}
		tag = appendUnknown(tag, m.Name(), p.Attributes())
	}
	if !utf8.Valid(tag) {
		tag = []byte(strings.ToValidUTF8(string(tag), string(utf8.RuneError)))
	}
	a.buf = tag
	if len(tag) == 0 || len(tag) > maxKey {
		a.drop(TooLong, 1)
		return
	}
	if !a.hasSource() {
		a.drop(Limit, 1)
		return
	}
	if kind == runs.Counter && (!known || !countsFromRun(tag)) {
		kind = runs.Value
	}
	at := p.Timestamp()
	if at == 0 || at > math.MaxInt64 { // none, or none that a clock could have shown
		at = pcommon.NewTimestampFromTime(a.Now())
	}
	if n := len(a.part); n > 0 && a.part[0].at != at {
		a.place()
	}
	a.part = append(a.part, placed{a.source.slot(tag, p.Attributes()), at, runs.Item{Value: value, Kind: kind, Start: p.StartTimestamp()}})
}

// place puts the points of one time into the source's record.
func (a *adder) place() {
	if len(a.part) > 0 {
		a.drop(Duplicate, a.source.putAll(a.part, a.Collector))
		a.part = a.part[:0]
	}
}

// hasSource makes the source when the first point is there for it.
func (a *adder) hasSource() bool {
	if a.source == nil {
		if len(a.sources) >= a.MaxRuns {
			return false
		}
		a.source = newSource(a.subject)
		a.sources[a.subject.key] = a.source
		a.ordered = nil
	}
	if !a.learned {
		a.learned = true
		a.source.seen = a.Now()
		a.source.forget()
		a.source.learn(a.subject.attributes)
		if host := a.subject.host; host != "" && text(a.source.attrs, attrHost) == "" {
			a.source.attrs.PutStr(attrHost, host)
		}
	}
	return true
}

func number(p pmetric.NumberDataPoint) (runs.Number, bool) {
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return runs.Int(p.IntValue()), true
	}
	return runs.Float(p.DoubleValue())
}

// countsFromRun tells whether W&B gives a counter as what it counted since the run
// began. All others, as ECC errors, are the device's.
func countsFromRun(tag []byte) bool {
	return bytes.HasPrefix(tag, []byte("disk.")) || bytes.HasPrefix(tag, []byte("network."))
}

// appendUnknown makes a key of a metric that W&B has no tag for. Attributes are a
// label, since they make series that W&B tells apart by its key alone.
func appendUnknown(key []byte, name string, attrs pcommon.Map) []byte {
	key = append(key, name...)
	if attrs.Len() == 0 {
		return key
	}
	return append(append(key, naming.LabelMark...), joined(attrs)...)
}

// reason is of, but for metrics that are nobody's business here.
func (a *adder) reason(own bool, of string) string {
	if own || a.IncludeUnknown {
		return of
	}
	return Unknown
}

func (a *adder) drop(reason string, n int) {
	if n > 0 {
		a.tally[reason] += n
	}
}

// CloseDue closes the records that were open for an interval.
func (c *Collector) CloseDue() {
	for _, s := range c.sources {
		if len(s.items) > 0 && c.Now().Sub(s.opened) >= c.Interval {
			s.close()
		}
	}
}

// CloseAll closes all records.
func (c *Collector) CloseAll() {
	for _, s := range c.sources {
		s.close()
	}
}

// Sources returns the sources in the order of their keys. What is returned stays as it
// is, and must not be changed.
func (c *Collector) Sources() []*Source {
	if c.ordered == nil {
		c.ordered = make([]*Source, 0, len(c.sources))
		for _, key := range slices.Sorted(maps.Keys(c.sources)) {
			c.ordered = append(c.ordered, c.sources[key])
		}
	}
	return c.ordered
}

// Idle tells whether nothing came for a source for so long that it is finished.
func (c *Collector) Idle(s *Source) bool {
	return c.IdleTimeout > 0 && len(s.items) == 0 && len(s.ready) == 0 && c.Now().Sub(s.seen) >= c.IdleTimeout
}

// Forget removes a source that is finished.
func (c *Collector) Forget(s *Source) {
	delete(c.sources, s.key)
	c.ordered = nil
}
