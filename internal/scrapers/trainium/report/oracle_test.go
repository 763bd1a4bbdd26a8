// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// object is what encoding/json makes of one.
type object map[string]any

// in returns the object below some names; nil when there is none.
func (o object) in(names ...string) object {
	for _, name := range names {
		below, _ := o[name].(map[string]any)
		o = below
	}
	return o
}

func (o object) number(name string) optional.Of[float64] {
	n, ok := o[name].(json.Number)
	v, err := strconv.ParseFloat(string(n), 64)
	return optional.If(math.Abs(v), ok && err == nil && v >= 0 && v <= math.MaxInt64/2)
}

func (o object) numbers(is func(string) bool) map[string]float64 {
	all := map[string]float64{}
	for name := range o {
		if n := o.number(name); n.Known && is(name) {
			all[name] = n.Value
		}
	}
	return all
}

// hasError tells whether there is an error.
func (o object) hasError() bool { return o["error"] != nil && o["error"] != "" }

// requireLike compares a report with what encoding/json finds in the line.
func requireLike(t *testing.T, line []byte, r *Report) {
	t.Helper()
	all := object{}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	require.NoError(t, d.Decode(&all))
	list, _ := all["neuron_runtime_data"].([]any)
	require.Len(t, r.Runtimes, len(list))
	for i, element := range list {
		entry, _ := element.(map[string]any)
		got := &r.Runtimes[i]
		want := Runtime{Key: got.Key, Unread: true}
		if !object(entry).hasError() {
			want.expect(object(entry).in("report"))
		}
		require.Equal(t, want, *got)
	}
}

// expect takes the groups of a report.
func (r *Runtime) expect(groups object) {
	if g := groups.in("neuroncore_counters"); g != nil && !g.hasError() {
		if p := g.number("period"); !p.Known || p.Value >= minWindow {
			r.Unread, r.Utilisation = false, map[int]float64{}
			for name := range g.in("neuroncores_in_use") {
				n, ok := index(name)
				if v := g.in("neuroncores_in_use", name).number("neuroncore_utilization"); ok && v.Known {
					r.Utilisation[n] = min(v.Value, 100)
				}
			}
		}
	}
	if g := groups.in("memory_used"); g != nil && !g.hasError() {
		used := g.in("neuron_runtime_used_bytes")
		r.Host, r.Device = used.number("host"), used.number("neuron_device")
		r.HostParts = used.in("usage_breakdown", "host").numbers(IsPart)
		perCore := used.in("usage_breakdown", "neuroncore_memory_usage")
		for name := range perCore {
			if n, ok := index(name); ok {
				if r.CoreParts == nil {
					r.CoreParts = map[int]map[string]float64{}
				}
				r.CoreParts[n] = perCore.in(name).numbers(IsPart)
			}
		}
	}
	if g := groups.in("execution_stats"); g != nil && !g.hasError() {
		every := func(string) bool { return true }
		r.Execution = &Execution{
			Errors: g.in("error_summary").numbers(every), Outcomes: g.in("execution_summary").numbers(every),
			Total: g.in("latency_stats", "total_latency").numbers(every), Device: g.in("latency_stats", "device_latency").numbers(every),
		}
	}
}

// isReport tells whether encoding/json finds one, in which no name stands twice.
func isReport(line []byte) bool {
	var all map[string]json.RawMessage
	if json.Unmarshal(line, &all) != nil || !jsontext.Value(line).IsValid(jsontext.AllowInvalidUTF8(true)) {
		return false
	}
	value, ok := all["neuron_runtime_data"]
	return ok && (value[0] == '[' || string(value) == "null")
}
