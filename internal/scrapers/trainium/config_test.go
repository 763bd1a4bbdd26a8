// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

// decoded lays a section over the defaults.
func decoded(t *testing.T, section map[string]any) *Config {
	t.Helper()
	cfg := defaultConfig().(*Config)
	require.NoError(t, confmap.NewFromStringMap(section).Unmarshal(cfg))
	return cfg
}

func TestDefaults(t *testing.T) {
	cfg := decoded(t, map[string]any{})
	assert.Equal(t, defaultConfig(), cfg)
	assert.False(t, cfg.usesExporter())
	require.NoError(t, cfg.Validate())

	cfg = decoded(t, map[string]any{"prometheus": nil})
	assert.True(t, cfg.usesExporter(), "the key alone asks for it")

	cfg = decoded(t, map[string]any{"prometheus": map[string]any{}})
	require.NoError(t, cfg.Validate())
	assert.True(t, cfg.usesExporter())
	p := cfg.Prometheus.Get()
	assert.Equal(t, "http://localhost:8000/metrics", p.ClientConfig.Endpoint)
	assert.Equal(t, 16<<20, p.MaxBodySize)
	assert.Equal(t, 5*time.Second, p.timeout())

	cfg = decoded(t, map[string]any{"prometheus": map[string]any{"endpoint": "https://monitor:8000", "timeout": "2s"}})
	assert.Equal(t, "https://monitor:8000", cfg.Prometheus.Get().ClientConfig.Endpoint)
	assert.Equal(t, 2*time.Second, cfg.Prometheus.Get().timeout())
}

func TestTheToolIsPreferredWhereBothAreConfigured(t *testing.T) {
	cfg := decoded(t, map[string]any{"neuron_monitor_path": "/opt/nm", "prometheus": map[string]any{}})
	require.NoError(t, cfg.Validate())
	assert.False(t, cfg.usesExporter())
}

func TestSectionsThatAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		section map[string]any
		want    []string
	}{
		"relative path": {map[string]any{"neuron_monitor_path": "bin/neuron-monitor"}, []string{`neuron_monitor_path: "bin/neuron-monitor": must be absolute`}},
		"no expression": {map[string]any{"tag_filter": "("}, []string{"tag_filter: error parsing regexp: missing closing ): `(`"}},
		"too much time": {map[string]any{"timeout": "4s", "prometheus": map[string]any{"timeout": "5s"}}, []string{
			"prometheus: timeout: 5s: must not be longer than the family's timeout (4s)",
		}},
		"several": {map[string]any{"tag_filter": "a", "prometheus": map[string]any{"endpoint": "localhost", "max_body_size": 0, "timeout": "-1s"}}, []string{
			"prometheus: endpoint: ", "prometheus: timeout: -1s: must be above 0", "prometheus: max_body_size: 0: must be above 0",
			"tag_filter: has no effect with prometheus",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := decoded(t, tt.section).Validate()
			for _, text := range tt.want {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

func TestPeriodIsTheIntervalInWholeSeconds(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Millisecond: time.Second, 1999 * time.Millisecond: time.Second,
		15 * time.Second: 15 * time.Second, time.Minute + time.Millisecond: time.Minute,
	} {
		cfg := &Config{}
		cfg.CommonConfig.Timing.CollectionInterval = interval
		assert.Equal(t, want, cfg.period(), interval)
	}
}
