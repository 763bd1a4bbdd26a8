// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

const testInterval = 10 * time.Second

// rig is the family on the double, with a clock that the test moves.
type rig struct {
	*stub
	machine scraperstest.Machine
	logs    *observer.ObservedLogs
	scraper *gpuScraper
	source  *nvmlSource
	clock   atomic.Int64 // nanoseconds: calls that hung look at it, too
}

type rigOptions struct {
	extended bool
	// config changes the section.
	config func(*Config)
	// pid is the target; 0 for none.
	pid int
	// foreign leaves the machine's first processes out.
	foreign bool
}

// newRig starts with a number of full GPUs.
func newRig(t testing.TB, gpus int, o rigOptions) *rig {
	t.Helper()
	double := newStub(t)
	double.gpus(gpus)
	return newInstance(t, double, o)
}

// newInstance is one more receiver on the double.
func newInstance(t testing.TB, double *stub, o rigOptions) *rig {
	t.Helper()
	r := &rig{stub: double, machine: scraperstest.NewMachine(t)}
	r.advance(time.Duration(time.Unix(1_800_000_000, 0).UnixNano()))
	if !o.foreign {
		r.machine.Process(2, 0, "kthreadd")
	}
	for _, pid := range []int{1, 1000, 1001} {
		r.machine.Process(pid, min(pid-1, 1), "python")
	}
	set, logs := scraperstest.NewSettings(t, r.machine.Root, o.extended)
	r.logs = logs
	if o.pid > 0 {
		set.Workloads = workload.NewDiscovery(workload.Options{RootPath: r.machine.Root, Target: scrapers.Target{Pid: o.pid, Tree: true}})
	}
	cfg := defaultConfig().(*Config)
	cfg.LibraryPath = double.library
	cfg.CommonConfig.Timing.CollectionInterval = testInterval
	if o.config != nil {
		o.config(cfg)
	}
	require.NoError(t, cfg.Validate())
	made, err := newScraper(set, cfg)
	require.NoError(t, err)
	r.scraper = made.(*gpuScraper)
	r.source = r.scraper.source.(*nvmlSource)
	r.source.now = r.now
	r.scraper.clock = r.now
	t.Cleanup(func() {
		double.reset() // nothing hangs
		require.NoError(t, r.scraper.Shutdown(context.Background()))
		for _, call := range double.calls() {
			require.NotContains(t, call, "LEAK")
		}
	})
	return r
}

func (r *rig) now() time.Time { return time.Unix(0, r.clock.Load()) }

func (r *rig) advance(d time.Duration) { r.clock.Add(int64(d)) }

// scrape reads once, an interval after the last time, and returns the points in
// tag naming and the sources of the faults.
func (r *rig) scrape() (map[string]float64, []string) {
	r.t.Helper()
	md, err := r.scrapeWithin(r.t.Context())
	return scraperstest.TagsOf(md), sourcesOf(r.t, err)
}

func (r *rig) scrapeWithin(ctx context.Context) (pmetric.Metrics, error) {
	r.t.Helper()
	r.clearCalls()
	r.advance(testInterval)
	md, err := r.scraper.Scrape(ctx)
	scraperstest.RequireSane(r.t, md)
	return md, err
}

// sourcesOf lists the sources of faults, or "absent".
func sourcesOf(t testing.TB, err error) []string {
	t.Helper()
	if _, ok := errors.AsType[*scrapers.AbsentError](err); ok {
		return []string{"absent"}
	}
	var sources []string
	joined, _ := err.(interface{ Unwrap() []error })
	if err != nil {
		require.NotNil(t, joined)
		for _, e := range joined.Unwrap() {
			fault, ok := errors.AsType[*scrapers.SourceError](e)
			require.True(t, ok, e)
			sources = append(sources, fault.Source)
		}
	}
	return sources
}

// gpusOf lists the numbers of the GPUs that have a temperature.
func gpusOf(tags map[string]float64) []string {
	var gpus []string
	for tag := range tags {
		parts := strings.Split(tag, ".")
		if len(parts) == 3 && parts[2] == "temp" {
			gpus = append(gpus, parts[1])
		}
	}
	slices.Sort(gpus)
	return gpus
}

// said are the lines that were logged from a level on.
func (r *rig) said() []string {
	var lines []string
	for _, e := range r.logs.All() {
		if e.Level > 0 {
			lines = append(lines, e.Message)
		}
	}
	return lines
}
