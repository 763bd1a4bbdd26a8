// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
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
		if err != nil { // it is ignored, as in the collector
			t.Logf("ioreg: %v", err)
		}
		c := &capture.Capture{System: capture.System{Memory: s.Config.Memory}, Registry: entries}
		return lookingRig(t, seen{c}, cfg, extended)
	case "macmon":
		return s.printed(t, lastReport(t, content, cutLines, tools.Macmon), cfg, extended)
	case "powermetrics":
		return s.printed(t, lastReport(t, content, cutPlists, tools.Powermetrics), cfg, extended)
	default:
		require.Fail(t, "unknown kind of sample", kind)
		return nil
	}
}

// printed has the figures of a program's report, nil when there are none.
func (*sample) printed(t *testing.T, f *figures.Figures, cfg Config, extended bool) *rig {
	t.Helper()
	set, logs := settings(t, extended)
	return startRig(t, newScraperFor(set, &cfg, known{f}), logs)
}

// lastReport has the figures of the last report of a program that can be read: half a
// report and what is none are ignored. The last line of a file may have no end.
func lastReport(
	t *testing.T, content []byte, cut func(func([]byte), func()) io.Writer, parse func([]byte) (*figures.Figures, error),
) (last *figures.Figures) {
	t.Helper()
	w := cut(func(report []byte) {
		f, err := parse(report)
		if err != nil {
			t.Logf("ignored: %v", err)
			return
		}
		last = f
	}, func() { t.Error("too long") })
	_, err := w.Write(append(bytes.Clone(content), '\n'))
	require.NoError(t, err)
	return last
}

func TestReportsThatCannotBeReadAreIgnored(t *testing.T) {
	const line = `{"gpu_power": 2}`
	for name, content := range map[string]string{
		"no end of the line": line,
		"half a line":        line + "\n" + `{"gpu_power": 3, "temp`,
		"another text":       "a warning\n" + line + "\r\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := lastReport(t, []byte(content), cutLines, tools.Macmon)
			require.NotNil(t, f)
			require.InDelta(t, 2, f.Power.Value, 1e-9)
		})
	}
	require.Nil(t, lastReport(t, []byte("{}"), cutLines, tools.Macmon))
}

// seen is a looker that sees the same each time.
type seen struct{ capture *capture.Capture }

func (s seen) Look(context.Context) (*capture.Capture, []error) { return s.capture, nil }

// known is a source of figures that are known.
type known struct{ figures *figures.Figures }

func (known) prime(context.Context)           {}
func (k known) read(context.Context) *reading { return &reading{figures: k.figures} }
func (known) close(context.Context) error     { return nil }
