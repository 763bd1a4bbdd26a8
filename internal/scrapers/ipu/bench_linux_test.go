// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu/gc"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

const (
	benchIPUs = 64
	// emptyProgram does nothing: the least that a tool can cost.
	emptyProgram = "/bin/true"
)

// inventory is what gc-inventory prints for 64 IPUs of a Bow Pod.
func inventory() []byte {
	var devices []string
	for i := range benchIPUs {
		var attributes strings.Builder
		for k := range 20 {
			fmt.Fprintf(&attributes, `, "another attribute %d (bytes)": "%d"`, k, 34082914304+k)
		}
		devices = append(devices, fmt.Sprintf(`{"id": "%d", "target": "Fabric", "average board temp": "24.2 C", "average die temp": "21.1 C", "clock": "1850MHz",
			"ipu power": "92.3 W", "ipu utilisation": "87.31%%", "ipu utilisation (session)": "88.02%%", "link speed": "16 GT/s", "user process id": "7001"%s}`, i, attributes.String()))
	}
	return []byte(`{"devices": [` + strings.Join(devices, ",\n") + `]}`)
}

// BenchmarkScrape64 compares the processor time of reading what a tool prints for 64
// IPUs, and of a scrape of them, with that of starting an empty program, and a whole
// scrape whose tool is cat with that of starting cat.
func BenchmarkScrape64(b *testing.B) {
	out := inventory()
	devices, err := gc.Parse(out)
	require.NoError(b, err)
	set, _ := scraperstest.NewSettings(b, b.TempDir(), true)
	given := newScraperFor(set, &fixed{reading{at: time.Unix(1_800_000_000, 0), devices: devices}}, nil)
	whole := newRig(b, options{})
	tool := whole.install("gc-inventory", `exec cat "$D/list"`)
	tool.write("list", string(out))
	points := 0
	parse := func() {
		_, err := gc.Parse(out)
		require.NoError(b, err)
	}
	scrape := func(s *ipuScraper) func() {
		return func() {
			md, err := s.Scrape(b.Context())
			require.NoError(b, err)
			points = md.DataPointCount()
		}
	}
	start := func(args ...string) func() {
		return func() { require.NoError(b, exec.CommandContext(b.Context(), args[0], args[1:]...).Run()) }
	}
	var parsing, scraping, all, cat, empty time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		parsing += cpuOf(b, 50, parse)
		scraping += cpuOf(b, 50, scrape(given))
		all += cpuOf(b, 20, scrape(whole.ipuScraper))
		cat += cpuOf(b, 20, start("/bin/sh", tool.path))
		empty += cpuOf(b, 20, start(emptyProgram))
	}
	us := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(rounds) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(out)), "bytes")
	b.ReportMetric(float64(points), "points")
	b.ReportMetric(us(parsing), "parse-us")
	b.ReportMetric(us(scraping), "scrape-us")
	b.ReportMetric(us(all), "whole-us")
	b.ReportMetric(us(cat), "tool-us")
	b.ReportMetric(us(empty), "exec-us")
	b.ReportMetric(us(parsing+scraping)/us(empty), "(parse+scrape)/exec")
	b.ReportMetric(us(all)/us(cat), "whole/tool")
}

// cpuOf is the processor time of doing something once, children included.
func cpuOf(b *testing.B, times int, do func()) time.Duration {
	b.Helper()
	used := func() time.Duration {
		var own, children unix.Rusage
		require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &own))
		require.NoError(b, unix.Getrusage(unix.RUSAGE_CHILDREN, &children))
		return time.Duration(own.Utime.Nano() + own.Stime.Nano() + children.Utime.Nano() + children.Stime.Nano())
	}
	began := used()
	for range times {
		do()
	}
	return (used() - began) / time.Duration(times)
}
