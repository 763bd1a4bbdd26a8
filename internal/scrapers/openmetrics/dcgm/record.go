// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

const (
	nvidia = metadata.AttributeGpuVendorNvidia
	// maxCount is the first number that an int64 has no room for.
	maxCount = 1 << 63
)

func (m *Mapper) record(now pcommon.Timestamp, d *device) {
	m.describe(d)
	for id := range fieldID(len(fields)) {
		f := &fields[id]
		v, ok := d.get(id)
		if !ok {
			continue
		}
		if f.sum {
			m.begin(d, f, v, now.AsTime())
		}
		switch {
		case f.point != nil:
			f.point(m.builder, now, v, d.index, nvidia, d.options...)
		case f.count != nil:
			m.recordCount(f.count, now, v, d)
		}
	}
	m.recordPowerPercent(now, d)
	m.recordMemory(now, d, m.memoryOf(d), onBoard)
	for _, i := range d.instances {
		m.recordInstance(now, i)
	}
}

func (m *Mapper) recordInstance(now pcommon.Timestamp, d *device) {
	m.describe(d)
	for id := range fieldID(len(fields)) {
		if v, ok := d.get(id); ok && fields[id].migPoint != nil {
			fields[id].migPoint(m.builder, now, v, d.index, nvidia, d.options...)
		}
	}
	m.recordMemory(now, d, m.memoryOf(d), onInstance)
}

// recordCount drops what is too large for a whole number.
func (m *Mapper) recordCount(to recordCount, now pcommon.Timestamp, v float64, d *device) {
	if v < maxCount {
		to(m.builder, now, int64(math.Round(v)), d.index, nvidia, d.options...)
	}
}

// begin sets the start time of the next point of a counter.
func (m *Mapper) begin(d *device, f *field, value float64, now time.Time) {
	start := m.counters.Start(d.counterKey, f.name, value, now)
	if !start.Equal(m.start) {
		m.start = start
		m.builder.Reset(metadata.WithStartTime(pcommon.NewTimestampFromTime(start)))
	}
}

func (m *Mapper) recordPowerPercent(now pcommon.Timestamp, d *device) {
	watts, ok := d.get(powerUsage)
	limit, known := d.get(powerLimit)
	if percent := 100 * watts / limit; ok && known && !math.IsInf(percent, 1) {
		m.builder.RecordGpuPowerPercentDataPoint(now, percent, d.index, nvidia, d.options...)
	}
}

// memory is in bytes.
type memory struct {
	used, total optional.Of[float64]
}

// memoryRecorders record the memory of a board, or of an instance.
type memoryRecorders struct {
	percent     recordPoint
	used, total recordCount
}

var (
	onBoard = &memoryRecorders{
		percent: (*builder).RecordGpuMemoryAllocatedDataPoint,
		used:    (*builder).RecordGpuMemoryAllocatedBytesDataPoint, total: (*builder).RecordGpuMemoryTotalDataPoint,
	}
	onInstance = &memoryRecorders{
		percent: (*builder).RecordGpuMigMemoryAllocatedDataPoint,
		used:    (*builder).RecordGpuMigMemoryAllocatedBytesDataPoint, total: (*builder).RecordGpuMigMemoryTotalDataPoint,
	}
)

// memoryOf puts a device's memory together. Its own figures go before what its
// instances and its parts add up to; the parts of a board are not those of its
// instances, for what is not handed out is in none.
func (m *Mapper) memoryOf(d *device) memory {
	used, total := d.figure(memoryUsed), d.figure(memoryTotal)
	free := d.figure(memoryFree)
	if m.source == Exporter && !total.Known && used.Known && free.Known {
		total = optional.Some(used.Value + free.Value + d.figure(memoryReserved).Value)
	}
	if !used.Known {
		used = d.usedByInstances()
	}
	return memory{used, total}
}

// figure returns a figure, 0 where there is none.
func (d *device) figure(id fieldID) optional.Of[float64] {
	if v, ok := d.get(id); ok {
		return optional.Some(v)
	}
	return optional.Of[float64]{}
}

// usedByInstances is known when it is of all of them.
func (d *device) usedByInstances() optional.Of[float64] {
	sum := 0.0
	for _, i := range d.instances {
		v, ok := i.get(memoryUsed)
		if !ok {
			return optional.Of[float64]{}
		}
		sum += v
	}
	return optional.If(sum, len(d.instances) > 0)
}

// recordMemory records nothing that contradicts itself. The query has no percentage.
func (m *Mapper) recordMemory(now pcommon.Timestamp, d *device, of memory, to *memoryRecorders) {
	used, total := of.used, of.total
	if total.Known && (total.Value == 0 || used.Value > total.Value) {
		return
	}
	if used.Known {
		m.recordCount(to.used, now, used.Value, d)
	}
	if total.Known {
		m.recordCount(to.total, now, total.Value, d)
	}
	if used.Known && total.Known && m.source == Exporter {
		to.percent(m.builder, now, 100*used.Value/total.Value, d.index, nvidia, d.options...)
	}
}
