// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/absolute"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
)

// histogramSuffix is that of a distribution's name in whole: under the name of its
// statistics there would be two types of metrics.
const histogramSuffix = ".histogram"

// recorder maps figures to metric points.
type recorder struct {
	builder *metadata.MetricsBuilder
	version string
	form    distributionForm
	// extended adds p99.
	extended bool
	// endpoints are the names of the runtimes; empty where there is only one.
	endpoints []string
	// starts are those of distributions whose source does not tell when it began.
	starts absolute.Counters
}

func (r *recorder) record(now pcommon.Timestamp, f *figures, host pcommon.Resource) pmetric.Metrics {
	for m := range f.devices {
		for i, v := range f.devices[m] {
			r.recordDevice(now, deviceMetric(m), i, &v)
		}
	}
	r.recordShares(now, f)
	for d := range f.stats {
		for name, s := range f.stats[d] {
			if !r.isHistogram(f, distribution(d), name) || r.form == formBoth {
				r.recordStats(now, distribution(d), name, &s)
			}
		}
	}
	for name, size := range f.queues {
		r.builder.RecordTpuHloQueueSizeDataPoint(now, size, name)
	}
	r.builder.EmitForResource(metadata.WithResource(host))
	md := r.builder.Emit()
	if r.form != formQuantiles {
		r.addHistograms(md, now, f, host)
	}
	return md
}

// isHistogram tells whether a distribution is given as such.
func (r *recorder) isHistogram(f *figures, d distribution, name string) bool {
	if r.form == formQuantiles {
		return false
	}
	counted := f.counted[d][name]
	bounds, _ := counted.Histogram()
	return bounds != nil
}

func (r *recorder) recordDevice(now pcommon.Timestamp, m deviceMetric, index int, v *deviceValue) {
	b, i, options := r.builder, int64(index), r.attributes(v)
	switch m {
	case dutyCycle:
		b.RecordTpuDutyCycleDataPoint(now, v.value, i, options...)
	case hbmTotal:
		if v.value <= maxExact {
			b.RecordTpuHbmCapacityTotalDataPoint(now, int64(v.value), i, options...)
		}
	case hbmUsage:
		if v.value <= maxExact {
			b.RecordTpuHbmCapacityUsageDataPoint(now, int64(v.value), i, options...)
		}
	case tensorcoreUtilization:
		b.RecordTpuTensorcoreUtilizationDataPoint(now, v.value, i, options...)
	case iciLinkHealth:
		if v.value <= maxExact {
			b.RecordTpuIciLinkHealthDataPoint(now, int64(v.value), i, options...)
		}
	case idleDuration:
		b.RecordTpuTensorcoreIdleDurationDataPoint(now, v.value, i, options...)
	case hbmBandwidth:
		b.RecordTpuRuntimeHbmUtilizationDataPoint(now, v.value, i, options...)
	case throttleScore:
		b.RecordTpuThrottleScoreDataPoint(now, v.value, i, options...)
	}
}

// recordShares records how full the memory of devices is.
func (r *recorder) recordShares(now pcommon.Timestamp, f *figures) {
	for i, used := range f.devices[hbmUsage] {
		if total, ok := f.devices[hbmTotal][i]; ok && total.value > 0 {
			r.builder.RecordTpuHbmMemoryUsageDataPoint(now, 100*used.value/total.value, int64(i), r.attributes(&used)...)
		}
	}
}

func (r *recorder) attributes(v *deviceValue) []metadata.MetricAttributeOption {
	var options []metadata.MetricAttributeOption
	if v.device.Known {
		options = append(options, metadata.WithTpuDeviceIDMetricAttribute(v.device.Value))
	}
	if v.chip.Known {
		options = append(options, metadata.WithTpuChipIDMetricAttribute(v.chip.Value))
	}
	if v.endpoint.Known && len(r.endpoints) > 0 {
		options = append(options, metadata.WithTpuEndpointMetricAttribute(r.endpoints[v.endpoint.Value]))
	}
	for _, of := range []struct {
		text   string
		option func(string) metadata.MetricAttributeOption
	}{
		{v.pod.namespace, metadata.WithTpuK8sNamespaceNameMetricAttribute},
		{v.pod.name, metadata.WithTpuK8sPodNameMetricAttribute},
		{v.pod.container, metadata.WithTpuK8sContainerNameMetricAttribute},
	} {
		if of.text != "" {
			options = append(options, of.option(of.text))
		}
	}
	return options
}

func (r *recorder) recordStats(now pcommon.Timestamp, d distribution, name string, s *dist.Stats) {
	point := r.statPoint(d, name)
	for _, of := range []struct {
		value optional.Of[float64]
		stat  metadata.AttributeStat
	}{
		{s.Mean, metadata.AttributeStatMean},
		{s.P50, metadata.AttributeStatP50},
		{s.P90, metadata.AttributeStatP90},
		{s.P95, metadata.AttributeStatP95},
		{optional.If(s.P99.Value, s.P99.Known && r.extended), metadata.AttributeStatP99},
		{s.P999, metadata.AttributeStatP999},
	} {
		if of.value.Known {
			point(now, of.value.Value, of.stat)
		}
	}
}

// statPoint returns what records a statistic of a distribution.
func (r *recorder) statPoint(d distribution, name string) func(pcommon.Timestamp, float64, metadata.AttributeStat) {
	b := r.builder
	switch d {
	case tcpMinRTT:
		return b.RecordTpuGrpcTCPMinRttDataPoint
	case tcpDeliveryRate:
		return b.RecordTpuGrpcTCPDeliveryRateDataPoint
	}
	labelled := [distributions]func(pcommon.Timestamp, float64, string, metadata.AttributeStat){
		bufferTransfer:        b.RecordTpuBufferTransferLatencyDataPoint,
		inboundBufferTransfer: b.RecordTpuInboundBufferTransferLatencyDataPoint,
		hostToDevice:          b.RecordTpuHostToDeviceTransferLatencyDataPoint,
		deviceToHost:          b.RecordTpuDeviceToHostTransferLatencyDataPoint,
		collectiveE2E:         b.RecordTpuCollectiveE2ELatencyDataPoint,
		hostCompute:           b.RecordTpuHostComputeLatencyDataPoint,
		hloExecution:          b.RecordTpuHloExecTimingDataPoint,
	}[d]
	return func(ts pcommon.Timestamp, v float64, stat metadata.AttributeStat) { labelled(ts, v, name, stat) }
}

// addHistograms adds the distributions in whole.
func (r *recorder) addHistograms(md pmetric.Metrics, now pcommon.Timestamp, f *figures, host pcommon.Resource) {
	metrics := pmetric.NewMetricSlice()
	for d := range f.counted {
		r.addHistogram(metrics, now, distribution(d), f.counted[d])
	}
	keys := f.startKeys()
	r.starts.Keep(func(key string) bool { return keys[key] })
	if metrics.Len() == 0 {
		return
	}
	metrics.MoveAndAppendTo(r.scopeOf(md, host).Metrics())
}

// scopeOf returns the scope that the metrics of the machine are in.
func (r *recorder) scopeOf(md pmetric.Metrics, host pcommon.Resource) pmetric.ScopeMetrics {
	if md.ResourceMetrics().Len() > 0 {
		return md.ResourceMetrics().At(0).ScopeMetrics().At(0)
	}
	resource := md.ResourceMetrics().AppendEmpty()
	host.CopyTo(resource.Resource())
	scope := resource.ScopeMetrics().AppendEmpty()
	scope.Scope().SetName(metadata.ScopeName)
	scope.Scope().SetVersion(r.version)
	return scope
}

func startKey(d distribution, name string) string { return distributionTable[d].metric + " " + name }

// startKeys are those of the distributions that there are.
func (f *figures) startKeys() map[string]bool {
	keys := map[string]bool{}
	for d := range f.counted {
		for name := range f.counted[d] {
			keys[startKey(distribution(d), name)] = true
		}
	}
	return keys
}

func (r *recorder) addHistogram(metrics pmetric.MetricSlice, now pcommon.Timestamp, d distribution, counted map[string]dist.Distribution) {
	names := &distributionTable[d]
	points := pmetric.NewHistogramDataPointSlice()
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		c := counted[name]
		bounds, counts := c.Histogram()
		if bounds == nil {
			continue
		}
		p := points.AppendEmpty()
		p.SetTimestamp(now)
		p.SetStartTimestamp(r.startOf(now, d, name, &c))
		fillPoint(p, &c, bounds, counts)
		if !d.isFlat() {
			p.Attributes().PutStr("label", name)
		}
	}
	if points.Len() == 0 {
		return
	}
	m := metrics.AppendEmpty()
	m.SetName(names.metric + histogramSuffix)
	m.SetUnit(names.unit)
	m.SetDescription(names.description + ", as counted since the job started. gRPC: " + names.runtime + ". With `distributions: histogram` or `both`.")
	h := m.SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	points.MoveAndAppendTo(h.DataPoints())
}

// startOf is when a distribution began: what its source says, else when it was seen
// first, or fell.
func (r *recorder) startOf(now pcommon.Timestamp, d distribution, name string, c *dist.Distribution) pcommon.Timestamp {
	seen := r.starts.Start(startKey(d, name), "count", float64(c.Count), now.AsTime())
	if c.Start.IsZero() || c.Start.After(now.AsTime()) {
		return pcommon.NewTimestampFromTime(seen)
	}
	return pcommon.NewTimestampFromTime(c.Start)
}

// fillPoint writes the buckets. Their counts are what counts: a runtime may count them
// a little earlier than all.
func fillPoint(p pmetric.HistogramDataPoint, c *dist.Distribution, bounds []float64, counts []int64) {
	p.ExplicitBounds().FromRaw(bounds)
	all := make([]uint64, len(counts))
	total := uint64(0)
	for i, n := range counts {
		all[i] = uint64(n)
		total += all[i]
	}
	p.BucketCounts().FromRaw(all)
	p.SetCount(total)
	if c.Mean >= 0 {
		p.SetSum(c.Mean * float64(total))
	}
	if c.Min != 0 {
		p.SetMin(c.Min)
	}
	if c.Max != 0 {
		p.SetMax(c.Max)
	}
}
