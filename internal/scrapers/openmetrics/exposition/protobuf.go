// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// protobufReader reads one protobuf body.
type protobufReader struct {
	p      *Parser
	parser textparse.Parser
	// family is the one being read.
	family *metric
	labels labels.Labels
	own    Labels
}

// readProtobuf reads a protobuf body. It has no lines that could be left out: if it
// is malformed, the scrape fails.
func (p *Parser) readProtobuf(body []byte) error {
	p.begin(Protobuf)
	r := protobufReader{
		p:      p,
		parser: textparse.NewProtobufParser(body, false, false, false, false, labels.NewSymbolTable()),
	}
	for {
		entry, err := r.parser.Next()
		if errors.Is(err, io.EOF) {
			p.described = true
			p.finish()
			return nil
		}
		if err != nil {
			// The text may have any bytes of the body.
			text := strings.ToValidUTF8(err.Error(), "\uFFFD")
			return fmt.Errorf("read the protobuf body: %s", beginning(text, shownError))
		}
		if err := r.entry(entry); err != nil {
			return err
		}
	}
}

// entry takes an entry. A family's metadata come before its series, the type last.
func (r *protobufReader) entry(entry textparse.Entry) error {
	switch entry {
	case textparse.EntryHelp:
		name, help := r.parser.Help()
		r.family = r.p.names.get(string(name))
		r.family.setHelp(string(help))
	case textparse.EntryUnit:
		_, unit := r.parser.Unit()
		r.family.setUnit(string(unit))
	case textparse.EntryType:
		_, t := r.parser.Type()
		r.begin(t)
	case textparse.EntrySeries:
		return r.series()
	case textparse.EntryHistogram:
		return r.histogram()
	}
	return nil
}

func (r *protobufReader) begin(t model.MetricType) {
	f := r.family
	f.resolved, f.role, f.typ, f.declared = true, roleSingle, typeWords[string(t)], f
	switch {
	case f.typ == TypeGaugeHistogram:
		f.role = roleDropped
	case f.name == targetInfo && f.typ.single():
		f.role = roleTarget
	}
}

// series takes a series with a number: one of its own, or a part of a classic
// histogram or a summary, which textparse names as the text formats do.
func (r *protobufReader) series() error {
	_, timestamp, value := r.parser.Series()
	s := r.sample(timestamp)
	s.value = value
	if e, ok := r.p.takeExemplar(r.parser); ok {
		s.exemplar = e
	}
	return r.add(&s, func() (reason, error) { return r.p.addAs(r.roleOf(s.name), r.family, &s) })
}

func (r *protobufReader) roleOf(name string) role {
	switch r.family.typ {
	case TypeHistogram, TypeSummary:
	default:
		return r.family.role
	}
	switch strings.TrimPrefix(name, r.family.name) {
	case "_bucket":
		return roleBucket
	case "_count":
		return roleCount
	case "_sum":
		return roleSum
	}
	return roleQuantile
}

// sample returns the current entry's sample, without its value.
func (r *protobufReader) sample(timestamp *int64) sample {
	var s sample
	if timestamp != nil {
		s.timestamp = Time{Millis: *timestamp, Known: true}
	}
	if start := r.parser.StartTimestamp(); start > 0 {
		s.start = Time{Millis: start, Known: true}
	}
	r.parser.Labels(&r.labels)
	r.own = r.own[:0]
	r.labels.Range(func(l labels.Label) {
		if l.Name == metricNameName && s.name == "" {
			s.name = l.Value
			return
		}
		r.own = append(r.own, Label{Name: l.Name, Value: l.Value})
	})
	s.labels = r.own
	return s
}

// add adds a sample unless its name or labels are unusable.
func (r *protobufReader) add(s *sample, add func() (reason, error)) error {
	why := r.p.scan.check(s)
	if why == "" {
		var err error
		if why, err = add(); err != nil {
			return err
		}
	}
	if why != "" {
		r.p.skip(0, reason(beginning(s.name, shownWord)+": ")+why)
	}
	return nil
}

// histogram takes a native histogram.
func (r *protobufReader) histogram() error {
	h, timestamp := nativeOf(r.parser)
	s := r.sample(timestamp)
	return r.add(&s, func() (reason, error) {
		r.p.out.Samples++
		if r.family.typ == TypeGaugeHistogram {
			r.p.drop(r.family, &s)
			return "", nil
		}
		return "", r.native(&s, h)
	})
}

func (r *protobufReader) native(s *sample, h *histogram.FloatHistogram) error {
	i := r.p.partOf(r.family, s)
	if i < 0 {
		return nil
	}
	t := &r.p.parts[i]
	if t.isNative {
		r.p.out.Duplicates++
	}
	t.isNative, t.native, t.exemplars = true, h, r.exemplars()
	return r.p.count()
}

// exemplars returns those of a native histogram.
func (r *protobufReader) exemplars() (all []Exemplar) {
	for {
		e, ok := r.p.takeExemplar(r.parser)
		if e == nil {
			return all
		}
		if ok {
			all = append(all, *e)
		}
	}
}

// nativeOf returns the current native histogram, nil if it contradicts itself.
func nativeOf(parser textparse.Parser) (*histogram.FloatHistogram, *int64) {
	_, timestamp, integers, floats := parser.Histogram()
	switch {
	case integers == nil:
		return floats, timestamp
	// Of integers more is checked than of their floats.
	case !integers.UsesCustomBuckets() && integers.Validate() != nil:
		return nil, timestamp
	}
	return integers.ToFloat(nil), timestamp
}
