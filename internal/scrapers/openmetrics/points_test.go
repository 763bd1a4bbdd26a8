// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/prometheus/prompb/io/prometheus/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/series"
)

// noon is the time of most first scrapes; it is 1767355200 in expositions.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// lab turns bodies into metrics at chosen times.
type lab struct {
	t           testing.TB
	parser      *exposition.Parser
	writer      writer
	contentType string
	markers     bool
}

func newLab(t testing.TB, contentType string, change ...func(*lab)) *lab {
	t.Helper()
	l := &lab{t: t, contentType: contentType}
	l.writer = writer{prefix: metricPrefix + "e.", limits: exposition.DefaultLimits()}
	for _, c := range change {
		c(l)
	}
	l.parser = exposition.New(exposition.Options{Limits: l.writer.limits})
	l.writer.tracker = series.New(series.Limits{}, l.markers)
	return l
}

func withMarkers(l *lab) { l.markers = true }
func honoring(l *lab)    { l.writer.honor = true }

// metrics are those of a scrape that is so long after noon.
func (l *lab) metrics(at time.Duration, body string) pmetric.MetricSlice {
	l.t.Helper()
	scrape, err := l.parser.Parse([]byte(body), l.contentType, nil)
	require.NoError(l.t, err)
	out := pmetric.NewMetricSlice()
	l.writer.begin(out, pcommon.NewTimestampFromTime(noon.Add(at)))
	for i := range scrape.Families {
		l.writer.family(&scrape.Families[i])
	}
	l.writer.finish(l.markers)
	requireUnique(l.t, out)
	return out
}

func (l *lab) scrape(at time.Duration, body string) []string {
	l.t.Helper()
	return describe(l.metrics(at, body))
}

// requireUnique wants no two points with the same name and attributes.
func requireUnique(t testing.TB, metrics pmetric.MetricSlice) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range metrics.All() {
		for _, p := range pointsOf(m) {
			key := fmt.Sprint(m.Name(), attributesOf(p.Attributes()))
			require.False(t, seen[key], "two points %s", key)
			seen[key] = true
		}
	}
}

// anyPoint is what the points of all types have.
type anyPoint interface {
	Attributes() pcommon.Map
	Flags() pmetric.DataPointFlags
	StartTimestamp() pcommon.Timestamp
	Timestamp() pcommon.Timestamp
}

func collect[P anyPoint](all func(func(int, P) bool)) (points []anyPoint) {
	for _, p := range all {
		points = append(points, p)
	}
	return points
}

func pointsOf(m pmetric.Metric) []anyPoint {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return collect(m.Gauge().DataPoints().All())
	case pmetric.MetricTypeSum:
		return collect(m.Sum().DataPoints().All())
	case pmetric.MetricTypeHistogram:
		return collect(m.Histogram().DataPoints().All())
	case pmetric.MetricTypeExponentialHistogram:
		return collect(m.ExponentialHistogram().DataPoints().All())
	case pmetric.MetricTypeSummary:
		return collect(m.Summary().DataPoints().All())
	}
	return nil
}

// describe writes a line for each metric, and one for each of its points.
func describe(metrics pmetric.MetricSlice) []string {
	var lines []string
	for _, m := range metrics.All() {
		lines = append(lines, fmt.Sprintf("%s: %s%s, unit %q, %q", m.Name(), m.Type(), temporality(m), m.Unit(), m.Description()))
		for _, p := range pointsOf(m) {
			lines = append(lines, "  "+attributesOf(p.Attributes())+" "+valueText(p)+timesOf(p))
		}
	}
	return lines
}

func temporality(m pmetric.Metric) string {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		if m.Sum().IsMonotonic() {
			return ", monotonic, " + m.Sum().AggregationTemporality().String()
		}
		return ", " + m.Sum().AggregationTemporality().String()
	case pmetric.MetricTypeHistogram:
		return ", " + m.Histogram().AggregationTemporality().String()
	case pmetric.MetricTypeExponentialHistogram:
		return ", " + m.ExponentialHistogram().AggregationTemporality().String()
	}
	return ""
}

// attributesOf writes the number of the series as #.
func attributesOf(m pcommon.Map) string {
	raw := m.AsRaw()
	var parts []string
	if index, ok := raw[indexKey].(int64); ok {
		parts = append(parts, fmt.Sprintf("#=%d", index))
		delete(raw, indexKey)
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		parts = append(parts, fmt.Sprintf("%s=%v", key, raw[key]))
	}
	return "{" + strings.Join(parts, " ") + "}"
}

func valueText(p anyPoint) string {
	if p.Flags().NoRecordedValue() {
		return "gone"
	}
	switch p := p.(type) {
	case pmetric.NumberDataPoint:
		return fmt.Sprint(p.DoubleValue()) + exemplarsOf(p.Exemplars())
	case pmetric.HistogramDataPoint:
		return fmt.Sprintf("count %d%s %v%v", p.Count(), sumText(p.HasSum(), p.Sum()), p.ExplicitBounds().AsRaw(), p.BucketCounts().AsRaw()) + exemplarsOf(p.Exemplars())
	case pmetric.ExponentialHistogramDataPoint:
		return fmt.Sprintf("count %d%s scale %d zero %d<%v %d%v%d%v", p.Count(), sumText(p.HasSum(), p.Sum()), p.Scale(), p.ZeroCount(), p.ZeroThreshold(),
			p.Positive().Offset(), p.Positive().BucketCounts().AsRaw(), p.Negative().Offset(), p.Negative().BucketCounts().AsRaw())
	case pmetric.SummaryDataPoint:
		return fmt.Sprintf("count %d%s%s", p.Count(), sumText(true, p.Sum()), quantilesOf(p))
	}
	return ""
}

func quantilesOf(p pmetric.SummaryDataPoint) string {
	var text strings.Builder
	for _, q := range p.QuantileValues().All() {
		_, _ = fmt.Fprintf(&text, " q%v=%v", q.Quantile(), q.Value())
	}
	return text.String()
}

func sumText(has bool, sum float64) string {
	if !has {
		return ""
	}
	return fmt.Sprint(" sum ", sum)
}

func exemplarsOf(all pmetric.ExemplarSlice) string {
	var text strings.Builder
	for _, e := range all.All() {
		_, _ = fmt.Fprintf(&text, " ex(%v %v%s/%s%s)", e.DoubleValue(), e.FilteredAttributes().AsRaw(), e.TraceID(), e.SpanID(), relative(e.Timestamp()))
	}
	return text.String()
}

// timesOf are the point's start and time, in seconds after noon.
func timesOf(p anyPoint) string {
	if p.StartTimestamp() == 0 {
		return relative(p.Timestamp())
	}
	return relative(p.StartTimestamp()) + ".." + strings.TrimPrefix(relative(p.Timestamp()), " @")
}

func relative(at pcommon.Timestamp) string {
	return fmt.Sprint(" @", at.AsTime().Sub(noon).Seconds())
}

func TestTypesBecomeOpenTelemetrys(t *testing.T) {
	for name, tt := range map[string]struct {
		contentType, body string
		want              []string
	}{
		"gauge": {classicType, "# HELP m_celsius How warm.\n# TYPE m_celsius gauge\nm_celsius{gpu=\"1\"} 5.5\nm_celsius{gpu=\"0\"} -3\n", []string{
			`openmetrics.e.m_celsius: Gauge, unit "Cel", "How warm."`, "  {#=0 gpu=1} 5.5 @0", "  {#=1 gpu=0} -3 @0",
		}},
		"unknown":         {classicType, "m 5\n", []string{`openmetrics.e.m: Gauge, unit "", ""`, "  {#=0} 5 @0"}},
		"a name with dot": {classicType, "# TYPE \"a.b c\" gauge\n{\"a.b c\",\"x y\"=\"1\"} 5\n", []string{`openmetrics.e.a.b c: Gauge, unit "", ""`, "  {#=0 x y=1} 5 @0"}},
		"classic counter": {classicType, "# TYPE m counter\nm 5\n", []string{`openmetrics.e.m: Sum, monotonic, Cumulative, unit "", ""`, "  {#=0} 5 @0..0"}},
		"counter with a total": {classicType, "# TYPE m_bytes_total counter\nm_bytes_total 5\n", []string{
			`openmetrics.e.m_bytes_total: Sum, monotonic, Cumulative, unit "By", ""`, "  {#=0} 5 @0..0",
		}},
		"counter of OpenMetrics": {openMetricsType, "# TYPE m_joules counter\n# UNIT m_joules joules\n# HELP m_joules Help.\nm_joules_total 5\nm_joules_created 1767355190.5\n# EOF\n", []string{
			`openmetrics.e.m_joules_total: Sum, monotonic, Cumulative, unit "J", "Help."`, "  {#=0} 5 @-9.5..0",
		}},
		"a counter below zero": {classicType, "# TYPE m counter\nm{a=\"1\"} 5\nm{a=\"2\"} -5\nm{a=\"3\"} 6\n", []string{
			`openmetrics.e.m: Sum, monotonic, Cumulative, unit "", ""`, "  {#=0 a=1} 5 @0..0", "  {#=2 a=3} 6 @0..0",
			`openmetrics.e.m: Gauge, unit "", ""`, "  {#=1 a=2} -5 @0",
		}},
		"info": {openMetricsType, "# TYPE m info\nm_info{v=\"1\"} 1\n# EOF\n", []string{`openmetrics.e.m_info: Sum, Cumulative, unit "", ""`, "  {#=0 v=1} 1 @0..0"}},
		"stateset": {openMetricsType, "# TYPE m stateset\nm{m=\"on\"} 1\nm{m=\"off\"} 0\n# EOF\n", []string{
			`openmetrics.e.m: Sum, Cumulative, unit "", ""`, "  {#=0 m=on} 1 @0..0", "  {#=1 m=off} 0 @0..0",
		}},
		"histogram": {classicType, "# TYPE m_seconds histogram\nm_seconds_bucket{a=\"b\",le=\"2\"} 3\nm_seconds_bucket{a=\"b\",le=\"1\"} 1\nm_seconds_bucket{a=\"b\",le=\"+Inf\"} 7\nm_seconds_sum{a=\"b\"} 9.5\nm_seconds_count{a=\"b\"} 7\n", []string{
			`openmetrics.e.m_seconds: Histogram, Cumulative, unit "s", ""`, "  {a=b} count 7 sum 9.5 [1 2][1 2 4] @0..0",
		}},
		"histogram without sum": {classicType, "# TYPE m histogram\nm_bucket{le=\"1\"} 1\nm_count 1\n", []string{
			`openmetrics.e.m: Histogram, Cumulative, unit "", ""`, "  {} count 1 [1][1 0] @0..0",
		}},
		"summary": {classicType, "# TYPE m summary\nm{quantile=\"0.9\"} 4\nm{quantile=\"0.5\"} 3\nm{quantile=\"0.99\"} NaN\nm_sum 9\nm_count 2\nm_created 1767355100\n", []string{
			`openmetrics.e.m: Summary, unit "", ""`, "  {} count 2 sum 9 q0.5=3 q0.9=4 @-100..0",
		}},
		"gauge histogram": {openMetricsType, "# TYPE m gaugehistogram\nm_bucket{le=\"+Inf\"} 1\nm_gcount 1\nm_gsum 1\n# EOF\n", nil},
		"a single value beside a histogram": {classicType, "# TYPE m histogram\nm_bucket{le=\"+Inf\"} 1\n# TYPE m_count gauge\nm_count 8\n", []string{
			`openmetrics.e.m: Histogram, Cumulative, unit "", ""`, "  {} count 1 [][1] @0..0", `openmetrics.e.m_count: Gauge, unit "", ""`, "  {#=0} 8 @0",
		}},
		"values that are not finite": {classicType, "m{a=\"1\"} NaN\nm{a=\"2\"} 1\nm{a=\"3\"} +Inf\nm{a=\"4\"} 2\n# TYPE c counter\nc{a=\"1\"} Inf\nc{a=\"2\"} 1\n# TYPE n gauge\nn NaN\n", []string{
			`openmetrics.e.m: Gauge, unit "", ""`, "  {#=1 a=2} 1 @0", "  {#=3 a=4} 2 @0",
			`openmetrics.e.c: Sum, monotonic, Cumulative, unit "", ""`, "  {#=1 a=2} 1 @0..0",
		}},
		"a sum that is not finite": {classicType, "# TYPE m summary\nm_sum NaN\nm_count 2\n", []string{`openmetrics.e.m: Summary, unit "", ""`, "  {} count 2 sum NaN @0..0"}},
		"a label with our key": {classicType, "{\"m\",\"wandb.index\"=\"x\"} 1\n{\"m\",\"wandb.index\"=\"y\"} 2\n", []string{
			`openmetrics.e.m: Gauge, unit "", ""`, "  {#=0} 1 @0", "  {#=1} 2 @0",
		}},
		"explicit times that do not count": {classicType, "m 5 1\n", []string{`openmetrics.e.m: Gauge, unit "", ""`, "  {#=0} 5 @0"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, newLab(t, tt.contentType).scrape(0, tt.body))
		})
	}
}

func TestNativeHistograms(t *testing.T) {
	h := &dto.Histogram{
		SampleCount: 9, SampleSum: 4.5, Schema: 3, ZeroThreshold: 0.25, ZeroCount: 2,
		PositiveSpan: []dto.BucketSpan{{Offset: 1, Length: 2}}, PositiveDelta: []int64{1, 2},
		NegativeSpan: []dto.BucketSpan{{Offset: -1, Length: 1}}, NegativeDelta: []int64{3},
	}
	got := newLab(t, protobufType).scrape(0, native(t, h))
	assert.Equal(t, []string{
		`openmetrics.e.h: ExponentialHistogram, Cumulative, unit "", "Help."`,
		"  {a=b} count 9 scale 3 zero 2<0.25 0[1 3]-2[3] @0..0",
	}, got)
}

const protobufType = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

// native is a body with one histogram.
func native(t testing.TB, h *dto.Histogram) string {
	t.Helper()
	family := &dto.MetricFamily{Name: "h", Help: "Help.", Type: dto.MetricType_HISTOGRAM, Metric: []dto.Metric{{
		Label: []dto.LabelPair{{Name: "a", Value: "b"}}, Histogram: h,
	}}}
	message, err := family.Marshal()
	require.NoError(t, err)
	require.Less(t, len(message), 128)
	return string(append([]byte{byte(len(message))}, message...))
}

func TestUnits(t *testing.T) {
	for name, want := range map[string]string{
		"a_seconds": "s", "a_seconds_total": "s", "a_milliseconds": "ms", "a_bytes": "By", "a_celsius": "Cel", "a_joules_total": "J", "a_watts": "W",
		"a_volts": "V", "a_ratio": "1", "a_percent": "%", "a_hertz": "Hz", "a_meters": "m", "a_info": "", "a": "", "": "", "_": "", "total": "",
		"a_total": "", "seconds": "s", "a_seconds_max": "", "aseconds": "",
	} {
		assert.Equal(t, want, unitOf(name, ""), name)
	}
	assert.Equal(t, "{requests}", unitOf("a_requests", "requests"))
	assert.Equal(t, "s", unitOf("a_seconds_total", "seconds"))
	assert.Empty(t, unitOf("a_info", "info"))
}

func TestExemplars(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, tt := range map[string]struct{ exemplar, want string }{
		"labels and a time":         {`{a="b"} 0.5 1767355195.5`, "0.5 map[a:b]/ @-4.5"},
		"no time":                   {`{a="b"} 0.5`, "0.5 map[a:b]/ @0"},
		"no labels":                 {`{} 1`, "1 map[]/ @0"},
		"a span":                    {`{trace_id="` + trace + `",span_id="` + span + `",x="y"} 1`, "1 map[x:y]" + trace + "/" + span + " @0"},
		"a trace in capitals":       {`{trace_id="` + strings.ToUpper(trace) + `"} 1`, "1 map[]" + trace + "/ @0"},
		"ids of another length":     {`{trace_id="` + span + `",span_id="` + trace + `"} 1`, "1 map[span_id:" + trace + " trace_id:" + span + "]/ @0"},
		"ids that are not numbers":  {`{trace_id="` + strings.Repeat("x", 32) + `",span_id="` + strings.Repeat("y", 16) + `"} 1`, "1 map[span_id:" + strings.Repeat("y", 16) + " trace_id:" + strings.Repeat("x", 32) + "]/ @0"},
		"a time before 1970":        {`{} 1 -5`, "1 map[]/ @0"},
		"a time that is far beyond": {`{} 1 99999999999999`, "1 map[]/ @0"},
	} {
		t.Run(name, func(t *testing.T) {
			counter := "# TYPE c counter\nc_total 3 # " + tt.exemplar + "\n"
			histogram := "# TYPE h histogram\nh_bucket{le=\"1\"} 1 # " + tt.exemplar + "\nh_bucket{le=\"+Inf\"} 1\nh_count 1\nh_sum 1\n"
			assert.Equal(t, []string{
				`openmetrics.e.c_total: Sum, monotonic, Cumulative, unit "", ""`, "  {#=0} 3 ex(" + tt.want + ") @0..0",
				`openmetrics.e.h: Histogram, Cumulative, unit "", ""`, "  {} count 1 sum 1 [1][1 0] ex(" + tt.want + ") @0..0",
			}, newLab(t, openMetricsType).scrape(0, counter+histogram+"# EOF\n"))
		})
	}
}

func TestLongLabelValuesAreCut(t *testing.T) {
	l := newLab(t, classicType, func(l *lab) { l.writer.limits.LabelValue = 5 })
	assert.Equal(t, []string{
		`openmetrics.e.m: Gauge, unit "", ""`, "  {#=0 a=12345} 1 @0", "  {#=1 a=12345} 2 @0", "  {#=2 a=1234} 3 @0",
	}, l.scrape(0, "m{a=\"123456\"} 1\nm{a=\"123457\"} 2\nm{a=\"1234ä\"} 3\n"))
}

func TestHonoredTimes(t *testing.T) {
	const first = int64(1767355200_000)
	for name, tt := range map[string]struct {
		millis int64
		want   string
	}{
		"now":               {first, " @0"},
		"a while ago":       {first - 1500, " @-1.5"},
		"five minutes ago":  {first - 300_000, " @-300"},
		"longer ago":        {first - 300_001, ""},
		"in ten minutes":    {first + 600_000, " @600"},
		"in more than ten":  {first + 600_001, ""},
		"the year 1970":     {0, ""},
		"before that":       {-5, ""},
		"the end of time":   {1<<63 - 1, ""},
		"the start of time": {-1 << 63, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := fmt.Sprint(" ", tt.millis, "\n")
			body := "# TYPE g gauge\ng 1" + at + "# TYPE c counter\nc 1" + at + "# TYPE s summary\ns_count 1" + at + "s_sum 1" + at +
				"# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1" + at + "h_count 1" + at
			got := newLab(t, classicType, honoring).metrics(0, body)
			if tt.want == "" {
				assert.Empty(t, describe(got))
				return
			}
			require.Equal(t, 4, got.Len())
			for _, m := range got.All() {
				p := pointsOf(m)[0]
				assert.Equal(t, tt.want, relative(p.Timestamp()))
				assert.LessOrEqual(t, p.StartTimestamp(), p.Timestamp(), "no point starts after its end")
			}
		})
	}
}

// The times of values that lag behind the scrapes by a minute: the start is none of
// the scrapes' times, or it would move until the values come to it.
func TestStartsOfHonoredTimesStay(t *testing.T) {
	const noon = 1767355200
	body := func(at float64, count int) string {
		millis := int64((noon + at - 60) * 1000)
		return fmt.Sprintf("# TYPE c counter\nc %d %d\n# TYPE s summary\ns_count %d %d\n", count, millis, count, millis)
	}
	l := newLab(t, classicType, honoring)
	for _, s := range []struct {
		at    float64
		count int
		want  string
	}{{0, 5, " @-60..-60"}, {15, 6, " @-60..-45"}, {30, 7, " @-60..-30"}, {45, 2, " @-30..-15"}, {60, 3, " @-30..0"}, {75, 4, " @-30..15"}} {
		got := l.metrics(time.Duration(s.at*float64(time.Second)), body(s.at, s.count))
		require.Equal(t, 2, got.Len())
		for _, m := range got.All() {
			assert.Equal(t, s.want, timesOf(pointsOf(m)[0]), "%s at %v", m.Name(), s.at)
		}
	}
}

func TestHonoredTimesOfNativeHistograms(t *testing.T) {
	body := func(millis int64) string {
		family := &dto.MetricFamily{Name: "h", Type: dto.MetricType_HISTOGRAM, Metric: []dto.Metric{{
			TimestampMs: millis, Histogram: &dto.Histogram{SampleCount: 1, ZeroCount: 1, ZeroThreshold: 1, PositiveSpan: []dto.BucketSpan{{}}},
		}}}
		message, err := family.Marshal()
		require.NoError(t, err)
		return string(append([]byte{byte(len(message))}, message...))
	}
	l := newLab(t, protobufType, honoring)
	assert.Equal(t, []string{
		`openmetrics.e.h: ExponentialHistogram, Cumulative, unit "", ""`, "  {} count 1 sum 0 scale 0 zero 1<1 0[]0[] @-1..-1",
	}, l.scrape(0, body(1767355199_000)))
	assert.Empty(t, l.scrape(0, body(1)))
}

// scrapeAt is a scrape so many seconds after noon, and the times of the point of m.
type scrapeAt struct {
	at         float64
	body, want string
}

func TestStartTimesOfEachType(t *testing.T) {
	histogram := func(count int) string {
		return fmt.Sprintf("# TYPE m histogram\nm_bucket{le=\"+Inf\"} %d\nm_count %d\nm_sum 1\n", count, count)
	}
	summary := func(count int) string { return fmt.Sprintf("# TYPE m summary\nm_count %d\nm_sum 1\n", count) }
	counter := func(value string) string { return "# TYPE m counter\nm " + value + "\n" }
	stateset := func(state int) string { return fmt.Sprintf("# TYPE m stateset\nm{m=\"a\"} %d\n", state) }
	const created, info = "m_created 1767355100\n", "# TYPE m info\nm{v=\"1\"} 1\n"
	for name, scrapes := range map[string][]scrapeAt{
		"counter":                             {{0, counter("5"), " @0..0"}, {15, counter("5"), " @0..15"}, {30, counter("4"), " @15..30"}, {45, counter("9"), " @15..45"}},
		"counter with a start":                {{0, counter("5") + created, " @-100..0"}, {15, counter("4") + created, " @0..15"}},
		"counter with a start in the future":  {{0, counter("5") + "m_created 1767355210\n", " @0..0"}, {15, counter("5") + "m_created 1767355210\n", " @10..15"}},
		"counter with another start":          {{0, counter("5") + created, " @-100..0"}, {15, counter("9") + "m_created 1767355210\n", " @10..15"}},
		"counter that is not finite a while":  {{0, counter("5"), " @0..0"}, {15, counter("NaN"), ""}, {30, counter("4"), " @15..30"}},
		"counter that is below zero a while":  {{0, counter("5"), " @0..0"}, {15, counter("-1"), " @15"}, {30, counter("4"), " @15..30"}},
		"counter that is missing a while":     {{0, counter("5"), " @0..0"}, {15, "x 1\n", ""}, {299, counter("6"), " @0..299"}},
		"counter that is missing for long":    {{0, counter("5"), " @0..0"}, {15, "x 1\n", ""}, {301, counter("6"), " @301..301"}},
		"no scrape that succeeded for long":   {{0, counter("5"), " @0..0"}, {301, counter("6"), " @0..301"}},
		"histogram":                           {{0, histogram(5), " @0..0"}, {15, histogram(7), " @0..15"}, {30, histogram(6), " @15..30"}},
		"histogram with a start":              {{0, histogram(5) + created, " @-100..0"}, {15, histogram(4) + created, " @0..15"}},
		"summary":                             {{0, summary(5), " @0..0"}, {15, summary(4), " @0..15"}, {30, summary(6), " @0..30"}},
		"summary with a start":                {{0, summary(5) + created, " @-100..0"}, {15, summary(6) + created, " @-100..15"}},
		"info":                                {{0, info, " @0..0"}, {15, info, " @0..15"}},
		"histogram that takes another type":   {{0, histogram(5), " @0..0"}, {15, counter("6"), " @15..15"}, {30, histogram(6), " @0..30"}},
		"gauges have no start":                {{0, "# TYPE m gauge\nm 5\n", " @0"}, {15, "# TYPE m gauge\nm 4\n", " @15"}},
		"the clock is set back":               {{0, counter("5"), " @0..0"}, {-60, counter("6"), " @-60..-60"}, {0, counter("7"), " @-60..0"}},
		"a stateset's 1 that becomes 0 again": {{0, stateset(1), " @0..0"}, {15, stateset(1), " @0..15"}, {30, stateset(0), " @0..30"}, {45, stateset(1), " @0..45"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, classicType)
			for i, s := range scrapes {
				got := ""
				for _, m := range l.metrics(time.Duration(s.at*float64(time.Second)), s.body).All() {
					if m.Name() == "openmetrics.e.m" {
						got = timesOf(pointsOf(m)[0])
					}
				}
				assert.Equal(t, s.want, got, "scrape %d", i)
			}
		})
	}
}

func TestMarkersOfEachType(t *testing.T) {
	const rest = "x 1\n"
	plain := `openmetrics.e.x: Gauge, unit "", ""`
	for name, tt := range map[string]struct {
		body string
		want []string
	}{
		"gauge":                        {"# HELP m Help.\n# TYPE m gauge\nm{a=\"1\"} 1\nm{a=\"2\"} NaN\n", []string{`openmetrics.e.m: Gauge, unit "", ""`, "  {#=0 a=1} gone @15", "  {#=1 a=2} gone @15"}},
		"unknown":                      {"m_bytes 1\n", []string{`openmetrics.e.m_bytes: Gauge, unit "By", ""`, "  {#=0} gone @15"}},
		"counter":                      {"# TYPE m counter\nm 1\n", []string{`openmetrics.e.m: Sum, monotonic, Cumulative, unit "", ""`, "  {#=0} gone @15"}},
		"info":                         {"# TYPE m info\nm{v=\"1\"} 1\n", []string{`openmetrics.e.m: Sum, Cumulative, unit "", ""`, "  {#=0 v=1} gone @15"}},
		"stateset":                     {"# TYPE m stateset\nm{m=\"1\"} 1\n", []string{`openmetrics.e.m: Sum, Cumulative, unit "", ""`, "  {#=0 m=1} gone @15"}},
		"histogram":                    {"# TYPE m histogram\nm_bucket{le=\"+Inf\"} 1\n", []string{`openmetrics.e.m: Histogram, Cumulative, unit "", ""`, "  {} gone @15"}},
		"summary":                      {"# TYPE m summary\nm_count 1\nm_sum 1\n", []string{`openmetrics.e.m: Summary, unit "", ""`, "  {} gone @15"}},
		"gauge histogram":              {"# TYPE m gaugehistogram\nm_bucket{le=\"1\"} 1\n", nil},
		"what is still there has none": {rest, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, classicType, withMarkers)
			l.scrape(0, tt.body+rest)
			assert.Equal(t, append([]string{plain, "  {#=0} 1 @15"}, tt.want...), l.scrape(15*time.Second, rest))
			assert.Equal(t, []string{plain, "  {#=0} 1 @30"}, l.scrape(30*time.Second, rest), "it is told once")
		})
	}
}

func TestMarkersOfNativeHistograms(t *testing.T) {
	l := newLab(t, protobufType, withMarkers)
	ours := &dto.Histogram{SampleCount: 1, ZeroCount: 1, ZeroThreshold: 1, PositiveSpan: []dto.BucketSpan{{}}}
	classic := &dto.Histogram{SampleCount: 1, Bucket: []dto.Bucket{{UpperBound: 1, CumulativeCount: 1}}}
	gone := func(kind string) []string {
		return []string{"openmetrics.e.h: " + kind + `, Cumulative, unit "", ""`, "  {a=b} gone @15"}
	}
	l.scrape(0, native(t, ours))
	assert.Equal(t, gone("ExponentialHistogram"), l.scrape(15*time.Second, ""))
	l.scrape(0, native(t, ours))
	l.scrape(5*time.Second, native(t, classic))
	assert.Equal(t, gone("Histogram"), l.scrape(15*time.Second, ""))
}

func TestWithoutMarkersNothingIsTold(t *testing.T) {
	l := newLab(t, classicType)
	l.scrape(0, "m 1\nx 1\n")
	assert.Equal(t, []string{`openmetrics.e.x: Gauge, unit "", ""`, "  {#=0} 1 @15"}, l.scrape(15*time.Second, "x 1\n"))
}

// Numbers are kept over failures and absence.
func TestNumbersStay(t *testing.T) {
	l := newLab(t, classicType)
	l.scrape(0, "m{a=\"1\"} 1\nm{a=\"2\"} 1\n")
	_, err := l.parser.Parse([]byte("<html>"), classicType, nil)
	require.Error(t, err)
	l.scrape(time.Hour, "m{a=\"3\"} 1\n")
	assert.Equal(t, []string{
		`openmetrics.e.m: Gauge, unit "", ""`, "  {#=3 a=4} 1 @7200", "  {#=0 a=1} 2 @7200",
	}, l.scrape(2*time.Hour, "m{a=\"4\"} 1\nm{a=\"1\"} 2\n"))
}
