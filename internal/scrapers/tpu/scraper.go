// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package tpu measures Google's TPUs: through the metric service of the training
// processes, and where that is configured through GKE's device plugin and through
// libtpu in a process of its own. Nothing here listens on a port, and above all not on
// one near 8431: a training process whose port is taken does not start.
package tpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/absolute"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/chips"
)

const familyName = "tpu"

// NewFactory returns the factory of the family `tpu`.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{
		Name: familyName, DefaultConfig: defaultConfig, New: newScraper, TellsHolders: knowsHolders,
	}
}

// tpuScraper asks the sources and maps their figures to metric points.
type tpuScraper struct {
	identity *identity.Machine
	detector detector
	// explicit says that a source was configured that needs no TPU here.
	explicit bool
	runtimes runtimes
	// plugin and reader are nil where they are not configured.
	plugin *plugin
	reader *reader
	// holders tells whose processes have TPUs; nil when nobody asks.
	holders   holders
	want      want
	numbering numbering
	// intervals is nil where statistics are those of whole jobs.
	intervals *intervals
	recorder  recorder
	clock     func() time.Time
}

// holders tells which processes have TPUs.
type holders interface {
	tell(ctx context.Context, found *chips.Found) error
}

func newScraper(set scrapers.Settings, section scrapers.Config) (scrapers.Scraper, error) {
	return newScraperWith(set, section.(*Config), os.Getenv)
}

func newScraperWith(set scrapers.Settings, cfg *Config, getenv func(string) string) (*tpuScraper, error) {
	endpoints, configured := cfg.endpoints(getenv)
	s := &tpuScraper{
		identity: set.Identity,
		detector: detector{root: set.RootPath, interval: set.DetectionInterval, clock: time.Now},
		explicit: configured || cfg.DevicePlugin != nil,
		holders:  newHolders(set, cfg),
		want:     wantOf(&set.Metrics.Metrics),
		clock:    time.Now,
	}
	s.runtimes = runtimes{names: s.want.runtimeNames(), patience: defaultPatience}
	for i := range endpoints {
		s.runtimes.endpoints = append(s.runtimes.endpoints, &endpoint{
			place: i, config: endpoints[i].ClientConfig, logger: set.Receiver.Logger, clock: time.Now,
			patience: defaultPatience, telemetry: set.Receiver.TelemetrySettings,
		})
	}
	if cfg.DevicePlugin != nil {
		p, err := newPlugin(cfg.DevicePlugin, set)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pluginKey, err)
		}
		s.plugin = p
	}
	if cfg.SDK.Enabled {
		s.reader = &reader{
			path: cfg.SDK.ReaderPath, library: cfg.SDK.LibraryPath, interval: cfg.SDK.Interval,
			timeout: readerTimeout, clock: time.Now, getenv: getenv,
		}
	}
	s.recorder = recorder{
		builder: metadata.NewMetricsBuilder(set.Metrics, set.Receiver), version: set.Receiver.BuildInfo.Version,
		form: cfg.Distributions, extended: set.Extended, starts: absolute.Counters{},
	}
	if cfg.DistributionWindow == windowInterval {
		s.intervals = &intervals{}
	}
	if len(endpoints) > 1 {
		for _, e := range s.runtimes.endpoints {
			s.recorder.endpoints = append(s.recorder.endpoints, e.name())
		}
	}
	return s, nil
}

// Start implements scrapers.Scraper. Connections are made by the first scrape.
func (s *tpuScraper) Start(_ context.Context, host component.Host) error {
	for _, e := range s.runtimes.endpoints {
		e.host = host
	}
	if s.plugin != nil {
		s.plugin.start(host)
	}
	return nil
}

// Shutdown implements scrapers.Scraper.
func (s *tpuScraper) Shutdown(ctx context.Context) error {
	s.runtimes.close(ctx)
	if s.plugin != nil {
		s.plugin.close(ctx)
	}
	return nil
}

// Scrape implements scrapers.Scraper.
func (s *tpuScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	found, err := s.detector.detect(ctx, s.explicit)
	if err != nil {
		err = &scrapers.SourceError{Source: "PCI bus", Err: err}
	}
	if found.Chips == 0 && !s.explicit {
		if err == nil {
			err = &scrapers.AbsentError{
				Reason: "no TPU on the PCI bus",
				Cure:   "where the training processes run elsewhere, name them in scrapers::tpu::endpoints",
			}
		}
		return pmetric.NewMetrics(), err
	}
	f, errs := s.read(ctx, &found)
	if s.intervals != nil {
		s.intervals.apply(f)
	}
	md := s.recorder.record(pcommon.NewTimestampFromTime(s.clock()), f, s.identity.Host(ctx))
	if s.holders != nil && found.Chips > 0 && ctx.Err() == nil {
		if err := s.holders.tell(ctx, &found); err != nil {
			errs = append(errs, &scrapers.SourceError{Source: "attribution of processes", Err: err})
		}
	}
	return md, errors.Join(append(errs, err)...)
}

// read asks all sources. What the runtimes tell counts most, what libtpu says least:
// it is asked last, and only for what nobody else told.
func (s *tpuScraper) read(ctx context.Context, found *chips.Found) (*figures, []error) {
	var fromPlugin *guard.Pending[*figures]
	if s.plugin != nil {
		fromPlugin = s.plugin.read(ctx)
	}
	told, complete, errs := s.runtimes.read(ctx)
	f := s.numbering.figuresOf(told, found, complete)
	if fromPlugin != nil {
		if others, err := fromPlugin.Wait(); err == nil {
			f.fill(others)
		} else {
			errs = append(errs, &scrapers.SourceError{Source: "TPU device plugin", Err: err})
		}
	}
	if s.reader != nil && found.Chips > 0 {
		answers, err := s.reader.read(ctx, s.want.missing(f, found.Devices()))
		if err != nil {
			errs = append(errs, &scrapers.SourceError{Source: "libtpu", Err: err})
		}
		f.fill(sdkFigures(answers, found))
	}
	return f, errs
}

// detector looks for chips now and then: they do not come and go.
type detector struct {
	root     string
	interval time.Duration
	clock    func() time.Time

	slot   guard.Slot
	found  chips.Found
	looked time.Time
}

// detect returns the chips of the machine. Where it has none, it looks again at once:
// the receiver asks seldom then, unless it has something else to ask for.
func (d *detector) detect(ctx context.Context, explicit bool) (chips.Found, error) {
	now := d.clock()
	age := now.Sub(d.looked)
	if known := d.found.Chips > 0 || explicit; known && !d.looked.IsZero() && age >= 0 && age < d.interval {
		return d.found, nil
	}
	found, err := guard.Call(ctx, &d.slot, func(context.Context) (chips.Found, error) { return chips.Find(d.root) })
	if err != nil {
		return d.found, err // what was found is still there
	}
	d.found, d.looked = found, now
	return found, nil
}
