// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/keeper"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/tools"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

// tool keeps a program running that tells of the GPU again and again.
type tool struct {
	*keeper.Keeper[*figures.Figures]

	name string
	// find returns the program.
	find func() (string, error)
	args func(ctx context.Context, path string) ([]string, error)
	slot guard.Slot
}

// firstReport is how long a scrape waits after the program was started. It gives its first
// report after a period.
const firstReport = 2 * time.Second

// period is the time between two reports, in whole milliseconds.
func (c *Config) period() time.Duration {
	return max(c.CommonConfig.Timing.CollectionInterval.Truncate(time.Millisecond), time.Second)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

const (
	macmonName       = "macmon"
	powermetricsName = "powermetrics"
	powermetricsPath = "/usr/bin/powermetrics"
)

// macmonDirs are where package managers put it.
var macmonDirs = []string{"/opt/homebrew/bin", "/usr/local/bin", "/opt/local/bin"}

func newMacmon(cfg *Config, set scrapers.Settings) *tool {
	t := &tool{name: macmonName, find: func() (string, error) { return search(cfg.ToolPath) }}
	t.args = func(ctx context.Context, path string) ([]string, error) {
		args := []string{"pipe", "-s", "0", "-i", milliseconds(cfg.period())}
		known, err := knows(ctx, path, "--soc-info")
		if known {
			args = append(args, "--soc-info")
		}
		return args, err
	}
	t.Keeper = keeper.New(keeper.Program[*figures.Figures]{
		Name: t.name, Period: cfg.period(), FirstReport: firstReport, MaxReport: tools.MaxDocument,
		Cut: cutLines, Parse: tools.Macmon, Logger: set.Receiver.Logger,
	})
	return t
}

func newPowermetrics(cfg *Config, set scrapers.Settings) *tool {
	path := cfg.ToolPath
	if path == "" {
		path = powermetricsPath
	}
	t := &tool{name: powermetricsName, find: func() (string, error) { return path, isProgram(path) }}
	t.args = func(context.Context, string) ([]string, error) {
		return []string{"--samplers", "gpu_power", "-i", milliseconds(cfg.period()), "-f", "plist"}, nil
	}
	t.Keeper = keeper.New(keeper.Program[*figures.Figures]{
		Name: t.name, Period: cfg.period(), FirstReport: firstReport, MaxReport: tools.MaxDocument,
		Cut: cutPlists, Parse: tools.Powermetrics, Logger: set.Receiver.Logger,
	})
	return t
}

// knows tells whether macmon has an option: an unknown one would end it.
func knows(ctx context.Context, path, option string) (bool, error) {
	res, err := guard.Run(ctx, guard.Command{Path: path, Args: []string{"pipe", "--help"}})
	if err != nil {
		return false, fmt.Errorf("asking macmon for its options: %w", err)
	}
	return strings.Contains(string(res.Stdout), option), nil
}

// prime implements source.
func (t *tool) prime(ctx context.Context) {
	if t.run(ctx) == nil { // the first scrape says why not
		t.Await(ctx)
	}
}

// read implements source.
func (t *tool) read(ctx context.Context) *reading {
	r := &reading{at: time.Now()}
	if err := t.run(ctx); err != nil {
		r.errs = []error{err}
		return r
	}
	t.Await(ctx)
	f, at, fresh, err := t.Latest()
	if fresh {
		r.figures, r.at = f, at
	}
	if err != nil {
		r.errs = []error{err}
	}
	return r
}

// close implements source.
func (t *tool) close(ctx context.Context) error { return t.Close(ctx) }

// found is a program with its arguments.
type found struct {
	path string
	args []string
}

// run has the program running.
func (t *tool) run(ctx context.Context) error {
	if t.Running(ctx) {
		return nil
	}
	got, err := guard.Call(ctx, &t.slot, func(ctx context.Context) (found, error) {
		path, err := t.find()
		if err != nil {
			return found{}, err
		}
		args, err := t.args(ctx, path)
		return found{path, args}, err
	})
	if err != nil {
		return keeper.Fault(t.name, "search", err)
	}
	t.Keep(func() (guard.Command, func(), error) {
		return guard.Command{Path: got.path, Args: got.args}, func() {}, nil
	})
	return nil
}

// search looks for macmon.
func search(path string) (string, error) {
	if path != "" {
		return path, isProgram(path)
	}
	for _, dir := range toolrun.Dirs(append(filepath.SplitList(os.Getenv("PATH")), macmonDirs...)...) {
		if path := filepath.Join(dir, macmonName); toolrun.IsExecutable(path) {
			return path, nil
		}
	}
	return "", errors.New("it is neither in PATH nor in /opt/homebrew/bin, /usr/local/bin or /opt/local/bin; install macmon, or set scrapers::apple::tool_path")
}

func isProgram(path string) error {
	if !toolrun.IsExecutable(path) {
		return fmt.Errorf("there is no executable %s", path)
	}
	return nil
}
