// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// twoGPUs is what dcgm-exporter says of two GPUs.
const twoGPUs = `# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",hostname="node-1"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",hostname="node-1"} 50
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",hostname="node-1"} 1024
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",hostname="node-1"} 0.75
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",hostname="node-1"} 31
# TYPE scrape_seconds histogram
scrape_seconds_bucket{le="+Inf"} 1
scrape_seconds_count 1
scrape_seconds_sum 0.5
`

// namesOf are the metrics but for those of the endpoint's health.
func namesOf(md pmetric.Metrics) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(metricsOf(md))) {
		if !strings.HasPrefix(name, "wandbsys_") {
			names = append(names, name)
		}
	}
	return names
}

func TestMappedEndpointsGiveMetricsOfGPUs(t *testing.T) {
	server := serveText(t, twoGPUs)
	for name, tt := range map[string]struct {
		keys map[string]any
		want []string
	}{
		"without a mapping, the names are the endpoint's": {
			nil,
			[]string{
				"openmetrics.dcgm.DCGM_FI_DEV_FB_USED", "openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP", "openmetrics.dcgm.DCGM_FI_DEV_XID_ERRORS",
				"openmetrics.dcgm.DCGM_FI_PROF_SM_ACTIVE", "openmetrics.dcgm.scrape_seconds",
			},
		},
		"with one, what has no name of a GPU is left out": {
			map[string]any{"map": "dcgm"},
			[]string{"gpu.memoryAllocatedBytes", "gpu.temp"},
		},
		"or kept": {
			map[string]any{"map": "dcgm", "keep_unmapped": true},
			[]string{"gpu.memoryAllocatedBytes", "gpu.temp", "openmetrics.dcgm.DCGM_FI_DEV_XID_ERRORS", "openmetrics.dcgm.scrape_seconds"},
		},
		"filters come first, by the endpoint's names": {
			map[string]any{"map": "dcgm", "filters": []any{`^dcgm\.DCGM_FI_DEV_GPU`}},
			[]string{"gpu.temp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := map[string]any{"endpoint": server.URL}
			maps.Copy(keys, tt.keys)
			md := start(t, endpointsOf(map[string]any{"dcgm": keys})).must()
			assert.Equal(t, tt.want, namesOf(md))
			scraperstest.RequireSane(t, md)
			assert.Equal(t, 1, md.ResourceMetrics().Len(), "the GPUs are on the endpoint's resource")
		})
	}
}

func TestGPUsThatNVMLMeasuresKeepTheirNames(t *testing.T) {
	server := serveText(t, twoGPUs)
	var measured gpus.Measured
	measured.Expect("nvidia")
	r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": server.URL, "map": "dcgm"}}),
		func(set *scrapers.Settings) { set.GPUs = &measured })

	md := r.must()
	assert.Empty(t, namesOf(md), "what NVML measures is not known yet")

	measured.Set("nvidia", []string{"GPU-a"})
	md = r.must()
	temps := metricsOf(md)
	require.Equal(t, 1, temps["gpu.temp"].Gauge().DataPoints().Len())
	assert.InDelta(t, 50, temps["gpu.temp"].Gauge().DataPoints().At(0).DoubleValue(), 0)
	require.Equal(t, 1, temps["openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP"].Gauge().DataPoints().Len())
	assert.InDelta(t, 40, temps["openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP"].Gauge().DataPoints().At(0).DoubleValue(), 0)
}

// queryAPI is a Prometheus server that knows queries by their text.
type queryAPI struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newQueryAPI(t *testing.T, answers map[string]string) *queryAPI {
	t.Helper()
	api := &queryAPI{}
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.mu.Lock()
		api.asked = append(api.asked, r.URL.Path+" "+r.URL.Query().Get("query")+" "+r.URL.Query().Get("tenant"))
		api.mu.Unlock()
		answer, ok := answers[r.URL.Query().Get("query")]
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			answer = `{"status":"error","errorType":"bad_data","error":"no such query"}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(api.Close)
	return api
}

// vector is an answer with series of GPU 0, in the order field, value.
func vector(pairs ...string) string {
	var result []any
	for pair := range slices.Chunk(pairs, 2) {
		result = append(result, map[string]any{
			"metric": map[string]string{"__name__": pair[0], "gpu": "0", "UUID": "GPU-a", "Hostname": "node-1", "instance": "10.0.0.1:9400"},
			"value":  []any{1738025769.5, pair[1]},
		})
	}
	text, _ := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
	return string(text)
}

func TestQueryAPIsAreAskedAsConfigured(t *testing.T) {
	api := newQueryAPI(t, map[string]string{"one": vector("DCGM_FI_DEV_GPU_TEMP", "40"), "two": vector("DCGM_FI_DEV_POWER_USAGE", "300")})
	for name, tt := range map[string]struct {
		url     string
		queries []any
		want    []string
	}{
		"W&B's form":                    {"/api/v1/query?query=one&query=two", nil, []string{"/api/v1/query one ", "/api/v1/query two "}},
		"queries beside the URL":        {"", []any{"one"}, []string{"/api/v1/query one "}},
		"both":                          {"?query=one", []any{"two"}, []string{"/api/v1/query one ", "/api/v1/query two "}},
		"a path before the API's":       {"/tenants/7/api/v1/query?query=one", nil, []string{"/tenants/7/api/v1/query one "}},
		"a path without the API's":      {"/prometheus/", []any{"one"}, []string{"/prometheus/api/v1/query one "}},
		"other parameters are kept":     {"/api/v1/query?tenant=x&query=one", nil, []string{"/api/v1/query one x"}},
		"W&B's URL with another ending": {"/api/v1/query/?query=one", nil, []string{"/api/v1/query one "}},
	} {
		t.Run(name, func(t *testing.T) {
			api.asked = nil
			r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": api.URL + tt.url, "query_api": true, "queries": tt.queries}}))
			assert.Contains(t, namesOf(r.must()), "gpu.temp")
			assert.Equal(t, tt.want, api.asked)
		})
	}
}

func TestQueryAPIsBehindAUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "api.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	var asked atomic.Value
	server := &http.Server{ReadHeaderTimeout: testTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path)
		_, _ = w.Write([]byte(vector("DCGM_FI_DEV_GPU_TEMP", "40")))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	for from, want := range map[string]string{"": queryPath, "?path=/prometheus": "/prometheus" + queryPath} {
		r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": "unix://" + socket + from, "query_api": true}}))
		assert.Contains(t, namesOf(r.must()), "gpu.temp")
		assert.Equal(t, want, asked.Load())
	}
}

func TestTheLimitOfAQueryIsForWhatTheFilterKeeps(t *testing.T) {
	api := newQueryAPI(t, map[string]string{"q": vector("DCGM_FI_DEV_GPU_TEMP", "40", "up", "1", "other", "2")})
	keys := map[string]any{"endpoint": api.URL, "query_api": true, "queries": []any{"q"}, "max_series": 1}
	_, err := start(t, endpointsOf(map[string]any{"dcgm": keys})).scrape()
	require.ErrorContains(t, err, "2 series too many (limit 1)")
	keys["filters"] = []any{"DCGM"}
	assert.Contains(t, namesOf(start(t, endpointsOf(map[string]any{"dcgm": keys})).must()), "gpu.temp")
}

func TestWithoutQueriesAllFieldsAreAskedFor(t *testing.T) {
	api := newQueryAPI(t, nil)
	r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": api.URL, "query_api": true}}))
	_, err := r.scrape()
	require.Error(t, err)
	require.Len(t, api.asked, 1)
	for _, field := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_PIPE_FP16_ACTIVE"} {
		assert.Contains(t, api.asked[0], field)
	}
}

func TestBothSourcesOfDCGMGiveTheSameFigures(t *testing.T) {
	exporter := serveText(t, twoGPUs)
	api := newQueryAPI(t, map[string]string{"all": vector(
		"DCGM_FI_DEV_GPU_TEMP", "40", "DCGM_FI_DEV_FB_USED", "1024", "DCGM_FI_PROF_SM_ACTIVE", "0.75", "DCGM_FI_DEV_XID_ERRORS", "31",
	)})
	all := func(set *scrapers.Settings) { scraperstest.SwitchAll(&set.Metrics.Metrics, true) }
	md := start(t, endpointsOf(map[string]any{
		"text": map[string]any{"endpoint": exporter.URL, "map": "dcgm", "filters": map[string]any{".": map[string]any{"gpu": "0"}}},
		"api":  map[string]any{"endpoint": api.URL, "query_api": true, "queries": []any{"all"}},
	}), all).must()
	require.Equal(t, 2, md.ResourceMetrics().Len())
	var tags [2]map[string]float64
	for i, rm := range md.ResourceMetrics().All() {
		one := pmetric.NewMetrics()
		rm.CopyTo(one.ResourceMetrics().AppendEmpty())
		tags[i] = map[string]float64{}
		for _, p := range scraperstest.PointsOf(named(one, naming.SDK)) {
			if strings.HasPrefix(p.Metric.Name(), "gpu.") {
				tags[i][p.Metric.Name()+" "+p.Metric.Unit()] = p.Value()
			}
		}
	}
	assert.Equal(t, map[string]float64{
		"gpu.0.temp/l:node-1 Cel": 40, "gpu.0.memoryUsed/l:node-1 By": 1 << 30, "gpu.0.smActive/l:node-1 %": 75,
	}, tags[0])
	assert.Equal(t, tags[0], tags[1])
}

func TestAQueryThatFailsCostsItsOwnSeries(t *testing.T) {
	api := newQueryAPI(t, map[string]string{"good": vector("DCGM_FI_DEV_GPU_TEMP", "40")})
	r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": api.URL, "query_api": true, "queries": []any{"bad", "good"}}}))
	md, err := r.scrape()
	require.ErrorContains(t, err, `endpoint dcgm (`+api.URL+`): query "bad": the endpoint answered 400 Bad Request`)
	assert.Equal(t, []string{"gpu.temp"}, namesOf(md))
	assert.Zero(t, metricsOf(md)["wandbsys_endpoint_up"].Gauge().DataPoints().At(0).IntValue())
	assert.Equal(t, int64(1), metricsOf(md)["wandbsys_endpoint_samples_kept"].Gauge().DataPoints().At(0).IntValue())
}

func TestQueriesThatFailAreToldInOneLine(t *testing.T) {
	api := newQueryAPI(t, nil)
	r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": api.URL, "query_api": true, "queries": []any{"bad", "worse"}}}))
	_, err := r.scrape()
	require.Error(t, err)
	assert.Regexp(t, `^endpoint dcgm \(.*\): query "bad": .*; query "worse": [^\n]*$`, err.Error())
}

func TestAnswersOfQueryAPIsThatAreNone(t *testing.T) {
	var many []string
	for i := range 6 {
		many = append(many, fmt.Sprintf("DCGM_FI_DEV_FIELD_%d", i), "1")
	}
	for name, tt := range map[string]struct {
		answer, want string
	}{
		"no JSON":         {"<html>", "endpoint dcgm"},
		"no vector":       {`{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, "scalar"},
		"too many series": {vector(many...), "1 series too many (limit 5); raise scrapers::openmetrics::endpoints::dcgm::max_series, or filter"},
	} {
		t.Run(name, func(t *testing.T) {
			api := newQueryAPI(t, map[string]string{"q": tt.answer})
			r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": api.URL, "query_api": true, "queries": []any{"q"}, "max_series": 5}}))
			md, err := r.scrape()
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, namesOf(md))
		})
	}
}

func TestWarningsOfQueryAPIsAreToldOnce(t *testing.T) {
	answer := strings.Replace(vector("DCGM_FI_DEV_GPU_TEMP", "40"), `"status"`, `"warnings":["a store is away"],"status"`, 1)
	api := newQueryAPI(t, map[string]string{"q": answer})
	r := start(t, endpointsOf(map[string]any{"dcgm": map[string]any{"endpoint": api.URL, "query_api": true, "queries": []any{"q"}}}))
	r.must()
	r.must()
	logs := r.logs.FilterMessage("The endpoint's answer is not as it should be").All()
	require.Len(t, logs, 1)
	assert.Equal(t, "the server warns: a store is away", logs[0].ContextMap()["what"])
}
