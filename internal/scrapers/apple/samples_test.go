// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/tools"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json.
type sample struct {
	Tags map[string]float64 `json:"tags"`
	// Extras are those of metrics that are off by default.
	Extras map[string]float64 `json:"extras"`
	Config struct {
		// Memory is the machine's, which is not in the input.
		Memory uint64  `json:"memsize"`
		Limit  float64 `json:"gpu_power_limit_watts"`
	} `json:"config"`

	// stem is the path without the ending.
	stem string
}

func TestSamples(t *testing.T) {
	for _, s := range loadSamples(t) {
		t.Run(filepath.Base(s.stem), func(t *testing.T) {
			scraperstest.CompareTags(t, "tags", s.Tags, s.scrape(t, false))
			// With everything on, what is on by default is still the same.
			listed := maps.Clone(s.Tags)
			maps.Copy(listed, s.Extras)
			all := s.scrape(t, true)
			for tag := range all {
				if _, ok := listed[tag]; !ok {
					delete(all, tag)
				}
			}
			scraperstest.CompareTags(t, "extended", listed, all)
		})
	}
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
		s := &sample{Tags: map[string]float64{}, stem: strings.TrimSuffix(file, ".expected.json")}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, s), file)
		all = append(all, s)
	}
	return all
}

// scrape returns the tags that the family makes of the sample's input, which is NAME with
// the ending of its form.
func (s *sample) scrape(t *testing.T, extended bool) map[string]float64 {
	t.Helper()
	inputs, err := filepath.Glob(s.stem + ".*")
	require.NoError(t, err)
	for _, input := range inputs {
		if strings.HasSuffix(input, ".expected.json") || strings.HasSuffix(input, ".static.txt") {
			continue
		}
		content, err := os.ReadFile(input)
		require.NoError(t, err)
		r := s.rig(t, input, content, extended)
		md, err := r.scrape()
		if err != nil {
			t.Logf("scrape: %v", err)
		}
		return scraperstest.TagsOf(md)
	}
	require.Fail(t, "there is no input for "+s.stem)
	return nil
}

func (s *sample) rig(t *testing.T, input string, content []byte, extended bool) *rig {
	t.Helper()
	cfg := Config{GPUPowerLimitWatts: s.Config.Limit}
	switch kind := strings.TrimPrefix(filepath.Ext(s.stem), "."); kind {
	case "capture":
		cfg.ReplayFile = input
		return newRig(t, cfg, extended)
	case "ioreg":
		entries, err := tools.IOReg(content)
		require.NoError(t, err)
		c := &capture.Capture{System: capture.System{Memory: s.Config.Memory}, Registry: entries}
		return lookingRig(t, seen{c}, cfg, extended)
	case "macmon":
		return s.printed(t, tools.Macmon, lastLine(content), cfg, extended)
	case "powermetrics":
		return s.printed(t, tools.Powermetrics, lastPlist(t, content), cfg, extended)
	default:
		require.Fail(t, "unknown kind of sample", kind)
		return nil
	}
}

// printed has the figures of a program's report.
func (*sample) printed(t *testing.T, parse func([]byte) (*figures.Figures, error), report []byte, cfg Config, extended bool) *rig {
	t.Helper()
	f, err := parse(report)
	require.NoError(t, err)
	set, logs := settings(t, extended)
	return startRig(t, newScraperFor(set, &cfg, known{f}), logs)
}

func lastLine(content []byte) []byte {
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return []byte(lines[len(lines)-1])
}

// lastPlist is the last that is complete.
func lastPlist(t *testing.T, content []byte) (last []byte) {
	t.Helper()
	cut := cutPlists(func(document []byte) { last = append([]byte{}, document...) }, func() { t.Error("too long") })
	_, err := cut.Write(content)
	require.NoError(t, err)
	return last
}

// seen is a looker that sees the same each time.
type seen struct{ capture *capture.Capture }

func (s seen) Look(context.Context) (*capture.Capture, []error) { return s.capture, nil }

// known is a source of figures that are known.
type known struct{ figures *figures.Figures }

func (known) prime(context.Context)           {}
func (k known) read(context.Context) *reading { return &reading{figures: k.figures} }
func (known) close(context.Context) error     { return nil }
