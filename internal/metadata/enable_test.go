// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

func TestEnableUnlessSetLeavesWhatTheUserSaid(t *testing.T) {
	cfg := NewDefaultMetricsBuilderConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"metrics": map[string]any{
		"gpu.smActive": map[string]any{"enabled": false},
		"gpu.temp":     map[string]any{"enabled": false},
		"gpu.energy":   map[string]any{"enabled": true},
	}}).Unmarshal(&cfg))
	want := cfg.Metrics
	want.GpuSmOccupancy.Enabled = true

	cfg.Metrics.EnableUnlessSet("gpu.smActive", "gpu.smOccupancy", "gpu.temp", "gpu.gpu", "gpu.unknown")
	assert.Equal(t, want, cfg.Metrics, "but for smOccupancy as it was")
}
