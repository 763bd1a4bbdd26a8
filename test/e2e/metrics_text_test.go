// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// linesOf shows metrics as sorted text, one line per point, for comparison in full.
// Start times are shown where they are before a time, that is, where the endpoint
// told them.
func linesOf(rm pmetric.ResourceMetrics, before time.Time) []string {
	var lines []string
	for _, sm := range rm.ScopeMetrics().All() {
		for _, m := range sm.Metrics().All() {
			head := fmt.Sprintf("%s (%s, %s)", m.Name(), formOf(m), unitOrNone(m.Unit()))
			for _, text := range pointTexts(m, before) {
				lines = append(lines, head+" "+text)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func unitOrNone(unit string) string {
	if unit == "" {
		return "no unit"
	}
	return unit
}

func formOf(m pmetric.Metric) string {
	form := strings.ToLower(m.Type().String())
	if m.Type() != pmetric.MetricTypeSum {
		return form
	}
	if m.Sum().IsMonotonic() {
		form = "monotonic " + form
	}
	return strings.ToLower(m.Sum().AggregationTemporality().String()) + " " + form
}

func pointTexts(m pmetric.Metric, before time.Time) []string {
	var texts []string
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		texts = numberTexts(m.Gauge().DataPoints(), before)
	case pmetric.MetricTypeSum:
		texts = numberTexts(m.Sum().DataPoints(), before)
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			texts = append(texts, fmt.Sprintf("%s count %d sum %v buckets %v below %v%s", attributeText(p.Attributes()),
				p.Count(), p.Sum(), p.BucketCounts().AsRaw(), p.ExplicitBounds().AsRaw(), startText(p.StartTimestamp(), before)))
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			texts = append(texts, fmt.Sprintf("%s count %d sum %v%s%s", attributeText(p.Attributes()),
				p.Count(), p.Sum(), quantileText(p.QuantileValues()), startText(p.StartTimestamp(), before)))
		}
	case pmetric.MetricTypeEmpty, pmetric.MetricTypeExponentialHistogram:
	}
	return texts
}

func quantileText(quantiles pmetric.SummaryDataPointValueAtQuantileSlice) string {
	var text strings.Builder
	for _, q := range quantiles.All() {
		fmt.Fprintf(&text, " q%v=%v", q.Quantile(), q.Value())
	}
	return text.String()
}

func numberTexts(all pmetric.NumberDataPointSlice, before time.Time) []string {
	var texts []string
	for _, p := range all.All() {
		value := strconv.FormatInt(p.IntValue(), 10)
		if p.ValueType() == pmetric.NumberDataPointValueTypeDouble {
			value = fmt.Sprint(p.DoubleValue())
		}
		texts = append(texts, attributeText(p.Attributes())+" "+value+startText(p.StartTimestamp(), before))
	}
	return texts
}

func startText(at pcommon.Timestamp, before time.Time) string {
	if at == 0 || !at.AsTime().Before(before) {
		return ""
	}
	return " since " + at.AsTime().Format(time.RFC3339Nano)
}

func attributeText(attributes pcommon.Map) string {
	var all []string
	for key, value := range attributes.All() {
		text := value.AsString()
		if value.Type() == pcommon.ValueTypeStr {
			text = fmt.Sprintf("%q", text)
		}
		all = append(all, key+"="+text)
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ", ") + "}"
}
