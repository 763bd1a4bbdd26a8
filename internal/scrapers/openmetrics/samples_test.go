// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
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
	Starts      map[string]float64           `json:"start_time_unix"`
	Histograms  []expectedParts              `json:"histograms"`
	Summaries   []expectedParts              `json:"summaries"`
	Exponential []expectedParts              `json:"exponential_histograms"`
	Created     []string                     `json:"created_families"`
	Previous    []map[string]float64         `json:"previous_tags"`
	Skipped     []int                        `json:"skipped_lines"`
	NonFinite   int                          `json:"skipped_non_finite"`
	Duplicates  int                          `json:"duplicate_series"`
	Extras      map[string]float64           `json:"extra_tags"`
	MIG         []map[string]any             `json:"mig"`
	Resets      []string                     `json:"resets"`
	Failed      bool                         `json:"scrape_failed"`
	Strict      *expectedStrict              `json:"strict"`
}

type expectedStrict struct {
	Error  bool               `json:"error"`
	Failed bool               `json:"scrape_failed"`
	Tags   map[string]float64 `json:"tags"`
}

// expectedParts is a histogram of either kind, or a summary. What is nil is not
// compared.
type expectedParts struct {
	Metric        string             `json:"metric"`
	Labels        map[string]string  `json:"labels"`
	Count         float64            `json:"count"`
	Sum           *float64           `json:"sum"`
	Buckets       map[string]float64 `json:"buckets"`
	Quantiles     map[string]float64 `json:"quantiles"`
	Scale         *float64           `json:"scale"`
	ZeroCount     *float64           `json:"zero_count"`
	ZeroThreshold *float64           `json:"zero_threshold"`
	Positive      *expectedBuckets   `json:"positive"`
	Negative      *expectedBuckets   `json:"negative"`
}

type expectedBuckets struct {
	Offset float64   `json:"offset"`
	Counts []float64 `json:"bucket_counts"`
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
		stem := strings.TrimSuffix(file, ".expected.json")
		t.Run(filepath.Base(stem), func(t *testing.T) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			var want expected
			require.NoError(t, json.Unmarshal(content, &want))
			checkSample(t, stem, &want)
		})
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

// bodyForm is what follows the name of a case in the name of a body: its number, if
// there are several, and what kind it is.
var bodyForm = regexp.MustCompile(`^\.(?:(\d+)\.)?[a-z]+(?:\.gz)?$`)

// bodiesOf are the files of a case's bodies, in their order.
func bodiesOf(t *testing.T, stem string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(stem))
	require.NoError(t, err)
	numbers := map[string]int{}
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), filepath.Base(stem))
		if form := bodyForm.FindStringSubmatch(rest); ok && form != nil {
			number, _ := strconv.Atoi(form[1])
			numbers[filepath.Join(filepath.Dir(stem), entry.Name())] = number
		}
	}
	return slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[a], numbers[b]), cmp.Compare(a, b))
	})
}

// plain is a body as it was before compression.
func plain(t *testing.T, body []byte) []byte {
	t.Helper()
	if !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		return body
	}
	from, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	body, err = io.ReadAll(from)
	require.NoError(t, err)
	return body
}

func newReplay(t *testing.T, stem string, want *expected) *replay {
	t.Helper()
	r := &replay{t: t, want: want}
	for _, file := range bodiesOf(t, stem) {
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
	var err error
	last := len(replay.bodies) - 1
	for i := range replay.bodies {
		replay.next = i
		md, err = r.scrape()
		if i == last {
			break
		}
		if at := endOf(md); err == nil && at != 0 {
			before = at
		}
		if i -= last - len(want.Previous); i >= 0 {
			scraperstest.CompareTags(t, "previous tags "+strconv.Itoa(i+1), want.Previous[i], tagsOf(t, md, want, want.Previous[i]))
		}
	}
	scraperstest.CompareTags(t, "tags", want.Tags, tagsOf(t, md, want, want.Tags))
	if want.Failed {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	checkExtras(t, replay)
	if want.Mode == "dcgm_promql" {
		return
	}
	checkInstances(t, replay)
	s := parsed(t, want, replay.bodies[last])
	checkBody(t, want, s)
	checkStrict(t, replay, s)
	if want.Mode == "" {
		checkPoints(t, want, md, s, before)
		checkParts(t, want, md)
	}
}

// tagsOf are the single values by tag, in the naming that the case is written in. Where
// GPUs of several machines have one tag, that of which the case tells counts.
func tagsOf(t *testing.T, md pmetric.Metrics, want *expected, told map[string]float64) map[string]float64 {
	t.Helper()
	style := naming.Tag
	if want.Mode == "dcgm_promql" || hasLabelSuffix(told) {
		style = naming.SDK
	}
	tags := map[string]float64{}
	for _, p := range scraperstest.PointsOf(named(md, style)) {
		tag := p.Metric.Name()
		if strings.HasPrefix(tag, "wandbsys_") {
			continue
		}
		if _, twice := tags[tag]; twice {
			require.NotNil(t, p.Attributes["node"], "%s stands twice", tag)
			if p.Value() != told[tag] {
				continue
			}
		}
		tags[tag] = p.Value()
	}
	return tags
}

func hasLabelSuffix(tags map[string]float64) bool {
	for tag := range tags {
		if strings.Contains(tag, "/l:") {
			return true
		}
	}
	return false
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
	got := tagsOf(t, replay.start(true, nil).must(), replay.want, replay.want.Extras)
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
				got, ok := instance[figure].(float64)
				assert.True(t, ok, "%v %s is missing", want["gi"], figure)
				assert.InEpsilon(t, number+1, got+1, 1e-9, "%v %s", want["gi"], figure)
				continue
			}
			assert.Equal(t, value, instance[figure], figure)
		}
	}
}

// checkPoints compares labels, types and start times.
func checkPoints(t *testing.T, want *expected, md pmetric.Metrics, s *exposition.Scrape, before pcommon.Timestamp) {
	t.Helper()
	points := map[string]scraperstest.Point{}
	starts := map[string]pcommon.Timestamp{}
	for name, m := range metricsOf(named(md, naming.Tag)) {
		starts[name] = pointsOf(m)[0].StartTimestamp()
	}
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
		assert.InDelta(t, start, float64(starts[tag])/1e9, 1e-3, tag)
	}
	for _, tag := range want.Resets {
		assert.Equal(t, before, starts[tag], tag)
	}
	if want.Types == nil {
		return
	}
	sums := 0
	for tag := range want.Tags {
		if points[tag].Metric.Type() == pmetric.MetricTypeSum {
			sums++
		}
	}
	assert.Equal(t, want.Types["counter"]+want.Types["info"]+want.Types["stateset"], sums+negatives(s))
}

// negatives is the number of counters below zero, which are no sums.
func negatives(s *exposition.Scrape) (n int) {
	for _, f := range s.Families {
		for i := range f.Samples {
			if f.Type == exposition.TypeCounter && isFinite(f.Samples[i].Value) && isNegative(&f.Samples[i]) {
				n++
			}
		}
	}
	return n
}

// parsed is what a body says.
func parsed(t *testing.T, want *expected, body []byte) *exposition.Scrape {
	t.Helper()
	s, err := exposition.New(exposition.Options{}).Parse(plain(t, body), want.ContentType, keepOf(t, want))
	require.NoError(t, err)
	return s
}

// checkBody compares what is counted of a body.
func checkBody(t *testing.T, want *expected, s *exposition.Scrape) {
	t.Helper()
	checkSkipped(t, want, s)
	if want.Mode == "" || want.Duplicates > 0 {
		assert.Equal(t, want.Duplicates, s.Duplicates)
	}
	assert.ElementsMatch(t, want.Created, s.CreatedFamilies)
	if want.Mode == "" {
		assert.Equal(t, want.NonFinite, s.NonFinite)
		checkTypes(t, want, s)
	}
}

// checkSkipped compares the lines that were skipped, of which the first are told. That
// the last line of a body that was cut is one of them is ours to say.
func checkSkipped(t *testing.T, want *expected, s *exposition.Scrape) {
	t.Helper()
	skipped, count := want.Skipped, s.Skipped
	lines := []int{}
	for _, l := range s.SkippedLines {
		lines = append(lines, l.Line)
		assert.NotEmpty(t, l.Reason)
	}
	if s.MissingEOF && count == len(skipped)+1 {
		count--
		lines = lines[:min(len(lines), count)]
	}
	assert.Equal(t, len(skipped), count)
	assert.ElementsMatch(t, skipped[:min(len(skipped), len(lines))], lines)
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
	if want.Types == nil {
		return
	}
	told := map[string]int{}
	for word, n := range want.Types {
		if word == "untyped" {
			word = "unknown"
		}
		if n > 0 {
			told[word] += n
		}
	}
	assert.Equal(t, told, types)
}

// checkStrict wants a scrape that fails where something is wrong with the body.
func checkStrict(t *testing.T, replay *replay, s *exposition.Scrape) {
	t.Helper()
	want := replay.want.Strict
	r := replay.start(false, map[string]any{"strict": true})
	var md pmetric.Metrics
	var err error
	for replay.next = range replay.bodies {
		md, err = r.scrape()
	}
	switch {
	case want != nil && (want.Error || want.Failed):
		require.Error(t, err)
		assert.Empty(t, tagsOf(t, md, replay.want, nil))
	case want != nil:
		require.NoError(t, err)
		if want.Tags != nil {
			scraperstest.CompareTags(t, "strict tags", want.Tags, tagsOf(t, md, replay.want, want.Tags))
		}
	case len(replay.want.Skipped) > 0:
		require.Error(t, err)
	case s.Skipped+s.Malformed+s.ReplacedUTF8 == 0 && !s.MissingEOF:
		require.NoError(t, err)
	}
}

// checkParts compares histograms and summaries, and the units of all metrics.
func checkParts(t *testing.T, want *expected, md pmetric.Metrics) {
	t.Helper()
	wanted, got := map[string]float64{}, map[string]float64{}
	for word, all := range map[string][]expectedParts{
		"histogram": want.Histograms, "summary": want.Summaries, "exponential": want.Exponential,
	} {
		for i := range all {
			all[i].figures(t, word, wanted)
		}
	}
	metrics := metricsOf(md)
	for _, m := range metrics {
		figuresOf(m, got)
	}
	maps.DeleteFunc(got, func(key string, value float64) bool {
		part, optional := key[strings.LastIndexByte(key, ' ')+1:], []string{"sum", "scale", "zero_count", "zero_threshold", "offset"}
		_, told := wanted[key]
		return !told && (slices.Contains(optional, part) || strings.Contains(key, "} negative ") || math.IsNaN(value))
	})
	scraperstest.CompareTags(t, "parts", wanted, got)
	for name, word := range want.Units {
		m, ok := metrics[metricPrefix+want.Endpoint+"."+name]
		if !ok {
			m = metrics[metricPrefix+want.Endpoint+"."+name+"_total"]
		}
		assert.Equal(t, units[word], m.Unit(), name)
	}
}

// partsKey is what the figures of a histogram or a summary begin with.
func partsKey(word, metric string, labels map[string]string) string {
	return fmt.Sprintf("%s %s{%v} ", word, metric, labels)
}

// figures puts down what is expected, one by one. Buckets are cumulative, and as they
// are in the body: there may be fractions, and the last one may be missing.
func (e *expectedParts) figures(t *testing.T, word string, to map[string]float64) {
	t.Helper()
	if e.Labels == nil {
		e.Labels = map[string]string{}
	}
	key := partsKey(word, e.Metric, e.Labels)
	to[key+"count"] = math.Round(e.Count)
	for part, value := range map[string]*float64{"sum": e.Sum, "scale": e.Scale, "zero_count": e.ZeroCount, "zero_threshold": e.ZeroThreshold} {
		if value != nil {
			to[key+part] = *value
		}
	}
	if word == "histogram" {
		to[key+"le +Inf"] = math.Round(e.Count)
	}
	for bound, count := range numericKeys(t, e.Buckets) {
		to[key+"le "+bound] = math.Round(count)
	}
	for quantile, value := range numericKeys(t, e.Quantiles) {
		to[key+"quantile "+quantile] = value
	}
	for side, b := range map[string]*expectedBuckets{"positive ": e.Positive, "negative ": e.Negative} {
		if b == nil {
			continue
		}
		if len(b.Counts) > 0 {
			to[key+side+"offset"] = b.Offset
		}
		for i, count := range b.Counts {
			to[key+side+strconv.Itoa(i)] = count
		}
	}
}

// figuresOf puts down what a metric has, as figures does.
func figuresOf(m pmetric.Metric, to map[string]float64) {
	switch m.Type() {
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			key := partsKey("histogram", m.Name(), texts(p.Attributes()))
			to[key+"count"], to[key+"sum"] = float64(p.Count()), p.Sum()
			for bound, count := range cumulative(p) {
				to[key+"le "+bound] = count
			}
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			key := partsKey("summary", m.Name(), texts(p.Attributes()))
			to[key+"count"], to[key+"sum"] = float64(p.Count()), p.Sum()
			for _, q := range p.QuantileValues().All() {
				to[key+"quantile "+boundKey(q.Quantile())] = q.Value()
			}
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			key := partsKey("exponential", m.Name(), texts(p.Attributes()))
			to[key+"count"], to[key+"sum"], to[key+"scale"] = float64(p.Count()), p.Sum(), float64(p.Scale())
			to[key+"zero_count"], to[key+"zero_threshold"] = float64(p.ZeroCount()), p.ZeroThreshold()
			for side, b := range map[string]pmetric.ExponentialHistogramDataPointBuckets{"positive ": p.Positive(), "negative ": p.Negative()} {
				to[key+side+"offset"] = float64(b.Offset())
				for i, count := range b.BucketCounts().All() {
					to[key+side+strconv.Itoa(i)] = float64(count)
				}
			}
		}
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
