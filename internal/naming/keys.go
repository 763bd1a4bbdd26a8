// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Keys finds the tags that W&B's SDK writes for points whose metrics have names
// of any of our styles: what an Expander of the style [SDK] would have called
// them. It is not for concurrent use; the Key values that it gives are.
type Keys struct {
	// sdk and listed are the rules of the styles SDK and Tag.
	sdk, listed map[string]*rule
	// plain and dcgm hold what is known of the names of each kind of scope.
	plain, dcgm map[string]*meaning
}

// Key makes the tags of one metric's points.
type Key struct {
	m *meaning
}

// meaning is what the name of a metric may say.
type meaning struct {
	name string
	dcgm bool
	// readings are those of a full tag. The first one that gives the name for
	// the point's attributes is right.
	readings []reading
	// template is the rule of a name in template form; right if no reading is.
	template *rule
	// byName is the tag in SDK spelling as the name alone says it, by the first
	// of the readings; for points that have lost their attributes.
	byName string
}

// reading takes a name for the tag of a metric, up to end, and a label suffix.
type reading struct {
	sdk *rule
	// listed is the rule of the published list, nil if that says the same.
	listed *rule
	end    int
}

// NewKeys makes a Keys.
func NewKeys() *Keys {
	return &Keys{
		sdk:    tableRules(SDK),
		listed: tableRules(Tag),
		plain:  make(map[string]*meaning),
		dcgm:   make(map[string]*meaning),
	}
}

// Metric looks a metric of a scope up. ok is false for names that cannot be ours
// and for those that have no tag (gpu.mig.*). Of the scope only [ScopeSource]
// counts.
func (k *Keys) Metric(scope pcommon.InstrumentationScope, name string) (key Key, ok bool) {
	known, dcgm := k.plain, isDCGM(scope)
	if dcgm {
		known = k.dcgm
	}
	m, found := known[name]
	if !found {
		if len(known) >= maxNames {
			clear(known)
		}
		m = k.read(name, dcgm)
		known[name] = m
	}
	return Key{m}, m.template != nil || len(m.readings) > 0
}

// Append appends the tag of a number point to buf. label is the `wandb.label` of
// its resource, empty if there is none; a name that has a label keeps its own.
// ok is false, and buf as it was, if the point has no tag: a single value of an
// endpoint without its number, or a name that only looked like one of ours.
//
// The point's attributes, which keep the values of the placeholders in all
// styles, decide between the readings that a name may have (see [Parse]). They
// cannot where
//   - a name of an endpoint in template form by chance ends in the point's
//     number, also before `/l:`: it is taken for the tag with it
//     (openmetrics.ep.http.3 of the point with wandb.index 3);
//   - a part of a NeuronCore's memory has `/l:` in its name: this is taken for a
//     label, but in template form with its core_index.
//
// Where the attributes are gone, the name alone is read as [Parse] does it, and
// a number at the end of an endpoint's name is taken for that of the point.
func (key Key) Append(buf []byte, attrs pcommon.Map, label string) (_ []byte, ok bool) {
	m := key.m
	if m == nil {
		return buf, false
	}
	for i := range m.readings {
		r := &m.readings[i]
		if tag, ok := r.render(buf, attrs, m.name); ok {
			return m.appendSuffix(tag, r.sdk, r.end, attrs, label), true
		}
	}
	switch {
	case m.template != nil && (!m.template.numbered || hasNumber(attrs)):
		return m.appendSuffix(m.template.render(buf, attrs), m.template, len(m.name), attrs, label), true
	case m.byName != "":
		return m.appendSuffix(append(buf, m.byName...), m.readings[0].sdk, m.readings[0].end, attrs, label), true
	default:
		return buf, false
	}
}

// render appends the tag in SDK spelling; ok tells whether the name is that of a
// point with these attributes.
func (r *reading) render(buf []byte, attrs pcommon.Map, name string) (_ []byte, ok bool) {
	tag := r.sdk.render(buf, attrs)
	if string(tag[len(buf):]) == name[:r.end] {
		return tag, true
	}
	if r.listed == nil {
		return buf, false
	}
	listed := r.listed.render(tag, attrs)
	if string(listed[len(tag):]) != name[:r.end] {
		return buf, false
	}
	return listed[:len(tag)], true
}

// appendSuffix appends the label suffix of the name, which is whole, or what the
// style SDK appends.
func (m *meaning) appendSuffix(buf []byte, r *rule, end int, attrs pcommon.Map, label string) []byte {
	if end < len(m.name) {
		return append(buf, m.name[end:]...)
	}
	if m.dcgm && r.tag != nil {
		buf = appendNode(buf, attrs)
	}
	if label == "" {
		return buf
	}
	return append(append(buf, LabelMark...), label...)
}

func (k *Keys) read(name string, dcgm bool) *meaning {
	m := &meaning{name: name, dcgm: dcgm}
	if r := k.rule(name, dcgm); r != nil {
		if r.drop {
			return m
		}
		m.template = r
		if _, static := k.sdk[name]; static || r.tag == nil {
			return m
		}
	}
	// What the name has no values for comes last: it fits more points.
	var loose []reading
	for end := range tagEnds(name) {
		metric, values, ok := parseTag(name[:end])
		switch {
		case !ok:
			loose = append(loose, k.looseReadings(name[:end], dcgm)...)
		case values != nil:
			r := k.reading(metric, end, dcgm)
			if len(m.readings) == 0 {
				m.byName = renderValues(r.sdk, values)
			}
			m.readings = append(m.readings, r)
		case !strings.HasPrefix(metric, openMetricsPrefix): // those have a number in tags
			loose = append(loose, k.reading(metric, end, dcgm))
		}
	}
	m.readings = append(m.readings, loose...)
	return m
}

// rule is what the style SDK makes of a metric; nil if that is not ours.
func (k *Keys) rule(metric string, dcgm bool) *rule {
	if dcgm {
		metric = dcgmName(metric)
	}
	if r, ok := k.sdk[metric]; ok {
		return r
	}
	if r, ours := dynamicRule(SDK, metric); ours {
		return r
	}
	return nil
}

// reading takes a name up to end for the tag of a metric that has one.
func (k *Keys) reading(metric string, end int, dcgm bool) reading {
	r := reading{sdk: k.rule(metric, dcgm), end: end}
	if listed, ok := k.listed[metric]; ok && !slices.Equal(listed.tag, r.sdk.tag) {
		r.listed = listed
	}
	return r
}

// looseReadings has the metrics that may have such a tag, though Parse does not
// read it: where segments are missing or have odd values. Attributes can tell.
func (k *Keys) looseReadings(tag string, dcgm bool) []reading {
	if core, part, ok := strings.Cut(tag, corePartMark); ok && firstSegment(core) == "trn" {
		return []reading{k.reading(corePartPrefix+part, len(tag), dcgm)}
	}
	var found []reading
	for i := range table {
		metric := table[i].metric
		if hasFixedText(k.listed[metric].tag, tag) || hasFixedText(k.sdk[metric].tag, tag) {
			found = append(found, k.reading(metric, len(tag), dcgm))
		}
	}
	return found
}

// hasFixedText tells whether the tag begins as the template does and has its fixed
// segments in their order.
func hasFixedText(segs []segment, tag string) bool {
	if len(segs) == 0 || !strings.HasPrefix(tag, segs[0].pre) {
		return false
	}
	for i := range segs {
		if segs[i].key != "" {
			continue
		}
		_, rest, found := strings.Cut(tag, segs[i].pre)
		if !found {
			return false
		}
		tag = rest
	}
	return true
}

func renderValues(r *rule, values map[string]string) string {
	attrs := pcommon.NewMap()
	for key, value := range values {
		attrs.PutStr(key, value)
	}
	return string(r.render(nil, attrs))
}
