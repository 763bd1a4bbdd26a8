// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package ipu measures Graphcore's IPUs through the command line tools of Graphcore's
// SDK.
package ipu

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu/gc"
)

const familyName = "ipu"

// NewFactory returns the factory of the family `ipu`.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{
		Name: familyName, DefaultConfig: defaultConfig, New: newScraper,
		TellsHolders: compiledIn, NotCompiledIn: notCompiledIn,
	}
}

// source fetches readings. It is used by one goroutine at a time.
type source interface {
	// read reads all devices once.
	read(ctx context.Context) *reading
	// close ends what the source runs.
	close(ctx context.Context) error
}

// reading is what one scrape found.
type reading struct {
	// at is when the devices were read.
	at time.Time
	// devices are all that are not made of others.
	devices []gc.Device
	// pending says that the source has not answered yet.
	pending bool
	// errs holds *scrapers.AbsentError alone, or *scrapers.SourceError.
	errs []error
}

// owners finds the workloads whose processes are attached to devices.
type owners interface {
	of(ctx context.Context, devices []gc.Device) (attached, error)
}

// attached tells who uses devices.
type attached struct {
	// counts tells whether a device of this process counts; nil when all do.
	counts func(pid int) bool
	users  []user
}

// user is a workload, and whether a process is its.
type user struct {
	who  *identity.Workload
	owns func(pid int) bool
}

// ipuScraper maps readings to metric points.
type ipuScraper struct {
	source   source
	identity *identity.Machine
	builder  *metadata.MetricsBuilder
	logger   *zap.Logger
	// owners is nil when nobody is asked for.
	owners owners
	// doubled says that it was said that devices have the same number.
	doubled bool
}

func newScraper(set scrapers.Settings, section scrapers.Config) (scrapers.Scraper, error) {
	src, owners, err := newSource(section.(*Config), set)
	if err != nil {
		return nil, err
	}
	return newScraperFor(set, src, owners), nil
}

func newScraperFor(set scrapers.Settings, src source, owners owners) *ipuScraper {
	return &ipuScraper{
		source: src, owners: owners, identity: set.Identity, logger: set.Receiver.Logger,
		builder: metadata.NewMetricsBuilder(set.Metrics, set.Receiver),
	}
}

// Start implements scrapers.Scraper. The tools are looked for by the first scrape.
func (*ipuScraper) Start(context.Context, component.Host) error { return nil }

// Shutdown implements scrapers.Scraper.
func (s *ipuScraper) Shutdown(ctx context.Context) error { return s.source.close(ctx) }

// Scrape implements scrapers.Scraper.
func (s *ipuScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	r := s.source.read(ctx)
	var who attached
	if s.owners != nil && !r.pending {
		var err error
		if who, err = s.owners.of(ctx, r.devices); err != nil && len(r.devices) > 0 {
			r.errs = append(r.errs, &scrapers.SourceError{Source: "attribution of processes", Err: err})
		}
	}
	devices := s.distinct(r.devices, who.counts)
	now := pcommon.NewTimestampFromTime(r.at)
	for i := range devices {
		s.record(now, &devices[i])
	}
	s.builder.EmitForResource(metadata.WithResource(s.identity.Host(ctx)))
	for _, u := range who.users {
		for i := range devices {
			if d := &devices[i]; u.owns(d.Pid) {
				s.recordSession(now, d)
			}
		}
		s.builder.EmitForResource(metadata.WithResource(s.identity.Workload(u.who)))
	}
	return s.builder.Emit(), errors.Join(r.errs...)
}

// distinct returns the devices that count, of those with the same number the first.
func (s *ipuScraper) distinct(all []gc.Device, counts func(pid int) bool) []gc.Device {
	seen := make(map[int]bool, len(all))
	kept := make([]gc.Device, 0, len(all))
	for i := range all {
		d := &all[i]
		if counts != nil && !counts(d.Pid) {
			continue
		}
		if seen[d.Number()] {
			s.noteDouble(d.Number())
			continue
		}
		seen[d.Number()] = true
		kept = append(kept, *d)
	}
	return kept
}

func (s *ipuScraper) noteDouble(number int) {
	if !s.doubled {
		s.logger.Warn("Several IPUs have the same number; the first one counts", zap.Int("id", number))
	}
	s.doubled = true
}

// record records all figures of a device.
func (s *ipuScraper) record(now pcommon.Timestamp, d *gc.Device) {
	b, id := s.builder, int64(d.Number())
	record := func(f optional.Of[float64], point func(pcommon.Timestamp, float64, int64)) {
		if f.Known {
			point(now, f.Value, id)
		}
	}
	record(d.BoardTemp, b.RecordIpuAverageBoardTempDataPoint)
	record(d.DieTemp, b.RecordIpuAverageDieTempDataPoint)
	record(d.Clock, b.RecordIpuClockDataPoint)
	record(d.LinkSpeed, b.RecordIpuLinkSpeedDataPoint)
	record(d.Power, b.RecordIpuPowerDataPoint)
	record(d.TotalBoardPower, b.RecordIpuTotalBoardPowerDataPoint)
	record(d.Utilisation, b.RecordIpuUtilisationDataPoint)
	s.recordSession(now, d)
}

// recordSession records what is of the attached process.
func (s *ipuScraper) recordSession(now pcommon.Timestamp, d *gc.Device) {
	if d.SessionUtilisation.Known {
		s.builder.RecordIpuSessionUtilisationDataPoint(now, d.SessionUtilisation.Value, int64(d.Number()))
	}
}
