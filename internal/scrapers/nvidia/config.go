// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Config is the section `scrapers::nvidia`.
type Config struct {
	// CommonConfig holds the keys that every family has.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// DeviceIDs selects GPUs by NVML index, UUID or PCI bus id; empty means all.
	// The numbers of those that are left stay what they are. An index is a number
	// in YAML, so that texts alone would refuse it.
	DeviceIDs []any `mapstructure:"device_ids"`
	// LibraryPath is NVML's library; empty means libnvidia-ml.so.1 as the dynamic
	// linker finds it.
	LibraryPath string `mapstructure:"library_path"`
	// Profiling says when GPM samples are taken.
	Profiling profiling `mapstructure:"profiling"`
	// MIG turns the metrics of MIG instances on.
	MIG bool `mapstructure:"mig"`
	// ReleaseDriverBetweenScrapes opens NVML for each scrape only, so that the
	// driver can be unloaded in between.
	ReleaseDriverBetweenScrapes bool `mapstructure:"release_driver_between_scrapes"`
	// SkipSuspended leaves GPUs asleep that the system has suspended.
	SkipSuspended bool `mapstructure:"skip_suspended"`
}

// profiling says when GPM samples are taken.
type profiling string

const (
	// profilingAuto: when a metric that needs them is on.
	profilingAuto profiling = "auto"
	// profilingOff: never.
	profilingOff profiling = "off"
)

// Validate tells whether the value is known.
func (p profiling) Validate() error {
	switch p {
	case profilingAuto, profilingOff:
		return nil
	}
	return fmt.Errorf("unknown value %q; use auto or off", string(p))
}

func defaultConfig() scrapers.Config {
	return &Config{Profiling: profilingAuto, MIG: true}
}

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	var errs []error
	if c.LibraryPath != "" && !filepath.IsAbs(c.LibraryPath) {
		errs = append(errs, fmt.Errorf("library_path: %q: must be absolute", c.LibraryPath))
	}
	_, err := deviceIDs.ParseAll(c.DeviceIDs)
	errs = append(errs, err)
	return errors.Join(errs...)
}
