// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// update writes what the presets give into the golden files, for a person to check.
var update = flag.Bool("update", false, "write testdata/openmetrics/*.golden")

const (
	classicText = "text/plain; version=0.0.4; charset=utf-8"
	plainText   = "text/plain; charset=utf-8"
	healthName  = "wandbsys_endpoint_"
)

// preset is a file of config/openmetrics, and the exporter that it is for.
type preset struct {
	// endpoint is its name in the file, url the variable with its URL.
	endpoint, url string
	// body is in testdata/openmetrics.
	body, contentType string
	env               []string
}

// presets are the files by their names without .yaml; those with a blank in their
// name are further uses of one.
var presets = map[string]preset{
	"dcgm-exporter":               {endpoint: "dcgm", url: "DCGM_EXPORTER_URL", body: "dcgm-exporter", contentType: plainText},
	"dcgm-exporter all":           {endpoint: "dcgm", url: "DCGM_EXPORTER_URL", body: "dcgm-exporter", contentType: plainText, env: []string{"DCGM_KEEP_UNMAPPED=true"}},
	"dcgm-prometheus":             {endpoint: "dcgm_prometheus", url: "DCGM_PROMETHEUS_URL", body: "dcgm-exporter"},
	"vllm":                        {endpoint: "vllm", url: "VLLM_URL", body: "vllm", contentType: classicText},
	"triton":                      {endpoint: "triton", url: "TRITON_URL", body: "triton", contentType: plainText},
	"neuron-monitor":              {endpoint: "neuron", url: "NEURON_MONITOR_URL", body: "neuron-monitor", contentType: classicText},
	"amd-device-metrics-exporter": {endpoint: "amd", url: "AMD_EXPORTER_URL", body: "amd-device-metrics-exporter", contentType: classicText},
	"tpu-device-plugin":           {endpoint: "tpu", url: "TPU_DEVICE_PLUGIN_URL", body: "tpu-device-plugin", contentType: classicText},
}

// presetFile is the path of the file of a case.
func presetFile(t *testing.T, name string) string {
	t.Helper()
	file, _, _ := strings.Cut(name, " ")
	return repo(t, "config", "openmetrics", file+".yaml")
}

// exporter serves a body of testdata: as the exporter, and as a query API of a
// Prometheus that scraped it. It returns the URL for a preset.
func (p preset) exporter(t *testing.T) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "openmetrics", p.body+".prom"))
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", p.contentType)
		_, _ = w.Write(body)
	})
	vector := vectorOf(t, body)
	mux.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.FormValue("query"), "DCGM_FI_DEV_GPU_TEMP") {
			http.Error(w, "query", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(vector)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	if p.contentType == "" {
		return server.URL
	}
	return server.URL + "/metrics"
}

// vectorOf is what Prometheus answers to an instant query for all series of a body.
func vectorOf(t *testing.T, body []byte) []byte {
	t.Helper()
	vector := []map[string]any{}
	for name, family := range parseText(t, body) {
		for _, m := range family.GetMetric() {
			vector = append(vector, vectorRow(name, m))
		}
	}
	answer, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": vector}})
	require.NoError(t, err)
	return answer
}

func vectorRow(name string, m *dto.Metric) map[string]any {
	s := sampleOf(name, m)
	s.labels["__name__"], s.labels["instance"], s.labels["job"] = name, "gpu-node-4:9400", "dcgm"
	return map[string]any{"metric": s.labels, "value": []any{1.7604e9, fmt.Sprint(s.value)}}
}

// last returns what the last scrape of an endpoint gave.
func (s *sink) last(endpoint string) (rm pmetric.ResourceMetrics, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, md := range s.payloads {
		for _, r := range md.ResourceMetrics().All() {
			if name, found := r.Resource().Attributes().Get("service.name"); found && name.Str() == endpoint {
				rm, ok = r, true
			}
		}
	}
	return rm, ok
}

// presetText is the last scrape of a preset's endpoint in the form of a golden file.
func presetText(s *sink, endpoint string, began time.Time) string {
	rm, ok := s.last(endpoint)
	if !ok {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := rm.Resource().Attributes()
	resource.Remove("server.port")
	lines := slices.DeleteFunc(linesOf(rm, began), func(line string) bool { return strings.HasPrefix(line, healthName+"scrape_duration ") })
	return "resource " + attributeText(resource) + "\n" + strings.Join(lines, "\n") + "\n"
}

func (p preset) check(t *testing.T, name string) {
	t.Helper()
	s := startSink(t, nil)
	began := time.Now()
	env := slices.Concat(agentEnv("http://"+s.address), p.env, []string{p.url + "=" + p.exporter(t)})
	c := startProcess(t, collector(t, env, "--config", repo(t, "config", "agent.yaml"), "--config", presetFile(t, name),
		"--set=extensions.health_check.endpoint="+freeAddress(t), "--set=receivers.wandbsys.initial_delay=0s",
		"--set=receivers.wandbsys.collection_interval=5s", "--set=processors.batch.timeout=0s",
		"--config=yaml:service::telemetry::logs::encoding: json"))
	golden := filepath.Join("testdata", "openmetrics", strings.ReplaceAll(name, " ", "-")+".golden")
	want, err := os.ReadFile(golden)
	if *update {
		c.waitFor("two scrapes", func() bool { return len(s.points().named(healthName+"up").with("endpoint", p.endpoint)) > 1 })
		require.NoError(t, os.WriteFile(golden, []byte(presetText(s, p.endpoint, began)), 0o600))
		return
	}
	require.NoError(t, err)
	c.waitFor("a scrape", func() bool { return presetText(s, p.endpoint, began) != "" })
	deadline := time.Now().Add(patience)
	for presetText(s, p.endpoint, began) != string(want) && time.Now().Before(deadline) {
		observe(pollInterval)
	}
	assert.Equal(t, string(want), presetText(s, p.endpoint, began))
	c.waitFor("the machine's metrics", func() bool { return len(s.points().ofMachine().named("memory_percent")) > 0 })
	assert.Empty(t, familyLines(c, "openmetrics", "warn"))
	assert.Empty(t, familyLines(c, "openmetrics", "error"))
}

// Each preset, over the agent's configuration, gives exactly what its golden file says
// of a body in the form of its exporter.
func TestPresets(t *testing.T) {
	for name, p := range presets {
		t.Run(name, func(t *testing.T) { p.check(t, name) })
	}
}

func TestEveryPresetIsTested(t *testing.T) {
	files, err := filepath.Glob(repo(t, "config", "openmetrics", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		assert.Contains(t, presets, name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), presets[name].url, "the variable stands in the file")
	}
}

func TestValidateAcceptsPresets(t *testing.T) {
	all := []string{"validate", "--config", repo(t, "config", "agent.yaml")}
	check := func(t *testing.T, args ...string) {
		t.Helper()
		stdout, stderr, code := run(t, nil, args...)
		assert.Zero(t, code)
		assert.Empty(t, stdout+stderr)
	}
	for name := range presets {
		file := presetFile(t, name)
		t.Run(name, func(t *testing.T) {
			check(t, "validate", "--config", repo(t, "config", "agent.yaml"), "--config", file)
			check(t, "validate", "--config", repo(t, "config", "quickstart.yaml"), "--config", file)
		})
		all = append(all, "--config", file)
	}
	t.Run("all together", func(t *testing.T) { check(t, all...) })
}

// familiesOf are all that this build has.
func familiesOf(t *testing.T) []string {
	t.Helper()
	_, stderr, _ := run(t, nil, "validate", "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys: {scrapers: {}}")
	_, list, found := strings.Cut(strings.TrimSpace(stderr), "or name some of ")
	require.True(t, found, stderr)
	return strings.Split(list, ", ")
}

// Families that are not named are off, so that each preset has to name all.
func TestPresetsNameEveryFamily(t *testing.T) {
	families := familiesOf(t)
	for name := range presets {
		text, err := os.ReadFile(presetFile(t, name))
		require.NoError(t, err)
		scrapers := parseYAML(t, string(text))["receivers"].(map[string]any)["wandbsys"].(map[string]any)["scrapers"].(map[string]any)
		assert.ElementsMatch(t, families, keys(scrapers), name)
	}
}

// A preset comes last. It must not undo what the files before it say of other families.
func TestPresetsLeaveOtherFamiliesAsTheyAre(t *testing.T) {
	args := []string{
		"print-config", "--config=yaml:" + oneLine,
		"--config=yaml:receivers::wandbsys::scrapers: {host: {disk_paths: [/data]}, nvidia: {mig: false}, amd: {source: sysfs}, tpu: {distributions: both}, trainium: {report_idle: true}}",
	}
	want := map[string]bool{}
	for name, p := range presets {
		args = append(args, "--config", presetFile(t, name))
		want[p.endpoint] = true
	}
	stdout, stderr, code := run(t, nil, args...)
	require.Zero(t, code, stderr)
	scrapers := parseYAML(t, stdout)["receivers"].(map[string]any)["wandbsys"].(map[string]any)["scrapers"].(map[string]any)
	assert.ElementsMatch(t, familiesOf(t), keys(scrapers))
	assert.Equal(t, []any{"/data"}, scrapers["host"].(map[string]any)["disk_paths"])
	assert.Equal(t, false, scrapers["nvidia"].(map[string]any)["mig"])
	assert.Equal(t, "sysfs", scrapers["amd"].(map[string]any)["source"])
	assert.Equal(t, "both", scrapers["tpu"].(map[string]any)["distributions"])
	assert.Equal(t, true, scrapers["trainium"].(map[string]any)["report_idle"])
	assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), keys(scrapers["openmetrics"].(map[string]any)["endpoints"].(map[string]any)))
}
