// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdk reads the texts in which libtpu's SDK gives its metrics.
package sdk

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/label"
)

// PerDevice reads a list with one number per device, in their order. What is no finite
// number, or below 0, keeps its place and is not known.
func PerDevice(values []string) []optional.Of[float64] {
	all := make([]optional.Of[float64], len(values))
	for i, text := range values {
		all[i] = number(text)
	}
	return all
}

func number(text string) optional.Of[float64] {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return optional.Of[float64]{}
	}
	return optional.Some(v)
}

// bare is a text without what libtpu may have around it: spaces, brackets and quotes.
func bare(text string) string { return strings.Trim(text, " \t\r\n[]'\"") }

// items splits a text at its commas.
func items(text string) []string {
	all := strings.Split(bare(text), ",")
	for i, item := range all {
		all[i] = bare(item)
	}
	if last := len(all) - 1; last > 0 && all[last] == "" {
		all = all[:last] // a comma at the end
	}
	return all
}

// Labelled reads a distribution per text: a label, then its statistics. Of equal labels
// the first counts.
func Labelled(description string, values []string) map[string]dist.Stats {
	all := map[string]dist.Stats{}
	for _, text := range values {
		parts := items(text)
		if len(parts) < 2 {
			continue
		}
		name := label.Sanitize(parts[0])
		if s := stats(description, parts[1:]); s != (dist.Stats{}) {
			all[name] = all[name].Or(s)
		}
	}
	return all
}

// Flat reads the statistics of one distribution: a text for each, or one for all.
func Flat(description string, values []string) dist.Stats {
	var all []string
	for _, text := range values {
		all = append(all, items(text)...)
	}
	return stats(description, all)
}

var (
	statName = regexp.MustCompile(`(?i)\bmean\b|\bp(?:99\.9|999|99|95|90|50)\b`)
	// fiveNames and fourNames are the statistics where the description does not tell.
	fiveNames = []string{"mean", "p50", "p90", "p95", "p999"}
	fourNames = fiveNames[1:]
)

// maxStats is the number of statistics that have a name.
const maxStats = 6

// stats gives numbers their names.
func stats(description string, values []string) dist.Stats {
	names := statName.FindAllString(strings.ToLower(description), -1)
	if len(names) != len(values) || len(names) > maxStats || hasTwins(names) {
		switch len(values) {
		case len(fiveNames):
			names = fiveNames
		case len(fourNames):
			names = fourNames
		default:
			return dist.Stats{}
		}
	}
	var s dist.Stats
	for i, name := range names {
		*field(&s, name) = number(values[i])
	}
	return s
}

func hasTwins(names []string) bool {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return true
		}
	}
	return false
}

func field(s *dist.Stats, name string) *optional.Of[float64] {
	switch name {
	case "mean":
		return &s.Mean
	case "p50":
		return &s.P50
	case "p90":
		return &s.P90
	case "p95":
		return &s.P95
	case "p99":
		return &s.P99
	default: // p999, p99.9
		return &s.P999
	}
}

// QueueSizes reads texts `tensorcore-0: 1`. Those with equal labels are added up.
func QueueSizes(values []string) map[string]int64 {
	all := map[string]int64{}
	for _, text := range values {
		at := strings.LastIndexByte(text, ':')
		if at < 0 {
			continue
		}
		if v := number(bare(text[at+1:])); v.Known && v.Value <= maxQueue {
			all[label.Sanitize(bare(text[:at]))] += int64(v.Value)
		}
	}
	return all
}

// maxQueue is far above what can wait; sums of it do not overflow.
const maxQueue = 1 << 40

// linkForm is that of a link's row: `tray1.chip3.ici0.int: 0`.
var linkForm = regexp.MustCompile(`^tray(\d{1,6})\.chip(\d{1,6})\.[^:]*:(.*)$`)

// LinkHealth reads the scores of links, and returns the worst of each chip, in the
// order of trays and chips, or plain numbers as they are: perChip says which.
func LinkHealth(values []string) (scores []optional.Of[float64], perChip bool) {
	worst := map[place]optional.Of[float64]{}
	for _, text := range values {
		row := linkForm.FindStringSubmatch(bare(text))
		if row == nil {
			continue
		}
		at := placeOf(row)
		score := worst[at] // a chip keeps its place, whatever its rows say
		if v := number(bare(row[3])); v.Known && (!score.Known || v.Value > score.Value) {
			score = v
		}
		worst[at] = score
	}
	if len(worst) == 0 {
		return PerDevice(values), false
	}
	places := make([]place, 0, len(worst))
	for at := range worst {
		places = append(places, at)
	}
	slices.SortFunc(places, place.compare)
	for _, at := range places {
		scores = append(scores, worst[at])
	}
	return scores, true
}

// place is that of a chip on its machine.
type place struct{ tray, chip int }

func placeOf(row []string) place {
	tray, _ := strconv.Atoi(row[1]) // the form lets nothing else through
	chip, _ := strconv.Atoi(row[2])
	return place{tray, chip}
}

func (p place) compare(other place) int {
	if p.tray != other.tray {
		return p.tray - other.tray
	}
	return p.chip - other.chip
}
