// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/payloadtest"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
	receivermetadata "github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

const benchPoints = 1000

// benchPayload has 1,000 points of a host with 8 GPUs.
func benchPayload(b *testing.B, style naming.Style) pmetric.Metrics {
	b.Helper()
	md := payloadtest.Payload(payloadtest.Options{
		Resource: map[string]any{"host.name": "node1", "service.instance.id": "node1"},
		Start:    began, Now: began, Devices: 8,
		Vendors: []receivermetadata.AttributeGpuVendor{receivermetadata.AttributeGpuVendorNvidia},
	})
	left := benchPoints
	md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool {
		points := numberPoints(m)
		points.RemoveIf(func(pmetric.NumberDataPoint) bool {
			if left == 0 || strings.HasPrefix(m.Name(), "gpu.mig.") { // those have no tag
				return true
			}
			left--
			return false
		})
		return points.Len() == 0
	})
	// The rest is more GPUs' temperatures, which is the same work.
	for i := range left {
		m := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
		p := numberPoints(m).AppendEmpty()
		numberPoints(m).At(0).CopyTo(p)
		p.Attributes().PutInt("gpu_index", int64(100+i))
	}
	require.Equal(b, benchPoints, md.DataPointCount())
	return scraperstest.InNaming(style, "", md)
}

func numberPoints(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeSum {
		return m.Sum().DataPoints()
	}
	return m.Gauge().DataPoints()
}

// later moves all points of a payload on.
func later(md pmetric.Metrics, at time.Time) {
	ts := pcommon.NewTimestampFromTime(at)
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		for _, p := range numberPoints(m).All() {
			p.SetTimestamp(ts)
		}
	}
}

// BenchmarkConsume measures a payload of 1,000 points from the consumer to the file.
// x-file-exporter is how many times as long it takes as what the file exporter does
// with the same payload, size-x how many times as many bytes it writes.
func BenchmarkConsume(b *testing.B) {
	for _, style := range []naming.Style{naming.Template, naming.Tag} {
		for _, sync := range []runs.Sync{runs.SyncNever, runs.SyncRecord} {
			b.Run(string(style)+", fsync "+string(sync), func(b *testing.B) {
				md := benchPayload(b, style)
				cfg := directConfig(newDirectory(b))
				cfg.Fsync, cfg.IncludeUnknown = sync, false
				cfg.Rotation.MaxMegabytes, cfg.MaxDiskMegabytes = 1<<20, 0
				e := startedExporter(b, exportertest.NewNopSettings(metadata.Type), cfg, newHost())
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					b.StopTimer()
					later(md, began.Add(time.Duration(n)*15*time.Second))
					n++
					b.StartTimer()
					if err := e.ConsumeMetrics(context.Background(), md); err != nil {
						b.Fatal(err)
					}
				}
				took := b.Elapsed() / time.Duration(b.N)
				require.NoError(b, e.Shutdown(context.Background()))
				size := dirSize(b, cfg.Directory) / float64(b.N)
				other, otherSize := fileExporter1000(b, md)
				b.ReportMetric(float64(took)/float64(other), "x-file-exporter")
				b.ReportMetric(size/otherSize, "size-x")
				b.ReportMetric(size, "file-B/op")
			})
		}
	}
}

func dirSize(b *testing.B, directory string) (size float64) {
	b.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*", "*.wandb"))
	require.NoError(b, err)
	for _, path := range paths {
		info, err := os.Stat(path)
		require.NoError(b, err)
		size += float64(info.Size())
	}
	return size
}

// fileExporter1000 does what the collector's file exporter does with a payload, and
// returns its time and its bytes.
func fileExporter1000(b *testing.B, md pmetric.Metrics) (time.Duration, float64) {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "metrics.json"))
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	const rounds = 50
	var marshaler pmetric.JSONMarshaler
	size, start := 0, time.Now()
	for range rounds {
		line, err := marshaler.MarshalMetrics(md)
		require.NoError(b, err)
		n, err := f.Write(append(line, '\n'))
		require.NoError(b, err)
		size += n
	}
	return time.Since(start) / rounds, float64(size) / rounds
}
