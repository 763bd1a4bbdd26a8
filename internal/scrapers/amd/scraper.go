// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package amd measures AMD GPUs through the amdgpu driver's files, or through the
// tools that ROCm brings.
package amd

import (
	"context"
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/absolute"
	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const familyName = "amd"

// NewFactory returns the factory of the family `amd`.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{
		Name: familyName, DefaultConfig: defaultConfig, New: newScraper,
		TellsHolders: compiledIn, NotCompiledIn: notCompiledIn,
	}
}

// gpuScraper maps readings to metric points.
type gpuScraper struct {
	source   source
	identity *identity.Machine
	want     want
	builder  *metadata.MetricsBuilder
	counters absolute.Counters
	// onMachine and onWorkload record the figures that both have.
	onMachine, onWorkload gpus.Recorders
	// owners tells whose processes are on the GPUs; nil when nobody is asked for.
	owners owners
	// attributes are those of the devices of the last reading, in their order.
	attributes []*attributes
	start      pcommon.Timestamp
}

func newScraper(set scrapers.Settings, section scrapers.Config) (scrapers.Scraper, error) {
	src, owners, err := newSource(section.(*Config), set)
	if err != nil {
		return nil, err
	}
	return newScraperFor(set, src, owners), nil
}

func newScraperFor(set scrapers.Settings, src source, owners owners) *gpuScraper {
	builder := metadata.NewMetricsBuilder(set.Metrics, set.Receiver)
	return &gpuScraper{
		source:     src,
		identity:   set.Identity,
		want:       wantOf(&set.Metrics.Metrics, set.Extended, owners != nil),
		builder:    builder,
		onMachine:  gpus.OnMachine(builder),
		onWorkload: gpus.OnWorkload(builder),
		owners:     owners,
	}
}

// Start implements scrapers.Scraper. The GPUs are looked for by the first scrape.
func (*gpuScraper) Start(context.Context, component.Host) error { return nil }

// Shutdown implements scrapers.Scraper.
func (s *gpuScraper) Shutdown(ctx context.Context) error { return s.source.close(ctx) }

// Scrape implements scrapers.Scraper.
func (s *gpuScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	r := s.source.read(ctx, s.want)
	if r.gpus.Count > 0 {
		s.identity.SetGPUs(familyName, r.gpus)
	}
	now := pcommon.NewTimestampFromTime(r.at)
	s.remember(r)
	for i := range r.cards {
		s.recordDevice(now, r, &r.cards[i])
	}
	if r.complete {
		s.counters.Keep(r.has)
	}
	s.builder.EmitForResource(metadata.WithResource(s.identity.Host(ctx)))
	if s.owners != nil && len(r.cards) > 0 && ctx.Err() == nil {
		users, err := s.owners.of(ctx, r)
		if err != nil {
			r.errs = append(r.errs, &scrapers.SourceError{Source: "attribution of processes", Err: err})
		}
		for _, u := range users {
			s.recordUser(now, r, &u)
			s.builder.EmitForResource(metadata.WithResource(s.identity.Workload(u.who)))
		}
	}
	return s.builder.Emit(), errors.Join(r.errs...)
}

// user is a workload and the GPUs that it uses.
type user struct {
	who  *identity.Workload
	gpus []usedGPU
}

// usedGPU is a GPU that a workload uses, with the memory that its own processes
// have there, in bytes.
type usedGPU struct {
	card   *cardReading
	memory optional.Of[int64]
}

// owners finds the workloads that use the GPUs of a reading.
type owners interface {
	of(ctx context.Context, r *reading) ([]user, error)
}
