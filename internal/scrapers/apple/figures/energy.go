// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

const energyGroup = "Energy Model"

// power is that of the first kind of rails that there are, added up, in watts. Several
// kinds are the same rails told in several ways: they are never added.
func power(last, now *capture.Sample, seconds float64, kinds ...func(name string) bool) Float {
	for _, isRail := range kinds {
		before, after := rails(last, isRail), rails(now, isRail)
		if len(before)+len(after) > 0 {
			return watts(before, after, seconds)
		}
	}
	return Float{}
}

// watts is unknown as a whole when one of the rails is.
func watts(before, after []*capture.Channel, seconds float64) Float {
	if len(before) != len(after) {
		return Float{}
	}
	var joules float64
	for i, now := range after {
		last := before[i]
		unit := joulesPer(now.Unit)
		if last.Name != now.Name || last.Unit != now.Unit || unit == 0 || now.Value < last.Value {
			return Float{}
		}
		joules += float64(uint64(now.Value)-uint64(last.Value)) * unit
	}
	return finite(joules / seconds)
}

// rails are ordered by name; those of the same name, as they are listed.
func rails(s *capture.Sample, isRail func(name string) bool) []*capture.Channel {
	var found []*capture.Channel
	for i := range s.Channels {
		c := &s.Channels[i]
		if c.Group == energyGroup && c.Kind == capture.Simple && isRail(c.Name) {
			found = append(found, c)
		}
	}
	sortByName(found)
	return found
}

func sortByName(channels []*capture.Channel) {
	slices.SortStableFunc(channels, func(a, b *capture.Channel) int { return cmp.Compare(a.Name, b.Name) })
}

// joulesPer is the unit of an energy in joules; 0 when it is unknown.
func joulesPer(label string) float64 {
	switch strings.TrimSpace(label) {
	case "J":
		return 1
	case "mJ":
		return 1e-3
	case "uJ", "\u00b5J", "\u03bcJ":
		return 1e-6
	case "nJ":
		return 1e-9
	case "pJ":
		return 1e-12
	}
	return 0
}

// isGPUEnergy is ^(DIE_\d+_)?GPU Energy$.
func isGPUEnergy(name string) bool { return withoutDie(name) == "GPU Energy" }

// isGPURail is ^GPU\d*(_\d+)?$, on older systems.
func isGPURail(name string) bool { return isNumbered(name, "GPU") }

// isNeuralRail is ^ANE\d*(_\d+)?$.
func isNeuralRail(name string) bool { return isNumbered(name, "ANE") }

// isCPUEnergy is ^CPU Energy$.
func isCPUEnergy(name string) bool { return name == "CPU Energy" }

// isDieCPUEnergy is ^DIE_\d+_CPU Energy$, on chips of two dies.
func isDieCPUEnergy(name string) bool {
	return name != "CPU Energy" && withoutDie(name) == "CPU Energy"
}

// withoutDie cuts the prefix ^DIE_\d+_.
func withoutDie(name string) string {
	rest, ok := strings.CutPrefix(name, "DIE_")
	if !ok {
		return name
	}
	number, rest, ok := strings.Cut(rest, "_")
	if !ok || number == "" || afterDigits(number) != "" {
		return name
	}
	return rest
}

func isNumbered(name, stem string) bool {
	rest, ok := strings.CutPrefix(name, stem)
	if !ok {
		return false
	}
	rest = afterDigits(rest)
	if rest == "" {
		return true
	}
	number, ok := strings.CutPrefix(rest, "_")
	return ok && number != "" && afterDigits(number) == ""
}

func afterDigits(s string) string { return strings.TrimLeft(s, "0123456789") }
