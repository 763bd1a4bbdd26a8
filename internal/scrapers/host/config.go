// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Config is the section `scrapers::host`.
type Config struct {
	// CommonConfig holds the keys that every family has.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// DiskPaths are the paths whose file systems are measured, absolute and as
	// seen on the machine (without root_path).
	DiskPaths []string `mapstructure:"disk_paths"`
	// CPUDenominator says what `cpu` is a percentage of.
	CPUDenominator cpuDenominator `mapstructure:"cpu_denominator"`
	// CgroupMemory says what counts as used memory under a limit.
	CgroupMemory cgroup.MemoryUse `mapstructure:"cgroup_memory"`
	// Network selects the interfaces that network.sent and network.recv sum up.
	Network NetworkConfig `mapstructure:"network"`
}

// NetworkConfig selects interfaces by name. Expressions match whole names.
type NetworkConfig struct {
	// Include replaces the choice of physical interfaces.
	Include []string `mapstructure:"include"`
	// Exclude takes interfaces out of either choice.
	Exclude []string `mapstructure:"exclude"`
}

// cpuDenominator says what `cpu` is a percentage of.
type cpuDenominator string

const (
	// denominatorAvailable: the CPUs that the process can use.
	denominatorAvailable cpuDenominator = "available"
	// denominatorLogical: the machine's logical CPUs.
	denominatorLogical cpuDenominator = "logical"
	// denominatorPhysical: the machine's cores, as W&B counts without a limit.
	denominatorPhysical cpuDenominator = "physical"
)

// Validate tells whether the value is known.
func (d cpuDenominator) Validate() error {
	switch d {
	case denominatorAvailable, denominatorLogical, denominatorPhysical:
		return nil
	}
	return fmt.Errorf("unknown value %q; use available, logical or physical", string(d))
}

func defaultConfig() scrapers.Config {
	return &Config{
		DiskPaths:      []string{defaultDiskPath()},
		CPUDenominator: denominatorAvailable,
		CgroupMemory:   cgroup.WorkingSet,
	}
}

func defaultDiskPath() string {
	if runtime.GOOS == "windows" {
		return `C:\`
	}
	return "/"
}

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	var errs []error
	seen := map[string]bool{}
	for _, path := range c.DiskPaths {
		switch {
		case !filepath.IsAbs(path):
			errs = append(errs, fmt.Errorf("disk_paths: %q: must be absolute", path))
		case seen[path]:
			errs = append(errs, fmt.Errorf("disk_paths: %q: is listed twice", path))
		}
		seen[path] = true
	}
	return errors.Join(errs...)
}

// Validate checks the expressions.
func (c *NetworkConfig) Validate() error {
	_, errInclude := compile("include", c.Include)
	_, errExclude := compile("exclude", c.Exclude)
	return errors.Join(errInclude, errExclude)
}

// compile makes expressions that match whole names.
func compile(key string, expressions []string) ([]*regexp.Regexp, error) {
	compiled := make([]*regexp.Regexp, 0, len(expressions))
	var errs []error
	for _, expression := range expressions {
		re, err := regexp.Compile(`\A(?:` + expression + `)\z`)
		if err != nil {
			// The user's own text is what the error should quote.
			if _, own := regexp.Compile(expression); own != nil {
				err = own
			}
			errs = append(errs, fmt.Errorf("%s: %q: %w", key, expression, err))
			continue
		}
		compiled = append(compiled, re)
	}
	return compiled, errors.Join(errs...)
}

func matchAny(expressions []*regexp.Regexp, name string) bool {
	for _, re := range expressions {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}
