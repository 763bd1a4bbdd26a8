// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvidia measures NVIDIA GPUs through NVML.
package nvidia

import (
	"context"
	"errors"
	"slices"
	"time"

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

const familyName = "nvidia"

// NewFactory returns the factory of the family `nvidia`.
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
	mig      bool
	builder  *metadata.MetricsBuilder
	counters absolute.Counters
	// onMachine and onWorkload record the figures that both have.
	onMachine, onWorkload gpus.Recorders
	// gpuProfile and instanceProfile are the metrics that GPM gives.
	gpuProfile, instanceProfile []profileMetric
	// owners tells whose processes are on the GPUs; nil when nobody is asked for.
	owners owners
	clock  func() time.Time
	// model is that of the first GPU that was ever there.
	model string
	// generation is that of the last reading.
	generation int
	// attributes are those of the devices of the last readings, in their order.
	attributes []*attributes
	// start is the start time that the builder has, once it was set.
	start time.Time
	// measured is told the UUIDs of the GPUs that are measured here: uuids.
	measured *gpus.Measured
	uuids    []string
}

func newScraper(set scrapers.Settings, section scrapers.Config) (scrapers.Scraper, error) {
	cfg := section.(*Config)
	src, err := newSource(cfg, set)
	if err != nil {
		return nil, err
	}
	return newScraperFor(set, cfg, src), nil
}

func newScraperFor(set scrapers.Settings, cfg *Config, src source) *gpuScraper {
	owners := newOwners(set, cfg)
	builder := metadata.NewMetricsBuilder(set.Metrics, set.Receiver)
	set.GPUs.Expect(familyName)
	return &gpuScraper{
		source:          src,
		identity:        set.Identity,
		want:            wantOf(&set.Metrics.Metrics, cfg, owners != nil),
		mig:             cfg.MIG,
		builder:         builder,
		onMachine:       gpus.OnMachine(builder),
		onWorkload:      gpus.OnWorkload(builder),
		gpuProfile:      gpuProfile(builder),
		instanceProfile: instanceProfile(builder),
		owners:          owners,
		clock:           time.Now,
		measured:        set.GPUs,
	}
}

// Start implements scrapers.Scraper. The driver is opened by the first scrape.
func (*gpuScraper) Start(context.Context, component.Host) error { return nil }

// Shutdown implements scrapers.Scraper.
func (s *gpuScraper) Shutdown(ctx context.Context) error { return s.source.close(ctx) }

// Scrape implements scrapers.Scraper.
func (s *gpuScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	r := s.source.read(ctx, s.want)
	if r.generation != s.generation {
		// A driver that was loaded anew counts anew.
		s.counters.Restart()
		s.generation = r.generation
	}
	r.sort()
	s.describe(r)
	s.tell(r)
	now := pcommon.NewTimestampFromTime(s.clock())
	s.remember(r)
	for i := range r.devices {
		s.recordDevice(now, &r.devices[i])
	}
	if r.complete {
		s.counters.Keep(r.has)
	}
	s.builder.EmitForResource(metadata.WithResource(s.identity.Host(ctx)))
	if s.owners != nil {
		users, err := s.owners.of(ctx, r)
		if err != nil {
			r.errs = append(r.errs, &scrapers.SourceError{Source: "attribution of processes", Err: err})
		}
		for _, u := range users {
			s.recordUser(now, &u)
			s.builder.EmitForResource(metadata.WithResource(s.identity.Workload(u.who)))
		}
	}
	return s.builder.Emit(), errors.Join(r.errs...)
}

// describe tells the machine what GPUs it has.
func (s *gpuScraper) describe(r *reading) {
	if r.gpus.Count == 0 {
		return
	}
	if len(r.devices) > 0 && r.devices[0].name != "" && (s.model == "" || r.devices[0].index == 0) {
		s.model = r.devices[0].name
	}
	r.gpus.Type = s.model
	s.identity.SetGPUs(familyName, r.gpus)
}

// tell says which GPUs are measured here. One that could not be read this time
// still is: others must not step in for a scrape.
func (s *gpuScraper) tell(r *reading) {
	var uuids []string
	if !r.complete || len(r.errs) > 0 {
		uuids = slices.Clone(s.uuids)
	}
	for i := range r.devices {
		if uuid := r.devices[i].uuid; !slices.Contains(uuids, uuid) {
			uuids = append(uuids, uuid)
		}
	}
	s.uuids = uuids
	s.measured.Set(familyName, uuids)
}

// user is a workload and the GPUs that it uses.
type user struct {
	who  *identity.Workload
	gpus []usedGPU
}

// usedGPU is a GPU that a workload uses, with the memory that its own processes
// have there.
type usedGPU struct {
	device *deviceReading
	memory optional.Of[uint64]
}

// owners finds the workloads that use the GPUs of a reading.
type owners interface {
	of(ctx context.Context, r *reading) ([]user, error)
}

// wantOf tells what the metrics that are on need.
func wantOf(m *metadata.MetricsConfig, cfg *Config, withOwners bool) want {
	w := want{
		fan:            m.GpuFanSpeed.Enabled,
		pcieLink:       m.GpuPcieLinkGen.Enabled || m.GpuPcieLinkWidth.Enabled || m.GpuMaxPcieLinkGen.Enabled || m.GpuMaxPcieLinkWidth.Enabled,
		pcieSpeed:      m.GpuPcieLinkSpeed.Enabled,
		energy:         m.GpuEnergy.Enabled,
		replays:        m.GpuPcieReplays.Enabled,
		remapped:       m.GpuRemappedRows.Enabled || m.GpuRowRemapPending.Enabled || m.GpuRowRemapFailed.Enabled,
		retired:        m.GpuRetiredPages.Enabled,
		retiredPending: m.GpuRetiredPagesPending.Enabled,
		reasons:        m.GpuClockEventActive.Enabled,
		xids:           m.GpuXidErrors.Enabled,
		processes:      withOwners,
	}
	w.mig = cfg.MIG && (m.GpuMigMemoryAllocated.Enabled || m.GpuMigMemoryAllocatedBytes.Enabled || m.GpuMigMemoryTotal.Enabled)
	if cfg.Profiling == profilingAuto {
		w.profiling = m.GpuSmActive.Enabled || m.GpuSmOccupancy.Enabled || m.GpuDramActive.Enabled ||
			m.GpuPipeTensorActive.Enabled || m.GpuPipeTensorHmmaActive.Enabled || m.GpuPipeFp64Active.Enabled ||
			m.GpuPipeFp32Active.Enabled || m.GpuPipeFp16Active.Enabled || m.GpuPcieTxBytes.Enabled ||
			m.GpuPcieRxBytes.Enabled || m.GpuNvlinkTxBytes.Enabled || m.GpuNvlinkRxBytes.Enabled
		w.migProfiling = cfg.MIG && (m.GpuMigSmActive.Enabled || m.GpuMigSmOccupancy.Enabled || m.GpuMigDramActive.Enabled ||
			m.GpuMigPipeTensorActive.Enabled || m.GpuMigPipeTensorHmmaActive.Enabled || m.GpuMigPipeFp64Active.Enabled ||
			m.GpuMigPipeFp32Active.Enabled || m.GpuMigPipeFp16Active.Enabled)
	}
	w.mig = w.mig || w.migProfiling
	return w
}
