// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// IOReg reads what `ioreg -r -d 1 -w 0 -c AGXAccelerator` prints, with -a or without. It
// prints nothing where there is no such accelerator.
func IOReg(output []byte) ([]capture.Entry, error) {
	output = bytes.TrimSpace(output)
	switch {
	case len(output) == 0:
		return nil, nil
	case output[0] == '<':
		return fromPlist(output)
	}
	return fromText(string(output))
}

func fromPlist(output []byte) ([]capture.Entry, error) {
	value, err := parsePlist(output)
	if err != nil {
		return nil, fmt.Errorf("ioreg: %w", err)
	}
	all, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("ioreg: the property list is no array: %T", value)
	}
	var entries []capture.Entry
	for _, value := range all {
		if entry, ok := value.(map[string]any); ok {
			entries = append(entries, fromDictionary(entry))
		}
	}
	return entries, nil
}

func fromDictionary(all map[string]any) capture.Entry {
	e := capture.Entry{Class: text(all, "IOObjectClass"), Properties: capture.Properties{Model: text(all, "model")}}
	if e.Class == "" {
		e.Class = text(all, "IOClass")
	}
	e.Properties.Cores, _ = whole(all, "gpu-core-count")
	statistics := dictionary(all, "PerformanceStatistics")
	if statistics == nil {
		return e
	}
	e.Properties.Statistics = make(capture.Statistics, len(statistics))
	for name := range statistics {
		if n, ok := whole(statistics, name); ok {
			e.Properties.Statistics[name] = n
		}
	}
	return e
}

// The form without -a:
//
//	+-o NAME  <class CLASS, id 0x1, ...>
//	    {
//	      "model" = "Apple M1"
//	      "PerformanceStatistics" = {"NAME"=1,"NAME"=2}
var (
	entryLine    = regexp.MustCompile(`^[|\s]*\+-o .*<class (\w+)`)
	propertyLine = regexp.MustCompile(`^[|\s]*"([^"]+)" = (.*)$`)
	statistic    = regexp.MustCompile(`"([^"]+)"=(-?\d+)\b`)
)

func fromText(output string) ([]capture.Entry, error) {
	var entries []capture.Entry
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if found := entryLine.FindStringSubmatch(line); found != nil {
			entries = append(entries, capture.Entry{Class: found[1]})
			continue
		}
		if found := propertyLine.FindStringSubmatch(line); found != nil && len(entries) > 0 {
			entries[len(entries)-1].Properties = withProperty(entries[len(entries)-1].Properties, found[1], found[2])
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("ioreg: there is no entry in what it prints: %.40q", output)
	}
	return entries, nil
}

func withProperty(p capture.Properties, name, value string) capture.Properties {
	switch name {
	case "model":
		p.Model = strings.Trim(value, `<">`)
	case "gpu-core-count":
		p.Cores, _ = strconv.ParseInt(value, 10, 64)
	case "PerformanceStatistics":
		if !strings.HasSuffix(strings.TrimSpace(value), "}") {
			return p // the output was cut, and its last number too
		}
		p.Statistics = capture.Statistics{}
		for _, found := range statistic.FindAllStringSubmatch(value, -1) {
			if n, err := strconv.ParseInt(found[2], 10, 64); err == nil {
				p.Statistics[found[1]] = n
			}
		}
	}
	return p
}
