// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// shownLines is how many of the skipped lines are told.
const shownLines = 10

const afterEOF reason = "it comes after " + eofLine

const (
	cutOff      reason = "the body ends within this line"
	noMetadata  reason = "a metric's name is expected"
	unknownType reason = "the type is unknown"
)

// readText reads a text body: in one go if it is well-formed, else line by line.
func (p *Parser) readText(format Format, body []byte) error {
	p.begin(format)
	regular := p.survey()
	if p.crowded {
		return p.tooManyNames()
	}
	if regular {
		if ok, err := p.readWhole(body); ok || err != nil {
			return err
		}
		p.begin(format)
		p.survey()
	}
	return p.readLines()
}

// survey reads the metadata of the whole body, for a type may be declared after its
// samples, and finds the end. It tells whether textparse is worth a try: it takes the
// blanks before a name as a part of it, ends at a NUL, and rejects carriage returns.
func (p *Parser) survey() (regular bool) {
	text, hasBOM := strings.CutPrefix(p.text, bom)
	p.text, p.end = text, len(text)
	regular = !hasBOM && strings.HasSuffix(text, "\n") &&
		strings.IndexByte(text, 0) < 0 && strings.IndexByte(text, '\r') < 0
	for start, number := 0, 1; start < len(text); number++ {
		line, whole := nextLine(text[start:])
		next := min(start+len(line)+1, len(text))
		if line != "" && (line[0] == ' ' || line[0] == '\t') {
			regular = false
		}
		line = trimLine(line)
		switch {
		case p.scan.openMetrics && strings.TrimRight(line, " \t") == eofLine:
			p.described, p.end = true, start
			return p.surveyRest(text[next:], number+1) && regular
		case p.scan.openMetrics && !whole:
			p.end = start
			p.skipUnlessBlank(number, line, cutOff)
		case strings.HasPrefix(line, "#"):
			p.skip(number, p.metadata(line[1:]))
		}
		start = next
	}
	p.out.MissingEOF = p.scan.openMetrics
	return regular && !p.scan.openMetrics && p.out.Skipped == 0
}

// surveyRest skips what comes after the end of an OpenMetrics body. It tells whether
// nothing does.
func (p *Parser) surveyRest(text string, number int) bool {
	empty := text == ""
	for ; text != ""; number++ {
		line, _ := nextLine(text)
		text = text[min(len(line)+1, len(text)):]
		p.skipUnlessBlank(number, trimLine(line), afterEOF)
	}
	return empty && p.out.Skipped == 0
}

// nextLine returns the first line, without its end, and whether it has one.
func nextLine(text string) (line string, whole bool) {
	line, _, whole = strings.Cut(text, "\n")
	return line, whole
}

// trimLine removes what the format has no use for at both ends of a line.
func trimLine(line string) string {
	return trimBlanks(strings.TrimSuffix(line, "\r"))
}

func (p *Parser) skipUnlessBlank(number int, line string, why reason) {
	if line != "" {
		p.skip(number, why)
	}
}

// skip counts a line if there is a reason to skip it.
func (p *Parser) skip(number int, why reason) {
	if why == "" {
		return
	}
	p.out.Skipped++
	if lines := p.out.SkippedLines; len(lines) == shownLines && lines[shownLines-1].Line <= number {
		return
	}
	// Lines of metadata come before those of samples with a lower number.
	i, _ := slices.BinarySearchFunc(p.out.SkippedLines, number+1, func(l SkippedLine, n int) int { return l.Line - n })
	p.out.SkippedLines = slices.Insert(p.out.SkippedLines, i, SkippedLine{Line: number, Reason: string(why)})
	p.out.SkippedLines = p.out.SkippedLines[:min(len(p.out.SkippedLines), shownLines)]
}

// metadata reads what follows the # of a line. A comment that is no metadata is fine.
func (p *Parser) metadata(text string) reason {
	after := trimBlanks(text)
	word, rest := cutWord(after)
	if len(after) == len(text) || trimBlanks(rest) == rest {
		return ""
	}
	if word != "TYPE" && word != "HELP" && word != "UNIT" {
		return ""
	}
	name, text, why := metadataName(trimBlanks(rest))
	if why == "" && len(name) > p.limits.Name {
		why = longName
	}
	switch {
	case why != "" && word == "UNIT" && !p.scan.openMetrics:
		return "" // the classic format knows no UNIT, this is a comment
	case why != "":
		return why
	}
	// One character separates the name from the text, whichever it is.
	text = text[min(1, len(text)):]
	return p.describe(word, name, text)
}

func metadataName(text string) (name, rest string, why reason) {
	if quoted, ok := strings.CutPrefix(text, `"`); ok {
		return quotedName(quoted)
	}
	n := nameLength(text, true)
	if n == 0 {
		return "", "", noMetadata
	}
	return text[:n], text[n:], ""
}

func (p *Parser) describe(word, name, text string) reason {
	if p.names.used >= p.maxNames() {
		p.crowded = true
		return ""
	}
	switch word {
	case "TYPE":
		t, ok := typeWords[strings.Trim(text, " \t")]
		if !ok {
			return unknownType
		}
		p.names.get(name).declare(t)
	case "UNIT":
		p.names.get(name).setUnit(strings.Trim(text, " \t"))
	case "HELP":
		if !utf8.ValidString(text) {
			p.scan.replaced++
			text = strings.ToValidUTF8(text, "\uFFFD")
		}
		p.names.get(name).setHelp(unescape(text, p.scan.openMetrics))
	}
	p.described = true
	return ""
}

// readLines reads the samples line by line.
func (p *Parser) readLines() error {
	for text, number := p.text[:p.end], 1; text != ""; number++ {
		line, _ := nextLine(text)
		text = text[min(len(line)+1, len(text)):]
		line = trimLine(line)
		if line == "" || line[0] == '#' {
			continue
		}
		why := p.scan.line(line)
		if why == "" {
			var err error
			if why, err = p.add(&p.scan.sample); err != nil {
				return err
			}
		}
		p.skip(number, why)
	}
	p.finish()
	return nil
}

// readWhole reads the samples through textparse. It returns false if there is
// anything about them that is to be looked at line by line.
func (p *Parser) readWhole(body []byte) (bool, error) {
	// The capacity is that of the body, for where a series is in it is told by the
	// capacity of its slice.
	body = slices.Clip(body)
	parser := textparse.NewPromParser(body, labels.NewSymbolTable(), false)
	if p.scan.openMetrics {
		parser = textparse.NewOpenMetricsParser(body, labels.NewSymbolTable())
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			p.finish()
			return true, nil
		}
		if err != nil {
			return false, nil //nolint:nilerr // the lines are read one by one then
		}
		if entry != textparse.EntrySeries {
			continue
		}
		if !p.takeSeries(parser) {
			return false, nil
		}
		why, err := p.add(&p.scan.sample)
		if why != "" || err != nil {
			return false, err
		}
	}
}

// takeSeries takes the parser's series into the scanner's sample. It returns false
// if the two disagree.
func (p *Parser) takeSeries(parser textparse.Parser) bool {
	series, timestamp, value := parser.Series()
	start := len(p.text) - cap(series)
	if start < 0 || len(p.text) < start+len(series) {
		return false
	}
	text := p.text[start : start+len(series)]
	if rest, why := p.scan.series(text); text != string(series) || rest != "" || why != "" {
		return false
	}
	after := p.text[start+len(series):]
	if text[len(text)-1] != '}' && trimBlanks(after) == after {
		return false
	}
	s := &p.scan.sample
	s.value = value
	if timestamp != nil {
		s.timestamp = Time{Millis: *timestamp, Known: true}
	}
	if !p.scan.openMetrics {
		return true
	}
	var ok bool
	s.exemplar, ok = p.takeExemplar(parser)
	return ok
}

// takeExemplar returns the parser's next exemplar, nil if there is none. It returns
// false if there is one with too many labels, or with some that are no UTF-8, which
// textparse lets pass.
func (p *Parser) takeExemplar(parser textparse.Parser) (*Exemplar, bool) {
	p.exemplar = exemplar.Exemplar{}
	if !parser.Exemplar(&p.exemplar) {
		return nil, true
	}
	made := &Exemplar{Value: p.exemplar.Value, Timestamp: Time{Millis: p.exemplar.Ts, Known: p.exemplar.HasTs}}
	valid := p.exemplar.Labels.Len() <= p.limits.Labels
	p.exemplar.Labels.Range(func(l labels.Label) {
		// In text they are as they are written.
		if p.out.Format != Protobuf {
			l.Name, l.Value = unescape(l.Name, true), unescape(l.Value, true)
		}
		if !valid {
			return
		}
		valid = l.Name != "" && utf8.ValidString(l.Name) && utf8.ValidString(l.Value)
		made.Labels = append(made.Labels, Label{Name: l.Name, Value: l.Value})
	})
	made.Labels.sort()
	return made, valid
}
