// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"regexp"
	"strings"
)

// maxQuote bounds, in bytes, what of a tool's words an error repeats.
const maxQuote = 200

var (
	// lead is what may stand before the first character of a line that counts.
	lead = regexp.MustCompile(`^(?:\s|\x1b\[[0-?]*[ -/]*[@-~])+`)
	// colours are the escape sequences that terminals take for colours and the like.
	colours = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)
	// nonNumbers are the numbers of Python's JSON that JSON does not have.
	nonNumbers = regexp.MustCompile(`([:\[,]\s*)-?(?:NaN|Infinity)\b`)
)

// TextError says that a tool spoke, but not in JSON, or told of its failure in it.
type TextError struct {
	// Text is one line of what it said, without colours, and bounded.
	Text string
	// Cause says what is wrong with what looks like JSON; it may be nil.
	Cause error
}

func (e *TextError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("no figures, but %q", e.Text)
	}
	return fmt.Sprintf("not understood: %q: %v", e.Text, e.Cause)
}

// Unwrap returns the cause.
func (e *TextError) Unwrap() error { return e.Cause }

// document returns the first JSON value that begins a line with one of openers.
// Warnings may stand before it, and the same document once more after it. A line
// that only looks like a beginning ("[WARNING] ...") is passed over. Nothing but
// white space is no document and no error.
func document(out []byte, openers string) (json.RawMessage, error) {
	if bytes.Contains(out, []byte("NaN")) || bytes.Contains(out, []byte("Infinity")) {
		out = nonNumbers.ReplaceAll(out, []byte("${1}null"))
	}
	var broken error
	rest := afterLead(out)
	if len(rest) == 0 {
		return nil, nil
	}
	for len(rest) > 0 {
		seen := 0
		if strings.IndexByte(openers, rest[0]) >= 0 {
			value, err := decodeOne(rest)
			syntax, ok := errors.AsType[*json.SyntaxError](err)
			if !ok {
				return value, err
			}
			if broken == nil {
				broken = syntax
			}
			// What was read is not looked at again: that bounds the work.
			seen = min(max(int(syntax.Offset)-1, 0), len(rest))
		}
		rest = afterLead(nextLine(rest[seen:]))
	}
	return nil, &TextError{Text: firstLine(out), Cause: broken}
}

// decodeOne returns one value from the beginning of text; the rest is not looked at.
func decodeOne(text []byte) (json.RawMessage, error) {
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&value)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("the output is truncated, it ends within the JSON (%d bytes): %w", len(text), err)
	}
	return value, err
}

func afterLead(text []byte) []byte { return text[len(lead.Find(text)):] }

func nextLine(text []byte) []byte {
	_, after, _ := bytes.Cut(text, []byte{'\n'})
	return after
}

// firstLine returns the first line of text that says something.
func firstLine(text []byte) string {
	for line := range bytes.Lines(text) {
		if said := plain(line); said != "" {
			return said
		}
	}
	return ""
}

// lastLine returns the last line of text that says something.
func lastLine(text []byte) string {
	said := ""
	for line := range bytes.Lines(text) {
		if words := plain(line); words != "" {
			said = words
		}
	}
	return said
}

// plain returns a line without colours and the space around it, and bounded.
func plain(line []byte) string {
	cut := len(line) > 4*maxQuote
	text := strings.TrimSpace(string(colours.ReplaceAll(line[:min(len(line), 4*maxQuote)], nil)))
	if cut || len(text) > maxQuote {
		text = text[:min(len(text), maxQuote)] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// members yields the members of an object in their order, the keys in lower case
// and trimmed. Anything else has none.
func members(value json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		dec := json.NewDecoder(bytes.NewReader(value))
		if begin, err := dec.Token(); err != nil || begin != json.Delim('{') {
			return
		}
		for dec.More() {
			token, err := dec.Token()
			key, ok := token.(string)
			var member json.RawMessage
			if err != nil || !ok || dec.Decode(&member) != nil || !yield(strings.ToLower(strings.TrimSpace(key)), member) {
				return
			}
		}
	}
}

// elements yields the elements of a list. Anything else has none.
func elements(value json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		dec := json.NewDecoder(bytes.NewReader(value))
		if begin, err := dec.Token(); err != nil || begin != json.Delim('[') {
			return
		}
		for dec.More() {
			var element json.RawMessage
			if dec.Decode(&element) != nil || !yield(element) {
				return
			}
		}
	}
}

// object holds the members of an object. Of a key that is there twice the last
// one counts.
type object map[string]json.RawMessage

func objectOf(value json.RawMessage) object {
	o := object{}
	maps.Insert(o, members(value))
	return o
}

// section returns a member that is an object itself; it is empty when it is not.
func (o object) section(key string) object { return objectOf(o[key]) }
