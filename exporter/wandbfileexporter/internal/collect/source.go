// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
)

const (
	// maxSlots bounds the remembered keys of a source; beyond it they are forgotten
	// and found again.
	maxSlots = 1 << 16
	// maxItems bounds a record.
	maxItems = 1 << 16
	maxGPUs  = 1 << 10
	// maxVendor bounds what the maker adds to a key.
	maxVendor = 64
	// maxAttrs bounds what is remembered of resources.
	maxAttrs = 1 << 10
)

// Source is what is known of a subject: the record that is being filled, and those
// that wait to be written.
type Source struct {
	key      string
	workload bool
	attrs    pcommon.Map
	gpus     map[string]runs.GPU
	// owners are the makers of the GPUs that have keys without a label, by number.
	owners map[string]string
	// snapshot is made of the above when it is asked for.
	snapshot *runs.Subject

	slots map[string]*slot
	// number counts the records; a slot with the same number is in the present one.
	number int
	items  []runs.Item
	// first and last are the times of the earliest and the latest point, begin is that
	// of the record.
	first, last, begin pcommon.Timestamp
	// opened is when the record got its first point, seen when the source got its last
	// one, both by the clock here.
	opened, seen time.Time
	ready        []*runs.Record
}

// slot is one key's place in the records of a source.
type slot struct {
	key string
	// vendor is the maker of GPUs that have the key without a label.
	vendor string
	number int
	index  int
	time   pcommon.Timestamp
}

func newSource(s subject) *Source {
	return &Source{
		key: s.key, workload: s.workload, attrs: pcommon.NewMap(),
		gpus: map[string]runs.GPU{}, owners: map[string]string{}, slots: map[string]*slot{}, number: 1,
	}
}

// Subject describes the source. It is not changed any more.
func (s *Source) Subject() *runs.Subject {
	if s.snapshot != nil {
		return s.snapshot
	}
	s.snapshot = &runs.Subject{Key: s.key, Workload: s.workload, Attributes: pcommon.NewMap()}
	s.attrs.CopyTo(s.snapshot.Attributes)
	for _, g := range s.gpus {
		s.snapshot.GPUs = append(s.snapshot.GPUs, g)
	}
	slices.SortFunc(s.snapshot.GPUs, func(a, b runs.GPU) int {
		return cmp.Or(
			cmp.Compare(a.Vendor, b.Vendor),
			cmp.Compare(len(a.Index), len(b.Index)), // numbers
			cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.UUID, b.UUID), // DCGM's are of several machines
		)
	})
	return s.snapshot
}

// learn takes over what a resource says; what it does not say stays as it was.
func (s *Source) learn(attrs pcommon.Map) {
	for key, value := range attrs.All() {
		known, ok := s.attrs.Get(key)
		if (ok && known.Equal(value)) || (!ok && s.attrs.Len() >= maxAttrs) {
			continue
		}
		value.CopyTo(s.attrs.PutEmpty(key))
		s.snapshot = nil
	}
}

// slot finds the place of a key. GPUs of two makers may share a number, and with it
// their keys: all those of the later one have its maker as a label.
func (s *Source) slot(key []byte, attrs pcommon.Map) *slot {
	sl, known := s.slots[string(key)]
	if !known {
		sl = s.newSlot(string(key), attrs)
	}
	if sl.vendor == "" {
		return sl
	}
	vendor := vendorOf(attrs)
	if vendor == "" || vendor == sl.vendor {
		return sl
	}
	key = append(append(key, naming.LabelMark...), vendor...)
	if sl, known = s.slots[string(key)]; !known {
		sl = s.newSlot(string(key), attrs)
	}
	return sl
}

func (s *Source) newSlot(key string, attrs pcommon.Map) *slot {
	sl := &slot{key: key}
	if strings.HasPrefix(key, gpuPrefix) {
		sl.vendor = s.owner(s.describe(attrs))
	}
	s.slots[key] = sl
	return sl
}

// owner returns the maker whose GPU of that number came first.
func (s *Source) owner(g runs.GPU) string {
	if g.Vendor == "" {
		return ""
	}
	if first, known := s.owners[g.Index]; known {
		return first
	}
	if len(s.owners) < maxGPUs {
		s.owners[g.Index] = g.Vendor
	}
	return g.Vendor
}

// describe remembers the GPU of a point.
func (s *Source) describe(attrs pcommon.Map) runs.GPU {
	g := runs.GPU{
		Vendor: vendorOf(attrs), Index: text(attrs, "gpu_index"),
		UUID: text(attrs, "gpu_uuid"), Model: text(attrs, "gpu_model"),
	}
	id := g.Vendor + "/" + cmp.Or(g.UUID, g.Index)
	if g.Vendor != "" && !s.workload && s.gpus[id] != g && len(s.gpus) < maxGPUs {
		s.gpus[id] = g
		s.snapshot = nil
	}
	return g
}

// vendorOf returns a GPU's maker as it may be in a key, empty if that is not known.
func vendorOf(attrs pcommon.Map) string {
	vendor := text(attrs, attrVendor)
	if len(vendor) > maxVendor {
		return ""
	}
	return strings.ToValidUTF8(vendor, string(utf8.RuneError))
}

// placed is a point and its place.
type placed struct {
	slot *slot
	at   pcommon.Timestamp
	item runs.Item
}

// forget drops the places of keys if there are too many.
func (s *Source) forget() {
	if len(s.slots) > maxSlots {
		s.close() // or a key could be in it twice
		clear(s.slots)
	}
}

// putAll adds the points of one scrape to the record, all to the same one. It
// returns how many of them took the place of another one.
func (s *Source) putAll(part []placed, c *Collector) (duplicates int) {
	for i := range part {
		if sl := part[i].slot; sl.number == s.number && sl.time != part[i].at {
			s.close()
			break
		}
	}
	for i := range part {
		if !s.put(&part[i], c) {
			duplicates++
		}
	}
	return duplicates
}

// put adds a point to the record. What cannot be in the same one closes it first:
// another point of the key, or one from another interval. It returns false if the
// point takes the place of one with the same time.
func (s *Source) put(p *placed, c *Collector) bool {
	sl, at, it := p.slot, p.at, p.item
	if len(s.items) > 0 && (span(min(s.first, at), max(s.last, at)) >= c.Interval || len(s.items) >= maxItems) {
		s.close()
	}
	it.Key = sl.key
	if sl.number == s.number {
		if sl.time == at {
			s.items[sl.index] = it
			return false
		}
		s.close()
	}
	if len(s.items) == 0 {
		s.first, s.last, s.begin, s.opened = at, at, at, c.Now()
	}
	s.first, s.last, s.begin = min(s.first, at), max(s.last, at), min(s.begin, at)
	if it.Kind == runs.Counter && it.Start >= c.began {
		s.begin = min(s.begin, it.Start)
	}
	sl.number, sl.index, sl.time = s.number, len(s.items), at
	s.items = append(s.items, it)
	return true
}

func span(first, last pcommon.Timestamp) time.Duration { return time.Duration(last - first) }

// close puts the record to those that are to be written.
func (s *Source) close() {
	s.number++
	if len(s.items) == 0 {
		return
	}
	s.ready = append(s.ready, &runs.Record{Begin: s.begin.AsTime(), Time: s.last.AsTime(), Items: s.items})
	s.items = make([]runs.Item, 0, len(s.items))
}

// Key tells the source apart from others.
func (s *Source) Key() string { return s.key }

// Ready returns the record of a source that is to be written next, nil if there is none.
func (s *Source) Ready() *runs.Record {
	if len(s.ready) == 0 {
		return nil
	}
	return s.ready[0]
}

// Written takes the record away that Ready has given.
func (s *Source) Written() { s.ready = slices.Delete(s.ready, 0, 1) }
