// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

// maxNews is how many remarks are told of an endpoint whose lines are always new.
const maxNews = 100

// remark is something about a body that cost data, or may have.
type remark struct {
	// kinds are what it is about: it is told when one of them is new.
	kinds []string
	text  string
}

// news remembers what was told.
type news struct {
	told map[string]bool
}

// tell logs what was not told before.
func (n *news) tell(logger *zap.Logger, remarks []remark) {
	for _, r := range remarks {
		if !n.isNew(r) {
			continue
		}
		logger.Warn("The endpoint's answer is not as it should be", zap.String("what", r.text))
		if len(n.told) >= maxNews {
			logger.Warn("The endpoint has more and more to remark on; no more is told")
		}
	}
}

// isNew tells whether a remark has a kind that was not told, and counts it as told.
func (n *news) isNew(r remark) bool {
	if len(n.told) >= maxNews {
		return false
	}
	if n.told == nil {
		n.told = map[string]bool{}
	}
	before := len(n.told)
	for _, kind := range r.kinds {
		n.told[kind] = true
	}
	return len(n.told) > before
}

// remarks are about a scrape that succeeded.
func (e *endpoint) remarks(s *exposition.Scrape) []remark {
	var all []remark
	add := func(kind, format string, args ...any) {
		all = append(all, remark{kinds: []string{kind}, text: fmt.Sprintf(format, args...)})
	}
	if s.Skipped > 0 {
		all = append(all, skipped(s))
	}
	if s.MissingEOF {
		add("eof", "an OpenMetrics body ends without # EOF: it may be cut")
	}
	if s.Duplicates > 0 {
		add("duplicates", "series that stand there twice: the last one counts (%d in this scrape)", s.Duplicates)
	}
	if s.Malformed > 0 {
		add("malformed", "histograms and summaries that contradict themselves are left out (%d in this scrape), such as %s", s.Malformed, strings.Join(s.MalformedSeries, "; "))
	}
	if s.GaugeHistograms > 0 {
		add("gaugehistogram", "gauge histograms are left out, since OpenTelemetry has nothing like them (%d in this scrape)", s.GaugeHistograms)
	}
	if s.ReplacedUTF8 > 0 {
		add("utf8", "texts with invalid UTF-8, which is replaced (%d in this scrape)", s.ReplacedUTF8)
	}
	if s.LongValues > 0 {
		add("long", "label values longer than %s are shown cut (%d in this scrape)", keyOf(e.name, "max_label_value_length"), s.LongValues)
	}
	if metric, ok := e.writer.tracker.NoIndex(); ok {
		add("index", "%s has more label sets than W&B's tags can number: new ones have no %s, and no name in tag and sdk naming", metric, indexKey)
	}
	return all
}

// skipped names the first lines. Their numbers may change with every scrape, their
// reasons do not.
func skipped(s *exposition.Scrape) remark {
	r := remark{}
	var lines []string
	for _, line := range s.SkippedLines {
		r.kinds = append(r.kinds, "skipped "+line.Reason)
		lines = append(lines, line.String())
	}
	r.text = fmt.Sprintf("skipped %d lines, such as %s", s.Skipped, strings.Join(lines, "; "))
	return r
}
