// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"fmt"
	"strings"
)

// dump writes a scrape as lines, one for each series and each thing to be told.
func dump(s *Scrape) (lines []string) {
	add := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	for i := range s.Families {
		f := &s.Families[i]
		head := f.Type.String() + " " + f.Name
		for _, m := range f.Samples {
			line := fmt.Sprintf("%s%s %v%s", head, dumpLabels(m.Labels), m.Value, dumpTimes(m.Timestamp, m.Start))
			if m.Exemplar != nil {
				line += dumpExemplars([]Exemplar{*m.Exemplar})
			}
			lines = append(lines, line)
		}
		for _, h := range f.Histograms {
			add("%s%s %d%s %v %v%s%s", head, dumpLabels(h.Labels), h.Count, dumpSum(h.Sum, h.HasSum),
				h.Bounds, h.Counts, dumpTimes(h.Timestamp, h.Start), dumpExemplars(h.Exemplars))
		}
		for _, h := range f.Natives {
			add("%s%s %d%s scale=%d zero=%d<=%v %v %v%s%s", head, dumpLabels(h.Labels), h.Count, dumpSum(h.Sum, h.HasSum),
				h.Scale, h.ZeroCount, h.ZeroThreshold, h.Positive, h.Negative, dumpTimes(h.Timestamp, h.Start), dumpExemplars(h.Exemplars))
		}
		for _, m := range f.Summaries {
			add("%s%s %d%s %v%s", head, dumpLabels(m.Labels), m.Count, dumpSum(m.Sum, m.HasSum), m.Quantiles, dumpTimes(m.Timestamp, m.Start))
		}
	}
	if s.Targets > 1 {
		add("targets %d", s.Targets)
	}
	if s.TargetInfo != nil {
		add("target%s", dumpLabels(s.TargetInfo))
	}
	for _, l := range s.SkippedLines {
		add("%s", l)
	}
	for _, m := range s.MalformedSeries {
		add("malformed %s", m)
	}
	for _, name := range s.CreatedFamilies {
		add("created %s", name)
	}
	for _, n := range []struct {
		what  string
		count int
	}{
		{"more skipped", s.Skipped - len(s.SkippedLines)},
		{"more malformed", s.Malformed - len(s.MalformedSeries)},
		{"non-finite", s.NonFinite},
		{"duplicates", s.Duplicates},
		{"gaugehistograms", s.GaugeHistograms},
		{"replaced", s.ReplacedUTF8},
		{"long", s.LongValues},
	} {
		if n.count != 0 {
			add("%s %d", n.what, n.count)
		}
	}
	if s.MissingEOF {
		add("no EOF")
	}
	return lines
}

func dumpLabels(ls Labels) string {
	var b strings.Builder
	for i, l := range ls {
		fmt.Fprintf(&b, "%s%s=%q", []string{"{", ","}[min(i, 1)], l.Name, l.Value)
	}
	return b.String() + strings.Repeat("}", min(1, len(ls)))
}

func dumpSum(sum float64, has bool) string {
	if !has {
		return " -"
	}
	return fmt.Sprintf(" %v", sum)
}

func dumpTimes(timestamp, start Time) (s string) {
	if timestamp.Known {
		s += fmt.Sprintf(" at=%d", timestamp.Millis)
	}
	if start.Known {
		s += fmt.Sprintf(" start=%d", start.Millis)
	}
	return s
}

func dumpExemplars(es []Exemplar) string {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, " #%s %v%s", dumpLabels(e.Labels), e.Value, dumpTimes(e.Timestamp, Time{}))
	}
	return b.String()
}
