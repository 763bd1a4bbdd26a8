// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package native reads Apple's own interfaces on a Mac with Apple silicon. What calls them
// is in the files for darwin/arm64; the rest is the same on every system.
package native

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

// Want says what is asked for beside the GPU's figures that are on by default.
type Want struct {
	// Clocks asks for the clock tables.
	Clocks bool
	// Cores asks for the states of the CPU's cores, CPUTemperature for its sensors.
	Cores, CPUTemperature bool
	// SystemPower asks for the machine's power.
	SystemPower bool
	// Everything is for a capture.
	Everything bool
}

// parts are the interfaces. None of them holds anything of C when it returned.
type parts struct {
	system   func() capture.System
	report   func(groups []group) (*sample, error)
	registry func() ([]capture.Entry, error)
	tables   func() (map[string][]byte, error)
	keys     func(*keySet) ([]capture.Key, error)
	sensors  func() ([]capture.Sensor, error)
}

// energyGroup has counters; the other groups have states.
const energyGroup = "Energy Model"

// sample is what channels held at a time.
type sample struct {
	at       time.Time
	channels []capture.Channel
}

// group names channels of IOReport.
type group struct{ name, subgroup string }

// Reader looks at the Mac that it runs on. Not safe for concurrent use.
type Reader struct {
	want  Want
	parts parts
	clock func() time.Time
	began time.Time
	// again is how long what was not there is taken for missing.
	again time.Duration

	// What does not change is read once.
	system capture.System
	tables map[string][]byte

	// noSensors is until when HID is not asked, noSensorsErr why.
	noSensors    time.Time
	noSensorsErr error

	report, registry, pmgr, hid guard.Slot

	smc smcReader
}

// smcReader has the keys that were found. They are touched inside the slot's calls alone.
type smcReader struct {
	slot guard.Slot
	keys keySet
}

func newReader(want Want, again time.Duration, p parts) *Reader {
	r := &Reader{want: want, parts: p, clock: time.Now, again: again}
	r.began = r.clock()
	r.smc.keys = keySet{again: again, clock: func() time.Time { return r.clock() }, isWanted: want.key}
	return r
}

// key tells whether an SMC key is asked for.
func (w *Want) key(name string) bool {
	switch figures.KindOfKey(name) {
	case figures.GPUTemperature:
		return true
	case figures.CPUTemperature:
		return w.CPUTemperature || w.Everything
	case figures.SystemPower:
		return w.SystemPower || w.Everything
	}
	return w.Everything && len(name) == 4 && name[0] == 'T' // temperatures of an unknown chip
}

func (w *Want) groups() []group {
	groups := []group{{name: energyGroup}, {"GPU Stats", "GPU Performance States"}}
	if w.Cores || w.Everything {
		groups = append(groups, group{"CPU Stats", "CPU Core Performance States"})
	}
	return groups
}

// Look reads each interface once, one after the other. Each fails, and hangs, alone.
func (r *Reader) Look(ctx context.Context) (*capture.Capture, []error) {
	if r.system == (capture.System{}) {
		r.system = r.parts.system()
	}
	c := &capture.Capture{Format: capture.Format, System: r.system}
	look := looking{left: 5, texts: map[string]string{}}
	r.readReport(ctx, &look, c)
	c.Registry = call(ctx, &look, &r.registry, "IORegistry", r.parts.registry)
	if c.Registry == nil && look.texts["IORegistry"] == "" {
		c.Registry = []capture.Entry{}
	}
	r.readTables(ctx, &look)
	c.Pmgr = r.tables
	c.SMC.Keys = call(ctx, &look, &r.smc.slot, "SMC", func() ([]capture.Key, error) { return r.parts.keys(&r.smc.keys) })
	c.SMC.Error = look.texts["SMC"]
	r.readSensors(ctx, &look, c)
	return c, look.errs
}

func (r *Reader) readReport(ctx context.Context, look *looking, c *capture.Capture) {
	groups := r.want.groups()
	got := call(ctx, look, &r.report, "IOReport", func() (*sample, error) { return r.parts.report(groups) })
	c.Report.Error = look.texts["IOReport"]
	c.Report.Samples = []capture.Sample{}
	if got != nil {
		c.Report.Samples = append(c.Report.Samples, capture.Sample{At: int64(got.at.Sub(r.began)), Channels: got.channels})
	}
}

func (r *Reader) readTables(ctx context.Context, look *looking) {
	if r.tables == nil && (r.want.Clocks || r.want.Cores || r.want.Everything) {
		r.tables = call(ctx, look, &r.pmgr, "pmgr", r.parts.tables)
	}
}

// readSensors asks HID where the SMC has no temperature: on the M1, whose GPU is idle.
func (r *Reader) readSensors(ctx context.Context, look *looking, c *capture.Capture) {
	lacks := !figures.Temperature(c, figures.GPUTemperature).Known ||
		r.want.CPUTemperature && !figures.Temperature(c, figures.CPUTemperature).Known
	if !lacks && !r.want.Everything {
		return
	}
	now := r.clock()
	if !now.Before(r.noSensors) {
		r.noSensorsErr = nil
		sensors, err := one(ctx, look, &r.hid, r.parts.sensors)
		c.HID.Sensors = slices.DeleteFunc(sensors, func(s capture.Sensor) bool {
			return !r.want.Everything && figures.KindOfSensor(s.Product) == figures.Other
		})
		if r.noSensorsErr = err; len(c.HID.Sensors) == 0 {
			r.noSensors = now.Add(r.again)
		}
	}
	if r.noSensorsErr == nil {
		return
	}
	c.HID.Error = r.noSensorsErr.Error()
	if len(c.SMC.Keys) == 0 { // else its sensors are only powered off
		look.fail("HID sensors", r.noSensorsErr)
	}
}

// looking is one look: the time that is left is shared by the interfaces that are left.
type looking struct {
	left int
	errs []error
	// texts are those of the errors by their source.
	texts map[string]string
}

func (l *looking) fail(source string, err error) {
	l.errs = append(l.errs, &scrapers.SourceError{Source: source, Err: err})
	l.texts[source] = err.Error()
}

// call is one whose failure is told.
func call[T any](ctx context.Context, l *looking, slot *guard.Slot, source string, fn func() (T, error)) T {
	got, err := one(ctx, l, slot, fn)
	if err != nil {
		l.fail(source, err)
		var none T
		return none
	}
	return got
}

// one gives an interface its part of the time.
func one[T any](ctx context.Context, l *looking, slot *guard.Slot, fn func() (T, error)) (T, error) {
	if deadline, ok := ctx.Deadline(); ok {
		limited, cancel := context.WithTimeoutCause(ctx, time.Until(deadline)/time.Duration(max(l.left, 1)),
			fmt.Errorf("it did not answer in its part of the time: %w", context.DeadlineExceeded))
		defer cancel()
		ctx = limited
	}
	l.left--
	return guard.Call(ctx, slot, func(context.Context) (T, error) { return fn() })
}
