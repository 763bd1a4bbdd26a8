// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package absolute gives start times to counters whose absolute value a device
// tells: errors since its driver was loaded, energy, retired pages.
package absolute

import "time"

// Counters remembers when counters began. The start of one is the time of its
// first reading; when the value falls it began anew after the last reading
// before that. The zero value is ready. It is not safe for concurrent use.
type Counters struct {
	// devices holds the counters of each device by their names.
	devices map[string]map[string]counter
}

type counter struct {
	start, at time.Time
	value     float64
}

// Start returns the start time of a counter of a device, which is named by its
// identity, not its place, for a value read at a time.
func (c *Counters) Start(device, name string, value float64, at time.Time) time.Time {
	at = at.Round(0) // by the clock that the points show
	if c.devices == nil {
		c.devices = map[string]map[string]counter{}
	}
	counters := c.devices[device]
	if counters == nil {
		counters = map[string]counter{}
		c.devices[device] = counters
	}
	before, known := counters[name]
	start := before.start
	switch {
	case !known:
		start = at
	case value < before.value:
		start = before.at
	}
	if start.After(at) {
		start = at // the clock was set back
	}
	counters[name] = counter{start: start, at: at, value: value}
	return start
}

// Restart makes all counters begin anew: the driver that counts was opened anew.
func (c *Counters) Restart() { clear(c.devices) }

// Keep forgets the devices that are not kept: one that returns begins anew.
func (c *Counters) Keep(isKept func(device string) bool) {
	for device := range c.devices {
		if !isKept(device) {
			delete(c.devices, device)
		}
	}
}
