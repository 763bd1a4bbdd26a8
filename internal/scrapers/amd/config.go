// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Config is the section `scrapers::amd`.
type Config struct {
	// CommonConfig holds the keys that every family has.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// DeviceIDs selects GPUs by rocm-smi's index, by the chip's number (unique_id) or by
	// PCI address; empty means all. The numbers of those that are left stay what they
	// are. An index is a number in YAML, so that texts alone would refuse it.
	DeviceIDs []any `mapstructure:"device_ids"`
	// Source says where the figures come from.
	Source sourceName `mapstructure:"source"`
	// AMDSMIPath and ROCmSMIPath are the tools; empty means that they are looked
	// for where ROCm installs them, and in PATH.
	AMDSMIPath  string `mapstructure:"amd_smi_path"`
	ROCmSMIPath string `mapstructure:"rocm_smi_path"`
	// ToolTimeout is how long a tool may run; 0 means 30 s for amd-smi and 10 s for
	// rocm-smi. It may be longer than the family's timeout: the answer then comes
	// with a later scrape.
	ToolTimeout time.Duration `mapstructure:"tool_timeout"`
}

// deviceIDs is how GPUs are named in the configuration.
var deviceIDs = gpus.IDForm{
	UUID: regexp.MustCompile(`^[0-9A-Fa-f]{16}$`),
	Want: "rocm-smi's index, a unique_id (16 hexadecimal digits) or a PCI address (0000:c1:00.0)",
}

// sourceName is where the figures come from.
type sourceName string

const (
	// sourceAuto is the first of the others that finds a GPU.
	sourceAuto    sourceName = "auto"
	sourceSysfs   sourceName = "sysfs"
	sourceAMDSMI  sourceName = "amd-smi"
	sourceROCmSMI sourceName = "rocm-smi"
)

// Validate tells whether the value is known.
func (s sourceName) Validate() error {
	switch s {
	case sourceAuto, sourceSysfs, sourceAMDSMI, sourceROCmSMI:
		return nil
	}
	return fmt.Errorf("unknown value %q; use auto, sysfs, amd-smi or rocm-smi", string(s))
}

func defaultConfig() scrapers.Config { return &Config{Source: sourceAuto} }

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	_, err := deviceIDs.ParseAll(c.DeviceIDs)
	return errors.Join(
		err,
		checkPath("amd_smi_path", c.AMDSMIPath),
		checkPath("rocm_smi_path", c.ROCmSMIPath),
		checkTimeout(c.ToolTimeout),
	)
}

func checkPath(key, path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("%s: %q: must be absolute", key, path)
	}
	return nil
}

func checkTimeout(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("tool_timeout: %s: must not be below 0", d)
	}
	return nil
}
