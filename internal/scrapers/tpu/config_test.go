// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSection(t *testing.T) {
	cfg, err := section(t, map[string]any{
		"collection_interval": "5s",
		"endpoints": []any{
			"10.0.0.3:8431",
			map[string]any{"endpoint": "[::1]:8432", "headers": map[string]any{"a": "b"}},
			map[string]any{"endpoint": "pod:8431", "tls": map[string]any{"server_name_override": "x"}},
		},
		"device_plugin": map[string]any{"endpoint": "http://localhost:2112/metrics", "timeout": "3s"},
		"distributions": "both", "distribution_window": "interval",
		"sdk": map[string]any{"enabled": true, "interval": "1m"},
	})
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, cfg.CommonConfig.Timing.CollectionInterval)
	require.Len(t, cfg.Endpoints, 3)
	assert.Equal(t, "10.0.0.3:8431", cfg.Endpoints[0].ClientConfig.Endpoint)
	assert.True(t, cfg.Endpoints[0].ClientConfig.TLS.Insecure)
	assert.True(t, cfg.Endpoints[1].ClientConfig.TLS.Insecure)
	assert.False(t, cfg.Endpoints[2].ClientConfig.TLS.Insecure, "who sets up TLS has it")
	assert.Equal(t, 3*time.Second, cfg.DevicePlugin.ClientConfig.Timeout)
	assert.Equal(t, formBoth, cfg.Distributions)
	assert.Equal(t, windowInterval, cfg.DistributionWindow)
	assert.Equal(t, SDKConfig{Enabled: true, Interval: time.Minute}, cfg.SDK)
}

func TestDefaultSection(t *testing.T) {
	cfg, err := section(t, nil)
	require.NoError(t, err)
	assert.Empty(t, cfg.Endpoints)
	assert.Nil(t, cfg.DevicePlugin)
	assert.Equal(t, formQuantiles, cfg.Distributions)
	assert.Equal(t, windowJob, cfg.DistributionWindow)
	assert.Equal(t, SDKConfig{Interval: 10 * time.Second}, cfg.SDK)
	cfg, err = section(t, map[string]any{"device_plugin": "http://node:2112/metrics", "endpoints": nil})
	require.NoError(t, err)
	assert.Equal(t, "http://node:2112/metrics", cfg.DevicePlugin.ClientConfig.Endpoint)
}

func TestSectionsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		values map[string]any
		want   []string
	}{
		"unknown keys": {map[string]any{"endpoint": "a:1"}, []string{"'tpu.Config' has invalid keys: endpoint"}},
		"endpoints that are no list": {
			map[string]any{"endpoints": "a:1"}, []string{"endpoints: must be a list of host:port, or of settings"},
		},
		"an endpoint of another kind": {
			map[string]any{"endpoints": []any{1, map[string]any{"address": "x"}}},
			[]string{"endpoints::0: must be host:port, or a map of settings", "endpoints::1: ", "has invalid keys: address"},
		},
		"addresses": {
			map[string]any{"endpoints": []any{"a", ":1", "a:x", "a:0", "http://a:1", "a:1", "a:1", "", map[string]any{"endpoint": "unix:///a"}}},
			[]string{
				"endpoints::0::clientconfig: address a: missing port in address", `endpoints::1: ":1": must be host:port`, `endpoints::2::clientconfig: invalid port "x"`, `endpoints::3: "a:0": must be host:port`,
				`endpoints::4: "http://a:1": must be host:port`, `endpoints::6: "a:1": is listed twice`, `endpoints::7: "": must be host:port`,
				`endpoints::8: "unix:///a": must be host:port`,
			},
		},
		"a plugin of another kind": {map[string]any{"device_plugin": 5}, []string{"device_plugin: must be a URL, or a map of settings"}},
		"a plugin's typo":          {map[string]any{"device_plugin": map[string]any{"url": "x"}}, []string{"device_plugin: ", "has invalid keys: url"}},
		"a plugin without a URL":   {map[string]any{"device_plugin": "localhost"}, []string{"device_plugin: endpoint: "}},
		"a form":                   {map[string]any{"distributions": "raw"}, []string{`unknown value "raw"; use quantiles, histogram or both`}},
		"a window":                 {map[string]any{"distribution_window": "day"}, []string{`unknown value "day"; use job or interval`}},
		"the SDK": {
			map[string]any{"sdk": map[string]any{"reader_path": "a", "library_path": "b", "interval": "9s"}},
			[]string{
				`sdk::reader_path: "a": must be absolute`, `sdk::library_path: "b": must be absolute`,
				"sdk::interval: 9s: must be at least 10s, for the sake of the TPU's control agent",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := section(t, tt.values)
			for _, want := range tt.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
