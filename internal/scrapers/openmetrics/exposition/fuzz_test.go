// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	dto "github.com/prometheus/prometheus/prompb/io/prometheus/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seedBodies are what fuzzing starts from, with every rule in them.
var seedBodies = []string{
	"# TYPE a gauge\na{x=\"1\", y=\"2\",} 1 1700000000000\na 2\n",
	"# HELP \"a.b\" some \\\\ help\n# TYPE \"a.b\" counter\n{\"a.b\",\"x y\"=\"1\"} 1\n{x=\"1\",\"a.b\"} 2\n",
	"# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\nh_created 1e9\n",
	"# TYPE s summary\ns{quantile=\"0.5\"} NaN\ns_sum 1\ns_count 2\ns_created 1.5\n",
	"# TYPE c counter\n# UNIT c_seconds seconds\nc_total{a=\"\\\\\\\"\\n\\q\"} 1 1.5 # {trace_id=\"ab\"} 0.5 1.25\nc_created 1e9\n# EOF\n",
	"# TYPE g gaugehistogram\ng_bucket{le=\"1\"} 1\ng_gcount 1\ng_gsum 2\n# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE st stateset\nst{st=\"a\"} 1\n# EOF\n",
	"target_info{service=\"x\"} 1\nbad{a=\"b\"c\"} 1\n  indented 1\r\nhex 0x10\nx_created 5\n# EOF\nmore 1\n",
	"temp-2 5\na{b=\"1\" c=\"2\"}3\na\t1\t2\n#TYPE x gauge\n# TYPE y.gauge\n# TYPE x teapot\n",
	"a{x=\"1\nb\"} 1\n{\"\"} 1\na{x=\"\xff\"} 1\n\xef\xbb\xbfa 1\na{__name__=\"b\"} 1\n",
	"<html></html>", "{\"error\": 1}", "",
}

func addSeeds(f *testing.F, add func(body []byte)) {
	f.Helper()
	for _, body := range seedBodies {
		add([]byte(body))
	}
	add(delimited(f,
		histogramOf(&dto.Histogram{SampleCount: 3, PositiveSpan: []dto.BucketSpan{{Offset: 0, Length: 2}}, PositiveDelta: []int64{1, 1}}, "x", "1"),
		histogramOf(&dto.Histogram{SampleCountFloat: 1.5, NegativeSpan: []dto.BucketSpan{{Offset: 5, Length: 1}}, NegativeCount: []float64{1.5}}),
		histogramOf(&dto.Histogram{SampleCount: 1, Bucket: []dto.Bucket{{UpperBound: 1, CumulativeCount: 1, Exemplar: &dto.Exemplar{Value: 1}}}}),
		&dto.MetricFamily{Name: "g", Help: "Help.", Type: dto.MetricType_GAUGE, Metric: []dto.Metric{{Gauge: &dto.Gauge{Value: 1}}}},
		&dto.MetricFamily{Name: "s", Type: dto.MetricType_SUMMARY, Metric: []dto.Metric{{Summary: &dto.Summary{SampleCount: 1, Quantile: []dto.Quantile{{Quantile: 1}}}}}},
	))
	files, _ := filepath.Glob(filepath.Join(os.Getenv("WANDBSYS_SAMPLES"), "openmetrics", "*.[pom]*"))
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && len(content) < 4096 {
			add(content)
		}
	}
}

func FuzzParse(f *testing.F) {
	types := []string{classicType, openMetricsType, protobufType, "", "text/plain"}
	addSeeds(f, func(body []byte) {
		for i := range types {
			f.Add(body, uint8(i), i%2 == 0)
		}
	})
	limits := Limits{BodySize: 1 << 14, Series: 20, Labels: 4, LabelValue: 8, Name: 30}
	f.Fuzz(func(t *testing.T, body []byte, kind uint8, strict bool) {
		contentType := types[int(kind)%len(types)]
		p := New(Options{Strict: strict, Limits: limits})
		before := bytes.Clone(body)
		first, err := p.Parse(body, contentType, nil)
		require.Equal(t, before, body)
		if err != nil {
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		checkSound(t, first, limits)
		families, samples := len(first.Families), first.Samples
		again, err := p.Parse(body, contentType, nil)
		require.NoError(t, err)
		require.Len(t, again.Families, families)
		require.Equal(t, samples, again.Samples)
		fresh, err := New(Options{Strict: strict, Limits: limits}).Parse(body, contentType, nil)
		require.NoError(t, err)
		requireSame(t, fresh, again)
	})
}

// checkSound checks what must hold of every scrape.
func checkSound(t *testing.T, s *Scrape, limits Limits) {
	t.Helper()
	series := 0
	for _, f := range s.Families {
		require.NotEmpty(t, f.Name)
		require.LessOrEqual(t, len(f.Name), limits.Name)
		for _, text := range []string{f.Name, f.Help, f.Unit} {
			require.True(t, utf8.ValidString(text))
		}
		keys := map[string]bool{}
		unique := func(ls Labels) {
			checkLabels(t, ls, limits)
			key := string(ls.AppendKey(nil))
			require.False(t, keys[key], "a series twice")
			keys[key] = true
		}
		for i := range f.Samples {
			series++
			unique(f.Samples[i].Labels)
		}
		for i := range f.Histograms {
			h := &f.Histograms[i]
			series += len(h.Bounds)
			unique(h.Labels)
			require.Len(t, h.Counts, len(h.Bounds)+1)
			require.Equal(t, h.Count, sumOf(h.Counts))
			require.True(t, slices.IsSorted(h.Bounds))
			require.Len(t, slices.Compact(slices.Clone(h.Bounds)), len(h.Bounds))
		}
		for i := range f.Natives {
			n := &f.Natives[i]
			unique(n.Labels)
			require.LessOrEqual(t, len(n.Positive.Counts), maxNativeBuckets)
			require.LessOrEqual(t, len(n.Negative.Counts), maxNativeBuckets)
		}
		for i := range f.Summaries {
			series += len(f.Summaries[i].Quantiles)
			unique(f.Summaries[i].Labels)
		}
	}
	require.LessOrEqual(t, series, limits.Series)
	require.LessOrEqual(t, s.Kept, s.Samples)
	require.LessOrEqual(t, len(s.SkippedLines), min(s.Skipped, shownLines))
	require.True(t, slices.IsSortedFunc(s.SkippedLines, func(a, b SkippedLine) int { return a.Line - b.Line }))
}

func sumOf(counts []uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func checkLabels(t *testing.T, ls Labels, limits Limits) {
	t.Helper()
	require.LessOrEqual(t, len(ls), limits.Labels)
	for i, l := range ls {
		require.NotEmpty(t, l.Name)
		require.True(t, utf8.ValidString(l.Name) && utf8.ValidString(l.Value))
		require.True(t, i == 0 || ls[i-1].Name < l.Name)
		require.LessOrEqual(t, len(limits.Shown(l.Value)), limits.LabelValue)
	}
}

func requireSame(t *testing.T, want, got *Scrape) {
	t.Helper()
	require.Equal(t, dump(want), dump(got))
	require.Equal(t, [3]int{want.Samples, want.Kept, want.Skipped}, [3]int{got.Samples, got.Kept, got.Skipped})
}

func comparable64(v float64) float64 {
	if math.IsNaN(v) {
		return -math.MaxFloat64
	}
	return v
}

// FuzzLinesAgainstTextparse reads line by line what textparse accepts, and expects the
// same, and the same of reading it whole. Left out are the inputs that textparse
// misreads.
func FuzzLinesAgainstTextparse(f *testing.F) {
	addSeeds(f, func(body []byte) {
		f.Add(body, false)
		f.Add(body, true)
	})
	f.Fuzz(func(t *testing.T, body []byte, openMetrics bool) {
		format, contentType := Classic, classicType
		if openMetrics {
			format, contentType = OpenMetrics, openMetricsType
		}
		want, types, accepted := oracle(t, body, contentType)
		if !accepted {
			return
		}
		p := New(Options{})
		p.text = string(body)
		p.begin(format)
		p.survey()
		require.Equal(t, want, rawLines(t, p))
		require.Zero(t, p.out.Skipped, p.out.SkippedLines)
		for _, declared := range types {
			require.Contains(t, p.names.byName[declared.name].types, declared.typ)
		}
		requireSameWhole(t, body, format)
	})
}

func requireSameWhole(t *testing.T, body []byte, format Format) {
	t.Helper()
	all := func(string, Labels) bool { return true }
	whole := New(Options{})
	whole.keep, whole.text = all, string(body)
	whole.begin(format)
	if !whole.survey() {
		return
	}
	ok, err := whole.readWhole(body)
	if err != nil || !ok {
		return
	}
	lines := New(Options{})
	lines.keep, lines.text = all, string(body)
	lines.begin(format)
	lines.survey()
	require.NoError(t, lines.readLines())
	requireSame(t, &whole.out, &lines.out)
}

// raw is a sample before it is put where it belongs.
type raw struct {
	name      string
	labels    string
	value     float64
	timestamp Time
	exemplar  string
}

type declaration struct {
	name string
	typ  Type
}

// rawLines reads the samples line by line.
func rawLines(t *testing.T, p *Parser) (samples []raw) {
	t.Helper()
	for line := range strings.Lines(p.text[:p.end]) {
		line = trimLine(strings.TrimSuffix(line, "\n"))
		if line == "" || line[0] == '#' {
			continue
		}
		require.Empty(t, p.scan.line(line), "%q", line)
		s := &p.scan.sample
		made := raw{name: s.name, labels: comparableLabels(s.labels), value: comparable64(s.value), timestamp: s.timestamp}
		if s.exemplar != nil {
			made.exemplar = comparableExemplar(s.exemplar.Labels, s.exemplar.Value, s.exemplar.Timestamp)
		}
		samples = append(samples, made)
	}
	return samples
}

func comparableLabels(ls Labels) string {
	var b strings.Builder
	for _, l := range ls {
		b.WriteString(strconv.Quote(l.Name) + "=")
		if v, err := strconv.ParseFloat(l.Value, 64); err == nil && (l.Name == "le" || l.Name == "quantile") {
			l.Value = labels.FormatOpenMetricsFloat(v)
		}
		b.WriteString(strconv.Quote(l.Value) + ",")
	}
	return b.String()
}

func comparableExemplar(ls Labels, value float64, ts Time) string {
	return comparableLabels(ls) + strconv.FormatFloat(value, 'g', -1, 64) + " " + strconv.FormatInt(ts.Millis, 10)
}

// oracle returns what textparse reads. It accepts neither what textparse rejects nor
// what it is known to misread.
func oracle(t *testing.T, body []byte, contentType string) (samples []raw, types []declaration, accepted bool) {
	t.Helper()
	if misread(body) {
		return nil, nil, false
	}
	if contentType == classicType && !bytes.HasSuffix(body, []byte("\n")) {
		body = append(slices.Clip(body), '\n') // as textparse does, which then has another capacity
	}
	body = slices.Clip(body)
	parser, err := textparse.New(body, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	require.NoError(t, err)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples, types, true
		}
		if err != nil {
			return nil, nil, false
		}
		switch entry {
		case textparse.EntryType:
			name, typ := parser.Type()
			if !goodLine(string(name)) {
				return nil, nil, false
			}
			types = append(types, declaration{unescape(string(name), true), typeWords[string(typ)]})
		case textparse.EntryHelp:
			if name, _ := parser.Help(); !goodLine(string(name)) {
				return nil, nil, false
			}
		case textparse.EntryUnit:
			if name, _ := parser.Unit(); !goodLine(string(name)) {
				return nil, nil, false
			}
		case textparse.EntrySeries:
			made, ok := oracleSample(parser, body)
			if !ok {
				return nil, nil, false
			}
			samples = append(samples, made)
		}
	}
}

// misread tells whether textparse errs on a body without saying so.
func misread(body []byte) bool {
	if bytes.HasPrefix(body, []byte(bom)) || bytes.ContainsAny(body, "\r\x00") {
		return true
	}
	for line := range bytes.Lines(body) {
		if line[0] == ' ' || line[0] == '\t' {
			return true
		}
	}
	return false
}

func goodName(name string) bool {
	return name != "" && utf8.ValidString(name) && len(name) <= DefaultLimits().Name
}

// goodLine tells whether a name of metadata, as it is written, is on one line.
func goodLine(name string) bool { return goodName(name) && !strings.Contains(name, "\n") }

func oracleSample(parser textparse.Parser, body []byte) (raw, bool) {
	series, ts, value := parser.Series()
	made := raw{value: comparable64(value)}
	if ts != nil {
		made.timestamp = Time{Millis: *ts, Known: true}
	}
	end := len(body) - cap(series) + len(series)
	if series[len(series)-1] != '}' && end < len(body) && body[end] != ' ' && body[end] != '\t' {
		return raw{}, false // a value glued to a name
	}
	if bytes.IndexByte(series, '\n') >= 0 {
		return raw{}, false
	}
	var ls labels.Labels
	parser.Labels(&ls)
	made.name = ls.Get(metricNameName)
	own, ok := ownLabels(ls, func(s string) string { return s })
	named := own.take(metricNameName) != ""
	made.labels = comparableLabels(own)
	if !ok || !named || !goodName(made.name) || len(own) > DefaultLimits().Labels {
		return raw{}, false
	}
	var e exemplar.Exemplar
	if !parser.Exemplar(&e) {
		return made, true
	}
	own, ok = ownLabels(e.Labels, func(s string) string { return unescape(s, true) })
	made.exemplar = comparableExemplar(own, e.Value, Time{Millis: e.Ts, Known: e.HasTs})
	return made, ok && len(own) <= DefaultLimits().Labels
}

// ownLabels converts labels; it returns false if a name is not usable or occurs twice.
func ownLabels(from labels.Labels, meaning func(string) string) (ls Labels, ok bool) {
	ok = true
	from.Range(func(l labels.Label) {
		name := meaning(l.Name)
		ok = ok && name != "" && utf8.ValidString(name)
		ls = append(ls, Label{name, meaning(l.Value)})
	})
	return ls, ls.sort() && ok
}

func TestSeedsOfFuzzTestsReachTheRules(t *testing.T) {
	accepted := 0
	for _, body := range seedBodies {
		for _, contentType := range []string{classicType, openMetricsType} {
			if _, _, ok := oracle(t, []byte(body), contentType); ok {
				accepted++
			}
		}
	}
	assert.GreaterOrEqual(t, accepted, 6)
}
