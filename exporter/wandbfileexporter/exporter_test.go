// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadatatest"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/payloadtest"
	receivermetadata "github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

func TestNothingIsMadeWithoutData(t *testing.T) {
	cfg := defaultConfig()
	cfg.Directory = newDirectory(t)
	e, err := NewFactory().CreateMetrics(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Shutdown(t.Context()), "before its start")

	cfg.Interval = minInterval // ticks often
	write(t, cfg)
	other := pmetric.NewMetrics()
	add(other, "node1/job", 0, 1, "cpu") // which `runs` leaves out
	write(t, cfg, machine(0, 1, "what"), other)
	assert.NoFileExists(t, cfg.Directory)
}

func TestTheEndWritesWhatWaits(t *testing.T) {
	cfg := defaultConfig() // with queue and retries
	cfg.Directory = newDirectory(t)
	md := machine(0, 1, "cpu", "disk")
	md.MarkReadOnly()
	write(t, cfg, md, machine(10, 2, "cpu"))

	files := logs(t, cfg.Directory)
	require.Len(t, files, 1)
	assert.Equal(t, []string{"1", "2"}, wandbfiletest.Texts("cpu", files...))
	assert.Equal(t, []string{"1"}, wandbfiletest.Texts("disk", files...))
	assert.Equal(t, "node1", files[0].Records[1].Run.DisplayName)
	assert.Equal(t, began, files[0].Records[1].Run.StartTime)
	assert.Equal(t, &wandbfiletest.Exit{Runtime: 10}, last(files[0]).Exit)
}

func TestTheNextInstanceWritesRunsOfItsOwn(t *testing.T) {
	cfg := directConfig(newDirectory(t))
	write(t, cfg, machine(0, 1, "cpu"))
	write(t, cfg, machine(15, 2, "cpu"))
	files := logs(t, cfg.Directory)
	require.Len(t, files, 2)
	assert.NotEqual(t, files[0].Records[1].Run.ID, files[1].Records[1].Run.ID)
	for _, f := range files {
		assert.Len(t, wandbfiletest.Texts("cpu", f), 1)
		assert.NotNil(t, last(f).Exit)
	}
	_, err := os.Stat(filepath.Join(cfg.Directory, "latest-run"))
	assert.NoError(t, err)
}

func TestAPayloadOfManyScrapesIsTakenWhole(t *testing.T) {
	cfg := directConfig(newDirectory(t))
	md, want := pmetric.NewMetrics(), []string(nil)
	for i := range 5 {
		add(md, "node1", 15*i, i, "cpu", "disk")
		add(md, "node1/job", 15*i, i, "cpu")
		want = append(want, strconv.Itoa(i))
	}
	write(t, cfg, md)
	files := byRun(t, cfg.Directory)
	assert.Equal(t, want, wandbfiletest.Texts("cpu", files["node1"]))
	assert.Equal(t, want, wandbfiletest.Texts("disk", files["node1"]))
	assert.Equal(t, want, wandbfiletest.Texts("cpu", files["node1/job"]))
}

func TestRecordsAreWrittenByTheClock(t *testing.T) {
	cfg := directConfig(newDirectory(t))
	cfg.Interval, cfg.IdleTimeout = minInterval, 2*minInterval
	e := startedExporter(t, exportertest.NewNopSettings(metadata.Type), cfg, newHost())
	require.NoError(t, e.ConsumeMetrics(t.Context(), machine(0, 1, "cpu")))
	require.Eventually(t, func() bool {
		paths, _ := wandbfiletest.Runs(cfg.Directory)
		if len(paths) == 0 {
			return false
		}
		f, err := wandbfiletest.ReadFile(paths[0])
		return err == nil && len(f.Records) > 0 && last(f).Exit != nil
	}, patience, 10*time.Millisecond, "the idle run ends by itself")
	assert.Equal(t, []string{"1"}, wandbfiletest.Texts("cpu", logs(t, cfg.Directory)...))

	require.NoError(t, e.ConsumeMetrics(t.Context(), machine(100, 2, "cpu")))
	require.NoError(t, e.Shutdown(t.Context()))
	assert.Equal(t, []string{"1", "2"}, wandbfiletest.Texts("cpu", logs(t, cfg.Directory)...))
	assert.Len(t, logs(t, cfg.Directory), 2)
}

func TestAllNamingsGiveTheSameFiles(t *testing.T) {
	files := map[naming.Style]*wandbfiletest.File{}
	for _, style := range []naming.Style{naming.Template, naming.Tag, naming.SDK} {
		cfg := directConfig(newDirectory(t))
		cfg.IncludeUnknown = false
		var payloads []pmetric.Metrics
		for n := range 4 {
			payloads = append(payloads, scraperstest.InNaming(style, "L", payloadtest.Payload(payloadtest.Options{
				Resource: map[string]any{"host.name": "node1", "service.instance.id": "node1", "wandb.label": "L", "wandb.gpu_count": 4},
				Start:    began.Add(-time.Hour), Now: began.Add(time.Duration(n) * 15 * time.Second), Devices: 2, Step: n,
				Vendors: []receivermetadata.AttributeGpuVendor{receivermetadata.AttributeGpuVendorNvidia, receivermetadata.AttributeGpuVendorAmd},
			})))
		}
		write(t, cfg, payloads...)
		all := logs(t, cfg.Directory)
		require.Len(t, all, 1)
		files[style] = alike(all[0])
	}
	want := files[naming.Template]
	require.Len(t, want.Records, 3+4+1)
	assert.Len(t, want.Records[2].Environment.GPUNvidia, 2)
	assert.Len(t, want.Records[2].Environment.GPUAMD, 2)
	assert.Equal(t, want, files[naming.Tag])
	assert.Equal(t, want, files[naming.SDK])
}

// alike leaves out what two runs never share, and the order of items.
func alike(f *wandbfiletest.File) *wandbfiletest.File {
	for i := range f.Records {
		r := &f.Records[i]
		r.Offset = 0
		if r.Run != nil {
			r.Run.ID = ""
		}
		if r.Stats != nil {
			slices.SortFunc(r.Stats.Items, func(a, b wandbfiletest.Item) int { return cmp.Compare(a.Key, b.Key) })
		}
	}
	return f
}

func TestManyMaySendAtOnce(t *testing.T) {
	const senders, payloads = 8, 40
	cfg := directConfig(newDirectory(t))
	cfg.Interval = minInterval // ticks often
	e := startedExporter(t, exportertest.NewNopSettings(metadata.Type), cfg, newHost())
	var all sync.WaitGroup
	for sender := range senders {
		all.Go(func() {
			for i := range payloads {
				md := pmetric.NewMetrics()
				add(md, fmt.Sprintf("node1/job%d", sender), i, i, "cpu")
				add(md, "node1", i, i, fmt.Sprintf("own%d", sender))
				assert.NoError(t, e.ConsumeMetrics(context.Background(), md))
			}
		})
	}
	all.Wait()
	require.NoError(t, e.Shutdown(t.Context()))

	var want []string
	for i := range payloads {
		want = append(want, strconv.Itoa(i))
	}
	files := byRun(t, cfg.Directory)
	require.Len(t, files, senders+1)
	for sender := range senders {
		assert.Equal(t, want, wandbfiletest.Texts("cpu", files[fmt.Sprintf("node1/job%d", sender)]))
		assert.Equal(t, want, wandbfiletest.Texts(fmt.Sprintf("own%d", sender), files["node1"]))
	}
}

func TestWhatWasDoneIsCounted(t *testing.T) {
	tt := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tt.Shutdown(context.Background())) }()
	cfg := directConfig(newDirectory(t))
	cfg.IncludeUnknown, cfg.MaxRuns = false, 1
	e := startedExporter(t, metadatatest.NewSettings(tt), cfg, newHost())

	md := machine(0, 1, "cpu", "what", "disk")
	ms := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	ms.At(2).Gauge().DataPoints().At(0).SetDoubleValue(math.NaN())
	h := ms.AppendEmpty().SetEmptyHistogram().DataPoints()
	h.AppendEmpty()
	h.AppendEmpty()
	add(md, "node1/job", 0, 1, "cpu", "disk")
	add(md, "node1", 0, 1, "strange")
	md.ResourceMetrics().At(2).ScopeMetrics().At(0).Scope().SetName("other")
	for range 2 { // the second time cpu is a duplicate
		require.NoError(t, e.ConsumeMetrics(t.Context(), md))
	}
	require.NoError(t, e.ConsumeMetrics(t.Context(), machine(1, 1, "cpu")))

	because := func(reason string, n int64) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{Value: n, Attributes: attribute.NewSet(attribute.String("reason", reason))}
	}
	count := func(n int64) []metricdata.DataPoint[int64] { return []metricdata.DataPoint[int64]{{Value: n}} }
	metadatatest.AssertEqualWandbFileDroppedPoints(t, tt, []metricdata.DataPoint[int64]{
		because("no_tag", 2), because("not_finite", 2), because("histogram", 4), because("limit", 4), because("unknown", 2), because("duplicate", 1),
	}, metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualWandbFileOpenRuns(t, tt, count(1), metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualWandbFileWrittenRecords(t, tt, count(1), metricdatatest.IgnoreTimestamp())

	require.NoError(t, e.Shutdown(t.Context()))
	metadatatest.AssertEqualWandbFileOpenRuns(t, tt, count(0), metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualWandbFileWrittenRecords(t, tt, count(2), metricdatatest.IgnoreTimestamp())
	metadatatest.AssertEqualWandbFileWrittenSize(t, tt, count(onlyRun(t, cfg.Directory).Size()), metricdatatest.IgnoreTimestamp())
}

func TestRemovedRunsAreCounted(t *testing.T) {
	tt := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tt.Shutdown(context.Background())) }()
	cfg := directConfig(newDirectory(t))
	write(t, cfg, machine(0, 1, "cpu"))

	cfg.Interval = minInterval // ticks often
	e, err := newExporter(metadatatest.NewSettings(tt), cfg)
	require.NoError(t, err)
	e.store.MaxTotal = onlyRun(t, cfg.Directory).Size() // room for one
	require.NoError(t, e.start(t.Context(), newHost()))
	require.NoError(t, e.consume(t.Context(), machine(1, 2, "cpu")))
	require.Eventually(t, func() bool {
		got, err := tt.GetMetric("otelcol_wandb_file_removed_runs")
		return err == nil && got.Data.(metricdata.Sum[int64]).DataPoints[0].Value > 0
	}, patience, 10*time.Millisecond)
	require.NoError(t, e.shutdown(t.Context()))
	assert.Equal(t, []string{"2"}, wandbfiletest.Texts("cpu", logs(t, cfg.Directory)...))
}

func TestTheLimitOfRunsIsSaidOnce(t *testing.T) {
	set, seen := settings()
	cfg := directConfig(newDirectory(t))
	cfg.MaxRuns = 1
	e := startedExporter(t, set, cfg, newHost())
	md := machine(0, 1, "cpu")
	add(md, "node1/a", 0, 1, "cpu", "disk")
	add(md, "node1/b", 0, 1, "cpu")
	require.NoError(t, e.ConsumeMetrics(t.Context(), md))
	require.NoError(t, e.Shutdown(t.Context()))
	assert.Equal(t, 1, seen.FilterMessageSnippet("raise max_runs").Len())
}
