// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/smi"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

// How long the tools may run by default: amd-smi takes more than 15 s on nodes with
// 16 dies.
const (
	amdSMITimeout  = 30 * time.Second
	rocmSMITimeout = 10 * time.Second
)

// tool reads GPUs through a program. One that takes longer than a scrape goes on,
// and its answer comes with a later one: no second is started meanwhile.
type tool struct {
	reader *smi.Tool
	runner *toolrun.Runner[[]card.Reading]
	logger *zap.Logger
	clock  func() time.Time
	root   folder
	meter  *toolrun.Meter
	// selected are the GPUs that count.
	selected selection
	// chips are the identities of chips by their addresses.
	chips map[string]string

	// last is the trouble of the last run.
	last error
	// slow and capless say that so much was said.
	slow, capless bool
	// outdated says that what has come is not of now: another source was used.
	outdated bool
}

type answer = toolrun.Answer[[]card.Reading]

func newTool(reader *smi.Tool, timeout time.Duration, set scrapers.Settings, cfg *Config, meter *toolrun.Meter, root folder) *tool {
	if cfg.ToolTimeout > 0 {
		timeout = cfg.ToolTimeout
	}
	return &tool{
		reader: reader, logger: set.Receiver.Logger, clock: time.Now, root: root, meter: meter, chips: map[string]string{},
		runner: toolrun.NewRunner[[]card.Reading](timeout, cfg.CommonConfig.Timing.CollectionInterval),
	}
}

// read implements source.
func (t *tool) read(ctx context.Context, w want) *reading {
	if t.outdated {
		t.outdated = false
		if t.runner.Drop() {
			t.last = nil
		}
	}
	a, arrived := t.runner.Take(ctx, func(ctx context.Context) ([]card.Reading, error) {
		cards, cost, err := t.reader.Read(ctx, w.extras())
		t.meter.Add(ctx, t.reader.Name(), cost)
		return cards, err
	})
	if !arrived {
		return t.late(ctx)
	}
	return t.readingOf(&a)
}

// forget says that another source is used from now on.
func (t *tool) forget() { t.outdated = true }

func (t *tool) readingOf(a *answer) *reading {
	t.last = a.Err
	r := &reading{at: a.At, complete: a.Err == nil}
	if a.Err != nil {
		r.errs = []error{t.trouble()}
		return r
	}
	if err := t.reader.StaticError(); (err != nil) != t.capless {
		t.capless = err != nil
		if t.capless {
			t.logger.Warn("The power limits are not known", zap.String("tool", t.reader.Name()), zap.Error(err))
		}
	}
	for i := range a.Value {
		c := cardReading{Reading: a.Value[i]}
		c.UniqueID = t.identity(&c)
		r.cards = append(r.cards, c)
	}
	namePartitions(r.cards)
	r.cards = slices.DeleteFunc(r.cards, func(c cardReading) bool { return !t.selected.has(c.Index, c.PCI, c.UniqueID) })
	if len(a.Value) > 0 {
		r.gpus = identity.GPUs{Count: len(a.Value), Type: a.Value[0].Model, DriverVersion: t.root.driverVersion()}
	}
	return r
}

// namePartitions tells the partitions of a chip apart as sysfs does: the tools give
// all of them the chip's identity.
func namePartitions(cards []cardReading) {
	seen := map[string]int{}
	for i := range cards {
		c := &cards[i]
		chip, id := c.key(), c.uuid()
		if n := seen[chip]; n > 0 && id != "" {
			c.parent, c.UniqueID = id, id+"/"+strconv.Itoa(n)
		}
		seen[chip]++
	}
}

// late is the reading of a scrape that ended before the tool did. That is no
// trouble of its own; what the last run had lasts until this one is over.
func (t *tool) late(ctx context.Context) *reading {
	if !t.slow && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.slow = true
		t.logger.Warn("A tool takes longer than a scrape may; what it tells comes with a later one",
			zap.String("tool", t.reader.Name()), zap.Duration("tool_timeout", t.runner.Timeout),
			zap.String("cure", "raise collection_interval and timeout, or use source: sysfs"))
	}
	r := &reading{at: t.clock(), pending: true}
	if t.last != nil {
		r.errs = []error{t.trouble()}
	}
	return r
}

// identity is what sysfs calls the chip, where the tool tells the address only: a
// GPU is the same whatever the source.
func (t *tool) identity(c *cardReading) string {
	if c.UniqueID != "" || c.PCI == "" {
		return c.UniqueID
	}
	id, known := t.chips[c.PCI]
	if !known {
		id = t.root.chip(c.PCI)
		t.chips[c.PCI] = id
	}
	return id
}

func (t *tool) trouble() error { return &scrapers.SourceError{Source: t.reader.Name(), Err: t.last} }

// close implements source: it kills the run in progress.
func (t *tool) close(ctx context.Context) error { return t.runner.Close(ctx) }
