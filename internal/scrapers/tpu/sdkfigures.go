// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/chips"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/sdk"
)

// missing are the names of the metrics that libtpu is asked for: those that are wanted
// and that no other source gave. The less it is asked the better.
func (w *want) missing(f *figures, devices int) [][]string {
	var names [][]string
	for m, on := range w.devices {
		if all := len(f.devices[m]); on && deviceTable[m].sdk != nil && (all == 0 || all < devices) {
			names = append(names, deviceTable[m].sdk)
		}
	}
	for d, on := range w.distributions {
		if on && len(f.stats[d]) == 0 {
			names = append(names, distributionTable[d].sdk)
		}
	}
	if w.queue && len(f.queues) == 0 {
		names = append(names, queueSDK)
	}
	return names
}

// sdkFigures reads libtpu's answers.
func sdkFigures(answers map[string]sdkAnswer, found *chips.Found) *figures {
	f := newFigures()
	for m := range deviceTable {
		values := firstWithValues(answers, deviceTable[m].sdk).Values
		list, perChip := sdk.PerDevice(values), false
		switch deviceMetric(m) {
		case dutyCycle:
			perChip = found.Generation.DutyPerChip && len(list) == found.Chips
		case iciLinkHealth:
			list, perChip = sdk.LinkHealth(values)
		}
		f.addList(deviceMetric(m), list, copies(perChip, found))
	}
	for d := range distributionTable {
		a := firstWithValues(answers, distributionTable[d].sdk)
		if !distribution(d).isFlat() {
			f.stats[d] = sdk.Labelled(a.Description, a.Values)
		} else if s := sdk.Flat(a.Description, a.Values); s != (dist.Stats{}) {
			f.stats[d][""] = s
		}
	}
	f.queues = sdk.QueueSizes(firstWithValues(answers, queueSDK).Values)
	return f
}

// copies is how many devices have each value of a list.
func copies(perChip bool, found *chips.Found) int {
	if perChip && found.Generation.DevicesPerChip > 0 {
		return found.Generation.DevicesPerChip
	}
	return 1
}

// firstWithValues returns the answer to the first of some names that has values: libtpu
// has names that it gives no values for.
func firstWithValues(answers map[string]sdkAnswer, names []string) sdkAnswer {
	for _, name := range names {
		if a := answers[name]; a.Error == "" && len(a.Values) > 0 {
			return a
		}
	}
	return sdkAnswer{}
}

// addList takes a list of values in, each of which so many devices have.
func (f *figures) addList(m deviceMetric, list []optional.Of[float64], each int) {
	for i, v := range list[:min(len(list), maxRanks)] {
		if !v.Known {
			continue
		}
		for k := range each {
			f.devices[m][i*each+k] = deviceValue{value: v.Value}
		}
	}
}
