// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// ScopeSource is the attribute of a scope that says where its metrics come from,
// where that changes their names; SourceDCGM is its value for DCGM's figures.
const (
	ScopeSource = "wandb.source"
	SourceDCGM  = "dcgm"
)

// LabelMark begins the label suffix of W&B's SDK: `cpu/l:LABEL`.
const LabelMark = "/l:"

const (
	// maxNames bounds the remembered names; beyond it they are forgotten and
	// made again. A node with 16 GPUs has some 500.
	maxNames = 1 << 14
	// emptiedName marks a metric whose points have all moved away.
	emptiedName = "\x00"
)

// Expander renames finished metrics. It may be used from several goroutines.
type Expander struct {
	style  Style
	suffix string
	rules  map[string]*rule

	mu sync.Mutex
	// dynamic holds the rules of names that the table lacks.
	dynamic map[string]*rule
	// names holds each full tag once, so that a known one costs no allocation.
	names map[string]*fullName
	// scope numbers the scopes; a fullName of another scope is not a target.
	scope uint64
	// dcgm says that the present scope has DCGM's figures, under W&B's names for those.
	dcgm bool
	// targets are the metrics that full tags of this scope have got.
	targets []pmetric.Metric
	// dests has the target of each point of the present metric.
	dests []int
	buf   []byte
}

type fullName struct {
	name   string
	scope  uint64
	target int
}

// New makes an Expander. The label (W&B's x_label) goes into the names of the
// sdk style only. A style that does not Validate works as Template.
func New(style Style, label string) *Expander {
	e := &Expander{style: style}
	if style != Tag && style != SDK {
		return e
	}
	if style == SDK && label != "" {
		e.suffix = LabelMark + label
	}
	e.dynamic = make(map[string]*rule)
	e.names = make(map[string]*fullName)
	e.rules = tableRules(style)
	for _, r := range e.rules {
		e.label(r)
	}
	return e
}

// label adds the label to a name that is the same for all points.
func (e *Expander) label(r *rule) {
	if r.tag == nil {
		r.name += e.suffix
	}
}

// Expand gives the metrics their full names. One metric becomes as many as its
// points have tags; points keep their attributes and all else. Metrics without
// a tag (gpu.mig.*) are dropped, unknown ones keep their name.
//
// A point that lacks the attribute of a placeholder, or has an empty one, is
// kept under the tag without that segment (`gpu.temp`,
// `tpu.hloExecTiming.tensorcore_0`); where that is another metric's tag
// (disk.device.in without device) under the metric's own name. But a single value of
// an endpoint that has no number has no tag, and is dropped.
//
// In the sdk style, a scope with [ScopeSource] = [SourceDCGM] has the names that
// W&B gives to DCGM's figures: the attribute node is a label suffix before the
// configured one, and gpu.memoryAllocatedBytes is `gpu.{gpu_index}.memoryUsed`.
func (e *Expander) Expand(md pmetric.Metrics) {
	if e.rules == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.names) > maxNames {
		clear(e.names)
	}
	if len(e.dynamic) > maxNames {
		clear(e.dynamic)
	}

	dropped := false
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			e.dcgm = e.style == SDK && isDCGM(sm.Scope())
			dropped = e.expandScope(sm.Metrics()) || dropped
		}
	}
	if dropped {
		removeEmpty(md)
	}
}

// expandScope tells whether it dropped a metric.
func (e *Expander) expandScope(ms pmetric.MetricSlice) (dropped bool) {
	e.scope++
	emptied := false
	// Metrics that are added on the way are finished.
	for i := range ms.Len() {
		m := ms.At(i)
		r := e.rule(m.Name())
		switch {
		case r.drop:
			dropped = true
		case r.numbered && !onlyNumbered(m):
			m.SetName(emptiedName)
			dropped = true
		case r.tag != nil:
			emptied = e.expandMetric(ms, m, r) || emptied
		case r.name != m.Name():
			m.SetName(r.name)
		}
	}
	if dropped || emptied {
		ms.RemoveIf(func(m pmetric.Metric) bool {
			return strings.HasPrefix(m.Name(), migPrefix) || m.Name() == emptiedName
		})
	}
	clear(e.targets) // holds no payload longer than needed
	e.targets = e.targets[:0]
	return dropped
}

func isDCGM(scope pcommon.InstrumentationScope) bool {
	source, ok := scope.Attributes().Get(ScopeSource)
	return ok && source.Type() == pcommon.ValueTypeStr && source.Str() == SourceDCGM
}

func removeEmpty(md pmetric.Metrics) {
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		rm.ScopeMetrics().RemoveIf(func(sm pmetric.ScopeMetrics) bool { return sm.Metrics().Len() == 0 })
		return rm.ScopeMetrics().Len() == 0
	})
}

func (e *Expander) rule(metric string) *rule {
	if e.dcgm {
		metric = dcgmName(metric)
	}
	if r, ok := e.rules[metric]; ok {
		return r
	}
	r, ok := e.dynamic[metric]
	if !ok {
		r, _ = dynamicRule(e.style, metric)
		e.label(r)
		e.dynamic[metric] = r
	}
	return r
}

// expandMetric tells whether m has no points left.
func (e *Expander) expandMetric(ms pmetric.MetricSlice, m pmetric.Metric, r *rule) (emptied bool) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return split(e, ms, m, r, func(m pmetric.Metric) pmetric.NumberDataPointSlice { return m.Gauge().DataPoints() })
	case pmetric.MetricTypeSum:
		return split(e, ms, m, r, func(m pmetric.Metric) pmetric.NumberDataPointSlice { return m.Sum().DataPoints() })
	case pmetric.MetricTypeHistogram:
		return split(e, ms, m, r, func(m pmetric.Metric) pmetric.HistogramDataPointSlice { return m.Histogram().DataPoints() })
	case pmetric.MetricTypeExponentialHistogram:
		return split(e, ms, m, r, func(m pmetric.Metric) pmetric.ExponentialHistogramDataPointSlice {
			return m.ExponentialHistogram().DataPoints()
		})
	case pmetric.MetricTypeSummary:
		return split(e, ms, m, r, func(m pmetric.Metric) pmetric.SummaryDataPointSlice { return m.Summary().DataPoints() })
	default:
		return false
	}
}

// onlyNumbered drops the single values without number, all of which would have one
// tag. It tells whether the metric has anything left.
func onlyNumbered(m pmetric.Metric) bool {
	var points pmetric.NumberDataPointSlice
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		points = m.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		points = m.Sum().DataPoints()
	default:
		return true
	}
	points.RemoveIf(func(p pmetric.NumberDataPoint) bool { return !hasNumber(p.Attributes()) })
	return points.Len() > 0
}

type point[P any] interface {
	Attributes() pcommon.Map
	MoveTo(P)
}

type pointSlice[P any] interface {
	Len() int
	At(int) P
	AppendEmpty() P
	RemoveIf(func(P) bool)
}

// split gives m the first tag of its points that no metric of the scope has
// yet, and moves the points of other tags to the metrics of those.
func split[P point[P], S pointSlice[P]](e *Expander, ms pmetric.MetricSlice, m pmetric.Metric, r *rule, points func(pmetric.Metric) S) (emptied bool) {
	from := points(m)
	n := from.Len()
	own, mine := -1, 0 // m as a target, and how many points it keeps
	first := len(e.targets)
	e.dests = e.dests[:0]
	for i := range n {
		full := e.fullName(r, from.At(i).Attributes())
		if !e.isTarget(full, m, first) {
			to := m
			if own < 0 {
				own = len(e.targets)
			} else {
				to = newMetric(ms, m)
			}
			to.SetName(full.name)
			full.scope, full.target = e.scope, len(e.targets)
			e.targets = append(e.targets, to)
		}
		e.dests = append(e.dests, full.target)
		if full.target == own {
			mine++
		}
	}
	if mine == n {
		return false
	}
	i := -1
	from.RemoveIf(func(p P) bool {
		i++
		if e.dests[i] == own {
			return false
		}
		p.MoveTo(points(e.targets[e.dests[i]]).AppendEmpty())
		return true
	})
	if mine == 0 {
		m.SetName(emptiedName)
	}
	return mine == 0
}

// isTarget tells whether the tag has a metric in this scope that may take m's
// points: one made for m (first and later) or another that is like it.
func (e *Expander) isTarget(full *fullName, m pmetric.Metric, first int) bool {
	return full.scope == e.scope && (full.target >= first || alike(e.targets[full.target], m))
}

func (e *Expander) fullName(r *rule, attrs pcommon.Map) *fullName {
	buf := r.render(e.buf[:0], attrs)
	if e.dcgm {
		buf = appendNode(buf, attrs)
	}
	buf = append(buf, e.suffix...)
	e.buf = buf
	full, ok := e.names[string(buf)]
	if !ok {
		full = &fullName{name: string(buf)}
		e.names[full.name] = full
	}
	return full
}

// newMetric appends a metric that is m but for its points; the name is to come.
func newMetric(ms pmetric.MetricSlice, m pmetric.Metric) pmetric.Metric {
	to := ms.AppendEmpty()
	to.SetDescription(m.Description())
	to.SetUnit(m.Unit())
	if m.Metadata().Len() > 0 {
		m.Metadata().CopyTo(to.Metadata())
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		to.SetEmptyGauge()
	case pmetric.MetricTypeSum:
		to.SetEmptySum().SetAggregationTemporality(m.Sum().AggregationTemporality())
		to.Sum().SetIsMonotonic(m.Sum().IsMonotonic())
	case pmetric.MetricTypeHistogram:
		to.SetEmptyHistogram().SetAggregationTemporality(m.Histogram().AggregationTemporality())
	case pmetric.MetricTypeExponentialHistogram:
		to.SetEmptyExponentialHistogram().SetAggregationTemporality(m.ExponentialHistogram().AggregationTemporality())
	case pmetric.MetricTypeSummary:
		to.SetEmptySummary()
	}
	return to
}

// alike tells whether one metric may take the points of the other, as when two
// vendors' builders have written the same metric.
func alike(a, b pmetric.Metric) bool {
	if a.Type() != b.Type() || a.Unit() != b.Unit() {
		return false
	}
	switch a.Type() {
	case pmetric.MetricTypeSum:
		return a.Sum().IsMonotonic() == b.Sum().IsMonotonic() &&
			a.Sum().AggregationTemporality() == b.Sum().AggregationTemporality()
	case pmetric.MetricTypeHistogram:
		return a.Histogram().AggregationTemporality() == b.Histogram().AggregationTemporality()
	case pmetric.MetricTypeExponentialHistogram:
		return a.ExponentialHistogram().AggregationTemporality() == b.ExponentialHistogram().AggregationTemporality()
	default:
		return true
	}
}
