// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// segment is one part of a tag between dots: fixed text, or an attribute's
// value with text glued to it (`{stat}Us`). Fixed segments that follow each
// other are one.
type segment struct {
	pre, key, post string
}

// compile splits a template at its dots. Neither placeholders nor the fixed
// text of any tag contain a dot.
func compile(text string) []segment {
	var segs []segment
	for part := range strings.SplitSeq(text, ".") {
		s := segment{pre: part}
		if pre, rest, found := strings.Cut(part, "{"); found {
			key, post, _ := strings.Cut(rest, "}")
			s = segment{pre: pre, key: key, post: post}
		}
		if n := len(segs); n > 0 && s.key == "" && segs[n-1].key == "" {
			segs[n-1].pre += "." + s.pre
			continue
		}
		segs = append(segs, s)
	}
	return segs
}

// appendTag appends a point's tag to buf. A segment whose attribute is missing or
// empty is left out, so that the point keeps a name; whole says that there was
// none.
func appendTag(buf []byte, segs []segment, attrs pcommon.Map) (tag []byte, whole bool) {
	whole = true
	start := len(buf)
	for i := range segs {
		s := &segs[i]
		mark := len(buf)
		if mark > start {
			buf = append(buf, '.')
		}
		buf = append(buf, s.pre...)
		if s.key == "" {
			continue
		}
		value := len(buf)
		buf = appendAttr(buf, attrs, s.key)
		if len(buf) == value {
			buf, whole = buf[:mark], false
			continue
		}
		buf = append(buf, s.post...)
	}
	return buf, whole
}

func appendAttr(buf []byte, attrs pcommon.Map, key string) []byte {
	v, ok := attrs.Get(key)
	if !ok {
		return buf
	}
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return append(buf, v.Str()...)
	case pcommon.ValueTypeInt:
		return strconv.AppendInt(buf, v.Int(), 10)
	default:
		return append(buf, v.AsString()...)
	}
}

// kind is what a placeholder may stand for in a rendered tag.
type kind int

const (
	word   kind = iota // lower case letters, digits and _
	number             // decimal, without leading zeros
	stat               // one of stats
	text               // anything that is not empty
)

// kinds has the placeholders that are not plain words.
var kinds = map[string]kind{
	"core":                number,
	"core_index":          number,
	"device":              text,
	"device_id":           number,
	"gpu_index":           number,
	"neuron_device_index": number,
	"part":                text,
	"path":                text,
	"stat":                stat,
	"tpu_index":           number,
	"xid":                 number,
}

var stats = []string{"mean", "p50", "p90", "p95", "p99", "p999"}

func (k kind) allows(value string) bool {
	switch k {
	case number:
		return isNumber(value)
	case stat:
		return slices.Contains(stats, value)
	default:
		return value != ""
	}
}

// isNumber accepts what strconv would print for an int64 of 0 or more, so that
// a parsed index renders to the text that it came from.
func isNumber(s string) bool {
	if s == "" || len(s) > 18 || (len(s) > 1 && s[0] == '0') {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// pattern reads rendered tags back: lits[0] key[0] lits[1] key[1] ... lits[n].
type pattern struct {
	metric string
	lits   []string
	keys   []string
}

func newPattern(metric string, segs []segment) pattern {
	p := pattern{metric: metric}
	lit := ""
	for i, s := range segs {
		if i > 0 {
			lit += "."
		}
		lit += s.pre
		if s.key == "" {
			continue
		}
		p.lits, p.keys = append(p.lits, lit), append(p.keys, s.key)
		lit = s.post
	}
	p.lits = append(p.lits, lit)
	return p
}

// match never splits at dots: it walks along the fixed text. A text
// placeholder is the last one of its template and takes all that is left
// before the template's end.
func (p *pattern) match(tag string) (map[string]string, bool) {
	end := p.lits[len(p.keys)]
	if !strings.HasSuffix(tag, end) {
		return nil, false
	}
	values := make([]string, 0, 2)
	rest := tag
	for i, key := range p.keys {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, p.lits[i]); !ok {
			return nil, false
		}
		n := wordLen(rest)
		if kinds[key] == text {
			n = len(rest) - len(end)
		}
		if n < 0 || !kinds[key].allows(rest[:n]) {
			return nil, false
		}
		values = append(values, rest[:n])
		rest = rest[n:]
	}
	if rest != end {
		return nil, false
	}
	attrs := make(map[string]string, len(values))
	for i, key := range p.keys {
		attrs[key] = values[i]
	}
	return attrs, true
}

func wordLen(s string) int {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return i
		}
	}
	return len(s)
}
