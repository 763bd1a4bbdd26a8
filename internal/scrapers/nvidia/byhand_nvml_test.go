// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// byHand makes the calls of a scrape, and its points, as one would who writes
// just that: no library that may lack a function, no fault to be told, no hang,
// no choice of metrics. It is what the family's cost is measured against.
type byHand struct {
	nvml     nvml.Interface
	extended bool
	payload  pmetric.Metrics
	// shells are the metrics without points, by their names.
	shells map[string]shell
	order  []string
	start  pcommon.Timestamp
	names  map[int]string
	gpm    map[int]nvml.GpmSample
	spare  map[int]nvml.GpmSample
	set    nvml.EventSet
	ask    nvml.GpmMetricsGetType

	// The rest is of one scrape.
	points   map[string]pmetric.NumberDataPointSlice
	now      pcommon.Timestamp
	noPoints bool
}

// shell describes a metric.
type shell struct {
	name, description, unit string
	isSum, isMonotonic      bool
}

// newByHand makes what a payload of the family has.
func newByHand(t testing.TB, md pmetric.Metrics, extended bool) *byHand {
	t.Helper()
	h := &byHand{
		nvml: process.nvml, extended: extended, payload: md, shells: map[string]shell{},
		names: map[int]string{}, gpm: map[int]nvml.GpmSample{}, spare: map[int]nvml.GpmSample{},
		points: map[string]pmetric.NumberDataPointSlice{},
	}
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		s := shell{name: m.Name(), description: m.Description(), unit: m.Unit(), isSum: m.Type() == pmetric.MetricTypeSum}
		s.isMonotonic = s.isSum && m.Sum().IsMonotonic()
		h.shells[s.name] = s
		h.order = append(h.order, s.name)
	}
	if extended {
		set, ret := h.nvml.EventSetCreate()
		require.Equal(t, nvml.SUCCESS, ret)
		h.set = set
	}
	return h
}

func (h *byHand) free(t testing.TB) {
	t.Helper()
	for _, samples := range []map[int]nvml.GpmSample{h.gpm, h.spare} {
		for _, s := range samples {
			assert.Equal(t, nvml.SUCCESS, h.nvml.GpmSampleFree(s))
		}
	}
	if h.set != nil {
		assert.Equal(t, nvml.SUCCESS, h.set.Free())
	}
}

// scrape reads all GPUs and makes the payload.
func (h *byHand) scrape(now time.Time) pmetric.Metrics {
	h.now = pcommon.NewTimestampFromTime(now)
	if h.start == 0 {
		h.start = h.now
	}
	count, _ := h.nvml.DeviceGetCount()
	md := h.begin(count)
	h.readAll(count)
	return md
}

func (h *byHand) readAll(count int) {
	if h.extended {
		_, _ = h.set.Wait(0)
	}
	for i := range count {
		if d, ret := h.nvml.DeviceGetHandleByIndex(i); ret == nvml.SUCCESS {
			h.device(i, d)
		}
	}
}

// callsAlone makes the same calls, and no points.
func (h *byHand) callsAlone() {
	h.noPoints = true
	count, _ := h.nvml.DeviceGetCount()
	h.readAll(count)
	h.noPoints = false
}

// begin makes the metrics, with room for the points of each GPU.
func (h *byHand) begin(gpus int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	from := h.payload.ResourceMetrics().At(0)
	rm := md.ResourceMetrics().AppendEmpty()
	from.Resource().CopyTo(rm.Resource())
	rm.SetSchemaUrl(from.SchemaUrl())
	scope := rm.ScopeMetrics().AppendEmpty()
	from.ScopeMetrics().At(0).Scope().CopyTo(scope.Scope())
	scope.Metrics().EnsureCapacity(len(h.order))
	for _, name := range h.order {
		s := h.shells[name]
		m := scope.Metrics().AppendEmpty()
		m.SetName(s.name)
		m.SetDescription(s.description)
		m.SetUnit(s.unit)
		var points pmetric.NumberDataPointSlice
		if s.isSum {
			sum := m.SetEmptySum()
			sum.SetIsMonotonic(s.isMonotonic)
			sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			points = sum.DataPoints()
		} else {
			points = m.SetEmptyGauge().DataPoints()
		}
		points.EnsureCapacity(gpus)
		h.points[name] = points
	}
	return md
}

// card is a GPU while it is read.
type card struct {
	*byHand
	index      int64
	uuid, name string
}

func (c *card) point(metric string, more int) pmetric.NumberDataPoint {
	p := c.points[metric].AppendEmpty()
	p.SetTimestamp(c.now)
	p.SetStartTimestamp(c.start)
	a := p.Attributes()
	a.EnsureCapacity(4 + more)
	a.PutInt("gpu_index", c.index)
	a.PutStr("gpu_vendor", "nvidia")
	a.PutStr("gpu_uuid", c.uuid)
	a.PutStr("gpu_model", c.name)
	return p
}

func (c *card) float(metric string, v float64) {
	if !c.noPoints {
		c.point(metric, 0).SetDoubleValue(v)
	}
}

func (c *card) int(metric string, v int64) {
	if !c.noPoints {
		c.point(metric, 0).SetIntValue(v)
	}
}

func (c *card) tagged(metric, key, value string, v int64) {
	if c.noPoints {
		return
	}
	p := c.point(metric, 1)
	p.SetIntValue(v)
	p.Attributes().PutStr(key, value)
}

func (h *byHand) device(i int, d nvml.Device) {
	c := &card{byHand: h, index: int64(i)}
	c.uuid, _ = d.GetUUID()
	if h.names[i] == "" {
		h.names[i], _ = d.GetName()
	}
	c.name = h.names[i]
	_, _, _ = d.GetMigMode()
	if u, ret := d.GetUtilizationRates(); ret == nvml.SUCCESS {
		c.float("gpu.gpu", float64(u.Gpu))
		c.float("gpu.memory", float64(u.Memory))
	}
	if v, _, ret := d.GetEncoderUtilization(); ret == nvml.SUCCESS {
		c.float("gpu.encoderUtilization", float64(v))
	}
	if m, ret := d.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
		c.float("gpu.memoryAllocated", 100*float64(m.Used)/float64(m.Total))
		c.int("gpu.memoryAllocatedBytes", int64(m.Used))
		if h.extended {
			c.int("gpu.memoryTotal", int64(m.Total))
		}
	}
	if v, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		c.float("gpu.temp", float64(v))
	}
	c.power(d)
	c.clocks(d)
	if h.extended {
		c.health(d)
		c.profile(i, d)
	}
}

func (c *card) power(d nvml.Device) {
	watts, ret := d.GetPowerUsage()
	if ret == nvml.SUCCESS {
		c.float("gpu.powerWatts", float64(watts)/1000)
	}
	if limit, ret := d.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		c.float("gpu.powerPercent", 100*float64(watts)/float64(limit))
		if c.extended {
			c.float("gpu.enforcedPowerLimitWatts", float64(limit)/1000)
		}
	}
}

func (c *card) clocks(d nvml.Device) {
	if v, ret := d.GetClockInfo(nvml.CLOCK_GRAPHICS); ret == nvml.SUCCESS {
		c.int("gpu.graphicsClock", int64(v))
	}
	if v, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		c.int("gpu.smClock", int64(v))
	}
	if v, ret := d.GetClockInfo(nvml.CLOCK_MEM); ret == nvml.SUCCESS {
		c.int("gpu.memoryClock", int64(v))
	}
	if v, ret := d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_DEVICE_MEMORY); ret == nvml.SUCCESS {
		c.int("gpu.correctedMemoryErrors", int64(v))
	}
	if v, ret := d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC, nvml.MEMORY_LOCATION_DEVICE_MEMORY); ret == nvml.SUCCESS {
		c.int("gpu.unCorrectedMemoryErrors", int64(v))
	}
}

func (c *card) health(d nvml.Device) {
	if v, ret := d.GetFanSpeed(); ret == nvml.SUCCESS {
		c.float("gpu.fanSpeed", float64(v))
	}
	if v, ret := d.GetCurrPcieLinkGeneration(); ret == nvml.SUCCESS {
		c.int("gpu.pcieLinkGen", int64(v))
	}
	if v, ret := d.GetCurrPcieLinkWidth(); ret == nvml.SUCCESS {
		c.int("gpu.pcieLinkWidth", int64(v))
	}
	if v, ret := d.GetMaxPcieLinkGeneration(); ret == nvml.SUCCESS {
		c.int("gpu.maxPcieLinkGen", int64(v))
	}
	if v, ret := d.GetMaxPcieLinkWidth(); ret == nvml.SUCCESS {
		c.int("gpu.maxPcieLinkWidth", int64(v))
	}
	if v, ret := d.GetPcieSpeed(); ret == nvml.SUCCESS {
		c.int("gpu.pcieLinkSpeed", int64(v)*1e6)
	}
	if v, ret := d.GetTotalEnergyConsumption(); ret == nvml.SUCCESS {
		c.float("gpu.energy", float64(v)/1000)
	}
	if v, ret := d.GetPcieReplayCounter(); ret == nvml.SUCCESS {
		c.int("gpu.pcieReplays", int64(v))
	}
	if corrected, uncorrected, pending, failed, ret := d.GetRemappedRows(); ret == nvml.SUCCESS {
		c.tagged("gpu.remappedRows", "cause", "corrected", int64(corrected))
		c.tagged("gpu.remappedRows", "cause", "uncorrected", int64(uncorrected))
		c.int("gpu.rowRemapPending", gpus.ZeroOrOne(pending))
		c.int("gpu.rowRemapFailed", gpus.ZeroOrOne(failed))
	}
	if v, ret := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS); ret == nvml.SUCCESS {
		c.tagged("gpu.retiredPages", "cause", "single_bit", int64(len(v)))
	}
	if v, ret := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR); ret == nvml.SUCCESS {
		c.tagged("gpu.retiredPages", "cause", "double_bit", int64(len(v)))
	}
	if v, ret := d.GetRetiredPagesPendingStatus(); ret == nvml.SUCCESS {
		c.int("gpu.retiredPagesPending", gpus.ZeroOrOne(v == nvml.FEATURE_ENABLED))
	}
	reasons, ret := d.GetCurrentClocksEventReasons()
	supported, _ := d.GetSupportedClocksEventReasons()
	for _, r := range reasonBits {
		if ret == nvml.SUCCESS && supported&r.bit != 0 {
			c.tagged("gpu.clockEventActive", "reason", r.reason.String(), gpus.ZeroOrOne(reasons&r.bit != 0))
		}
	}
}

// profileNames are the metrics of gpmAll.
var profileNames = []string{
	"gpu.smActive", "gpu.smOccupancy", "gpu.pipeTensorActive", "gpu.pipeTensorHmmaActive", "gpu.dramActive",
	"gpu.pipeFp64Active", "gpu.pipeFp32Active", "gpu.pipeFp16Active",
	"gpu.pcieTxBytes", "gpu.pcieRxBytes", "gpu.nvlinkRxBytes", "gpu.nvlinkTxBytes",
}

// profile takes a sample and compares it with the last one.
func (c *card) profile(i int, d nvml.Device) {
	sample := c.spare[i]
	if sample == nil {
		sample, _ = c.nvml.GpmSampleAlloc()
	}
	if d.GpmSampleGet(sample) != nvml.SUCCESS {
		return
	}
	last := c.gpm[i]
	c.gpm[i], c.spare[i] = sample, last
	if last == nil {
		return
	}
	q := &c.ask
	q.NumMetrics, q.Sample1, q.Sample2 = uint32(len(gpmAll)), last, sample
	for k, id := range gpmAll {
		q.Metrics[k].MetricId = id
	}
	if c.nvml.GpmMetricsGet(q) != nvml.SUCCESS {
		return
	}
	for k, name := range profileNames {
		v := q.Metrics[k].Value
		if k >= len(gpmPercent) {
			v *= mebi
		}
		c.float(name, v)
	}
}

// What the family's cost is measured against makes the same calls and the same
// points.
func TestByHand(t *testing.T) {
	for _, extended := range []bool{false, true} {
		t.Run("extended="+strconv.FormatBool(extended), func(t *testing.T) {
			r := newRig(t, 2, rigOptions{extended: extended})
			_, _ = r.scrape()
			md, err := r.scrapeWithin(t.Context())
			require.NoError(t, err)
			calls := r.calls()
			h := newByHand(t, md, extended)
			defer h.free(t)
			_ = h.scrape(r.now().Add(-time.Second))
			r.clearCalls()
			same := h.scrape(r.now())
			byHand := r.calls()
			slices.Sort(calls)
			slices.Sort(byHand)
			assert.Equal(t, calls, byHand)
			assert.ElementsMatch(t, describe(md), describe(same))
		})
	}
}

// describe lists the points with all but their start, which gauges have none of
// that means anything.
func describe(md pmetric.Metrics) []string {
	var lines []string
	for _, p := range scraperstest.PointsOf(md) {
		lines = append(lines, strconv.FormatFloat(p.Value(), 'g', -1, 64)+" "+p.Key()+" "+p.Data.Timestamp().String()+" "+
			p.Data.ValueType().String()+" "+p.Metric.Type().String()+" "+p.Metric.Unit()+" "+p.Metric.Description())
	}
	return lines
}
