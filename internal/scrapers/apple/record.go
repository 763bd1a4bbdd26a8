// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

const (
	apple = metadata.AttributeGpuVendorApple
	// index is that of the only GPU, also on chips of two dies.
	index = 0
)

// recordGPU records the figures of the GPU.
func (s *gpuScraper) recordGPU(now pcommon.Timestamp, at time.Time, f *figures.Figures) {
	var options []metadata.MetricAttributeOption
	if f.Model != "" {
		options = append(options, metadata.WithGpuModelMetricAttribute(f.Model))
	}
	record := func(v figures.Float, point gpus.RecordPoint) {
		if v.Known {
			point(now, v.Value, index, apple, options...)
		}
	}
	count := func(v figures.Whole, point gpus.RecordCount) {
		if v.Known {
			point(now, v.Value, index, apple, options...)
		}
	}
	record(f.GPU, s.record.GPU)
	record(f.Allocated, s.record.MemoryAllocated)
	record(f.Temperature, s.record.Temp)
	record(f.Power, s.record.PowerWatts)
	record(f.PowerPercent(), s.record.PowerPercent)
	record(f.Clock, s.builder.RecordGpuFreqDataPoint)
	count(f.Used, s.builder.RecordGpuMemoryUsedDataPoint)
	if s.extended { // on by default for other makers
		count(f.AllocatedBytes, s.record.MemoryAllocatedBytes)
	}
	if f.Recoveries.Known {
		s.begin(at, float64(f.Recoveries.Value))
		count(f.Recoveries, s.builder.RecordGpuRecoveryCountDataPoint)
	}
}

// begin sets the start time of the counter.
func (s *gpuScraper) begin(at time.Time, value float64) {
	start := pcommon.NewTimestampFromTime(s.counters.Start(familyName, "recoveries", value, at))
	if start != s.start {
		s.start = start
		s.builder.Reset(metadata.WithStartTime(start))
	}
}

// recordMachine records what is told beside the GPU.
func (s *gpuScraper) recordMachine(now pcommon.Timestamp, f *figures.Figures) {
	record := func(v figures.Float, point func(pcommon.Timestamp, float64)) {
		if v.Known {
			point(now, v.Value)
		}
	}
	b := s.builder
	record(f.SystemPower, b.RecordSystemPowerWattsDataPoint)
	record(f.NeuralPower, b.RecordAnePowerDataPoint)
	record(f.CPUPower, b.RecordCPUPowerWattsDataPoint)
	record(f.CPUTemperature, b.RecordCPUAvgTempDataPoint)
	record(f.Efficiency.Busy, b.RecordCPUEcpuPercentDataPoint)
	record(f.Efficiency.Clock, b.RecordCPUEcpuFreqDataPoint)
	record(f.Performance.Busy, b.RecordCPUPcpuPercentDataPoint)
	record(f.Performance.Clock, b.RecordCPUPcpuFreqDataPoint)
}
