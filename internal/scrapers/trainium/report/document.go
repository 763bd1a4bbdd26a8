// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// The types below are the tool's schema, as far as it is used. A field that has
// another type than here is as if it were missing: encoding/json goes on after it.

type document struct {
	// Runtimes is nil for null, else what it was before where the key is missing or
	// has another type, which is how that shows.
	Runtimes *[]entry `json:"neuron_runtime_data"`
	System   struct {
		Counters struct {
			Error   text     `json:"error"`
			Devices []device `json:"neuron_devices"`
		} `json:"neuron_hw_counters"`
	} `json:"system_data"`
	Hardware hardware `json:"neuron_hardware_info"`
}

type entry struct {
	Pid    number  `json:"pid"`
	Tag    text    `json:"neuron_runtime_tag"`
	Error  text    `json:"error"`
	Report *groups `json:"report"`
}

type groups struct {
	Cores     *coreGroup      `json:"neuroncore_counters"`
	Memory    *memoryGroup    `json:"memory_used"`
	Execution *executionGroup `json:"execution_stats"`
}

type coreGroup struct {
	Period number          `json:"period"`
	InUse  map[string]core `json:"neuroncores_in_use"`
	Error  text            `json:"error"`
}

func (g *coreGroup) err() text {
	if g == nil {
		return ""
	}
	return g.Error
}

// isLongEnough tells whether the window was. Without a period there is no doubt.
func (g *coreGroup) isLongEnough() bool { return !g.Period.known || g.Period.value >= minWindow }

type core struct {
	Utilisation number `json:"neuroncore_utilization"`
}

type memoryGroup struct {
	Used  usedBytes `json:"neuron_runtime_used_bytes"`
	Error text      `json:"error"`
}

func (g *memoryGroup) err() text {
	if g == nil {
		return ""
	}
	return g.Error
}

type usedBytes struct {
	Host      number `json:"host"`
	Device    number `json:"neuron_device"`
	Breakdown struct {
		Host  map[string]number            `json:"host"`
		Cores map[string]map[string]number `json:"neuroncore_memory_usage"`
	} `json:"usage_breakdown"`
}

type executionGroup struct {
	Errors  map[string]number `json:"error_summary"`
	Summary map[string]number `json:"execution_summary"`
	Latency struct {
		Total  map[string]number `json:"total_latency"`
		Device map[string]number `json:"device_latency"`
	} `json:"latency_stats"`
	Error text `json:"error"`
}

func (g *executionGroup) err() text {
	if g == nil {
		return ""
	}
	return g.Error
}

type device struct {
	Index           number `json:"neuron_device_index"`
	MemCorrected    number `json:"mem_ecc_corrected"`
	MemUncorrected  number `json:"mem_ecc_uncorrected"`
	SRAMCorrected   number `json:"sram_ecc_corrected"`
	SRAMUncorrected number `json:"sram_ecc_uncorrected"`
}

type hardware struct {
	Error          text   `json:"error"`
	Devices        number `json:"neuron_device_count"`
	CoresPerDevice number `json:"neuroncore_per_device_count"`
}

// cores is 0 where that is not known, or cannot be.
func (h *hardware) cores() int {
	if n := h.Devices.value * h.CoresPerDevice.value; n <= maxIndex {
		return int(n)
	}
	return 0
}

// decode reads the object. What is none, or has no runtimes, is no report.
func decode(line []byte) (*document, error) {
	var before []entry
	doc := &document{Runtimes: &before}
	err := json.Unmarshal(line, doc)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !ok {
		return nil, fmt.Errorf("%w: %w", ErrNoReport, err)
	}
	if doc.Runtimes == &before && before == nil {
		return nil, fmt.Errorf("%w: no neuron_runtime_data", ErrNoReport)
	}
	return doc, nil
}

// number is a JSON number that is not negative; anything else is none.
type number struct {
	value float64
	known bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(string(b), 64)
	isNumber := len(b) > 0 && b[0] >= '0' && b[0] <= '9'
	*n = number{}
	if isNumber && err == nil && v <= math.MaxInt64/2 {
		*n = number{v, true}
	}
	return nil
}

func (n number) optional() optional.Of[float64] { return optional.If(n.value, n.known) }

// whole is 0 for what is none.
func (n number) whole() int {
	if n.value > math.MaxInt32 {
		return 0
	}
	return int(n.value)
}

// text is a JSON string, of which the first maxText bytes count; null is empty, and
// anything else is its JSON.
type text string

// maxText is what a job may name itself by, and enough of an error.
const maxText = 255

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}
	*t = text(strings.ToValidUTF8(s[:min(len(s), maxText)], ""))
	return nil
}

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
