// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"
)

const benchGPUs = 8

// BenchmarkScrape is a scrape of eight GPUs on the double, which costs next to
// nothing itself then: binding, mapping and attribution, not the driver.
func BenchmarkScrape(b *testing.B) {
	for _, bench := range []struct {
		name    string
		options rigOptions
	}{
		{"default", rigOptions{}},
		{"with_workload", rigOptions{pid: 1000}},
		{"extended", rigOptions{extended: true, pid: 1000}},
		{"released", rigOptions{config: func(c *Config) { c.ReleaseDriverBetweenScrapes = true }}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRig(b, benchGPUs, bench.options)
			calls := r.makeStatic(b, 0)
			b.ReportAllocs()
			points, begin := 0, cpuTime(b)
			for b.Loop() {
				r.advance(testInterval)
				md, err := r.scraper.Scrape(b.Context())
				require.NoError(b, err)
				points = md.DataPointCount()
			}
			n := float64(b.N)
			b.ReportMetric(float64(calls), "calls/scrape")
			b.ReportMetric(float64(points), "points/scrape")
			b.ReportMetric((cpuTime(b)-begin)/n/1000, "cpu-us/scrape")
			b.ReportMetric((cpuTime(b)-begin)/n/1000/benchGPUs, "cpu-us/GPU")
		})
	}
}

// makeStatic lets the double's calls take next to no time, or some, from the next
// opening on, and returns how many calls a scrape makes.
func (r *rig) makeStatic(b *testing.B, spinUS int) int {
	b.Helper()
	// Without it the machine's resource would be made at each scrape.
	r.machine.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n")
	_, _ = r.scrape()
	_, faults := r.scrape()
	require.Empty(b, faults)
	calls := len(r.calls())
	require.NoError(b, r.scraper.Shutdown(b.Context()))
	r.set("static", 1, "spin_us", spinUS)
	return calls
}

// BenchmarkAgainstByHand compares scrapes without workloads with the same calls
// and points by hand (see byHand), and both with the calls alone: the double has
// its own cost, which would make both look alike. All is processor time.
func BenchmarkAgainstByHand(b *testing.B) {
	for _, gpus := range []int{8, 16} {
		for _, extended := range []bool{false, true} {
			name := fmt.Sprintf("gpus=%d/extended=%t", gpus, extended)
			b.Run(name+"/quick", func(b *testing.B) { compareByHand(b, gpus, extended, 0, 200) })
			// NVML's calls take some 10 to 100 us, most of them in the kernel.
			b.Run(name+"/50us", func(b *testing.B) { compareByHand(b, gpus, extended, 50, 10) })
		}
	}
}

// compareByHand measures so many scrapes of each kind in turn.
func compareByHand(b *testing.B, gpus int, extended bool, spinUS, scrapes int) {
	b.Helper()
	r := newRig(b, gpus, rigOptions{extended: extended})
	r.makeStatic(b, spinUS)
	md := pmetric.NewMetrics()
	ours := func() {
		r.advance(testInterval)
		got, err := r.scraper.Scrape(b.Context())
		require.NoError(b, err)
		md = got
	}
	ours()
	ours()
	points := float64(md.DataPointCount())
	h := newByHand(b, md, extended)
	defer h.free(b)
	byHand := func() { require.Equal(b, int(points), h.scrape(r.now()).DataPointCount()) }
	_ = h.scrape(r.now())
	calls := func() { h.callsAlone() }

	var total struct{ ours, byHand, calls cost }
	for b.Loop() {
		total.ours.measure(b, scrapes, ours)
		total.byHand.measure(b, scrapes, byHand)
		total.calls.measure(b, scrapes, calls)
	}
	n := float64(b.N * scrapes)
	o, by, c := total.ours, total.byHand, total.calls
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(o.cpu/n/1000, "ours-us")
	b.ReportMetric(by.cpu/n/1000, "by-hand-us")
	b.ReportMetric(c.cpu/n/1000, "calls-us")
	b.ReportMetric(o.cpu/by.cpu, "ratio")
	if spinUS == 0 { // else it is lost in the noise of the calls
		b.ReportMetric((o.cpu-c.cpu)/(by.cpu-c.cpu), "ratio-beside-calls")
	}
	b.ReportMetric(100*(o.cpu-c.cpu)/o.cpu, "%-beside-calls")
	b.ReportMetric(100*(o.cpu-by.cpu)/o.cpu, "%-beside-by-hand")
	b.ReportMetric(o.allocations/n/points, "allocs/point")
	b.ReportMetric(by.allocations/n/points, "by-hand-allocs/point")
	b.ReportMetric(c.allocations/n/points, "calls-allocs/point")
}

// cost is what something took: nanoseconds of the processor, allocations.
type cost struct{ cpu, allocations float64 }

func (c *cost) measure(b *testing.B, times int, fn func()) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.GC() // what others left
	runtime.ReadMemStats(&before)
	begin := cpuTime(b)
	for range times {
		fn()
	}
	c.cpu += cpuTime(b) - begin
	runtime.ReadMemStats(&after)
	c.allocations += float64(after.Mallocs - before.Mallocs)
}

// cpuTime is the process' own, in nanoseconds.
func cpuTime(b *testing.B) float64 {
	b.Helper()
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}
