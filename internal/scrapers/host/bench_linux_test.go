// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// BenchmarkHost measures on this machine, in one run, the reading of the same
// values by us and the way W&B's monitor reads them, and our whole scrape, which
// also makes pdata of them. It reports CPU time, which includes the goroutines
// that guard our reads and the garbage collection, and the ratios: ours to
// W&B's, which should be small.
func BenchmarkHost(b *testing.B) {
	for name, pid := range map[string]int{"without_pid": 0, "with_pid": os.Getpid()} {
		b.Run(name, func(b *testing.B) {
			wandb := measure(b.N, wandbFor(b, pid))
			read := measure(b.N, readingFor(b, pid))
			scrape := measure(b.N, scrapeFor(b, pid))
			b.ReportMetric(0, "ns/op") // of the three together it says nothing
			b.ReportMetric(wandb.cpuMicros, "wandb-cpu-us")
			b.ReportMetric(wandb.allocs, "wandb-allocs")
			b.ReportMetric(read.cpuMicros/wandb.cpuMicros, "read-cpu-ratio")
			b.ReportMetric(read.allocs/wandb.allocs, "read-alloc-ratio")
			b.ReportMetric(scrape.cpuMicros/wandb.cpuMicros, "scrape-cpu-ratio")
			b.ReportMetric(scrape.allocs/wandb.allocs, "scrape-alloc-ratio")
		})
	}
}

// BenchmarkScrape is our scrape alone.
func BenchmarkScrape(b *testing.B) {
	for name, pid := range map[string]int{"without_pid": 0, "with_pid": os.Getpid()} {
		b.Run(name, func(b *testing.B) {
			scrape := scrapeFor(b, pid)
			b.ReportAllocs()
			for b.Loop() {
				scrape()
			}
		})
	}
}

type usage struct {
	cpuMicros, allocs float64
}

// measure returns what n calls cost each: CPU time of the whole process, and
// allocations.
func measure(n int, fn func()) usage {
	fn() // what is done once
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := cpuTime()
	for range n {
		fn()
	}
	spent := cpuTime() - begin
	runtime.ReadMemStats(&after)
	return usage{
		cpuMicros: float64(spent.Nanoseconds()) / 1000 / float64(n),
		allocs:    float64(after.Mallocs-before.Mallocs) / float64(n),
	}
}

func cpuTime() time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// scrapeFor is the whole scrape, from /proc to pdata.
func scrapeFor(b *testing.B, pid int) func() {
	b.Helper()
	metrics := metadata.NewDefaultMetricsBuilderConfig()
	s, err := newScraper(scrapers.Settings{
		Receiver: receivertest.NewNopSettings(metadata.Type),
		Metrics:  metrics,
		Identity: identity.New("bench", "", "", metrics.ResourceAttributes),
		Target:   scrapers.Target{Pid: pid},
	}, defaultConfig())
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return func() {
		if _, err := s.Scrape(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// readingFor is the part of it that W&B's monitor does too.
func readingFor(b *testing.B, pid int) func() {
	b.Helper()
	src, err := newSource(defaultConfig().(*Config), "", scrapers.Target{Pid: pid})
	require.NoError(b, err)
	b.Cleanup(src.close)
	return func() {
		if r := src.read(b.Context(), want{}); len(r.errs) > 0 {
			b.Fatal(r.errs)
		}
	}
}

// wandbFor reads what core/internal/monitor of W&B's SDK reads per sample.
func wandbFor(b *testing.B, pid int) func() {
	b.Helper()
	var target *process.Process
	if pid > 0 {
		var err error
		target, err = process.NewProcess(int32(pid))
		require.NoError(b, err)
	}
	return func() {
		_, errNet := net.IOCounters(false)
		_, errUsage := disk.Usage("/")
		_, errDisk := disk.IOCounters()
		_, errMem := mem.VirtualMemory()
		for _, err := range []error{errNet, errUsage, errDisk, errMem} {
			if err != nil {
				b.Fatal(err)
			}
		}
		if target == nil {
			return
		}
		_, errCPU := target.CPUPercent()
		_, errRSS := target.MemoryInfo()
		_, errThreads := target.NumThreads()
		for _, err := range []error{errCPU, errRSS, errThreads} {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
