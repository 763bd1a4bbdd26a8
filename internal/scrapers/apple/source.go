// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/native"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/tools"
)

// newSource returns the configured source.
func newSource(cfg *Config, set scrapers.Settings) source {
	name := cfg.source()
	if name == sourceReplay {
		return newMetered(&replay{path: cfg.ReplayFile})
	}
	if why := notHere(); why != nil && cfg.ToolPath == "" {
		return absent{why}
	}
	switch name {
	case sourceIOReg:
		return newMetered(newIOReg(cfg.ToolPath))
	case sourceMacmon:
		return newMacmon(cfg, set)
	case sourcePowermetrics:
		return newPowermetrics(cfg, set)
	}
	return newLooking(newNative(wantOf(cfg, set), set.DetectionInterval), cfg, set.Receiver.Logger)
}

// wantOf says what the metrics that are on need.
func wantOf(cfg *Config, set scrapers.Settings) native.Want {
	m := &set.Metrics.Metrics
	return native.Want{
		Clocks: m.GpuFreq.Enabled,
		Cores: m.CPUEcpuFreq.Enabled || m.CPUEcpuPercent.Enabled ||
			m.CPUPcpuFreq.Enabled || m.CPUPcpuPercent.Enabled,
		CPUTemperature: m.CPUAvgTemp.Enabled,
		SystemPower:    m.SystemPowerWatts.Enabled,
		Everything:     cfg.CaptureFile != "",
	}
}

// absent is a machine that is no Mac with Apple silicon.
type absent struct{ why *scrapers.AbsentError }

// prime implements source.
func (absent) prime(context.Context) {}

// read implements source.
func (a absent) read(context.Context) *reading {
	return &reading{at: time.Now(), errs: []error{a.why}}
}

// close implements source.
func (absent) close(context.Context) error { return nil }

// ioreg looks at what the program of that name prints of the GPU.
type ioreg struct {
	path string
	slot guard.Slot
	// system is read once.
	system capture.System
}

const ioregPath = "/usr/sbin/ioreg"

func newIOReg(path string) *ioreg {
	if path == "" {
		path = ioregPath
	}
	return &ioreg{path: path, system: capture.System{Memory: machineMemory()}}
}

// Look implements looker.
func (i *ioreg) Look(ctx context.Context) (*capture.Capture, []error) {
	entries, err := i.entries(ctx)
	if err != nil {
		return nil, []error{&scrapers.SourceError{Source: i.path, Err: err}}
	}
	return &capture.Capture{System: i.system, Registry: append([]capture.Entry{}, entries...)}, nil
}

func (i *ioreg) entries(ctx context.Context) ([]capture.Entry, error) {
	res, err := guard.Run(ctx, guard.Command{
		Path: i.path, Args: []string{"-r", "-d", "1", "-w", "0", "-c", "AGXAccelerator", "-a"}, MaxOutput: tools.MaxDocument,
	})
	switch {
	case err != nil:
		return nil, err
	case res.ExitCode != 0:
		return nil, fmt.Errorf("exited with %d; it said: %.200q", res.ExitCode, res.Stderr)
	}
	// The parser of property lists is not ours: a panic in it is an error.
	return guard.Call(ctx, &i.slot, func(context.Context) ([]capture.Entry, error) { return tools.IOReg(res.Stdout) })
}

// cutLines cuts the output of macmon.
func cutLines(line func([]byte), tooLong func()) io.Writer {
	return &guard.Lines{Max: tools.MaxDocument, Line: line, TooLong: tooLong}
}

// cutPlists cuts the output of powermetrics.
func cutPlists(document func([]byte), tooLong func()) io.Writer {
	return &tools.Plists{Document: document, TooLong: tooLong}
}
