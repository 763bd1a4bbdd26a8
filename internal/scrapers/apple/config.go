// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Config is the section `scrapers::apple`.
type Config struct {
	// CommonConfig holds the keys that every family has.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// Source says where the figures come from.
	Source sourceName `mapstructure:"source"`
	// GPUPowerLimitWatts is what gpu.powerPercent is a share of; 0 means an estimate by
	// the number of cores, since Apple publishes no limit.
	GPUPowerLimitWatts float64 `mapstructure:"gpu_power_limit_watts"`
	// ReplayFile is a recorded capture that is read in place of the hardware, on any
	// system.
	ReplayFile string `mapstructure:"replay_file"`
	// CaptureFile is where a capture of this Mac is recorded, once: two looks at what
	// Apple's interfaces tell. A file that exists is left alone.
	CaptureFile string `mapstructure:"capture_file"`
	// ToolPath is the program of the sources ioreg, macmon and powermetrics; empty means
	// where it is on a Mac.
	ToolPath string `mapstructure:"tool_path"`
}

// sourceName is where the figures come from.
type sourceName string

const (
	// sourceAuto is replay where there is a file for it, else native.
	sourceAuto         sourceName = "auto"
	sourceNative       sourceName = "native"
	sourceIOReg        sourceName = "ioreg"
	sourceMacmon       sourceName = "macmon"
	sourcePowermetrics sourceName = "powermetrics"
	sourceReplay       sourceName = "replay"
)

// Validate tells whether the value is known.
func (s sourceName) Validate() error {
	switch s {
	case sourceAuto, sourceNative, sourceIOReg, sourceMacmon, sourcePowermetrics, sourceReplay:
		return nil
	}
	return fmt.Errorf("unknown value %q; use auto, native, ioreg, macmon, powermetrics or replay", string(s))
}

func defaultConfig() scrapers.Config { return &Config{Source: sourceAuto} }

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	errs := []error{
		checkPath("replay_file", c.ReplayFile),
		checkPath("capture_file", c.CaptureFile),
		checkPath("tool_path", c.ToolPath),
	}
	if w := c.GPUPowerLimitWatts; math.IsNaN(w) || math.IsInf(w, 0) || w < 0 {
		errs = append(errs, fmt.Errorf("gpu_power_limit_watts: %v: must be a number of watts, or 0 for an estimate", w))
	}
	switch source := c.source(); {
	case source == sourceReplay && c.ReplayFile == "":
		errs = append(errs, errors.New("source: replay needs replay_file"))
	case source != sourceReplay && c.ReplayFile != "":
		errs = append(errs, fmt.Errorf("replay_file: has no effect with source %s", source))
	}
	if c.CaptureFile != "" && c.source() != sourceNative {
		errs = append(errs, fmt.Errorf("capture_file: has no effect with source %s", c.source()))
	}
	if c.ToolPath != "" && !c.usesTool() {
		errs = append(errs, fmt.Errorf("tool_path: has no effect with source %s", c.source()))
	}
	return errors.Join(errs...)
}

// source is the one in use.
func (c *Config) source() sourceName {
	switch {
	case c.Source != sourceAuto:
		return c.Source
	case c.ReplayFile != "":
		return sourceReplay
	}
	return sourceNative
}

func (c *Config) usesTool() bool {
	switch c.source() {
	case sourceIOReg, sourceMacmon, sourcePowermetrics:
		return true
	}
	return false
}

func checkPath(key, path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q: must be absolute", key, path)
	}
	return nil
}
