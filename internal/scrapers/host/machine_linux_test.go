// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// The tests of this file measure the machine that they run on, and compare
// with what others make of the same machine: procfs, gopsutil, statfs, df. A
// value that moves lies between theirs before and theirs after.

// tries is how often a comparison may be disturbed by what else goes on.
const tries = 10

func realSource(t *testing.T, cfg *Config, target scrapers.Target) *linuxSource {
	t.Helper()
	for _, name := range []string{"/proc/meminfo", "/proc/stat", "/proc/self/stat"} {
		if _, err := os.Stat(name); err != nil {
			t.Skip("no usual /proc here: ", err)
		}
	}
	src, err := newLinuxSource(cfg, "", settingsOf(target).Workloads, systemEnvironment())
	require.NoError(t, err)
	return src
}

func realProc(t *testing.T) procfs.FS {
	t.Helper()
	fs, err := procfs.NewFS("/proc")
	require.NoError(t, err)
	return fs
}

// eventually repeats a comparison that what else goes on can disturb.
func eventually(t *testing.T, what string, agree func() bool) {
	t.Helper()
	for range tries {
		if agree() {
			return
		}
	}
	t.Errorf("%s: no agreement in %d tries", what, tries)
}

func TestRealScrapeIsSane(t *testing.T) {
	cfg := defaultConfig().(*Config)
	src := realSource(t, cfg, scrapers.Target{Self: true})
	set := sampleSettings(t, "", true)
	set.RootPath = ""
	s := newScraperFor(set, cfg, src)
	s.Prime(t.Context())
	for range 2 {
		md, err := s.Scrape(t.Context())
		if err != nil {
			t.Skip("this machine does not show everything: ", err)
		}
		requireSane(t, md)
		tags := tagsOf(md)
		for _, tag := range []string{"memory_percent", "proc.memory.availableMB", "proc.cpu.threads", "proc.memory.rssMB", "proc.memory.percent"} {
			assert.Contains(t, tags, tag)
		}
	}
}

func TestRealMemory(t *testing.T) {
	src := realSource(t, &Config{}, targetNone)
	eventually(t, "memory", func() bool {
		before, err := mem.VirtualMemoryWithContext(t.Context())
		require.NoError(t, err)
		swap, err := mem.SwapMemoryWithContext(t.Context())
		require.NoError(t, err)
		got := src.read(t.Context(), want{}).memory
		require.NotNil(t, got)
		after, err := mem.VirtualMemoryWithContext(t.Context())
		require.NoError(t, err)

		const noise = 16 * mebi
		least, most := min(before.Available, after.Available), max(before.Available, after.Available)
		return got.total == before.Total && got.available+noise >= least && got.available <= most+noise &&
			got.swapTotal == swap.Total && got.swapUsed+noise >= swap.Used && got.swapUsed <= swap.Used+noise
	})
}

func TestRealFileSystemsAreWhatDfSays(t *testing.T) {
	paths := []string{"/", t.TempDir()}
	src := realSource(t, &Config{DiskPaths: paths}, targetNone)
	for i, path := range paths {
		eventually(t, path, func() bool {
			var st unix.Statfs_t
			require.NoError(t, unix.Statfs(path, &st))
			got := src.read(t.Context(), want{}).filesystems
			require.Len(t, got, len(paths))
			used, available := (st.Blocks-st.Bfree)*uint64(st.Frsize), st.Bavail*uint64(st.Frsize)
			return near(got[i].used, used) && near(got[i].available, available)
		})
		df, err := exec.LookPath("df")
		if err != nil {
			continue
		}
		eventually(t, "df "+path, func() bool {
			output, err := exec.CommandContext(t.Context(), df, "-P", "-k", path).Output()
			if err != nil {
				t.Skip("df: ", err)
			}
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			fields := strings.Fields(lines[len(lines)-1])
			require.GreaterOrEqual(t, len(fields), 5, "%s", output)
			used, err := strconv.ParseUint(fields[2], 10, 64)
			require.NoError(t, err)
			available, err := strconv.ParseUint(fields[3], 10, 64)
			require.NoError(t, err)
			got := src.read(t.Context(), want{}).filesystems
			return near(got[i].used, used<<10) && near(got[i].available, available<<10)
		})
	}
}

// near allows for what others write meanwhile.
func near(a, b uint64) bool { return max(a, b)-min(a, b) <= 32*mebi }

// writtenBytes is what procfs says of each device.
func writtenBytes(t *testing.T) map[string]uint64 {
	t.Helper()
	fs, err := blockdevice.NewDefaultFS()
	require.NoError(t, err)
	stats, err := fs.ProcDiskstats()
	if err != nil {
		t.Skip("no diskstats here: ", err)
	}
	written := map[string]uint64{}
	for _, s := range stats {
		written[s.DeviceName] = s.WriteSectors * 512
	}
	return written
}

func TestRealDisksAreThoseOfProcfs(t *testing.T) {
	src := realSource(t, &Config{}, targetNone)
	eventually(t, "diskstats", func() bool {
		before := writtenBytes(t)
		got := src.read(t.Context(), want{}).disks
		after := writtenBytes(t)
		if got == nil {
			return len(before) == 0
		}
		for _, d := range got.devices {
			if d.written < before[d.name] || d.written > after[d.name] {
				return false
			}
			if _, err := os.Stat("/sys/class/block/" + d.name + "/partition"); err == nil {
				assert.False(t, d.base, d.name)
			}
		}
		return len(got.devices) == len(before)
	})
}

func TestRealWritesAreCounted(t *testing.T) {
	dir := t.TempDir()
	cfg := &Config{DiskPaths: []string{dir}}
	src := realSource(t, cfg, targetNone)
	set := sampleSettings(t, "", false)
	set.RootPath = ""
	s := newScraperFor(set, cfg, src)

	r := src.read(t.Context(), want{})
	if r.disks == nil || len(backingDevices(r.disks)) == 0 {
		t.Skip("no device of diskstats backs " + dir)
	}
	device := backingDevices(r.disks)[0]
	scrape := func() (aggregate, own float64) {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		tags := tagsOf(md)
		require.Contains(t, tags, "disk."+device+".out")
		return tags["disk.out"], tags["disk."+device+".out"]
	}

	outer := writtenBytes(t)[device]
	allBefore, before := scrape()
	inner := writtenBytes(t)[device]
	const size = 8 * mebi
	writeDurably(t, filepath.Join(dir, "file"), size)
	inner = writtenBytes(t)[device] - inner
	allAfter, after := scrape()
	outer = writtenBytes(t)[device] - outer

	if inner < size {
		t.Skipf("%s took %d bytes of a file of %d bytes that was written durably", device, inner, size)
	}
	grown := (after - before) * mebi
	assert.GreaterOrEqual(t, grown, float64(inner))
	assert.LessOrEqual(t, grown, float64(outer))
	assert.GreaterOrEqual(t, (allAfter-allBefore)*mebi, float64(size), "the disk below it counts too")
}

func writeDurably(t *testing.T, path string, size int) {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content) // never fails; cannot be compressed
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func TestRealNetworkIsThatOfProcfs(t *testing.T) {
	src := realSource(t, &Config{}, targetNone)
	table := func() procfs.NetDev {
		init, err := realProc(t).Proc(1)
		if err != nil {
			t.Skip("pid 1 is hidden: ", err)
		}
		devices, err := init.NetDev()
		if err != nil {
			t.Skip("no net/dev of pid 1: ", err)
		}
		return devices
	}
	eventually(t, "net/dev", func() bool {
		before := table()
		got := src.read(t.Context(), want{}).network
		after := table()
		require.NotNil(t, got)
		for _, n := range got.interfaces {
			if n.received < before[n.name].RxBytes || n.received > after[n.name].RxBytes ||
				n.sent < before[n.name].TxBytes || n.sent > after[n.name].TxBytes {
				return false
			}
			assert.False(t, n.name == "lo" && n.counted, "the loopback never counts")
		}
		return len(got.interfaces) == len(before)
	})
}

func TestRealOwnProcess(t *testing.T) {
	src := realSource(t, &Config{}, scrapers.Target{Self: true})
	r := src.read(t.Context(), want{})
	require.NotNil(t, r.first(), "%v", r.errs)
	assert.Equal(t, os.Getpid(), r.first().who.Pid)
	comm, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSuffix(string(comm), "\n"), r.first().who.Executable)
}

// burner is a child that uses one core; it ends with the test.
func burner(t *testing.T) int {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable)
	cmd.Env = []string{helperEnv + "=1", "GOMAXPROCS=2"}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestRealProcessThatBurnsACore(t *testing.T) {
	pid := burner(t)
	src := realSource(t, &Config{}, scrapers.Target{Pid: pid})
	proc, err := realProc(t).Proc(pid)
	require.NoError(t, err)
	ticks := func() float64 {
		st, err := proc.Stat()
		require.NoError(t, err)
		return float64(st.UTime + st.STime)
	}
	read := func() *workloadReading {
		r := src.read(t.Context(), want{})
		require.NotNil(t, r.first(), "%v", r.errs)
		return r.first()
	}

	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(pid, &allowed))
	stat, err := realProc(t).Stat()
	require.NoError(t, err)
	capacity := float64(min(allowed.Count(), len(stat.CPU)))
	require.InDelta(t, capacity, read().capacity, 0)

	eventually(t, "memory and threads", func() bool {
		got := read()
		st, err := proc.Stat()
		require.NoError(t, err)
		return got.threads == st.NumThreads && near(got.rss, uint64(st.ResidentMemory())) && got.rss > 0 &&
			got.key.start == st.Starttime
	})

	busiest := 0.0
	for range tries {
		outerTicks, outerTime := ticks(), time.Now()
		before := read()
		innerTicks, innerTime := ticks(), time.Now()
		time.Sleep(300 * time.Millisecond)
		innerTicks, inner := ticks()-innerTicks, time.Since(innerTime)
		after := read()
		outerTicks, outer := ticks()-outerTicks, time.Since(outerTime)

		percent, ok := cpuPercent(before, after)
		require.True(t, ok)
		// One tick is 10 ms.
		const tick = 1
		require.GreaterOrEqual(t, percent, (innerTicks-tick)/outer.Seconds()/capacity)
		require.LessOrEqual(t, percent, (outerTicks+tick)/inner.Seconds()/capacity)
		busiest = max(busiest, percent)
		if busiest > 80/capacity {
			break
		}
	}
	if busiest < 50/capacity {
		t.Skipf("this machine is too busy to give a process a core: %g %% of %g CPUs", busiest, capacity)
	}
	assert.InDelta(t, 100/capacity, busiest, 60/capacity)
}

func TestRealProcessThatEnds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Skip("no sleep here: ", err)
	}
	src := realSource(t, &Config{}, scrapers.Target{Pid: cmd.Process.Pid})
	require.NotNil(t, src.read(t.Context(), want{}).first())

	require.NoError(t, cmd.Process.Kill())
	what := "process " + strconv.Itoa(cmd.Process.Pid) + " is gone"
	require.Eventually(t, func() bool { // a zombie, until it is waited for
		r := src.read(t.Context(), want{})
		return r.first() == nil && len(r.errs) == 1 && r.errs[0].Error() == what
	}, 10*time.Second, time.Millisecond)
	_ = cmd.Wait()
	r := src.read(t.Context(), want{})
	require.Len(t, r.errs, 1)
	require.EqualError(t, r.errs[0], what)
}
