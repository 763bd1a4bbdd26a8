// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

const (
	mebi  = 1 << 20
	ratio = 100
	// Figures above these are no figures; NVML's are held to the same.
	maxPercent     = 100
	maxTemperature = 200
	// maxMebi is an exbibyte in mebibytes.
	maxMebi = 1 << 40
	// maxWatts is itself no figure, and nor is a limit of 0.
	maxWatts = 10_000
)

// owner says whose figure a row of a MIG instance has.
type owner uint8

const (
	nobody   owner = iota // the field means nothing there
	board                 // each instance repeats the board's
	instance              // the instance's own
)

// recordPoint and recordCount are how the builder records a figure.
type (
	recordPoint func(b *metadata.MetricsBuilder, now pcommon.Timestamp, value float64, index int64, vendor metadata.AttributeGpuVendor, options ...metadata.MetricAttributeOption)
	recordCount func(b *metadata.MetricsBuilder, now pcommon.Timestamp, value, index int64, vendor metadata.AttributeGpuVendor, options ...metadata.MetricAttributeOption)
)

// field is a field of DCGM and what becomes of it.
type field struct {
	// name is DCGM's.
	name string
	// metric is the name of what a row of a GPU gives alone; empty for a field that
	// is only a part of others.
	metric string
	// query says that the query source has the field, too.
	query bool
	// mig is the owner of the figure in a row of a MIG instance.
	mig owner
	// scale makes the metric's unit of DCGM's; 0 is 1.
	scale float64
	// most is the highest figure in DCGM's unit that makes sense; 0 is any.
	most float64
	// positive says that 0 is no figure.
	positive bool
	// point or count records it; for the memory's fields others do.
	point recordPoint
	count recordCount
	// migPoint records it for an instance.
	migPoint recordPoint
	// sum says that it counts.
	sum bool
}

// fieldID numbers the fields that are put together with others.
type fieldID uint8

const (
	powerUsage fieldID = iota
	powerLimit
	memoryUsed
	memoryFree
	memoryTotal
	memoryReserved
)

type builder = metadata.MetricsBuilder

// fields has each field once. The first ones are in the order of the constants; none
// but those is a part of other figures.
var fields = [...]field{
	powerUsage: {
		name: "DCGM_FI_DEV_POWER_USAGE", metric: "gpu.powerWatts", query: true, mig: board,
		most: math.Nextafter(maxWatts, 0), point: (*builder).RecordGpuPowerWattsDataPoint,
	},
	powerLimit: {
		name: "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", metric: "gpu.enforcedPowerLimitWatts", mig: board, positive: true,
		most: math.Nextafter(maxWatts, 0), point: (*builder).RecordGpuEnforcedPowerLimitWattsDataPoint,
	},
	memoryUsed:     {name: "DCGM_FI_DEV_FB_USED", metric: "gpu.memoryAllocatedBytes", query: true, mig: instance, scale: mebi, most: maxMebi},
	memoryFree:     {name: "DCGM_FI_DEV_FB_FREE", metric: "gpu.memoryFree", query: true, mig: instance, scale: mebi, most: maxMebi, count: (*builder).RecordGpuMemoryFreeDataPoint},
	memoryTotal:    {name: "DCGM_FI_DEV_FB_TOTAL", metric: "gpu.memoryTotal", query: true, mig: instance, scale: mebi, most: maxMebi},
	memoryReserved: {name: "DCGM_FI_DEV_FB_RESERVED", mig: instance, scale: mebi, most: maxMebi},

	{name: "DCGM_FI_DEV_GPU_TEMP", metric: "gpu.temp", query: true, mig: board, most: maxTemperature, point: (*builder).RecordGpuTempDataPoint},
	{name: "DCGM_FI_DEV_MEMORY_TEMP", metric: "gpu.memoryTemp", query: true, mig: board, most: maxTemperature, point: (*builder).RecordGpuMemoryTempDataPoint},
	{name: "DCGM_FI_DEV_GPU_MAX_OP_TEMP", metric: "gpu.maxOpTemp", query: true, mig: board, most: maxTemperature, point: (*builder).RecordGpuMaxOpTempDataPoint},
	{name: "DCGM_FI_DEV_MEM_MAX_OP_TEMP", metric: "gpu.memoryMaxOpTemp", query: true, mig: board, most: maxTemperature, point: (*builder).RecordGpuMemoryMaxOpTempDataPoint},

	{name: "DCGM_FI_DEV_GPU_UTIL", metric: "gpu.gpu", query: true, most: maxPercent, point: (*builder).RecordGpuGpuDataPoint},
	{name: "DCGM_FI_DEV_MEM_COPY_UTIL", metric: "gpu.memory", query: true, most: maxPercent, point: (*builder).RecordGpuMemoryDataPoint},
	{name: "DCGM_FI_DEV_ENC_UTIL", metric: "gpu.encoderUtilization", most: maxPercent, point: (*builder).RecordGpuEncoderUtilizationDataPoint},

	{name: "DCGM_FI_DEV_SM_CLOCK", metric: "gpu.smClock", query: true, mig: board, count: (*builder).RecordGpuSmClockDataPoint},
	{name: "DCGM_FI_DEV_MEM_CLOCK", metric: "gpu.memoryClock", mig: board, count: (*builder).RecordGpuMemoryClockDataPoint},

	{name: "DCGM_FI_DEV_ECC_SBE_VOL_DEV", metric: "gpu.correctedMemoryErrors", mig: board, sum: true, count: (*builder).RecordGpuCorrectedMemoryErrorsDataPoint},
	{name: "DCGM_FI_DEV_ECC_DBE_VOL_DEV", metric: "gpu.unCorrectedMemoryErrors", mig: board, sum: true, count: (*builder).RecordGpuUnCorrectedMemoryErrorsDataPoint},
	{name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", metric: "gpu.totalEnergyConsumption", query: true, mig: board, sum: true, point: (*builder).RecordGpuTotalEnergyConsumptionDataPoint},

	{name: "DCGM_FI_PROF_PCIE_TX_BYTES", metric: "gpu.pcieTxBytes", query: true, point: (*builder).RecordGpuPcieTxBytesDataPoint},
	{name: "DCGM_FI_PROF_PCIE_RX_BYTES", metric: "gpu.pcieRxBytes", query: true, point: (*builder).RecordGpuPcieRxBytesDataPoint},
	{name: "DCGM_FI_PROF_NVLINK_TX_BYTES", metric: "gpu.nvlinkTxBytes", query: true, point: (*builder).RecordGpuNvlinkTxBytesDataPoint},
	{name: "DCGM_FI_PROF_NVLINK_RX_BYTES", metric: "gpu.nvlinkRxBytes", query: true, point: (*builder).RecordGpuNvlinkRxBytesDataPoint},

	{name: "DCGM_FI_PROF_SM_ACTIVE", metric: "gpu.smActive", query: true, mig: instance, scale: ratio, point: (*builder).RecordGpuSmActiveDataPoint, migPoint: (*builder).RecordGpuMigSmActiveDataPoint},
	{name: "DCGM_FI_PROF_SM_OCCUPANCY", metric: "gpu.smOccupancy", query: true, mig: instance, scale: ratio, point: (*builder).RecordGpuSmOccupancyDataPoint, migPoint: (*builder).RecordGpuMigSmOccupancyDataPoint},
	{name: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", metric: "gpu.pipeTensorActive", query: true, mig: instance, scale: ratio, point: (*builder).RecordGpuPipeTensorActiveDataPoint, migPoint: (*builder).RecordGpuMigPipeTensorActiveDataPoint},
	{name: "DCGM_FI_PROF_DRAM_ACTIVE", metric: "gpu.dramActive", mig: instance, scale: ratio, point: (*builder).RecordGpuDramActiveDataPoint, migPoint: (*builder).RecordGpuMigDramActiveDataPoint},
	{name: "DCGM_FI_PROF_PIPE_FP64_ACTIVE", metric: "gpu.pipeFp64Active", query: true, mig: instance, scale: ratio, point: (*builder).RecordGpuPipeFp64ActiveDataPoint, migPoint: (*builder).RecordGpuMigPipeFp64ActiveDataPoint},
	{name: "DCGM_FI_PROF_PIPE_FP32_ACTIVE", metric: "gpu.pipeFp32Active", query: true, mig: instance, scale: ratio, point: (*builder).RecordGpuPipeFp32ActiveDataPoint, migPoint: (*builder).RecordGpuMigPipeFp32ActiveDataPoint},
	{name: "DCGM_FI_PROF_PIPE_FP16_ACTIVE", metric: "gpu.pipeFp16Active", query: true, mig: instance, scale: ratio, point: (*builder).RecordGpuPipeFp16ActiveDataPoint, migPoint: (*builder).RecordGpuMigPipeFp16ActiveDataPoint},
}

// value converts a figure of DCGM. It is none when it is below or above what it can
// be.
func (f *field) value(v float64) (float64, bool) {
	if v < 0 || (v == 0 && f.positive) || (f.most > 0 && v > f.most) {
		return 0, false
	}
	if f.scale > 0 {
		v *= f.scale
	}
	return v, !math.IsInf(v, 1)
}

// isBlank tells DCGM's words for "not available" from figures: int64 from
// 9223372036854775792 to ..795, which as a float64 are all 2^63; int32 from
// 2147483632 to ..635; of fp64 2^47 to 2^47+3. What is not finite is none either.
func isBlank(v float64) bool {
	const (
		blank64, blank32, blankFloat = 1 << 63, 1<<31 - 16, 1 << 47
		// kinds is how many there are of each: blank, not found, not supported, not permitted.
		kinds = 4
	)
	return math.IsNaN(v) || math.IsInf(v, 0) || v == blank64 ||
		(v >= blank32 && v < blank32+kinds) || (v >= blankFloat && v < blankFloat+kinds)
}
