// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

const (
	// maxLine is a safe distance below the megabyte beyond which W&B drops the line
	// that a record becomes when it is uploaded.
	maxLine = 900_000
	// itemCost is what a value takes in such a line besides key and number: `"system.": ,`.
	itemCost = 12
	// maxEscape is what a byte takes at most: \u00XX.
	maxEscape = 6

	// itemBytes is the most that a value takes in a log besides its key: five tags,
	// lengths of at most 3 bytes, and a number of at most 25 characters. recordBytes is
	// that of a record besides its items, with those of an exit record.
	itemBytes, recordBytes = 40, 256
	// framing: of so many bytes one may be that of a chunk's header.
	framing = 1 << 10
)

// mostBytes returns at least what a record and an exit record add to a log.
func mostBytes(record *Record) int64 {
	size := int64(0)
	for i := range record.Items {
		size += itemBytes + int64(len(record.Items[i].Key))
	}
	parts := 1 + size/(maxLine/8)
	return size + size/framing + parts*recordBytes
}

// scratch is memory for records, used again and again.
type scratch struct {
	record wandbpb.Record
	stats  wandbpb.StatsRecord
	items  []*wandbpb.Item
	values []byte
	ends   []int
}

// append puts a record into the log, in as many parts as its size asks for. It
// returns their number.
func (r *run) append(record *Record, s *scratch) (parts int64) {
	s.prepare(r, record)
	s.stats.Timestamp = timestamppb.New(record.Time)
	s.record.RecordType = &wandbpb.Record_Stats{Stats: &s.stats}
	for rest := s.items[:len(record.Items)]; len(rest) > 0; parts++ {
		n := fitting(rest)
		s.stats.Item = rest[:n]
		// Keys are valid UTF-8, so that it does not fail.
		_ = r.log.Append(&s.record)
		rest = rest[n:]
	}
	r.filled = true
	if record.Time.After(r.last) {
		r.last = record.Time
	}
	return parts
}

// prepare makes the items of a record. All numbers together are one text.
func (s *scratch) prepare(r *run, record *Record) {
	s.values, s.ends = s.values[:0], s.ends[:0]
	late := record.Time.Before(r.last)
	for i := range record.Items {
		s.values = r.count(&record.Items[i], late).appendJSON(s.values)
		s.ends = append(s.ends, len(s.values))
	}
	text, from := string(s.values), 0
	for i := range record.Items {
		if i == len(s.items) {
			s.items = append(s.items, &wandbpb.Item{})
		}
		s.items[i].Key, s.items[i].ValueJson = record.Items[i].Key, text[from:s.ends[i]]
		from = s.ends[i]
	}
}

// fitting returns how many of the items fit into one record, at least one.
func fitting(items []*wandbpb.Item) int {
	most := 0
	for _, it := range items {
		most += itemCost + maxEscape*len(it.Key) + len(it.ValueJson)
	}
	if most <= maxLine { // as nearly always: it need not be looked at what is escaped
		return len(items)
	}
	size := 0
	for i, it := range items {
		size += itemCost + jsonLen(it.Key) + len(it.ValueJson)
		if size > maxLine && i > 0 {
			return i
		}
	}
	return len(items)
}

// jsonLen returns at least the length of a text in JSON.
func jsonLen(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c == '"', c == '\\', c == '<', c == '>', c == '&', c >= utf8.RuneSelf:
			n += maxEscape - 1
		}
	}
	return n
}
