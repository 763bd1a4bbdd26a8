// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// defaultToolTimeout is how long Graphcore's own tooling waits before it takes that
// for a fault of the hardware.
const defaultToolTimeout = 10 * time.Second

// Config is the section `scrapers::ipu`.
type Config struct {
	// CommonConfig holds the keys that every family has.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// Source says which tool the figures come from.
	Source sourceName `mapstructure:"source"`
	// ToolDir is the folder with the tools; empty means that they are looked for in
	// PATH and where the SDK is installed.
	ToolDir string `mapstructure:"tool_dir"`
	// Command is a program, by its absolute path, and its arguments. It is run in place
	// of the tools, and prints what one of them would, or gcipuinfo.
	Command []string `mapstructure:"command"`
	// Env is added to the tools' environment, such as IPUOF_CONFIG_PATH.
	Env map[string]string `mapstructure:"env"`
	// ToolTimeout is how long a tool may run. It may be longer than the family's
	// timeout: the answer then comes with a later scrape.
	ToolTimeout time.Duration `mapstructure:"tool_timeout"`
}

// sourceName is where the figures come from.
type sourceName string

const (
	// sourceAuto is the command where there is one, else the first of the tools that
	// lists an IPU.
	sourceAuto      sourceName = "auto"
	sourceInventory sourceName = "gc-inventory"
	sourceMonitor   sourceName = "gc-monitor"
	sourceInfo      sourceName = "gc-info"
	sourceCommand   sourceName = "command"
)

// Validate tells whether the value is known.
func (s sourceName) Validate() error {
	switch s {
	case sourceAuto, sourceInventory, sourceMonitor, sourceInfo, sourceCommand:
		return nil
	}
	return fmt.Errorf("unknown value %q; use auto, gc-inventory, gc-monitor, gc-info or command", string(s))
}

func defaultConfig() scrapers.Config {
	return &Config{Source: sourceAuto, ToolTimeout: defaultToolTimeout}
}

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	var errs []error
	if c.ToolDir != "" && !filepath.IsAbs(c.ToolDir) {
		errs = append(errs, fmt.Errorf("tool_dir: %q: must be absolute", c.ToolDir))
	}
	if c.ToolTimeout <= 0 {
		errs = append(errs, fmt.Errorf("tool_timeout: %s: must be above 0", c.ToolTimeout))
	}
	return errors.Join(append(errs, c.checkCommand(), checkEnv(c.Env))...)
}

func (c *Config) checkCommand() error {
	switch {
	case len(c.Command) == 0 && c.Source == sourceCommand:
		return errors.New("command: must name a program with source: command")
	case len(c.Command) == 0:
		return nil
	case c.Source != sourceAuto && c.Source != sourceCommand:
		return fmt.Errorf("command: has no effect with source: %s", c.Source)
	case c.ToolDir != "":
		return errors.New("tool_dir: has no effect with command")
	case !filepath.IsAbs(c.Command[0]):
		return fmt.Errorf("command: %q: must be absolute", c.Command[0])
	}
	return nil
}

func checkEnv(env map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00") {
			errs = append(errs, fmt.Errorf("env: %q: is no name and value of an environment variable", name))
		}
	}
	return errors.Join(errs...)
}
