// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/filter"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the body beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// expected is NAME.expected.json.
type expected struct {
	Mode        string                       `json:"mode"`
	Endpoint    string                       `json:"endpoint"`
	ContentType string                       `json:"content_type"`
	Filters     json.RawMessage              `json:"filters"`
	Tags        map[string]float64           `json:"tags"`
	Labels      map[string]map[string]string `json:"labels"`
	Types       map[string]int               `json:"types"`
	Units       map[string]string            `json:"units"`
	Starts      map[string]int64             `json:"start_time_unix"`
	Histograms  []expectedHistogram          `json:"histograms"`
	Summaries   []expectedSummary            `json:"summaries"`
	Exponential []expectedExponential        `json:"exponential_histograms"`
	Created     []string                     `json:"created_families"`
	Previous    []map[string]float64         `json:"previous_tags"`
	Skipped     []int                        `json:"skipped_lines"`
	NonFinite   int                          `json:"skipped_non_finite"`
	Duplicates  int                          `json:"duplicate_series"`
	Extras      map[string]float64           `json:"extra_tags"`
	MIG         []map[string]any             `json:"mig"`
	Resets      []string                     `json:"resets"`
	Failed      bool                         `json:"scrape_failed"`
	Strict      *struct{ Error bool }        `json:"strict"`
}

type expectedHistogram struct {
	Metric  string             `json:"metric"`
	Labels  map[string]string  `json:"labels"`
	Count   float64            `json:"count"`
	Sum     float64            `json:"sum"`
	Buckets map[string]float64 `json:"buckets"`
}

type expectedSummary struct {
	Metric    string             `json:"metric"`
	Labels    map[string]string  `json:"labels"`
	Count     float64            `json:"count"`
	Sum       float64            `json:"sum"`
	Quantiles map[string]float64 `json:"quantiles"`
}

type expectedExponential struct {
	Metric    string             `json:"metric"`
	Labels    map[string]string  `json:"labels"`
	Count     uint64             `json:"count"`
	Sum       float64            `json:"sum"`
	Scale     int32              `json:"scale"`
	ZeroCount uint64             `json:"zero_count"`
	Positive  expectedExpBuckets `json:"positive"`
}

type expectedExpBuckets struct {
	Offset int32    `json:"offset"`
	Counts []uint64 `json:"bucket_counts"`
}

func TestSamples(t *testing.T) {
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, "openmetrics", "*.expected.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var want expected
		require.NoError(t, json.Unmarshal(content, &want), file)
		stem := strings.TrimSuffix(file, ".expected.json")
		t.Run(filepath.Base(stem), func(t *testing.T) { checkSample(t, stem, &want) })
	}
}

// replay serves the bodies of a case one after the other.
type replay struct {
	t      *testing.T
	want   *expected
	bodies [][]byte
	next   int
	url    string
}

func newReplay(t *testing.T, stem string, want *expected) *replay {
	t.Helper()
	files, err := filepath.Glob(stem + ".*")
	require.NoError(t, err)
	slices.Sort(files)
	r := &replay{t: t, want: want}
	for _, file := range files {
		if strings.HasSuffix(file, ".expected.json") || strings.HasSuffix(file, ".static.txt") {
			continue
		}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		r.bodies = append(r.bodies, content)
	}
	require.NotEmpty(t, r.bodies)
	contentType := want.ContentType
	if want.Mode == "dcgm_promql" {
		contentType = "application/json"
	}
	r.url = serve(t, contentType, func() []byte { return r.bodies[r.next] }).URL
	return r
}

// start makes the family for the case; keys are beside the URL.
func (r *replay) start(extended bool, keys map[string]any) *rig {
	r.t.Helper()
	section := map[string]any{"endpoint": r.url + "/metrics"}
	switch r.want.Mode {
	case "dcgm_map":
		section["map"] = "dcgm"
	case "dcgm_promql":
		section["query_api"] = true
		section["endpoint"] = r.url + "/api/v1/query?query=DCGM_FI_DEV_GPU_TEMP"
	}
	if r.want.Filters != nil {
		var filters any
		require.NoError(r.t, json.Unmarshal(r.want.Filters, &filters))
		section["filters"] = filters
	}
	maps.Copy(section, keys)
	name := r.want.Endpoint
	if name == "" {
		name = "dcgm"
	}
	return start(r.t, endpointsOf(map[string]any{name: section}), func(set *scrapers.Settings) {
		if extended {
			scraperstest.SwitchAll(&set.Metrics.Metrics, true)
			set.Extended = true
		}
	})
}

func checkSample(t *testing.T, stem string, want *expected) {
	t.Helper()
	replay := newReplay(t, stem, want)
	r := replay.start(false, nil)
	var md pmetric.Metrics
	var before pcommon.Timestamp
	for i := range replay.bodies {
		replay.next = i
		var err error
		md, err = r.scrape()
		if want.Failed {
			require.Error(t, err)
			assert.Empty(t, tagsOf(t, md, want))
			return
		}
		require.NoError(t, err)
		if i < len(replay.bodies)-1 {
			before = endOf(md)
			scraperstest.CompareTags(t, "tags of scrape "+strconv.Itoa(i+1), want.Previous[i], tagsOf(t, md, want))
		}
	}
	scraperstest.CompareTags(t, "tags", want.Tags, tagsOf(t, md, want))
	checkExtras(t, replay)
	if want.Mode == "dcgm_promql" {
		return
	}
	checkInstances(t, replay)
	checkBody(t, want, replay.bodies[replay.next])
	checkStrict(t, replay)
	if want.Mode == "" {
		checkPoints(t, want, md, before)
		checkParts(t, want, md)
	}
}

// tagsOf are the single values by tag, in the naming that the case is written in.
func tagsOf(t *testing.T, md pmetric.Metrics, want *expected) map[string]float64 {
	t.Helper()
	style := naming.Tag
	if want.Mode == "dcgm_promql" {
		style = naming.SDK
	}
	tags := map[string]float64{}
	for _, p := range scraperstest.PointsOf(named(md, style)) {
		tag := p.Metric.Name()
		if strings.HasPrefix(tag, "wandbsys_") {
			continue
		}
		_, twice := tags[tag]
		require.False(t, twice, "%s stands twice", tag)
		tags[tag] = p.Value()
	}
	return tags
}

func named(md pmetric.Metrics, style naming.Style) pmetric.Metrics {
	to := pmetric.NewMetrics()
	md.CopyTo(to)
	naming.New(style, "").Expand(to)
	return to
}

// endOf is the time of a scrape's points.
func endOf(md pmetric.Metrics) pcommon.Timestamp {
	for _, p := range scraperstest.PointsOf(md) {
		if strings.HasPrefix(p.Metric.Name(), metricPrefix) {
			return p.Data.Timestamp()
		}
	}
	return 0
}

// checkExtras compares what is off by default, as far as the case lists it.
func checkExtras(t *testing.T, replay *replay) {
	t.Helper()
	if replay.want.Extras == nil {
		return
	}
	got := tagsOf(t, replay.start(true, nil).must(), replay.want)
	maps.DeleteFunc(got, func(tag string, _ float64) bool {
		_, listed := replay.want.Extras[tag]
		return !listed
	})
	scraperstest.CompareTags(t, "extra_tags", replay.want.Extras, got)
}

// checkInstances compares what is listed of MIG instances.
func checkInstances(t *testing.T, replay *replay) {
	t.Helper()
	if replay.want.MIG == nil {
		return
	}
	got := map[string]map[string]any{}
	for _, p := range scraperstest.PointsOf(replay.start(true, nil).must()) {
		figure, ok := strings.CutPrefix(p.Metric.Name(), "gpu.mig.")
		if !ok {
			continue
		}
		key := fmt.Sprint(p.Attributes["gpu_index"], "/", p.Attributes["mig_gi"])
		if got[key] == nil {
			got[key] = map[string]any{
				"gpu": float64(p.Attributes["gpu_index"].(int64)), "gi": float64(p.Attributes["mig_gi"].(int64)),
				"profile": p.Attributes["mig_profile"],
			}
		}
		got[key][figure] = p.Value()
	}
	require.Len(t, got, len(replay.want.MIG))
	for _, want := range replay.want.MIG {
		instance := got[fmt.Sprint(want["gpu"], "/", want["gi"])]
		for figure, value := range want {
			if number, ok := value.(float64); ok {
				assert.InEpsilon(t, number+1, instance[figure].(float64)+1, 1e-9, "%v %s", want["gi"], figure)
				continue
			}
			assert.Equal(t, value, instance[figure], figure)
		}
	}
}

// checkPoints compares labels, types and start times of single values.
func checkPoints(t *testing.T, want *expected, md pmetric.Metrics, before pcommon.Timestamp) {
	t.Helper()
	points := map[string]scraperstest.Point{}
	for _, p := range scraperstest.PointsOf(named(md, naming.Tag)) {
		delete(p.Attributes, indexKey)
		points[p.Metric.Name()] = p
	}
	for tag, labels := range want.Labels {
		got := map[string]string{}
		for key, value := range points[tag].Attributes {
			got[key] = fmt.Sprint(value)
		}
		assert.Equal(t, labels, got, tag)
	}
	for tag, start := range want.Starts {
		assert.Equal(t, start, points[tag].Data.StartTimestamp().AsTime().Unix(), tag)
	}
	for _, tag := range want.Resets {
		assert.Equal(t, before, points[tag].Data.StartTimestamp(), tag)
	}
	sums := 0
	for tag := range want.Tags {
		if points[tag].Metric.Type() == pmetric.MetricTypeSum {
			sums++
		}
	}
	if want.Types != nil {
		assert.Equal(t, want.Types["counter"]+want.Types["info"]+want.Types["stateset"], sums)
	}
}

// checkBody compares what is counted of a body.
func checkBody(t *testing.T, want *expected, body []byte) {
	t.Helper()
	s, err := exposition.New(exposition.Options{}).Parse(body, want.ContentType, keepOf(t, want))
	require.NoError(t, err)
	var lines []int
	for _, l := range s.SkippedLines {
		lines = append(lines, l.Line)
		assert.NotEmpty(t, l.Reason)
	}
	assert.Equal(t, want.Skipped, lines)
	assert.Equal(t, len(want.Skipped), s.Skipped)
	assert.Equal(t, want.Duplicates, s.Duplicates)
	assert.ElementsMatch(t, want.Created, s.CreatedFamilies)
	if want.Mode == "" {
		assert.Equal(t, want.NonFinite, s.NonFinite)
		checkTypes(t, want, s)
	}
}

func keepOf(t *testing.T, want *expected) exposition.Keep {
	t.Helper()
	var filters any
	if want.Filters != nil {
		require.NoError(t, json.Unmarshal(want.Filters, &filters))
	}
	include, err := filter.Parse("filters", filters)
	require.NoError(t, err)
	return filter.New(want.Endpoint, include, nil).Keep
}

// checkTypes compares how many finite values there are of each declared type.
func checkTypes(t *testing.T, want *expected, s *exposition.Scrape) {
	t.Helper()
	types := map[string]int{}
	for _, f := range s.Families {
		for _, sample := range f.Samples {
			if isFinite(sample.Value) {
				types[f.Type.String()]++
			}
		}
	}
	if want.Types != nil {
		assert.Equal(t, want.Types, types)
	}
}

// checkStrict wants a scrape that fails where something is wrong with the body.
func checkStrict(t *testing.T, replay *replay) {
	t.Helper()
	_, err := replay.start(false, map[string]any{"strict": true}).scrape()
	if replay.want.Strict != nil && replay.want.Strict.Error || len(replay.want.Skipped) > 0 {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
}

// checkParts compares histograms and summaries, and the units of all metrics.
func checkParts(t *testing.T, want *expected, md pmetric.Metrics) {
	t.Helper()
	var histograms []expectedHistogram
	var summaries []expectedSummary
	var exponential []expectedExponential
	metrics := metricsOf(md)
	for _, m := range metrics {
		switch m.Type() {
		case pmetric.MetricTypeHistogram:
			for _, p := range m.Histogram().DataPoints().All() {
				histograms = append(histograms, expectedHistogram{
					Metric: m.Name(), Labels: texts(p.Attributes()), Count: float64(p.Count()), Sum: p.Sum(), Buckets: cumulative(p),
				})
			}
		case pmetric.MetricTypeSummary:
			for _, p := range m.Summary().DataPoints().All() {
				quantiles := map[string]float64{}
				for _, q := range p.QuantileValues().All() {
					quantiles[boundKey(q.Quantile())] = q.Value()
				}
				summaries = append(summaries, expectedSummary{
					Metric: m.Name(), Labels: texts(p.Attributes()), Count: float64(p.Count()), Sum: p.Sum(), Quantiles: quantiles,
				})
			}
		case pmetric.MetricTypeExponentialHistogram:
			for _, p := range m.ExponentialHistogram().DataPoints().All() {
				exponential = append(exponential, expectedExponential{
					Metric: m.Name(), Labels: texts(p.Attributes()), Count: p.Count(), Sum: p.Sum(), Scale: p.Scale(), ZeroCount: p.ZeroCount(),
					Positive: expectedExpBuckets{p.Positive().Offset(), p.Positive().BucketCounts().AsRaw()},
				})
			}
		}
	}
	for i := range want.Histograms {
		want.Histograms[i].Buckets = numericKeys(t, want.Histograms[i].Buckets)
	}
	for i := range want.Summaries {
		want.Summaries[i].Quantiles = numericKeys(t, want.Summaries[i].Quantiles)
	}
	assert.ElementsMatch(t, want.Histograms, histograms)
	assert.ElementsMatch(t, want.Summaries, summaries)
	assert.ElementsMatch(t, want.Exponential, exponential)
	for name, word := range want.Units {
		m, ok := metrics[metricPrefix+want.Endpoint+"."+name]
		if !ok {
			m = metrics[metricPrefix+want.Endpoint+"."+name+"_total"]
		}
		assert.Equal(t, units[word], m.Unit(), name)
	}
}

func texts(attributes pcommon.Map) map[string]string {
	to := map[string]string{}
	for key, value := range attributes.All() {
		to[key] = value.AsString()
	}
	return to
}

func cumulative(p pmetric.HistogramDataPoint) map[string]float64 {
	buckets := map[string]float64{}
	var total uint64
	for i, n := range p.BucketCounts().All() {
		total += n
		bound := math.Inf(1)
		if i < p.ExplicitBounds().Len() {
			bound = p.ExplicitBounds().At(i)
		}
		buckets[boundKey(bound)] = float64(total)
	}
	return buckets
}

func boundKey(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func numericKeys(t *testing.T, m map[string]float64) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for k, v := range m {
		bound, err := strconv.ParseFloat(k, 64)
		require.NoError(t, err)
		out[boundKey(bound)] = v
	}
	return out
}
