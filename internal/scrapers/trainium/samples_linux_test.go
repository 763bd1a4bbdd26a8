// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json.
type sample struct {
	Tags map[string]float64 `json:"tags"`
	// ExtraTags are those of metrics that are off by default.
	ExtraTags map[string]float64 `json:"extra_tags"`
	// ECC are the hardware counters of each device after the last line.
	ECC map[string]map[string]float64 `json:"ecc"`

	// stem is the path without the ending.
	stem string
}

func TestSamples(t *testing.T) {
	for _, s := range loadSamples(t) {
		t.Run(filepath.Base(s.stem), func(t *testing.T) {
			scraperstest.CompareTags(t, "tags", s.Tags, s.scrape(t, false))
			// With everything on, what is on by default is still the same.
			all, listed := s.scrape(t, true), s.listed()
			for tag := range all {
				if _, ok := listed[tag]; !ok {
					delete(all, tag)
				}
			}
			scraperstest.CompareTags(t, "extended", listed, all)
		})
	}
}

// listed are the tags that the file tells of.
func (s *sample) listed() map[string]float64 {
	all := map[string]float64{}
	maps.Copy(all, s.Tags)
	maps.Copy(all, s.ExtraTags)
	for device, counters := range s.ECC {
		for name, value := range counters {
			all["trn."+device+"."+name] = value
		}
	}
	return all
}

// loadSamples skips the test where there are none.
func loadSamples(t *testing.T) []*sample {
	t.Helper()
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, familyName, "*.expected.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*sample
	for _, file := range files {
		s := &sample{stem: strings.TrimSuffix(file, ".expected.json")}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, s), file)
		all = append(all, s)
	}
	return all
}

// scrape returns the tags that the family makes of the sample's input.
func (s *sample) scrape(t *testing.T, extended bool) map[string]float64 {
	t.Helper()
	for ending, scrape := range map[string]func(*testing.T, string, bool) map[string]float64{
		".jsonl": scrapeStream, ".prom": scrapeEndpoint,
	} {
		if _, err := os.Stat(s.stem + ending); err == nil {
			return scrape(t, s.stem+ending, extended)
		}
	}
	// What neuron-ls prints is no source.
	require.FileExists(t, s.stem+".json")
	return map[string]float64{}
}

// scrapeStream lets a neuron-monitor print the file.
func scrapeStream(t *testing.T, file string, extended bool) map[string]float64 {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	// The last line of a file may lack its end, where the tool would write one.
	tool := fakeTool(t, "cat '"+file+"'; echo; exec sleep 1000")
	r := newRig(t, t.TempDir(), options{config: Config{NeuronMonitorPath: tool}, extended: extended})
	defer r.shutdown()
	r.scraper.Prime(t.Context())
	r.awaitLines(strings.Count(string(content), "\n") + 1)
	return r.anyTags()
}

// scrapeEndpoint serves the file.
func scrapeEndpoint(t *testing.T, file string, extended bool) map[string]float64 {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	r := exporterRig(t, serve(t, string(content)), options{extended: extended})
	defer r.shutdown()
	return r.anyTags()
}

// anyTags are those of a scrape that may have something to complain of.
func (r *rig) anyTags() map[string]float64 {
	r.t.Helper()
	md, err := r.scrape()
	if err != nil {
		r.t.Logf("scrape: %v", err)
	}
	return scraperstest.TagsOf(md)
}
