// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

func sampleSettings(t testing.TB, root string, extended bool) scrapers.Settings {
	t.Helper()
	metrics := metadata.NewDefaultMetricsBuilderConfig()
	if extended {
		metrics.Metrics.CgroupCPU.Enabled = true
		metrics.Metrics.CgroupCPUPeriods.Enabled = true
		metrics.Metrics.CgroupCPUThrottledPeriods.Enabled = true
		metrics.Metrics.CgroupCPUThrottledTime.Enabled = true
		metrics.Metrics.CgroupMemoryOomKills.Enabled = true
		metrics.Metrics.CgroupPressure.Enabled = true
		metrics.Metrics.CPUCPUPercent.Enabled = true
		metrics.Metrics.Disk.Enabled = true
		metrics.Metrics.MemoryUsed.Enabled = true
		metrics.Metrics.ProcMemoryPssMB.Enabled = true
		metrics.Metrics.MemoryUsedPercent.Enabled = true
		metrics.Metrics.SwapUsed.Enabled = true
		metrics.Metrics.SwapUsedPercent.Enabled = true
	}
	return scrapers.Settings{
		Receiver: receivertest.NewNopSettings(metadata.Type),
		Metrics:  metrics,
		Identity: identity.New("sample", "", root, metrics.ResourceAttributes),
		RootPath: root,
	}
}

// tagsOf lists the points by their full tag. Host and workload are merged, as
// W&B shows them.
func tagsOf(md pmetric.Metrics) map[string]float64 {
	naming.New(naming.Tag, "").Expand(md)
	tags := map[string]float64{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				tags[m.Name()] = valueOf(m)
			}
		}
	}
	return tags
}

// hostOf keeps the machine's own resource. The given payload stays as it is.
func hostOf(md pmetric.Metrics) pmetric.Metrics {
	host := pmetric.NewMetrics()
	md.CopyTo(host)
	host.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		_, isProcess := rm.Resource().Attributes().Get("process.pid")
		return isProcess
	})
	return host
}

func valueOf(m pmetric.Metric) float64 {
	points := pointsOf(m)
	if points.Len() != 1 {
		return math.NaN() // two points under one tag: never equal to anything
	}
	return numberOf(points.At(0))
}

func pointsOf(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeSum {
		return m.Sum().DataPoints()
	}
	return m.Gauge().DataPoints()
}

func numberOf(p pmetric.NumberDataPoint) float64 {
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return float64(p.IntValue())
	}
	return p.DoubleValue()
}

// compareTags reports one line per difference.
func compareTags(t *testing.T, what string, want, got map[string]float64) {
	t.Helper()
	for _, difference := range tagDifferences(what, want, got) {
		t.Error(difference)
	}
}

func tagDifferences(what string, want, got map[string]float64) []string {
	const tolerance = 1e-6
	var differences []string
	for tag, expected := range want {
		value, ok := got[tag]
		switch {
		case !ok:
			differences = append(differences, fmt.Sprintf("%s: %s is missing, want %v", what, tag, expected))
		case !(math.Abs(value-expected) <= tolerance*max(1, math.Abs(expected))):
			differences = append(differences, fmt.Sprintf("%s: %s is %v, want %v", what, tag, value, expected))
		}
	}
	for tag, value := range got {
		if _, ok := want[tag]; !ok {
			differences = append(differences, fmt.Sprintf("%s: %s is surplus (%v)", what, tag, value))
		}
	}
	return differences
}

// requireSane wants what holds for every payload: a unit and points for every
// metric, no two points with the same attributes, numbers only, and start times
// where there is something to start.
func requireSane(t *testing.T, md pmetric.Metrics) {
	t.Helper()
	require.NoError(t, pmetrictest.ValidateMetrics(md))
	instances := map[string]bool{}
	for _, rm := range md.ResourceMetrics().All() {
		instance, ok := rm.Resource().Attributes().Get("service.instance.id")
		require.True(t, ok)
		require.False(t, instances[instance.Str()], "two resources %s", instance.Str())
		instances[instance.Str()] = true
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				requireSaneMetric(t, m)
			}
		}
	}
}

func requireSaneMetric(t *testing.T, m pmetric.Metric) {
	t.Helper()
	require.NotEmpty(t, m.Unit(), m.Name())
	require.NotEmpty(t, m.Description(), m.Name())
	isSum := m.Type() == pmetric.MetricTypeSum
	if isSum {
		require.True(t, m.Sum().IsMonotonic(), m.Name())
		require.Equal(t, pmetric.AggregationTemporalityCumulative, m.Sum().AggregationTemporality(), m.Name())
	}
	for _, p := range pointsOf(m).All() {
		value := numberOf(p)
		require.False(t, math.IsNaN(value) || math.IsInf(value, 0), m.Name())
		require.GreaterOrEqual(t, value, 0.0, m.Name())
		require.NotZero(t, p.Timestamp(), m.Name())
		if isSum {
			require.NotZero(t, p.StartTimestamp(), m.Name())
			require.LessOrEqual(t, p.StartTimestamp(), p.Timestamp(), m.Name())
		}
		if m.Unit() == "%" && m.Name() != "cpu" && m.Name() != "cgroup.cpu" {
			require.LessOrEqual(t, value, 100.0, m.Name())
		}
	}
}
