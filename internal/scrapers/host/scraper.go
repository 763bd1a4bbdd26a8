// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package host measures the machine (memory, file systems, disk and network
// I/O) and the workloads on it.
package host

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

// NewFactory returns the factory of the family `host`.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{Name: "host", DefaultConfig: defaultConfig, New: newScraper}
}

// hostScraper maps readings to metric points. Where the readings come from is
// the source's matter.
type hostScraper struct {
	source   source
	identity *identity.Machine
	want     want
	builder  *metadata.MetricsBuilder
	// firstPath is the path whose usage the metric `disk` repeats.
	firstPath string
	// clock gives the time of the points.
	clock func() time.Time

	disks   diskCounters
	network networkCounters
	cores   map[int]coreReading
	// previous are the workloads of the last scrape, by id.
	previous map[string]*workloadReading
}

func newScraper(set scrapers.Settings, cfg scrapers.Config) (scrapers.Scraper, error) {
	src, err := newSource(cfg.(*Config), set)
	if err != nil {
		return nil, err
	}
	return newScraperFor(set, cfg.(*Config), src), nil
}

func newScraperFor(set scrapers.Settings, cfg *Config, src source) *hostScraper {
	firstPath := ""
	if len(cfg.DiskPaths) > 0 {
		firstPath = cfg.DiskPaths[0]
	}
	return &hostScraper{
		firstPath: firstPath,
		source:    src,
		identity:  set.Identity,
		want:      wantOf(&set.Metrics.Metrics),
		builder:   metadata.NewMetricsBuilder(set.Metrics, set.Receiver),
		clock:     time.Now,
		cores:     map[int]coreReading{},
	}
}

// wantOf tells what the metrics that are on need.
func wantOf(m *metadata.MetricsConfig) want {
	return want{
		cores:      m.CPUCPUPercent.Enabled,
		pss:        m.ProcMemoryPssMB.Enabled,
		groupCPU:   m.CgroupCPU.Enabled,
		throttling: m.CgroupCPUPeriods.Enabled || m.CgroupCPUThrottledPeriods.Enabled || m.CgroupCPUThrottledTime.Enabled,
		oomKills:   m.CgroupMemoryOomKills.Enabled,
		pressure:   m.CgroupPressure.Enabled,
	}
}

// Start implements scrapers.Scraper.
func (*hostScraper) Start(context.Context, component.Host) error { return nil }

// Shutdown implements scrapers.Scraper.
func (s *hostScraper) Shutdown(context.Context) error {
	s.source.close()
	return nil
}

// Prime takes the baseline of the counters.
func (s *hostScraper) Prime(ctx context.Context) {
	s.count(s.source.counters(ctx))
}

// Scrape implements scrapers.Scraper.
func (s *hostScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	r := s.source.read(ctx, s.want)
	s.count(r)
	resource := s.identity.Host(ctx)

	// Nothing below can fail: what is recorded is emitted.
	now := timestamp(s.clock())
	s.builder.Reset(metadata.WithStartTime(s.disks.start)) // not that of the last workload
	s.recordMemory(now, r.memory)
	s.recordFilesystems(now, r.filesystems)
	s.recordDisks(now, r.disks)
	s.recordNetwork(now, r.network)
	s.recordCores(now, r.cores)
	s.builder.EmitForResource(metadata.WithResource(resource))
	s.recordWorkloads(now, r)
	return s.builder.Emit(), errors.Join(r.errs...)
}

// count brings the counters up to date.
func (s *hostScraper) count(r *reading) {
	if r.disks != nil {
		s.disks.update(r.disks)
	}
	if r.network != nil {
		s.network.update(r.network)
	}
}
