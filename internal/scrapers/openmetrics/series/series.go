// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package series remembers the series of an endpoint from scrape to scrape: their
// numbers in W&B's tags, and since when what they count is counted.
package series

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

const (
	// memoryTime is how long a series that is missing is taken for the same when it
	// comes back.
	memoryTime = 5 * time.Minute
	// sweepTime is how often what is older is looked for.
	sweepTime = time.Minute
	// none is the index of a series without one.
	none = -1
)

// Limits bound what is remembered. Zero means the default.
type Limits struct {
	// Indices are the numbers that one metric name gives, AllIndices those of the
	// whole endpoint: an index is kept for good, so that it never means another series.
	Indices, AllIndices int
	// Others are the series without index whose state is kept while they are missing.
	Others int
}

// DefaultLimits returns 10,000 indices per name, 100,000 per endpoint, and 100,000
// other series.
func DefaultLimits() Limits {
	return Limits{Indices: 10_000, AllIndices: 100_000, Others: 100_000}
}

// Tracker holds the series of one endpoint. It sees the scrapes that succeeded: one
// that failed neither ends nor numbers a series. It is not safe for concurrent use.
type Tracker struct {
	limits Limits
	// markers says that a series' labels are kept, and the series of this and the last
	// scrape are listed, for Gone.
	markers      bool
	here, before []present

	names     map[key]*Name
	now, last pcommon.Timestamp
	swept     pcommon.Timestamp
	// indices and others are how many there are of what Limits bounds.
	indices, others int
	// unnumbered is the metric of the first series without the index that it should
	// have; overNumbered says that there was one.
	unnumbered   string
	overNumbered bool
	buf          []byte
}

// present is a series of a scrape.
type present struct {
	name   *Name
	series *Series
}

type key struct {
	name     string
	numbered bool
}

// New returns a tracker. With markers it can tell what is gone.
func New(limits Limits, markers bool) *Tracker {
	d := DefaultLimits()
	return &Tracker{
		limits: Limits{
			Indices:    orDefault(limits.Indices, d.Indices),
			AllIndices: orDefault(limits.AllIndices, d.AllIndices),
			Others:     orDefault(limits.Others, d.Others),
		},
		markers: markers,
		names:   map[key]*Name{},
	}
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// Name is a metric of the endpoint.
type Name struct {
	// Metric and Unit are the OpenTelemetry metric's, Type is what it was last; all
	// three are the caller's.
	Metric, Unit string
	Type         exposition.Type

	tracker  *Tracker
	numbered bool
	name     string
	next     int
	series   map[string]*Series
}

// Series is one label set of a metric.
type Series struct {
	// Labels are set if the tracker keeps them.
	Labels exposition.Labels
	// Native says that it is a native histogram; the caller sets it.
	Native bool

	index   int
	start   pcommon.Timestamp
	created pcommon.Timestamp
	value   float64
	// at is the time of the value, seen that of the last scrape that had the series.
	at, seen pcommon.Timestamp
}

// Index returns the number of the series in tags, and whether it has one.
func (s *Series) Index() (int, bool) { return s.index, s.index != none }

// Begin starts a scrape that succeeded.
func (t *Tracker) Begin(now pcommon.Timestamp) {
	t.now = now
	t.here, t.before = t.before[:0], t.here
}

// Name returns a metric, and whether it is new. Numbered ones give their series an
// index.
func (t *Tracker) Name(name string, numbered bool) (n *Name, fresh bool) {
	n = t.names[key{name, numbered}]
	if n != nil {
		return n, false
	}
	name = strings.Clone(name) // it is a part of the whole body
	n = &Name{tracker: t, numbered: numbered, name: name, series: map[string]*Series{}}
	t.names[key{name, numbered}] = n
	return n, true
}

// Gauge returns a series of which nothing is to be remembered but its index; it is nil
// where there is none.
func (n *Name) Gauge(labels exposition.Labels) *Series {
	s := n.find(labels)
	if s == nil && n.hasIndices() {
		s = n.add(labels)
	}
	if s != nil {
		n.touch(s)
	}
	return s
}

// Cumulative returns a series, and the time since when it counts: what the endpoint
// says, unless that is in the future, else the first scrape that saw it. When value is
// lower than before, it counts since the scrape before. The value is of the time at: if
// that is earlier than the scrape's, the times of the series' values stand for those of
// the scrapes, so that the start is not after the value and stays the same in the next
// scrapes.
func (n *Name) Cumulative(labels exposition.Labels, value float64, created exposition.Time, at pcommon.Timestamp) (*Series, pcommon.Timestamp) {
	s := n.find(labels)
	if s == nil {
		s = n.add(labels)
	}
	n.touch(s)
	t := n.tracker
	told := t.told(created)
	switch {
	case told != 0 && told != s.created:
		s.start, s.created = told, told
	case s.start == 0:
		s.start = min(at, t.now)
	case value < s.value && t.last != 0:
		s.start = t.last
		if at < t.now {
			s.start = min(s.at, t.last)
		}
	}
	s.value, s.at = value, at
	s.start = min(s.start, t.now) // the clock may have been set back
	return s, s.start
}

// told is when a series was created; 0 if that is not known or cannot be.
func (t *Tracker) told(created exposition.Time) pcommon.Timestamp {
	if !created.Known || created.Millis <= 0 {
		return 0
	}
	at := pcommon.NewTimestampFromTime(time.UnixMilli(created.Millis))
	if at > t.now {
		return 0
	}
	return at
}

func (n *Name) find(labels exposition.Labels) *Series {
	n.tracker.buf = labels.AppendKey(n.tracker.buf[:0])
	return n.series[string(n.tracker.buf)]
}

func (n *Name) add(labels exposition.Labels) *Series {
	t := n.tracker
	s := &Series{index: none}
	if n.hasIndices() {
		s.index = n.next
		n.next++
		t.indices++
	} else {
		t.others++
	}
	if t.markers {
		s.Labels = cloneLabels(labels)
	}
	n.series[string(t.buf)] = s
	return s
}

// hasIndices tells whether a new series gets an index; one that should and does not is
// remembered for NoIndex.
func (n *Name) hasIndices() bool {
	if !n.numbered {
		return false
	}
	t := n.tracker
	if n.next < t.limits.Indices && t.indices < t.limits.AllIndices {
		return true
	}
	if !t.overNumbered {
		t.overNumbered, t.unnumbered = true, n.name
	}
	return false
}

// touch says that a series is there. What was missing for long starts anew; what the
// last scrape showed was not missing, however long ago that was.
func (n *Name) touch(s *Series) {
	t, now := n.tracker, n.tracker.now
	if t.markers && s.seen != now {
		t.here = append(t.here, present{n, s})
	}
	missing := s.seen != 0 && s.seen != t.last && s.seen != now
	if missing && now > s.seen && now-s.seen > pcommon.Timestamp(memoryTime) {
		s.start, s.created, s.value = 0, 0, 0
	}
	s.seen = now
}

func cloneLabels(labels exposition.Labels) exposition.Labels {
	kept := make(exposition.Labels, len(labels))
	for i, l := range labels {
		kept[i] = exposition.Label{Name: strings.Clone(l.Name), Value: strings.Clone(l.Value)}
	}
	return kept
}

// NoIndex returns the metric whose series was the first to get no index, once.
func (t *Tracker) NoIndex() (metric string, found bool) {
	metric, t.unnumbered = t.unnumbered, ""
	return metric, metric != ""
}

// Gone calls a function for each series of the last successful scrape that is missing
// in this one.
func (t *Tracker) Gone(call func(*Name, *Series)) {
	for _, p := range t.before {
		if p.series.seen != t.now {
			call(p.name, p.series)
		}
	}
}

// End ends the scrape.
func (t *Tracker) End() {
	t.last = t.now
	clear(t.before)
	switch {
	case t.others > t.limits.Others:
		t.sweep(0)
	case t.swept == 0:
		t.swept = t.now
	case t.now-t.swept > pcommon.Timestamp(sweepTime):
		t.sweep(memoryTime)
	}
}

// sweep forgets the series without index that are missing for longer than a time, and
// the names that have no series.
func (t *Tracker) sweep(age time.Duration) {
	t.swept = t.now
	for k, n := range t.names {
		for text, s := range n.series {
			if s.index == none && s.seen < t.now && t.now-s.seen > pcommon.Timestamp(age) {
				delete(n.series, text)
				t.others--
			}
		}
		if len(n.series) == 0 {
			delete(t.names, k)
		}
	}
}
