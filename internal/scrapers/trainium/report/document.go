// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// The types below are the tool's schema, as far as it is used. What has another type
// than here is as if it were missing.

type document struct {
	// known says that there is neuron_runtime_data, which may be null.
	known    bool
	runtimes []entry
	// left is how many runtimes more there are than are read.
	left     int
	counters counterGroup
	hardware hardware
}

type entry struct {
	pid      number
	tag, err text
	// report is nil when there is none.
	report *groups
}

// groups are nil when they are missing.
type groups struct {
	cores     *coreGroup
	memory    *memoryGroup
	execution *executionGroup
}

type coreGroup struct {
	period number
	inUse  map[string]number
	err    text
}

// A line of 16 MiB has room for millions of runtimes and parts, which would take
// gigabytes. No machine has so many.
const (
	maxRuntimes = 4096
	maxNames    = 1024
)

// isLongEnough tells whether the window was. Without a period there is no doubt.
func (g *coreGroup) isLongEnough() bool { return !g.period.known || g.period.value >= minWindow }

type memoryGroup struct {
	host, device number
	hostParts    map[string]number
	coreParts    map[string]map[string]number
	err          text
}

type executionGroup struct {
	errs, summary, total, device map[string]number
	err                          text
}

type counterGroup struct {
	devices []device
	err     text
}

type device struct {
	index                                                        number
	memCorrected, memUncorrected, sramCorrected, sramUncorrected number
}

type hardware struct {
	err                     text
	devices, coresPerDevice number
}

// cores is 0 where that is not known, or cannot be.
func (h *hardware) cores() int {
	if n := h.devices.value * h.coresPerDevice.value; n <= maxIndex {
		return int(n)
	}
	return 0
}

// decode reads the object. What is none, or has no runtimes, is no report.
func decode(line []byte) (*document, error) {
	doc, d := &document{}, decoder{jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowInvalidUTF8(true))}
	if err := d.document(doc); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReport, err)
	}
	if !doc.known {
		return nil, fmt.Errorf("%w: no neuron_runtime_data", ErrNoReport)
	}
	return doc, nil
}

// decoder reads one value after the other. Each of its methods reads a whole one, of
// whatever type it is.
type decoder struct{ *jsontext.Decoder }

// object calls take for each member of an object, which has to read its value.
func (d decoder) object(take func(name string) error) error {
	if d.PeekKind() != jsontext.KindBeginObject {
		return d.SkipValue()
	}
	return d.all(func() error {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		return take(name.String())
	})
}

// array calls take for each element of an array, which has to read it.
func (d decoder) array(take func() error) error {
	if d.PeekKind() != jsontext.KindBeginArray {
		return d.SkipValue()
	}
	return d.all(take)
}

// all reads what an object or array has until it ends.
func (d decoder) all(take func() error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for {
		switch d.PeekKind() {
		case jsontext.KindEndObject, jsontext.KindEndArray:
			_, err := d.ReadToken()
			return err
		}
		if err := take(); err != nil {
			return err
		}
	}
}

func (d decoder) document(to *document) error {
	err := d.object(func(name string) error {
		switch name {
		case "neuron_runtime_data":
			return d.runtimes(to)
		case "system_data":
			return d.system(&to.counters)
		case "neuron_hardware_info":
			return d.hardware(&to.hardware)
		}
		return d.SkipValue()
	})
	if err != nil {
		return err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

func (d decoder) runtimes(to *document) error {
	kind := d.PeekKind()
	to.known = kind == jsontext.KindNull || kind == jsontext.KindBeginArray
	return d.array(func() error {
		if len(to.runtimes) >= maxRuntimes {
			to.left++
			return d.SkipValue()
		}
		to.runtimes = append(to.runtimes, entry{})
		return d.entry(&to.runtimes[len(to.runtimes)-1])
	})
}

func (d decoder) entry(to *entry) error {
	return d.object(func(name string) error {
		switch name {
		case "pid":
			return d.number(&to.pid)
		case "neuron_runtime_tag":
			return d.text(&to.tag)
		case "error":
			return d.text(&to.err)
		case "report":
			return group(d, &to.report, d.groups)
		}
		return d.SkipValue()
	})
}

// group reads an object that may be missing.
func group[T any](d decoder, to **T, read func(*T) error) error {
	if d.PeekKind() != jsontext.KindBeginObject {
		return d.SkipValue()
	}
	*to = new(T)
	return read(*to)
}

func (d decoder) groups(to *groups) error {
	return d.object(func(name string) error {
		switch name {
		case "neuroncore_counters":
			return group(d, &to.cores, d.coreGroup)
		case "memory_used":
			return group(d, &to.memory, d.memoryGroup)
		case "execution_stats":
			return group(d, &to.execution, d.executionGroup)
		}
		return d.SkipValue()
	})
}

func (d decoder) coreGroup(to *coreGroup) error {
	return d.object(func(name string) error {
		switch name {
		case "period":
			return d.number(&to.period)
		case "error":
			return d.text(&to.err)
		case "neuroncores_in_use":
			to.inUse = map[string]number{}
			return d.object(func(core string) error { return d.core(core, to.inUse) })
		}
		return d.SkipValue()
	})
}

func (d decoder) core(core string, to map[string]number) error {
	return d.object(func(name string) error {
		if name != "neuroncore_utilization" {
			return d.SkipValue()
		}
		var n number
		err := d.number(&n)
		to[core] = n
		return err
	})
}

func (d decoder) memoryGroup(to *memoryGroup) error {
	return d.object(func(name string) error {
		switch name {
		case "error":
			return d.text(&to.err)
		case "neuron_runtime_used_bytes":
			return d.usedBytes(to)
		}
		return d.SkipValue()
	})
}

func (d decoder) usedBytes(to *memoryGroup) error {
	return d.object(func(name string) error {
		switch name {
		case "host":
			return d.number(&to.host)
		case "neuron_device":
			return d.number(&to.device)
		case "usage_breakdown":
			return d.breakdown(to)
		}
		return d.SkipValue()
	})
}

func (d decoder) breakdown(to *memoryGroup) error {
	return d.object(func(name string) error {
		switch name {
		case "host":
			return d.numbers(&to.hostParts)
		case "neuroncore_memory_usage":
			to.coreParts = map[string]map[string]number{}
			return d.object(func(core string) error {
				var parts map[string]number
				err := d.numbers(&parts)
				to.coreParts[core] = parts
				return err
			})
		}
		return d.SkipValue()
	})
}

func (d decoder) executionGroup(to *executionGroup) error {
	return d.object(func(name string) error {
		switch name {
		case "error":
			return d.text(&to.err)
		case "error_summary":
			return d.numbers(&to.errs)
		case "execution_summary":
			return d.numbers(&to.summary)
		case "latency_stats":
			return d.latency(to)
		}
		return d.SkipValue()
	})
}

func (d decoder) latency(to *executionGroup) error {
	return d.object(func(name string) error {
		switch name {
		case "total_latency":
			return d.numbers(&to.total)
		case "device_latency":
			return d.numbers(&to.device)
		}
		return d.SkipValue()
	})
}

func (d decoder) system(to *counterGroup) error {
	return d.object(func(name string) error {
		if name != "neuron_hw_counters" {
			return d.SkipValue()
		}
		return d.object(func(name string) error {
			switch name {
			case "error":
				return d.text(&to.err)
			case "neuron_devices":
				return d.array(func() error {
					to.devices = append(to.devices, device{})
					return d.device(&to.devices[len(to.devices)-1])
				})
			}
			return d.SkipValue()
		})
	})
}

func (d decoder) device(to *device) error {
	return d.object(func(name string) error {
		switch name {
		case "neuron_device_index":
			return d.number(&to.index)
		case MemCorrected:
			return d.number(&to.memCorrected)
		case MemUncorrected:
			return d.number(&to.memUncorrected)
		case SRAMCorrected:
			return d.number(&to.sramCorrected)
		case SRAMUncorrected:
			return d.number(&to.sramUncorrected)
		}
		return d.SkipValue()
	})
}

func (d decoder) hardware(to *hardware) error {
	return d.object(func(name string) error {
		switch name {
		case "error":
			return d.text(&to.err)
		case "neuron_device_count":
			return d.number(&to.devices)
		case "neuroncore_per_device_count":
			return d.number(&to.coresPerDevice)
		}
		return d.SkipValue()
	})
}

// numbers reads an object of numbers, maxNames at most. What is none is known to be
// unknown.
func (d decoder) numbers(to *map[string]number) error {
	*to = map[string]number{}
	return d.object(func(name string) error {
		var n number
		err := d.number(&n)
		if len(*to) < maxNames {
			(*to)[name] = n
		}
		return err
	})
}

// number is a JSON number that is not negative; anything else is none.
type number struct {
	value float64
	known bool
}

func (d decoder) number(to *number) error {
	if d.PeekKind() != jsontext.KindNumber {
		return d.SkipValue()
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err == nil && v >= 0 && v <= math.MaxInt64/2 {
		*to = number{math.Abs(v), true} // Go's encoder has a -0
	}
	return nil
}

func (n number) optional() optional.Of[float64] { return optional.If(n.value, n.known) }

// whole is a pid or an index; 0 for what can be none.
func (n number) whole() (int, bool) {
	if !n.known || n.value > math.MaxInt32 || n.value != math.Trunc(n.value) {
		return 0, false
	}
	return int(n.value), true
}

// text is a JSON string, of which the first maxText bytes count; null is empty, and
// anything else is its JSON.
type text string

// maxText is what a job may name itself by, and enough of an error.
const maxText = 255

func (d decoder) text(to *text) error {
	switch d.PeekKind() {
	case jsontext.KindNull:
		return d.SkipValue()
	case jsontext.KindString:
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		*to = cut(token.String())
		return nil
	}
	raw, err := d.ReadValue()
	*to = cut(string(raw))
	return err
}

// cut keeps whole characters of the beginning.
func cut(s string) text { return text(strings.ToValidUTF8(s[:min(len(s), maxText)], "")) }

// maxIndex is more than any core's or device's number.
const maxIndex = 1 << 16

// index reads the number of a core. There is one way to write it.
func index(name string) (int, bool) {
	n, err := strconv.ParseUint(name, 10, 16)
	if err != nil || (len(name) > 1 && name[0] == '0') {
		return 0, false
	}
	return int(n), true
}
