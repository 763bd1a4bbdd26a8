// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// reason says why a line cannot be used; there is none if it can.
type reason string

const (
	noName        reason = "it does not begin with a metric's name"
	glued         reason = "there is no blank between the name and the value"
	longName      reason = "the metric's name is too long"
	badName       reason = "a name is empty or not UTF-8"
	twoNames      reason = "it has two metric names"
	noLabelName   reason = "a label's name is expected"
	noEqual       reason = "= is expected after a label's name"
	noValue       reason = "the value is missing"
	noComma       reason = "a comma or a brace is expected after a label's value"
	openQuote     reason = "a quoted text has no end"
	noQuote       reason = "a label's value is not quoted"
	openBrace     reason = "the labels have no end"
	repeatedLabel reason = "a label occurs twice"
	manyLabels    reason = "it has too many labels"
	badValue      reason = "the value is no number"
	badTimestamp  reason = "the timestamp is no number"
	badExemplar   reason = "the exemplar is malformed"
	trailingText  reason = "there is text after the sample"
)

// metricNameName is the label that Prometheus keeps the name in.
const metricNameName = "__name__"

// sample is a line with a value.
type sample struct {
	name      string
	labels    Labels
	value     float64
	timestamp Time
	start     Time
	exemplar  *Exemplar
}

// scanner reads lines. What it reads of one is valid until the next.
type scanner struct {
	limits      Limits
	openMetrics bool
	sample      sample
	labels      Labels
	// replaced counts the label values with invalid UTF-8.
	replaced int
}

func (s *scanner) begin(format Format) {
	s.openMetrics, s.replaced = format == OpenMetrics, 0
}

// line reads a whole sample: a series, its value, and perhaps a timestamp and an
// exemplar. It accepts what textparse does, with blanks at more places.
func (s *scanner) line(line string) reason {
	rest, why := s.series(line)
	if why != "" {
		return why
	}
	word, rest := cutWord(rest)
	if word == "" {
		return noValue
	}
	var ok bool
	if s.sample.value, ok = parseFloat(word); !ok {
		return badValue
	}
	rest = trimBlanks(rest)
	if rest != "" && rest[0] != '#' {
		word, rest = cutWord(rest)
		if s.sample.timestamp, ok = s.parseTimestamp(word); !ok {
			return badTimestamp
		}
		rest = trimBlanks(rest)
	}
	if rest == "" {
		return ""
	}
	return s.comment(rest)
}

// comment reads what follows a sample, which must be an exemplar. The classic format
// has none; some exporters write them nevertheless.
func (s *scanner) comment(text string) reason {
	text, isComment := strings.CutPrefix(text, "#")
	text = trimBlanks(text)
	if !isComment || !strings.HasPrefix(text, "{") {
		return trailingText
	}
	if !s.openMetrics {
		return ""
	}
	return s.exemplar(text[1:])
}

// exemplar reads an exemplar after its opening brace.
func (s *scanner) exemplar(text string) reason {
	e := &Exemplar{}
	own := s.labels
	s.labels = nil
	rest, why := s.braces(text, nil)
	e.Labels, s.labels = s.labels, own
	if why != "" {
		return badExemplar
	}
	e.Labels.sort()
	word, rest := cutWord(trimBlanks(rest))
	var ok bool
	if e.Value, ok = parseFloat(word); !ok {
		return badExemplar
	}
	if rest = trimBlanks(rest); rest != "" {
		word, rest = cutWord(rest)
		if e.Timestamp, ok = s.parseTimestamp(word); !ok || trimBlanks(rest) != "" {
			return badExemplar
		}
	}
	s.sample.exemplar = e
	return ""
}

// series reads a name and labels, and returns what follows them.
func (s *scanner) series(text string) (rest string, why reason) {
	s.sample, s.labels = sample{}, s.labels[:0]
	n := nameLength(text, true)
	s.sample.name, rest = text[:n], text[n:]
	if n == 0 && !strings.HasPrefix(text, "{") {
		return "", noName
	}
	after := trimBlanks(rest)
	switch {
	case strings.HasPrefix(after, "{"):
		var name *string
		if n == 0 {
			name = &s.sample.name
		}
		if after, why = s.braces(after[1:], name); why != "" {
			return "", why
		}
		if s.sample.name == "" {
			return "", noName
		}
		after = trimBlanks(after)
	case after != "" && len(after) == len(rest):
		// textparse reads "gpu-0 45" as the metric gpu with the value -0 at the
		// time 45, and "disk.5 1" in the same way.
		return "", glued
	}
	s.sample.labels = s.labels
	return after, s.check(&s.sample)
}

// check tells what is wrong with a series that was read, and sorts its labels.
func (s *scanner) check(of *sample) reason {
	switch {
	case len(of.name) > s.limits.Name:
		return longName
	case len(of.labels) > s.limits.Labels:
		return manyLabels
	case !of.labels.sort() || of.labels.find(metricNameName) >= 0:
		return repeatedLabel
	case len(of.labels) > 0 && of.labels[0].Name == "":
		return badName
	}
	return ""
}

// braces reads labels after their opening brace, and the metric's name, which may be
// among them if name is not nil. It returns what follows.
func (s *scanner) braces(text string, name *string) (rest string, why reason) {
	for {
		text = trimBlanks(text)
		if text == "" {
			return "", openBrace
		}
		if text[0] == '}' {
			return text[1:], ""
		}
		var label string
		quoted := text[0] == '"'
		if label, text, why = labelName(text); why != "" {
			return "", why
		}
		text = trimBlanks(text)
		if quoted && text != "" && (text[0] == ',' || text[0] == '}') {
			if name == nil || *name != "" {
				return "", twoNames
			}
			*name = label
			text = strings.TrimPrefix(text, ",")
			continue
		}
		if text, why = s.label(label, text); why != "" {
			return "", why
		}
	}
}

// label reads what follows a label's name, up to a comma.
func (s *scanner) label(name, text string) (rest string, why reason) {
	text, isLabel := strings.CutPrefix(text, "=")
	if !isLabel {
		return "", noEqual
	}
	text = trimBlanks(text)
	if !strings.HasPrefix(text, `"`) {
		return "", noQuote
	}
	value, text, ok := quotedText(text[1:])
	if !ok {
		return "", openQuote
	}
	if len(s.labels) == s.limits.Labels {
		return "", manyLabels
	}
	if !utf8.ValidString(value) {
		s.replaced++
		value = strings.ToValidUTF8(value, "\uFFFD")
	}
	s.labels = append(s.labels, Label{Name: name, Value: value})
	text = trimBlanks(text)
	rest, comma := strings.CutPrefix(text, ",")
	// The classic format's parsers do without commas.
	if !comma && s.openMetrics && !strings.HasPrefix(rest, "}") {
		return "", noComma
	}
	return rest, ""
}

// labelName reads a name, which may be quoted, and returns what follows.
func labelName(text string) (name, rest string, why reason) {
	if text[0] != '"' {
		n := nameLength(text, false)
		if n == 0 {
			return "", "", noLabelName
		}
		return text[:n], text[n:], ""
	}
	return quotedName(text[1:])
}

// quotedName reads a quoted name after its opening quote.
func quotedName(text string) (name, rest string, why reason) {
	name, rest, ok := quotedText(text)
	switch {
	case !ok:
		return "", "", openQuote
	case name == "" || !utf8.ValidString(name):
		return "", "", badName
	}
	return name, rest, ""
}

// quotedText reads a quoted text after its opening quote: its meaning, and what
// follows the closing quote.
func quotedText(text string) (meaning, rest string, ok bool) {
	meaning, rest, ok = strings.Cut(text, `"`)
	if !ok || strings.IndexByte(meaning, '\\') < 0 {
		return meaning, rest, ok
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return unescape(text[:i], true), text[i+1:], true
		}
	}
	return "", "", false
}

// unescape resolves \\, \n and, where quotes are escaped, \". Any other backslash
// stays.
func unescape(text string, quotes bool) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		switch next := text[i+1]; {
		case next == 'n':
			b.WriteByte('\n')
		case next == '\\', next == '"' && quotes:
			b.WriteByte(next)
		default:
			b.WriteByte('\\')
			continue
		}
		i++
	}
	return b.String()
}

// nameLength returns how many bytes at the beginning are a name without quotes.
func nameLength(text string, colons bool) int {
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		case '0' <= c && c <= '9' && i > 0:
		case c == ':' && colons:
		default:
			return i
		}
	}
	return len(text)
}

// cutWord splits before the first blank or brace.
func cutWord(text string) (word, rest string) {
	if i := strings.IndexAny(text, " \t{"); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

func trimBlanks(text string) string {
	for text != "" && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	return text
}

// parseFloat reads a number in Go's syntax without hexadecimal ones and underscores.
func parseFloat(word string) (float64, bool) {
	if strings.ContainsAny(word, "xXpP_") {
		return 0, false
	}
	v, err := strconv.ParseFloat(word, 64)
	return v, err == nil
}

// parseTimestamp reads milliseconds in the classic format, seconds in OpenMetrics.
func (s *scanner) parseTimestamp(word string) (Time, bool) {
	if !s.openMetrics {
		v, err := strconv.ParseInt(word, 10, 64)
		return Time{Millis: v, Known: true}, err == nil
	}
	v, ok := parseFloat(word)
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return Time{}, false
	}
	return Time{Millis: int64(v * 1000), Known: true}, true
}
