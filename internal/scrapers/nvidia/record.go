// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"math"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

const (
	mebi       = 1 << 20
	megabit    = 1e6
	milli      = 1000.0
	allOnes32  = 1<<32 - 1
	maxPercent = 100
	// Figures from here on are no figures, whatever the driver says.
	maxFan         = 255
	maxTemperature = 200
	maxMilliwatts  = 10_000_000
)

const nvidia = metadata.AttributeGpuVendorNvidia

// attributes are what the points of a GPU carry beside its number and vendor.
type attributes struct {
	uuid, name string
	// options are those of all points; unified are those of memory that is the
	// machine's.
	options, unified []metadata.MetricAttributeOption
}

func newAttributes(uuid, name string) *attributes {
	options := make([]metadata.MetricAttributeOption, 0, 3)
	if uuid != "" {
		options = append(options, metadata.WithGpuUUIDMetricAttribute(uuid))
	}
	if name != "" {
		options = append(options, metadata.WithGpuModelMetricAttribute(name))
	}
	unified := append(slices.Clone(options), metadata.WithMemoryUnifiedMetricAttribute(true))
	return &attributes{uuid: uuid, name: name, options: options, unified: unified}
}

// remember gives each device its attributes. They are made anew only where the
// last reading had another device in its place.
func (s *gpuScraper) remember(r *reading) {
	for i := range r.devices {
		d := &r.devices[i]
		if i == len(s.attributes) {
			s.attributes = append(s.attributes, newAttributes(d.uuid, d.name))
		}
		if last := s.attributes[i]; last.uuid != d.uuid || last.name != d.name {
			s.attributes[i] = newAttributes(d.uuid, d.name)
		}
		d.attributes = s.attributes[i]
	}
}

// memoryOptions mark the memory that is the machine's.
func (d *deviceReading) memoryOptions() []metadata.MetricAttributeOption {
	if d.usage.Value.unified {
		return d.attributes.unified
	}
	return d.attributes.options
}

// key names the device whatever its number is.
func (d *deviceReading) key() string {
	if d.uuid != "" {
		return d.uuid
	}
	return "index " + strconv.Itoa(d.index)
}

// percentOf drops what no percentage can be.
func percentOf(v optional.Of[uint32], most uint32) (float64, bool) {
	return float64(v.Value), v.Known && v.Value <= most
}

// watts returns the power draw.
func (d *deviceReading) watts() (float64, bool) {
	return float64(d.power.Value) / milli, d.power.Known && d.power.Value < maxMilliwatts
}

// limitWatts returns the power limit in force.
func (d *deviceReading) limitWatts() (float64, bool) {
	l := d.powerLimit
	return float64(l.Value) / milli, l.Known && l.Value > 0 && l.Value < maxMilliwatts
}

func (d *deviceReading) powerPercent() (float64, bool) {
	watts, ok := d.watts()
	limit, known := d.limitWatts()
	if !ok || !known {
		return 0, false
	}
	return 100 * watts / limit, true
}

// makesSense tells a reading of memory from rubbish.
func makesSense(m optional.Of[memoryReading]) bool {
	return m.Known && m.Value.total > 0 && m.Value.total <= math.MaxInt64 && m.Value.used <= m.Value.total
}

func (m memoryReading) percent() float64 { return 100 * float64(m.used) / float64(m.total) }

func (s *gpuScraper) recordDevice(now pcommon.Timestamp, d *deviceReading) {
	options := d.attributes.options
	recordFigures(now, d, &s.onMachine)
	if makesSense(d.usage) {
		s.builder.RecordGpuMemoryTotalDataPoint(now, int64(d.usage.Value.total), int64(d.index), nvidia, d.memoryOptions()...)
	}
	s.recordErrors(now, d, &s.onMachine)
	s.recordHealth(now, d, options)
	recordProfile(now, s.gpuProfile, d.profile, int64(d.index), options)
	s.recordInstances(now, d)
}

// recordFigures records all but the counters, which have start times.
func recordFigures(now pcommon.Timestamp, d *deviceReading, to *gpus.Recorders) {
	i, options := int64(d.index), d.attributes.options
	if v, ok := percentOf(d.gpu, maxPercent); ok {
		to.GPU(now, v, i, nvidia, options...)
	}
	if v, ok := percentOf(d.memory, maxPercent); ok {
		to.Memory(now, v, i, nvidia, options...)
	}
	if v, ok := percentOf(d.encoder, maxPercent); ok {
		to.Encoder(now, v, i, nvidia, options...)
	}
	if v, ok := percentOf(d.temperature, maxTemperature); ok {
		to.Temp(now, v, i, nvidia, options...)
	}
	if makesSense(d.usage) {
		m, memoryOptions := d.usage.Value, d.memoryOptions()
		to.MemoryAllocated(now, m.percent(), i, nvidia, memoryOptions...)
		to.MemoryAllocatedBytes(now, int64(m.used), i, nvidia, memoryOptions...)
	}
	if v, ok := d.watts(); ok {
		to.PowerWatts(now, v, i, nvidia, options...)
	}
	if v, ok := d.powerPercent(); ok {
		to.PowerPercent(now, v, i, nvidia, options...)
	}
	if v, ok := d.limitWatts(); ok {
		to.PowerLimit(now, v, i, nvidia, options...)
	}
	if c := d.clocks.graphics; c.Known {
		to.GraphicsClock(now, int64(c.Value), i, nvidia, options...)
	}
	if c := d.clocks.sm; c.Known {
		to.SMClock(now, int64(c.Value), i, nvidia, options...)
	}
	if c := d.clocks.memory; c.Known {
		to.MemoryClock(now, int64(c.Value), i, nvidia, options...)
	}
}

// begin sets the start time of the next point of a counter of a device.
func (s *gpuScraper) begin(d *deviceReading, name string, value float64) {
	s.startAt(s.counters.Start(d.key(), name, value, d.at))
}

// startAt sets the start time of the next points. Most counters of a device have
// the same.
func (s *gpuScraper) startAt(start time.Time) {
	if !start.Equal(s.start) {
		s.start = start
		s.builder.Reset(metadata.WithStartTime(pcommon.NewTimestampFromTime(start)))
	}
}

func (s *gpuScraper) recordErrors(now pcommon.Timestamp, d *deviceReading, to *gpus.Recorders) {
	if e := d.corrected; e.Known {
		s.begin(d, "corrected", float64(e.Value))
		to.CorrectedMemoryErrors(now, int64(e.Value), int64(d.index), nvidia, d.attributes.options...)
	}
	if e := d.uncorrected; e.Known {
		s.begin(d, "uncorrected", float64(e.Value))
		to.UncorrectedMemoryErrors(now, int64(e.Value), int64(d.index), nvidia, d.attributes.options...)
	}
}

func (s *gpuScraper) recordHealth(now pcommon.Timestamp, d *deviceReading, options []metadata.MetricAttributeOption) {
	b, i, h := s.builder, int64(d.index), &d.health
	if v, ok := percentOf(h.fan, maxFan); ok {
		b.RecordGpuFanSpeedDataPoint(now, v, i, nvidia, options...)
	}
	if h.linkGen.Known {
		b.RecordGpuPcieLinkGenDataPoint(now, int64(h.linkGen.Value), i, nvidia, options...)
	}
	if h.linkWidth.Known {
		b.RecordGpuPcieLinkWidthDataPoint(now, int64(h.linkWidth.Value), i, nvidia, options...)
	}
	if h.maxGen.Known {
		b.RecordGpuMaxPcieLinkGenDataPoint(now, int64(h.maxGen.Value), i, nvidia, options...)
	}
	if h.maxWidth.Known {
		b.RecordGpuMaxPcieLinkWidthDataPoint(now, int64(h.maxWidth.Value), i, nvidia, options...)
	}
	if h.linkSpeed.Known {
		b.RecordGpuPcieLinkSpeedDataPoint(now, int64(h.linkSpeed.Value)*megabit, i, nvidia, options...)
	}
	if h.energy.Known {
		joules := float64(h.energy.Value) / milli
		s.begin(d, "energy", joules)
		b.RecordGpuEnergyDataPoint(now, joules, i, nvidia, options...)
	}
	if h.replays.Known {
		s.begin(d, "replays", float64(h.replays.Value))
		b.RecordGpuPcieReplaysDataPoint(now, int64(h.replays.Value), i, nvidia, options...)
	}
	s.recordMemoryHealth(now, d, options)
	s.recordReasons(now, d, options)
	s.recordXIDs(now, d, options)
}

func (s *gpuScraper) recordMemoryHealth(now pcommon.Timestamp, d *deviceReading, options []metadata.MetricAttributeOption) {
	b, i, h := s.builder, int64(d.index), &d.health
	if h.remapped.Known {
		r := h.remapped.Value
		s.begin(d, "remapped corrected", float64(r.corrected))
		b.RecordGpuRemappedRowsDataPoint(now, int64(r.corrected), i, metadata.AttributeCauseCorrected, nvidia, options...)
		s.begin(d, "remapped uncorrected", float64(r.uncorrected))
		b.RecordGpuRemappedRowsDataPoint(now, int64(r.uncorrected), i, metadata.AttributeCauseUncorrected, nvidia, options...)
		b.RecordGpuRowRemapPendingDataPoint(now, gpus.ZeroOrOne(r.pending), i, nvidia, options...)
		b.RecordGpuRowRemapFailedDataPoint(now, gpus.ZeroOrOne(r.failed), i, nvidia, options...)
	}
	if h.retiredSingle.Known {
		s.begin(d, "retired single", float64(h.retiredSingle.Value))
		b.RecordGpuRetiredPagesDataPoint(now, int64(h.retiredSingle.Value), i, metadata.AttributeCauseSingleBit, nvidia, options...)
	}
	if h.retiredDouble.Known {
		s.begin(d, "retired double", float64(h.retiredDouble.Value))
		b.RecordGpuRetiredPagesDataPoint(now, int64(h.retiredDouble.Value), i, metadata.AttributeCauseDoubleBit, nvidia, options...)
	}
	if h.retiredPending.Known {
		b.RecordGpuRetiredPagesPendingDataPoint(now, gpus.ZeroOrOne(h.retiredPending.Value), i, nvidia, options...)
	}
}

// reasonBits are NVML's reasons for clocks that are held down.
var reasonBits = []struct {
	bit    uint64
	reason metadata.AttributeClockEventReason
}{
	{0x1, metadata.AttributeClockEventReasonGpuIdle},
	{0x2, metadata.AttributeClockEventReasonAppClocks},
	{0x4, metadata.AttributeClockEventReasonSwPowerCap},
	{0x8, metadata.AttributeClockEventReasonHwSlowdown},
	{0x10, metadata.AttributeClockEventReasonSyncBoost},
	{0x20, metadata.AttributeClockEventReasonSwThermal},
	{0x40, metadata.AttributeClockEventReasonHwThermal},
	{0x80, metadata.AttributeClockEventReasonHwPowerBrake},
	{0x100, metadata.AttributeClockEventReasonDisplay},
}

// recordReasons records each reason that the driver supports; all of them where
// it does not say which.
func (s *gpuScraper) recordReasons(now pcommon.Timestamp, d *deviceReading, options []metadata.MetricAttributeOption) {
	now64, supported := d.health.reasons, d.health.supportedReasons
	if !now64.Known {
		return
	}
	for _, r := range reasonBits {
		if supported.Known && supported.Value&r.bit == 0 {
			continue
		}
		s.builder.RecordGpuClockEventActiveDataPoint(now, gpus.ZeroOrOne(now64.Value&r.bit != 0), int64(d.index), r.reason, nvidia, options...)
	}
}

func (s *gpuScraper) recordXIDs(now pcommon.Timestamp, d *deviceReading, options []metadata.MetricAttributeOption) {
	if len(d.health.xids) == 0 {
		return
	}
	s.startAt(d.health.xidsSince)
	for xid, count := range d.health.xids {
		s.builder.RecordGpuXidErrorsDataPoint(now, int64(count), int64(d.index), int64(xid), nvidia, options...)
	}
}

// GPM's metrics by their numbers.
const (
	gpmSMActive    = 2
	gpmSMOccupancy = 3
	gpmTensor      = 5
	gpmTensorHMMA  = 7
	gpmDRAM        = 10
	gpmFP64        = 11
	gpmFP32        = 12
	gpmFP16        = 13
	gpmPCIeTx      = 20
	gpmPCIeRx      = 21
	gpmNVLinkRx    = 60
	gpmNVLinkTx    = 61
)

// gpmPercent and gpmRates are the metrics that are asked for: of each GPU, and of
// MIG instances the first only.
var (
	gpmPercent = []uint32{gpmSMActive, gpmSMOccupancy, gpmTensor, gpmTensorHMMA, gpmDRAM, gpmFP64, gpmFP32, gpmFP16}
	gpmRates   = []uint32{gpmPCIeTx, gpmPCIeRx, gpmNVLinkRx, gpmNVLinkTx}
	gpmAll     = slices.Concat(gpmPercent, gpmRates)
)

// profileMetric is a metric that GPM gives.
type profileMetric struct {
	id     uint32
	scale  float64
	record gpus.RecordPoint
}

// gpuProfile are those of a GPU, instanceProfile those of an MIG instance.
func gpuProfile(b *metadata.MetricsBuilder) []profileMetric {
	return []profileMetric{
		{gpmSMActive, 1, b.RecordGpuSmActiveDataPoint},
		{gpmSMOccupancy, 1, b.RecordGpuSmOccupancyDataPoint},
		{gpmTensor, 1, b.RecordGpuPipeTensorActiveDataPoint},
		{gpmTensorHMMA, 1, b.RecordGpuPipeTensorHmmaActiveDataPoint},
		{gpmDRAM, 1, b.RecordGpuDramActiveDataPoint},
		{gpmFP64, 1, b.RecordGpuPipeFp64ActiveDataPoint},
		{gpmFP32, 1, b.RecordGpuPipeFp32ActiveDataPoint},
		{gpmFP16, 1, b.RecordGpuPipeFp16ActiveDataPoint},
		{gpmPCIeTx, mebi, b.RecordGpuPcieTxBytesDataPoint},
		{gpmPCIeRx, mebi, b.RecordGpuPcieRxBytesDataPoint},
		{gpmNVLinkTx, mebi, b.RecordGpuNvlinkTxBytesDataPoint},
		{gpmNVLinkRx, mebi, b.RecordGpuNvlinkRxBytesDataPoint},
	}
}

func instanceProfile(b *metadata.MetricsBuilder) []profileMetric {
	return []profileMetric{
		{gpmSMActive, 1, b.RecordGpuMigSmActiveDataPoint},
		{gpmSMOccupancy, 1, b.RecordGpuMigSmOccupancyDataPoint},
		{gpmTensor, 1, b.RecordGpuMigPipeTensorActiveDataPoint},
		{gpmTensorHMMA, 1, b.RecordGpuMigPipeTensorHmmaActiveDataPoint},
		{gpmDRAM, 1, b.RecordGpuMigDramActiveDataPoint},
		{gpmFP64, 1, b.RecordGpuMigPipeFp64ActiveDataPoint},
		{gpmFP32, 1, b.RecordGpuMigPipeFp32ActiveDataPoint},
		{gpmFP16, 1, b.RecordGpuMigPipeFp16ActiveDataPoint},
	}
}

// recordProfile records what there is of some metrics.
func recordProfile(now pcommon.Timestamp, metrics []profileMetric, r profileReading, index int64, options []metadata.MetricAttributeOption) {
	for _, m := range metrics {
		if v, ok := r.of(m.id); ok {
			m.record(now, v*m.scale, index, nvidia, options...)
		}
	}
}

func (s *gpuScraper) recordInstances(now pcommon.Timestamp, d *deviceReading) {
	if !s.mig {
		return
	}
	b, i := s.builder, int64(d.index)
	for k := range d.instances {
		m := &d.instances[k]
		options := m.options(d)
		if makesSense(m.usage) {
			u := m.usage.Value
			b.RecordGpuMigMemoryAllocatedDataPoint(now, u.percent(), i, nvidia, options...)
			b.RecordGpuMigMemoryAllocatedBytesDataPoint(now, int64(u.used), i, nvidia, options...)
			b.RecordGpuMigMemoryTotalDataPoint(now, int64(u.total), i, nvidia, options...)
		}
		recordProfile(now, s.instanceProfile, m.metrics, i, options)
	}
}

// options are the attributes of an instance; its uuid stands for the board's.
func (m *instanceReading) options(d *deviceReading) []metadata.MetricAttributeOption {
	options := make([]metadata.MetricAttributeOption, 0, 5)
	if m.uuid != "" {
		options = append(options, metadata.WithGpuUUIDMetricAttribute(m.uuid))
	}
	if d.name != "" {
		options = append(options, metadata.WithGpuModelMetricAttribute(d.name))
	}
	if m.gi >= 0 {
		options = append(options, metadata.WithMigGiMetricAttribute(int64(m.gi)))
	}
	if m.ci >= 0 {
		options = append(options, metadata.WithMigCiMetricAttribute(int64(m.ci)))
	}
	if m.profile != "" {
		options = append(options, metadata.WithMigProfileMetricAttribute(m.profile))
	}
	return options
}

// recordUser repeats the figures of the GPUs that a workload uses, on its
// resource.
func (s *gpuScraper) recordUser(now pcommon.Timestamp, u *user) {
	for _, g := range u.gpus {
		recordFigures(now, g.device, &s.onWorkload)
		s.recordErrors(now, g.device, &s.onWorkload)
		if g.memory.Known {
			s.builder.RecordGpuProcessMemoryUsedBytesDataPoint(now, int64(g.memory.Value), int64(g.device.index), nvidia, g.device.attributes.options...)
		}
	}
}
