// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// began is from when the points of tests are.
var began = time.Unix(1_700_000_000, 0).UTC()

// directConfig has no queue and no retries, so that consumers see what becomes of a
// payload, and closes no record by the clock.
func directConfig(directory string) *Config {
	cfg := defaultConfig()
	cfg.Directory = directory
	cfg.Interval, cfg.IdleTimeout, cfg.Rotation.MaxAge = time.Hour, 0, 0
	cfg.Runs, cfg.IncludeUnknown = runsBoth, true
	cfg.Queue = configoptional.None[exporterhelper.QueueBatchConfig]()
	cfg.Retry.Enabled = false
	cfg.Timeout.Timeout = patience
	return cfg
}

// statusHost remembers the states that a component reports.
type statusHost struct {
	component.Host
	mu     sync.Mutex
	states []componentstatus.Status
}

func newHost() *statusHost { return &statusHost{Host: componenttest.NewNopHost()} }

func (h *statusHost) Report(event *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, event.Status())
}

func (h *statusHost) seen() []componentstatus.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]componentstatus.Status(nil), h.states...)
}

// settings has a log that can be read.
func settings() (exporter.Settings, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	set := exportertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	return set, logs
}

// startedExporter makes an exporter as the collector does. It is to be shut down.
func startedExporter(t testing.TB, set exporter.Settings, cfg *Config, host component.Host) exporter.Metrics {
	t.Helper()
	require.NoError(t, cfg.Validate())
	e, err := NewFactory().CreateMetrics(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), host))
	return e
}

// write sends payloads through an exporter from its start to its end.
func write(t testing.TB, cfg *Config, payloads ...pmetric.Metrics) {
	t.Helper()
	e := startedExporter(t, exportertest.NewNopSettings(metadata.Type), cfg, newHost())
	for _, md := range payloads {
		require.NoError(t, e.ConsumeMetrics(t.Context(), md))
	}
	require.NoError(t, e.Shutdown(context.Background()))
}

// logs reads all runs of a directory, in the order of their folders.
func logs(t testing.TB, directory string) []*wandbfiletest.File {
	t.Helper()
	files, err := wandbfiletest.ReadRuns(directory)
	require.NoError(t, err)
	for i, f := range files {
		require.False(t, f.Truncated, i)
	}
	return files
}

// onlyRun is the log of a directory with one run.
func onlyRun(t testing.TB, directory string) os.FileInfo {
	t.Helper()
	paths, err := wandbfiletest.Runs(directory)
	require.NoError(t, err)
	require.Len(t, paths, 1)
	info, err := os.Stat(paths[0])
	require.NoError(t, err)
	return info
}

// byRun are the files of a directory by the display names of their runs.
func byRun(t testing.TB, directory string) map[string]*wandbfiletest.File {
	t.Helper()
	all := map[string]*wandbfiletest.File{}
	for _, f := range logs(t, directory) {
		name := f.Records[1].Run.DisplayName
		require.NotContains(t, all, name)
		all[name] = f
	}
	return all
}

// last is the record that a file ends with.
func last(f *wandbfiletest.File) wandbfiletest.Record { return f.Records[len(f.Records)-1] }

func newDirectory(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "wandb")
}

// machine is a payload of a machine with one point of each metric.
func machine(seconds, value int, metrics ...string) pmetric.Metrics {
	md := pmetric.NewMetrics()
	add(md, "node1", seconds, value, metrics...)
	return md
}

// add adds a resource: `machine` or `machine/workload`.
func add(md pmetric.Metrics, instance string, seconds, value int, metrics ...string) {
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.instance.id", instance)
	ms := rm.ScopeMetrics().AppendEmpty().Metrics()
	for _, name := range metrics {
		m := ms.AppendEmpty()
		m.SetName(name)
		p := m.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetIntValue(int64(value))
		p.SetTimestamp(pcommon.NewTimestampFromTime(began.Add(time.Duration(seconds) * time.Second)))
	}
}
