// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxCounters bounds the remembered counters of a run; beyond it they are forgotten, and
// count from 0 again. Without a bound sums of other receivers, whose attributes are part
// of their keys, would be kept for as long as there are runs of their resource.
const maxCounters = 1 << 16

// Number is the value of a point: an integer, or a float that is finite.
type Number struct {
	isFloat bool
	i       int64
	f       float64
}

// Int returns an integer.
func Int(i int64) Number { return Number{i: i} }

// Float returns a float; ok is false for what JSON cannot say: NaN and infinity.
func Float(f float64) (n Number, ok bool) {
	return Number{isFloat: true, f: f}, !math.IsNaN(f) && !math.IsInf(f, 0)
}

func (n Number) float() float64 {
	if n.isFloat {
		return n.f
	}
	return float64(n.i)
}

func (n Number) less(m Number) bool {
	if n.isFloat || m.isFloat {
		return n.float() < m.float()
	}
	return n.i < m.i
}

// plus keeps integers exact as long as an integer can hold them.
func (n Number) plus(m Number) Number {
	sum := n.i + m.i
	if n.isFloat || m.isFloat || (sum < n.i) != (m.i < 0) {
		return finite(n.float() + m.float())
	}
	return Number{i: sum}
}

// minus is as exact as plus.
func (n Number) minus(m Number) Number {
	difference := n.i - m.i
	if n.isFloat || m.isFloat || (difference > n.i) != (m.i < 0) {
		return finite(n.float() - m.float())
	}
	return Number{i: difference}
}

// finite keeps a sum of large floats a number that JSON can say.
func finite(f float64) Number {
	return Number{isFloat: true, f: min(max(f, -math.MaxFloat64), math.MaxFloat64)}
}

// appendJSON appends the shortest text that reads back as the same number.
func (n Number) appendJSON(b []byte) []byte {
	if !n.isFloat {
		return strconv.AppendInt(b, n.i, 10)
	}
	format := byte('f')
	if size := math.Abs(n.f); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e' // as encoding/json does
	}
	return strconv.AppendFloat(b, n.f, format, -1, 64)
}

// Kind says how the values of an item follow each other.
type Kind uint8

const (
	// Value is written as it is.
	Value Kind = iota
	// Counter counts from a start; written is what it counted since the run began.
	Counter
	// Delta is what was counted since the last item; written is the sum in the run.
	Delta
)

// Item is one value of a resource.
type Item struct {
	// Key is W&B's tag, valid UTF-8.
	Key   string
	Value Number
	Kind  Kind
	// Start is since when a Counter counts, 0 if it does not say.
	Start pcommon.Timestamp
}

// Record is what a resource had within one interval. No two items have one key.
type Record struct {
	// Begin is when what the record tells began: the time of its first point, or
	// the start of a counter that began with this exporter.
	Begin time.Time
	// Time is that of its last point.
	Time  time.Time
	Items []Item
}

// counter follows a Counter or the sum of a Delta through a run.
type counter struct {
	// carried is what was counted before the last reset, base what had been
	// counted before the run.
	carried, base Number
	last          Number
	start         pcommon.Timestamp
}

// count returns what the item counted since the run began. A late item is one that
// others have overtaken on their way: that it is lower than they were is no reset.
func (r *run) count(it *Item, late bool) Number {
	if it.Kind == Value {
		return it.Value
	}
	c, known := r.counters[it.Key]
	if !known {
		if len(r.counters) >= maxCounters {
			clear(r.counters)
		}
		c = &counter{start: it.Start, last: it.Value}
		if it.Kind == Counter && it.Start < pcommon.NewTimestampFromTime(r.start) {
			c.base = it.Value // counted before the run
		}
		r.counters[it.Key] = c
		return it.Value.minus(c.base)
	}
	if it.Kind == Delta {
		c.last = c.last.plus(it.Value)
		return c.last.minus(c.base)
	}
	if late && it.Start <= c.start {
		if it.Start < c.start || it.Value.less(c.base) {
			return c.carried // from before the last reset, or before the run
		}
		return c.carried.plus(it.Value.minus(c.base))
	}
	restarted := c.start != 0 && it.Start > c.start // not where it says its start for the first time
	if restarted || it.Value.less(c.last) {
		c.carried = c.carried.plus(c.last.minus(c.base))
		c.base = Number{}
	}
	c.start, c.last = max(c.start, it.Start), it.Value
	return c.carried.plus(it.Value.minus(c.base))
}

// rebased returns the counters for the next run of the resource, in which they
// count from 0.
func rebased(counters map[string]*counter) map[string]*counter {
	next := make(map[string]*counter, len(counters))
	for key, c := range counters {
		next[key] = &counter{base: c.last, last: c.last, start: c.start}
	}
	return next
}
