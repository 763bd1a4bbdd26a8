// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

type attrs map[string]any

// put appends a point to the gauge of that name, which it makes if need be.
func put(ms pmetric.MetricSlice, name string, value float64, a attrs) pmetric.NumberDataPoint {
	m, ok := find(ms, name)
	if !ok {
		m = ms.AppendEmpty()
		m.SetName(name)
		m.SetEmptyGauge()
	}
	p := m.Gauge().DataPoints().AppendEmpty()
	p.SetDoubleValue(value)
	if err := p.Attributes().FromRaw(a); err != nil {
		panic(err)
	}
	return p
}

func find(ms pmetric.MetricSlice, name string) (pmetric.Metric, bool) {
	for _, m := range ms.All() {
		if m.Name() == name {
			return m, true
		}
	}
	return pmetric.Metric{}, false
}

func get(t *testing.T, ms pmetric.MetricSlice, name string) pmetric.Metric {
	t.Helper()
	m, ok := find(ms, name)
	require.True(t, ok, "no metric %q among %v", name, names(ms))
	return m
}

func names(ms pmetric.MetricSlice) []string {
	all := []string{}
	for _, m := range ms.All() {
		all = append(all, m.Name())
	}
	return all
}

func newScope() (pmetric.Metrics, pmetric.MetricSlice) {
	md := pmetric.NewMetrics()
	return md, md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
}

// sample has values for the placeholders of the published list.
var sample = attrs{
	"gpu_index": int64(3), "path": "/mnt/data.v2", "device": "cciss/c0d0", "device_id": int64(1), "tpu_index": int64(2),
	"core_index": int64(31), "label": "8mb_plus_all_reduce", "stat": "p999",
}

// published is the published list: every tag, as the page prints it.
var published = map[string]string{
	"cpu":                           "cpu",
	"proc.cpu.threads":              "proc.cpu.threads",
	"disk.{path}.usagePercent":      "disk./mnt/data.v2.usagePercent",
	"disk.{path}.usageGB":           "disk./mnt/data.v2.usageGB",
	"disk.in":                       "disk.in",
	"disk.out":                      "disk.out",
	"disk.{device}.in":              "disk.cciss/c0d0.in",
	"disk.{device}.out":             "disk.cciss/c0d0.out",
	"proc.memory.rssMB":             "proc.memory.rssMB",
	"proc.memory.percent":           "proc.memory.percent",
	"memory_percent":                "memory_percent",
	"proc.memory.availableMB":       "proc.memory.availableMB",
	"network.sent":                  "network.sent",
	"network.recv":                  "network.recv",
	"gpu.{gpu_index}.memory":        "gpu.3.memory",
	"gpu.{gpu_index}.gpu":           "gpu.3.gpu",
	"gpu.{gpu_index}.temp":          "gpu.3.temp",
	"gpu.{gpu_index}.powerWatts":    "gpu.3.powerWatts",
	"gpu.{gpu_index}.powerPercent":  "gpu.3.powerPercent",
	"gpu.{gpu_index}.smClock":       "gpu.3.smClock",
	"gpu.{gpu_index}.memoryClock":   "gpu.3.memoryClock",
	"gpu.{gpu_index}.graphicsClock": "gpu.3.graphicsClock",

	"gpu.{gpu_index}.memoryAllocated":         "gpu.3.memoryAllocated",
	"gpu.{gpu_index}.memoryAllocatedBytes":    "gpu.3.memoryAllocatedBytes",
	"gpu.{gpu_index}.correctedMemoryErrors":   "gpu.3.correctedMemoryErrors",
	"gpu.{gpu_index}.unCorrectedMemoryErrors": "gpu.3.unCorrectedMemoryErrors",
	"gpu.{gpu_index}.encoderUtilization":      "gpu.3.encoderUtilization",

	"gpu.process.{gpu_index}.memory":                  "gpu.process.3.memory",
	"gpu.process.{gpu_index}.memoryAllocated":         "gpu.process.3.memoryAllocated",
	"gpu.process.{gpu_index}.memoryAllocatedBytes":    "gpu.process.3.memoryAllocatedBytes",
	"gpu.process.{gpu_index}.gpu":                     "gpu.process.3.gpu",
	"gpu.process.{gpu_index}.temp":                    "gpu.process.3.temp",
	"gpu.process.{gpu_index}.powerWatts":              "gpu.process.3.powerWatts",
	"gpu.process.{gpu_index}.powerPercent":            "gpu.process.3.powerPercent",
	"gpu.process.{gpu_index}.smClock":                 "gpu.process.3.smClock",
	"gpu.process.{gpu_index}.memoryClock":             "gpu.process.3.memoryClock",
	"gpu.process.{gpu_index}.graphicsClock":           "gpu.process.3.graphicsClock",
	"gpu.process.{gpu_index}.correctedMemoryErrors":   "gpu.process.3.correctedMemoryErrors",
	"gpu.process.{gpu_index}.unCorrectedMemoryErrors": "gpu.process.3.unCorrectedMemoryErrors",
	"gpu.process.{gpu_index}.encoderUtilization":      "gpu.process.3.encoderUtilization",

	"ipu.{device_id}.average board temp (C)":        "ipu.1.average board temp (C)",
	"ipu.{device_id}.average die temp (C)":          "ipu.1.average die temp (C)",
	"ipu.{device_id}.clock (MHz)":                   "ipu.1.clock (MHz)",
	"ipu.{device_id}.ipu power (W)":                 "ipu.1.ipu power (W)",
	"ipu.{device_id}.ipu utilisation (%)":           "ipu.1.ipu utilisation (%)",
	"ipu.{device_id}.ipu utilisation (session) (%)": "ipu.1.ipu utilisation (session) (%)",
	"ipu.{device_id}.speed (GT/s)":                  "ipu.1.speed (GT/s)",

	"tpu.{tpu_index}.tensorcoreUtilization":             "tpu.2.tensorcoreUtilization",
	"tpu.{tpu_index}.dutyCycle":                         "tpu.2.dutyCycle",
	"tpu.{tpu_index}.hbmCapacityTotal":                  "tpu.2.hbmCapacityTotal",
	"tpu.{tpu_index}.hbmCapacityUsage":                  "tpu.2.hbmCapacityUsage",
	"tpu.{tpu_index}.iciLinkHealth":                     "tpu.2.iciLinkHealth",
	"tpu.bufferTransferLatency.{label}.{stat}Us":        "tpu.bufferTransferLatency.8mb_plus_all_reduce.p999Us",
	"tpu.inboundBufferTransferLatency.{label}.{stat}Us": "tpu.inboundBufferTransferLatency.8mb_plus_all_reduce.p999Us",
	"tpu.hostToDeviceTransferLatency.{label}.{stat}Us":  "tpu.hostToDeviceTransferLatency.8mb_plus_all_reduce.p999Us",
	"tpu.deviceToHostTransferLatency.{label}.{stat}Us":  "tpu.deviceToHostTransferLatency.8mb_plus_all_reduce.p999Us",
	"tpu.collectiveE2ELatency.{label}.{stat}Us":         "tpu.collectiveE2ELatency.8mb_plus_all_reduce.p999Us",
	"tpu.hostComputeLatency.{label}.{stat}Us":           "tpu.hostComputeLatency.8mb_plus_all_reduce.p999Us",
	"tpu.grpcTcpMinRtt.{stat}Us":                        "tpu.grpcTcpMinRtt.p999Us",
	"tpu.grpcTcpDeliveryRate.{stat}Mbps":                "tpu.grpcTcpDeliveryRate.p999Mbps",
	"tpu.hloExecTiming.{label}.{stat}Us":                "tpu.hloExecTiming.8mb_plus_all_reduce.p999Us",
	"tpu.hloQueueSize.{label}":                          "tpu.hloQueueSize.8mb_plus_all_reduce",

	"trn.{core_index}.neuroncore_utilization":                          "trn.31.neuroncore_utilization",
	"trn.host_total_memory_usage":                                      "trn.host_total_memory_usage",
	"trn.neuron_device_total_memory_usage":                             "trn.neuron_device_total_memory_usage",
	"trn.host_total_memory_usage.application_memory":                   "trn.host_total_memory_usage.application_memory",
	"trn.host_total_memory_usage.constants":                            "trn.host_total_memory_usage.constants",
	"trn.host_total_memory_usage.dma_buffers":                          "trn.host_total_memory_usage.dma_buffers",
	"trn.host_total_memory_usage.tensors":                              "trn.host_total_memory_usage.tensors",
	"trn.{core_index}.neuroncore_memory_usage.constants":               "trn.31.neuroncore_memory_usage.constants",
	"trn.{core_index}.neuroncore_memory_usage.model_code":              "trn.31.neuroncore_memory_usage.model_code",
	"trn.{core_index}.neuroncore_memory_usage.model_shared_scratchpad": "trn.31.neuroncore_memory_usage.model_shared_scratchpad",
	"trn.{core_index}.neuroncore_memory_usage.runtime_memory":          "trn.31.neuroncore_memory_usage.runtime_memory",
	"trn.{core_index}.neuroncore_memory_usage.tensors":                 "trn.31.neuroncore_memory_usage.tensors",
}

func TestEveryPublishedTagIsRendered(t *testing.T) {
	byTag := map[string]row{}
	for _, r := range table {
		byTag[r.tag] = r
	}
	for template, want := range published {
		t.Run(template, func(t *testing.T) {
			r, ok := byTag[template]
			require.True(t, ok, "not in the table")
			md, ms := newScope()
			put(ms, r.metric, 1, sample)
			New(Tag, "ignored").Expand(md)
			assert.Equal(t, []string{want}, names(ms))
		})
	}
}

func TestSDKSpellings(t *testing.T) {
	for metric, want := range map[string]string{
		"gpu.unCorrectedMemoryErrors":             "gpu.3.uncorrectedMemoryErrors",
		"gpu.process.unCorrectedMemoryErrors":     "gpu.process.3.unCorrectedMemoryErrors", // not written by the SDK
		"gpu.temp":                                "gpu.3.temp",
		"trn.host_total_memory_usage":             "trn.host_total_memory_usage",
		"trn.host_total_memory_usage.tensors":     "trn.host_memory_usage.tensors",
		"trn.host_total_memory_usage.dma_rings":   "trn.host_memory_usage.dma_rings",
		"trn.host_total_memory_usage.new_part":    "trn.host_memory_usage.new_part",
		"trn.neuroncore_memory_usage.tensors":     "trn.31.neuroncore_memory_usage.tensors",
		"trn.neuroncore_memory_usage.new_part":    "trn.31.neuroncore_memory_usage.new_part",
		"ipu.averageBoardTemp":                    "ipu.1.average board temp",
		"ipu.averageDieTemp":                      "ipu.1.average die temp",
		"ipu.clock":                               "ipu.1.clock",
		"ipu.power":                               "ipu.1.ipu power",
		"ipu.utilisation":                         "ipu.1.ipu utilisation (%)",
		"ipu.sessionUtilisation":                  "ipu.1.ipu utilisation (session)",
		"ipu.linkSpeed":                           "ipu.1.speed (GT/s)",
		"disk.in":                                 "disk.in",
		"disk.device.in":                          "disk.cciss/c0d0.in",
		"tpu.grpcTcpDeliveryRate":                 "tpu.grpcTcpDeliveryRate.p999Mbps",
		"openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP":   "openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP.5",
		"somebody.elses":                          "somebody.elses",
		"openmetrics.svc.vllm:e2e.latency_second": "openmetrics.svc.vllm:e2e.latency_second.5",
	} {
		for label, suffix := range map[string]string{"": "", "node-1.a/b": "/l:node-1.a/b"} {
			t.Run(metric+suffix, func(t *testing.T) {
				md, ms := newScope()
				p := put(ms, metric, 1, sample)
				p.Attributes().PutInt(indexKey, 5)
				New(SDK, label).Expand(md)
				assert.Equal(t, []string{want + suffix}, names(ms))
			})
		}
	}
}

// dcgmScope has figures of two machines and of a GPU that is in none.
func dcgmScope() (pmetric.Metrics, pmetric.MetricSlice) {
	md, ms := newScope()
	md.ResourceMetrics().At(0).ScopeMetrics().At(0).Scope().Attributes().PutStr(ScopeSource, SourceDCGM)
	for _, name := range []string{"gpu.temp", "gpu.memoryAllocatedBytes", "gpu.unCorrectedMemoryErrors", "gpu.mig.memoryAllocated"} {
		put(ms, name, 1, attrs{"gpu_index": 0, "node": "node-a.b/c"})
		put(ms, name, 2, attrs{"gpu_index": 0, "node": "node-b"})
		put(ms, name, 3, attrs{"gpu_index": 0, "node": ""})
		put(ms, name, 4, attrs{"gpu_index": 1})
	}
	return md, ms
}

func TestSDKStyleOfDCGM(t *testing.T) {
	for label, suffix := range map[string]string{"": "", "rank-3": "/l:rank-3"} {
		md, ms := dcgmScope()
		New(SDK, label).Expand(md)
		var want []string
		for _, name := range []string{"temp", "memoryUsed", "uncorrectedMemoryErrors"} {
			want = append(want, "gpu.0."+name+"/l:node-a.b/c"+suffix, "gpu.0."+name+"/l:node-b"+suffix, "gpu.0."+name+suffix, "gpu.1."+name+suffix)
		}
		assert.ElementsMatch(t, want, names(ms))
		metric, values, parsed, ok := Parse("gpu.0.temp/l:node-a.b/c" + suffix)
		assert.True(t, ok)
		assert.Equal(t, "gpu.temp", metric)
		assert.Equal(t, map[string]string{"gpu_index": "0"}, values)
		assert.Equal(t, "node-a.b/c"+suffix, parsed)
	}
}

func TestDCGMIsNamedAsOthersInOtherStylesAndScopes(t *testing.T) {
	md, ms := dcgmScope()
	New(Tag, "rank-3").Expand(md)
	assert.ElementsMatch(t, []string{
		"gpu.0.temp", "gpu.1.temp", "gpu.0.memoryAllocatedBytes", "gpu.1.memoryAllocatedBytes",
		"gpu.0.unCorrectedMemoryErrors", "gpu.1.unCorrectedMemoryErrors",
	}, names(ms))

	for name, source := range map[string]any{"no source": nil, "another source": "nvml", "not a text": 7} {
		md, ms := dcgmScope()
		scope := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Scope()
		require.NoError(t, scope.Attributes().PutEmpty(ScopeSource).FromRaw(source))
		New(SDK, "").Expand(md)
		assert.ElementsMatch(t, []string{
			"gpu.0.temp", "gpu.1.temp", "gpu.0.memoryAllocatedBytes", "gpu.1.memoryAllocatedBytes",
			"gpu.0.uncorrectedMemoryErrors", "gpu.1.uncorrectedMemoryErrors",
		}, names(ms), name)
	}
}

func TestEachScopeHasItsOwnSource(t *testing.T) {
	md, ms := dcgmScope()
	other := md.ResourceMetrics().At(0).ScopeMetrics().AppendEmpty().Metrics()
	put(other, "gpu.memoryAllocatedBytes", 1, attrs{"gpu_index": 0, "node": "x"})
	New(SDK, "").Expand(md)
	assert.Equal(t, []string{"gpu.0.memoryAllocatedBytes"}, names(other))
	assert.Contains(t, names(ms), "gpu.0.memoryUsed/l:node-b")
}

func TestTagStyleOfDynamicNames(t *testing.T) {
	md, ms := newScope()
	put(ms, "trn.host_total_memory_usage.new_part", 1, nil)
	put(ms, "trn.neuroncore_memory_usage.new_part", 1, attrs{"core_index": 0})
	put(ms, "openmetrics.dcgm.X", 1, attrs{indexKey: 0, "gpu": "a"})
	put(ms, "openmetrics.dcgm.X", 2, attrs{indexKey: 1, "gpu": "b"})
	put(ms, "openmetrics.dcgm.X", 3, attrs{"gpu": "c"})
	put(ms, "not.known", 1, attrs{"gpu_index": 1})
	New(Tag, "").Expand(md)
	assert.ElementsMatch(t, []string{
		"trn.host_total_memory_usage.new_part", "trn.0.neuroncore_memory_usage.new_part",
		"openmetrics.dcgm.X.0", "openmetrics.dcgm.X.1", "not.known",
	}, names(ms))
	assert.Equal(t, attrs{indexKey: int64(1), "gpu": "b"}, attrs(get(t, ms, "openmetrics.dcgm.X.1").Gauge().DataPoints().At(0).Attributes().AsRaw()))
}

func TestTemplateStyleChangesNothing(t *testing.T) {
	for _, style := range []Style{Template, Semconv, "nonsense"} {
		md, ms := newScope()
		put(ms, "gpu.gpu", 1, attrs{"gpu_index": 0})
		put(ms, "gpu.mig.memoryAllocated", 1, attrs{"gpu_index": 0})
		want := pmetric.NewMetrics()
		md.CopyTo(want)
		New(style, "label").Expand(md)
		assert.Equal(t, want, md)
	}
}

func TestSplitKeepsAllButTheName(t *testing.T) {
	md, ms := newScope()
	m := ms.AppendEmpty()
	m.SetName("gpu.correctedMemoryErrors")
	m.SetDescription("what it is")
	m.SetUnit("{error}")
	m.Metadata().PutStr("from", "here")
	m.SetEmptySum().SetIsMonotonic(true)
	m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for i := range 4 {
		p := m.Sum().DataPoints().AppendEmpty()
		p.SetIntValue(int64(10 + i))
		p.SetStartTimestamp(pcommon.Timestamp(100 + i))
		p.SetTimestamp(pcommon.Timestamp(200 + i))
		p.Attributes().PutInt("gpu_index", int64(i/2))
		p.Attributes().PutStr("gpu_vendor", []string{"nvidia", "amd"}[i%2])
		p.Exemplars().AppendEmpty().SetIntValue(int64(i))
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(i == 3))
	}
	New(Tag, "").Expand(md)

	require.Equal(t, []string{"gpu.0.correctedMemoryErrors", "gpu.1.correctedMemoryErrors"}, names(ms))
	for g, m := range ms.All() {
		assert.Equal(t, "what it is", m.Description())
		assert.Equal(t, "{error}", m.Unit())
		assert.Equal(t, map[string]any{"from": "here"}, m.Metadata().AsRaw())
		require.Equal(t, pmetric.MetricTypeSum, m.Type())
		assert.True(t, m.Sum().IsMonotonic())
		assert.Equal(t, pmetric.AggregationTemporalityCumulative, m.Sum().AggregationTemporality())
		require.Equal(t, 2, m.Sum().DataPoints().Len())
		for v, p := range m.Sum().DataPoints().All() {
			i := 2*g + v
			assert.Equal(t, int64(10+i), p.IntValue())
			assert.Equal(t, pcommon.Timestamp(100+i), p.StartTimestamp())
			assert.Equal(t, pcommon.Timestamp(200+i), p.Timestamp())
			assert.Equal(t, map[string]any{"gpu_index": int64(g), "gpu_vendor": []string{"nvidia", "amd"}[v]}, p.Attributes().AsRaw())
			require.Equal(t, 1, p.Exemplars().Len())
			assert.Equal(t, int64(i), p.Exemplars().At(0).IntValue())
			assert.Equal(t, i == 3, p.Flags().NoRecordedValue())
		}
	}
}

func TestSplitOfOtherTypes(t *testing.T) {
	md, ms := newScope()
	for _, name := range []string{"histogram", "exponential", "summary"} {
		m := ms.AppendEmpty()
		m.SetName("openmetrics.ep." + name)
		for i := range 2 {
			switch name {
			case "histogram":
				if i == 0 {
					m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
				}
				p := m.Histogram().DataPoints().AppendEmpty()
				p.SetCount(uint64(i))
				p.Attributes().PutInt(indexKey, int64(i))
			case "exponential":
				if i == 0 {
					m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
				}
				p := m.ExponentialHistogram().DataPoints().AppendEmpty()
				p.SetCount(uint64(i))
				p.Attributes().PutInt(indexKey, int64(i))
			case "summary":
				if i == 0 {
					m.SetEmptySummary()
				}
				p := m.Summary().DataPoints().AppendEmpty()
				p.SetCount(uint64(i))
				p.Attributes().PutInt(indexKey, int64(i))
			}
		}
	}
	empty := ms.AppendEmpty()
	empty.SetName("openmetrics.ep.empty")
	New(Tag, "").Expand(md)

	require.Len(t, names(ms), 7)
	h := get(t, ms, "openmetrics.ep.histogram.1").Histogram()
	assert.Equal(t, pmetric.AggregationTemporalityCumulative, h.AggregationTemporality())
	assert.Equal(t, uint64(1), h.DataPoints().At(0).Count())
	x := get(t, ms, "openmetrics.ep.exponential.1").ExponentialHistogram()
	assert.Equal(t, pmetric.AggregationTemporalityDelta, x.AggregationTemporality())
	assert.Equal(t, uint64(1), x.DataPoints().At(0).Count())
	assert.Equal(t, uint64(1), get(t, ms, "openmetrics.ep.summary.1").Summary().DataPoints().At(0).Count())
	assert.Equal(t, pmetric.MetricTypeEmpty, get(t, ms, "openmetrics.ep.empty").Type())
}

func TestTwoBuildersMetricsOfOneScopeAreJoined(t *testing.T) {
	md, ms := newScope()
	put(ms, "gpu.gpu", 1, attrs{"gpu_index": 0, "gpu_vendor": "nvidia"})
	other := ms.AppendEmpty()
	other.SetName("gpu.gpu")
	other.SetEmptyGauge()
	for i := range 2 {
		p := other.Gauge().DataPoints().AppendEmpty()
		p.Attributes().PutInt("gpu_index", int64(i))
		p.Attributes().PutStr("gpu_vendor", "amd")
	}
	third := ms.AppendEmpty()
	third.SetName("gpu.gpu")
	third.SetEmptyGauge().DataPoints().AppendEmpty().Attributes().PutInt("gpu_index", 1)
	odd := ms.AppendEmpty()
	odd.SetName("gpu.gpu")
	odd.SetUnit("1")
	odd.SetEmptyGauge().DataPoints().AppendEmpty().Attributes().PutInt("gpu_index", 1)
	New(Tag, "").Expand(md)

	require.Equal(t, []string{"gpu.0.gpu", "gpu.1.gpu", "gpu.1.gpu"}, names(ms))
	assert.Equal(t, 2, ms.At(0).Gauge().DataPoints().Len())
	assert.Equal(t, 2, ms.At(1).Gauge().DataPoints().Len())
	assert.Equal(t, "1", ms.At(2).Unit(), "another unit is another metric")
}

func TestSameTagInTwoResourcesStaysApart(t *testing.T) {
	md := pmetric.NewMetrics()
	for range 2 {
		put(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics(), "gpu.process.gpu", 1, attrs{"gpu_index": 0})
	}
	New(Tag, "").Expand(md)
	for _, rm := range md.ResourceMetrics().All() {
		assert.Equal(t, []string{"gpu.process.0.gpu"}, names(rm.ScopeMetrics().At(0).Metrics()))
		assert.Equal(t, 1, rm.ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().Len())
	}
}

func TestInstancesOfMIGAreDropped(t *testing.T) {
	for _, style := range []Style{Tag, SDK} {
		md, ms := newScope()
		put(ms, "gpu.mig.memoryAllocated", 1, attrs{"gpu_index": 0})
		put(ms, "gpu.gpu", 1, attrs{"gpu_index": 0})
		put(ms, "gpu.mig.somethingNew", 1, attrs{"gpu_index": 0})
		put(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics(), "gpu.mig.memoryTotal", 1, nil)
		New(style, "").Expand(md)
		require.Equal(t, 1, md.ResourceMetrics().Len(), "a resource that has become empty goes too")
		assert.Equal(t, []string{"gpu.0.gpu"}, names(md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()))
	}
}

func TestPointsThatLackAPlaceholderAreKept(t *testing.T) {
	for name, tt := range map[string]struct {
		metric string
		attrs  attrs
		want   string
	}{
		"no index":                     {"gpu.gpu", nil, "gpu.gpu"},
		"empty path":                   {"disk.usageGB", attrs{"path": ""}, "disk.usageGB"},
		"no stat":                      {"tpu.hloExecTiming", attrs{"label": "tensorcore_0"}, "tpu.hloExecTiming.tensorcore_0"},
		"no label":                     {"tpu.hloExecTiming", attrs{"stat": "p50"}, "tpu.hloExecTiming.p50Us"},
		"neither":                      {"tpu.hloExecTiming", nil, "tpu.hloExecTiming"},
		"no device is not the sum":     {"disk.device.in", nil, "disk.device.in"},
		"no id":                        {"ipu.clock", nil, "ipu.clock (MHz)"},
		"index of another type":        {"gpu.gpu", attrs{"gpu_index": "0"}, "gpu.0.gpu"},
		"odd type":                     {"disk.usageGB", attrs{"path": true}, "disk.true.usageGB"},
		"leading placeholder is fixed": {"cpu.cpu_percent", nil, "cpu.cpu_percent"},
	} {
		t.Run(name, func(t *testing.T) {
			md, ms := newScope()
			put(ms, tt.metric, 1, tt.attrs)
			New(Tag, "").Expand(md)
			assert.Equal(t, []string{tt.want}, names(ms))
			assert.Equal(t, 1, ms.At(0).Gauge().DataPoints().Len())
		})
	}
}

func TestExpandOfNothing(t *testing.T) {
	md, ms := newScope()
	ms.AppendEmpty() // no name, no type
	m := ms.AppendEmpty()
	m.SetName("gpu.gpu")
	m.SetEmptyGauge()
	New(Tag, "").Expand(md)
	assert.Equal(t, []string{"", "gpu.gpu"}, names(ms))
	New(SDK, "l").Expand(pmetric.NewMetrics())
}

// Every family has its own controller and all share one Expander.
func TestExpandFromSeveralGoroutines(t *testing.T) {
	e := New(SDK, "node")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 50 {
				md, ms := newScope()
				for i := range 3 {
					put(ms, "gpu.gpu", float64(g), attrs{"gpu_index": i})
				}
				e.Expand(md)
				assert.Equal(t, []string{"gpu.0.gpu/l:node", "gpu.1.gpu/l:node", "gpu.2.gpu/l:node"}, names(ms))
			}
		})
	}
	wg.Wait()
}

func TestRememberedNamesAreBounded(t *testing.T) {
	e := New(Tag, "")
	for round := range 3 {
		md, ms := newScope()
		for i := range maxNames {
			put(ms, "openmetrics.ep.m", 1, attrs{indexKey: round*maxNames + i})
		}
		e.Expand(md)
		require.Equal(t, maxNames, ms.Len())
		assert.LessOrEqual(t, len(e.names), 2*maxNames)
	}
	for i := range 3 {
		md, ms := newScope()
		for j := range maxNames {
			m := ms.AppendEmpty()
			m.SetName(fmt.Sprintf("m%d.%d", i, j))
		}
		e.Expand(md)
	}
	assert.LessOrEqual(t, len(e.dynamic), 2*maxNames+1)
}

// payload has 8 GPUs of 20 metrics, with the attributes of NVIDIA's scraper.
func payload() pmetric.Metrics {
	md, ms := newScope()
	n := 0
	for _, r := range table {
		if len(placeholders(r.tag)) != 1 || !strings.HasPrefix(r.tag, "gpu.{") {
			continue
		}
		if n++; n > 20 {
			break
		}
		m := ms.AppendEmpty()
		m.SetName(r.metric)
		m.SetDescription("A description.")
		m.SetUnit("%")
		points := m.SetEmptyGauge().DataPoints()
		for i := range 8 {
			p := points.AppendEmpty()
			p.SetDoubleValue(float64(i))
			p.Attributes().PutInt("gpu_index", int64(i))
			p.Attributes().PutStr("gpu_vendor", "nvidia")
			p.Attributes().PutStr("gpu_uuid", "GPU-"+strconv.Itoa(i))
			p.Attributes().PutStr("gpu_model", "NVIDIA H100 80GB HBM3")
		}
	}
	return md
}

func plainPayload() pmetric.Metrics {
	md, ms := newScope()
	for _, name := range []string{"cpu", "disk.in", "disk.out", "memory_percent", "network.recv", "network.sent", "proc.cpu.threads"} {
		put(ms, name, 1, nil)
	}
	return md
}

func TestPlainMetricsCostNothingInTagStyle(t *testing.T) {
	e, md := New(Tag, ""), plainPayload()
	assert.Zero(t, testing.AllocsPerRun(100, func() { e.Expand(md) }))
}

func BenchmarkExpand(b *testing.B) {
	for name, bb := range map[string]struct {
		style   Style
		payload pmetric.Metrics
	}{
		"template 8 GPUs x 20": {Template, payload()},
		"tag 8 GPUs x 20":      {Tag, payload()},
		"sdk 8 GPUs x 20":      {SDK, payload()},
		"tag host":             {Tag, plainPayload()},
		"sdk host":             {SDK, plainPayload()},
	} {
		b.Run(name, func(b *testing.B) {
			e := New(bb.style, "node-1")
			b.ReportAllocs()
			// Expand uses its input up: make many copies at a time, off the clock.
			mds := make([]pmetric.Metrics, 100)
			for i := 0; b.Loop(); i++ {
				if i%len(mds) == 0 {
					b.StopTimer()
					for j := range mds {
						mds[j] = pmetric.NewMetrics()
						bb.payload.CopyTo(mds[j])
					}
					b.StartTimer()
				}
				e.Expand(mds[i%len(mds)])
			}
		})
	}
}

func TestOnlySingleValuesOfEndpointsNeedANumber(t *testing.T) {
	for _, style := range []Style{Tag, SDK} {
		md, ms := newScope()
		put(ms, "openmetrics.ep.gauge", 1, attrs{"pod": "p"})
		sum := ms.AppendEmpty()
		sum.SetName("openmetrics.ep.sum")
		sum.SetEmptySum().DataPoints().AppendEmpty()
		for _, name := range []string{"histogram", "exponential", "summary"} {
			ms.AppendEmpty().SetName("openmetrics.ep." + name)
		}
		ms.At(2).SetEmptyHistogram().DataPoints().AppendEmpty()
		ms.At(3).SetEmptyExponentialHistogram().DataPoints().AppendEmpty()
		ms.At(4).SetEmptySummary().DataPoints().AppendEmpty()
		New(style, "").Expand(md)
		assert.ElementsMatch(t, []string{"openmetrics.ep.histogram", "openmetrics.ep.exponential", "openmetrics.ep.summary"}, names(ms), style)
	}
	md, ms := newScope()
	put(ms, "openmetrics.ep.gauge", 1, attrs{"pod": "p"})
	New(Tag, "").Expand(md)
	assert.Zero(t, md.ResourceMetrics().Len(), "what has nothing left is no payload")
}
