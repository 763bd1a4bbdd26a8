// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// changing is a server whose answer changes; an empty body is status 503.
type changing struct {
	url  string
	body atomic.Value
}

func newChanging(t testing.TB, body string) *changing {
	t.Helper()
	c := &changing{}
	c.body.Store(body)
	c.url = handle(t, func(w http.ResponseWriter, _ *http.Request) {
		body := c.body.Load().(string)
		if body == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answerWith(w, classicType, []byte(body))
	})
	return c
}

// healthOf are the health points of the endpoint e, without the time it took.
func healthOf(t testing.TB, md pmetric.Metrics) map[string]int64 {
	t.Helper()
	health := map[string]int64{}
	for name, m := range metricsOf(md) {
		short, ours := strings.CutPrefix(name, "wandbsys_endpoint_")
		if !ours {
			continue
		}
		require.Equal(t, 1, m.Gauge().DataPoints().Len(), name)
		p := m.Gauge().DataPoints().At(0)
		assert.Equal(t, map[string]any{"endpoint": "e"}, p.Attributes().AsRaw())
		if short == "scrape_duration" {
			assert.Positive(t, p.DoubleValue())
			assert.Equal(t, "s", m.Unit())
			continue
		}
		health[short] = p.IntValue()
	}
	return health
}

func TestHealthOfAnEndpoint(t *testing.T) {
	server := newChanging(t, "m 1\nm 2\nbad\nn{a=\"1\"} 1\nn{a=\"2\"} NaN\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\nbad line\n")
	r := start(t, at(server.url, "filters", []any{`\.[mh]`}))
	up := map[string]int64{"up": 1, "samples_scraped": 6, "samples_kept": 4, "lines_skipped": 2}
	down := map[string]int64{"up": 0, "samples_scraped": 0, "samples_kept": 0, "lines_skipped": 0}
	md := r.must()
	scraperstest.RequireSane(t, md)
	assert.Equal(t, up, healthOf(t, md))
	server.body.Store("")
	md, err := r.scrape()
	require.Error(t, err)
	assert.Equal(t, down, healthOf(t, md))
	assert.Equal(t, 5, md.DataPointCount())
	server.body.Store("<html>")
	md, err = r.scrape()
	require.Error(t, err)
	assert.Equal(t, down, healthOf(t, md))
	server.body.Store("m 1\n")
	assert.Equal(t, map[string]int64{"up": 1, "samples_scraped": 1, "samples_kept": 1, "lines_skipped": 0}, healthOf(t, r.must()))
}

func TestAnEmptyBodyIsAnAnswer(t *testing.T) {
	r := start(t, at(handle(t, answers(200, ""))))
	assert.Equal(t, map[string]int64{"up": 1, "samples_scraped": 0, "samples_kept": 0, "lines_skipped": 0}, healthOf(t, r.must()))
}

func TestHealthCanBeSwitchedOff(t *testing.T) {
	md := start(t, at(serveText(t, goodBody).URL), func(set *scrapers.Settings) { scraperstest.SwitchAll(&set.Metrics.Metrics, false) }).must()
	assert.Equal(t, 1, md.DataPointCount())
}

// The slow one is first in the alphabet, and is waited for first.
func TestTheDurationIsTheEndpointsOwn(t *testing.T) {
	fast := make(chan struct{})
	r := start(t, endpointsOf(map[string]any{
		"a": handle(t, func(w http.ResponseWriter, _ *http.Request) {
			<-fast
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, goodBody)
		}),
		"b": handle(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, goodBody)
			close(fast)
		}),
	}))
	took := map[string]float64{}
	for _, p := range scraperstest.PointsOf(r.must()) {
		if p.Metric.Name() == "wandbsys_endpoint_scrape_duration" {
			took[p.Attributes["endpoint"].(string)] = p.Value()
		}
	}
	assert.Less(t, took["b"], took["a"])
}

// A failed scrape ends no series, and takes no number.
func TestAFailedScrapeInBetween(t *testing.T) {
	server := newChanging(t, "# TYPE m counter\nm{a=\"1\"} 5\n")
	r := start(t, at(server.url, "stale_markers", true))
	point := func(md pmetric.Metrics, i int) pmetric.NumberDataPoint {
		m, ok := metricsOf(md)["openmetrics.e.m"]
		require.True(t, ok)
		return m.Sum().DataPoints().At(i)
	}
	first := point(r.must(), 0)
	server.body.Store("")
	md, err := r.scrape()
	require.Error(t, err)
	assert.NotContains(t, metricsOf(md), "openmetrics.e.m", "nor are there markers")
	server.body.Store("# TYPE m counter\nm{a=\"0\"} 1\nm{a=\"1\"} 6\n")
	md = r.must()
	assert.Equal(t, first.StartTimestamp(), point(md, 1).StartTimestamp())
	assert.Equal(t, map[string]any{"a": "1", indexKey: int64(0)}, point(md, 1).Attributes().AsRaw())
	assert.Equal(t, map[string]any{"a": "0", indexKey: int64(1)}, point(md, 0).Attributes().AsRaw())
	server.body.Store("# TYPE m counter\nm{a=\"0\"} 1\n")
	md = r.must()
	marker := metricsOf(md)["openmetrics.e.m#2"].Sum().DataPoints().At(0)
	assert.True(t, marker.Flags().NoRecordedValue())
	assert.Equal(t, map[string]any{"a": "1", indexKey: int64(0)}, marker.Attributes().AsRaw())
}

// onMachine gives the family a machine's name.
func onMachine(host, label string) func(*scrapers.Settings) {
	return func(set *scrapers.Settings) {
		set.Identity = identity.New(host, label, "", metadata.DefaultResourceAttributesConfig())
	}
}

func TestWhereEndpointsAre(t *testing.T) {
	type m = map[string]any
	for url, tt := range map[string]struct {
		address string
		port    int64
		scheme  string
		local   bool
	}{
		"http://localhost:9400/m":         {"localhost", 9400, "http", true},
		"http://127.0.0.1":                {"127.0.0.1", 80, "http", true},
		"http://127.8.9.1:1":              {"127.8.9.1", 1, "http", true},
		"https://[::1]":                   {"::1", 443, "https", true},
		"https://node-7/metrics?x=sesame": {"node-7", 443, "https", true},
		"http://node-8":                   {"node-8", 80, "http", false},
		"http://10.0.0.1:":                {"10.0.0.1", 80, "http", false},
		"http://[2001:db8::1]:5":          {"2001:db8::1", 5, "http", false},
		"unix:///run/x.sock?path=/sesame": {"/run/x.sock", 0, "http", true},
	} {
		t.Run(url, func(t *testing.T) {
			for _, label := range []string{"", "a label"} {
				want := m{"service.name": "e", "service.instance.id": "node-7/e", "server.address": tt.address, "url.scheme": tt.scheme}
				if tt.port != 0 {
					want["server.port"] = tt.port
				}
				if tt.local {
					want["host.name"] = "node-7"
				}
				if label != "" {
					want["wandb.label"] = label
				}
				r := start(t, at(url), onMachine("node-7", label))
				assert.Equal(t, want, r.first().resource.Attributes().AsRaw())
			}
		})
	}
}

func resourceOf(t testing.TB, md pmetric.Metrics) map[string]any {
	t.Helper()
	require.Equal(t, 1, md.ResourceMetrics().Len())
	return md.ResourceMetrics().At(0).Resource().Attributes().AsRaw()
}

func TestTargetInfoDescribesTheResource(t *testing.T) {
	server := newChanging(t, goodBody)
	r := start(t, at(server.url, "max_label_value_length", 10), onMachine("node-7", ""))
	plain := resourceOf(t, r.must())
	assert.Equal(t, "e", plain["service.name"])

	server.body.Store(goodBody + "target_info{job=\"j\",instance=\"i\",\"service.name\"=\"other\",\"host.name\"=\"x\",version=\"1.2\",long=\"0123456789abc\"} 1\n")
	want := maps.Clone(plain)
	want["version"], want["long"] = "1.2", "0123456789"
	md := r.must()
	assert.Equal(t, want, resourceOf(t, md))
	assert.NotContains(t, metricsOf(md), "openmetrics.e.target_info")

	server.body.Store("")
	md, err := r.scrape()
	require.Error(t, err)
	assert.Equal(t, want, resourceOf(t, md), "it stays while the endpoint is down")

	server.body.Store(goodBody)
	assert.Equal(t, want, resourceOf(t, r.must()), "and while nothing is told")

	server.body.Store(goodBody + "target_info{version=\"2\"} 1\n")
	want["version"] = "2"
	delete(want, "long")
	assert.Equal(t, want, resourceOf(t, r.must()))
}

func TestTheScopeIsOurs(t *testing.T) {
	scope := start(t, at(serveText(t, goodBody).URL)).must().ResourceMetrics().At(0).ScopeMetrics().At(0).Scope()
	assert.Equal(t, metadata.ScopeName, scope.Name())
	assert.NotEmpty(t, scope.Version())
}

func TestStrictEndpointsFailOnAnythingWrong(t *testing.T) {
	url := serveText(t, goodBody+"bad\n").URL
	assert.InDelta(t, 7, valueOf(t, start(t, at(url)).must()), 0)
	got := start(t, at(url, "strict", true)).fails()
	assert.Equal(t, "parse", got.cause)
	assert.Contains(t, got.text, "line 3: ")
}

func TestLimitsOfSeries(t *testing.T) {
	url := serveText(t, "m{a=\"1\",b=\"2\"} 1\na_long_name 1\nm 7\n").URL
	md := start(t, at(url, "max_labels", 1, "max_name_length", 5)).must()
	assert.InDelta(t, 7, valueOf(t, md), 0)
	assert.Equal(t, map[string]int64{"up": 1, "samples_scraped": 1, "samples_kept": 1, "lines_skipped": 2}, healthOf(t, md))
}

func toldOf(r *rig) []string {
	var told []string
	for _, entry := range r.logs.TakeAll() {
		told = append(told, fmt.Sprint(entry.ContextMap()["what"]))
	}
	return told
}

func TestWhatCostsDataIsToldOnce(t *testing.T) {
	const gaugeHistogram = "# TYPE g gaugehistogram\ng_bucket{le=\"1\"} 1\n"
	for name, tt := range map[string]struct {
		contentType, body string
		keys              []any
		want              string
	}{
		"skipped lines":      {classicType, "bad\n", nil, "skipped 1 lines, such as line 1: the value is missing"},
		"no end":             {openMetricsType, "", nil, "an OpenMetrics body ends without # EOF: it may be cut"},
		"duplicates":         {classicType, "m 7\n", nil, "series that stand there twice: the last one counts (1 in this scrape)"},
		"contradictions":     {classicType, "# TYPE s summary\ns_sum 1\n", nil, "histograms and summaries that contradict themselves are left out (1 in this scrape), such as s: "},
		"gauge histograms":   {classicType, gaugeHistogram, nil, "gauge histograms are left out, since OpenTelemetry has nothing like them (1 in this scrape)"},
		"invalid UTF-8":      {classicType, "n{a=\"\xff\"} 1\n", nil, "texts with invalid UTF-8, which is replaced (1 in this scrape)"},
		"long label values":  {classicType, "n{a=\"1234\"} 1\n", []any{"max_label_value_length", 3}, "label values longer than scrapers::openmetrics::endpoints::e::max_label_value_length are shown cut (1 in this scrape)"},
		"nothing is amiss":   {classicType, "", nil, ""},
		"no value is finite": {classicType, "n NaN\n", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, at(serve(t, tt.contentType, func() []byte { return []byte(tt.body + goodBody) }).URL, tt.keys...))
			assert.InDelta(t, 7, valueOf(t, r.must()), 0)
			told := toldOf(r)
			if tt.want == "" {
				assert.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			assert.Contains(t, told[0], tt.want)
			r.must()
			assert.Empty(t, toldOf(r))
		})
	}
}

func TestNewTroublesAreToldUpToABound(t *testing.T) {
	server := newChanging(t, goodBody+"bad\n")
	r := start(t, at(server.url))
	r.must()
	assert.Len(t, toldOf(r), 1)
	server.body.Store("# HELP m Help.\n" + goodBody + "bad\nm 1\n") // another line, and a duplicate
	r.must()
	assert.Len(t, toldOf(r), 1)
	server.body.Store(goodBody + "m 1\nm 0x1\n")
	r.must()
	assert.Len(t, toldOf(r), 1)
	n := news{}
	for i := range 2 * maxNews {
		n.tell(r.first().logger, []remark{{kinds: []string{strconv.Itoa(i)}, text: "x"}})
	}
	assert.Equal(t, maxNews+1, r.logs.Len())
	assert.Equal(t, "The endpoint has more and more to remark on; no more is told", r.logs.All()[maxNews].Message)
}

func TestAMetricWithMoreSeriesThanNumbersIsTold(t *testing.T) {
	var body strings.Builder
	for i := range 10_001 {
		_, _ = fmt.Fprintf(&body, "m{a=\"%d\"} 1\n", i)
	}
	r := start(t, at(serveText(t, body.String()).URL, "max_series", 20_000))
	points := metricsOf(r.must())["openmetrics.e.m"].Gauge().DataPoints()
	require.Equal(t, 10_001, points.Len())
	assert.Equal(t, map[string]any{"a": "9999", indexKey: int64(9999)}, points.At(9999).Attributes().AsRaw())
	assert.Equal(t, map[string]any{"a": "10000"}, points.At(10_000).Attributes().AsRaw())
	assert.Equal(t, []string{"m has more label sets than W&B's tags can number: new ones have no wandb.index, and no name in tag and sdk naming"}, toldOf(r))
	r.must()
	assert.Empty(t, toldOf(r))
}

// What is remembered must not hold a body, nor a body what is remembered.
func TestPointsOfAScrapeAreNotThoseOfTheNext(t *testing.T) {
	server := newChanging(t, "# HELP m One.\n# TYPE m gauge\nm{a=\"1\"} 1\n")
	r := start(t, at(server.url, "stale_markers", true))
	first := r.must()
	before, err := new(pmetric.JSONMarshaler).MarshalMetrics(first)
	require.NoError(t, err)
	server.body.Store("# HELP n Two.\n# TYPE n gauge\nn{b=\"2\"} 2\n")
	r.must()
	after, err := new(pmetric.JSONMarshaler).MarshalMetrics(first)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}

func TestEndpointsOfOneServerHaveTheirOwnNumbers(t *testing.T) {
	url := serveText(t, "m{a=\"1\"} 1\nm{a=\"2\"} 2\n").URL
	r := start(t, endpointsOf(map[string]any{"a": map[string]any{"endpoint": url, "filters": map[string]any{"m": map[string]any{"a": 2}}}, "b": url}))
	assert.Equal(t, map[string]float64{"openmetrics.a.m.0": 2, "openmetrics.b.m.0": 1, "openmetrics.b.m.1": 2}, openMetricsTags(r.must()))
}

func openMetricsTags(md pmetric.Metrics) map[string]float64 {
	tags := scraperstest.TagsOf(md)
	maps.DeleteFunc(tags, func(tag string, _ float64) bool { return !strings.HasPrefix(tag, metricPrefix) })
	return tags
}

func TestAnEndpointOfWhichNothingIsTakenIsToldOnce(t *testing.T) {
	server := serveText(t, "a 1\nb 2\n")
	for name, tt := range map[string]struct {
		key   string
		value any
		want  string
	}{
		"a filter":  {"filters", []any{"other.a"}, "filters and exclude leave none of its 2 samples"},
		"a mapping": {"map", "dcgm", "map: dcgm has a metric that is on for none of its series"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, endpointsOf(map[string]any{"e": map[string]any{"endpoint": server.URL, tt.key: tt.value}}))
			r.must()
			r.must()
			told := r.logs.TakeAll()
			require.Len(t, told, 1)
			assert.Equal(t, tt.want, told[0].ContextMap()["reason"])
			assert.Equal(t, "e", told[0].ContextMap()["endpoint"])
		})
	}
	r := start(t, endpointsOf(map[string]any{"e": map[string]any{"endpoint": server.URL, "filters": []any{"e.a"}}}))
	r.must()
	assert.Zero(t, r.logs.Len())
}
