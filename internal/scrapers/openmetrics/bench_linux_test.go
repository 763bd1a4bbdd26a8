// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition/expositiontest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// BenchmarkAgainstExpfmt compares with what W&B reads expositions with: the parser of
// the classic format, for OpenMetrics too. x_cpu and x_allocs are the share of its cost
// that a whole scrape has but for HTTP (reading, filter, numbers, start times, points),
// x_cpu_read that of reading alone.
func BenchmarkAgainstExpfmt(b *testing.B) {
	for _, contentType := range []string{classicType, openMetricsType} {
		for _, series := range []int{1000, 20_000} {
			format := "classic"
			if contentType == openMetricsType {
				format = "openmetrics"
			}
			body := expositiontest.Body(series, contentType == openMetricsType)
			b.Run(fmt.Sprintf("%s/%d", format, series), func(b *testing.B) { compare(b, body, contentType, series) })
		}
	}
}

func compare(b *testing.B, body []byte, contentType string, series int) {
	b.Helper()
	e := endpointOf(b, map[string]any{"endpoint": "http://localhost:9400/metrics", "max_series": series})
	now := pcommon.Timestamp(1)
	read := func() *exposition.Scrape {
		s, err := e.parser.Parse(body, contentType, e.filter.Keep)
		if err != nil || s.Kept != series {
			b.Fatal(err, "wrong number of series")
		}
		return s
	}
	scrape := func() {
		now++
		if got := e.write(read(), now); got.metrics.Len() != series/20 {
			b.Fatal("wrong number of metrics")
		}
		e.filter.Next()
	}
	scrape() // the first one makes the buffers, and remembers the series
	times := 200_000 / series
	theirs := scraperstest.CostOf(b, times, func() {
		if n := readWithExpfmt(b, body); n != series {
			b.Fatal("expfmt read", n)
		}
	})
	reading := scraperstest.CostOf(b, times, func() { read() })
	whole := scraperstest.CostOf(b, times, scrape)
	b.ReportMetric(whole.CPU.Seconds()*1e3, "ms_cpu")
	b.ReportMetric(theirs.CPU.Seconds()*1e3, "expfmt_ms_cpu")
	b.ReportMetric(float64(whole.CPU)/float64(theirs.CPU), "x_cpu")
	b.ReportMetric(float64(reading.CPU)/float64(theirs.CPU), "x_cpu_read")
	b.ReportMetric(whole.Allocs, "allocs")
	b.ReportMetric(whole.Allocs/theirs.Allocs, "x_allocs")
	b.ReportMetric(0, "ns/op")
}

func readWithExpfmt(tb testing.TB, body []byte) (series int) {
	tb.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(tb, err)
	for _, f := range families {
		series += len(f.GetMetric())
	}
	return series
}
