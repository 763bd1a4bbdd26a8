// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/keeper"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

const (
	// maxLine is far above what 64 processes on 64 cores make (650 KiB).
	maxLine = 16 << 20
	// firstReport is how long a scrape waits after the tool was started, which gives
	// its first report at once.
	firstReport = 5 * time.Second
)

// monitor runs neuron-monitor and keeps its newest report.
type monitor struct {
	*keeper.Keeper[*report.Report]

	finder finder
	// config is what the tool is told to measure, every period.
	config  []byte
	devices bool

	mu     sync.Mutex
	counts counts
}

func newMonitor(cfg *Config, set scrapers.Settings) *monitor {
	m := &monitor{
		finder: finder{path: cfg.NeuronMonitorPath, root: set.RootPath},
		config: toolConfig(cfg.period(), cfg.TagFilter, wantOf(&set.Metrics.Metrics)),
		counts: newCounts(),
	}
	m.Keeper = keeper.New(keeper.Program[*report.Report]{
		Name: toolName, Period: cfg.period(), FirstReport: firstReport, MaxReport: maxLine,
		Cut: func(line func([]byte), tooLong func()) io.Writer {
			return &guard.Lines{Max: maxLine, Line: line, TooLong: tooLong}
		},
		Parse: report.Parse, Taken: m.count, Logger: set.Receiver.Logger,
	})
	return m
}

// start implements source.
func (*monitor) start(component.Host) {}

// prime implements source.
func (m *monitor) prime(ctx context.Context) {
	if m.run(ctx) == nil { // the first scrape says why not
		m.Await(ctx)
	}
}

// read implements source.
func (m *monitor) read(ctx context.Context) *reading {
	if err := m.run(ctx); err != nil {
		return &reading{counts: newCounts(), errs: []error{err}}
	}
	m.Await(ctx)
	r := m.latest()
	if r.report == nil || r.report.HardwareError == "" {
		return r
	}
	return m.withoutHardware(r)
}

// run has the tool running, if it is here.
func (m *monitor) run(ctx context.Context) error {
	if m.Running(ctx) {
		return nil
	}
	got, err := m.finder.find(ctx)
	switch {
	case err != nil:
		return m.sourceError("search", err)
	case got.err != nil && m.finder.path == "" && !got.devices:
		return &scrapers.AbsentError{
			Reason: "no /dev/neuron*, and " + toolName + " is not installed",
			Cure:   "install the Neuron driver (aws-neuronx-dkms) and tools (aws-neuronx-tools), or set scrapers::trainium::neuron_monitor_path",
		}
	case got.err != nil:
		return m.sourceError("search", got.err)
	}
	m.devices = got.devices
	m.Keep(func() (guard.Command, func(), error) {
		file, remove, err := writeConfig(m.config)
		return guard.Command{Path: got.tool, Args: []string{"-c", file}}, remove, err
	})
	return nil
}

// count counts the events of a report.
func (m *monitor) count(r *report.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.add(r)
}

// counted returns what was counted since the last call.
func (m *monitor) counted() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts
	m.counts = newCounts()
	return c
}

// latest returns the newest report, if it is of now, and what was counted since the last
// call.
func (m *monitor) latest() *reading {
	newest, at, fresh, err := m.Latest()
	r := &reading{at: at, counts: m.counted()}
	if fresh {
		r.report = newest
		err = unread(newest)
	}
	if err != nil {
		r.errs = append(r.errs, err)
	}
	return r
}

// maxTroubles is how many are told.
const maxTroubles = 8

// unread says what the tool could not read.
func unread(r *report.Report) error {
	all := r.Troubles
	if len(all) == 0 {
		return nil
	}
	var text strings.Builder
	for _, trouble := range all[:min(len(all), maxTroubles)] {
		fmt.Fprintf(&text, "; %s", trouble)
	}
	if left := len(all) - maxTroubles; left > 0 {
		fmt.Fprintf(&text, "; and %d more", left)
	}
	said := text.String()[2:]
	return keeper.Fault(toolName+"'s reading", said, errors.New(said))
}

// withoutHardware deals with a tool that finds no hardware: it runs all the same.
func (m *monitor) withoutHardware(r *reading) *reading {
	said := r.report.HardwareError
	if m.devices || len(r.report.Runtimes) > 0 {
		r.errs = append(r.errs, &scrapers.SourceError{Source: toolName + "'s hardware", Err: errors.New(said)})
		return r
	}
	m.Stop()
	return &reading{counts: r.counts, errs: []error{&scrapers.AbsentError{
		Reason: fmt.Sprintf("no /dev/neuron*, and %s finds no device: %s", toolName, said),
		Cure:   "install the Neuron driver (aws-neuronx-dkms), or let the container use /dev/neuron*",
	}}}
}

func (*monitor) sourceError(cause string, err error) error {
	return keeper.Fault(toolName, cause, err)
}

// close implements source. The tool ends by itself if that takes longer than ctx.
func (m *monitor) close(ctx context.Context) error { return m.Close(ctx) }
