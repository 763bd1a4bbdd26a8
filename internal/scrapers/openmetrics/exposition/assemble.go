// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
)

const (
	misfit     reason = "a family of this type has no sample of this name"
	noBound    reason = "a bucket without an upper bound (le)"
	noQuantile reason = "a summary's sample without a quantile"
)

// namesPerSeries is how many names of metrics there may be for each series that may
// pass the filter.
const namesPerSeries = 10

// latestStart is the last second that OpenTelemetry's nanoseconds can express.
const latestStart = math.MaxInt64 / 1e9

// place is where a series is: at is its place in its family's samples, or that of
// its part if the series has several samples.
type place struct{ family, at int32 }

// add puts a sample where it belongs, unless the filter does not want it. The reason
// is that of a line that cannot be used, the error that of a scrape.
func (p *Parser) add(s *sample) (reason, error) {
	m := p.names.get(s.name)
	if p.names.used > p.maxNames() {
		return "", p.tooManyNames()
	}
	if !m.resolved {
		p.names.resolve(m)
	}
	return p.addAs(m.role, m, s)
}

// maxNames is how many names there may be: what the filter does not want takes no
// memory, except for its names.
func (p *Parser) maxNames() int { return namesPerSeries * p.limits.Series }

func (p *Parser) tooManyNames() error {
	return &LimitError{Key: keySeries, Limit: p.limits.Series, what: "the endpoint has too many names of metrics"}
}

// addAs adds a sample of m in a role.
func (p *Parser) addAs(as role, m *metric, s *sample) (reason, error) {
	var why reason
	var err error
	switch as {
	case roleMisfit:
		return misfit, nil
	case roleSingle:
		err = p.addSingle(m, s)
	case roleBucket:
		why, err = p.addPoint(m, s, "le", noBound)
	case roleQuantile:
		why, err = p.addPoint(m, s, "quantile", noQuantile)
	case roleCount, roleSum:
		err = p.addTotal(as, m, s)
	case roleCreated:
		p.addStart(m.declared, s)
	case roleTarget:
		p.addTarget(s.labels)
	case roleDropped:
		p.drop(m.declared, s)
	}
	if why == "" {
		p.out.Samples++
	}
	return why, err
}

// addTarget takes what target_info says, if that is the only one.
func (p *Parser) addTarget(labels Labels) {
	switch {
	case p.out.Targets == 0:
		p.out.Targets, p.out.TargetInfo = 1, p.store(labels)
	case !slices.Equal(p.out.TargetInfo, labels):
		p.out.Targets++
		p.out.TargetInfo = nil
	}
}

// addSingle adds a series of its own. A later one with the same labels replaces it.
func (p *Parser) addSingle(m *metric, s *sample) error {
	if !p.keep(m.name, s.labels) {
		return nil
	}
	p.out.Kept++
	family := p.family(m, m.declared, kindSingle, m.typ)
	at, key, found := p.find(family, s.labels)
	samples := &p.out.Families[family].Samples
	made := Sample{Value: s.value, Timestamp: s.timestamp, Start: s.start}
	if m.typ == TypeCounter {
		made.Exemplar = s.exemplar
	}
	if found {
		p.out.Duplicates++
		made.Labels = (*samples)[at].Labels
		(*samples)[at] = made
		return nil
	}
	made.Labels = p.store(s.labels)
	p.places[key] = place{family: family, at: int32(len(*samples))}
	*samples = append(*samples, made)
	return p.count()
}

// addStart notes when a series started. Unlike a series it is found by its hash
// alone, so that the start times of a large endpoint cost little where a filter
// keeps a few of its series.
func (p *Parser) addStart(family *metric, s *sample) {
	if !family.hasCreated {
		family.hasCreated = true
		p.out.CreatedFamilies = append(p.out.CreatedFamilies, family.name)
	}
	seconds := s.value
	if !(seconds > 0 && seconds < latestStart) {
		seconds = 0
	}
	p.starts[p.startKey(family, s.labels)] = int64(math.Round(seconds * 1000))
}

func (p *Parser) startKey(family *metric, labels Labels) uint64 {
	p.key = labels.AppendKey(appendText(p.key[:0], family.name))
	return maphash.Bytes(p.seed, p.key)
}

// startOf returns when a series started, if its family tells it elsewhere.
func (p *Parser) startOf(family *metric, labels Labels, own Time) Time {
	if !family.hasCreated {
		return own
	}
	millis := p.starts[p.startKey(family, labels)]
	return Time{Millis: millis, Known: millis > 0}
}

// drop counts the family of a gaugehistogram, if the filter wants it.
func (p *Parser) drop(family *metric, s *sample) {
	s.labels.take("le")
	if !p.keep(family.name, s.labels) {
		return
	}
	p.dropped[family] = struct{}{}
}

// family returns the family that series of a metric go into; declared is where its
// metadata is.
func (p *Parser) family(m, declared *metric, k kind, t Type) int32 {
	if i := m.families[k]; i > 0 {
		return i - 1
	}
	n := len(p.out.Families)
	if n < cap(p.out.Families) {
		p.out.Families = p.out.Families[:n+1]
	} else {
		p.out.Families = append(p.out.Families, Family{})
	}
	f := &p.out.Families[n]
	*f = Family{
		Name: m.name, Type: t, Unit: declared.suffixUnit(), declared: declared,
		Samples: f.Samples[:0], Histograms: f.Histograms[:0], Natives: f.Natives[:0], Summaries: f.Summaries[:0],
	}
	switch {
	case declared.hasHelp:
		f.Help = declared.help
	case m.hasHelp:
		f.Help = m.help
	}
	m.families[k] = int32(n) + 1
	return int32(n)
}

// find looks for a series of a family. If there is none, key is what to put it under.
func (p *Parser) find(family int32, labels Labels) (at int32, key uint64, found bool) {
	p.key = labels.AppendKey(binary.AppendUvarint(p.key[:0], uint64(family)))
	for key = maphash.Bytes(p.seed, p.key); ; key++ {
		of, taken := p.places[key]
		if !taken {
			return 0, key, false
		}
		if of.family == family && same(p.labelsAt(of), labels) {
			return of.at, key, true
		}
	}
}

func (p *Parser) labelsAt(of place) Labels {
	if f := &p.out.Families[of.family]; f.Type.single() {
		return f.Samples[of.at].Labels
	}
	return p.parts[of.at].labels
}

func same(a, b Labels) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// store copies labels to where they stay until the next scrape.
func (p *Parser) store(labels Labels) Labels {
	start := len(p.labels)
	p.labels = append(p.labels, labels...)
	for i := range labels {
		if len(labels[i].Value) > p.limits.LabelValue {
			p.out.LongValues++
		}
	}
	return p.labels[start:len(p.labels):len(p.labels)]
}

// count counts a series.
func (p *Parser) count() error {
	p.series++
	if p.series > p.limits.Series {
		return &LimitError{Key: keySeries, Limit: p.limits.Series, what: "the endpoint has too many series after filtering"}
	}
	return nil
}

// finish makes what takes all samples.
func (p *Parser) finish() {
	p.out.ReplacedUTF8 = p.scan.replaced
	p.out.GaugeHistograms = len(p.dropped)
	p.finishParts()
	for i := range p.out.Families {
		f := &p.out.Families[i]
		if !f.Type.single() {
			continue
		}
		for j := range f.Samples {
			s := &f.Samples[j]
			if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
				p.out.NonFinite++
			}
			if f.Type == TypeCounter {
				s.Start = p.startOf(f.declared, s.Labels, s.Start)
			}
		}
	}
}
