// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Config is the section `scrapers::trainium`.
type Config struct {
	// CommonConfig holds the keys that every family has. The tool's period is the
	// collection interval in whole seconds, at least one.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// NeuronMonitorPath is the tool; empty means that it is looked for in PATH and
	// where AWS installs it.
	NeuronMonitorPath string `mapstructure:"neuron_monitor_path"`
	// TagFilter is a regular expression (RE2) for the tags (NEURON_PROCESS_TAG, else
	// the pid) of the runtimes that are measured; empty means all. The tool applies it.
	TagFilter string `mapstructure:"tag_filter"`
	// ReportIdle reports utilisation 0 for the cores that no runtime lists. It does
	// so only when all runtimes could be read.
	ReportIdle bool `mapstructure:"report_idle"`
	// RuntimePoints adds points of each runtime to those of all: on the machine's
	// resource, with the attributes neuron.runtime.pid and neuron.runtime.tag.
	RuntimePoints bool `mapstructure:"runtime_points"`
}

func defaultConfig() scrapers.Config { return &Config{} }

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	return errors.Join(checkPath(c.NeuronMonitorPath), checkFilter(c.TagFilter))
}

func checkPath(path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return fmt.Errorf("neuron_monitor_path: %q: must be absolute", path)
	}
	return nil
}

func checkFilter(expression string) error {
	if _, err := regexp.Compile(expression); err != nil {
		return fmt.Errorf("tag_filter: %w", err)
	}
	return nil
}

// period is the tool's: it takes whole seconds.
func (c *Config) period() time.Duration {
	return max(c.CommonConfig.Timing.CollectionInterval.Truncate(time.Second), time.Second)
}
