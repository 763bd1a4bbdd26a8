// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

const amd = metadata.AttributeGpuVendorAmd

// attributes are what the points of a GPU carry beside its number and vendor.
type attributes struct {
	uuid, model, parent string
	// options are those of most points, memory those of a partition's memory,
	// sensors those of temperatures by their sensor.
	options, memory []metadata.MetricAttributeOption
	sensors         [card.Sensors][]metadata.MetricAttributeOption
}

// sensorNames are the values of the attribute.
var sensorNames = [card.Sensors]string{card.Mem: "mem", card.Junction: "junction", card.Edge: "edge"}

func newAttributes(c *cardReading) *attributes {
	a := &attributes{uuid: c.uuid(), model: c.Model, parent: c.parent}
	if a.uuid != "" {
		a.options = append(a.options, metadata.WithGpuUUIDMetricAttribute(a.uuid))
	}
	if a.model != "" {
		a.options = append(a.options, metadata.WithGpuModelMetricAttribute(a.model))
	}
	a.memory = a.options
	if a.parent != "" {
		a.memory = append(slices.Clone(a.options), metadata.WithGpuParentMetricAttribute(a.parent))
	}
	for sensor, name := range sensorNames {
		a.sensors[sensor] = append(slices.Clone(a.options), metadata.WithSensorMetricAttribute(name))
	}
	return a
}

// uuid is the chip's own number, else its address.
func (c *cardReading) uuid() string {
	if c.UniqueID != "" {
		return c.UniqueID
	}
	return c.PCI
}

// remember gives each device its attributes. They are made anew only where the
// last reading had another device in its place.
func (s *gpuScraper) remember(r *reading) {
	for i := range r.cards {
		c := &r.cards[i]
		if i == len(s.attributes) {
			s.attributes = append(s.attributes, newAttributes(c))
		}
		if last := s.attributes[i]; last.uuid != c.uuid() || last.model != c.Model || last.parent != c.parent {
			s.attributes[i] = newAttributes(c)
		}
		c.attributes = s.attributes[i]
	}
}

// recordDevice records all figures of a GPU on the machine's resource.
func (s *gpuScraper) recordDevice(now pcommon.Timestamp, r *reading, c *cardReading) {
	s.recordFigures(now, c, &s.onMachine)
	b, i, options := s.builder, int64(c.Index), c.attributes.options
	if c.Memory.HasBytes() {
		b.RecordGpuMemoryUsedDataPoint(now, c.Memory.Used.Value, i, amd, c.attributes.memory...)
		b.RecordGpuMemoryTotalDataPoint(now, c.Memory.Total.Value, i, amd, c.attributes.memory...)
	}
	for sensor, t := range c.Temperatures {
		if t.Known {
			b.RecordGpuSensorTempDataPoint(now, t.Value, i, sensorNames[sensor], amd, options...)
		}
	}
	s.recordErrors(now, r, c, &s.onMachine)
	if c.Energy.Known {
		s.begin(r, c, "energy", c.Energy.Value)
		b.RecordGpuEnergyDataPoint(now, c.Energy.Value, i, amd, options...)
	}
	s.recordPCIe(now, r, c)
	s.recordThrottles(now, c)
}

// recordFigures records all but the counters, which have start times.
func (s *gpuScraper) recordFigures(now pcommon.Timestamp, c *cardReading, to *gpus.Recorders) {
	i, options := int64(c.Index), c.attributes.options
	record := func(f card.Float, point gpus.RecordPoint) {
		if f.Known {
			point(now, f.Value, i, amd, options...)
		}
	}
	record(c.GPU, to.GPU)
	record(c.MemoryActivity, to.MemoryReadWriteActivity)
	record(c.OverDrive, to.MemoryOverDrive)
	record(c.Power, to.PowerWatts)
	record(c.PowerPercent(), to.PowerPercent)
	if share := c.Memory.Share(); share.Known {
		to.MemoryAllocated(now, share.Value, i, amd, c.attributes.memory...)
	}
	if t, sensor := c.Temperature(); t.Known {
		to.Temp(now, t.Value, i, amd, c.attributes.sensors[sensor]...)
	}
	if !s.want.clocks { // a tool may tell them unasked
		return
	}
	if f := c.GraphicsClock; f.Known {
		to.GraphicsClock(now, f.Value, i, amd, options...)
	}
	if f := c.MemoryClock; f.Known {
		to.MemoryClock(now, f.Value, i, amd, options...)
	}
}

// begin sets the start time of the next point of a counter of a device.
func (s *gpuScraper) begin(r *reading, c *cardReading, name string, value float64) {
	start := pcommon.NewTimestampFromTime(s.counters.Start(c.key(), name, value, r.at))
	if start != s.start {
		s.start = start
		s.builder.Reset(metadata.WithStartTime(start))
	}
}

func (s *gpuScraper) recordErrors(now pcommon.Timestamp, r *reading, c *cardReading, to *gpus.Recorders) {
	if !s.want.errors {
		return
	}
	if e := c.Corrected; e.Known {
		s.begin(r, c, "corrected", float64(e.Value))
		to.CorrectedMemoryErrors(now, e.Value, int64(c.Index), amd, c.attributes.options...)
	}
	if e := c.Uncorrected; e.Known {
		s.begin(r, c, "uncorrected", float64(e.Value))
		to.UncorrectedMemoryErrors(now, e.Value, int64(c.Index), amd, c.attributes.options...)
	}
}

func (s *gpuScraper) recordPCIe(now pcommon.Timestamp, r *reading, c *cardReading) {
	b, i, p, options := s.builder, int64(c.Index), &c.PCIe, c.attributes.options
	if p.Gen.Known {
		b.RecordGpuPcieLinkGenDataPoint(now, p.Gen.Value, i, amd, options...)
	}
	if p.Width.Known {
		b.RecordGpuPcieLinkWidthDataPoint(now, p.Width.Value, i, amd, options...)
	}
	if p.MaxGen.Known {
		b.RecordGpuMaxPcieLinkGenDataPoint(now, p.MaxGen.Value, i, amd, options...)
	}
	if p.MaxWidth.Known {
		b.RecordGpuMaxPcieLinkWidthDataPoint(now, p.MaxWidth.Value, i, amd, options...)
	}
	if p.Replays.Known {
		s.begin(r, c, "replays", float64(p.Replays.Value))
		b.RecordGpuPcieReplaysDataPoint(now, p.Replays.Value, i, amd, options...)
	}
}

// reasonNames are the values of the attribute.
var reasonNames = [card.Reasons]metadata.AttributeClockEventReason{
	card.ByPower:   metadata.AttributeClockEventReasonPower,
	card.ByCurrent: metadata.AttributeClockEventReasonCurrent,
	card.ByHeat:    metadata.AttributeClockEventReasonThermal,
	card.ByOther:   metadata.AttributeClockEventReasonOther,
}

func (s *gpuScraper) recordThrottles(now pcommon.Timestamp, c *cardReading) {
	for reason, holds := range c.Throttles {
		if holds.Known {
			s.builder.RecordGpuClockEventActiveDataPoint(now, gpus.ZeroOrOne(holds.Value), int64(c.Index), reasonNames[reason], amd, c.attributes.options...)
		}
	}
}

// recordUser repeats the figures of the GPUs that a workload uses, on its
// resource.
func (s *gpuScraper) recordUser(now pcommon.Timestamp, r *reading, u *user) {
	for _, g := range u.gpus {
		s.recordFigures(now, g.card, &s.onWorkload)
		s.recordErrors(now, r, g.card, &s.onWorkload)
		if g.memory.Known {
			s.builder.RecordGpuProcessMemoryUsedBytesDataPoint(now, g.memory.Value, int64(g.card.Index), amd, g.card.attributes.memory...)
		}
	}
}
