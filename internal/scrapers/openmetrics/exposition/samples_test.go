// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"encoding/json"
	"fmt"
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
		if want.Mode == "dcgm_promql" {
			continue // the answer of another API
		}
		t.Run(filepath.Base(stem), func(t *testing.T) { checkSample(t, stem, &want) })
	}
}

func checkSample(t *testing.T, stem string, want *expected) {
	t.Helper()
	bodies, err := filepath.Glob(stem + ".[^e]*")
	require.NoError(t, err)
	require.NotEmpty(t, bodies)
	slices.Sort(bodies)
	r := &replayed{parser: New(Options{}), want: want, index: map[string]map[string]int{}, keep: filterOf(t, want)}
	for i, body := range bodies {
		content, err := os.ReadFile(body)
		require.NoError(t, err)
		scrape, err := r.parser.Parse(content, want.ContentType, r.keep)
		if want.Failed {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		if want.Mode == "" {
			r.number(scrape)
		}
		if i < len(bodies)-1 {
			assert.Equal(t, want.Previous[i], r.tags)
			continue
		}
		checkCounts(t, want, scrape)
		checkPartsOf(t, want, scrape)
		if want.Mode == "" {
			r.check(t, scrape)
		}
		strict, err := New(Options{Strict: true}).Parse(content, want.ContentType, nil)
		if want.Strict != nil && want.Strict.Error || len(want.Skipped) > 0 {
			require.Error(t, err)
			assert.Nil(t, strict)
		} else {
			require.NoError(t, err)
		}
	}
}

// replayed numbers series as the scraper of an endpoint does.
type replayed struct {
	parser *Parser
	want   *expected
	keep   Keep
	index  map[string]map[string]int
	tags   map[string]float64
	labels map[string]map[string]string
	starts map[string]int64
}

func (r *replayed) number(s *Scrape) {
	r.tags, r.labels, r.starts = map[string]float64{}, map[string]map[string]string{}, map[string]int64{}
	for _, f := range s.Families {
		for _, sample := range f.Samples {
			if r.index[f.Name] == nil {
				r.index[f.Name] = map[string]int{}
			}
			of, key := r.index[f.Name], string(sample.Labels.AppendKey(nil))
			if _, ok := of[key]; !ok {
				of[key] = len(of)
			}
			if math.IsNaN(sample.Value) || math.IsInf(sample.Value, 0) {
				continue
			}
			tag := fmt.Sprintf("openmetrics.%s.%s.%d", r.want.Endpoint, f.Name, of[key])
			r.tags[tag] = sample.Value
			r.labels[tag] = plainLabels(sample.Labels)
			if sample.Start.Known {
				r.starts[tag] = sample.Start.Millis / 1000
			}
		}
	}
}

func (r *replayed) check(t *testing.T, s *Scrape) {
	t.Helper()
	assert.Equal(t, r.want.Tags, r.tags)
	for tag, labels := range r.want.Labels {
		assert.Equal(t, labels, r.labels[tag], tag)
	}
	for tag, start := range r.want.Starts {
		assert.Equal(t, start, r.starts[tag], tag)
	}
	if r.want.Types != nil {
		types := map[string]int{}
		for _, f := range s.Families {
			for _, sample := range f.Samples {
				if !math.IsNaN(sample.Value) && !math.IsInf(sample.Value, 0) {
					types[f.Type.String()]++
				}
			}
		}
		assert.Equal(t, r.want.Types, types)
	}
}

func checkCounts(t *testing.T, want *expected, s *Scrape) {
	t.Helper()
	var lines []int
	for _, l := range s.SkippedLines {
		lines = append(lines, l.Line)
		assert.NotEmpty(t, l.Reason)
	}
	assert.Equal(t, want.Skipped, lines)
	assert.Equal(t, len(want.Skipped), s.Skipped)
	assert.Equal(t, want.NonFinite, s.NonFinite)
	assert.Equal(t, want.Duplicates, s.Duplicates)
	assert.ElementsMatch(t, want.Created, s.CreatedFamilies)
	units := map[string]string{}
	for _, f := range s.Families {
		units[f.Name] = f.Unit
		units[f.declared.name] = f.Unit
	}
	for name, unit := range want.Units {
		assert.Equal(t, unit, units[name], name)
	}
}

func checkPartsOf(t *testing.T, want *expected, s *Scrape) {
	t.Helper()
	var histograms []expectedHistogram
	var summaries []expectedSummary
	var exponential []expectedExponential
	for _, f := range s.Families {
		metric := "openmetrics." + want.Endpoint + "." + f.Name
		for _, h := range f.Histograms {
			histograms = append(histograms, expectedHistogram{
				Metric: metric, Labels: plainLabels(h.Labels), Count: float64(h.Count), Sum: h.Sum, Buckets: cumulative(h),
			})
		}
		for _, m := range f.Summaries {
			quantiles := map[string]float64{}
			for _, q := range m.Quantiles {
				quantiles[boundKey(q.Quantile)] = q.Value
			}
			summaries = append(summaries, expectedSummary{
				Metric: metric, Labels: plainLabels(m.Labels), Count: float64(m.Count), Sum: m.Sum, Quantiles: quantiles,
			})
		}
		for _, h := range f.Natives {
			exponential = append(exponential, expectedExponential{
				Metric: metric, Labels: plainLabels(h.Labels), Count: h.Count, Sum: h.Sum, Scale: h.Scale, ZeroCount: h.ZeroCount,
				Positive: expectedExpBuckets{h.Positive.Offset, h.Positive.Counts},
			})
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
}

func cumulative(h Histogram) map[string]float64 {
	buckets := map[string]float64{}
	var total uint64
	for i, n := range h.Counts {
		total += n
		bound := math.Inf(1)
		if i < len(h.Bounds) {
			bound = h.Bounds[i]
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

func plainLabels(ls Labels) map[string]string {
	out := map[string]string{}
	for _, l := range ls {
		out[l.Name] = l.Value
	}
	return out
}

// filterOf returns a sample's filter: expressions searched in ENDPOINT.METRIC, and in
// the values of labels.
func filterOf(t *testing.T, want *expected) Keep {
	t.Helper()
	if want.Filters == nil {
		return nil
	}
	filters := map[string]map[string]string{}
	var list []string
	if json.Unmarshal(want.Filters, &list) == nil {
		for _, expression := range list {
			filters[expression] = nil
		}
	} else {
		require.NoError(t, json.Unmarshal(want.Filters, &filters))
	}
	return func(name string, labels Labels) bool {
		for expression, byLabel := range filters {
			if regexp.MustCompile(expression).MatchString(want.Endpoint+"."+name) && allMatch(byLabel, labels) {
				return true
			}
		}
		return false
	}
}

func allMatch(byLabel map[string]string, labels Labels) bool {
	for label, expression := range byLabel {
		value, ok := labels.Get(label)
		if !ok || !regexp.MustCompile(expression).MatchString(value) {
			return false
		}
	}
	return true
}
