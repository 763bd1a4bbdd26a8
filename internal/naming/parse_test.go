// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	type values = map[string]string
	for key, want := range map[string]struct {
		metric string
		attrs  values
		label  string
	}{
		"cpu":                                {"cpu", nil, ""},
		"cpu/l:rank-3":                       {"cpu", nil, "rank-3"},
		"cpu/l:a/l:b.c":                      {"cpu", nil, "a/l:b.c"},
		"gpu.3.memoryUsed/l:node-c/l:rank-3": {"gpu.memoryUsed", values{"gpu_index": "3"}, "node-c/l:rank-3"}, // the node of a figure of DCGM, and the label
		"cpu.7.cpu_percent":                  {"cpu.cpu_percent", values{"core": "7"}, ""},
		"disk.in":                            {"disk.in", nil, ""},
		"disk.in.in":                         {"disk.device.in", values{"device": "in"}, ""},
		"disk.nvme0n1p2.in":                  {"disk.device.in", values{"device": "nvme0n1p2"}, ""},
		"disk.cciss/c0d0.out/l:n":            {"disk.device.out", values{"device": "cciss/c0d0"}, "n"},
		"disk.C:.in":                         {"disk.device.in", values{"device": "C:"}, ""},
		"disk./.usagePercent":                {"disk.usagePercent", values{"path": "/"}, ""},
		"disk./mnt/data.v2.usageGB":          {"disk.usageGB", values{"path": "/mnt/data.v2"}, ""},
		"disk./a b/.in.usageGB":              {"disk.usageGB", values{"path": "/a b/.in"}, ""},
		"disk./mnt/l:x.usageGB":              {"disk.usageGB", values{"path": "/mnt/l:x"}, ""},
		"disk./mnt/l:x.usageGB/l:node.1/a":   {"disk.usageGB", values{"path": "/mnt/l:x"}, "node.1/a"},
		"disk./a.usageGB/l:b.usageGB":        {"disk.usageGB", values{"path": "/a"}, "b.usageGB"}, // a documented limit
		"disk./mnt/l:.usageGB":               {"disk.usageGB", values{"path": "/mnt/l:"}, ""},
		"gpu.0.gpu":                          {"gpu.gpu", values{"gpu_index": "0"}, ""},
		"gpu.process.0.gpu":                  {"gpu.process.gpu", values{"gpu_index": "0"}, ""},
		"gpu.10.unCorrectedMemoryErrors":     {"gpu.unCorrectedMemoryErrors", values{"gpu_index": "10"}, ""},
		"gpu.10.uncorrectedMemoryErrors":     {"gpu.unCorrectedMemoryErrors", values{"gpu_index": "10"}, ""},
		"gpu.1.xidErrors.79":                 {"gpu.xidErrors", values{"gpu_index": "1", "xid": "79"}, ""},
		"gpu.1.clockEventActive.hw_thermal":  {"gpu.clockEventActive", values{"gpu_index": "1", "reason": "hw_thermal"}, ""},
		"ipu.0.average board temp (C)":       {"ipu.averageBoardTemp", values{"device_id": "0"}, ""},
		"ipu.0.average board temp":           {"ipu.averageBoardTemp", values{"device_id": "0"}, ""},
		"ipu.0.ipu utilisation (session)":    {"ipu.sessionUtilisation", values{"device_id": "0"}, ""},
		"tpu.3.dutyCycle":                    {"tpu.dutyCycle", values{"tpu_index": "3"}, ""},
		"tpu.grpcTcpMinRtt.p999Us":           {"tpu.grpcTcpMinRtt", values{"stat": "p999"}, ""},
		"tpu.grpcTcpDeliveryRate.meanMbps":   {"tpu.grpcTcpDeliveryRate", values{"stat": "mean"}, ""},
		"tpu.hloExecTiming.core_0.p50Us":     {"tpu.hloExecTiming", values{"label": "core_0", "stat": "p50"}, ""},
		"tpu.hloQueueSize.tensorcore_0/l:n":  {"tpu.hloQueueSize", values{"label": "tensorcore_0"}, "n"},
		"trn.3.neuroncore_utilization":       {"trn.neuroncore_utilization", values{"core_index": "3"}, ""},
		"trn.host_memory_usage.tensors":      {"trn.host_total_memory_usage.tensors", nil, ""},
		"trn.host_memory_usage.new":          {"trn.host_total_memory_usage.new", nil, ""},
		"trn.host_total_memory_usage.new":    {"trn.host_total_memory_usage.new", nil, ""},
		"trn.1.neuroncore_memory_usage.new":  {"trn.neuroncore_memory_usage.new", values{"core_index": "1"}, ""},
		"openmetrics.dcgm.X.0/l:node-1":      {"openmetrics.dcgm.X", values{indexKey: "0"}, "node-1"},
		"openmetrics.ep.gpu.util.12":         {"openmetrics.ep.gpu.util", values{indexKey: "12"}, ""},
		"openmetrics.ep.histogram":           {"openmetrics.ep.histogram", nil, ""},
		"openmetrics.ep.7":                   {"openmetrics.ep.7", nil, ""},
	} {
		t.Run(key, func(t *testing.T) {
			metric, attrs, label, ok := Parse(key)
			require.True(t, ok)
			assert.Equal(t, want.metric, metric)
			assert.Equal(t, want.attrs, attrs)
			assert.Equal(t, want.label, label)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, key := range []string{
		"", ".", "/l:", "cpu/l:", "cpu.", "cpux", "gpu", "gpu.", "gpu.gpu", "gpu..gpu", "gpu.a.gpu", "gpu.-1.gpu", "gpu.01.gpu",
		"gpu.9999999999999999999.gpu", "gpu.0.gpu.", "gpu.0.nonsense", "gpu.process.gpu", "gpu.mig.memoryAllocated",
		"gpu.0.mig.memoryAllocated", "disk..in", "disk..usageGB", "disk./a.usageTB", "ipu.0.", "ipu.x.clock",
		"tpu.grpcTcpMinRtt.p98Us", "tpu.grpcTcpMinRtt.p50", "tpu.grpcTcpMinRtt.Us", "tpu.grpcTcpMinRtt.item_0.p50Us",
		"tpu.hloExecTiming..p50Us", "tpu.hloExecTiming.A.p50Us", "tpu.hloExecTiming.a.b.p50Us", "tpu.hloQueueSize.",
		"trn.host_memory_usage.", "trn.x.neuroncore_memory_usage.tensors", "trn.0.neuroncore_memory_usage.",
		"openmetrics.", "openmetrics.ep", "openmetrics.ep.", "openmetrics..m", "system.gpu.0.gpu",
	} {
		metric, attrs, label, ok := Parse(key)
		assert.False(t, ok, "%q was read as %s %v", key, metric, attrs)
		assert.Empty(t, metric)
		assert.Empty(t, attrs)
		assert.Empty(t, label)
	}
}

// render gives what a point of that metric and with those values is called.
func render(t testing.TB, style Style, label, metric string, values map[string]string) string {
	t.Helper()
	md, ms := newScope()
	a := attrs{}
	for k, v := range values {
		a[k] = v
		if kinds[k] == number || k == indexKey {
			n, err := strconv.ParseInt(v, 10, 64)
			require.NoError(t, err)
			a[k] = n
		}
	}
	put(ms, metric, 1, a)
	if _, numbered := a[indexKey]; strings.HasPrefix(metric, openMetricsPrefix) && !numbered {
		ms.At(0).SetEmptyHistogram().DataPoints().AppendEmpty() // single values have a number
	}
	New(style, label).Expand(md)
	require.Equal(t, 1, ms.Len())
	return ms.At(0).Name()
}

// pieces are put together to nasty paths, devices and labels.
var pieces = []string{
	"/", ".", " ", "/l:", ":", "in", ".in", ".out", "usageGB", ".usageGB", ".usagePercent", "disk.", "0", "gpu.0.gpu",
	"é", "\xff", "\x00", "{path}", "%", "()", "\n", "l:", "/mnt/data.v2", "C:", "cciss/c0d0", "dm-1",
}

func nasty(rnd *rand.Rand) string {
	var b strings.Builder
	for range 1 + rnd.IntN(6) {
		b.WriteString(pieces[rnd.IntN(len(pieces))])
	}
	return b.String()
}

func randomValue(rnd *rand.Rand, key string) string {
	switch kinds[key] {
	case number:
		return strconv.Itoa(rnd.IntN(1 << rnd.IntN(20)))
	case stat:
		return stats[rnd.IntN(len(stats))]
	case text:
		return nasty(rnd)
	default:
		const set = "abcxyz0189_"
		b := make([]byte, 1+rnd.IntN(12))
		for i := range b {
			b[i] = set[rnd.IntN(len(set))]
		}
		return string(b)
	}
}

func TestParseReadsWhatExpandWrites(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	expanders := func(label string) map[Style]*Expander {
		return map[Style]*Expander{Tag: New(Tag, label), SDK: New(SDK, label)}
	}
	for range 60 {
		label := ""
		if rnd.IntN(3) > 0 {
			label = nasty(rnd)
		}
		for style, e := range expanders(label) {
			for _, r := range table {
				if r.tag == "" {
					continue
				}
				checkRoundTrip(t, rnd, style, e, label, r)
			}
		}
	}
}

func checkRoundTrip(t *testing.T, rnd *rand.Rand, style Style, e *Expander, label string, r row) {
	t.Helper()
	var values map[string]string
	a := attrs{}
	for _, s := range compile(r.tag) {
		if s.key == "" {
			continue
		}
		v := randomValue(rnd, s.key)
		if kinds[s.key] == text && hasTwoReadings(v, r.tag) {
			return // the limit that Parse documents
		}
		if values == nil {
			values = map[string]string{}
		}
		values[s.key], a[s.key] = v, v
	}
	md, ms := newScope()
	put(ms, r.metric, 1, a)
	e.Expand(md)
	key := ms.At(0).Name()
	metric, got, gotLabel, ok := Parse(key)
	require.True(t, ok, "%q", key)
	require.Equal(t, r.metric, metric, "%q", key)
	require.Equal(t, values, got, "%q", key)
	if style == Tag {
		label = ""
	}
	require.Equal(t, label, gotLabel, "%q", key)
}

// hasTwoReadings tells whether the value, up to a `/l:` in it, is already a
// tag: it contains the end of one of the tags that begin alike.
func hasTwoReadings(value, tag string) bool {
	for _, other := range table {
		if !strings.HasPrefix(other.tag, "disk.{") {
			continue
		}
		end := other.tag[strings.IndexByte(other.tag, '}')+1:] + LabelMark
		if strings.Contains(value, end) {
			return true
		}
	}
	// `disk.{path}` with a path such as `in/l:x` begins with the tag disk.in.
	return slices.ContainsFunc([]string{"in/l:", "out/l:"}, func(s string) bool {
		return strings.HasPrefix(tag, "disk.{") && strings.HasPrefix(value, s)
	})
}

func FuzzParse(f *testing.F) {
	for _, want := range published {
		f.Add(want)
		f.Add(want + "/l:node-1.a/b")
	}
	for _, seed := range []string{
		"openmetrics.dcgm.X.0/l:n", "openmetrics.ep.7", "disk./mnt/l:x.usageGB/l:n", "disk./a.usageGB/l:b.usageGB",
		"ipu.0.average board temp", "gpu.0.uncorrectedMemoryErrors/l:", "trn.host_memory_usage.x", "trn.0.neuroncore_memory_usage.x.y",
		"gpu.mig.memoryAllocated", "cpu/l:", "disk..in", "gpu.000.gpu",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		metric, values, label, ok := Parse(key)
		if !ok {
			return
		}
		tag := strings.TrimSuffix(key, LabelMark+label)
		if label == "" {
			tag = key
		}
		spellings := []string{render(t, Tag, "", metric, values), render(t, SDK, "", metric, values)}
		assert.Contains(t, spellings, tag)
		if tag == spellings[1] {
			assert.Equal(t, key, render(t, SDK, label, metric, values))
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, key := range []string{"cpu", "gpu.7.powerPercent/l:node-1", "disk./mnt/data.v2.usageGB", "openmetrics.dcgm.X.3"} {
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, _, ok := Parse(key); !ok {
					b.Fatal(key)
				}
			}
		})
	}
}
