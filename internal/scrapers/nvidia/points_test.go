// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// testSettings are those of a receiver below a root, and what it logs.
func testSettings(t testing.TB, root string, extended bool) (scrapers.Settings, *observer.ObservedLogs) {
	t.Helper()
	metrics := metadata.NewDefaultMetricsBuilderConfig()
	if extended {
		switchAll(&metrics.Metrics, true)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	return scrapers.Settings{
		Receiver: set,
		Metrics:  metrics,
		Identity: identity.New("sample", "", root, metrics.ResourceAttributes),
		RootPath: root,
	}, logs
}

// switchAll turns every metric on or off.
func switchAll(m *metadata.MetricsConfig, on bool) {
	for _, metric := range reflect.ValueOf(m).Elem().Fields() {
		metric.FieldByName("Enabled").SetBool(on)
	}
}

// point is a data point with the metric that it is of.
type point struct {
	metric     pmetric.Metric
	workload   string // empty: the machine's
	data       pmetric.NumberDataPoint
	attributes map[string]any
}

func (p *point) value() float64 {
	if p.data.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return float64(p.data.IntValue())
	}
	return p.data.DoubleValue()
}

// key is the point's identity as text.
func (p *point) key() string {
	parts := []string{p.metric.Name()}
	for _, key := range slices.Sorted(maps.Keys(p.attributes)) {
		parts = append(parts, fmt.Sprintf("%s=%v", key, p.attributes[key]))
	}
	if p.workload != "" {
		parts = append(parts, "workload="+p.workload)
	}
	return strings.Join(parts, " ")
}

func pointsOf(md pmetric.Metrics) []point {
	var points []point
	for _, rm := range md.ResourceMetrics().All() {
		instance, _ := rm.Resource().Attributes().Get("service.instance.id")
		_, workload, _ := strings.Cut(instance.Str(), "/")
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				for _, p := range numbersOf(m).All() {
					points = append(points, point{m, workload, p, p.Attributes().AsRaw()})
				}
			}
		}
	}
	return points
}

func numbersOf(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeSum {
		return m.Sum().DataPoints()
	}
	return m.Gauge().DataPoints()
}

// requireSane wants what holds for every payload.
func requireSane(t testing.TB, md pmetric.Metrics) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range pointsOf(md) {
		require.False(t, seen[p.key()], "two points %s", p.key())
		seen[p.key()] = true
		require.False(t, math.IsNaN(p.value()) || math.IsInf(p.value(), 0), p.key())
		require.GreaterOrEqual(t, p.value(), 0.0, p.key())
		require.NotZero(t, p.data.Timestamp(), p.key())
		if p.metric.Type() == pmetric.MetricTypeSum {
			require.NotZero(t, p.data.StartTimestamp(), p.key())
			require.LessOrEqual(t, p.data.StartTimestamp(), p.data.Timestamp(), p.key())
		}
	}
}

// tagsOf lists the points by their full tag, host and workloads together.
func tagsOf(md pmetric.Metrics) map[string]float64 {
	tags := map[string]float64{}
	for _, p := range pointsOf(inTagNaming(md)) {
		tag := p.metric.Name()
		if _, twice := tags[tag]; twice {
			tags[tag] = math.NaN() // never equal to anything
			continue
		}
		tags[tag] = p.value()
	}
	return tags
}

func inTagNaming(md pmetric.Metrics) pmetric.Metrics {
	named := pmetric.NewMetrics()
	md.CopyTo(named)
	naming.New(naming.Tag, "").Expand(named)
	return named
}

// compareTags reports one line per difference.
func compareTags(t testing.TB, what string, want, got map[string]float64) {
	t.Helper()
	for _, tag := range slices.Sorted(maps.Keys(want)) {
		value, ok := got[tag]
		switch {
		case !ok:
			t.Errorf("%s: %s is missing, want %v", what, tag, want[tag])
		case !isNear(value, want[tag]):
			t.Errorf("%s: %s is %v, want %v", what, tag, value, want[tag])
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[tag]; !ok {
			t.Errorf("%s: %s is surplus (%v)", what, tag, got[tag])
		}
	}
}

func isNear(got, want float64) bool {
	return math.Abs(got-want) <= 1e-6*max(1, math.Abs(want))
}
