// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// points is how many a benchmark writes at a time.
const points = 1000

// benchRecord has gauges and counters, as a machine with many GPUs has them.
func benchRecord() *Record {
	r := at(0)
	for i := range points {
		it := Item{Key: fmt.Sprintf("gpu.%d.memoryAllocatedBytes", i), Value: Number{isFloat: true, f: float64(i) * 1.37}}
		if i%4 == 0 {
			it = Item{Key: fmt.Sprintf("disk.nvme%dn1.in", i), Value: Int(int64(i) << 30), Kind: Counter}
		}
		r.Items = append(r.Items, it)
	}
	return r
}

// benchMetrics has the same points as OTLP has them.
func benchMetrics(r *Record) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("host.name", "node-1")
	metrics := rm.ScopeMetrics().AppendEmpty().Metrics()
	memory, disk := metrics.AppendEmpty(), metrics.AppendEmpty()
	memory.SetName("wandbsys.gpu.memory.allocated")
	disk.SetName("wandbsys.disk.read")
	gauge, sum := memory.SetEmptyGauge(), disk.SetEmptySum()
	sum.SetIsMonotonic(true)
	for i, it := range r.Items {
		var p pmetric.NumberDataPoint
		if it.Kind == Counter {
			p = sum.DataPoints().AppendEmpty()
			p.SetIntValue(it.Value.i)
			p.Attributes().PutStr("device", fmt.Sprintf("nvme%dn1", i))
		} else {
			p = gauge.DataPoints().AppendEmpty()
			p.SetDoubleValue(it.Value.f)
			p.Attributes().PutStr("gpu_index", strconv.Itoa(i))
		}
		p.SetTimestamp(pcommon.NewTimestampFromTime(r.Time))
	}
	return md
}

// BenchmarkWrite compares a record of 1,000 points with what the file exporter does
// with them: OTLP as JSON, a line for each payload.
func BenchmarkWrite(b *testing.B) {
	for _, policy := range []Sync{SyncNever, SyncRecord} {
		b.Run("fsync="+string(policy), func(b *testing.B) {
			p := newPlace(b, func(o *Options) { o.Sync, o.MaxSize = policy, 100<<20 })
			subject, record := host("a"), benchRecord()
			write := func() {
				next := *record // what is written again is written once
				require.NoError(b, p.Write(subject, &next))
			}
			write()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				write()
			}
			b.StopTimer()
			ours := b.Elapsed()
			b.ReportMetric(float64(p.work.Bytes)/float64(b.N+1), "bytes/1000points")

			md := benchMetrics(record)
			file, err := os.Create(filepath.Join(b.TempDir(), "metrics.json"))
			require.NoError(b, err)
			defer func() { require.NoError(b, file.Close()) }()
			marshal := pmetric.JSONMarshaler{}
			begun := time.Now()
			for range b.N {
				line, err := marshal.MarshalMetrics(md)
				require.NoError(b, err)
				_, err = file.Write(append(line, '\n'))
				require.NoError(b, err)
				if policy == SyncRecord {
					require.NoError(b, file.Sync())
				}
			}
			b.ReportMetric(float64(ours)/float64(time.Since(begun)), "of-OTLP-JSON")
		})
	}
}
