// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/tputest"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json, with what NAME.json or NAME.prom has.
type sample struct {
	Tags      map[string]float64 `json:"tags"`
	ExtraTags map[string]float64 `json:"extra_tags"`
	DeviceIDs map[string]int64   `json:"device_ids"`

	input
	// exposition is the plugin's answer.
	exposition string
}

type input struct {
	Chip struct {
		Device    string `json:"pci_device"`
		Subsystem string `json:"pci_subsystem_device"`
		Functions int    `json:"pci_functions"`
	} `json:"chip"`
	Ports map[string]port `json:"ports"`
	SDK   *struct {
		Metrics map[string]struct {
			Description string          `json:"description"`
			Values      []string        `json:"values"`
			Error       json.RawMessage `json:"error"`
		} `json:"metrics"`
	} `json:"sdk"`
}

type port struct {
	Connect   string                     `json:"connect"`
	Supported json.RawMessage            `json:"supported_metrics"`
	Metrics   map[string]json.RawMessage `json:"metrics"`
	When      json.RawMessage            `json:"when"`
}

// failure is the answer to a question that failed: a code and a message, or one text
// that begins with the code.
type failure struct {
	Error json.RawMessage `json:"error"`
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
		t.Run(filepath.Base(stem), func(t *testing.T) {
			s := loadSample(t, stem)
			md := s.scrape(t)
			scraperstest.CompareTags(t, "tags", s.Tags, scraperstest.TagsOf(md))
			s.compareIDs(t, md)
			// With everything on, what is on by default is still the same.
			listed := maps.Clone(s.Tags)
			maps.Copy(listed, s.ExtraTags)
			all := scraperstest.TagsOf(s.scrape(t, extended))
			maps.DeleteFunc(all, func(tag string, _ float64) bool { _, ok := listed[tag]; return !ok })
			scraperstest.CompareTags(t, "extended", listed, all)
		})
	}
}

func loadSample(t *testing.T, stem string) *sample {
	t.Helper()
	s := &sample{}
	content, err := os.ReadFile(stem + ".expected.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, s))
	content, errText := os.ReadFile(stem + ".prom")
	s.exposition = string(content)
	content, errJSON := os.ReadFile(stem + ".json")
	require.False(t, errText != nil && errJSON != nil, "%s has no input", stem)
	if errJSON == nil {
		require.NoError(t, json.Unmarshal(content, &s.input))
	}
	return s
}

func (s *sample) scrape(t *testing.T, options ...option) pmetric.Metrics {
	t.Helper()
	m := newMachine(t)
	m.addChips(s.Chip.Device, s.Chip.Subsystem, s.Chip.Functions)
	values := endpoints(nobody(t))
	if len(s.Ports) > 0 {
		values = endpoints(s.serve(t)...)
	}
	if s.exposition != "" {
		values["device_plugin"] = page(t, s.exposition)
	}
	if s.SDK != nil {
		values["sdk"] = map[string]any{
			"enabled": true, "reader_path": tputest.BuildReader(t), "library_path": tputest.BuildLibrary(t, s.library()),
		}
	}
	md, err := newRig(t, m, values, options...).scrape()
	if !s.hasFailures(t) { // a runtime that only fails is a fault, which is not what is compared
		require.NoError(t, err)
	}
	return md
}

// library is what libtpu answers.
func (s *sample) library() map[string]tputest.Metric {
	all := map[string]tputest.Metric{}
	for name, m := range s.SDK.Metrics {
		all[name] = tputest.Metric{Description: m.Description, Values: m.Values, Error: strings.TrimSuffix(string(m.Error), "null")}
	}
	return all
}

// hasFailures tells whether a runtime answers a question about a metric with an error.
func (s *sample) hasFailures(t *testing.T) bool {
	t.Helper()
	for _, p := range s.Ports {
		for _, raw := range p.Metrics {
			if errorOf(t, raw) != nil {
				return true
			}
		}
	}
	return false
}

// serve starts what listens, in the order of the recorded ports.
func (s *sample) serve(t *testing.T) (addresses []string) {
	t.Helper()
	numbers := slices.SortedFunc(maps.Keys(s.Ports), func(a, b string) int { return number(t, a) - number(t, b) })
	for _, n := range numbers {
		p := s.Ports[n]
		if p.Connect == "refused" {
			addresses = append(addresses, nobody(t))
			continue
		}
		require.Equal(t, "ok", p.Connect)
		address, _ := p.runtime(t).serve(t)
		addresses = append(addresses, address)
	}
	return addresses
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func (p *port) runtime(t *testing.T) *fakeRuntime {
	t.Helper()
	r := newRuntime()
	if p.When != nil {
		flag := whenForm.FindSubmatch(p.When)
		require.NotNil(t, flag, "when: %s", p.When)
		alone := string(flag[1]) == "true"
		r.alone = &alone
	}
	r.listed, r.listErr = p.list(t)
	for name, raw := range p.Metrics {
		if err := errorOf(t, raw); err != nil {
			r.errs[name] = err
			continue
		}
		answer := &pb.MetricResponse{}
		require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, answer))
		r.metrics[name] = answer
	}
	return r
}

// whenForm is what a question must say.
var whenForm = regexp.MustCompile(`skip_node_aggregation\W*(true|false)`)

// list is what the runtime says it has.
func (p *port) list(t *testing.T) ([]string, error) {
	t.Helper()
	if p.Supported == nil {
		return nil, status.Error(codes.Unimplemented, "not recorded")
	}
	names := []string{}
	if json.Unmarshal(p.Supported, &names) == nil {
		return names, nil
	}
	err := errorOf(t, p.Supported)
	require.Error(t, err)
	return nil, err
}

// errorOf returns the recorded error, nil where there is none.
func errorOf(t *testing.T, raw json.RawMessage) error {
	t.Helper()
	var f failure
	if json.Unmarshal(raw, &f) != nil || f.Error == nil {
		return nil
	}
	parts := struct {
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}{Code: f.Error}
	var text string
	if json.Unmarshal(f.Error, &text) == nil {
		name, message, _ := strings.Cut(text, ":")
		parts.Code, parts.Message = json.RawMessage(strconv.Quote(name)), message
	} else {
		require.NoError(t, json.Unmarshal(f.Error, &parts))
	}
	code := codes.Unknown
	if err := json.Unmarshal(parts.Code, &code); err != nil || code == codes.OK {
		code = codes.Unknown // whatever it is, it is one
	}
	return status.Error(code, parts.Message)
}

// The forms that a sample's errors and flags may have.
func TestFormsOfSamples(t *testing.T) {
	for raw, want := range map[string]codes.Code{
		`{"error": {"code": "NOT_FOUND", "message": "no"}}`: codes.NotFound,
		`{"error": {"code": 12, "message": "no"}}`:          codes.Unimplemented,
		`{"error": {"message": "no"}}`:                      codes.Unknown,
		`{"error": "UNIMPLEMENTED"}`:                        codes.Unimplemented,
		`{"error": "NOT_FOUND: no such metric"}`:            codes.NotFound,
		`{"error": "broken"}`:                               codes.Unknown,
		`{"metric": {"metrics": []}}`:                       codes.OK,
		`["tpu.runtime.uptime.seconds.gauge"]`:              codes.OK,
	} {
		require.Equal(t, want, status.Code(errorOf(t, json.RawMessage(raw))), raw)
	}
	for _, when := range []string{`"skip_node_aggregation=true"`, `{"skip_node_aggregation": true}`, `"only skip_node_aggregation: true"`} {
		r := (&port{When: json.RawMessage(when)}).runtime(t)
		require.True(t, *r.alone, when)
	}
}

// compareIDs compares the runtime's own ids by the numbers of the devices.
func (s *sample) compareIDs(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	if s.DeviceIDs == nil {
		return
	}
	got := map[string]int64{}
	for _, p := range scraperstest.PointsOf(md) {
		if id, ok := p.Attributes["tpu.device_id"].(int64); ok {
			index, ok := p.Attributes["tpu_index"].(int64)
			require.True(t, ok)
			got[strconv.FormatInt(index, 10)] = id
		}
	}
	require.Equal(t, s.DeviceIDs, got)
}
