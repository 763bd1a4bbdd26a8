// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
)

const host = "host node1"

func TestPointsBecomeRecords(t *testing.T) {
	gauge := func(name string, seconds float64, value int) pmetric.Metrics {
		return of(hostAttrs).gauge(name, seconds, value).md
	}
	for name, c := range map[string]struct {
		payloads []pmetric.Metrics
		want     []record
		dropped  map[string]int
	}{
		"several payloads of one interval are one record": {
			payloads: []pmetric.Metrics{gauge("cpu", 1, 1), gauge("disk", 2, 2), gauge("memory_percent", 15.9, 3)},
			want:     []record{{begin: 1, time: 15.9, items: []string{"cpu=1", "disk=2", "memory_percent=3"}}},
		},
		"resources of one subject are one record": {
			payloads: []pmetric.Metrics{of(hostAttrs).gauge("cpu", 1, 1).and(hostAttrs).gauge("disk", 1, 2).md},
			want:     []record{{begin: 1, time: 1, items: []string{"cpu=1", "disk=2"}}},
		},
		"a repeated tag closes the record": {
			payloads: []pmetric.Metrics{gauge("cpu", 1, 1), gauge("disk", 1, 2), gauge("cpu", 2, 3), gauge("disk", 2, 4)},
			want: []record{
				{begin: 1, time: 1, items: []string{"cpu=1", "disk=2"}},
				{begin: 2, time: 2, items: []string{"cpu=3", "disk=4"}},
			},
		},
		"an interval closes the record": {
			payloads: []pmetric.Metrics{gauge("cpu", 1, 1), gauge("disk", 16, 2)},
			want:     []record{{begin: 1, time: 1, items: []string{"cpu=1"}}, {begin: 16, time: 16, items: []string{"disk=2"}}},
		},
		"a late point joins the record that is open": {
			payloads: []pmetric.Metrics{gauge("cpu", 10, 1), gauge("disk", 1, 2)},
			want:     []record{{begin: 1, time: 10, items: []string{"cpu=1", "disk=2"}}},
		},
		"a point that is too late has a record of its own": {
			payloads: []pmetric.Metrics{gauge("cpu", 100, 1), gauge("disk", 1, 2), gauge("memory_percent", 100, 3)},
			want: []record{
				{begin: 100, time: 100, items: []string{"cpu=1"}},
				{begin: 1, time: 1, items: []string{"disk=2"}},
				{begin: 100, time: 100, items: []string{"memory_percent=3"}},
			},
		},
		"points that come ever later stay within an interval": {
			payloads: []pmetric.Metrics{gauge("cpu", 30, 1), gauge("disk", 20, 2), gauge("memory_percent", 10, 3)},
			want: []record{
				{begin: 20, time: 30, items: []string{"cpu=1", "disk=2"}},
				{begin: 10, time: 10, items: []string{"memory_percent=3"}},
			},
		},
		"a new tag before the repeated ones goes with them": {
			payloads: []pmetric.Metrics{gauge("cpu", 0, 1), of(hostAttrs).gauge("disk", 14, 2).gauge("cpu", 14, 3).md},
			want:     []record{{items: []string{"cpu=1"}}, {begin: 14, time: 14, items: []string{"disk=2", "cpu=3"}}},
		},
		"one resource with several scrapes": {
			payloads: []pmetric.Metrics{
				of(hostAttrs).gauge("cpu", 0, 1).gauge("disk", 0, 2).gauge("memory_percent", 10, 3).gauge("cpu", 10, 4).md,
			},
			want: []record{
				{items: []string{"cpu=1", "disk=2"}},
				{begin: 10, time: 10, items: []string{"memory_percent=3", "cpu=4"}},
			},
		},
		"one payload with several scrapes": {
			payloads: []pmetric.Metrics{
				of(hostAttrs).gauge("cpu", 0, 1).gauge("disk", 0, 2).
					and(hostAttrs).gauge("cpu", 15, 3).gauge("disk", 15, 4).
					and(hostAttrs).gauge("cpu", 30, 5).gauge("disk", 30, 6).md,
			},
			want: []record{
				{begin: 0, time: 0, items: []string{"cpu=1", "disk=2"}},
				{begin: 15, time: 15, items: []string{"cpu=3", "disk=4"}},
				{begin: 30, time: 30, items: []string{"cpu=5", "disk=6"}},
			},
		},
		"the later of two points with one time is written": {
			payloads: []pmetric.Metrics{gauge("cpu", 1, 1), gauge("disk", 1, 2), gauge("cpu", 1, 3)},
			want:     []record{{begin: 1, time: 1, items: []string{"cpu=3", "disk=2"}}},
			dropped:  map[string]int{Duplicate: 1},
		},
		"counters that began with the exporter begin the record": {
			payloads: []pmetric.Metrics{of(hostAttrs).gauge("cpu", 10, 1).counter("network.recv", 2, 10, 5).md},
			want:     []record{{begin: 2, time: 10, items: []string{"cpu=1", "network.recv=5 counter"}}},
		},
		"older counters do not": {
			payloads: []pmetric.Metrics{of(hostAttrs).counter("network.recv", -1000, 10, 5).md},
			want:     []record{{begin: 10, time: 10, items: []string{"network.recv=5 counter"}}},
		},
		"device's counters are values": {
			payloads: []pmetric.Metrics{of(hostAttrs).counter("gpu.correctedMemoryErrors", 2, 10, 5, "gpu_index", 3).md},
			want:     []record{{begin: 10, time: 10, items: []string{"gpu.3.correctedMemoryErrors=5"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).add(c.payloads...)
			assert.Equal(t, map[string][]record{host: c.want}, r.take())
			if c.dropped == nil {
				c.dropped = map[string]int{}
			}
			assert.Equal(t, c.dropped, r.dropped)
		})
	}
}

func TestKindsOfSums(t *testing.T) {
	type sum struct {
		temporality pmetric.AggregationTemporality
		monotonic   bool
	}
	const cumulative, delta = pmetric.AggregationTemporalityCumulative, pmetric.AggregationTemporalityDelta
	for name, c := range map[string]struct {
		metric string
		sum    sum
		want   string
	}{
		"disk":                     {"disk.in", sum{cumulative, true}, "disk.in=1 counter"},
		"disk of a device":         {"disk.device.out", sum{cumulative, true}, "disk.sda.out=1 counter"},
		"network":                  {"network.sent", sum{cumulative, true}, "network.sent=1 counter"},
		"up and down":              {"network.sent", sum{cumulative, false}, "network.sent=1"},
		"of no temporality":        {"network.sent", sum{monotonic: true}, "network.sent=1 counter"},
		"delta":                    {"network.sent", sum{delta, true}, "network.sent=1 delta"},
		"delta of a device's":      {"gpu.nvlinkRxBytes", sum{delta, true}, "gpu.0.nvlinkRxBytes=1 delta"},
		"delta of an unknown":      {"my.count", sum{delta, true}, "my.count/l:device=sda,gpu_index=0=1 delta"},
		"unknown, named as a disk": {"disk.own", sum{cumulative, true}, "disk.own/l:device=sda,gpu_index=0=1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := of(hostAttrs)
			m := s.metric(c.metric).SetEmptySum()
			m.SetAggregationTemporality(c.sum.temporality)
			m.SetIsMonotonic(c.sum.monotonic)
			setPoint(m.DataPoints().AppendEmpty(), at(0), 1, []any{"device", "sda", "gpu_index", 0})
			assert.Equal(t, []string{c.want}, keys(newRig(t, unknownToo).add(s.md).take()[host]))
		})
	}
}

func TestTimesThatNoClockHasShown(t *testing.T) {
	for name, ts := range map[string]pcommon.Timestamp{
		"none": 0, "beyond the largest": math.MaxInt64 + 1, "the largest of all": math.MaxUint64,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.now = began.Add(5 * time.Second)
			s := of(hostAttrs).gauge("disk", 4, 2)
			setPoint(s.metric("cpu").SetEmptyGauge().DataPoints().AppendEmpty(), ts, 1, nil)
			assert.Equal(t, []record{{begin: 4, time: 5, items: []string{"disk=2", "cpu=1"}}}, r.add(s.md).take()[host])
		})
	}
	t.Run("far apart", func(t *testing.T) {
		s := of(hostAttrs)
		for i, ts := range []pcommon.Timestamp{1, math.MaxInt64, 1, at(0)} {
			setPoint(s.metric("network."+[]string{"recv", "sent", "recv", "sent"}[i]).SetEmptyGauge().DataPoints().AppendEmpty(), ts, 1, nil)
		}
		records := newRig(t).add(s.md).take()[host]
		require.Len(t, records, 4)
	})
	t.Run("start", func(t *testing.T) {
		s := of(hostAttrs).counter("network.recv", 0, 3, 1)
		s.ms.At(0).Sum().DataPoints().At(0).SetStartTimestamp(math.MaxUint64)
		assert.Equal(t, []record{{begin: 3, time: 3, items: []string{"network.recv=1 counter"}}}, newRig(t).add(s.md).take()[host])
	})
}

func TestARecordIsClosedByTheClock(t *testing.T) {
	r := newRig(t).add(of(hostAttrs).gauge("cpu", -1000, 1).md)
	r.now = began.Add(15*time.Second - 1)
	r.CloseDue()
	assert.Empty(t, r.ready())
	r.add(of(hostAttrs).gauge("disk", -1000, 2).md)
	r.now = began.Add(15 * time.Second)
	r.CloseDue()
	assert.Equal(t, []record{{begin: -1000, time: -1000, items: []string{"cpu=1", "disk=2"}}}, r.ready()[host])
	r.CloseDue()
	r.CloseAll()
	assert.Empty(t, r.ready(), "there is nothing left")

	r.add(of(hostAttrs).gauge("cpu", -990, 1).md)
	r.CloseDue()
	assert.Empty(t, r.ready(), "the next record has an interval of its own")
}

func TestRecordsWaitInTheirOrder(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.add(of(hostAttrs).gauge("cpu", float64(i), i).md)
	}
	s := r.Sources()[0]
	first := s.Ready()
	assert.Same(t, first, s.Ready())
	for i := range 4 {
		assert.Equal(t, at(float64(i)).AsTime(), s.Ready().Time)
		s.Written()
	}
	assert.Nil(t, s.Ready())
}

func TestSourcesThatMustWaitAreLeft(t *testing.T) {
	r := newRig(t).add(of(hostAttrs).gauge("cpu", 0, 1).md)
	payload := of(workloadAttrs).gauge("cpu", 1, 2).and(hostAttrs).gauge("cpu", 1, 3).
		and(attrs{"service.instance.id": "node1/ep", "server.address": "x"}).gauge("cpu", 2, 4).md
	assert.Equal(t, []int{1, 2}, r.Add(payload, func(s *Source) bool { return s.Key() == host }))
	assert.Equal(t, map[string][]record{
		host:                     {{items: []string{"cpu=1"}}},
		"workload node1/slurm-7": {{begin: 1, time: 1, items: []string{"cpu=2"}}},
	}, r.take())
}

func gpuTemp(s *scrape, seconds float64, index int, vendor any) *scrape {
	return s.gauge("gpu.temp", seconds, index, "gpu_index", index, "gpu_vendor", vendor)
}

func TestGPUsOfTwoMakersWithOneNumber(t *testing.T) {
	r := newRig(t)
	for i := range 4 {
		s, now := of(hostAttrs), float64(i)
		if i%2 == 0 {
			gpuTemp(gpuTemp(s, now, 0, "nvidia"), now, 0, "amd")
		} else {
			gpuTemp(gpuTemp(s, now, 0, "amd"), now, 0, "nvidia")
		}
		r.add(gpuTemp(s, now, 1, "amd").md)
	}
	records := r.take()[host]
	require.Len(t, records, 4)
	for _, record := range records {
		assert.ElementsMatch(t, []string{"gpu.0.temp=0", "gpu.0.temp/l:amd=0", "gpu.1.temp=1"}, record.items)
	}
	assert.Empty(t, r.dropped)
	assert.Equal(t, []runs.GPU{{Vendor: "amd", Index: "0"}, {Vendor: "amd", Index: "1"}, {Vendor: "nvidia", Index: "0"}}, r.Sources()[0].Subject().GPUs)
}

// A chart of one GPU has one maker's figures, also those that the other one lacks.
func TestAllKeysOfTheSecondMakerAreLabelled(t *testing.T) {
	r := newRig(t)
	s := gpuTemp(of(hostAttrs), 0, 0, "nvidia")
	s.gauge("gpu.smClock", 0, 1, "gpu_index", 0, "gpu_vendor", "amd")
	r.add(s.md)
	assert.ElementsMatch(t, []string{"gpu.0.temp=0", "gpu.0.smClock/l:amd=1"}, r.take()[host][0].items)
}

func TestMakersInKeys(t *testing.T) {
	for name, c := range map[string]struct {
		vendor any
		want   string
	}{
		"not UTF-8":   {"a\xffd", "gpu.0.temp/l:a\uFFFDd=0"},
		"a number":    {7, "gpu.0.temp/l:7=0"},
		"empty":       {"", ""},
		"too long":    {strings.Repeat("x", maxVendor+1), ""},
		"same":        {"nvidia", ""},
		"with a mark": {"a/l:b", "gpu.0.temp/l:a/l:b=0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for i := range 2 {
				r.add(gpuTemp(gpuTemp(of(hostAttrs), float64(i), 0, "nvidia"), float64(i), 0, c.vendor).md)
			}
			want := record{items: []string{"gpu.0.temp=0"}}
			if c.want != "" {
				want.items = append(want.items, c.want)
			}
			records := r.take()[host]
			require.Len(t, records, 2)
			assert.Equal(t, want, records[0])
		})
	}
}

func TestGPUsAreDescribedInTheOrderOfTheirNumbers(t *testing.T) {
	s := of(hostAttrs)
	for _, g := range []runs.GPU{
		{Vendor: "nvidia", Index: "10", UUID: "k"},
		{Vendor: "nvidia", Index: "2", UUID: "c", Model: "H200"},
		{Vendor: "nvidia", Index: "2", UUID: "b"},
		{Vendor: "amd", Index: "3"},
	} {
		s.gauge("gpu.temp", 0, 1, "gpu_index", g.Index, "gpu_vendor", g.Vendor, "gpu_uuid", g.UUID, "gpu_model", g.Model)
		s.resource.ScopeMetrics().At(0).Scope().Attributes().PutStr("wandb.source", "dcgm")
		p := s.ms.At(s.ms.Len() - 1).Gauge().DataPoints().At(0)
		p.Attributes().PutStr("node", "n"+g.UUID)
	}
	s.gauge("gpu.temp", 0, 1, "gpu_index", 77) // of no maker
	r := newRig(t).add(s.md)
	assert.Equal(t, []runs.GPU{
		{Vendor: "amd", Index: "3"},
		{Vendor: "nvidia", Index: "2", UUID: "b"},
		{Vendor: "nvidia", Index: "2", UUID: "c", Model: "H200"},
		{Vendor: "nvidia", Index: "10", UUID: "k"},
	}, r.Sources()[0].Subject().GPUs)
	assert.Contains(t, keys(r.take()[host]), "gpu.2.temp/l:nc=1")
}

func TestAWorkloadHasNoGPUsOfItsOwn(t *testing.T) {
	r := newRig(t).add(gpuTemp(of(workloadAttrs), 0, 0, "nvidia").md)
	assert.Empty(t, r.Sources()[0].Subject().GPUs)
}

func TestKeysOfPoints(t *testing.T) {
	labelled := attrs{"host.name": "node1", "wandb.label": "L"}
	badLabel := attrs{"host.name": "node1", "wandb.label": "\xff"}
	for name, c := range map[string]struct {
		payload *scrape
		unknown bool
		want    []string
		dropped map[string]int
	}{
		"label":                     {payload: of(labelled).gauge("cpu", 0, 1), want: []string{"cpu/l:L=1"}},
		"a name keeps its label":    {payload: of(labelled).gauge("cpu/l:own", 0, 1), want: []string{"cpu/l:own=1"}},
		"label not UTF-8":           {payload: of(badLabel).gauge("cpu", 0, 1), want: []string{"cpu/l:\uFFFD=1"}},
		"value not UTF-8":           {payload: of(hostAttrs).gauge("disk.usagePercent", 0, 1, "path", "/a\xc3("), want: []string{"disk./a\uFFFD(.usagePercent=1"}},
		"no tag":                    {payload: of(hostAttrs).gauge("my.metric", 0, 1), dropped: map[string]int{NoTag: 1}},
		"MIG has no tag":            {payload: of(hostAttrs).gauge("gpu.mig.smActive", 0, 1), dropped: map[string]int{NoTag: 1}},
		"own name":                  {payload: of(hostAttrs).gauge("my.metric", 0, 1), unknown: true, want: []string{"my.metric=1"}},
		"attributes as label":       {payload: of(labelled).gauge("my.metric", 0, 1, "b", 2, "a", "x"), unknown: true, want: []string{"my.metric/l:a=x,b=2=1"}},
		"attributes not UTF-8":      {payload: of(hostAttrs).gauge("m\xff", 0, 1, "a\xfe", "\xfd"), unknown: true, want: []string{"m\uFFFD/l:a\uFFFD=\uFFFD=1"}},
		"of another":                {payload: foreign(hostAttrs).gauge("my.metric", 0, 1), dropped: map[string]int{Unknown: 1}},
		"of another, known name":    {payload: foreign(attrs{}).gauge("cpu", 0, 1), dropped: map[string]int{Unknown: 1}},
		"of another, not finite":    {payload: foreign(attrs{"host.name": "node1"}).gauge("x", 0, math.NaN()), unknown: true, dropped: map[string]int{NotFinite: 1}},
		"of another, own name":      {payload: foreign(attrs{"host.name": "node1"}).gauge("x", 0, 1, "state", "idle"), unknown: true, want: []string{"x/l:state=idle=1"}},
		"not finite":                {payload: of(hostAttrs).gauge("cpu", 0, math.NaN()).gauge("disk", 0, math.Inf(1)).gauge("swap.used", 0, math.Inf(-1)), dropped: map[string]int{NotFinite: 3}},
		"no value":                  {payload: of(hostAttrs).gauge("cpu", 0, nil)},
		"no name":                   {payload: of(hostAttrs).gauge("", 0, 1), unknown: true, dropped: map[string]int{TooLong: 1}},
		"as long as it may be":      {payload: of(hostAttrs).gauge(strings.Repeat("x", maxKey), 0, 1), unknown: true, want: []string{strings.Repeat("x", maxKey) + "=1"}},
		"too long":                  {payload: of(hostAttrs).gauge(strings.Repeat("x", maxKey+1), 0, 1), unknown: true, dropped: map[string]int{TooLong: 1}},
		"too long in a tag":         {payload: of(hostAttrs).gauge("disk.usageGB", 0, 1, "path", strings.Repeat("x", maxKey)), dropped: map[string]int{TooLong: 1}},
		"without the value's place": {payload: of(hostAttrs).gauge("gpu.temp", 0, 1), want: []string{"gpu.temp=1"}},
		"a scope without name":      {payload: of(hostAttrs).scope("").gauge("cpu", 0, 1), want: []string{"cpu=1"}},
		"two scopes":                {payload: of(hostAttrs).gauge("cpu", 0, 1).scope("other").gauge("disk", 0, 1), want: []string{"cpu=1"}, dropped: map[string]int{Unknown: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.IncludeUnknown = c.unknown }).add(c.payload.md)
			if c.dropped == nil {
				c.dropped = map[string]int{}
			}
			assert.Equal(t, c.want, keys(r.take()[host]))
			assert.Equal(t, c.dropped, r.dropped)
			assert.Len(t, r.Sources(), min(len(c.want), 1), "a resource without points makes no run")
		})
	}
}

func TestAPointWithoutRecordedValueIsTheEndOfItsSeries(t *testing.T) {
	s := of(hostAttrs).gauge("cpu", 0, 1)
	s.ms.At(0).Gauge().DataPoints().At(0).SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	r := newRig(t).add(s.md)
	assert.Empty(t, r.Sources())
	assert.Empty(t, r.dropped)
}

func TestWhatHasNoSingleNumberIsCounted(t *testing.T) {
	fill := func(s *scrape) pmetric.Metrics {
		h := s.metric("h").SetEmptyHistogram().DataPoints()
		h.AppendEmpty()
		h.AppendEmpty()
		s.metric("e").SetEmptyExponentialHistogram().DataPoints().AppendEmpty()
		s.metric("s").SetEmptySummary().DataPoints().AppendEmpty()
		s.metric("nothing")
		return s.md
	}
	assert.Equal(t, map[string]int{Histogram: 4}, newRig(t).add(fill(of(hostAttrs))).dropped)
	assert.Equal(t, map[string]int{Unknown: 4}, newRig(t).add(fill(foreign(hostAttrs))).dropped)
	assert.Equal(t, map[string]int{Histogram: 4}, newRig(t, unknownToo).add(fill(foreign(hostAttrs))).dropped)
}

func TestThereAreNoMoreSourcesThanAllowed(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxRuns = 2 })
	s := of(hostAttrs)
	for i := range 4 {
		s.and(attrs{"service.instance.id": fmt.Sprintf("node1/%d", i)}).gauge("cpu", 0, i).gauge("disk", 0, i).gauge("my.metric", 0, 1)
	}
	r.add(s.md)
	assert.Len(t, r.Sources(), 2)
	assert.Equal(t, map[string]int{Limit: 4, NoTag: 4}, r.dropped)

	r.take()
	r.Forget(r.Sources()[0])
	r.add(of(attrs{"service.instance.id": "node1/3"}).gauge("cpu", 0, 3).md)
	assert.Equal(t, []string{"cpu=3"}, keys(r.take()["workload node1/3"]), "there is room again")
}

func TestSourcesAreInTheOrderOfTheirKeys(t *testing.T) {
	r := newRig(t)
	names := func(sources []*Source) (all []string) {
		for _, s := range sources {
			all = append(all, s.Key())
		}
		return all
	}
	begin := func(name string) { r.add(of(attrs{"host.name": name}).gauge("cpu", 0, 1).md) }
	assert.Empty(t, r.Sources())
	begin("b")
	begin("c")
	before := r.Sources()
	begin("a")
	assert.Equal(t, []string{"host a", "host b", "host c"}, names(r.Sources()))
	r.Forget(before[0])
	assert.Equal(t, []string{"host a", "host c"}, names(r.Sources()))
	assert.Equal(t, []string{"host b", "host c"}, names(before), "what was returned stays as it was")
}

func TestASourceIsIdleWhenNothingCame(t *testing.T) {
	r := newRig(t).add(of(hostAttrs).gauge("cpu", 0, 1).md)
	s := r.Sources()[0]
	r.now = began.Add(time.Hour)
	assert.False(t, r.Idle(s), "it has points")
	s.close()
	assert.False(t, r.Idle(s), "it has a record")
	s.Written()
	assert.True(t, r.Idle(s))
	r.add(of(hostAttrs).gauge("my.metric", 0, 1).md)
	assert.True(t, r.Idle(s), "what is not written is nothing")
	r.add(of(hostAttrs).gauge("cpu", 0, 1).md)
	r.take()
	assert.False(t, r.Idle(s), "something came just now")
	r.now = r.now.Add(time.Minute - 1)
	assert.False(t, r.Idle(s))
	r.now = r.now.Add(1)
	assert.True(t, r.Idle(s))
	r.IdleTimeout = 0
	assert.False(t, r.Idle(s), "0 is never")
	r.Forget(s)
	assert.Empty(t, r.Sources())
}

func TestRememberedKeysAreBounded(t *testing.T) {
	r := newRig(t, unknownToo)
	many := of(hostAttrs)
	for i := range maxSlots + 1 {
		many.gauge(fmt.Sprintf("m%d", i), 0, 1)
	}
	r.add(many.md)
	// The key is forgotten while the record that it is in is open.
	r.add(of(hostAttrs).gauge("m0", 0, 2).md)
	assert.Len(t, r.Sources()[0].slots, 1)
	records := r.take()[host]
	assert.Equal(t, []int{maxItems, 1, 1}, []int{len(records[0].items), len(records[1].items), len(records[2].items)})
	assert.Equal(t, "m0=2", records[2].items[0])
}

func TestDescribedGPUsAreBounded(t *testing.T) {
	s := of(hostAttrs)
	for i := range 2 * maxGPUs {
		gpuTemp(s, 0, i, "nvidia")
	}
	r := newRig(t).add(s.md)
	assert.Len(t, r.Sources()[0].Subject().GPUs, maxGPUs)
	assert.Len(t, r.Sources()[0].owners, maxGPUs)
	r.take()
	r.add(of(hostAttrs).gauge("gpu.smClock", 1, 1, "gpu_index", 0, "gpu_vendor", "amd").md)
	assert.Equal(t, []string{"gpu.0.smClock/l:amd=1"}, keys(r.take()[host]), "those that are known still are")
}
