// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package apple measures the GPU of Apple silicon.
package apple

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/absolute"
	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
)

const familyName = "apple"

// NewFactory returns the factory of the family `apple`. Recorded captures can be read on
// every system, so that it is in every build.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{Name: familyName, DefaultConfig: defaultConfig, New: newScraper}
}

// source gives figures.
type source interface {
	// prime has a program running that takes its time, and waits for it while ctx lasts.
	prime(ctx context.Context)
	// read returns what is known now.
	read(ctx context.Context) *reading
	// close frees what the source holds.
	close(ctx context.Context) error
}

// reading is what a source knows.
type reading struct {
	// figures are of the time at; nil when there are none.
	figures *figures.Figures
	at      time.Time
	// errs holds *scrapers.AbsentError alone, or *scrapers.SourceError.
	errs []error
}

// gpuScraper maps figures to metric points.
type gpuScraper struct {
	source   source
	identity *identity.Machine
	limit    float64
	extended bool
	builder  *metadata.MetricsBuilder
	record   gpus.Recorders
	counters absolute.Counters
	start    pcommon.Timestamp
}

func newScraper(set scrapers.Settings, section scrapers.Config) (scrapers.Scraper, error) {
	cfg := section.(*Config)
	return newScraperFor(set, cfg, newSource(cfg, set)), nil
}

func newScraperFor(set scrapers.Settings, cfg *Config, src source) *gpuScraper {
	builder := metadata.NewMetricsBuilder(set.Metrics, set.Receiver)
	return &gpuScraper{
		source: src, identity: set.Identity, limit: cfg.GPUPowerLimitWatts, extended: set.Extended,
		builder: builder, record: gpus.OnMachine(builder),
	}
}

// Start implements scrapers.Scraper. The GPU is looked for by the first scrape.
func (*gpuScraper) Start(context.Context, component.Host) error { return nil }

// Prime implements scrapers.Primer.
func (s *gpuScraper) Prime(ctx context.Context) { s.source.prime(ctx) }

// Shutdown implements scrapers.Scraper.
func (s *gpuScraper) Shutdown(ctx context.Context) error { return s.source.close(ctx) }

// Scrape implements scrapers.Scraper.
func (s *gpuScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	r := s.source.read(ctx)
	if r.figures == nil {
		return pmetric.NewMetrics(), errors.Join(r.errs...)
	}
	f := *r.figures // a tool's are read again
	if s.limit > 0 {
		f.LimitWatts = s.limit
	}
	s.identity.SetGPUs(familyName, identity.GPUs{Count: 1, Type: f.Model})
	now := pcommon.NewTimestampFromTime(r.at)
	s.recordGPU(now, r.at, &f)
	s.recordMachine(now, &f)
	s.builder.EmitForResource(metadata.WithResource(s.identity.Host(ctx)))
	return s.builder.Emit(), errors.Join(r.errs...)
}
