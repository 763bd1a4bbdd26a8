// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// growth follows one raw counter that may start over.
type growth struct {
	last  uint64
	total uint64
}

// add takes the counter's next value and returns by how much it grew. A value
// below the last one means that it started over at 0.
func (g *growth) add(raw uint64) uint64 {
	delta := raw
	if raw >= g.last {
		delta = raw - g.last
	}
	g.last = raw
	g.total += delta
	return delta
}

// diskCounters sums up disk I/O since the first good reading.
type diskCounters struct {
	// start is when that was; 0 means not yet.
	start pcommon.Timestamp
	// whole is true once there was a reading that was not partial.
	whole         bool
	devices       map[string]*deviceCounters
	read, written uint64
}

type deviceCounters struct {
	read, written growth
}

// update takes a reading. A device that was not there at the first whole
// reading counts in full: it was attached, or had no I/O, before. Until then
// what is new may have been hidden by a line that was not understood.
func (c *diskCounters) update(r *diskReading) {
	if c.start == 0 {
		c.start = timestamp(r.at)
		c.devices = map[string]*deviceCounters{}
	}
	for i := range r.devices {
		d := &r.devices[i]
		counters, known := c.devices[d.name]
		if !known {
			counters = &deviceCounters{}
			if !c.whole {
				counters.read.last, counters.written.last = d.read, d.written
			}
			c.devices[d.name] = counters
		}
		read, written := counters.read.add(d.read), counters.written.add(d.written)
		if d.base {
			c.read += read
			c.written += written
		}
	}
	c.whole = c.whole || !r.partial
}

// networkCounters sums up network traffic since the first good reading.
type networkCounters struct {
	start          pcommon.Timestamp
	interfaces     map[string]*interfaceCounters
	received, sent uint64
}

type interfaceCounters struct {
	received, sent growth
}

// update takes a reading. An interface that was not there before counts from
// now: a NIC that returns from a container keeps its counters. All interfaces
// are followed, so that one that begins to be counted does not bring its past.
func (c *networkCounters) update(r *networkReading) {
	if c.start == 0 {
		c.start = timestamp(r.at)
		c.interfaces = map[string]*interfaceCounters{}
	}
	for i := range r.interfaces {
		n := &r.interfaces[i]
		counters, known := c.interfaces[n.name]
		if !known {
			counters = &interfaceCounters{}
			counters.received.last, counters.sent.last = n.received, n.sent
			c.interfaces[n.name] = counters
		}
		received, sent := counters.received.add(n.received), counters.sent.add(n.sent)
		if n.counted {
			c.received += received
			c.sent += sent
		}
	}
	c.forget(r)
}

// forget drops interfaces that are gone: what comes back later counts from its
// sight, and containers leave names behind without end.
func (c *networkCounters) forget(r *networkReading) {
	if len(c.interfaces) <= len(r.interfaces) {
		return
	}
	here := make(map[string]bool, len(r.interfaces))
	for i := range r.interfaces {
		here[r.interfaces[i].name] = true
	}
	for name := range c.interfaces {
		if !here[name] {
			delete(c.interfaces, name)
		}
	}
}

func timestamp(t time.Time) pcommon.Timestamp { return pcommon.NewTimestampFromTime(t) }
