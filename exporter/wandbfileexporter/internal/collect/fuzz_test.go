// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
)

// FuzzAdd requires of any payload that keys are valid UTF-8, not too long and unique
// in their record, and that a record's times are in their order.
func FuzzAdd(f *testing.F) {
	f.Add("gpu.temp", "gpu_index", "0", "gpu_vendor", "amd", "host.name", "node1", "L", uint64(5), 1.5, byte(0))
	f.Add("disk.usageGB", "path", "/l:x", "a", "", "service.instance.id", "n/../x", "", uint64(1<<63), -1.0, byte(1))
	f.Add("network.recv", "", "", "", "", "k8s.pod.uid", "\xff", "\xff", uint64(0), 0.0, byte(2))
	f.Add("gpu.0.temp/l:\xff", "gpu_vendor", "\xff", "node", "n", "server.address", "x", "a/l:b", uint64(1<<62), 1e300, byte(3))
	f.Fuzz(func(t *testing.T, name, key1, value1, key2, value2, rkey, rvalue, label string, ts uint64, value float64, how byte) {
		r := newRig(t, unknownToo, func(o *Options) { o.Interval = time.Duration(1 + how) })
		md := pmetric.NewMetrics()
		for i := range 3 {
			rm := md.ResourceMetrics().AppendEmpty()
			rm.Resource().Attributes().PutStr(rkey, rvalue)
			rm.Resource().Attributes().PutStr(attrLabel, label)
			ms := rm.ScopeMetrics().AppendEmpty()
			if how&4 != 0 {
				ms.Scope().SetName("other")
			}
			for _, metric := range []string{name, "gpu.temp", name + "\xfe", "network.recv"} {
				addFuzzed(ms.Metrics().AppendEmpty(), metric, how, func(p pmetric.NumberDataPoint) {
					p.SetTimestamp(pcommon.Timestamp(ts + uint64(i)))
					p.SetStartTimestamp(pcommon.Timestamp(ts))
					p.SetDoubleValue(value)
					p.Attributes().PutStr(key1, value1)
					p.Attributes().PutStr(key2, value2)
					if i == 1 {
						p.SetIntValue(int64(ts))
						p.Attributes().PutInt(key1, int64(ts))
						p.Attributes().PutStr(attrVendor, value1)
					}
				})
			}
		}
		r.add(md, md)
		r.CloseDue()
		r.CloseAll()
		checkRecords(t, r)
	})
}

func addFuzzed(m pmetric.Metric, name string, how byte, fill func(pmetric.NumberDataPoint)) {
	m.SetName(name)
	if how&3 == 0 {
		fill(m.SetEmptyGauge().DataPoints().AppendEmpty())
		return
	}
	m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporality(how & 3))
	m.Sum().SetIsMonotonic(true)
	fill(m.Sum().DataPoints().AppendEmpty())
}

func checkRecords(t *testing.T, r *rig) {
	t.Helper()
	for _, s := range r.Sources() {
		s.Subject()
		for ; s.Ready() != nil; s.Written() {
			record := s.Ready()
			require.False(t, record.Time.Before(record.Begin))
			require.NotEmpty(t, record.Items)
			seen := map[string]bool{}
			for _, it := range record.Items {
				require.NotEmpty(t, it.Key)
				require.True(t, utf8.ValidString(it.Key), "%q", it.Key)
				require.LessOrEqual(t, len(it.Key), maxKey+maxVendor+len(naming.LabelMark))
				require.False(t, seen[it.Key], "%q is there twice", it.Key)
				seen[it.Key] = true
			}
		}
	}
}
