// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/series"
)

// kind is what a metric of markers is made for.
type kind struct {
	name   *series.Name
	native bool
}

// stale writes a last point without a value for each series that has gone.
func (w *writer) stale() {
	metrics := map[kind]pmetric.Metric{}
	w.tracker.Gone(func(name *series.Name, s *series.Series) {
		of := kind{name, s.Native}
		m, ok := metrics[of]
		if !ok {
			m = w.out.AppendEmpty()
			m.SetName(name.Metric)
			m.SetUnit(name.Unit)
			of.setType(m)
			metrics[of] = m
		}
		p := appendPoint(m)
		p.SetTimestamp(w.now)
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		w.labels(p.Attributes(), s.Labels, s)
	})
}

func (k kind) setType(m pmetric.Metric) {
	switch k.name.Type {
	case exposition.TypeCounter, exposition.TypeInfo, exposition.TypeStateset:
		m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		m.Sum().SetIsMonotonic(k.name.Type == exposition.TypeCounter)
	case exposition.TypeHistogram:
		if k.native {
			m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			return
		}
		m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	case exposition.TypeSummary:
		m.SetEmptySummary()
	case exposition.TypeUnknown, exposition.TypeGauge, exposition.TypeGaugeHistogram:
		m.SetEmptyGauge()
	}
}

// point is what the points of all types have.
type point interface {
	Attributes() pcommon.Map
	SetFlags(pmetric.DataPointFlags)
	SetTimestamp(pcommon.Timestamp)
}

func appendPoint(m pmetric.Metric) point {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().AppendEmpty()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().AppendEmpty()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().DataPoints().AppendEmpty()
	case pmetric.MetricTypeSummary:
		return m.Summary().DataPoints().AppendEmpty()
	case pmetric.MetricTypeEmpty, pmetric.MetricTypeGauge:
	}
	return m.Gauge().DataPoints().AppendEmpty()
}
