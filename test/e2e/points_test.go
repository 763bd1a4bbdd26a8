// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// point is one data point with all that it belongs to.
type point struct {
	name     string
	shape    shape
	resource map[string]any
	attrs    map[string]any
	start    time.Time // zero where there is none
	at       time.Time
	value    float64
}

// shape is what all points of a metric have in common.
type shape struct {
	unit string
	// form is "gauge" or "sum"; sums are told apart further.
	form        string
	monotonic   bool
	temporality pmetric.AggregationTemporality
	number      pmetric.NumberDataPointValueType
}

type points []point

func pointsOf(md pmetric.Metrics) points {
	var all points
	for _, rm := range md.ResourceMetrics().All() {
		resource := rm.Resource().Attributes().AsRaw()
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				all = append(all, pointsOfMetric(m, resource)...)
			}
		}
	}
	return all
}

func pointsOfMetric(m pmetric.Metric, resource map[string]any) points {
	common := shape{unit: m.Unit()}
	slice := pmetric.NewNumberDataPointSlice()
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		common.form, slice = "gauge", m.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		common.form, slice = "sum", m.Sum().DataPoints()
		common.monotonic, common.temporality = m.Sum().IsMonotonic(), m.Sum().AggregationTemporality()
	}
	var all points
	for _, dp := range slice.All() {
		p := point{name: m.Name(), shape: common, resource: resource, attrs: dp.Attributes().AsRaw()}
		p.start, p.at = timeOf(dp.StartTimestamp()), timeOf(dp.Timestamp())
		p.shape.number = dp.ValueType()
		p.value = dp.DoubleValue()
		if dp.ValueType() == pmetric.NumberDataPointValueTypeInt {
			p.value = float64(dp.IntValue())
		}
		all = append(all, p)
	}
	return all
}

func timeOf(t pcommon.Timestamp) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.AsTime()
}

func (ps points) filter(keep func(point) bool) points {
	var kept points
	for _, p := range ps {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

func (ps points) named(name string) points {
	return ps.filter(func(p point) bool { return p.name == name })
}

// with keeps points with this attribute.
func (ps points) with(key string, value any) points {
	return ps.filter(func(p point) bool { return p.attrs[key] == value })
}

// from keeps points of resources with this host.name.
func (ps points) from(host any) points {
	return ps.filter(func(p point) bool { return p.resource["host.name"] == host })
}

// ofMachine keeps points of no process.
func (ps points) ofMachine() points {
	return ps.filter(func(p point) bool { return p.resource["wandbsys.workload.kind"] == nil })
}

// ofProcess keeps points of processes.
func (ps points) ofProcess() points {
	return ps.filter(func(p point) bool { return p.resource["wandbsys.workload.kind"] != nil })
}

// ofPid keeps points of the process with this pid.
func (ps points) ofPid(pid int) points {
	return ps.filter(func(p point) bool { return p.resource["process.pid"] == int64(pid) })
}

// names lists the metrics, sorted.
func (ps points) names() []string {
	var names []string
	for _, p := range ps {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (ps points) last() point {
	if len(ps) == 0 {
		return point{}
	}
	return ps[len(ps)-1]
}
