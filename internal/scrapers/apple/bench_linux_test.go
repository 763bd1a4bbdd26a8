// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/figures"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// largeMac has as many channels and keys as an M5 Max.
func largeMac() *capture.Capture {
	c := busyMac()
	for i := range c.Report.Samples {
		s := &c.Report.Samples[i]
		for n := range 364 - len(s.Channels) {
			s.Channels = append(s.Channels, capture.Channel{Group: "Energy Model", Name: "PCPUDTL" + string(rune('A'+n%26)), Unit: "mJ", Kind: capture.Simple, Value: int64(n)})
		}
	}
	for len(c.SMC.Keys) < 84 {
		c.SMC.Keys = append(c.SMC.Keys, c.SMC.Keys[0])
	}
	return c
}

// BenchmarkReplay compares a scrape of a replayed capture with reading the file into a
// map, which makes no figure. The figures alone are what a scrape of the hardware has to
// do beside Apple's calls.
func BenchmarkReplay(b *testing.B) {
	c := largeMac()
	file := recorded(b, c)
	for name, extended := range map[string]bool{"default": false, "extended": true} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, Config{ReplayFile: file}, extended)
			scrape := func() {
				md, err := r.scraper.Scrape(b.Context())
				require.NoError(b, err)
				require.NotZero(b, md.DataPointCount())
			}
			generic := func() {
				content, err := os.ReadFile(file)
				require.NoError(b, err)
				var all map[string]any
				require.NoError(b, json.Unmarshal(content, &all))
			}
			arithmetic := func() {
				f := (&figures.Meter{}).Read(c)
				require.True(b, f.GPU.Known)
			}
			const times = 200
			var ours, other, alone scraperstest.Cost
			for b.Loop() {
				ours, other, alone = scraperstest.CostOf(b, times, scrape), scraperstest.CostOf(b, times, generic), scraperstest.CostOf(b, times, arithmetic)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(ours.CPU.Microseconds()), "scrape-us")
			b.ReportMetric(float64(other.CPU.Microseconds()), "map-us")
			b.ReportMetric(float64(alone.CPU.Microseconds()), "figures-us")
			b.ReportMetric(float64(ours.CPU)/float64(other.CPU), "cpu-ratio")
			b.ReportMetric(ours.Allocs/other.Allocs, "alloc-ratio")
		})
	}
}
