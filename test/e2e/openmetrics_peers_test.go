// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// peersKey is set to "required" where a test must not be skipped for lack of a peer.
const peersKey = "WANDBSYS_E2E_PEERS"

// stored is what Prometheus has, or would have, of an endpoint: the value of each
// series, by its name and labels.
type stored map[string]float64

func (s stored) put(name string, labels map[string]string, value float64) {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if labels[key] != "" { // to Prometheus an empty label is none
			all = append(all, fmt.Sprintf("%s=%q", key, labels[key]))
		}
	}
	s[name+"{"+strings.Join(all, ",")+"}"] = value
}

// storedOf takes the points of an endpoint apart into Prometheus' series.
func storedOf(rm pmetric.ResourceMetrics, endpoint string) stored {
	s := stored{}
	for _, sm := range rm.ScopeMetrics().All() {
		for _, m := range sm.Metrics().All() {
			if name, ok := strings.CutPrefix(m.Name(), "openmetrics."+endpoint+"."); ok {
				s.take(name, m)
			}
		}
	}
	return s
}

func (s stored) take(name string, m pmetric.Metric) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		s.numbers(name, m.Gauge().DataPoints())
	case pmetric.MetricTypeSum:
		s.numbers(name, m.Sum().DataPoints())
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			s.histogram(name, p)
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			labels := labelsOf(p.Attributes())
			s.put(name+"_count", labels, float64(p.Count()))
			s.put(name+"_sum", labels, p.Sum())
			for _, q := range p.QuantileValues().All() {
				s.put(name, with(labels, "quantile", q.Quantile()), q.Value())
			}
		}
	case pmetric.MetricTypeEmpty, pmetric.MetricTypeExponentialHistogram:
	}
}

func (s stored) numbers(name string, all pmetric.NumberDataPointSlice) {
	for _, p := range all.All() {
		s.put(name, labelsOf(p.Attributes()), p.DoubleValue())
	}
}

func (s stored) histogram(name string, p pmetric.HistogramDataPoint) {
	labels := labelsOf(p.Attributes())
	s.put(name+"_count", labels, float64(p.Count()))
	s.put(name+"_sum", labels, p.Sum())
	bounds := append(p.ExplicitBounds().AsRaw(), math.Inf(1))
	count := uint64(0)
	for i, n := range p.BucketCounts().AsRaw() {
		count += n
		s.put(name+"_bucket", with(labels, "le", bounds[i]), float64(count))
	}
}

func labelsOf(attributes pcommon.Map) map[string]string {
	labels := map[string]string{}
	for key, value := range attributes.All() {
		if key != "wandb.index" {
			labels[key] = value.AsString()
		}
	}
	return labels
}

func with(labels map[string]string, key string, value float64) map[string]string {
	all := maps.Clone(labels)
	all[key] = model.SampleValue(value).String()
	return all
}

// expand takes a metric of Prometheus' parser apart. What is NaN we leave out.
func (s stored) expand(name string, m *dto.Metric) {
	labels := sampleOf(name, m).labels
	switch h, summary := m.GetHistogram(), m.GetSummary(); {
	case h != nil:
		s.put(name+"_count", labels, float64(h.GetSampleCount()))
		s.put(name+"_sum", labels, h.GetSampleSum())
		for _, b := range h.GetBucket() {
			s.put(name+"_bucket", with(labels, "le", b.GetUpperBound()), float64(b.GetCumulativeCount()))
		}
	case summary != nil:
		s.put(name+"_count", labels, float64(summary.GetSampleCount()))
		s.put(name+"_sum", labels, summary.GetSampleSum())
		for _, q := range summary.GetQuantile() {
			if !math.IsNaN(q.GetValue()) {
				s.put(name, with(labels, "quantile", q.GetQuantile()), q.GetValue())
			}
		}
	default:
		s.put(name, labels, sampleOf(name, m).value)
	}
}

// normal writes the numbers that are labels in one form: 1, 1.0 and 1e0 are one.
func normal(labels map[string]string) map[string]string {
	for _, key := range []string{"le", "quantile"} {
		if value, err := strconv.ParseFloat(labels[key], 64); err == nil {
			labels = with(labels, key, value)
		}
	}
	return labels
}

// typesOf are the types of an endpoint's metrics in Prometheus' words.
func typesOf(rm pmetric.ResourceMetrics, endpoint string) map[string]string {
	types := map[string]string{}
	for _, sm := range rm.ScopeMetrics().All() {
		for _, m := range sm.Metrics().All() {
			name, ok := strings.CutPrefix(m.Name(), "openmetrics."+endpoint+".")
			if !ok {
				continue
			}
			types[name] = strings.ToLower(m.Type().String())
			if m.Type() == pmetric.MetricTypeSum {
				types[name] = "counter"
			}
		}
	}
	return types
}

// startPeer runs a collector with a Prometheus endpoint that shows metrics of all
// types: this machine's, once, and those of two exporters.
func startPeer(t *testing.T) (address string) {
	t.Helper()
	address = freeAddress(t)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 1h, initial_delay: 0s, host_name: peer, workloads: {pid: self}, "+
			"scrapers: {host: , openmetrics: {endpoints: {vllm: '%s', triton: '%s'}}}}", presets["vllm"].exporter(t), presets["triton"].exporter(t)),
		exporters: "prometheus: {endpoint: '" + address + "', metric_expiration: 1h}",
	})
	awaitSamples(t, p, address, "metrics of all kinds", func(all samples) bool {
		for _, name := range []string{"memory_percent", "proc_cpu_threads", "openmetrics_vllm_python_info", "openmetrics_triton_nv_gpu_utilization"} {
			if len(all.find(name)) == 0 {
				return false
			}
		}
		return true
	})
	return address
}

// What we read of our own Prometheus endpoint is what Prometheus' parser reads.
func TestOurPrometheusEndpointReadsTheSame(t *testing.T) {
	address := startPeer(t)
	s := startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 5s, initial_delay: 0s, scrapers: {openmetrics: {endpoints: {peer: 'http://" + address + "/metrics'}}}}",
		exporters: s.exporter(),
	})
	p.waitFor("a scrape", func() bool { return scrapesOf(s, "peer") > 0 })
	families := parseExposition(t, address)
	want, types := stored{}, map[string]string{}
	for name, family := range families {
		if name == "target_info" {
			continue
		}
		types[name] = strings.ToLower(family.GetType().String())
		for _, m := range family.GetMetric() {
			want.expand(name, m)
		}
	}
	rm, _ := s.last("peer")
	assert.Equal(t, want, storedOf(rm, "peer"))
	for key := range rm.Resource().Attributes().AsRaw() {
		assert.Contains(t, []string{"host.name", "server.address", "server.port", "service.instance.id", "service.name", "url.scheme"}, key,
			"the endpoint is none of the resources that it tells of")
	}
	assert.Equal(t, types, typesOf(rm, "peer"))
	for _, kind := range []string{"gauge", "counter", "histogram", "summary"} {
		assert.Contains(t, slices.Collect(maps.Values(types)), kind)
	}
	assert.Empty(t, familyLines(p, "openmetrics", "error"))
}

// prometheusServer is a Prometheus that runs.
type prometheusServer struct {
	*process
	address string
}

// startPrometheus runs Debian's Prometheus with jobs: names to addresses.
func startPrometheus(t *testing.T, jobs map[string]string) *prometheusServer {
	t.Helper()
	binary(t) // skips without
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv(peersKey) == "required" {
			t.Fatal("prometheus is not installed")
		}
		t.Skip("prometheus is not installed (apt-get install prometheus)")
	}
	x := &prometheusServer{address: freeAddress(t)}
	jobs["prometheus"] = x.address
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n")
	for name, at := range jobs {
		fmt.Fprintf(&config, "- {job_name: %s, honor_labels: true, static_configs: [{targets: ['%s']}]}\n", name, at)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "prometheus.yml")
	writeFile(t, file, config.String())
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+x.address)
	cmd.Dir = folder
	x.process = startProcess(t, cmd)
	x.waitFor("every job is up", func() bool { return len(x.query("up == 1")) == len(jobs) })
	return x
}

// ask calls the API and decodes the data of its answer, if there is one.
func (x *prometheusServer) ask(path string, data any) {
	body, status, err := get("http://" + x.address + path)
	if err != nil || status != http.StatusOK {
		return // such as one that is not ready yet
	}
	answer := struct{ Data any }{data}
	require.NoError(x.t, json.Unmarshal(body, &answer), "%s", body)
}

// query returns what Prometheus has stored, without the labels that it added.
func (x *prometheusServer) query(promql string, added ...string) stored {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	x.ask("/api/v1/query?query="+url.QueryEscape(promql), &data)
	all := stored{}
	for _, row := range data.Result {
		name, labels := row.Metric["__name__"], normal(row.Metric)
		delete(labels, "__name__")
		for _, label := range added {
			delete(labels, label)
		}
		text, _ := row.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(x.t, err)
		all.put(name, labels, value)
	}
	return all
}

// scraped returns the series of a job.
func (x *prometheusServer) scraped(job string) stored {
	all := x.query(`{job="`+job+`"}`, "job", "instance")
	maps.DeleteFunc(all, func(series string, value float64) bool {
		name, _, _ := strings.Cut(series, "{")
		// Prometheus' own words about the scrape; NaN we leave out.
		return name == "up" || strings.HasPrefix(name, "scrape_") || math.IsNaN(value)
	})
	return all
}

// types are those that Prometheus knows of the metrics of a job.
func (x *prometheusServer) types(job string) map[string]string {
	var data []struct{ Metric, Type string }
	x.ask("/api/v1/targets/metadata?match_target="+url.QueryEscape(`{job="`+job+`"}`), &data)
	types := map[string]string{}
	for _, row := range data {
		types[row.Metric] = row.Type
	}
	return types
}

// ofTheMoment are gauges that a scrape by Prometheus itself changes.
var ofTheMoment = map[string]bool{"go_goroutines": true, "prometheus_tsdb_head_active_appenders": true}

// What we read of a real Prometheus is what it reads of itself.
func TestPrometheusReadsTheSameOfItself(t *testing.T) {
	x, s := startPrometheus(t, map[string]string{}), startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 2s, initial_delay: 0s, scrapers: {openmetrics: {endpoints: {server: 'http://" + x.address + "/metrics'}}}}",
		exporters: s.exporter(),
	})
	var wrong []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("differences: %s", strings.Join(wrong, "\n"))
		}
	})
	p.waitFor("the same series with the same values", func() bool {
		before, seen := x.scraped("prometheus"), scrapesOf(s, "server")
		p.waitFor("a scrape", func() bool { return scrapesOf(s, "server") > seen })
		rm, _ := s.last("server")
		ours, after := storedOf(rm, "server"), x.scraped("prometheus")
		wrong = difference(ours, after)
		for series, value := range after {
			name, _, _ := strings.Cut(series, "{")
			if before[series] == value && ours[series] != value && !ofTheMoment[name] {
				wrong = append(wrong, fmt.Sprintf("%s: %v, Prometheus has %v", series, ours[series], value))
			}
		}
		return len(ours) > 300 && len(wrong) == 0
	})
	rm, _ := s.last("server")
	types := typesOf(rm, "server")
	theirs := x.types("prometheus")
	require.NotEmpty(t, theirs)
	for name, kind := range types {
		assert.Equal(t, theirs[name], kind, name)
	}
	assert.Empty(t, familyLines(p, "openmetrics", "error"))
}

// difference lists what only one of them has.
func difference(a, b stored) []string {
	var only []string
	for series := range a {
		if _, ok := b[series]; !ok {
			only = append(only, "ours: "+series)
		}
	}
	for series := range b {
		if _, ok := a[series]; !ok {
			only = append(only, "theirs: "+series)
		}
	}
	return only
}

// A real Prometheus reads our endpoint as we do. job and instance are our labels.
func TestPrometheusReadsTheSameOfOurEndpoint(t *testing.T) {
	address := startPeer(t)
	x, s := startPrometheus(t, map[string]string{"peer": address}), startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 1s, initial_delay: 0s, scrapers: {openmetrics: {endpoints: {peer: 'http://" + address + "/metrics'}}}}",
		exporters: s.exporter(),
	})
	p.waitFor("a scrape", func() bool { return scrapesOf(s, "peer") > 0 })
	rm, _ := s.last("peer")
	ours := storedOf(rm, "peer")
	// With honor_labels our own job and instance stay; Prometheus' metrics have others.
	theirs := x.query(`{job=~"wandbsys|vllm|triton"}`)
	maps.DeleteFunc(theirs, func(series string, value float64) bool {
		return strings.HasPrefix(series, "target_info{") || math.IsNaN(value)
	})
	require.NotEmpty(t, ours)
	assert.Equal(t, theirs, ours)
}

// The two ways from DCGM, by a real Prometheus and from the exporter, lead to the same.
func TestPrometheusHasTheGPUsOfTheExporter(t *testing.T) {
	exporter, err := url.Parse(presets["dcgm-exporter"].exporter(t))
	require.NoError(t, err)
	x, s := startPrometheus(t, map[string]string{"dcgm": exporter.Host}), startSink(t, nil)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 1s, initial_delay: 0s, extended: true, scrapers: {openmetrics: {endpoints: {"+
			"exporter: {endpoint: '%s', map: dcgm}, server: {endpoint: 'http://%s', query_api: true}}}}}", exporter, x.address),
		exporters: s.exporter(),
	})
	gpus := func(endpoint string) map[string]string {
		rm, ok := s.last(endpoint)
		if !ok {
			return nil
		}
		return gpuLines(rm)
	}
	p.waitFor("GPUs of both", func() bool { return len(gpus("exporter")) > 0 && len(gpus("server")) > 0 })
	direct, asked := gpus("exporter"), gpus("server")
	var more []string
	for series := range direct {
		if _, ok := asked[series]; !ok {
			name, _, _ := strings.Cut(series, " ")
			more = append(more, name)
			delete(direct, series)
		}
	}
	assert.Equal(t, direct, asked)
	assert.Len(t, asked, 2*12)
	slices.Sort(more)
	// What W&B does not take from a query API.
	assert.Equal(t, []string{
		"gpu.dramActive", "gpu.encoderUtilization", "gpu.memoryAllocated", "gpu.memoryClock", "gpu.memoryTotal",
	}, slices.Compact(more))
}

// gpuLines are the points of GPUs, by metric, type, unit and attributes.
func gpuLines(rm pmetric.ResourceMetrics) map[string]string {
	all := map[string]string{}
	for _, line := range linesOf(rm, time.Time{}) {
		if series, value, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(line, "gpu.") {
			all[series+"}"] = value
		}
	}
	return all
}
