// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/smi"
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
	reader  *smi.Tool
	timeout time.Duration
	logger  *zap.Logger
	clock   func() time.Time
	root    folder
	cost    costs
	// interval is how old an answer may be.
	interval time.Duration
	// selected are the GPUs that count.
	selected selection
	// chips are the identities of chips by their addresses.
	chips map[string]string

	// life ends the run in progress.
	life context.Context
	end  context.CancelFunc
	// running gives the answer of the run in progress; nil when there is none.
	running chan answer
	// last is the trouble of the last run.
	last error
	// slow and capless say that so much was said.
	slow, capless bool
	// outdated says that what has come is not of now: another source was used.
	outdated bool
}

// answer is what a run gave.
type answer struct {
	at    time.Time
	cards []card.Reading
	cost  smi.Cost
	err   error
}

func newTool(reader *smi.Tool, timeout time.Duration, set scrapers.Settings, cfg *Config, cost costs, root folder) *tool {
	if cfg.ToolTimeout > 0 {
		timeout = cfg.ToolTimeout
	}
	life, end := context.WithCancel(context.Background())
	return &tool{
		reader: reader, timeout: timeout, logger: set.Receiver.Logger, clock: time.Now,
		root: root, cost: cost, life: life, end: end,
		interval: cfg.CommonConfig.Timing.CollectionInterval, chips: map[string]string{},
	}
}

// read implements source.
func (t *tool) read(ctx context.Context, w want) *reading {
	if t.outdated {
		t.discard()
	}
	isOlder := t.running != nil
	if !isOlder {
		t.start(w.extras()) //nolint:contextcheck // it may outlive the scrape
	}
	done := ctx.Done()
	if len(t.running) > 0 { // an answer that is there counts, be the time over
		done = nil
	}
	select {
	case a := <-t.running:
		t.running = nil
		if isOlder && t.interval > 0 && t.clock().Sub(a.at) > t.interval { // nobody asked meanwhile
			t.cost.add(ctx, t.reader.Name(), a.cost)
			return t.read(ctx, w)
		}
		return t.readingOf(&a)
	case <-done:
		return t.late(ctx)
	}
}

// forget says that another source is used from now on.
func (t *tool) forget() { t.outdated = true }

// discard drops an answer that came while another source was used.
func (t *tool) discard() {
	t.outdated = false
	select {
	case a := <-t.running:
		t.running, t.last = nil, nil
		t.cost.add(t.life, t.reader.Name(), a.cost)
	default:
	}
}

// start begins a run.
func (t *tool) start(extended bool) {
	running := make(chan answer, 1)
	t.running = running
	go func() {
		ctx, cancel := context.WithTimeout(t.life, t.timeout)
		defer cancel()
		cards, cost, err := t.reader.Read(ctx, extended)
		running <- answer{t.clock(), cards, cost, err}
	}()
}

func (t *tool) readingOf(a *answer) *reading {
	t.cost.add(t.life, t.reader.Name(), a.cost)
	t.last = a.err
	r := &reading{at: a.at, complete: a.err == nil}
	if a.err != nil {
		r.errs = []error{t.trouble()}
		return r
	}
	if err := t.reader.StaticError(); (err != nil) != t.capless {
		t.capless = err != nil
		if t.capless {
			t.logger.Warn("The power limits are not known", zap.String("tool", t.reader.Name()), zap.Error(err))
		}
	}
	for i := range a.cards {
		c := cardReading{Reading: a.cards[i]}
		c.UniqueID = t.identity(&c)
		r.cards = append(r.cards, c)
	}
	namePartitions(r.cards)
	r.cards = slices.DeleteFunc(r.cards, func(c cardReading) bool { return !t.selected.has(c.Index, c.PCI, c.UniqueID) })
	if len(a.cards) > 0 {
		r.gpus = identity.GPUs{Count: len(a.cards), Type: a.cards[0].Model, DriverVersion: t.root.driverVersion()}
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
			zap.String("tool", t.reader.Name()), zap.Duration("tool_timeout", t.timeout),
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
func (t *tool) close(ctx context.Context) error {
	t.end()
	if t.running == nil {
		return nil
	}
	select {
	case <-t.running:
		t.running = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// costs are the family's own metrics of what the tools take.
type costs struct {
	telemetry *metadata.TelemetryBuilder
	receiver  string
}

func newCosts(set scrapers.Settings) (costs, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.Receiver.TelemetrySettings)
	return costs{telemetry, set.Receiver.ID.String()}, err
}

func (c costs) add(ctx context.Context, name string, cost smi.Cost) {
	of := metric.WithAttributes(
		attribute.String("receiver", c.receiver), attribute.String("family", familyName), attribute.String("tool", name))
	c.telemetry.WandbsysFamilyToolRuns.Add(ctx, int64(cost.Runs), of)
	c.telemetry.WandbsysFamilyToolTime.Add(ctx, cost.Wall.Seconds(), of)
	c.telemetry.WandbsysFamilyToolCPUTime.Add(ctx, cost.CPU.Seconds(), of)
}
