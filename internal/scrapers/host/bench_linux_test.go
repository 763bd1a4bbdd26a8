// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// BenchmarkHost measures on this machine, in one run, the reading of the same
// values by us and the way W&B's monitor reads them, and our whole scrape, which
// also makes pdata of them. It reports CPU time, which includes the goroutines
// that guard our reads and the garbage collection, and the ratios: ours to
// W&B's, which should be small.
func BenchmarkHost(b *testing.B) {
	for _, bench := range benchTargets() {
		b.Run(bench.name, func(b *testing.B) {
			rounds := b.N
			if bench.target.Tree {
				startWorkers(b)
				rounds = min(rounds, 100) // each is dear
			}
			wandb := measure(rounds, wandbFor(b, bench.target))
			read := measure(b.N, readingFor(b, bench.target))
			scrape := measure(b.N, scrapeFor(b, bench.target))
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
	for _, bench := range benchTargets() {
		b.Run(bench.name, func(b *testing.B) {
			if bench.target.Tree {
				startWorkers(b)
			}
			scrape := scrapeFor(b, bench.target)
			b.ReportAllocs()
			for b.Loop() {
				scrape()
			}
		})
	}
}

// BenchmarkManyWorkloads is our scrape of a recorded node with 100 pods of 20
// processes each, among others. Its files are opened anew at each scrape, as with
// so many workloads those of a real one are.
func BenchmarkManyWorkloads(b *testing.B) {
	for _, all := range []int{2_000, 10_000} {
		b.Run(fmt.Sprintf("of %d processes", all), func(b *testing.B) {
			m := benchNode(b, all)
			for _, extended := range []bool{false, true} {
				b.Run(fmt.Sprintf("extended %v", extended), func(b *testing.B) {
					s := m.scraper(extended)
					use := measure(b.N, func() {
						m.pass(15)
						md, err := s.Scrape(b.Context())
						if err != nil || md.ResourceMetrics().Len() != benchPods+1 {
							b.Fatal(md.ResourceMetrics().Len(), err)
						}
					})
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(use.cpuMicros, "cpu-us/scrape")
					b.ReportMetric(use.allocs, "allocs/scrape")
					b.ReportMetric(use.cpuMicros/benchPods, "cpu-us/workload")
					b.ReportMetric(use.allocs/benchPods, "allocs/workload")
				})
			}
		})
	}
}

const benchPods = 100

// benchNode has so many processes; the first of them are in pods.
func benchNode(b *testing.B, all int) *testMachine {
	b.Helper()
	const members = 20
	m := aNode(b)
	for i := range all {
		p := person{pid: 1000 + i, own: 100, group: "/system.slice/x.service"}
		if i < benchPods*members {
			p.group = benchPod(i / members)
		}
		if i%members != 0 {
			p.parent = 1000 + i - i%members
		}
		m.runs(p)
	}
	for i := range benchPods {
		unifiedPlace(benchPod(i)).write(m, 1)
		m.groupFiles(benchPod(i), map[string]string{"memory.max": "max\n", "cpu.max": "max 100000\n"})
		m.groupFiles(filepath.Dir(benchPod(i)), limitedFiles)
	}
	m.groupFiles("/kubepods.slice", limitedFiles)
	return m
}

var limitedFiles = map[string]string{
	"memory.max": "50000000\n", "memory.current": "10485760\n", "memory.stat": "anon 1\nfile 2\ninactive_file 3\n", "cpu.max": "150000 100000\n",
}

func benchPod(i int) string {
	return fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_%012x.slice/cri-containerd-%012x%052x.scope", i, i, 0)
}

type benchTarget struct {
	name   string
	target scrapers.Target
}

func benchTargets() []benchTarget {
	return []benchTarget{
		{"without_process", scrapers.Target{}},
		{"one_process", scrapers.Target{Pid: os.Getpid()}},
		{"process_tree", scrapers.Target{Pid: os.Getpid(), Tree: true}},
	}
}

// startWorkers makes a small tree of us: as many children as a training script
// has that loads its data with a few workers. They do nothing.
func startWorkers(b *testing.B) {
	b.Helper()
	for range 4 {
		cmd := exec.Command("cat") // ends with its input
		stdin, err := cmd.StdinPipe()
		require.NoError(b, err)
		if err := cmd.Start(); err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Wait()
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

// benchSettings make our process older than it is: what is measured started long
// ago as a rule. A young process is looked into at each scrape.
func benchSettings(target scrapers.Target) scrapers.Settings {
	set := settingsOf(target)
	set.Workloads.WithClock(time.Now, func() (uint64, error) {
		now, err := workload.BootTicks()
		return now + 3600*procread.TicksPerSecond, err
	})
	return set
}

// scrapeFor is the whole scrape, from /proc to pdata.
func scrapeFor(b *testing.B, target scrapers.Target) func() {
	b.Helper()
	metrics := metadata.NewDefaultMetricsBuilderConfig()
	workloads := benchSettings(target).Workloads
	s, err := newScraper(scrapers.Settings{
		Receiver:  receivertest.NewNopSettings(metadata.Type),
		Metrics:   metrics,
		Identity:  identity.New("bench", "", "", metrics.ResourceAttributes),
		Workloads: workloads,
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
func readingFor(b *testing.B, target scrapers.Target) func() {
	b.Helper()
	src, err := newSource(defaultConfig().(*Config), benchSettings(target))
	require.NoError(b, err)
	b.Cleanup(src.close)
	return func() {
		if r := src.read(b.Context(), want{}); len(r.errs) > 0 {
			b.Fatal(r.errs)
		}
	}
}

// wandbFor reads what core/internal/monitor of W&B's SDK reads per sample; of a
// tree in its mode for such.
func wandbFor(b *testing.B, target scrapers.Target) func() {
	b.Helper()
	var root *process.Process
	if target.IsSet() {
		var err error
		root, err = process.NewProcessWithContext(b.Context(), int32(target.Pid))
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
		if root == nil {
			return
		}
		members := []*process.Process{root}
		if target.Tree {
			members = descendants(b.Context(), members, root)
		}
		for _, p := range members {
			_, errCPU := p.CPUPercentWithContext(b.Context())
			_, errRSS := p.MemoryInfoWithContext(b.Context())
			_, errThreads := p.NumThreadsWithContext(b.Context())
			for _, err := range []error{errCPU, errRSS, errThreads} {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}

// descendants appends a process' descendants, depth first.
func descendants(ctx context.Context, found []*process.Process, p *process.Process) []*process.Process {
	children, _ := p.ChildrenWithContext(ctx) // none is an error, too
	for _, child := range children {
		found = descendants(ctx, append(found, child), child)
	}
	return found
}
