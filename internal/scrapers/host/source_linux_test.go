// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

var targetNone scrapers.Target

// requireSources wants these sources, and no others, to have failed.
func requireSources(t *testing.T, r *reading, sources ...string) {
	t.Helper()
	var failed []string
	for _, err := range r.errs {
		source, ok := errors.AsType[*scrapers.SourceError](err)
		require.True(t, ok, "%v", err)
		failed = append(failed, source.Source)
	}
	require.ElementsMatch(t, sources, failed, "%v", r.errs)
}

// aWholeMachine has every file that is read.
func aWholeMachine(t testing.TB) *testMachine {
	t.Helper()
	m := newTestMachine(t, map[string]string{
		"proc/meminfo":                        "MemTotal: 100000 kB\nMemFree: 100 kB\nMemAvailable: 25000 kB\nSwapTotal: 80 kB\nSwapFree: 60 kB\n",
		"proc/stat":                           "cpu  3 3 3 3 3 3 3 3\ncpu0 100 0 0 300 0 0 0 0\ncpu1 200 0 0 200 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\nintr 1\n",
		"proc/diskstats":                      diskLine(259, 0, "nvme0n1", 1<<20, 1<<21) + diskLine(259, 1, "nvme0n1p1", 1<<20, 1<<21) + diskLine(7, 0, "loop0", 9, 9),
		"proc/1/net/dev":                      netDev("lo", "eth0"),
		"proc/1/mountinfo":                    "1 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n",
		"proc/sys/kernel/random/boot_id":      "11111111-2222-3333-4444-555555555555\n",
		"proc/77/stat":                        pidStat(77, "python3", "S", 1000, 200, 5, 4242),
		"proc/77/statm":                       "10000 256 100 1 0 1000 0\n",
		"proc/77/status":                      "Name:\tpython3\nCpus_allowed_list:\t0-1\n",
		"proc/cpuinfo":                        "processor\t: 0\n\nprocessor\t: 1\n\nprocessor\t: 2\n",
		"sys/class/block/nvme0n1/device/":     "",
		"sys/class/block/nvme0n1p1/partition": "1\n",
		"sys/class/block/loop0/":              "",
		"sys/class/net/eth0/device/":          "",
		"sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_cpus_list": "1-2\n",
		"sys/devices/system/cpu/cpu2/topology/core_cpus_list": "1-2\n",
	})
	m.cfg.DiskPaths = []string{"/", "/mnt/data"}
	m.filesystems["/"] = unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 1 << 20, Bfree: 1 << 19, Bavail: 1 << 18}
	m.filesystems["/mnt/data"] = unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20}
	m.target = scrapers.Target{Pid: 77}
	return m
}

// fifo puts a named pipe in the place of a file: opening it hangs. What hangs
// at the end of the test is let go.
func (m *testMachine) fifo(name string) {
	m.t.Helper()
	m.remove(name)
	path := filepath.Join(m.root, name)
	require.NoError(m.t, unix.Mkfifo(path, 0o600))
	m.t.Cleanup(func() { release(path) })
}

// release lets those go who wait for somebody to write.
func release(path string) {
	if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		_ = f.Close()
	}
}

func TestAFileThatHangsCostsOnlyItself(t *testing.T) {
	tests := []struct {
		file, source string
		slot         func(*linuxSource) *guard.Slot
		isThere      func(*reading) bool
	}{
		{"proc/meminfo", "meminfo", func(s *linuxSource) *guard.Slot { return &s.memory.slot }, func(r *reading) bool { return r.memory != nil }},
		{"proc/diskstats", "diskstats", func(s *linuxSource) *guard.Slot { return &s.disks.slot }, func(r *reading) bool { return r.disks != nil }},
		{"proc/1/net/dev", "net/dev", func(s *linuxSource) *guard.Slot { return &s.network.slot }, func(r *reading) bool { return r.network != nil }},
		{"proc/stat", "stat", func(s *linuxSource) *guard.Slot { return &s.stat.slot }, func(r *reading) bool { return len(r.cores) > 0 }},
		{"proc/77/statm", workloadsName, func(s *linuxSource) *guard.Slot { return &s.workloads.slot }, func(r *reading) bool { return r.first() != nil }},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			t.Parallel()
			m := aWholeMachine(t)
			content, err := os.ReadFile(filepath.Join(m.root, tt.file))
			require.NoError(t, err)
			m.fifo(tt.file)
			src := m.source()

			r := src.read(shortly(t), want{cores: true})
			requireSources(t, r, tt.source)
			assert.False(t, tt.isThere(r))
			for _, other := range tests {
				if other.source != tt.source {
					assert.True(t, other.isThere(r), "%s", other.source)
				}
			}
			assert.Len(t, r.filesystems, 2)

			// The next reading does not wait for it: its time never ends.
			r = src.read(t.Context(), want{cores: true})
			requireSources(t, r, tt.source)
			require.ErrorIs(t, r.errs[0], guard.ErrHung)
			assert.False(t, tt.isThere(r))

			// It comes back, and all is well.
			fifo := filepath.Join(m.root, tt.file)
			require.NoError(t, os.Rename(fifo, fifo+".fifo"))
			m.write(map[string]string{tt.file: string(content)})
			release(fifo + ".fifo")
			require.True(t, tt.slot(src).Settle(t.Context()))
			r = src.read(t.Context(), want{cores: true})
			requireSources(t, r)
			assert.True(t, tt.isThere(r))
		})
	}
}

func TestAFileSystemThatHangsCostsOnlyItself(t *testing.T) {
	t.Parallel()
	m := aWholeMachine(t)
	hang := make(chan struct{})
	m.statfs = func(path string, st *unix.Statfs_t) error {
		if filepath.Base(path) == "data" {
			<-hang
		}
		return m.givenStatfs(path, st)
	}
	src := m.source()
	r := src.read(shortly(t), want{})
	requireSources(t, r, "statfs /mnt/data")
	require.Len(t, r.filesystems, 1)
	assert.Equal(t, "/", r.filesystems[0].path)
	assert.NotNil(t, r.memory)
	assert.NotNil(t, r.disks)
	assert.NotNil(t, r.first())

	r = src.read(t.Context(), want{})
	requireSources(t, r, "statfs /mnt/data")
	require.ErrorIs(t, r.errs[0], guard.ErrHung)
	assert.Len(t, r.filesystems, 1)

	close(hang)
	require.True(t, src.filesystems[1].slot.Settle(t.Context()))
	r = src.read(t.Context(), want{})
	requireSources(t, r)
	assert.Len(t, r.filesystems, 2)
}

func TestFileSystems(t *testing.T) {
	tests := []struct {
		name   string
		answer unix.Statfs_t
		want   filesystemReading
	}{
		{
			name:   "blocks are counted in fragments",
			answer: unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 100, Bfree: 60, Bavail: 50},
			want:   filesystemReading{blocks: true, used: 40 * 4096, available: 50 * 4096},
		},
		{
			name:   "in blocks where there are no fragments",
			answer: unix.Statfs_t{Bsize: 512, Blocks: 100, Bfree: 60, Bavail: 60},
			want:   filesystemReading{blocks: true, used: 40 * 512, available: 60 * 512},
		},
		{
			name:   "no blocks",
			answer: unix.Statfs_t{Bsize: 4096, Frsize: 4096},
			want:   filesystemReading{},
		},
		{
			name:   "nothing used and nothing available",
			answer: unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 10, Bfree: 10},
			want:   filesystemReading{blocks: true},
		},
		{
			name:   "more free than there are blocks",
			answer: unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 10, Bfree: 12, Bavail: 12},
			want:   filesystemReading{blocks: true, available: 12 * 4096},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"})
			m.cfg.DiskPaths = []string{"/mnt/x"}
			m.filesystems["/mnt/x"] = tt.answer
			r := m.read(m.source())
			tt.want.path, tt.want.resolved = "/mnt/x", "/mnt/x"
			assert.Equal(t, []filesystemReading{tt.want}, r.filesystems)
		})
	}
}

func TestAFileSystemThatFailsIsNamedAndTheOthersAreThere(t *testing.T) {
	m := aWholeMachine(t)
	m.cfg.DiskPaths = []string{"/gone", "/"}
	r := m.source().read(t.Context(), want{})
	requireSources(t, r, "statfs /gone")
	require.ErrorIs(t, r.errs[0], unix.ENOENT)
	assert.Equal(t, "statfs /gone: no such file or directory", r.errs[0].Error())
	require.Len(t, r.filesystems, 1)
	assert.Equal(t, "/", r.filesystems[0].path)
}

func TestStatfsIsAskedAgainWhenInterrupted(t *testing.T) {
	m := aWholeMachine(t)
	m.cfg.DiskPaths = []string{"/"}
	interrupts := 3
	m.statfs = func(path string, st *unix.Statfs_t) error {
		if interrupts--; interrupts >= 0 {
			return unix.EINTR
		}
		return m.givenStatfs(path, st)
	}
	assert.Len(t, m.read(m.source()).filesystems, 1)
}

func TestStatfsFollowsLinksBelowTheRootPath(t *testing.T) {
	for target, want := range map[string]string{
		"mnt/data":                   "/mnt/data",
		"/mnt/data":                  "/mnt/data",
		"../../../../../../mnt/data": "/mnt/data",
		"/elsewhere":                 "/elsewhere",
		"/loop":                      "/loop",
	} {
		m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "mnt/data/": "", "link": "-> " + target, "loop": "-> /loop"})
		m.cfg.DiskPaths = []string{"/link/"}
		if want == "/loop" {
			want = "/link/" // what cannot be resolved stays as it is
		}
		m.filesystems[filepath.Clean(want)] = unix.Statfs_t{Frsize: 1, Blocks: 2, Bfree: 1, Bavail: 1}
		r := m.read(m.source())
		require.Len(t, r.filesystems, 1, target)
		assert.Equal(t, "/link/", r.filesystems[0].path, "the tag keeps the configured path")
		assert.Equal(t, want, r.filesystems[0].resolved)
	}
}

func TestResolveWithoutARootPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	for _, root := range []string{"", "/"} {
		assert.Equal(t, dir+"/real", resolve(root, dir+"/link"))
		assert.Equal(t, dir+"/none", resolve(root, dir+"/none"))
		assert.Equal(t, "/", resolve(root, "/"))
	}
}

func TestMemory(t *testing.T) {
	m := aWholeMachine(t)
	assert.Equal(t, &memoryReading{total: 100000 << 10, available: 25000 << 10, swapTotal: 80 << 10, swapUsed: 20 << 10}, m.read(m.source()).memory)

	m.remove("proc/meminfo")
	r := m.source().read(t.Context(), want{})
	requireSources(t, r, "meminfo")
	assert.Nil(t, r.memory)
	assert.NotNil(t, r.disks)
	assert.NotNil(t, r.network)
	assert.NotNil(t, r.first())
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	m := aWholeMachine(t)
	require.NoError(t, os.Truncate(filepath.Join(m.root, "proc/meminfo"), maxFile+1))
	r := m.source().read(t.Context(), want{})
	requireSources(t, r, "meminfo")
	_, ok := errors.AsType[*guard.LimitError](r.errs[0])
	assert.True(t, ok)
}

func TestCoresAreReadWhereWanted(t *testing.T) {
	m := aWholeMachine(t)
	src := m.source()
	assert.Nil(t, src.read(t.Context(), want{}).cores)
	assert.Equal(t, []coreReading{{0, 100, 400}, {1, 200, 400}, {2, 0, 0}}, src.read(t.Context(), want{cores: true}).cores)
}

func TestCountersReadNothingElse(t *testing.T) {
	m := aWholeMachine(t)
	m.statfs = func(string, *unix.Statfs_t) error { panic("asked") }
	r := m.source().counters(t.Context())
	assert.Equal(t, &reading{disks: r.disks, network: r.network}, r)
	assert.NotNil(t, r.disks)
	assert.NotNil(t, r.network)
}

func TestAnAbsentMachine(t *testing.T) {
	m := newTestMachine(t, map[string]string{"etc/hostname": "x\n"})
	m.cfg.DiskPaths = []string{"/"}
	m.target = scrapers.Target{Pid: 77}
	s := m.scraper(false)
	s.Prime(t.Context())
	md, err := s.Scrape(t.Context())
	assert.Zero(t, md.DataPointCount())
	absent, ok := errors.AsType[*scrapers.AbsentError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "no "+m.root+"/proc; mount the machine's / with its /proc at root_path", absent.Error())
	require.EqualError(t, err, absent.Error(), "nothing else is told")

	// It is mounted later.
	m.write(map[string]string{"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB\n"})
	md, err = s.Scrape(t.Context())
	assert.Equal(t, 2, md.DataPointCount())
	require.ErrorIs(t, err, fs.ErrNotExist)
	hostAttributes := md.ResourceMetrics().At(0).Resource().Attributes()
	total, ok := hostAttributes.Get("wandb.memory_total")
	require.True(t, ok)
	assert.Equal(t, int64(1000<<10), total.Int())
}

// Below a root path on a dead mount even the look for /proc hangs.
func TestAnAbsentMachineThatHangs(t *testing.T) {
	t.Parallel()
	m := aWholeMachine(t)
	m.remove("proc/meminfo")
	src := m.source()
	hang := make(chan struct{})
	src.memory.isThere = func(string) bool {
		<-hang
		return false
	}
	for _, ctx := range []context.Context{shortly(t), t.Context()} { // it is given up, and then left alone
		r := src.read(ctx, want{})
		requireSources(t, r, "meminfo")
		assert.Nil(t, r.memory)
		assert.NotNil(t, r.disks)
	}
	close(hang)
	require.True(t, src.memory.slot.Settle(t.Context()))
}

func TestAFailedBaselineIsMadeGoodByTheFirstReading(t *testing.T) {
	m := aWholeMachine(t)
	for _, name := range []string{"proc/diskstats", "proc/1/net/dev"} {
		m.remove(name)
		m.write(map[string]string{name: "garbage\n"})
	}
	s := m.scraper(false)
	s.Prime(t.Context())

	m.wait(time.Second)
	m.write(map[string]string{"proc/diskstats": diskLine(259, 0, "nvme0n1", 1<<20, 1<<21), "proc/1/net/dev": netDev("eth0")})
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	tags := tagsOf(md)
	assert.Zero(t, tags["disk.in"])
	assert.Zero(t, tags["network.recv"])
	assert.Contains(t, tags, "disk.in")
	assert.Contains(t, tags, "network.recv")
	assert.Equal(t, timestamp(testStart.Add(time.Second)), s.disks.start)
	assert.Equal(t, timestamp(testStart.Add(time.Second)), s.network.start)

	m.write(map[string]string{"proc/diskstats": diskLine(259, 0, "nvme0n1", 1<<20+2048, 1<<21) + diskLine(8, 0, "sdb", 2048, 0)})
	m.write(map[string]string{"sys/class/block/sdb/device/": ""})
	md, err = s.Scrape(t.Context())
	require.NoError(t, err)
	assert.InDelta(t, 2, tagsOf(md)["disk.in"], 1e-9, "then what is new counts in full")
}
