// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package scraperstest has what the tests of several families need: settings, the
// points of a payload, and the files of a machine.
package scraperstest

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

// NewSettings are those of a receiver below a root, and what it logs.
func NewSettings(t testing.TB, root string, extended bool) (scrapers.Settings, *observer.ObservedLogs) {
	t.Helper()
	metrics := metadata.NewDefaultMetricsBuilderConfig()
	if extended {
		SwitchAll(&metrics.Metrics, true)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	return scrapers.Settings{
		Receiver: set,
		Metrics:  metrics,
		Identity: identity.New("sample", "", root, metrics.ResourceAttributes),
		RootPath: root,
		Extended: extended,
	}, logs
}

// SwitchAll turns every metric on or off.
func SwitchAll(m *metadata.MetricsConfig, on bool) {
	for _, metric := range reflect.ValueOf(m).Elem().Fields() {
		metric.FieldByName("Enabled").SetBool(on)
	}
}

// Point is a data point with the metric that it is of.
type Point struct {
	Metric pmetric.Metric
	// Workload is empty for the machine's.
	Workload   string
	Data       pmetric.NumberDataPoint
	Attributes map[string]any
}

// Value is the point's, whatever its type is.
func (p *Point) Value() float64 {
	if p.Data.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return float64(p.Data.IntValue())
	}
	return p.Data.DoubleValue()
}

// Key is the point's identity as text.
func (p *Point) Key() string {
	parts := []string{p.Metric.Name()}
	for _, key := range slices.Sorted(maps.Keys(p.Attributes)) {
		parts = append(parts, fmt.Sprintf("%s=%v", key, p.Attributes[key]))
	}
	if p.Workload != "" {
		parts = append(parts, "workload="+p.Workload)
	}
	return strings.Join(parts, " ")
}

// PointsOf lists the points of all resources.
func PointsOf(md pmetric.Metrics) []Point {
	var points []Point
	for _, rm := range md.ResourceMetrics().All() {
		instance, _ := rm.Resource().Attributes().Get("service.instance.id")
		_, workload, _ := strings.Cut(instance.Str(), "/")
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				for _, p := range numbersOf(m).All() {
					points = append(points, Point{m, workload, p, p.Attributes().AsRaw()})
				}
			}
		}
	}
	return points
}

// numbersOf are the points with a single value.
func numbersOf(m pmetric.Metric) pmetric.NumberDataPointSlice {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints()
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints()
	}
	return pmetric.NewNumberDataPointSlice()
}

// RequireSane wants what holds for every payload.
func RequireSane(t testing.TB, md pmetric.Metrics) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range PointsOf(md) {
		require.False(t, seen[p.Key()], "two points %s", p.Key())
		seen[p.Key()] = true
		require.False(t, math.IsNaN(p.Value()) || math.IsInf(p.Value(), 0), p.Key())
		require.GreaterOrEqual(t, p.Value(), 0.0, p.Key())
		require.NotZero(t, p.Data.Timestamp(), p.Key())
		if p.Metric.Type() == pmetric.MetricTypeSum {
			require.NotZero(t, p.Data.StartTimestamp(), p.Key())
			require.LessOrEqual(t, p.Data.StartTimestamp(), p.Data.Timestamp(), p.Key())
		}
	}
}

// TagsOf lists the points by their full tag, host and workloads together.
func TagsOf(md pmetric.Metrics) map[string]float64 {
	tags := map[string]float64{}
	for _, p := range PointsOf(InTagNaming(md)) {
		tag := p.Metric.Name()
		if _, twice := tags[tag]; twice {
			tags[tag] = math.NaN() // never equal to anything
			continue
		}
		tags[tag] = p.Value()
	}
	return tags
}

// InTagNaming returns a copy whose metrics are named by their full tags.
func InTagNaming(md pmetric.Metrics) pmetric.Metrics { return InNaming(naming.Tag, "", md) }

// InNaming returns a copy whose metrics are named in a style, with a label.
func InNaming(style naming.Style, label string, md pmetric.Metrics) pmetric.Metrics {
	named := pmetric.NewMetrics()
	md.CopyTo(named)
	naming.New(style, label).Expand(named)
	return named
}

// CompareTags reports one line per difference.
func CompareTags(t testing.TB, what string, want, got map[string]float64) {
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
