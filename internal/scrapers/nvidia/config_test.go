// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
)

func TestDefaultConfig(t *testing.T) {
	cfg := defaultConfig().(*Config)
	require.NoError(t, componenttest.CheckConfigStruct(cfg))
	require.NoError(t, cfg.Validate())
	require.NoError(t, cfg.Profiling.Validate())
	assert.Same(t, &cfg.CommonConfig, cfg.Common())
	assert.Equal(t, &Config{Profiling: profilingAuto, MIG: true}, cfg)
}

func TestConfig(t *testing.T) {
	absolute := "/opt/libnvidia-ml.so.1"
	if runtime.GOOS == "windows" {
		absolute = `C:\nvml.dll`
	}
	type keys = map[string]any
	tests := []struct {
		name string
		keys keys
		want string
	}{
		{name: "nothing"},
		{name: "everything", keys: keys{
			"collection_interval": "5s", "device_ids": []any{0, "3", "GPU-8f2c", "0000:3B:00.0", "00000001:3b:00.0", "3c:00"},
			"library_path": absolute, "profiling": "off", "mig": false, "release_driver_between_scrapes": true, "skip_suspended": true,
		}},
		{name: "a relative library", keys: keys{"library_path": "libnvidia-ml.so.1"}, want: `library_path: "libnvidia-ml.so.1": must be absolute`},
		{name: "profiling", keys: keys{"profiling": "on"}, want: `unknown value "on"; use auto or off`},
		{
			name: "device_ids", keys: keys{"device_ids": []any{0, -1, "MIG-1", "", "nvidia0", true, "0", 65536, "GPU-1", "GPU-1", "3b:00.0", "00000000:3B:00"}},
			want: `device_ids::1: "-1": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)
device_ids::2: "MIG-1": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)
device_ids::3: "": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)
device_ids::4: "nvidia0": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)
device_ids::5: "true": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)
device_ids::6: "0": is listed twice
device_ids::7: "65536": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)
device_ids::9: "GPU-1": is listed twice
device_ids::11: "00000000:3B:00": is listed twice`,
		},
		{
			name: "every error is told", keys: keys{"library_path": "x", "profiling": "always", "device_ids": []any{"x"}},
			want: `unknown value "always"; use auto or off
library_path: "x": must be absolute
device_ids::0: "x": must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaultConfig().(*Config)
			require.NoError(t, confmap.NewFromStringMap(tt.keys).Unmarshal(cfg))
			err := errors.Join(cfg.Profiling.Validate(), cfg.Validate())
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tt.want)
		})
	}
}
