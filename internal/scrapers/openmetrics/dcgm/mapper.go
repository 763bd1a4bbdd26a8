// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package dcgm makes our metrics of GPUs of the fields of NVIDIA's DCGM, as its
// exporter serves them and as a Prometheus server has them.
package dcgm

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/absolute"
	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

const (
	// fieldPrefix begins the names of all fields of DCGM.
	fieldPrefix = "DCGM_FI_"
	// keep is how long a GPU that is not seen any more is remembered, for the start
	// times of its counters.
	keep = time.Hour
	// maxDevices bounds what is remembered beyond the GPUs that are seen.
	maxDevices = 4096
)

// Source is where the fields come from.
type Source int

const (
	// Exporter is the text of dcgm-exporter.
	Exporter Source = iota
	// Query is the answer of a Prometheus API to a query. It has fewer fields, all of
	// whose metrics are on unless the user turned them off, and no MIG instances.
	Query
)

// Outcome is what became of a series.
type Outcome int

const (
	// Mapped says that the series has a metric of ours, on or off, or is DCGM's word for
	// "not available". There is nothing else to be done with it.
	Mapped Outcome = iota
	// Unmapped says that the series has no metric of ours.
	Unmapped
	// Elsewhere says that another family measures the GPU, so that nothing was
	// recorded.
	Elsewhere
)

// Mapper makes the points of one endpoint. It is not safe for concurrent use.
type Mapper struct {
	source   Source
	fields   map[string]fieldID
	builder  *metadata.MetricsBuilder
	measured *gpus.Measured
	hostName string
	counters absolute.Counters
	// start is the start time that the builder has, once it was set.
	start time.Time

	// scrape numbers the scrapes.
	scrape  uint64
	devices map[place]*device
	// boards are those of this scrape, in the order in which they came.
	boards []*device
	// renamed says that counters are left whose device has another name now.
	renamed bool
}

// New makes a mapper for one endpoint.
func New(set scrapers.Settings, source Source) *Mapper {
	m := &Mapper{
		source: source, measured: set.GPUs, hostName: set.Identity.HostName(),
		fields: make(map[string]fieldID, len(fields)), devices: map[place]*device{}, scrape: 1,
	}
	var metrics []string
	for i := range fields {
		if source == Exporter || fields[i].query {
			m.fields[fields[i].name] = fieldID(i)
			metrics = append(metrics, fields[i].metric)
		}
	}
	if source == Query {
		set.Metrics.Metrics.EnableUnlessSet(metrics...)
	}
	m.builder = metadata.NewMetricsBuilder(set.Metrics, set.Receiver)
	return m
}

// Begin starts a new scrape.
func (m *Mapper) Begin() {
	m.scrape++
	clear(m.boards)
	m.boards = m.boards[:0]
}

// Add takes a series of a scrape. What repeats a figure, as every pod does that
// shares a GPU, adds nothing to it: of different figures the highest counts,
// whatever their order.
func (m *Mapper) Add(name string, labels exposition.Labels, value float64) Outcome {
	blank := isBlank(value)
	outcome := m.add(name, labels, value, blank)
	if blank && strings.HasPrefix(name, fieldPrefix) {
		return Mapped
	}
	return outcome
}

func (m *Mapper) add(name string, labels exposition.Labels, value float64, blank bool) Outcome {
	id, ok := m.fields[name]
	if !ok {
		return Unmapped
	}
	f, n := &fields[id], read(labels)
	at, ok := n.place()
	if !ok {
		return Unmapped
	}
	ofInstance := at.instance != noInstance
	if ofInstance && (m.source == Query || f.mig == nobody) {
		return Unmapped
	}
	d := m.device(at.board())
	d.learn(&n)
	if m.isElsewhere(d, n.uuid()) {
		return Elsewhere
	}
	if ofInstance {
		i := m.instance(d, at)
		i.learn(&n)
		if f.mig == instance {
			d = i
		}
	}
	if v, ok := f.value(value); ok && !blank {
		d.put(id, v)
	}
	if f.metric == "" || (ofInstance && id == memoryFree) {
		return Unmapped // it is a part of other figures only
	}
	return Mapped
}

// isElsewhere tells whether another family measures a GPU. It says the same for a
// whole scrape.
func (m *Mapper) isElsewhere(d *device, uuid string) bool {
	if !d.asked || d.askedUUID != uuid {
		d.asked, d.askedUUID, d.elsewhere = true, uuid, m.isMeasured(uuid, d.node)
	}
	return d.elsewhere
}

// isMeasured takes what it does not know for measured: the same figure twice is
// worse than one scrape without it. A GPU that tells neither its UUID nor where it
// is may be ours.
func (m *Mapper) isMeasured(uuid, node string) bool {
	switch {
	case !m.measured.Known():
		return true
	case uuid != "":
		return m.measured.Has(uuid)
	default:
		return (node == "" || node == m.hostName) && m.measured.Any()
	}
}

// Emit returns the points of the series since Begin, all on the resource. The scope
// says that they are DCGM's.
func (m *Mapper) Emit(resource pcommon.Resource, now pcommon.Timestamp) pmetric.Metrics {
	for _, d := range m.boards {
		m.record(now, d)
	}
	m.forget(now.AsTime())
	md := m.builder.Emit(metadata.WithResource(resource))
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			sm.Scope().Attributes().PutStr(naming.ScopeSource, naming.SourceDCGM)
		}
	}
	return md
}

// forget drops the devices that were not seen for long, and their counters.
func (m *Mapper) forget(now time.Time) {
	for at, d := range m.devices {
		switch {
		case d.scrape == m.scrape:
			d.seen = now
		case now.Sub(d.seen) > keep || len(m.devices) > maxDevices:
			delete(m.devices, at)
			m.renamed = true
		}
	}
	if !m.renamed {
		return
	}
	m.renamed = false
	kept := make(map[string]bool, len(m.devices))
	for _, d := range m.devices {
		kept[d.counterKey] = true
	}
	m.counters.Keep(func(key string) bool { return kept[key] })
}
