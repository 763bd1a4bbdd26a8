// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// samplesVariable names the folder of recorded cases: one folder per family, in it
// NAME.expected.json and the input beside it.
const samplesVariable = "WANDBSYS_SAMPLES"

// sampleExpected is NAME.expected.json.
type sampleExpected struct {
	Kind    string             `json:"kind"`
	Version *string            `json:"version"`
	Size    *int               `json:"size"`
	Reading map[string]float64 `json:"reading"`
}

func TestRecordedCases(t *testing.T) {
	root := os.Getenv(samplesVariable)
	if root == "" {
		t.Skip(samplesVariable, "is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, "amd", "*.expected.json"))
	require.NoError(t, err)
	found := false
	for _, file := range files {
		var want sampleExpected
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &want), file)
		if want.Kind != "gpu_metrics" {
			continue
		}
		found = true
		input := strings.TrimSuffix(file, ".expected.json") + ".hex"
		t.Run(filepath.Base(input), func(t *testing.T) { checkSample(t, input, want) })
	}
	require.True(t, found)
}

func checkSample(t *testing.T, input string, want sampleExpected) {
	t.Helper()
	text, err := os.ReadFile(input)
	require.NoError(t, err)
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	require.NoError(t, err)

	var m Metrics
	err = Decode(b, &m)
	if want.Version == nil {
		require.ErrorIs(t, err, ErrShort)
		return
	}
	if unknown := new(UnknownError); err != nil {
		require.ErrorAs(t, err, &unknown)
		require.Empty(t, want.Reading)
	}
	assert.Equal(t, *want.Version, fmt.Sprintf("%d.%d", m.Format, m.Content))
	assert.Equal(t, *want.Size, m.Size)

	// The recorded reading is raw: a power of 0 is in it.
	if want.Reading["socket_power_watts"] == 0 {
		delete(want.Reading, "socket_power_watts")
	}
	got := map[string]float64{}
	for name, f := range map[string]card.Float{
		"temp_mem_celsius":     m.Temperatures[card.Mem],
		"temp_hotspot_celsius": m.Temperatures[card.Junction],
		"temp_edge_celsius":    m.Temperatures[card.Edge],
		"gfx_activity_percent": m.GFX,
		"umc_activity_percent": m.UMC,
		"socket_power_watts":   m.Power,
	} {
		if f.Known {
			got[name] = f.Value
		}
	}
	assert.InDeltaMapValues(t, want.Reading, got, 1e-9)
}
