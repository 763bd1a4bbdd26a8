// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"slices"
	"strings"
)

// staleNames is how many names of earlier scrapes may be kept for later ones.
const staleNames = 1024

// role is what the samples of a name are.
type role uint8

const (
	roleSingle role = iota
	roleBucket
	roleCount
	roleSum
	roleQuantile
	roleCreated
	roleTarget
	// roleDropped is that of a gaugehistogram's samples.
	roleDropped
	// roleMisfit is that of a name that a histogram's samples cannot have.
	roleMisfit
)

// metric is what is known of a name: of a family, of a sample, or of both.
type metric struct {
	name string
	// scrape is the one for which the rest holds.
	scrape uint64
	// types are those declared, in their order: a family may have several if the
	// names of their samples differ.
	types []Type
	// help and unit outlive their scrape, for they hardly change.
	help, unit       string
	hasHelp, hasUnit bool

	resolved bool
	// role, typ and declared are those of samples with this name.
	role     role
	typ      Type
	declared *metric
	// hasCreated tells that the family tells when its series started.
	hasCreated bool
	// families are where the series go, plus one, by the kind of the series.
	families [kinds]int32
}

// kind is the kind of a series. A name may belong to one of each.
type kind uint8

const (
	kindSingle kind = iota
	kindHistogram
	kindSummary
	kinds
)

// names are the metrics by their names. They outlive a scrape, so that the next one
// need not make them again.
type names struct {
	byName map[string]*metric
	scrape uint64
	used   int
	last   *metric
	// openMetrics tells which names the samples of counters have.
	openMetrics bool
}

// begin begins a scrape. It forgets old names once there are many.
func (n *names) begin(format Format) {
	n.openMetrics = format == OpenMetrics
	if len(n.byName) > 2*n.used+staleNames {
		for name, m := range n.byName {
			if m.scrape != n.scrape {
				delete(n.byName, name)
			}
		}
	}
	n.scrape++
	n.used, n.last = 0, nil
}

// get returns the metric of a name.
func (n *names) get(name string) *metric {
	// The samples of a family follow each other, as a rule.
	if n.last != nil && n.last.name == name {
		return n.last
	}
	m := n.byName[name]
	if m == nil {
		m = &metric{name: strings.Clone(name)}
		n.byName[m.name] = m
	}
	if m.scrape != n.scrape {
		*m = metric{name: m.name, scrape: n.scrape, types: m.types[:0], help: m.help, unit: m.unit}
		n.used++
	}
	n.last = m
	return m
}

// declaring returns the metric of a name if it declares one of the types, and which
// of them comes first.
func (n *names) declaring(name string, types ...Type) (*metric, Type) {
	m := n.byName[name]
	if m == nil || m.scrape != n.scrape {
		return nil, 0
	}
	for _, t := range m.types {
		if slices.Contains(types, t) {
			return m, t
		}
	}
	return nil, 0
}

func (m *metric) declare(t Type) {
	if !slices.Contains(m.types, t) {
		m.types = append(m.types, t)
	}
}

func (m *metric) setHelp(text string) {
	if !m.hasHelp && m.help != text {
		m.help = strings.Clone(text)
	}
	m.hasHelp = true
}

func (m *metric) setUnit(word string) {
	if !m.hasUnit && m.unit != word {
		m.unit = strings.Clone(word)
	}
	m.hasUnit = true
}

// suffixes are those of sample names, and the types whose samples have them.
var suffixes = []struct {
	suffix string
	types  []Type
	role   role
}{
	{"_bucket", []Type{TypeHistogram, TypeGaugeHistogram}, roleBucket},
	{"_count", []Type{TypeHistogram, TypeSummary}, roleCount},
	{"_sum", []Type{TypeHistogram, TypeSummary}, roleSum},
	{"_gcount", []Type{TypeGaugeHistogram}, roleDropped},
	{"_gsum", []Type{TypeGaugeHistogram}, roleDropped},
	{"_total", []Type{TypeCounter}, roleSingle},
	{"_info", []Type{TypeInfo}, roleSingle},
}

const (
	createdSuffix = "_created"
	totalSuffix   = "_total"
	targetInfo    = "target_info"
)

// resolve finds out what the samples of a name are. All types must be declared by
// then.
func (n *names) resolve(m *metric) {
	m.resolved = true
	m.role, m.typ, m.declared = n.roleOf(m)
	if m.name == targetInfo && m.role == roleSingle {
		m.role = roleTarget
	}
	if m.typ == TypeGaugeHistogram && m.role != roleMisfit {
		m.role = roleDropped
	}
}

func (n *names) roleOf(m *metric) (role, Type, *metric) {
	if f := n.startsOf(m); f != nil {
		return roleCreated, TypeGauge, f
	}
	// A name that is declared itself is no part of another family.
	for _, t := range n.ownTypes(m) {
		switch {
		case t.single():
			return roleSingle, t, m
		case t == TypeSummary:
			return roleQuantile, t, m
		}
	}
	for _, s := range suffixes {
		family, ok := strings.CutSuffix(m.name, s.suffix)
		if !ok {
			continue
		}
		if f, t := n.declaring(family, s.types...); f != nil {
			return s.role, t, f
		}
	}
	if len(m.types) > 0 {
		return roleMisfit, m.types[0], m
	}
	return roleSingle, TypeUnknown, m
}

// ownTypes returns the declared types, those first that give their samples this very
// name: in OpenMetrics the samples of a counter and an info have suffixes, so that a
// gauge may share their name.
func (n *names) ownTypes(m *metric) []Type {
	if !n.openMetrics || len(m.types) < 2 {
		return m.types
	}
	hasSuffix := func(t Type) bool { return t == TypeCounter || t == TypeInfo }
	own := slices.DeleteFunc(slices.Clone(m.types), hasSuffix)
	return append(own, slices.DeleteFunc(slices.Clone(m.types), func(t Type) bool { return !hasSuffix(t) })...)
}

// startsOf returns the family whose series' start times the samples of a name are.
// The Python client declares them as gauges of their own.
func (n *names) startsOf(m *metric) *metric {
	base, ok := strings.CutSuffix(m.name, createdSuffix)
	if !ok || len(m.types) > 0 && m.types[0] != TypeGauge && m.types[0] != TypeUnknown {
		return nil
	}
	for _, family := range [...]string{base, base + totalSuffix} {
		if f, _ := n.declaring(family, TypeCounter, TypeHistogram, TypeSummary); f != nil {
			return f
		}
	}
	return nil
}

// suffixUnit returns the declared unit if the name ends in it.
func (m *metric) suffixUnit() string {
	if !m.hasUnit || m.unit == "" {
		return ""
	}
	base, ok := strings.CutSuffix(strings.TrimSuffix(m.name, totalSuffix), m.unit)
	if !ok || !strings.HasSuffix(base, "_") {
		return ""
	}
	return m.unit
}
