// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// description is what the attributes of a device's points are made of, beside its
// place.
type description struct {
	uuid, model, profile string
}

// device is a board or a MIG instance. It outlives the scrape.
type device struct {
	place
	// scrape is the last one that it was in, seen its time.
	scrape uint64
	seen   time.Time

	// The figures are in the metrics' units; known has a bit for each that there is.
	values [len(fields)]float64
	known  uint64
	// instances are those of a board.
	instances []*device
	told      description
	// elsewhere is the answer for a UUID, once that was asked.
	asked, elsewhere bool
	askedUUID        string

	// options are the attributes, made of described.
	options   []metadata.MetricAttributeOption
	described description
	// counterKey names the device for its counters.
	counterKey string
}

// device returns the board at a place, without any figures if it is new to the
// scrape.
func (m *Mapper) device(at place) *device {
	d, isNew := m.find(at)
	if isNew {
		m.boards = append(m.boards, d)
	}
	return d
}

// instance is device for a MIG instance of a board.
func (m *Mapper) instance(of *device, at place) *device {
	d, isNew := m.find(at)
	if isNew {
		of.instances = append(of.instances, d)
	}
	return d
}

func (m *Mapper) find(at place) (d *device, isNew bool) {
	d = m.devices[at]
	if d == nil {
		at.node = strings.Clone(at.node) // it is kept longer than the series
		d = &device{place: at}
		m.devices[at] = d
	}
	if d.scrape == m.scrape {
		return d, false
	}
	d.scrape, d.known, d.told, d.asked = m.scrape, 0, description{}, false
	clear(d.instances)
	d.instances = d.instances[:0]
	return d, true
}

// learn takes from the labels what the device did not tell before.
func (d *device) learn(n *names) {
	t := &d.told
	if t.uuid == "" {
		t.uuid = n.uuid()
	}
	if t.model == "" {
		t.model = n.model()
	}
	if t.profile == "" {
		t.profile = n.profile
	}
}

func (d *device) put(id fieldID, value float64) {
	bit := uint64(1) << id
	if d.known&bit == 0 || value > d.values[id] {
		d.known |= bit
		d.values[id] = value
	}
}

func (d *device) get(id fieldID) (float64, bool) {
	return d.values[id], d.known&(1<<id) != 0
}

// describe makes the attributes of the device's points, if they are not those of
// the last scrape. Of the labels' texts, which are parts of a whole body, it leaves
// none.
func (m *Mapper) describe(d *device) {
	d.asked, d.askedUUID = false, ""
	if d.options == nil || d.described != d.told {
		d.described = description{strings.Clone(d.told.uuid), strings.Clone(d.told.model), strings.Clone(d.told.profile)}
		m.makeOptions(d)
	}
	d.told = d.described
}

func (m *Mapper) makeOptions(d *device) {
	d.options = make([]metadata.MetricAttributeOption, 0, 4)
	if d.instance != noInstance {
		// DCGM tells the board's UUID only, and an instance has one of its own.
		d.options = append(d.options, metadata.WithMigGiMetricAttribute(d.instance))
		d.option(metadata.WithMigProfileMetricAttribute, d.described.profile)
	} else {
		d.option(metadata.WithGpuUUIDMetricAttribute, d.described.uuid)
		m.nameCounters(d)
	}
	d.option(metadata.WithGpuModelMetricAttribute, d.described.model)
	d.option(metadata.WithNodeMetricAttribute, d.node)
}

func (d *device) option(with func(string) metadata.MetricAttributeOption, value string) {
	if value != "" {
		d.options = append(d.options, with(value))
	}
}

// nameCounters names a board for its counters: they follow its UUID.
func (m *Mapper) nameCounters(d *device) {
	key := d.node + "\x00" + cmp.Or(d.described.uuid, strconv.FormatInt(d.index, 10))
	m.renamed = m.renamed || (d.counterKey != "" && d.counterKey != key)
	d.counterKey = key
}
