// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"testing"

	"github.com/stretchr/testify/require"
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
			_, _ = r.scrape()
			_, faults := r.scrape()
			require.Empty(b, faults)
			calls := len(r.calls())
			require.NoError(b, r.scraper.Shutdown(b.Context()))
			r.set("static", 1) // from the next opening on
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

// cpuTime is the process' own, in nanoseconds.
func cpuTime(b *testing.B) float64 {
	b.Helper()
	var usage unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}
