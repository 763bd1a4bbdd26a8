// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the output beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sample is NAME.expected.json.
type sample struct {
	Kind  string `json:"kind"`
	Input struct {
		ExitCode   int    `json:"exit_code"`
		Stderr     string `json:"stderr"`
		StaticFile string `json:"static_file"`
	} `json:"input"`
	Tags      map[string]float64 `json:"tags"`
	ExtraTags map[string]float64 `json:"extra_tags"`
}

func TestSamples(t *testing.T) {
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable + " is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, "amd", "*.expected.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	done := map[string]int{}
	for _, file := range files {
		var s sample
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &s), file)
		tool := map[string]func(Options) *Tool{rocmSMI.name: NewROCm, amdSMI.name: NewAMD}[s.Kind]
		if tool == nil {
			continue
		}
		done[s.Kind]++
		stem := strings.TrimSuffix(file, ".expected.json")
		t.Run(filepath.Base(stem), func(t *testing.T) {
			f := replay(t, stem, &s)
			got, _, err := tool(Options{Path: f.path}).Read(bounded(t), true)
			if len(s.Tags) > 0 {
				require.NoError(t, err)
			}
			want := maps.Clone(s.Tags)
			maps.Copy(want, s.ExtraTags)
			tags := tagsOf(got)
			assert.Len(t, tags, len(want))
			for tag, v := range want {
				if assert.Contains(t, tags, tag) {
					assert.InDelta(t, v, tags[tag], 1e-6*max(1, v), tag)
				}
			}
		})
	}
	assert.Len(t, done, 2)
}

// replay writes a tool that prints the files of a sample.
func replay(t *testing.T, stem string, s *sample) fake {
	t.Helper()
	out := stem + ".json"
	if _, err := os.Stat(out); err != nil {
		out = stem + ".txt"
	}
	static := os.DevNull
	if s.Input.StaticFile != "" {
		static = filepath.Join(filepath.Dir(stem), s.Input.StaticFile)
	}
	f := newFake(t, s.Kind, fmt.Sprintf(`[ "$1" = static ] && exec cat '%s'
cat '%s'; cat "$D/stderr" >&2; exit %d`, static, out, s.Input.ExitCode))
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "stderr"), []byte(s.Input.Stderr), 0o600))
	return f
}

// tagsOf returns the figures as they are tagged.
func tagsOf(cards []card.Reading) map[string]float64 {
	tags := map[string]float64{}
	for i := range cards {
		c := &cards[i]
		temperature, _ := c.Temperature()
		for tag, v := range map[string]card.Float{
			"gpu": c.GPU, "memoryAllocated": c.Memory.Share(), "temp": temperature, "powerWatts": c.Power, "powerPercent": c.PowerPercent(),
			"memoryReadWriteActivity": c.MemoryActivity, "memoryOverDrive": c.OverDrive,
		} {
			if v.Known {
				tags[fmt.Sprintf("gpu.%d.%s", c.Index, tag)] = v.Value
			}
		}
	}
	return tags
}
