// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	benchGPUs = 8
	// emptyProgram does nothing: the least that a tool can cost.
	emptyProgram = "/bin/true"
	// filesPerScrape is how many files of a GPU one scrape may read.
	filesPerScrape = 20
)

// eightGPUs is a machine with eight MI300X at work.
func eightGPUs(t testing.TB) tree {
	t.Helper()
	tr := newTree(t)
	// Without it the machine's resource would be made at each scrape.
	tr.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n")
	for i := range benchGPUs {
		tr.add(gpu{
			pci: benchAddress(i), card: 1 + i, render: 128 + i, node: 1 + i, id: 20000 + i, bank: 192 * gib, target: 90402,
			files: mi300x().with(fileSet{
				"unique_id":                fmt.Sprintf("00112233445566%02x", i),
				"hwmon/hwmon6/freq2_input": "1300000000", "hwmon/hwmon6/freq2_label": "mclk", "ras/umc_err_count": "ue: 0\nce: 0",
			}),
		})
	}
	return tr
}

func benchAddress(i int) string { return fmt.Sprintf("0000:%02x:00.0", 16*i+5) }

// loopback is a device of sysfs that any machine has.
const loopback = "/sys/class/net/lo/"

// inKernel lets the files that a scrape reads be links to files of sysfs, of which
// a few have numbers that a GPU may have: 65536, 1. The blobs stay.
func (tr tree) inKernel() {
	tr.T.Helper()
	if _, err := os.Stat(loopback + "mtu"); err != nil {
		tr.T.Skip("no sysfs: ", err)
	}
	for i := range benchGPUs {
		folder := "sys/devices/pci0000:00/" + benchAddress(i) + "/"
		for _, name := range newPlainReader(tr.T, tr.Root, true).files {
			source := "mtu"
			switch name {
			case "gpu_metrics":
				continue
			case "power/runtime_status":
				source = "operstate"
			case "gpu_busy_percent", "mem_busy_percent", "mem_info_vram_used":
				source = "carrier"
			}
			tr.Remove(folder + name)
			tr.Link(folder+name, loopback+source)
		}
	}
}

// BenchmarkSysfs8 compares the processor time of a scrape of eight MI300X with
// that of starting an empty program once and eight times, and with a plain reader
// of the same files. Those of sysfs stay open; those of a disk are opened anew each
// time.
func BenchmarkSysfs8(b *testing.B) {
	for _, files := range []string{"sysfs", "disk"} {
		for _, set := range []string{"default", "extended"} {
			b.Run(files+"/"+set, func(b *testing.B) {
				tr := eightGPUs(b)
				if files == "sysfs" {
					tr.inKernel()
				}
				compareSysfs(b, tr, set == "extended")
			})
		}
	}
}

func compareSysfs(b *testing.B, tr tree, extended bool) {
	b.Helper()
	s, _ := tr.scraper(extended)
	points := 0
	ours := func() {
		md, err := s.Scrape(b.Context())
		require.NoError(b, err)
		points = md.DataPointCount()
	}
	ours()
	plain := newPlainReader(b, tr.Root, extended)
	start := func(n int, run func(testing.TB)) func() {
		return func() {
			for range n {
				run(b)
			}
		}
	}
	var total struct{ ours, plain, exec, execs, fork, forks cost }
	for b.Loop() {
		total.ours.measure(b, 100, ours)
		total.plain.measure(b, 100, func() { require.NotZero(b, plain.scrape(b)) })
		total.exec.measure(b, 8, start(1, execEmpty))
		total.execs.measure(b, 2, start(benchGPUs, execEmpty))
		total.fork.measure(b, 8, start(1, forkEmpty))
		total.forks.measure(b, 2, start(benchGPUs, forkEmpty))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(points), "points")
	b.ReportMetric(total.ours.us(), "ours-us")
	b.ReportMetric(total.ours.us()/benchGPUs, "ours-us/GPU")
	b.ReportMetric(total.ours.allocations/total.ours.times, "ours-allocs")
	b.ReportMetric(total.plain.us(), "plain-us")
	b.ReportMetric(total.plain.allocations/total.plain.times, "plain-allocs")
	b.ReportMetric(total.ours.us()/total.plain.us(), "ours/plain")
	b.ReportMetric(total.exec.us(), "exec-us")
	b.ReportMetric(total.execs.us(), "8-execs-us")
	b.ReportMetric(total.fork.us(), "fork-us")
	b.ReportMetric(total.forks.us(), "8-forks-us")
	b.ReportMetric(total.ours.us()/benchGPUs/total.exec.us(), "GPU/exec")
	b.ReportMetric(total.ours.us()/benchGPUs/total.fork.us(), "GPU/fork")
}

// execEmpty starts the empty program as most do.
func execEmpty(t testing.TB) {
	t.Helper()
	require.NoError(t, exec.CommandContext(t.Context(), emptyProgram).Run())
}

// forkEmpty starts it with no more than the system calls.
func forkEmpty(t testing.TB) {
	t.Helper()
	pid, err := syscall.ForkExec(emptyProgram, []string{emptyProgram}, nil)
	require.NoError(t, err)
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, 0, nil)
	require.NoError(t, err)
	require.Zero(t, status.ExitStatus())
}

// cost is what something took, children included: nanoseconds of processors,
// allocations.
type cost struct{ cpu, allocations, times float64 }

func (c *cost) us() float64 { return c.cpu / c.times / 1000 }

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
	c.times += float64(times)
}

func cpuTime(b *testing.B) float64 {
	b.Helper()
	var own, children unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &own))
	require.NoError(b, unix.Getrusage(unix.RUSAGE_CHILDREN, &children))
	return float64(own.Utime.Nano() + own.Stime.Nano() + children.Utime.Nano() + children.Stime.Nano())
}

// plainReader reads the same files as a scrape in the straightforward way: each by
// os.ReadFile, all anew at each scrape. It makes no points.
type plainReader struct{ folders, files []string }

func newPlainReader(t testing.TB, root string, extended bool) *plainReader {
	t.Helper()
	r := &plainReader{files: []string{
		"power/runtime_status", "gpu_busy_percent", "mem_info_vram_used",
		"hwmon/hwmon6/temp3_input", "hwmon/hwmon6/power1_input", "hwmon/hwmon6/power1_cap",
	}}
	if extended {
		r.files = append(r.files, "mem_busy_percent", "hwmon/hwmon6/temp2_input", "hwmon/hwmon6/freq1_input", "hwmon/hwmon6/freq2_input",
			"ras/umc_err_count", "gpu_metrics", "current_link_speed", "current_link_width", "pcie_replay_count")
	}
	for i := range benchGPUs {
		r.folders = append(r.folders, filepath.Join(root, "sys/devices/pci0000:00", benchAddress(i)))
	}
	return r
}

// scrape returns the sum of what is a number.
func (r *plainReader) scrape(t testing.TB) (sum float64) {
	t.Helper()
	for _, folder := range r.folders {
		for _, name := range r.files {
			content, err := os.ReadFile(filepath.Join(folder, name))
			require.NoError(t, err)
			if n, err := strconv.ParseFloat(strings.TrimSpace(string(content)), 64); err == nil {
				sum += n
			}
		}
	}
	return sum
}

// What is compared is the same work, and little of it.
func TestAScrapeReadsFewFiles(t *testing.T) {
	for _, extended := range []bool{false, true} {
		tr := eightGPUs(t)
		s, _ := tr.scraper(extended)
		_, _ = scrapeTags(t, s)
		opens := tr.watchOpensBelow("sys/devices/pci0000:00/" + benchAddress(0))
		_, err := s.Scrape(t.Context())
		require.NoError(t, err)
		want := map[string]int{}
		for _, name := range newPlainReader(t, tr.Root, extended).files {
			want[name] = 1
		}
		got := opens.take()
		assert.Equal(t, want, got)
		assert.LessOrEqual(t, len(got), filesPerScrape)
	}
}

// BenchmarkScrape8 is the scrape alone, for profiles.
func BenchmarkScrape8(b *testing.B) {
	for name, extended := range map[string]bool{"default": false, "extended": true} {
		b.Run(name, func(b *testing.B) {
			s, _ := eightGPUs(b).scraper(extended)
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.Scrape(b.Context())
				require.NoError(b, err)
			}
		})
	}
}
