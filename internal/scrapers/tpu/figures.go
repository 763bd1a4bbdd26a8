// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"maps"
	"slices"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/chips"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
)

// deviceValue is a figure of one device.
type deviceValue struct {
	value float64
	// device and chip are the runtime's own ids.
	device, chip optional.Of[int64]
	// endpoint is the place of the runtime that told it.
	endpoint optional.Of[int]
	// pod is whose the device is, where the source tells.
	pod pod
}

// pod is a container of Kubernetes.
type pod struct{ namespace, name, container string }

// figures are what a source tells, under the numbers and labels of the tags.
type figures struct {
	devices [deviceMetrics]map[int]deviceValue
	stats   [distributions]map[string]dist.Stats
	// counted has the distributions that are known as such.
	counted [distributions]map[string]dist.Distribution
	queues  map[string]int64
	// runtimes are the places of those that told something.
	runtimes []int
}

func newFigures() *figures {
	f := &figures{queues: map[string]int64{}}
	for m := range f.devices {
		f.devices[m] = map[int]deviceValue{}
	}
	for d := range f.stats {
		f.stats[d] = map[string]dist.Stats{}
		f.counted[d] = map[string]dist.Distribution{}
	}
	return f
}

// fill takes over what is missing.
func (f *figures) fill(other *figures) {
	for m := range f.devices {
		fillMap(f.devices[m], other.devices[m])
	}
	for d := range f.stats {
		for name, s := range other.stats[d] {
			f.stats[d][name] = f.stats[d][name].Or(s)
		}
		fillMap(f.counted[d], other.counted[d])
	}
	fillMap(f.queues, other.queues)
}

func fillMap[K comparable, V any](into, from map[K]V) {
	for k, v := range from {
		if _, has := into[k]; !has {
			into[k] = v
		}
	}
}

// numbering gives devices their numbers over all scrapes.
type numbering struct {
	devices, chips ranks
}

// figuresOf puts the answers of runtimes together. Complete says that every configured
// runtime answered.
func (n *numbering) figuresOf(all []*answers, found *chips.Found, complete bool) *figures {
	if len(all) > 1 && haveSameHost(all, found) {
		all = all[:1]
	}
	f := newFigures()
	n.addDevices(f, all, found, complete)
	addDistributions(f, all)
	for _, a := range all {
		f.runtimes = append(f.runtimes, a.endpoint)
		for name, size := range a.queues {
			f.queues[name] = min(f.queues[name]+size, maxExact)
		}
	}
	return f
}

// haveSameHost tells whether every runtime answered for the whole machine although it
// was asked for itself: their ids are the same, and as many as the machine has devices.
// Where that number is not known, the values must be the same too.
func haveSameHost(all []*answers, found *chips.Found) bool {
	first, ofDevices := all[0].ids(found)
	if len(first) == 0 {
		return false
	}
	for _, a := range all[1:] {
		if ids, _ := a.ids(found); !maps.Equal(ids, first) {
			return false
		}
	}
	switch {
	case found.Chips == 0:
		return !slices.ContainsFunc(all[1:], func(a *answers) bool { return !a.equalGauges(all[0]) })
	case ofDevices:
		return len(first) == found.Devices()
	default:
		return len(first) == found.Chips
	}
}

// ids are those of the devices, or of the chips where nothing is told of devices.
func (a *answers) ids(found *chips.Found) (ids map[int64]bool, ofDevices bool) {
	ids = map[int64]bool{}
	for m, gauges := range a.gauges {
		if deviceMetric(m) == dutyCycle && found.Generation.DutyPerChip {
			continue
		}
		for _, g := range gauges {
			ids[g.id] = true
		}
	}
	if len(ids) > 0 {
		return ids, true
	}
	for _, g := range a.gauges[dutyCycle] {
		ids[g.id] = true
	}
	return ids, !found.Generation.DutyPerChip
}

func (a *answers) equalGauges(other *answers) bool {
	for m := range a.gauges {
		if !maps.Equal(byID(a.gauges[m]), byID(other.gauges[m])) {
			return false
		}
	}
	return true
}

func byID(gauges []gauge) map[int64]float64 {
	all := make(map[int64]float64, len(gauges))
	for _, g := range gauges {
		all[g.id] = g.value
	}
	return all
}

func (n *numbering) addDevices(f *figures, all []*answers, found *chips.Found, complete bool) {
	perChip := dutyIsPerChip(all, found)
	var devices, owners []runtimeID
	for _, a := range all {
		for m, gauges := range a.gauges {
			for _, g := range gauges {
				id := runtimeID{a.endpoint, g.id}
				if perChip && deviceMetric(m) == dutyCycle {
					owners = append(owners, id)
				} else {
					devices = append(devices, id)
				}
			}
		}
	}
	n.devices.learn(devices, found.Devices(), complete)
	n.chips.learn(owners, found.Chips, complete)
	for _, a := range all {
		for m, gauges := range a.gauges {
			for _, g := range gauges {
				if perChip && deviceMetric(m) == dutyCycle {
					n.addChip(f, a.endpoint, g)
					continue
				}
				f.devices[m][n.devices.of(runtimeID{a.endpoint, g.id})] = deviceValue{
					value: g.value, device: optional.Some(g.id), endpoint: optional.Some(a.endpoint),
				}
			}
		}
	}
}

// dutyIsPerChip tells whether the duty cycle is that of chips: there are not more than
// the machine has.
func dutyIsPerChip(all []*answers, found *chips.Found) bool {
	told := 0
	for _, a := range all {
		told += len(a.gauges[dutyCycle])
	}
	return found.Generation.DutyPerChip && told <= found.Chips
}

// addChip copies the duty cycle of a chip to its two devices.
func (n *numbering) addChip(f *figures, endpoint int, g gauge) {
	first := n.devices.of(runtimeID{endpoint, 2 * g.id})
	second := n.devices.of(runtimeID{endpoint, 2*g.id + 1})
	if first < 0 || second < 0 {
		first = 2 * n.chips.of(runtimeID{endpoint, g.id})
		second = first + 1
	}
	for _, i := range []int{first, second} {
		f.devices[dutyCycle][i] = deviceValue{
			value: g.value, device: n.devices.at(i), chip: optional.Some(g.id), endpoint: optional.Some(endpoint),
		}
	}
}

func addDistributions(f *figures, all []*answers) {
	for d := range distributions {
		counted, summaries := map[string][]dist.Distribution{}, map[string][]summary{}
		for _, a := range all {
			appendEach(counted, a.counted[d])
			appendEach(summaries, a.summaries[d])
		}
		for name, list := range counted {
			if merged, ok := dist.Merge(list); ok {
				f.counted[d][name] = merged
				f.stats[d][name] = merged.Stats()
			}
		}
		for name, list := range summaries {
			if s := f.stats[d][name].Or(largest(list)); s != (dist.Stats{}) {
				f.stats[d][name] = s
			}
		}
	}
}

func appendEach[V any](into, from map[string][]V) {
	for name, list := range from {
		into[name] = append(into[name], list...)
	}
}
