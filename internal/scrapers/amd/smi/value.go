// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

const (
	// maxNesting bounds how deep a figure is looked for in lists and objects.
	maxNesting = 3
	// maxName bounds a name, in bytes.
	maxName = 128
	// maxCount is up to where a float64 counts without gaps.
	maxCount = 1 << 53
)

// units are what may follow a number, in lower case, and what one of them is in
// the unit of our own.
var units = map[string]float64{
	"": 1, "%": 1,
	"w": 1, "mw": 1e-3, "uw": 1e-6,
	"c": 1, "°c": 1,
	"mhz": 1, "mb": 1, "j": 1, "gt/s": 1,
}

// figure returns the number that a value tells, be it a number, a text, an object
// with a value and its unit, or a list of only one of these: several figures in
// the place of one are none of them.
func figure(value json.RawMessage) card.Float { return figureWithin(value, maxNesting) }

func figureWithin(value json.RawMessage, depth int) card.Float {
	if len(value) == 0 || depth == 0 {
		return card.Float{}
	}
	switch value[0] {
	case '"':
		return number(text(value))
	case '{':
		o := objectOf(value)
		v := figureWithin(o["value"], depth-1)
		if scale, ok := units[strings.ToLower(text(o["unit"]))]; ok {
			v.Value *= scale
		}
		return v
	case '[':
		var only json.RawMessage
		for element := range elements(value) {
			if only != nil {
				return card.Float{}
			}
			only = element
		}
		return figureWithin(only, depth-1)
	default:
		return number(string(value))
	}
}

// number returns the number that a text is, but for a unit after it and
// parentheses around it. Hexadecimal, infinite and the like are none.
func number(s string) card.Float {
	s = strings.ToLower(strings.TrimSpace(s))
	for strings.HasPrefix(s, "(") && strings.HasSuffix(s, ")") {
		s = strings.TrimSpace(s[1 : len(s)-1])
	}
	end := strings.LastIndexAny(s, "0123456789.") + 1
	scale, ok := units[strings.TrimSpace(s[end:])]
	if !ok || strings.Trim(s[:end], "0123456789.+-e") != "" {
		return card.Float{}
	}
	v, err := strconv.ParseFloat(s[:end], 64)
	return optional.If(v*scale, err == nil)
}

// text returns a string, trimmed; anything else is none.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return ""
	}
	return strings.TrimSpace(s)
}

// first returns the first figure that can be true. One that cannot counts as
// missing, and the next is asked.
func first(rule func(float64) card.Float, values ...json.RawMessage) card.Float {
	for _, value := range values {
		if v := figure(value); v.Known {
			if v = rule(v.Value); v.Known {
				return v
			}
		}
	}
	return card.Float{}
}

// firstCount is first for whole numbers from least to most.
func firstCount(least, most int64, values ...json.RawMessage) card.Int {
	v := first(func(v float64) card.Float {
		return optional.If(v, v == math.Trunc(v) && v >= float64(least) && v <= float64(most))
	}, values...)
	return optional.If(int64(v.Value), v.Known)
}

const (
	maxMHz   = 100_000
	maxLanes = 32
)

func clock(values ...json.RawMessage) card.Int { return firstCount(0, maxMHz, values...) }

func lanes(values ...json.RawMessage) card.Int { return firstCount(1, maxLanes, values...) }

func counter(values ...json.RawMessage) card.Int { return firstCount(0, maxCount, values...) }

// generation returns the generation of PCI Express that has a speed in GT/s.
func generation(values ...json.RawMessage) card.Int {
	g := first(func(v float64) card.Float {
		g, ok := generations[v]
		return optional.If(g, ok)
	}, values...)
	return optional.If(int64(g.Value), g.Known)
}

var generations = map[float64]float64{2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}

// energy returns joules. Firmware that does not count answers 0.
func energy(scale float64, value json.RawMessage) card.Float {
	return first(func(v float64) card.Float {
		v *= scale
		return optional.If(v, v > 0 && v <= maxCount)
	}, value)
}

// name returns the first value that names a GPU for people: not a number of its
// vendor or device, which stands there when the tables of names are missing.
func name(values ...json.RawMessage) string {
	for _, value := range values {
		s := strings.TrimSpace(strings.Map(printable, text(value)))
		if isAbsent(s) || strings.HasPrefix(strings.ToLower(s), "0x") {
			continue
		}
		return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), maxName)], ""))
	}
	return ""
}

// printable is for [strings.Map]: it keeps what can be shown.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return -1
}

// isAbsent tells whether a text says that there is nothing.
func isAbsent(s string) bool {
	s = strings.ToLower(s)
	return s == "" || s == "none" || s == "unknown" || s == "unsupported" || s == "-1" || strings.HasPrefix(s, "n/a")
}

var pciForm = regexp.MustCompile(`^(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])$`)

// pciAddress returns an address in lower case with its domain, as sysfs writes it.
func pciAddress(value json.RawMessage) string {
	part := pciForm.FindStringSubmatch(strings.ToLower(text(value)))
	if part == nil {
		return ""
	}
	var n [4]uint64
	for i, digits := range part[1:] {
		n[i], _ = strconv.ParseUint(digits, 16, 32) // the form leaves out only the domain, which is 0 then
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3])
}

// uniqueID returns the 16 digits of a chip's number.
func uniqueID(value json.RawMessage) string {
	digits, ok := strings.CutPrefix(strings.ToLower(text(value)), "0x")
	id, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || id == 0 || id == math.MaxUint64 {
		return ""
	}
	return fmt.Sprintf("%016x", id)
}
