// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/gogo/protobuf/types"
	dto "github.com/prometheus/prometheus/prompb/io/prometheus/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// delimited writes families as an endpoint does.
func delimited(tb testing.TB, families ...*dto.MetricFamily) (body []byte) {
	tb.Helper()
	for _, f := range families {
		message, err := f.Marshal()
		require.NoError(tb, err)
		body = append(binary.AppendUvarint(body, uint64(len(message))), message...)
	}
	return body
}

func pairs(namesAndValues ...string) (made []dto.LabelPair) {
	for i := 0; i < len(namesAndValues); i += 2 {
		made = append(made, dto.LabelPair{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}
	return made
}

func at(seconds int64) *types.Timestamp { return &types.Timestamp{Seconds: seconds} }

func histogramOf(h *dto.Histogram, labels ...string) *dto.MetricFamily {
	return &dto.MetricFamily{Name: "h", Type: dto.MetricType_HISTOGRAM, Metric: []dto.Metric{{Label: pairs(labels...), Histogram: h}}}
}

func TestProtobuf(t *testing.T) {
	for name, c := range map[string]struct {
		families []*dto.MetricFamily
		want     []string
	}{
		"single values": {
			[]*dto.MetricFamily{
				{Name: "g", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{
					{Label: pairs("y", "", "x", "1"), Gauge: &dto.Gauge{Value: 1.5}, TimestampMs: 7},
					{Gauge: &dto.Gauge{Value: math.NaN()}},
				}},
				{Name: "c_total", Type: dto.MetricType_COUNTER, Metric: []dto.Metric{{Counter: &dto.Counter{
					Value: 2, StartTimestamp: at(5), Exemplar: &dto.Exemplar{Label: pairs("trace_id", "ab"), Value: 0.5, Timestamp: at(3)},
				}}}},
				{Name: "u", Type: dto.MetricType_UNTYPED, Metric: []dto.Metric{{Untyped: &dto.Untyped{Value: 3}}}},
				{Name: "target_info", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{{Label: pairs("service", "x"), Gauge: &dto.Gauge{Value: 1}}}},
			},
			[]string{
				`gauge g{x="1",y=""} 1.5 at=7`, "gauge g NaN", `counter c_total 2 start=5000 #{trace_id="ab"} 0.5 at=3000`, "unknown u 3",
				`target{service="x"}`, "non-finite 1",
			},
		},
		"a summary and a classic histogram": {
			[]*dto.MetricFamily{
				{Name: "s", Type: dto.MetricType_SUMMARY, Metric: []dto.Metric{{Label: pairs("x", "1"), Summary: &dto.Summary{
					SampleCount: 2, SampleSum: 3, StartTimestamp: at(5), Quantile: []dto.Quantile{{Quantile: 0.5, Value: 1}, {Quantile: 0.9, Value: math.NaN()}},
				}}}},
				{Name: "empty", Type: dto.MetricType_SUMMARY, Metric: []dto.Metric{{Summary: &dto.Summary{SampleCount: 1, SampleSum: 2}}}},
				histogramOf(&dto.Histogram{SampleCount: 4, SampleSum: 6, StartTimestamp: at(7), Bucket: []dto.Bucket{
					{UpperBound: 1, CumulativeCount: 1, Exemplar: &dto.Exemplar{Value: 0.5}}, {UpperBound: 2, CumulativeCount: 3},
				}}, "le_", "x"),
			},
			[]string{
				`summary s{x="1"} 2 3 [{0.5 1}] start=5000`, "summary empty 1 2 []", `histogram h{le_="x"} 4 6 [1 2] [1 2 1] start=7000 # 0.5`,
			},
		},
		"families that share a name's parts": {
			[]*dto.MetricFamily{
				{Name: "h_count", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{{Gauge: &dto.Gauge{Value: 9}}}},
				histogramOf(&dto.Histogram{SampleCount: 4}),
			},
			[]string{"gauge h_count 9", "histogram h 4 0 [] [4]"},
		},
		"a native histogram": {
			[]*dto.MetricFamily{histogramOf(&dto.Histogram{
				SampleCount: 10, SampleSum: 20, Schema: 3, ZeroThreshold: 0.001, ZeroCount: 2, StartTimestamp: at(5),
				PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 2}, {Offset: 1, Length: 1}}, PositiveDelta: []int64{1, 2, 1},
				Exemplars: []*dto.Exemplar{{Label: pairs("a", "b"), Value: 1, Timestamp: at(1)}, {Label: pairs("a", "\xff"), Value: 1, Timestamp: at(1)}},
				Bucket:    []dto.Bucket{{UpperBound: 1, CumulativeCount: 10}},
			}, "x", "1")},
			[]string{`histogram h{x="1"} 10 20 scale=3 zero=2<=0.001 {-1 [1 3 0 4]} {0 []} start=5000 #{a="b"} 1 at=1000`},
		},
		"a native histogram of fractions, with negative values": {
			[]*dto.MetricFamily{histogramOf(&dto.Histogram{
				SampleCountFloat: 4.5, SampleSum: 20, ZeroCountFloat: 0.5,
				PositiveSpan: []dto.BucketSpan{{Offset: -3, Length: 1}}, PositiveCount: []float64{2.5},
				NegativeSpan: []dto.BucketSpan{{Offset: 1, Length: 1}}, NegativeCount: []float64{1.5},
			})},
			[]string{"histogram h 5 - scale=0 zero=1<=0 {-4 [3]} {0 [2]}"},
		},
		"native buckets far from each other are merged": {
			[]*dto.MetricFamily{histogramOf(&dto.Histogram{
				SampleCount: 3, SampleSum: 1, Schema: 8,
				PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 1}, {Offset: 4095, Length: 1}}, PositiveDelta: []int64{1, 1},
			})},
			[]string{"histogram h 3 1 scale=5 zero=0<=0 {-1 [1" + strings.Repeat(" 0", 511) + " 2]} {0 []}"},
		},
		"native histograms that contradict themselves": {
			[]*dto.MetricFamily{{Name: "h", Type: dto.MetricType_HISTOGRAM, Metric: []dto.Metric{
				{Label: pairs("x", "0"), Histogram: &dto.Histogram{SampleCount: 1, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 1}}, PositiveDelta: []int64{1}}},
				{Label: pairs("x", "1"), Histogram: &dto.Histogram{SampleCount: 5, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 1}}, PositiveDelta: []int64{1}}},
				{Label: pairs("x", "2"), Histogram: &dto.Histogram{SampleCount: 1, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 5}}, PositiveDelta: []int64{1}}},
				{Label: pairs("x", "3"), Histogram: &dto.Histogram{SampleCount: 1, Schema: -53, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 1}}, PositiveDelta: []int64{1}}},
				{Label: pairs("x", "4"), Histogram: &dto.Histogram{SampleCount: 2, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 1}, {Offset: 1 << 30, Length: 1}}, PositiveDelta: []int64{1, 0}}},
			}}},
			[]string{
				`histogram h{x="0"} 1 0 scale=0 zero=0<=0 {-1 [1]} {0 []}`,
				"malformed h{x=1}: its native buckets are malformed", "malformed h{x=2}: its native buckets are malformed",
				"malformed h{x=3}: the bounds of its custom buckets are not part of the format", "malformed h{x=4}: its native buckets span too wide a range",
			},
		},
		"native histograms of fractions that contradict themselves": {
			[]*dto.MetricFamily{{Name: "h", Type: dto.MetricType_HISTOGRAM, Metric: []dto.Metric{
				{Label: pairs("x", "1"), Histogram: &dto.Histogram{SampleCountFloat: 1e30, ZeroCount: 1}},
				{Label: pairs("x", "2"), Histogram: &dto.Histogram{SampleCountFloat: 1, ZeroCount: 1, ZeroCountFloat: 1e30}},
				{Label: pairs("x", "3"), Histogram: &dto.Histogram{SampleCountFloat: 1, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 1}}, PositiveCount: []float64{math.NaN()}}},
				{Label: pairs("x", "4"), Histogram: &dto.Histogram{SampleCountFloat: 1, NegativeSpan: []dto.BucketSpan{{Offset: 0, Length: 1}}, NegativeCount: []float64{1e30}}},
				{Label: pairs("x", "5"), Histogram: &dto.Histogram{SampleCountFloat: 1, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 2}}, PositiveCount: []float64{1}}},
			}}},
			[]string{
				"malformed h{x=1}: a count is negative or no number", "malformed h{x=2}: a count is negative or no number",
				"malformed h{x=3}: a count is negative or no number", "malformed h{x=4}: a count is negative or no number",
				"malformed h{x=5}: its native buckets are malformed",
			},
		},
		"gaugehistograms are counted": {
			[]*dto.MetricFamily{
				{Name: "a", Type: dto.MetricType_GAUGE_HISTOGRAM, Metric: []dto.Metric{{Histogram: &dto.Histogram{SampleCount: 1}}}},
				{Name: "b", Type: dto.MetricType_GAUGE_HISTOGRAM, Metric: []dto.Metric{{Histogram: &dto.Histogram{SampleCount: 1, ZeroCount: 1}}}},
			},
			[]string{"gaugehistograms 2"},
		},
		"a series twice": {
			[]*dto.MetricFamily{{Name: "h", Type: dto.MetricType_HISTOGRAM, Metric: []dto.Metric{
				{Histogram: &dto.Histogram{SampleCount: 1, ZeroCount: 1}}, {Histogram: &dto.Histogram{SampleCount: 2, ZeroCount: 2}},
			}}},
			[]string{"histogram h 2 0 scale=0 zero=2<=0 {0 []} {0 []}", "duplicates 1"},
		},
		"repeated labels": {
			[]*dto.MetricFamily{{Name: "g", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{
				{Label: pairs("x", "1", "x", "2"), Gauge: &dto.Gauge{Value: 1}}, {Gauge: &dto.Gauge{Value: 2}},
			}}},
			[]string{"gauge g 2", "g: a label occurs twice"},
		},
		"a label without a name": {
			[]*dto.MetricFamily{{Name: "g", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{
				{Label: []dto.LabelPair{{Value: "1"}}, Gauge: &dto.Gauge{Value: 1}}, {Gauge: &dto.Gauge{Value: 2}},
			}}},
			[]string{"gauge g 2", "g: a name is empty or not UTF-8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{}).Parse(delimited(t, c.families...), protobufType, nil)
			require.NoError(t, err)
			assert.Equal(t, c.want, dump(s))
		})
	}
}

func TestProtobufFailsAsAWhole(t *testing.T) {
	gauges := &dto.MetricFamily{Name: "g", Unit: "x", Help: "Help.", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{
		{Label: pairs("x", "1"), Gauge: &dto.Gauge{Value: 1}}, {Label: pairs("x", "2"), Gauge: &dto.Gauge{Value: 2}},
	}}
	body := delimited(t, gauges)
	_, err := New(Options{}).Parse(body[:len(body)-1], protobufType, nil)
	require.ErrorContains(t, err, "read the protobuf body: ")
	_, err = New(Options{}).Parse(delimited(t, &dto.MetricFamily{Name: "\xff", Metric: gauges.Metric}), protobufType, nil)
	require.EqualError(t, err, "read the protobuf body: invalid metric name: \uFFFD")
	_, err = New(Options{Strict: true}).Parse(delimited(t, &dto.MetricFamily{Name: "empty"}), protobufType, nil)
	require.NoError(t, err)
	_, err = New(Options{Limits: Limits{Series: 1}}).Parse(body, protobufType, nil)
	require.EqualError(t, err, "the endpoint has too many series after filtering (max_series: 1)")
	s, err := New(Options{Limits: Limits{Labels: 1}}).Parse(delimited(t, histogramOf(&dto.Histogram{ZeroCount: 1}, "x", "", "y", "")), protobufType, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"h: it has too many labels"}, dump(s))
	native := histogramOf(&dto.Histogram{SampleCount: 1, ZeroCount: 1})
	_, err = New(Options{Limits: Limits{Series: 1}}).Parse(delimited(t, native, gauges), protobufType, nil)
	require.EqualError(t, err, "the endpoint has too many series after filtering (max_series: 1)")
}

func TestProtobufFilter(t *testing.T) {
	body := delimited(t,
		histogramOf(&dto.Histogram{SampleCount: 1, ZeroCount: 1}, "x", "1"),
		histogramOf(&dto.Histogram{SampleCount: 1}, "x", "2"),
		&dto.MetricFamily{Name: "g", Type: dto.MetricType_GAUGE_HISTOGRAM, Metric: []dto.Metric{{Histogram: &dto.Histogram{ZeroCount: 1}}}},
	)
	s, err := New(Options{}).Parse(body, protobufType, func(string, Labels) bool { return false })
	require.NoError(t, err)
	assert.Empty(t, dump(s))
	assert.Equal(t, [2]int{5, 0}, [2]int{s.Samples, s.Kept})
}
