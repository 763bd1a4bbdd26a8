// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// samplesVariable names the folder of recorded cases: one folder per family,
// in it NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sampleInput is what NAME.json holds beside NVML's answers.
type sampleInput struct {
	LibraryMissing bool             `json:"library_missing"`
	MissingSymbols []string         `json:"missing_symbols"`
	Pid            int              `json:"monitor_pid"`
	Host           sampleHost       `json:"host"`
	Options        map[string]any   `json:"options"`
	Steps          []map[string]any `json:"steps"`
}

type sampleHost struct {
	Parents          map[string]int `json:"proc_parents"`
	Alive            []int          `json:"proc_alive"`
	Meminfo          map[string]int `json:"meminfo"`
	PrivateNamespace bool           `json:"pid_namespace_private"`
}

// sampleResult is what one scrape gives.
type sampleResult struct {
	Tags      map[string]float64 `json:"tags"`
	ExtraTags map[string]float64 `json:"extra_tags"`
}

// sampleExpected is NAME.expected.json.
type sampleExpected struct {
	sampleResult
	Scrapes    []sampleResult            `json:"scrapes"`
	Processes  []sampleProcess           `json:"processes"`
	MIG        []map[string]any          `json:"mig"`
	Attributes map[string]map[string]any `json:"attributes"`
	Calls      map[string]any            `json:"calls"`
}

type sampleProcess struct {
	GPU    int     `json:"gpu"`
	Pid    int     `json:"pid"`
	Memory *uint64 `json:"memory_bytes"`
	GI     *int    `json:"gi"`
	CI     *int    `json:"ci"`
}

// sample is one case.
type sample struct {
	document map[string]any
	input    sampleInput
	expected sampleExpected
}

func TestSamples(t *testing.T) {
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, familyName, "*.expected.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		stem := strings.TrimSuffix(file, ".expected.json")
		if _, err := os.Stat(stem + ".json"); err != nil {
			continue // text of an exporter, which is another family's
		}
		t.Run(filepath.Base(stem), func(t *testing.T) {
			s := loadSample(t, stem)
			switch {
			case s.input.LibraryMissing && runChild(t, "/nonexistent/"+defaultLibrary):
			case len(s.input.MissingSymbols) > 0 && runChild(t, buildStub(t, s.input.MissingSymbols...)):
			default:
				runSample(t, s)
			}
		})
	}
}

func loadSample(t *testing.T, stem string) *sample {
	t.Helper()
	s := &sample{document: map[string]any{}}
	content, err := os.ReadFile(stem + ".json")
	require.NoError(t, err)
	decode(t, content, &s.document)
	decode(t, content, &s.input)
	for i, device := range s.devices() {
		if device["pci_bus_id"] == nil {
			device["pci_bus_id"] = map[string]any{"ret": 0, "value": fmt.Sprintf("00000000:%02X:00.0", i+1)}
		}
	}
	content, err = os.ReadFile(stem + ".expected.json")
	require.NoError(t, err)
	decode(t, content, &s.expected)
	return s
}

func runSample(t *testing.T, s *sample) {
	t.Helper()
	run := scrapeSample(t, s, false)
	s.compareResults(t, run.scrapes, func(what string, want sampleResult, md pmetric.Metrics) {
		scraperstest.CompareTags(t, what, want.Tags, scraperstest.TagsOf(md))
	})
	if s.expected.Processes != nil {
		scraperstest.CompareTags(t, "processes", processTags(s.expected.Processes), processTags(run.processes))
	}
	compareCalls(t, s.expected.Calls, run.calls)

	run = scrapeSample(t, s, true)
	s.compareResults(t, run.scrapes, func(what string, want sampleResult, md pmetric.Metrics) {
		got := scraperstest.TagsOf(md)
		maps.DeleteFunc(got, func(tag string, _ float64) bool { _, listed := want.ExtraTags[tag]; return !listed })
		scraperstest.CompareTags(t, "extra "+what, want.ExtraTags, got)
	})
	last := run.scrapes[len(run.scrapes)-1]
	compareInstances(t, s.expected.MIG, last)
	compareAttributes(t, s.expected.Attributes, last)
}

// compareResults compares each scrape where the case lists them, and the last.
func (s *sample) compareResults(t *testing.T, scrapes []pmetric.Metrics, compare func(string, sampleResult, pmetric.Metrics)) {
	t.Helper()
	for i, want := range s.expected.Scrapes {
		require.Less(t, i, len(scrapes))
		compare(fmt.Sprintf("scrape %d", i), want, scrapes[i])
	}
	compare("tags", s.expected.sampleResult, scrapes[len(scrapes)-1])
}

// sampleRun is what came of a case.
type sampleRun struct {
	scrapes   []pmetric.Metrics
	processes []sampleProcess
	calls     []string
}

// betweenScrapes is more than GPM needs between two samples.
const betweenScrapes = 150 * time.Millisecond

func scrapeSample(t *testing.T, s *sample, extended bool) sampleRun {
	t.Helper()
	double := newStub(t)
	document := s.document
	double.load(document)
	root := s.writeMachine(t)
	set, _ := scraperstest.NewSettings(t, root, extended)
	if s.input.Pid > 0 {
		set.Workloads = workload.NewDiscovery(workload.Options{RootPath: root, Target: scrapers.Target{Pid: s.input.Pid, Tree: true}})
	}
	cfg := defaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(plain(s.input.Options).(map[string]any)).Unmarshal(cfg))
	require.NoError(t, cfg.Validate())
	cfg.LibraryPath = double.library
	cfg.CommonConfig.Timing.CollectionInterval = betweenScrapes / 2
	made, err := newScraper(set, cfg)
	require.NoError(t, err)
	scraper := made.(*gpuScraper)

	steps := s.input.Steps
	if len(steps) == 0 {
		steps = []map[string]any{nil}
	}
	var run sampleRun
	for i := range len(steps) + 1 {
		if i > 0 {
			time.Sleep(betweenScrapes)
			document = merged(document, steps[i-1]).(map[string]any)
			double.load(document)
		}
		md, err := scraper.Scrape(t.Context())
		if err != nil {
			t.Logf("scrape %d: %v", i, err)
		}
		scraperstest.RequireSane(t, md)
		run.scrapes = append(run.scrapes, md)
	}
	run.calls = double.calls()
	run.processes = processesOf(scraper.source.read(t.Context(), want{processes: true}))
	require.NoError(t, scraper.Shutdown(t.Context()))
	assert.NotContains(t, double.calls(), "LEAK samples")
	assert.NotContains(t, double.calls(), "LEAK event sets")
	return run
}

// plain makes numbers of JSON plain ones.
func plain(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inner := range v {
			out[key] = plain(inner)
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, inner := range v {
			out = append(out, plain(inner))
		}
		return out
	case fmt.Stringer: // json.Number
		n, err := strconv.Atoi(v.String())
		if err != nil {
			return v.String()
		}
		return n
	}
	return value
}

// merged lays a patch over a document; a list is patched by an object whose keys
// are places in it.
func merged(document, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	switch d := document.(type) {
	case []any:
		out := slices.Clone(d)
		for key, change := range changes {
			i, err := strconv.Atoi(key)
			if err != nil {
				return patch
			}
			for len(out) <= i {
				out = append(out, nil)
			}
			out[i] = merged(out[i], change)
		}
		return out
	case map[string]any:
		out := maps.Clone(d)
		for key, change := range changes {
			out[key] = merged(out[key], change)
		}
		return out
	}
	return patch
}

// writeMachine writes the files of the case's machine, and returns its root.
func (s *sample) writeMachine(t *testing.T) string {
	t.Helper()
	m := scraperstest.NewMachine(t)
	if len(s.input.Host.Meminfo) > 0 {
		m.Write("proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemFree: 1 kB\nMemAvailable: %d kB\n",
			s.input.Host.Meminfo["MemTotal_kB"], s.input.Host.Meminfo["MemAvailable_kB"]))
	}
	m.Process(1, 0, "systemd")
	if !s.input.Host.PrivateNamespace {
		m.Process(2, 0, "kthreadd")
	}
	for _, pid := range s.input.Host.Alive {
		m.Process(pid, cmp.Or(s.input.Host.Parents[strconv.Itoa(pid)], 1), "python")
	}
	for _, device := range s.devices() {
		address := device["pci_bus_id"].(map[string]any)["value"].(string)
		status, _ := device["sysfs_runtime_status"].(string)
		gpuOnBus(m, gpus.CanonicalPCI(address), cmp.Or(status, "active"))
	}
	return m.Root
}

// devices are the case's GPUs.
func (s *sample) devices() []map[string]any {
	var devices []map[string]any
	list, _ := s.document["devices"].([]any)
	for _, device := range list {
		devices = append(devices, device.(map[string]any))
	}
	return devices
}

func processesOf(r *reading) []sampleProcess {
	processes := []sampleProcess{}
	for _, d := range r.devices {
		for _, p := range d.processes {
			q := sampleProcess{GPU: d.index, Pid: p.pid}
			if p.memory.Known {
				q.Memory = &p.memory.Value
			}
			if p.gi >= 0 {
				q.GI = &p.gi
			}
			if p.ci >= 0 {
				q.CI = &p.ci
			}
			processes = append(processes, q)
		}
	}
	return processes
}

// processTags is the memory of each process, below 0 where it is not known.
func processTags(processes []sampleProcess) map[string]float64 {
	tags := map[string]float64{}
	for _, p := range processes {
		tag := fmt.Sprintf("%d on GPU %d", p.Pid, p.GPU)
		if p.GI != nil && p.CI != nil {
			tag += fmt.Sprintf(", instance %d/%d", *p.GI, *p.CI)
		}
		tags[tag] = -1
		if p.Memory != nil {
			tags[tag] = float64(*p.Memory)
		}
	}
	return tags
}

// compareCalls wants calls as often as a case allows: a number, a list of
// numbers, or least and most. Keys are patterns of `function` or `function
// device`, with or without the function's version.
func compareCalls(t *testing.T, want map[string]any, calls []string) {
	t.Helper()
	for pattern, allowed := range want {
		n := 0
		for _, call := range calls {
			if matchesCall(pattern, call) {
				n++
			}
		}
		assert.True(t, isAllowed(plain(allowed), n), "calls: %s was called %d times, want %v", pattern, n, allowed)
	}
}

func matchesCall(pattern, call string) bool {
	name, device, _ := strings.Cut(call, " ")
	base := strings.TrimSuffix(strings.TrimSuffix(name, "_v2"), "_v3")
	for _, text := range []string{name, base, name + " " + device, base + " " + device} {
		if ok, _ := path.Match(pattern, text); ok {
			return true
		}
	}
	return false
}

func isAllowed(allowed any, n int) bool {
	switch a := allowed.(type) {
	case int:
		return n == a
	case []any:
		return slices.Contains(a, any(n))
	case map[string]any:
		least, _ := a["min"].(int)
		most, bounded := a["max"].(int)
		return n >= least && (!bounded || n <= most)
	}
	return false
}

// compareInstances compares the metrics of MIG instances. Of several compute
// instances the first has those of its GPU instance.
func compareInstances(t *testing.T, want []map[string]any, md pmetric.Metrics) {
	t.Helper()
	got := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if figure, ok := strings.CutPrefix(p.Metric.Name(), "gpu.mig."); ok {
			got[instanceKey(p.Attributes["gpu_index"], p.Attributes["mig_gi"], p.Attributes["mig_ci"], p.Attributes["mig_profile"], figure)] = p.Value()
		}
	}
	expected := map[string]float64{}
	for _, instance := range want {
		i := plain(instance).(map[string]any)
		_, profile, _ := strings.Cut(fmt.Sprint(i["name"]), " MIG ")
		for figure, value := range i {
			if slices.Contains([]string{"gpu", "slot", "gi", "ci", "name", "uuid", "profile"}, figure) || value == nil {
				continue
			}
			number, err := strconv.ParseFloat(fmt.Sprint(value), 64)
			require.NoError(t, err, figure)
			expected[instanceKey(i["gpu"], i["gi"], i["ci"], profile, figure)] = number
		}
	}
	scraperstest.CompareTags(t, "mig", expected, got)
}

func instanceKey(parts ...any) string { return fmt.Sprint(parts...) }

// compareAttributes looks for points by tag, or by the metric's name, that have
// attributes.
func compareAttributes(t *testing.T, want map[string]map[string]any, md pmetric.Metrics) {
	t.Helper()
	points := slices.Concat(scraperstest.PointsOf(scraperstest.InTagNaming(md)), scraperstest.PointsOf(md))
	for name, attributes := range want {
		found := slices.ContainsFunc(points, func(p scraperstest.Point) bool { return p.Metric.Name() == name && hasAll(p.Attributes, attributes) })
		assert.True(t, found, "attributes: no %s with %v", name, attributes)
	}
}

func hasAll(attributes, want map[string]any) bool {
	for key, value := range want {
		if fmt.Sprint(attributes[key]) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}
