// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/kubelet"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// WorkloadsConfig says whose processes are measured.
type WorkloadsConfig struct {
	// Pid is a process id, or "self" for the collector; 0 means none.
	Pid any `mapstructure:"pid"`
	// TrackProcessTree includes all descendants of the process.
	TrackProcessTree bool `mapstructure:"track_process_tree"`
	// Discover names what is looked for: wandb, slurm, kubernetes, gpu.
	Discover []string `mapstructure:"discover"`
	// Match lists processes to look for, by what they are.
	Match []MatchConfig `mapstructure:"match"`
	// MaxWorkloads is the largest number of workloads.
	MaxWorkloads int `mapstructure:"max_workloads"`
	// MaxProcesses is the largest number of processes that are looked into.
	MaxProcesses int `mapstructure:"max_processes"`
	// Kubernetes says who is asked for the names of pods and containers.
	Kubernetes kubelet.Config `mapstructure:"kubernetes"`
}

// MatchConfig is one rule: a process is a workload when all the expressions that
// are given match a part of what they are compared with.
type MatchConfig struct {
	// Name is compared with the name (comm, 15 characters).
	Name string `mapstructure:"name"`
	// Exe is compared with the path of the program.
	Exe string `mapstructure:"exe"`
	// Command is compared with the command line, its words separated by blanks.
	Command string `mapstructure:"command"`
	// User is compared with the name and with the number of the user.
	User string `mapstructure:"user"`
}

// What can be discovered.
const (
	discoverRuns       = "wandb"
	discoverSteps      = "slurm"
	discoverContainers = "kubernetes"
	discoverHolders    = "gpu"
)

func newDefaultWorkloads() WorkloadsConfig {
	return WorkloadsConfig{
		TrackProcessTree: true,
		Discover:         []string{discoverRuns, discoverSteps, discoverContainers},
		MaxWorkloads:     workload.DefaultMaxWorkloads,
		MaxProcesses:     workload.DefaultMaxProcesses,
		Kubernetes:       kubelet.NewDefaultConfig(),
	}
}

// Validate checks workloads.
func (w *WorkloadsConfig) Validate() error {
	_, err := w.target()
	errs := []error{err}
	for i, name := range w.Discover {
		switch name {
		case discoverRuns, discoverSteps, discoverContainers, discoverHolders:
		default:
			errs = append(errs, fmt.Errorf("discover::%d: unknown value %q; use wandb, slurm, kubernetes or gpu", i, name))
		}
	}
	if w.MaxWorkloads <= 0 {
		errs = append(errs, fmt.Errorf("max_workloads: %d: must be above 0", w.MaxWorkloads))
	}
	if w.MaxProcesses <= 0 {
		errs = append(errs, fmt.Errorf("max_processes: %d: must be above 0", w.MaxProcesses))
	}
	return errors.Join(errs...)
}

// Validate checks a rule.
func (m *MatchConfig) Validate() error {
	if *m == (MatchConfig{}) {
		return errors.New("a rule without any of name, exe, command and user would match every process")
	}
	_, err := m.rule()
	return err
}

// rule compiles the expressions.
func (m *MatchConfig) rule() (workload.Rule, error) {
	var errs []error
	compile := func(key, expression string) *regexp.Regexp {
		if expression == "" {
			return nil
		}
		re, err := regexp.Compile(expression)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		return re
	}
	r := workload.Rule{
		Name: compile("name", m.Name), Exe: compile("exe", m.Exe),
		Command: compile("command", m.Command), User: compile("user", m.User),
	}
	return r, errors.Join(errs...)
}

// target reads the pid as the user wrote it.
func (w *WorkloadsConfig) target() (scrapers.Target, error) {
	switch pid := w.Pid.(type) {
	case nil:
		return scrapers.Target{}, nil
	case int:
		if pid >= 0 {
			return scrapers.Target{Pid: pid, Tree: w.TrackProcessTree}, nil
		}
	case string:
		if pid == selfPid {
			return scrapers.Target{Self: true, Tree: w.TrackProcessTree}, nil
		}
		if n, err := strconv.Atoi(pid); err == nil && n >= 0 {
			return scrapers.Target{Pid: n, Tree: w.TrackProcessTree}, nil
		}
	}
	return scrapers.Target{}, fmt.Errorf("pid: %v: must be a process id, or %q for the collector itself", w.Pid, selfPid)
}

// options are for what finds the workloads.
func (w *WorkloadsConfig) options(rootPath string, logger *zap.Logger) (workload.Options, error) {
	target, err := w.target()
	errs := []error{err}
	o := workload.Options{
		RootPath: rootPath,
		Target:   target,
		Discover: workload.Discover{
			Runs:       slices.Contains(w.Discover, discoverRuns),
			Steps:      slices.Contains(w.Discover, discoverSteps),
			Containers: slices.Contains(w.Discover, discoverContainers),
			GPU:        slices.Contains(w.Discover, discoverHolders),
		},
		MaxWorkloads: w.MaxWorkloads,
		MaxProcesses: w.MaxProcesses,
		Logger:       logger,
	}
	for i := range w.Match {
		rule, err := w.Match[i].rule()
		errs = append(errs, err)
		o.Match = append(o.Match, rule)
	}
	return o, errors.Join(errs...)
}

// validateHolders refuses to look for what no family that is on tells.
func (c *Config) validateHolders() error {
	if !slices.Contains(c.Workloads.Discover, discoverHolders) {
		return nil
	}
	tells := func(f scrapers.Factory) bool {
		_, on := c.section(f)
		return on && f.TellsHolders
	}
	if slices.ContainsFunc(c.families, tells) {
		return nil
	}
	return fmt.Errorf("workloads: discover: %s: no family that is on tells which processes hold an accelerator", discoverHolders)
}

// validatePid refuses a process that is not there. One that ends later is a matter
// of the scrapes, and so is all that cannot be told here: a /proc that is missing
// or does not answer, and processes that are hidden from us, of which pid 1 is one
// where hidepid is in force.
func (c *Config) validatePid() error {
	target, err := c.Workloads.target()
	if err != nil || target.Pid == 0 {
		return nil // workloads reports what is wrong with it
	}
	proc := filepath.Join("/", c.RootPath, "proc")
	ctx, cancel := context.WithTimeout(context.Background(), statTimeout)
	defer cancel()
	missing, err := guard.Call(ctx, new(guard.Slot), func(context.Context) (bool, error) {
		if !isThere(filepath.Join(proc, "1")) {
			return false, nil
		}
		_, err := os.Stat(filepath.Join(proc, strconv.Itoa(target.Pid)))
		return errors.Is(err, fs.ErrNotExist), nil
	})
	if err != nil || !missing {
		return nil
	}
	return fmt.Errorf("workloads: pid: there is no process %d below %s; name one that runs, by its pid there, or %q for the collector itself",
		target.Pid, proc, selfPid)
}
