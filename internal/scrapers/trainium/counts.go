// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// maxCounted bounds the runtimes that are counted apart between two readings.
const maxCounted = 4096

// counts are events: each report tells those of its period.
type counts struct {
	// executions are by runtime.
	executions map[report.Key]*executions
	// devices are by number.
	devices map[int]tally
}

// tally counts events by kind.
type tally map[string]float64

func (t tally) add(more map[string]float64) {
	for kind, n := range more {
		t[kind] += n
	}
}

// executions are those of one runtime or several.
type executions struct {
	errors, outcomes tally
}

func newExecutions() *executions { return &executions{errors: tally{}, outcomes: tally{}} }

func (e *executions) addErrors(more map[string]float64) {
	addKnown(e.errors, more, metadata.MapAttributeErrorType)
}

func (e *executions) addOutcomes(more map[string]float64) {
	addKnown(e.outcomes, more, metadata.MapAttributeStatusType)
}

// addKnown leaves out kinds that are not emitted: they would be kept for ever.
func addKnown[K any](to tally, more map[string]float64, kinds map[string]K) {
	for kind, n := range more {
		if _, ok := kinds[kind]; ok {
			to[kind] += n
		}
	}
}

func (e *executions) add(more *executions) {
	e.errors.add(more.errors)
	e.outcomes.add(more.outcomes)
}

func newCounts() counts {
	return counts{executions: map[report.Key]*executions{}, devices: map[int]tally{}}
}

// add counts the events of a report.
func (c *counts) add(r *report.Report) {
	for i := range r.Runtimes {
		if of := &r.Runtimes[i]; of.Execution != nil {
			c.addRuntime(of)
		}
	}
	for number, ecc := range r.Devices {
		c.device(number).add(ecc)
	}
}

func (c *counts) addRuntime(r *report.Runtime) {
	of := c.executions[r.Key]
	if of == nil {
		key := r.Key
		if len(c.executions) >= maxCounted {
			key = report.Key{} // nobody's
		}
		if of = c.executions[key]; of == nil {
			of = newExecutions()
			c.executions[key] = of
		}
	}
	of.addErrors(r.Execution.Errors)
	of.addOutcomes(r.Execution.Outcomes)
}

func (c *counts) device(number int) tally {
	t := c.devices[number]
	if t == nil {
		t = tally{}
		c.devices[number] = t
	}
	return t
}
