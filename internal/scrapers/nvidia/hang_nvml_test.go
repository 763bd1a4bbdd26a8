// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// patience is a scrape's time in these tests.
const patience = 100 * time.Millisecond

// scrapeShort reads with little time, and says how long it took.
func (r *rig) scrapeShort() (map[string]float64, []string, time.Duration) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	begin := time.Now()
	md, err := r.scrapeWithin(ctx)
	return scraperstest.TagsOf(md), sourcesOf(r.t, err), time.Since(begin)
}

// A call that hangs costs the GPUs that come after it. While it hangs nothing is
// called; when it comes back all is well.
func TestHungCall(t *testing.T) {
	for _, function := range []string{
		"nvmlDeviceGetPowerUsage.1", "nvmlDeviceGetHandleByIndex_v2.1", "nvmlDeviceGetComputeRunningProcesses_v3.1", "nvmlDeviceGetFanSpeed.1",
		"nvmlDeviceGetUUID.1", "nvmlGpmSampleGet.1",
	} {
		t.Run(function, func(t *testing.T) {
			r := newRig(t, 3, rigOptions{extended: true, pid: 1000})
			md, err := r.scrapeWithin(t.Context())
			require.NoError(t, err)
			start := startOf(t, md, "gpu.correctedMemoryErrors", 2)
			r.set("hang."+function, 1)
			tags, faults, took := r.scrapeShort()
			assert.Equal(t, []string{"0"}, gpusOf(tags))
			assert.Contains(t, tags, "gpu.process.0.temp")
			assert.Equal(t, []string{"NVML"}, faults)
			assert.Less(t, took, patience+time.Second)
			for range 3 {
				tags, faults, took = r.scrapeShort()
				assert.Empty(t, tags)
				assert.Equal(t, []string{"NVML"}, faults)
				assert.Less(t, took, patience, "it does not wait again")
				assert.Equal(t, []string{""}, r.calls(), "nothing is called meanwhile")
			}
			r.unset("hang." + function)
			require.True(t, process.slot.Settle(t.Context()))
			calls := r.calls()
			assert.Equal(t, []string{""}, calls, "nor after it came back")
			md, err = r.scrapeWithin(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []string{"0", "1", "2"}, gpusOf(scraperstest.TagsOf(md)))
			assert.Equal(t, start, startOf(t, md, "gpu.correctedMemoryErrors", 2), "nothing was opened anew")
		})
	}
}

// What hangs before the first reading gives nothing, and is one fault.
func TestHungOpening(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	r.set("hang.nvmlInit_v2", 1)
	for range 3 {
		tags, faults, _ := r.scrapeShort()
		assert.Empty(t, tags)
		assert.Equal(t, []string{"NVML"}, faults)
	}
	r.unset("hang.nvmlInit_v2")
	require.True(t, process.slot.Settle(t.Context()))
	tags, faults := r.scrape()
	assert.Equal(t, []string{"0"}, gpusOf(tags))
	assert.Empty(t, faults)
}

// A slow driver gives what it gave in time, and is one fault.
func TestSlowDriver(t *testing.T) {
	r := newRig(t, 8, rigOptions{})
	r.set("sleep_ms.nvmlDeviceGetPowerUsage", 30)
	tags, faults, _ := r.scrapeShort()
	assert.Contains(t, gpusOf(tags), "0")
	assert.NotContains(t, gpusOf(tags), "7")
	assert.Contains(t, faults, "NVML")
	require.True(t, process.slot.Settle(t.Context()))
	assert.Less(t, r.count("nvmlDeviceGetPowerUsage"), 8, "no call is made after the deadline")
}

// While a call hangs a shutdown neither waits for it nor closes the library.
func TestShutdownWhileHung(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	_, _ = r.scrape()
	r.set("hang.nvmlDeviceGetName.0", 1, "hang.nvmlDeviceGetPowerUsage.0", 1)
	_, faults, _ := r.scrapeShort()
	require.Equal(t, []string{"NVML"}, faults)
	begin := time.Now()
	require.NoError(t, r.scraper.Shutdown(t.Context()))
	assert.Less(t, time.Since(begin), time.Second)
	assert.Equal(t, []string{"The NVIDIA driver does not let go; the library stays open until it does"}, r.said())
	assert.Zero(t, r.count("nvmlShutdown"))
}

// A shutdown that hangs itself ends with its context. A second instance, as after
// a reload of the configuration, calls nothing until it is over.
func TestReloadWhileShutdownHangs(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	_, _ = r.scrape()
	r.set("hang.nvmlShutdown", 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begin := time.Now()
	require.NoError(t, r.scraper.Shutdown(ctx), "an error would end the collector that reloads")
	assert.Less(t, time.Since(begin), patience+time.Second)

	second := newInstance(t, r.stub, rigOptions{})
	for range 2 {
		tags, faults, _ := second.scrapeShort()
		assert.Empty(t, tags)
		assert.Equal(t, []string{"NVML"}, faults)
		assert.Equal(t, []string{""}, second.calls())
	}
	require.NoError(t, second.scraper.Shutdown(t.Context()))
	second.unset("hang.nvmlShutdown")
	require.True(t, process.slot.Settle(t.Context()))
	tags, faults := second.scrape()
	assert.Equal(t, []string{"0"}, gpusOf(tags))
	assert.Empty(t, faults)
}

// A call that is waited for is not given up by a shutdown that comes in between.
func TestShutdownWaitsForACall(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	r.set("sleep_ms.nvmlDeviceGetPowerUsage", 50)
	var scraping sync.WaitGroup
	scraping.Go(func() { _, _ = r.scraper.Scrape(t.Context()) })
	r.waitFor("nvmlDeviceGetPowerUsage")
	require.NoError(t, r.scraper.Shutdown(t.Context()))
	scraping.Wait()
	calls := r.calls()
	assert.Equal(t, "nvmlShutdown", calls[len(calls)-1])
}

// Two receivers in one process share the library and nothing else.
func TestTwoReceivers(t *testing.T) {
	a := newRig(t, 2, rigOptions{extended: true})
	b := newInstance(t, a.stub, rigOptions{config: func(c *Config) { c.DeviceIDs = []any{1} }})
	_, _ = a.scrape()
	tags, _ := b.scrape()
	assert.Equal(t, []string{"1"}, gpusOf(tags))
	require.NoError(t, a.scraper.Shutdown(t.Context()))
	tags, faults := b.scrape()
	assert.Equal(t, []string{"1"}, gpusOf(tags))
	assert.Empty(t, faults)
	require.NoError(t, b.scraper.Shutdown(t.Context()))
	_, faults = a.scrape()
	assert.Empty(t, faults)
}

// Receivers scrape at the same time, are shut down and begin again.
func TestConcurrentReceivers(t *testing.T) {
	first := newRig(t, 4, rigOptions{extended: true, pid: 1000})
	second := newInstance(t, first.stub, rigOptions{extended: true, pid: 1001, config: func(c *Config) { c.ReleaseDriverBetweenScrapes = true }})
	var all sync.WaitGroup
	results := make([][]pmetric.Metrics, 2)
	for i, r := range []*rig{first, second} {
		all.Go(func() {
			for range 20 {
				md, err := r.scraper.Scrape(t.Context())
				if err != nil {
					t.Error(err)
				}
				results[i] = append(results[i], md)
			}
			if err := r.scraper.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, md := range slices.Concat(results[0], results[1]) {
		scraperstest.RequireSane(t, md)
		assert.Equal(t, []string{"0", "1", "2", "3"}, gpusOf(scraperstest.TagsOf(md)))
	}
}
