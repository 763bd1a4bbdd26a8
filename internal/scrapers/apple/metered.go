// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

// looker looks at a Mac.
type looker interface {
	// Look returns what it sees, and what it could not read.
	Look(ctx context.Context) (*capture.Capture, []error)
}

// metered makes figures of what a looker sees.
type metered struct {
	looker    looker
	meter     figures.Meter
	recording *recording
	clock     func() time.Time
}

func newMetered(l looker) *metered { return &metered{looker: l, clock: time.Now} }

// prime implements source.
func (*metered) prime(context.Context) {}

// close implements source: nothing is held between two looks.
func (*metered) close(context.Context) error { return nil }

// read implements source.
func (m *metered) read(ctx context.Context) *reading {
	c, errs := m.looker.Look(ctx)
	r := &reading{at: m.clock(), errs: errs}
	if c == nil {
		return r
	}
	f := m.meter.Read(c)
	if c.Registry != nil && c.GPU() == nil && !f.Any() {
		r.errs = []error{&scrapers.AbsentError{
			Reason: "this Mac shows no Apple GPU (AGXAccelerator)",
			Cure:   "run the collector on the Mac itself: a virtual machine does not see the GPU",
		}}
	} else {
		r.figures = f
	}
	if m.recording != nil {
		if err := m.recording.add(ctx, c); err != nil {
			r.errs = append(r.errs, &scrapers.SourceError{Source: "capture_file", Err: err})
		}
	}
	return r
}

// replay looks at a recorded capture.
type replay struct {
	path string
	slot guard.Slot
}

// maxCapture is far above a capture with hundreds of samples.
const maxCapture = 16 << 20

// Look implements looker. The file is read each time: it may be replaced.
func (r *replay) Look(ctx context.Context) (*capture.Capture, []error) {
	c, err := guard.Call(ctx, &r.slot, func(context.Context) (*capture.Capture, error) {
		content, err := guard.ReadFile(r.path, maxCapture)
		if err != nil {
			return nil, err
		}
		return capture.Parse(content)
	})
	if err != nil {
		return nil, []error{&scrapers.SourceError{Source: "replay_file " + r.path, Err: err}}
	}
	if c.Registry == nil {
		c.Registry = []capture.Entry{}
	}
	return c, faults(c)
}

// faults are what could not be read where it was recorded.
func faults(c *capture.Capture) []error {
	var errs []error
	add := func(source, text string) {
		if text != "" {
			errs = append(errs, &scrapers.SourceError{Source: source, Err: fmt.Errorf("as recorded: %w", errors.New(text))})
		}
	}
	add("IOReport", c.Report.Error)
	add("SMC", c.SMC.Error)
	add("HID sensors", c.HID.Error)
	return errs
}

// newLooking returns a source of a looker, which is recorded where that is wanted.
func newLooking(l looker, cfg *Config, logger *zap.Logger) *metered {
	m := newMetered(l)
	if cfg.CaptureFile != "" {
		m.recording = &recording{path: cfg.CaptureFile, limit: cfg.GPUPowerLimitWatts, logger: logger}
	}
	return m
}
