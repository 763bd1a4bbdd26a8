// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// served is an exporter whose answer can be changed.
type served struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	body   string
}

func serve(t testing.TB, body string) *served {
	t.Helper()
	s := &served{status: http.StatusOK, body: body}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.WriteHeader(s.status)
		_, _ = w.Write([]byte(s.body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *served) set(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

// exporterRig reads a server in place of a tool.
func exporterRig(t testing.TB, s *served, o options) *rig {
	t.Helper()
	o.config.Prometheus = defaultConfig().(*Config).Prometheus
	p := o.config.Prometheus.GetOrInsertDefault()
	p.ClientConfig.Endpoint = s.URL + "/metrics"
	return newRig(t, t.TempDir(), o)
}

// twoTags are series of runtimes a and b.
const twoTags = `neuroncore_utilization_ratio{neuroncore="0",runtime_tag="a"} 0.5
neuroncore_utilization_ratio{neuroncore="0",runtime_tag="b"} 0.75
neuroncore_utilization_ratio{neuroncore="1",runtime_tag="a"} 0.25
neuroncore_utilization_ratio{neuroncore="x",runtime_tag="a"} 0.25
neuroncore_utilization_ratio{neuroncore="2",runtime_tag="a"} NaN
neuroncore_memory_usage_tensors{neuroncore="0",runtime_tag="a",memory_location="None"} 100
neuroncore_memory_usage_tensors{neuroncore="0",runtime_tag="b",memory_location="None"} 1
neuroncore_memory_usage_new_part{neuroncore="1",runtime_tag="b",memory_location="None"} 7
neuron_runtime_memory_used_bytes{memory_location="host",runtime_tag="a"} 10
neuron_runtime_memory_used_bytes{memory_location="neuron_device",runtime_tag="b"} 20
neuron_hardware_info{neuron_device_count="2",neuroncore_per_device_count="2"} 1
`

func TestEndpointIsAddedUpOverRuntimes(t *testing.T) {
	want := map[string]float64{
		"trn.0.neuroncore_utilization":           100,
		"trn.1.neuroncore_utilization":           25,
		"trn.0.neuroncore_memory_usage.tensors":  101,
		"trn.1.neuroncore_memory_usage.new_part": 7,
		"trn.host_total_memory_usage":            10,
		"trn.neuron_device_total_memory_usage":   20,
	}
	r := exporterRig(t, serve(t, twoTags), options{})
	assert.Equal(t, want, r.tags())

	r = exporterRig(t, serve(t, twoTags), options{config: Config{ReportIdle: true}})
	want["trn.2.neuroncore_utilization"], want["trn.3.neuroncore_utilization"] = 0, 0
	assert.Equal(t, want, r.tags())
}

func TestEndpointWithoutRuntimesHasNothing(t *testing.T) {
	r := exporterRig(t, serve(t, `neuron_hardware_info{neuron_device_count="2",neuroncore_per_device_count="2"} 1`+"\n"), options{})
	assert.Empty(t, r.tags())
}

func TestEndpointWithTheMachinesSeriesAloneHasNothing(t *testing.T) {
	for _, series := range []string{
		"system_memory_total_bytes", "system_swap_used_bytes", "system_vcpu_usage_ratio", "hardware_ecc_events_total", "execution_status_total", "instance_info",
	} {
		r := exporterRig(t, serve(t, series+" 1\n"), options{})
		assert.Empty(t, r.tags(), series)
	}
}

func TestEndpointInTroubleIsTold(t *testing.T) {
	s := serve(t, twoTags)
	r := exporterRig(t, s, options{})
	source := "neuron-monitor-prometheus (" + s.URL + "/metrics)"
	for name, tt := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"refuses":          {http.StatusForbidden, "no", source + ": the endpoint answered 403 Forbidden: \"no\""},
		"is another":       {http.StatusOK, "up 1\n", source + ": no series of neuron-monitor-prometheus"},
		"is no exposition": {http.StatusOK, "<html>\n", source},
	} {
		s.set(tt.status, tt.body)
		md, err := r.scrape()
		require.ErrorContains(t, err, tt.want, name)
		assert.Zero(t, md.DataPointCount(), name)
	}
	s.set(http.StatusOK, twoTags)
	assert.NotEmpty(t, r.tags(), "it answers again")
}

func TestEndpointThatHangsDoesNotHoldUpTheShutdown(t *testing.T) {
	release := make(chan struct{})
	s := &served{Server: httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))}
	defer s.Close()
	defer close(release)
	r := exporterRig(t, s, options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := r.scraper.Scrape(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	r.shutdown()
}

func TestCountersOfAnEndpointAreItsOwn(t *testing.T) {
	const form = `execution_errors_total{error_type="numerical",runtime_tag="a"} %d
execution_errors_total{error_type="numerical",runtime_tag="b"} 4
execution_errors_total{error_type="unheard_of",runtime_tag="b"} 4
execution_status_total{status_type="completed",runtime_tag="a"} 100
execution_latency_seconds{percentile="p50",runtime_tag="a"} 0.25
execution_latency_seconds{percentile="p50",runtime_tag="b"} 0.5
hardware_ecc_events_total{event_type="mem_ecc_corrected",neuron_device_index="1"} 3
`
	s := serve(t, fmt.Sprintf(form, 2))
	r := exporterRig(t, s, options{extended: true})
	read := func() (map[string]float64, map[string]pcommon.Timestamp) {
		md, err := r.scrape()
		require.NoError(t, err)
		starts := map[string]pcommon.Timestamp{}
		for _, p := range scraperstest.PointsOf(scraperstest.InTagNaming(md)) {
			starts[p.Metric.Name()] = p.Data.StartTimestamp()
		}
		return scraperstest.TagsOf(md), starts
	}
	tags, first := read()
	assert.Equal(t, map[string]float64{
		"trn.execution_errors.numerical": 6, "trn.execution_status.completed": 100,
		"trn.execution_latency.total.p50": 0.5, "trn.1.mem_ecc_corrected": 3,
	}, tags)
	s.set(http.StatusOK, fmt.Sprintf(form, 5))
	tags, second := read()
	assert.InDelta(t, 9, tags["trn.execution_errors.numerical"], 0)
	assert.Equal(t, first["trn.execution_errors.numerical"], second["trn.execution_errors.numerical"])

	// A runtime's part goes with it.
	s.set(http.StatusOK, strings.Join(strings.SplitAfter(fmt.Sprintf(form, 5), "\n")[1:], ""))
	tags, third := read()
	assert.InDelta(t, 4, tags["trn.execution_errors.numerical"], 0)
	assert.Greater(t, third["trn.execution_errors.numerical"], second["trn.execution_errors.numerical"])
	assert.Equal(t, first["trn.execution_status.completed"], third["trn.execution_status.completed"])
}

func TestToolIsUsedWhereBothAreConfigured(t *testing.T) {
	o := options{config: Config{Prometheus: defaultConfig().(*Config).Prometheus}}
	o.config.Prometheus.GetOrInsertDefault()
	r, _ := toolRig(t, printing(aReport(1, 2)), o)
	assert.Equal(t, plain(1, 2), r.tags())
	require.Len(t, r.logs.FilterMessageSnippet("is not used").All(), 1)
}
