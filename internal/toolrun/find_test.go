// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package toolrun

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadatatest"
)

func TestDirsAreAbsoluteAndThereOnce(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	assert.Equal(t, []string{a, b}, Dirs(a, "", "relative", b, a))
	assert.Empty(t, Dirs())
}

func TestNewestFirst(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"sdk-3.2.0", "sdk-3.10.0", "sdk", "sdk-99999999999999999999", "other-9"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
	}
	var names []string
	for _, dir := range NewestFirst(filepath.Join(root, "sdk*")) {
		names = append(names, filepath.Base(dir))
	}
	assert.Equal(t, []string{"sdk-99999999999999999999", "sdk-3.10.0", "sdk-3.2.0", "sdk"}, names)
	assert.Empty(t, NewestFirst("[")) // a pattern that is wrong
}

func TestIsExecutable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no such bit")
	}
	root := t.TempDir()
	program, text := filepath.Join(root, "program"), filepath.Join(root, "text")
	require.NoError(t, os.WriteFile(program, nil, 0o700))
	require.NoError(t, os.WriteFile(text, nil, 0o600))
	assert.True(t, IsExecutable(program))
	assert.False(t, IsExecutable(text))
	assert.False(t, IsExecutable(root))
	assert.False(t, IsExecutable(filepath.Join(root, "none")))
}

func TestMeterAddsUp(t *testing.T) {
	telemetry := componenttest.NewTelemetry()
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = telemetry.NewTelemetrySettings()
	m, err := NewMeter(set, "family")
	require.NoError(t, err)
	var cost Cost
	cost.Add(guard.Result{Duration: 2e9, CPU: 1e9})
	cost.Add(guard.Result{Duration: 1e9, CPU: 1e9})
	m.Add(t.Context(), "a", cost)
	m.Add(t.Context(), "b", Cost{Runs: 1})
	m.Add(t.Context(), "a", Cost{Runs: 1})
	of := func(tool string) attribute.Set {
		return attribute.NewSet(attribute.String("receiver", set.ID.String()), attribute.String("family", "family"), attribute.String("tool", tool))
	}
	times := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualWandbsysFamilyToolRuns(t, telemetry, []metricdata.DataPoint[int64]{
		{Value: 3, Attributes: of("a")}, {Value: 1, Attributes: of("b")},
	}, times)
	metadatatest.AssertEqualWandbsysFamilyToolTime(t, telemetry, []metricdata.DataPoint[float64]{
		{Value: 3, Attributes: of("a")}, {Value: 0, Attributes: of("b")},
	}, times)
	metadatatest.AssertEqualWandbsysFamilyToolCPUTime(t, telemetry, []metricdata.DataPoint[float64]{
		{Value: 2, Attributes: of("a")}, {Value: 0, Attributes: of("b")},
	}, times)
	require.NoError(t, telemetry.Shutdown(t.Context()))
}
