// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
)

func TestDefaultConfig(t *testing.T) {
	cfg := defaultConfig().(*Config)
	require.NoError(t, componenttest.CheckConfigStruct(cfg))
	require.NoError(t, cfg.Validate())
	require.NoError(t, cfg.Network.Validate())
	assert.Same(t, &cfg.CommonConfig, cfg.Common())
	want := "/"
	if runtime.GOOS == "windows" {
		want = `C:\`
	}
	assert.Equal(t, []string{want}, cfg.DiskPaths)
}

func TestConfigValidate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("other paths are absolute there")
	}
	tests := []struct {
		name  string
		paths []string
		want  string
	}{
		{name: "none"},
		{name: "several", paths: []string{"/", "/mnt/data", "/mnt/my disk"}},
		{name: "relative", paths: []string{"data"}, want: `disk_paths: "data": must be absolute`},
		{name: "empty", paths: []string{""}, want: `disk_paths: "": must be absolute`},
		{name: "twice", paths: []string{"/", "/"}, want: `disk_paths: "/": is listed twice`},
		{
			name: "every error is told", paths: []string{"a", "/", "b", "/"},
			want: "disk_paths: \"a\": must be absolute\ndisk_paths: \"b\": must be absolute\ndisk_paths: \"/\": is listed twice",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{DiskPaths: tt.paths}
			err := cfg.Validate()
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestNetworkConfigValidate(t *testing.T) {
	good := NetworkConfig{Include: []string{"eth.*", "ib[0-9]+"}, Exclude: []string{"eth9"}}
	require.NoError(t, good.Validate())
	bad := NetworkConfig{Include: []string{"eth(", "ok"}, Exclude: []string{"[", "*"}}
	err := bad.Validate()
	require.ErrorContains(t, err, `include: "eth("`)
	require.ErrorContains(t, err, `exclude: "["`)
	require.ErrorContains(t, err, `exclude: "*"`)
}

func TestExpressionsMatchWholeNames(t *testing.T) {
	compiled, err := compile("include", []string{"eth0|lo", "ib.*"})
	require.NoError(t, err)
	for name, want := range map[string]bool{"eth0": true, "lo": true, "ib0": true, "eth01": false, "xlo": false, "eth0\nx": false, "": false} {
		assert.Equal(t, want, matchAny(compiled, name), "%q", name)
	}
}
