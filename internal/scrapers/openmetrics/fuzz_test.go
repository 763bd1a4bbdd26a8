// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	dto "github.com/prometheus/prometheus/prompb/io/prometheus/client"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/series"
)

// seedBodies are what fuzzing starts from, with every type in them.
var seedBodies = []string{
	"# HELP a Help.\n# TYPE a gauge\na{x=\"1\"} 1 1767355200000\na NaN\nb -Inf\n",
	"# TYPE c counter\nc{x=\"1\"} 5\nc{x=\"2\"} -5\nc{x=\"3\"} +Inf\nc_created{x=\"1\"} 1767355100\n",
	"# TYPE c counter\n# UNIT c_seconds seconds\nc_total{a=\"b\"} 1 1767355199 # {trace_id=\"0af7651916cd43dd8448eb211c80319c\",span_id=\"b7ad6b7169203331\"} 0.5 1e30\nc_created{a=\"b\"} 1e9\n# EOF\n",
	"# TYPE h histogram\nh_bucket{le=\"1\"} 1 # {} NaN -1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n# TYPE s summary\ns{quantile=\"0.5\"} NaN\ns_sum NaN\ns_count 2\n# EOF\n",
	"# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE st stateset\nst{st=\"a\"} 1\n# TYPE g gaugehistogram\ng_bucket{le=\"1\"} 1\n# EOF\n",
	"{\"a\",\"wandb.index\"=\"0\"} 1\n{\"a\",\"wandb.index\"=\"1\"} 2\n# TYPE h histogram\n{\"h_bucket\",\"wandb.index\"=\"x\",le=\"+Inf\"} 1\n",
	"# TYPE a gauge\n# TYPE a histogram\na 1\na_bucket{le=\"+Inf\"} 1\na_count 1\na_count{x=\"\"} 1\n# TYPE a summary\na{quantile=\"1\"} 1\n",
	"target_info{service=\"x\"} 1\nbad{a=\"b\"c\"} 1\n", "",
}

func FuzzPoints(f *testing.F) {
	types := []string{classicType, openMetricsType, protobufType, ""}
	add := func(body string) {
		for i := range types {
			f.Add([]byte(body), uint8(i), i%2 == 0)
		}
	}
	for _, body := range seedBodies {
		add(body)
	}
	add(native(f, &dto.Histogram{SampleCount: 3, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 2}}, PositiveDelta: []int64{1, 1}}))
	add(native(f, &dto.Histogram{SampleCount: 1, Bucket: []dto.Bucket{{UpperBound: 1, CumulativeCount: 1, Exemplar: &dto.Exemplar{Value: 1}}}}))
	files, _ := filepath.Glob(filepath.Join(os.Getenv(samplesVariable), "openmetrics", "*.[pom]*"))
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && len(content) < 4096 {
			add(string(content))
		}
	}
	// Values are not cut: cut ones do not tell all series apart.
	limits := exposition.Limits{BodySize: 1 << 14, Series: 20, Labels: 4, LabelValue: 1 << 14, Name: 30}
	f.Fuzz(func(t *testing.T, body []byte, kind uint8, honor bool) {
		tracker := series.New(series.Limits{}, true)
		w := &writer{prefix: "openmetrics.e.", tracker: tracker, limits: limits, honor: honor}
		parser := exposition.New(exposition.Options{Limits: limits})
		var scrapes []pmetric.MetricSlice
		for i := range 2 {
			scrape, err := parser.Parse(body, types[int(kind)%len(types)], nil)
			if err != nil {
				return
			}
			out := pmetric.NewMetricSlice()
			w.begin(out, pcommon.NewTimestampFromTime(noon.Add(time.Duration(i)*time.Second)))
			for j := range scrape.Families {
				w.family(&scrape.Families[j])
			}
			w.finish(true)
			checkMetrics(t, out, limits.Series)
			scrapes = append(scrapes, out)
		}
		require.Equal(t, identities(scrapes[0]), identities(scrapes[1]), "the same body has the same series")
	})
}

// checkMetrics checks what must hold of every scrape.
func checkMetrics(t *testing.T, metrics pmetric.MetricSlice, maxPoints int) {
	t.Helper()
	requireUnique(t, metrics)
	points := 0
	for _, m := range metrics.All() {
		require.NotEmpty(t, m.Name())
		require.NotEmpty(t, pointsOf(m), "a metric without points")
		for _, p := range pointsOf(m) {
			points++
			require.NotZero(t, p.Timestamp())
			require.LessOrEqual(t, p.StartTimestamp(), p.Timestamp())
			require.Equal(t, m.Type() != pmetric.MetricTypeGauge, p.StartTimestamp() != 0)
			require.False(t, p.Flags().NoRecordedValue(), "nothing is gone")
			checkPoint(t, p)
		}
	}
	require.LessOrEqual(t, points, maxPoints)
}

func checkPoint(t *testing.T, p anyPoint) {
	t.Helper()
	switch p := p.(type) {
	case pmetric.NumberDataPoint:
		require.False(t, math.IsNaN(p.DoubleValue()) || math.IsInf(p.DoubleValue(), 0))
		checkExemplars(t, p.Exemplars())
	case pmetric.HistogramDataPoint:
		require.Equal(t, p.ExplicitBounds().Len()+1, p.BucketCounts().Len())
		sum := uint64(0)
		for _, n := range p.BucketCounts().All() {
			sum += n
		}
		require.Equal(t, p.Count(), sum)
		checkExemplars(t, p.Exemplars())
	case pmetric.ExponentialHistogramDataPoint:
		checkExemplars(t, p.Exemplars())
	case pmetric.SummaryDataPoint:
		for _, q := range p.QuantileValues().All() {
			require.False(t, math.IsNaN(q.Value()))
		}
	}
}

func checkExemplars(t *testing.T, all pmetric.ExemplarSlice) {
	t.Helper()
	for _, e := range all.All() {
		require.NotZero(t, e.Timestamp())
		require.LessOrEqual(t, e.Timestamp(), pcommon.Timestamp(math.MaxInt64))
	}
}

// identities are the points' names and attributes, the numbers among them.
func identities(metrics pmetric.MetricSlice) []string {
	var all []string
	for _, m := range metrics.All() {
		for _, p := range pointsOf(m) {
			all = append(all, m.Name()+" "+m.Type().String()+attributesOf(p.Attributes()))
		}
	}
	return all
}
