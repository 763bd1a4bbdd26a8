// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu/gc"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	compiledIn    = true
	notCompiledIn = ""
)

// newSource returns the configured source, and who is attached to its devices.
func newSource(cfg *Config, set scrapers.Settings) (source, owners, error) {
	meter, err := toolrun.NewMeter(set.Receiver, familyName)
	if err != nil {
		return nil, nil, err
	}
	c := &choice{
		tools: toolsOf(cfg), logger: set.Receiver.Logger, clock: time.Now,
		interval: set.DetectionInterval, chosen: -1,
	}
	for _, t := range c.tools {
		t.dirs = func() []string { return searchDirs(cfg.ToolDir, os.Getenv, optDir) }
		t.environ = func() []string { return environment(os.Getenv, os.Environ(), cfg.Env) }
		t.timeout, t.meter = cfg.ToolTimeout, meter
	}
	s := &toolSource{
		choice: c, logger: set.Receiver.Logger, timeout: cfg.ToolTimeout,
		// Each program has its own time.
		runner: toolrun.NewRunner[[]gc.Device](0, cfg.CommonConfig.Timing.CollectionInterval),
	}
	return s, newOwners(cfg, set), nil
}

// toolsOf are those that the configuration wants, the best first.
func toolsOf(cfg *Config) []*tool {
	if len(cfg.Command) > 0 {
		return []*tool{newCommand(cfg.Command)}
	}
	all := []*tool{newInventory(), newMonitor(), newInfo()}
	for _, t := range all {
		if t.name == cfg.Source {
			return []*tool{t}
		}
	}
	return all
}

// toolSource runs the tools apart from the scrapes.
type toolSource struct {
	choice  *choice
	runner  *toolrun.Runner[[]gc.Device]
	logger  *zap.Logger
	timeout time.Duration
	// last is what was wrong with the last run.
	last []error
	// slow says that it was said that a tool is slow.
	slow bool
}

// read implements source.
func (s *toolSource) read(ctx context.Context) *reading {
	a, arrived := s.runner.Take(ctx, s.choice.read)
	if !arrived {
		return s.late(ctx)
	}
	s.last = errorsOf(a.Err)
	return &reading{at: a.At, devices: a.Value, errs: s.last}
}

// errorsOf takes apart what errors.Join made, and knows the source of a panic.
func errorsOf(err error) []error {
	if err == nil {
		return nil
	}
	if all, ok := err.(joined); ok {
		return all.Unwrap()
	}
	return []error{&scrapers.SourceError{Source: "tools", Err: err}}
}

type joined interface{ Unwrap() []error }

// late is the reading of a scrape that ended before the tools did. That is no trouble
// of its own; what the last run had lasts until this one is over. That there is no
// device does not: the answer would be waited for until the next detection.
func (s *toolSource) late(ctx context.Context) *reading {
	if !s.slow && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.slow = true
		s.logger.Warn("A tool takes longer than a scrape may; what it tells comes with a later one",
			zap.Duration("tool_timeout", s.timeout), zap.String("cure", "raise collection_interval and timeout"))
	}
	r := &reading{at: s.runner.Now(), pending: true}
	if _, absent := errors.AsType[*scrapers.AbsentError](errors.Join(s.last...)); !absent {
		r.errs = s.last
	}
	return r
}

// close implements source: it kills what runs.
func (s *toolSource) close(ctx context.Context) error { return s.runner.Close(ctx) }

// choice takes the first of some tools that lists a device, for all figures: those of
// two are never mixed. It is used by one run at a time.
type choice struct {
	tools    []*tool
	logger   *zap.Logger
	clock    func() time.Time
	interval time.Duration

	// chosen is the tool in use, below 0 for none; since is when it was chosen.
	chosen int
	since  time.Time
	// told is the one that was logged.
	told sourceName
	// troubles are those of better tools, for as long as another one serves.
	troubles []error
	// worked says that there were devices once.
	worked bool
}

// read returns the devices. Its error, where there is one, was made by errors.Join.
func (c *choice) read(ctx context.Context) ([]gc.Device, error) {
	// A better one is tried again now and then.
	if c.chosen == 0 || (c.chosen > 0 && c.clock().Sub(c.since) < c.interval) {
		t := c.tools[c.chosen]
		got, err := t.read(ctx)
		switch {
		case len(got.devices) > 0:
			return got.devices, errors.Join(append(got.troubles(t), c.troubles...)...)
		case isFault(err):
			return nil, errors.Join(append([]error{t.fault(err)}, c.troubles...)...)
		}
	}
	return c.choose(ctx)
}

// choose asks one tool after the other.
func (c *choice) choose(ctx context.Context) ([]gc.Device, error) {
	var a answers
	for i, t := range c.tools {
		got, err := t.read(ctx)
		if len(got.devices) > 0 {
			c.take(i, a.said)
			c.troubles = a.faults
			return got.devices, errors.Join(append(got.troubles(t), a.faults...)...)
		}
		a.add(t, err)
		if ctx.Err() != nil { // the family ends
			break
		}
	}
	c.chosen, c.troubles = -1, nil
	return nil, errors.Join(a.errors(c.worked)...)
}

// take uses a tool from now on; those before it said why they are not it.
func (c *choice) take(i int, said []string) {
	c.chosen, c.since, c.worked = i, c.clock(), true
	if name := c.tools[i].name; name != c.told {
		c.told = name
		c.logger.Info("Source of the figures of IPUs", zap.String("source", string(name)), zap.Strings("others", said))
	}
}

// isFault tells whether a tool is broken, rather than not there or without devices.
func isFault(err error) bool {
	_, exited := errors.AsType[*exitError](err)
	return err != nil && !exited && !errors.Is(err, errNotFound)
}

func (t *tool) fault(err error) error { return &scrapers.SourceError{Source: string(t.name), Err: err} }

// troubles are those of single devices.
func (l *listing) troubles(t *tool) []error {
	var all []error
	for _, err := range l.errs {
		all = append(all, t.fault(err))
	}
	return all
}

// answers are those of tools that list no device.
type answers struct {
	// said is what each is to say.
	said []string
	// faults are of those that are broken, exits of those that ended without an answer.
	faults, exits []error
	// empty says that one listed none, where says where those that are missing were
	// looked for.
	empty bool
	where error
}

func (a *answers) add(t *tool, err error) {
	switch {
	case err == nil:
		a.empty = true
		a.said = append(a.said, string(t.name)+" lists no IPU")
		return
	case errors.Is(err, errNotFound):
		a.where = err
	case isFault(err):
		a.faults = append(a.faults, t.fault(err))
	default:
		a.exits = append(a.exits, t.fault(err))
	}
	a.said = append(a.said, err.Error())
}

// errors says why there is no device. That tools exit counts only where there was one
// before: without a partition they do.
func (a *answers) errors(worked bool) []error {
	switch {
	case len(a.faults) > 0:
		return a.faults
	case worked && len(a.exits) > 0 && !a.empty:
		return a.exits
	case a.where != nil && !a.empty && len(a.exits) == 0:
		return []error{&scrapers.AbsentError{
			Reason: "no tool of Graphcore's: " + a.where.Error(),
			Cure:   "install the Poplar SDK, or set scrapers::ipu::tool_dir to the folder bin that its tools are in",
		}}
	}
	return []error{&scrapers.AbsentError{
		Reason: "no IPU: " + strings.Join(a.said, ", "),
		Cure: "make a partition; the tools find that of the collector's own user ($HOME/.ipuof.conf.d) and those in /etc/ipuof.conf.d: " +
			"name another one in scrapers::ipu::env::IPUOF_CONFIG_PATH",
	}}
}
