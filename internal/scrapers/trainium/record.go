// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// The names of the metrics that are not only the builder's.
const (
	utilisationMetric = "trn.neuroncore_utilization"
	hostMetric        = "trn.host_total_memory_usage"
	deviceMetric      = "trn.neuron_device_total_memory_usage"
	// Parts that metadata.yaml lacks are named as those that it has.
	hostPartPrefix = "trn.host_total_memory_usage."
	corePartPrefix = "trn.neuroncore_memory_usage."
)

// recorder makes points of figures: through the builder, and beside it where the
// driver knows parts of the memory that metadata.yaml lacks.
type recorder struct {
	builder *metadata.MetricsBuilder
	version string
	start   pcommon.Timestamp

	hostParts map[string]func(pcommon.Timestamp, int64)
	coreParts map[string]func(ts pcommon.Timestamp, value, core int64)
	ecc       map[string]func(ts pcommon.Timestamp, value, device int64)
}

func newRecorder(b *metadata.MetricsBuilder, version string) *recorder {
	return &recorder{
		builder: b,
		version: version,
		hostParts: map[string]func(pcommon.Timestamp, int64){
			"application_memory":   b.RecordTrnHostTotalMemoryUsageApplicationMemoryDataPoint,
			"collectives":          b.RecordTrnHostTotalMemoryUsageCollectivesDataPoint,
			"constants":            b.RecordTrnHostTotalMemoryUsageConstantsDataPoint,
			"dma_buffers":          b.RecordTrnHostTotalMemoryUsageDmaBuffersDataPoint,
			"dma_rings":            b.RecordTrnHostTotalMemoryUsageDmaRingsDataPoint,
			"driver_memory":        b.RecordTrnHostTotalMemoryUsageDriverMemoryDataPoint,
			"nonshared_scratchpad": b.RecordTrnHostTotalMemoryUsageNonsharedScratchpadDataPoint,
			"notifications":        b.RecordTrnHostTotalMemoryUsageNotificationsDataPoint,
			"tensors":              b.RecordTrnHostTotalMemoryUsageTensorsDataPoint,
			"uncategorized":        b.RecordTrnHostTotalMemoryUsageUncategorizedDataPoint,
		},
		coreParts: map[string]func(ts pcommon.Timestamp, value, core int64){
			"collectives":             b.RecordTrnNeuroncoreMemoryUsageCollectivesDataPoint,
			"constants":               b.RecordTrnNeuroncoreMemoryUsageConstantsDataPoint,
			"dma_rings":               b.RecordTrnNeuroncoreMemoryUsageDmaRingsDataPoint,
			"driver_memory":           b.RecordTrnNeuroncoreMemoryUsageDriverMemoryDataPoint,
			"model_code":              b.RecordTrnNeuroncoreMemoryUsageModelCodeDataPoint,
			"model_shared_scratchpad": b.RecordTrnNeuroncoreMemoryUsageModelSharedScratchpadDataPoint,
			"nonshared_scratchpad":    b.RecordTrnNeuroncoreMemoryUsageNonsharedScratchpadDataPoint,
			"notifications":           b.RecordTrnNeuroncoreMemoryUsageNotificationsDataPoint,
			"runtime_memory":          b.RecordTrnNeuroncoreMemoryUsageRuntimeMemoryDataPoint,
			"tensors":                 b.RecordTrnNeuroncoreMemoryUsageTensorsDataPoint,
			"uncategorized":           b.RecordTrnNeuroncoreMemoryUsageUncategorizedDataPoint,
		},
		ecc: map[string]func(ts pcommon.Timestamp, value, device int64){
			report.MemCorrected:    b.RecordTrnMemEccCorrectedDataPoint,
			report.MemUncorrected:  b.RecordTrnMemEccUncorrectedDataPoint,
			report.SRAMCorrected:   b.RecordTrnSramEccCorrectedDataPoint,
			report.SRAMUncorrected: b.RecordTrnSramEccUncorrectedDataPoint,
		},
	}
}

// since sets the start time of the counters that are recorded next.
func (r *recorder) since(start time.Time) {
	if at := pcommon.NewTimestampFromTime(start); at != r.start {
		r.start = at
		r.builder.Reset(metadata.WithStartTime(at))
	}
}

// figures records all but the counters.
func (r *recorder) figures(now pcommon.Timestamp, s *sums) {
	for _, core := range sorted(s.utilisation) {
		r.builder.RecordTrnNeuroncoreUtilizationDataPoint(now, s.utilisation[core], int64(core))
	}
	if v, ok := whole(s.host.Value); ok && s.host.Known {
		r.builder.RecordTrnHostTotalMemoryUsageDataPoint(now, v)
	}
	if v, ok := whole(s.device.Value); ok && s.device.Known {
		r.builder.RecordTrnNeuronDeviceTotalMemoryUsageDataPoint(now, v)
	}
	for _, part := range sorted(s.hostParts) {
		if v, ok := whole(s.hostParts[part]); ok && r.hostParts[part] != nil {
			r.hostParts[part](now, v)
		}
	}
	for _, core := range sorted(s.coreParts) {
		parts := s.coreParts[core]
		for _, part := range sorted(parts) {
			if v, ok := whole(parts[part]); ok && r.coreParts[part] != nil {
				r.coreParts[part](now, v, int64(core))
			}
		}
	}
	r.latency(now, metadata.AttributeLatencyTypeTotal, s.totalLatency)
	r.latency(now, metadata.AttributeLatencyTypeDevice, s.deviceLatency)
}

func (r *recorder) latency(now pcommon.Timestamp, of metadata.AttributeLatencyType, seconds map[string]float64) {
	for _, name := range sorted(seconds) {
		if percentile, ok := metadata.MapAttributePercentile[name]; ok {
			r.builder.RecordTrnExecutionLatencyDataPoint(now, seconds[name], of, percentile)
		}
	}
}

// executions records counters.
func (r *recorder) executions(now pcommon.Timestamp, e *executions) {
	for _, name := range sorted(e.errors) {
		if v, ok := whole(e.errors[name]); ok {
			r.builder.RecordTrnExecutionErrorsDataPoint(now, v, metadata.MapAttributeErrorType[name])
		}
	}
	for _, name := range sorted(e.outcomes) {
		if v, ok := whole(e.outcomes[name]); ok {
			r.builder.RecordTrnExecutionStatusDataPoint(now, v, metadata.MapAttributeStatusType[name])
		}
	}
}

// errors records the counters of a device.
func (r *recorder) errors(now pcommon.Timestamp, device int, t tally) {
	for _, name := range sorted(t) {
		if v, ok := whole(t[name]); ok && r.ecc[name] != nil {
			r.ecc[name](now, v, int64(device))
		}
	}
}

func deviceName(number int) string { return fmt.Sprint("device ", number) }

// emit returns what was recorded, with the parts that the builder lacks.
func (r *recorder) emit(resource pcommon.Resource, now pcommon.Timestamp, s *sums) *emitted {
	e := newEmitted(r.builder.Emit(metadata.WithResource(resource)), resource, r.version)
	for _, part := range sorted(s.hostParts) {
		if r.hostParts[part] == nil {
			e.addUnknownPart(now, hostPartPrefix+part, s.hostParts[part], none)
		}
	}
	for _, core := range sorted(s.coreParts) {
		for _, part := range sorted(s.coreParts[core]) {
			if r.coreParts[part] == nil {
				e.addUnknownPart(now, corePartPrefix+part, s.coreParts[core][part], core)
			}
		}
	}
	return e
}

// none is the core of what has none.
const none = -1

// emitted are the metrics of one resource.
type emitted struct {
	md      pmetric.Metrics
	metrics pmetric.MetricSlice
	byName  map[string]pmetric.Metric
}

// newEmitted takes what the builder made, which is nothing when all of it is off.
func newEmitted(md pmetric.Metrics, resource pcommon.Resource, version string) *emitted {
	if md.ResourceMetrics().Len() == 0 {
		rm := md.ResourceMetrics().AppendEmpty()
		resource.CopyTo(rm.Resource())
		scope := rm.ScopeMetrics().AppendEmpty().Scope()
		scope.SetName(metadata.ScopeName)
		scope.SetVersion(version)
	}
	return &emitted{md: md, metrics: md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()}
}

// find returns a metric by its name.
func (e *emitted) find(name string) (pmetric.Metric, bool) {
	if e.byName == nil {
		e.byName = make(map[string]pmetric.Metric, e.metrics.Len())
		for _, m := range e.metrics.All() {
			e.byName[m.Name()] = m
		}
	}
	m, ok := e.byName[name]
	return m, ok
}

func (e *emitted) addUnknownPart(now pcommon.Timestamp, name string, value float64, core int) {
	v, ok := whole(value)
	if !ok {
		return
	}
	m, ok := e.find(name)
	if !ok {
		m = e.metrics.AppendEmpty()
		m.SetName(name)
		m.SetUnit("By")
		m.SetDescription("Memory used by a part that the Neuron driver names so: neuron_runtime_used_bytes.usage_breakdown of neuron-monitor, added up over the runtimes of the resource.")
		m.SetEmptyGauge()
		e.byName[name] = m
	}
	newPoint(m, now, core).SetIntValue(v)
}

// newPoint adds a point of a core, or of all.
func newPoint(m pmetric.Metric, now pcommon.Timestamp, core int) pmetric.NumberDataPoint {
	p := m.Gauge().DataPoints().AppendEmpty()
	p.SetTimestamp(now)
	if core != none {
		p.Attributes().PutInt("core_index", int64(core))
	}
	return p
}

// addRuntimes adds points of each runtime, where the metric is on.
func (e *emitted) addRuntimes(now pcommon.Timestamp, all []*report.Runtime) {
	byKey := map[report.Key][]*report.Runtime{}
	var keys []report.Key
	for _, r := range all {
		if byKey[r.Key] == nil {
			keys = append(keys, r.Key)
		}
		byKey[r.Key] = append(byKey[r.Key], r)
	}
	for _, key := range keys {
		w := runtimeWriter{e, now, key}
		w.write(sumOf(byKey[key]))
	}
}

// runtimeWriter adds the points of one runtime.
type runtimeWriter struct {
	to  *emitted
	now pcommon.Timestamp
	key report.Key
}

func (w *runtimeWriter) write(s *sums) {
	for _, core := range sorted(s.utilisation) {
		if p, ok := w.point(utilisationMetric, core); ok {
			p.SetDoubleValue(s.utilisation[core])
		}
	}
	if s.host.Known {
		w.bytes(hostMetric, none, s.host.Value)
	}
	if s.device.Known {
		w.bytes(deviceMetric, none, s.device.Value)
	}
	for _, part := range sorted(s.hostParts) {
		w.bytes(hostPartPrefix+part, none, s.hostParts[part])
	}
	for _, core := range sorted(s.coreParts) {
		for _, part := range sorted(s.coreParts[core]) {
			w.bytes(corePartPrefix+part, core, s.coreParts[core][part])
		}
	}
}

func (w *runtimeWriter) bytes(metric string, core int, value float64) {
	v, ok := whole(value)
	if !ok {
		return
	}
	if p, on := w.point(metric, core); on {
		p.SetIntValue(v)
	}
}

// point adds one that says whose it is. A metric that is not there is off.
func (w *runtimeWriter) point(metric string, core int) (pmetric.NumberDataPoint, bool) {
	m, ok := w.to.find(metric)
	if !ok {
		return pmetric.NumberDataPoint{}, false
	}
	p := newPoint(m, w.now, core)
	if w.key.Pid > 0 {
		p.Attributes().PutInt("neuron.runtime.pid", int64(w.key.Pid))
	}
	p.Attributes().PutStr("neuron.runtime.tag", w.key.Tag)
	return p, true
}

// moveTo hands the metrics over, if there are any.
func (e *emitted) moveTo(md pmetric.Metrics) {
	if e.metrics.Len() > 0 {
		e.md.ResourceMetrics().MoveAndAppendTo(md.ResourceMetrics())
	}
}
