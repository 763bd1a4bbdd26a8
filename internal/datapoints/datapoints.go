// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package datapoints counts the data points of metrics of any type.
package datapoints

import "go.opentelemetry.io/collector/pdata/pmetric"

// Count returns how many data points a metric has.
func Count(m pmetric.Metric) int {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints().Len()
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().Len()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().Len()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().DataPoints().Len()
	case pmetric.MetricTypeSummary:
		return m.Summary().DataPoints().Len()
	default:
		return 0
	}
}
