// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

// anyPath is an absolute one on every system.
var anyPath = filepath.Join(os.TempDir(), "x")

func TestConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		section map[string]any
		want    sourceName
	}{
		"default":      {nil, sourceNative},
		"a replay":     {map[string]any{"replay_file": anyPath}, sourceReplay},
		"a replay too": {map[string]any{"replay_file": anyPath, "source": "replay"}, sourceReplay},
		"native":       {map[string]any{"source": "native", "capture_file": anyPath}, sourceNative},
		"macmon":       {map[string]any{"source": "macmon", "tool_path": anyPath, "gpu_power_limit_watts": 30}, sourceMacmon},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaultConfig().(*Config)
			require.NoError(t, confmap.NewFromStringMap(tt.section).Unmarshal(cfg))
			require.NoError(t, errors.Join(cfg.Validate(), cfg.Source.Validate()))
			assert.Equal(t, tt.want, cfg.source())
		})
	}
}

func TestConfigThatIsRefused(t *testing.T) {
	x := anyPath
	for name, tt := range map[string]struct {
		cfg  Config
		want []string
	}{
		"unknown source":           {Config{Source: "smc"}, []string{`unknown value "smc"; use auto, native, ioreg, macmon, powermetrics or replay`}},
		"relative paths":           {Config{Source: sourceAuto, ReplayFile: "a", CaptureFile: "b", ToolPath: "c"}, []string{`replay_file: "a": must be absolute`, `capture_file: "b": must be absolute`, `tool_path: "c": must be absolute`}},
		"a limit below 0":          {Config{Source: sourceAuto, GPUPowerLimitWatts: -1}, []string{"gpu_power_limit_watts: -1: must be a number"}},
		"a limit that is none":     {Config{Source: sourceAuto, GPUPowerLimitWatts: math.NaN()}, []string{"gpu_power_limit_watts: NaN: must be a number"}},
		"replay of nothing":        {Config{Source: sourceReplay}, []string{"source: replay needs replay_file"}},
		"a replay that is not one": {Config{Source: sourceNative, ReplayFile: x}, []string{"replay_file: has no effect with source native"}},
		"a capture of a replay":    {Config{Source: sourceAuto, ReplayFile: x, CaptureFile: x}, []string{"capture_file: has no effect with source replay"}},
		"a tool of none":           {Config{Source: sourceAuto, ToolPath: x}, []string{"tool_path: has no effect with source native"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(tt.cfg.Validate(), tt.cfg.Source.Validate())
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
