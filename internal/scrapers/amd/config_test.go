// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
)

func TestDefaultConfig(t *testing.T) {
	cfg := defaultConfig().(*Config)
	require.NoError(t, componenttest.CheckConfigStruct(cfg))
	require.NoError(t, cfg.Validate())
	require.NoError(t, cfg.Source.Validate())
	assert.Same(t, &cfg.CommonConfig, cfg.Common())
	assert.Equal(t, &Config{Source: sourceAuto}, cfg)
}

func TestConfig(t *testing.T) {
	root := "/"
	if runtime.GOOS == "windows" {
		root = `C:\`
	}
	type keys = map[string]any
	tests := []struct {
		name string
		keys keys
		want string
	}{
		{name: "nothing"},
		{name: "everything", keys: keys{
			"collection_interval": "5s", "source": "rocm-smi", "amd_smi_path": root + "amd-smi", "rocm_smi_path": root + "rocm-smi", "tool_timeout": "1m",
		}},
		{name: "auto", keys: keys{"source": "auto"}},
		{name: "sysfs", keys: keys{"source": "sysfs"}},
		{name: "amd-smi", keys: keys{"source": "amd-smi"}},
		{name: "a source of another spelling", keys: keys{"source": "rocm_smi"}, want: `unknown value "rocm_smi"; use auto, sysfs, amd-smi or rocm-smi`},
		{name: "no source", keys: keys{"source": ""}, want: `unknown value ""; use auto, sysfs, amd-smi or rocm-smi`},
		{name: "a relative path", keys: keys{"rocm_smi_path": "rocm-smi"}, want: `rocm_smi_path: "rocm-smi": must be absolute`},
		{name: "devices", keys: keys{"device_ids": []any{0, "3", "00112233AABBCCDD", "C1:00.0"}}},
		{
			name: "devices of another form", keys: keys{"device_ids": []any{"GPU-1", 2, "2"}},
			want: `device_ids::0: "GPU-1": must be rocm-smi's index, a unique_id (16 hexadecimal digits) or a PCI address (0000:c1:00.0)
device_ids::2: "2": is listed twice`,
		},
		{name: "a timeout of 0 is the default", keys: keys{"tool_timeout": 0}},
		{name: "a timeout below 0", keys: keys{"tool_timeout": "-1s"}, want: "tool_timeout: -1s: must not be below 0"},
		{
			name: "every error is told", keys: keys{"source": "x", "amd_smi_path": "bin/amd-smi", "rocm_smi_path": "./rocm-smi", "tool_timeout": "-1ms"},
			want: `unknown value "x"; use auto, sysfs, amd-smi or rocm-smi
amd_smi_path: "bin/amd-smi": must be absolute
rocm_smi_path: "./rocm-smi": must be absolute
tool_timeout: -1ms: must not be below 0`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaultConfig().(*Config)
			require.NoError(t, confmap.NewFromStringMap(tt.keys).Unmarshal(cfg))
			err := errors.Join(cfg.Source.Validate(), cfg.Validate())
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestConfigIsTaken(t *testing.T) {
	cfg := defaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"source": "amd-smi", "amd_smi_path": "/a", "rocm_smi_path": "/b", "tool_timeout": "40s", "max_series": 7,
	}).Unmarshal(cfg))
	want := &Config{Source: sourceAMDSMI, AMDSMIPath: "/a", ROCmSMIPath: "/b", ToolTimeout: 40 * time.Second}
	want.CommonConfig.MaxSeries = 7
	assert.Equal(t, want, cfg)
}

func TestUnknownKey(t *testing.T) {
	err := confmap.NewFromStringMap(map[string]any{"rocm_smi": "/b"}).Unmarshal(defaultConfig())
	require.ErrorContains(t, err, "has invalid keys: rocm_smi")
}
