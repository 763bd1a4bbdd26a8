// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"iter"
	"strings"
	"sync"
)

// Parse reads a full tag, in the spelling of the published list or of W&B's
// SDK, back into the metric's name and the values of its placeholders (nil if
// it has none). A label suffix `/l:LABEL` is split off at the first `/l:` that
// leaves a tag before it, so that a path that contains `/l:` is read right. The
// node of DCGM's figures is a suffix, too: with both the label is `NODE/l:LABEL`.
//
// Limits, where a tag has two readings: a path that itself contains the end of
// its tag before `/l:` (`disk./a.usageGB/l:b.usageGB`; also a relative path
// that begins with `in/l:`, after disk.in) is read as the shorter tag and a
// label; the number at the end of an OpenMetrics tag is taken for the index,
// also where it belongs to the name of a histogram, which has none. A tag that
// lacks a segment, as Expand gives it to points without the attribute, is not
// read.
func Parse(key string) (metric string, attrs map[string]string, label string, ok bool) {
	for end := range tagEnds(key) {
		if metric, attrs, ok = parseTag(key[:end]); ok {
			return metric, attrs, strings.TrimPrefix(key[end:], LabelMark), true
		}
	}
	return "", nil, "", false
}

// tagEnds yields where the tag in a name may end: before each label suffix that
// is not empty, and at the end of the name.
func tagEnds(name string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from := 0; ; {
			i := strings.Index(name[from:], LabelMark)
			if i < 0 || from+i+len(LabelMark) == len(name) {
				break
			}
			if !yield(from + i) {
				return
			}
			from += i + 1
		}
		yield(len(name))
	}
}

func parseTag(tag string) (metric string, attrs map[string]string, ok bool) {
	if strings.HasPrefix(tag, openMetricsPrefix) {
		return parseOpenMetrics(tag)
	}
	if metric, ok = plainTags()[tag]; ok {
		return metric, nil, true
	}
	for _, p := range patterns()[firstSegment(tag)] {
		if attrs, ok = p.match(tag); ok {
			return p.metric, attrs, true
		}
	}
	return parsePart(tag)
}

// parseOpenMetrics takes `openmetrics.{endpoint}.{metric}` whatever it is, and
// the number at its end for the index.
func parseOpenMetrics(tag string) (metric string, attrs map[string]string, ok bool) {
	if !isOpenMetrics(tag) {
		return "", nil, false
	}
	dot := strings.LastIndexByte(tag, '.')
	if isNumber(tag[dot+1:]) && isOpenMetrics(tag[:dot]) {
		return tag[:dot], map[string]string{indexKey: tag[dot+1:]}, true
	}
	return tag, nil, true
}

func isOpenMetrics(name string) bool {
	rest, ok := strings.CutPrefix(name, openMetricsPrefix)
	if !ok {
		return false
	}
	endpoint, metric, _ := strings.Cut(rest, ".")
	return endpoint != "" && metric != ""
}

// parsePart reads the parts of Trainium's memory that the table lacks.
func parsePart(tag string) (metric string, attrs map[string]string, ok bool) {
	for _, prefix := range []string{hostPartPrefix, sdkHostPartPrefix} {
		if part, found := strings.CutPrefix(tag, prefix); found && part != "" {
			return hostPartPrefix + part, nil, true
		}
	}
	if attrs, ok = corePartPattern.match(tag); !ok {
		return "", nil, false
	}
	metric = corePartPrefix + attrs["part"]
	delete(attrs, "part")
	return metric, attrs, true
}

var corePartPattern = newPattern("", compile("trn.{core_index}.neuroncore_memory_usage.{part}"))

// plainTags has the tags without placeholders, in both spellings, and their
// metrics.
var plainTags = sync.OnceValue(func() map[string]string {
	plain := make(map[string]string)
	for _, r := range table {
		for _, text := range []string{r.tag, r.sdk} {
			if text != "" && !strings.Contains(text, "{") {
				plain[text] = r.metric
			}
		}
	}
	return plain
})

// patterns has the other tags, in both spellings, by their first segment.
var patterns = sync.OnceValue(func() map[string][]pattern {
	all := make(map[string][]pattern)
	for _, r := range table {
		for _, text := range []string{r.tag, r.sdk} {
			if strings.Contains(text, "{") {
				first := firstSegment(text)
				all[first] = append(all[first], newPattern(r.metric, compile(text)))
			}
		}
	}
	return all
})

func firstSegment(tag string) string {
	first, _, _ := strings.Cut(tag, ".")
	return first
}
