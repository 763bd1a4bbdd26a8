// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpus is what the families of GPUs have in common: how their figures are
// recorded, on the machine and again on the workloads that use a GPU, and how
// those workloads are found.
package gpus

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// RecordPoint is how the builder records a figure of a GPU.
type RecordPoint func(ts pcommon.Timestamp, value float64, index int64, vendor metadata.AttributeGpuVendor, options ...metadata.MetricAttributeOption)

// RecordCount is RecordPoint for whole numbers.
type RecordCount func(ts pcommon.Timestamp, value, index int64, vendor metadata.AttributeGpuVendor, options ...metadata.MetricAttributeOption)

// Recorders record the figures that a GPU has on the machine's resource, and again
// on those of the workloads that use it.
type Recorders struct {
	GPU, Memory, Encoder, Temp, MemoryAllocated    RecordPoint
	MemoryReadWriteActivity, MemoryOverDrive       RecordPoint
	PowerWatts, PowerPercent, PowerLimit           RecordPoint
	MemoryAllocatedBytes                           RecordCount
	GraphicsClock, SMClock, MemoryClock            RecordCount
	CorrectedMemoryErrors, UncorrectedMemoryErrors RecordCount
}

// OnMachine records on the machine's resource.
func OnMachine(b *metadata.MetricsBuilder) Recorders {
	return Recorders{
		GPU: b.RecordGpuGpuDataPoint, Memory: b.RecordGpuMemoryDataPoint, Encoder: b.RecordGpuEncoderUtilizationDataPoint,
		Temp: b.RecordGpuTempDataPoint, MemoryAllocated: b.RecordGpuMemoryAllocatedDataPoint,
		MemoryReadWriteActivity: b.RecordGpuMemoryReadWriteActivityDataPoint, MemoryOverDrive: b.RecordGpuMemoryOverDriveDataPoint,
		PowerWatts: b.RecordGpuPowerWattsDataPoint, PowerPercent: b.RecordGpuPowerPercentDataPoint,
		PowerLimit:           b.RecordGpuEnforcedPowerLimitWattsDataPoint,
		MemoryAllocatedBytes: b.RecordGpuMemoryAllocatedBytesDataPoint,
		GraphicsClock:        b.RecordGpuGraphicsClockDataPoint, SMClock: b.RecordGpuSmClockDataPoint, MemoryClock: b.RecordGpuMemoryClockDataPoint,
		CorrectedMemoryErrors:   b.RecordGpuCorrectedMemoryErrorsDataPoint,
		UncorrectedMemoryErrors: b.RecordGpuUnCorrectedMemoryErrorsDataPoint,
	}
}

// OnWorkload records on the resource of a workload.
func OnWorkload(b *metadata.MetricsBuilder) Recorders {
	return Recorders{
		GPU: b.RecordGpuProcessGpuDataPoint, Memory: b.RecordGpuProcessMemoryDataPoint, Encoder: b.RecordGpuProcessEncoderUtilizationDataPoint,
		Temp: b.RecordGpuProcessTempDataPoint, MemoryAllocated: b.RecordGpuProcessMemoryAllocatedDataPoint,
		MemoryReadWriteActivity: b.RecordGpuProcessMemoryReadWriteActivityDataPoint, MemoryOverDrive: b.RecordGpuProcessMemoryOverDriveDataPoint,
		PowerWatts: b.RecordGpuProcessPowerWattsDataPoint, PowerPercent: b.RecordGpuProcessPowerPercentDataPoint,
		PowerLimit:           b.RecordGpuProcessEnforcedPowerLimitWattsDataPoint,
		MemoryAllocatedBytes: b.RecordGpuProcessMemoryAllocatedBytesDataPoint,
		GraphicsClock:        b.RecordGpuProcessGraphicsClockDataPoint, SMClock: b.RecordGpuProcessSmClockDataPoint, MemoryClock: b.RecordGpuProcessMemoryClockDataPoint,
		CorrectedMemoryErrors:   b.RecordGpuProcessCorrectedMemoryErrorsDataPoint,
		UncorrectedMemoryErrors: b.RecordGpuProcessUnCorrectedMemoryErrorsDataPoint,
	}
}

// ZeroOrOne is the value of a point that says whether something holds.
func ZeroOrOne(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// UsesProcesses tells whether a metric is on that needs to know who uses a GPU.
func UsesProcesses(m *metadata.MetricsConfig) bool {
	return m.GpuProcessGpu.Enabled || m.GpuProcessMemory.Enabled || m.GpuProcessMemoryAllocated.Enabled ||
		m.GpuProcessMemoryAllocatedBytes.Enabled || m.GpuProcessTemp.Enabled || m.GpuProcessPowerWatts.Enabled ||
		m.GpuProcessPowerPercent.Enabled || m.GpuProcessEnforcedPowerLimitWatts.Enabled ||
		m.GpuProcessEncoderUtilization.Enabled || m.GpuProcessGraphicsClock.Enabled || m.GpuProcessSmClock.Enabled ||
		m.GpuProcessMemoryClock.Enabled || m.GpuProcessCorrectedMemoryErrors.Enabled ||
		m.GpuProcessUnCorrectedMemoryErrors.Enabled || m.GpuProcessMemoryUsedBytes.Enabled ||
		m.GpuProcessMemoryReadWriteActivity.Enabled || m.GpuProcessMemoryOverDrive.Enabled
}
