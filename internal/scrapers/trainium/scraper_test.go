// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// recorded is a source that gives readings of before.
type recorded struct{ next *reading }

func (*recorded) start(component.Host)            {}
func (*recorded) prime(context.Context)           {}
func (*recorded) close(context.Context) error     { return nil }
func (r *recorded) read(context.Context) *reading { return r.next }

// shares are workloads by the pids that they own.
type shares struct {
	pids            map[string][]int
	holders, others []int
	err             error
}

// of implements owners.
func (s *shares) of(_ context.Context, holders, others []int) ([]user, error) {
	s.holders, s.others = holders, others
	var users []user
	for _, id := range sorted(s.pids) {
		users = append(users, user{who: &identity.Workload{ID: id}, owns: func(pid int) bool { return slices.Contains(s.pids[id], pid) }})
	}
	return users, s.err
}

// mapping is the family with readings of before.
type mapping struct {
	*neuronScraper

	t      testing.TB
	source *recorded
	now    time.Time
	counts counts
}

func newMapping(t testing.TB, cfg Config, extended bool, o owners) *mapping {
	t.Helper()
	set, _ := scraperstest.NewSettings(t, t.TempDir(), extended)
	m := &mapping{t: t, source: &recorded{}, now: time.Unix(1_800_000_000, 0), counts: newCounts()}
	m.neuronScraper = newScraperFor(set, &cfg, m.source, o)
	m.clock = func() time.Time { return m.now }
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	return m
}

// arrive lets a report come, a second after what was before.
func (m *mapping) arrive(line string) {
	m.t.Helper()
	r, err := report.Parse([]byte(line))
	require.NoError(m.t, err)
	m.now = m.now.Add(time.Second)
	m.counts.add(r)
	m.source.next = &reading{report: r, at: m.now}
}

// scrape takes what has arrived, a second later.
func (m *mapping) scrape() pmetric.Metrics {
	m.t.Helper()
	m.now = m.now.Add(time.Second)
	next := *m.source.next
	next.counts, m.counts = m.counts, newCounts()
	m.source.next = &next
	md, err := m.Scrape(m.t.Context())
	require.NoError(m.t, err)
	scraperstest.RequireSane(m.t, md)
	return md
}

// values are those of points by their keys, of the metrics that begin so.
func values(md pmetric.Metrics, prefix string) map[string]float64 {
	all := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if key, ok := strings.CutPrefix(p.Key(), prefix); ok {
			all[key] = p.Value()
		}
	}
	return all
}

func line(runtimes ...string) string {
	return `{"neuron_runtime_data":[` + strings.Join(runtimes, ",") + `],"neuron_hardware_info":{"neuron_device_count":2,"neuroncore_per_device_count":2}}`
}

func entry(pid int, tag, groups string) string {
	return fmt.Sprintf(`{"pid":%d,"neuron_runtime_tag":%q,"error":"","report":{%s}}`, pid, tag, groups)
}

func cores(text string) string { return `"neuroncore_counters":{"neuroncores_in_use":{` + text + `}}` }

func memory(text string) string { return `"memory_used":{"neuron_runtime_used_bytes":{` + text + `}}` }

func ran(completed, numerical int) string {
	return fmt.Sprintf(`"execution_stats":{"error_summary":{"numerical":%d,"unheard_of":1},"execution_summary":{"completed":%d},`+
		`"latency_stats":{"total_latency":{"p50":%g,"p42":1},"device_latency":null}}`, numerical, completed, float64(completed)/1000)
}

func TestRuntimesAreAddedUp(t *testing.T) {
	m := newMapping(t, Config{}, false, nil)
	m.arrive(line(
		entry(1, "x", cores(`"0":{"neuroncore_utilization":60},"1":{"neuroncore_utilization":0}`)+","+
			memory(`"host":10,"neuron_device":20,"usage_breakdown":{"host":{"tensors":1},"neuroncore_memory_usage":{"0":{"tensors":5,"new_part":1}}}`)),
		entry(2, "x", cores(`"0":{"neuroncore_utilization":60},"1":{"neuroncore_utilization":30.5}`)+","+
			memory(`"host":1,"neuron_device":null,"usage_breakdown":{"host":{"tensors":2,"new_part":9},"neuroncore_memory_usage":{"0":{"tensors":5},"1":{"new_part":2}}}`)),
		`{"pid":3,"error":"gone","report":{`+memory(`"host":1000`)+`}}`,
	))
	assert.Equal(t, map[string]float64{
		"trn.0.neuroncore_utilization": 100, "trn.1.neuroncore_utilization": 30.5,
		"trn.host_total_memory_usage": 11, "trn.neuron_device_total_memory_usage": 20,
		"trn.host_total_memory_usage.tensors": 3, "trn.host_total_memory_usage.new_part": 9,
		"trn.0.neuroncore_memory_usage.tensors": 10, "trn.0.neuroncore_memory_usage.new_part": 1, "trn.1.neuroncore_memory_usage.new_part": 2,
	}, scraperstest.TagsOf(m.scrape()))
}

func TestUnknownPartsAreNamedLikeTheOthers(t *testing.T) {
	m := newMapping(t, Config{}, false, nil)
	m.arrive(line(entry(1, "x", memory(`"usage_breakdown":{"host":{"new_part":9},"neuroncore_memory_usage":{"2":{"new_part":1}}}`))))
	md := m.scrape()
	require.Equal(t, 1, md.ResourceMetrics().Len())
	metrics := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	require.Equal(t, 2, metrics.Len())
	for _, metric := range metrics.All() {
		assert.Equal(t, "By", metric.Unit())
		assert.NotEmpty(t, metric.Description())
	}
	named := pmetric.NewMetrics()
	md.CopyTo(named)
	naming.New(naming.SDK, "").Expand(named)
	var names []string
	for _, p := range scraperstest.PointsOf(named) {
		names = append(names, p.Metric.Name())
	}
	assert.ElementsMatch(t, []string{"trn.host_memory_usage.new_part", "trn.2.neuroncore_memory_usage.new_part"}, names)
}

func TestMetricsThatAreOffHaveNoPoints(t *testing.T) {
	m := newMapping(t, Config{RuntimePoints: true}, false, nil)
	set, _ := scraperstest.NewSettings(t, t.TempDir(), false)
	set.Metrics.Metrics.TrnNeuroncoreUtilization.Enabled = false
	set.Metrics.Metrics.TrnHostTotalMemoryUsageTensors.Enabled = false
	m.neuronScraper = newScraperFor(set, m.config, m.source, nil)
	m.arrive(line(entry(1, "x", cores(`"0":{"neuroncore_utilization":60}`)+","+memory(`"host":4,"usage_breakdown":{"host":{"tensors":1}}`))))
	assert.Equal(t, map[string]float64{
		"trn.host_total_memory_usage":                                           4,
		"trn.host_total_memory_usage neuron.runtime.pid=1 neuron.runtime.tag=x": 4,
	}, values(m.scrape(), ""))
}

func TestPointsOfRuntimes(t *testing.T) {
	m := newMapping(t, Config{RuntimePoints: true}, false, nil)
	m.arrive(line(
		entry(1, "job", cores(`"0":{"neuroncore_utilization":60}`)+","+memory(`"host":4,"usage_breakdown":{"neuroncore_memory_usage":{"0":{"tensors":1,"new_part":2}}}`)),
		entry(2, "job", cores(`"0":{"neuroncore_utilization":10}`)+","+memory(`"neuron_device":3`)),
		entry(2, "job", memory(`"neuron_device":4`)),
	))
	assert.Equal(t, map[string]float64{
		"neuroncore_utilization core_index=0":                                                       70,
		"neuroncore_utilization core_index=0 neuron.runtime.pid=1 neuron.runtime.tag=job":           60,
		"neuroncore_utilization core_index=0 neuron.runtime.pid=2 neuron.runtime.tag=job":           10,
		"host_total_memory_usage":                                                                   4,
		"host_total_memory_usage neuron.runtime.pid=1 neuron.runtime.tag=job":                       4,
		"neuron_device_total_memory_usage":                                                          7,
		"neuron_device_total_memory_usage neuron.runtime.pid=2 neuron.runtime.tag=job":              7,
		"neuroncore_memory_usage.tensors core_index=0":                                              1,
		"neuroncore_memory_usage.tensors core_index=0 neuron.runtime.pid=1 neuron.runtime.tag=job":  1,
		"neuroncore_memory_usage.new_part core_index=0":                                             2,
		"neuroncore_memory_usage.new_part core_index=0 neuron.runtime.pid=1 neuron.runtime.tag=job": 2,
	}, values(m.scrape(), "trn."))
}

func TestIdleCores(t *testing.T) {
	busy := entry(1, "x", cores(`"1":{"neuroncore_utilization":60}`))
	for name, tt := range map[string]struct {
		report string
		want   map[string]float64
	}{
		"no runtime":      {line(), map[string]float64{"0": 0, "1": 0, "2": 0, "3": 0}},
		"one":             {line(busy), map[string]float64{"0": 0, "1": 60, "2": 0, "3": 0}},
		"error":           {line(busy, `{"pid":3,"error":"gone"}`), map[string]float64{"1": 60}},
		"group's error":   {line(busy, entry(2, "x", `"neuroncore_counters":{"error":"x"}`)), map[string]float64{"1": 60}},
		"first window":    {line(entry(1, "x", `"neuroncore_counters":{"period":0.0007,"neuroncores_in_use":{"0":{"neuroncore_utilization":0}}}`)), map[string]float64{}},
		"number not told": {`{"neuron_runtime_data":[]}`, map[string]float64{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMapping(t, Config{ReportIdle: true}, false, nil)
			m.arrive(tt.report)
			assert.Equal(t, tt.want, values(m.scrape(), "trn.neuroncore_utilization core_index="))
			m = newMapping(t, Config{}, false, nil)
			m.arrive(line())
			assert.Empty(t, values(m.scrape(), ""), "off by default")
		})
	}
}

// starts are the times by which the counters of executions began, by workload, in
// seconds after the test did.
func starts(md pmetric.Metrics) map[string]float64 {
	all := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "trn.execution_status" {
			all[p.Workload] = p.Data.StartTimestamp().AsTime().Sub(time.Unix(1_800_000_000, 0)).Seconds()
		}
	}
	return all
}

func TestExecutionsAreAddedUpOverReports(t *testing.T) {
	m := newMapping(t, Config{}, true, nil)
	m.arrive(line(entry(1, "x", ran(100, 1)), entry(2, "x", ran(300, 0))))
	m.arrive(line(entry(1, "x", ran(50, 2))))
	md := m.scrape()
	want := map[string]float64{
		"execution_status status_type=completed": 450, "execution_errors error_type=numerical": 3,
		"execution_latency latency_type=total percentile=p50": 0.05,
	}
	assert.Equal(t, want, values(md, "trn."))
	assert.Equal(t, map[string]float64{"": 0}, starts(md))
	assert.Equal(t, want, values(m.scrape(), "trn."), "a report counts once")

	m.arrive(line(entry(2, "x", ran(200, 0))))
	m.arrive(line())
	assert.Empty(t, values(m.scrape(), "trn."), "no runtime has them now")
	m.arrive(line(entry(2, "x", ran(1, 0)), entry(3, "x", ran(2, 0))))
	md = m.scrape()
	assert.InDelta(t, 653, values(md, "trn.execution_status")[" status_type=completed"], 0)
	assert.InDelta(t, 0.002, values(md, "trn.execution_latency")[" latency_type=total percentile=p50"], 1e-9, "the largest")
	m.arrive(line(entry(3, "x", `"execution_stats":{"error":"x"}`)))
	assert.Empty(t, values(m.scrape(), "trn.execution"))
}

func TestHardwareErrorsAreAddedUpOverReports(t *testing.T) {
	const form = `{"neuron_runtime_data":[],"system_data":{"neuron_hw_counters":{"neuron_devices":[{"neuron_device_index":0,"mem_ecc_corrected":%d,"sram_ecc_uncorrected":0}%s]}}}`
	m := newMapping(t, Config{}, true, nil)
	m.arrive(fmt.Sprintf(form, 2, ""))
	m.arrive(fmt.Sprintf(form, 3, `,{"neuron_device_index":1,"mem_ecc_uncorrected":1}`))
	want := map[string]float64{
		"mem_ecc_corrected neuron_device_index=0": 5, "sram_ecc_uncorrected neuron_device_index=0": 0, "mem_ecc_uncorrected neuron_device_index=1": 1,
	}
	assert.Equal(t, want, values(m.scrape(), "trn."))
	m.arrive(`{"neuron_runtime_data":[]}`)
	assert.Empty(t, values(m.scrape(), "trn."))
	m.arrive(fmt.Sprintf(form, 0, ""))
	delete(want, "mem_ecc_uncorrected neuron_device_index=1")
	assert.Equal(t, want, values(m.scrape(), "trn."))

	m = newMapping(t, Config{}, false, nil)
	m.arrive(fmt.Sprintf(form, 2, ""))
	assert.Empty(t, values(m.scrape(), ""), "off by default")
}

func TestWorkloadsHaveTheFiguresOfTheirRuntimes(t *testing.T) {
	s := &shares{pids: map[string][]int{"a": {1, 2}, "b": {3}, "c": {99}}}
	m := newMapping(t, Config{}, true, s)
	m.arrive(line(
		entry(1, "x", cores(`"0":{"neuroncore_utilization":60}`)+","+memory(`"host":1,"usage_breakdown":{"host":{"new_part":1}}`)+","+ran(100, 1)),
		entry(2, "x", cores(`"1":{"neuroncore_utilization":20}`)+","+memory(`"host":2`)+","+ran(50, 0)),
		entry(3, "x", memory(`"host":4`)),
		entry(4, "x", memory(`"host":8`)),
	))
	md := m.scrape()
	assert.Equal(t, map[string]float64{
		"": 15, " workload=a": 3, " workload=b": 4, ".new_part": 1, ".new_part workload=a": 1,
	}, values(md, "trn.host_total_memory_usage"), "all is the machine's")
	assert.Equal(t, map[string]float64{
		" core_index=0": 60, " core_index=1": 20, " core_index=0 workload=a": 60, " core_index=1 workload=a": 20,
	}, values(md, "trn.neuroncore_utilization"))
	assert.Equal(t, map[string]float64{" status_type=completed": 150, " status_type=completed workload=a": 150}, values(md, "trn.execution_status"))
	assert.Equal(t, []int{1, 2, 3, 4}, s.holders)
	assert.Empty(t, s.others)
}

func TestCountersOfWorkloadsBeginWithThem(t *testing.T) {
	s := &shares{pids: map[string][]int{"a": {1}}}
	m := newMapping(t, Config{}, true, s)
	m.arrive(line(entry(1, "x", ran(100, 0)))) // at 1 s
	assert.Equal(t, map[string]float64{"": 0, "a": 0}, starts(m.scrape()))

	s.pids["b"] = []int{2, 3}
	m.arrive(line(entry(1, "x", ran(1, 0)), entry(2, "x", ran(10, 0))))
	m.arrive(line(entry(1, "x", ran(1, 0)), entry(3, "x", ran(20, 0)))) // 2 ended
	md := m.scrape()
	assert.Equal(t, map[string]float64{
		" status_type=completed": 132, " status_type=completed workload=a": 102, " status_type=completed workload=b": 30,
	}, values(md, "trn.execution_status"))
	assert.Equal(t, map[string]float64{"": 0, "a": 0, "b": 2}, starts(md), "b's with the scrape before")
	assert.Equal(t, []int{1, 3}, s.holders)
	assert.Equal(t, []int{2}, s.others)

	// One that ended is forgotten. If it comes back it begins anew.
	delete(s.pids, "a")
	m.arrive(line(entry(1, "x", ran(1, 0))))
	m.scrape()
	s.pids["a"] = []int{1}
	m.arrive(line(entry(1, "x", ran(7, 0))))
	md = m.scrape()
	assert.InDelta(t, 7, values(md, "trn.execution_status")[" status_type=completed workload=a"], 0)
	assert.InDelta(t, 7, starts(md)["a"], 0)
}

func TestAttributionThatFailsCostsTheWorkloadsAlone(t *testing.T) {
	m := newMapping(t, Config{}, false, &shares{err: errors.New("no /proc")})
	m.arrive(line(entry(1, "x", memory(`"host":4`))))
	md, err := m.Scrape(t.Context())
	require.EqualError(t, err, "attribution of processes: no /proc")
	assert.Equal(t, map[string]float64{"": 4}, values(md, "trn.host_total_memory_usage"))
}

func TestPointsHaveTheTimeOfTheReport(t *testing.T) {
	m := newMapping(t, Config{}, false, nil)
	m.arrive(line(entry(1, "x", memory(`"host":4`))))
	at := pcommon.NewTimestampFromTime(m.now)
	for range 2 {
		for _, p := range scraperstest.PointsOf(m.scrape()) {
			assert.Equal(t, at, p.Data.Timestamp())
		}
	}
}

func TestWhatIsCountedWithoutAReportIsNotLost(t *testing.T) {
	m := newMapping(t, Config{}, true, nil)
	m.arrive(line(entry(1, "x", ran(100, 0))))
	kept := m.source.next
	m.source.next = &reading{errs: []error{&scrapers.SourceError{Source: "x", Err: errors.New("stale")}}, counts: m.counts}
	m.counts = newCounts()
	md, err := m.Scrape(t.Context())
	require.EqualError(t, err, "x: stale")
	assert.Zero(t, md.DataPointCount())
	m.source.next = kept
	assert.InDelta(t, 100, values(m.scrape(), "trn.execution_status")[" status_type=completed"], 0)
}

func TestCountsBetweenReadingsAreBounded(t *testing.T) {
	c := newCounts()
	var all []string
	for pid := range 3000 {
		all = append(all, entry(pid+1, "x", ran(1, 0)))
	}
	for _, tag := range []string{"x", "y"} {
		r, err := report.Parse([]byte(strings.ReplaceAll(line(all...), `"x"`, `"`+tag+`"`)))
		require.NoError(t, err)
		c.add(r)
	}
	assert.LessOrEqual(t, len(c.executions), maxCounted+1)
	sum := 0.0
	for _, of := range c.executions {
		sum += of.outcomes["completed"]
	}
	assert.InDelta(t, 6000, sum, 0, "they count all the same")
}

func TestFiguresThatNoPointCanHaveAreLeftOut(t *testing.T) {
	var all []string
	for pid := range 5 {
		all = append(all, entry(pid, "x", memory(`"host":4e18,"neuron_device":1,"usage_breakdown":{"host":{"tensors":4e18,"new_part":4e18}}`)))
	}
	m := newMapping(t, Config{RuntimePoints: true}, false, nil)
	m.arrive(line(all...))
	assert.NotContains(t, values(m.scrape(), ""), "trn.host_total_memory_usage")
}

// slow is a source during whose readings something arrives, which the next one tells.
type slow struct {
	recorded

	m *mapping
}

func (s *slow) read(ctx context.Context) *reading {
	r := s.recorded.read(ctx)
	s.m.arrive(line(entry(1, "x", ran(5, 1))))
	s.m.now = s.m.now.Add(time.Second)
	return r
}

func TestCountersOfAWorkloadBeginBeforeWhatTheyCount(t *testing.T) {
	m := newMapping(t, Config{}, true, &shares{pids: map[string][]int{"a": {1}}})
	m.arrive(line())
	m.neuronScraper.source = &slow{recorded: recorded{m.source.next}, m: m}
	m.scrape()
	m.neuronScraper.source = m.source
	md := m.scrape() // which looks for sane start times
	assert.Equal(t, map[string]float64{"": 0, "a": 2}, starts(md))
}

func TestKindsThatAreNotEmittedAreNotKept(t *testing.T) {
	m := newMapping(t, Config{}, true, &shares{pids: map[string][]int{"a": {1}}})
	m.arrive(line(entry(1, "x", ran(5, 1))))
	m.scrape()
	assert.Equal(t, tally{"numerical": 1}, m.machine.errors)
	assert.Equal(t, tally{"completed": 5}, m.machine.outcomes)
	assert.Equal(t, m.machine, m.workloads["a"].executions)
}
