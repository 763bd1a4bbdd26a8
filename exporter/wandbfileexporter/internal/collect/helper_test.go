// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

type attrs = map[string]any

// began is when the collectors of the tests did; times of points are from it.
var began = time.Unix(1_700_000_000, 0).UTC()

// rig is a Collector with a clock that stands still, and what it dropped.
type rig struct {
	*Collector
	t       testing.TB
	now     time.Time
	dropped map[string]int
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, now: began, dropped: map[string]int{}}
	o := Options{
		Hosts: true, Workloads: true, Interval: 15 * time.Second, IdleTimeout: time.Minute,
		MaxRuns: 100, LocalHost: "here",
		Now:     func() time.Time { return r.now },
		Dropped: func(reason string, points int) { r.dropped[reason] += points },
	}
	for _, c := range change {
		c(&o)
	}
	r.Collector = New(o)
	return r
}

func unknownToo(o *Options) { o.IncludeUnknown = true }

// add adds payloads, none of which may be refused.
func (r *rig) add(mds ...pmetric.Metrics) *rig {
	r.t.Helper()
	for _, md := range mds {
		require.Empty(r.t, r.Add(md, func(*Source) bool { return false }))
	}
	return r
}

// record is a record as tests look at it: times in seconds from began.
type record struct {
	begin, time float64
	items       []string // `key=value kind`, in their order
}

// take closes all records and takes them, by source.
func (r *rig) take() map[string][]record {
	r.CloseAll()
	return r.ready()
}

// ready takes the records that are closed.
func (r *rig) ready() map[string][]record {
	all := map[string][]record{}
	for _, s := range r.Sources() {
		for ; s.Ready() != nil; s.Written() {
			all[s.Key()] = append(all[s.Key()], looked(s.Ready()))
		}
	}
	return all
}

func looked(r *runs.Record) record {
	seconds := func(t time.Time) float64 { return t.Sub(began).Seconds() }
	l := record{begin: seconds(r.Begin), time: seconds(r.Time)}
	for _, it := range r.Items {
		kind := map[runs.Kind]string{runs.Value: "", runs.Counter: " counter", runs.Delta: " delta"}[it.Kind]
		l.items = append(l.items, fmt.Sprintf("%s=%s%s", it.Key, textOf(it.Value), kind))
	}
	return l
}

// textOf is the number of an item, short for those that tests use.
func textOf(n runs.Number) string {
	for i := range int64(10) {
		if n == runs.Int(i) {
			return strconv.FormatInt(i, 10)
		}
	}
	return fmt.Sprintf("%+v", n)
}

// keys are those of all records of a source.
func keys(records []record) (all []string) {
	for _, r := range records {
		all = append(all, r.items...)
	}
	return all
}

// at is a time in seconds from began.
func at(seconds float64) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(began.Add(time.Duration(seconds * float64(time.Second))))
}

// hostAttrs and others are resources as the receiver makes them.
var (
	hostAttrs     = attrs{"host.name": "node1", "os.type": "linux", "service.name": "wandbsys", "service.instance.id": "node1"}
	workloadAttrs = attrs{
		"host.name": "node1", "service.name": "wandbsys", "service.instance.id": "node1/slurm-7",
		"wandbsys.workload.kind": "slurm", "slurm.job.id": "7",
	}
)

// scrape is a payload that is being made.
type scrape struct {
	md pmetric.Metrics
	ms pmetric.MetricSlice
	// resource is the present one.
	resource pmetric.ResourceMetrics
}

// of begins a payload of the receiver with one resource.
func of(resource attrs) *scrape {
	s := &scrape{md: pmetric.NewMetrics()}
	return s.and(resource)
}

// and adds a resource of the receiver.
func (s *scrape) and(resource attrs) *scrape {
	s.resource = s.md.ResourceMetrics().AppendEmpty()
	if err := s.resource.Resource().Attributes().FromRaw(resource); err != nil {
		panic(err)
	}
	return s.scope(metadata.ScopeName)
}

// foreign begins a payload of another receiver.
func foreign(resource attrs) *scrape {
	s := of(resource)
	s.resource.ScopeMetrics().At(0).Scope().SetName("hostmetrics")
	return s
}

func (s *scrape) scope(name string) *scrape {
	sm := s.resource.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName(name)
	s.ms = sm.Metrics()
	return s
}

func (s *scrape) metric(name string) pmetric.Metric {
	m := s.ms.AppendEmpty()
	m.SetName(name)
	return m
}

func (s *scrape) gauge(name string, seconds float64, value any, labels ...any) *scrape {
	setPoint(s.metric(name).SetEmptyGauge().DataPoints().AppendEmpty(), at(seconds), value, labels)
	return s
}

// counter adds a monotonic cumulative sum, since start in seconds.
func (s *scrape) counter(name string, start, seconds float64, value any, labels ...any) *scrape {
	sum := s.metric(name).SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := sum.DataPoints().AppendEmpty()
	p.SetStartTimestamp(at(start))
	setPoint(p, at(seconds), value, labels)
	return s
}

// setPoint takes the value, an int or a float64, and pairs of attributes.
func setPoint(p pmetric.NumberDataPoint, ts pcommon.Timestamp, value any, labels []any) {
	p.SetTimestamp(ts)
	switch v := value.(type) {
	case int:
		p.SetIntValue(int64(v))
	case float64:
		p.SetDoubleValue(v)
	}
	for i := 0; i < len(labels); i += 2 {
		if err := p.Attributes().PutEmpty(labels[i].(string)).FromRaw(labels[i+1]); err != nil {
			panic(err)
		}
	}
}
