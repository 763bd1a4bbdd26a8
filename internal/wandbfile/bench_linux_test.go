// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

// The points of a scrape: metrics of GPUs.
const (
	benchMetrics = 25
	benchGPUs    = 40
	benchPoints  = benchMetrics * benchGPUs
)

func benchValue(point, scrape int) float64 {
	return float64(point*7919%10_000)/100 + float64(scrape%10)
}

// BenchmarkAgainstOTLPJSON compares a stats record, made anew from numbers, with what the
// file exporter writes of the same points: OTLP as JSON. x_cpu and x_bytes are the share of its
// cost, the metrics named append those of a record that is there. The points have attributes
// in "templates", and each its own name in "names".
func BenchmarkAgainstOTLPJSON(b *testing.B) {
	b.Run("templates", func(b *testing.B) { compare(b, templates()) })
	b.Run("names", func(b *testing.B) { compare(b, names()) })
}

func compare(b *testing.B, md pmetric.Metrics) {
	b.Helper()
	const times = 500
	require.Equal(b, benchPoints, md.DataPointCount())
	w, r, numbers, scrape := wandbfile.NewWriter(io.Discard), benchStats(), &numbers{}, 0
	record := func() {
		scrape++
		numbers.setAll(r.GetStats().GetItem(), scrape)
		appendStats(b, w, r)
	}
	record()
	size := w.Size()
	var marshaler pmetric.JSONMarshaler
	bytes := 0
	theirs := scraperstest.CostOf(b, times, func() {
		line, err := marshaler.MarshalMetrics(md)
		if bytes = len(line) + 1; err != nil {
			b.Fatal(err)
		}
		_, _ = io.Discard.Write(line)
	})
	ours := scraperstest.CostOf(b, times, record)
	framing := scraperstest.CostOf(b, times, func() { appendStats(b, w, r) })
	b.ReportMetric(float64(ours.CPU.Microseconds()), "us_cpu")
	b.ReportMetric(float64(framing.CPU.Microseconds()), "append_us_cpu")
	b.ReportMetric(float64(theirs.CPU.Microseconds()), "json_us_cpu")
	b.ReportMetric(float64(ours.CPU)/float64(theirs.CPU), "x_cpu")
	b.ReportMetric(ours.Allocs, "allocs")
	b.ReportMetric(framing.Allocs, "append_allocs")
	b.ReportMetric(theirs.Allocs, "json_allocs")
	b.ReportMetric(float64(size)/float64(bytes), "x_bytes")
	b.ReportMetric(0, "ns/op")
}

// numbers makes all values of a record as one text, as the exporter does.
type numbers struct {
	text []byte
	ends []int
}

func (n *numbers) setAll(items []*wandbpb.Item, scrape int) {
	n.text, n.ends = n.text[:0], n.ends[:0]
	for i := range items {
		n.text = strconv.AppendFloat(n.text, benchValue(i, scrape), 'g', -1, 64)
		n.ends = append(n.ends, len(n.text))
	}
	text, from := string(n.text), 0
	for i, end := range n.ends {
		items[i].ValueJson, from = text[from:end], end
	}
}

func appendStats(b *testing.B, w *wandbfile.Writer, r *wandbpb.Record) {
	b.Helper()
	if err := w.Append(r); err != nil {
		b.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}

func benchStats() *wandbpb.Record {
	s := &wandbpb.StatsRecord{Timestamp: &timestamppb.Timestamp{Seconds: 1_700_000_001}}
	for i := range benchPoints {
		s.Item = append(s.Item, &wandbpb.Item{Key: fmt.Sprintf("gpu.%d.metric%d", i%benchGPUs, i/benchGPUs)})
	}
	return &wandbpb.Record{RecordType: &wandbpb.Record_Stats{Stats: s}}
}

func templates() pmetric.Metrics {
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for metric := range benchMetrics {
		m := ms.AppendEmpty()
		m.SetName(fmt.Sprintf("gpu.metric%d", metric))
		points := m.SetEmptyGauge().DataPoints()
		for gpu := range benchGPUs {
			p := benchPoint(points, metric*benchGPUs+gpu)
			p.Attributes().PutInt("gpu_index", int64(gpu))
			p.Attributes().PutStr("gpu_vendor", "nvidia")
		}
	}
	return md
}

func names() pmetric.Metrics {
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for i, item := range benchStats().GetStats().GetItem() {
		m := ms.AppendEmpty()
		m.SetName(item.GetKey())
		benchPoint(m.SetEmptyGauge().DataPoints(), i)
	}
	return md
}

func benchPoint(points pmetric.NumberDataPointSlice, i int) pmetric.NumberDataPoint {
	p := points.AppendEmpty()
	p.SetTimestamp(1_700_000_001_000_000_000)
	p.SetDoubleValue(benchValue(i, 0))
	return p
}
