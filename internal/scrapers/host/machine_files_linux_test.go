// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// first is the first workload, nil when there is none.
func (r *reading) first() *workloadReading {
	if len(r.workloads) == 0 {
		return nil
	}
	return r.workloads[0]
}

// settingsOf are those of a real machine on which this is measured.
func settingsOf(target scrapers.Target) scrapers.Settings {
	return scrapers.Settings{Target: target, Workloads: workload.NewDiscovery(workload.Options{Target: target})}
}

// testMachine is a machine made of files below a root path, with a clock and
// statfs of its own.
type testMachine struct {
	t        testing.TB
	root     string
	now      time.Time
	pageSize uint64
	// bootTicks is what the clock since boot says.
	bootTicks uint64
	// filesystems is what statfs answers, by path on the machine. Others do
	// not exist: never is the real statfs asked.
	filesystems map[string]unix.Statfs_t
	// statfs replaces the above.
	statfs func(path string, st *unix.Statfs_t) error
	cfg    *Config
	target scrapers.Target
	// discovery says what else there is to find; its root path and target are
	// the above.
	discovery workload.Options
}

func newTestMachine(t testing.TB, files map[string]string) *testMachine {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	m := &testMachine{
		t: t, root: root, now: testStart, pageSize: 4096,
		filesystems: map[string]unix.Statfs_t{},
		cfg:         defaultConfig().(*Config),
	}
	m.statfs = m.givenStatfs
	m.cfg.DiskPaths = nil
	m.write(files)
	return m
}

// write makes files; a name that ends in a slash is a folder, content that
// begins with "-> " makes a symbolic link.
func (m *testMachine) write(files map[string]string) {
	m.t.Helper()
	for name, content := range files {
		path := filepath.Join(m.root, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(m.t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			_ = os.Remove(path)
			require.NoError(m.t, os.Symlink(target, path))
			continue
		}
		require.NoError(m.t, os.WriteFile(path, []byte(content), 0o600))
	}
}

func (m *testMachine) remove(names ...string) {
	m.t.Helper()
	for _, name := range names {
		require.NoError(m.t, os.RemoveAll(filepath.Join(m.root, name)))
	}
}

// wait lets the machine's clock go on.
func (m *testMachine) wait(d time.Duration) { m.now = m.now.Add(d) }

func (m *testMachine) givenStatfs(path string, st *unix.Statfs_t) error {
	given, ok := m.filesystems[filepath.Join("/", strings.TrimPrefix(path, m.root))]
	if !ok {
		return unix.ENOENT
	}
	*st = given
	return nil
}

func (m *testMachine) source() *linuxSource {
	m.t.Helper()
	env := environment{now: func() time.Time { return m.now }, pageSize: m.pageSize}
	env.statfs = func(path string, st *unix.Statfs_t) error { return m.statfs(path, st) }
	options := m.discovery
	options.RootPath, options.Target = m.root, m.target
	workloads := workload.NewDiscovery(options).
		WithClock(env.now, func() (uint64, error) { return m.bootTicks, nil })
	src, err := newLinuxSource(m.cfg, m.root, workloads, env)
	require.NoError(m.t, err)
	return src
}

// read reads everything once, without errors.
func (m *testMachine) read(src *linuxSource) *reading {
	m.t.Helper()
	r := src.read(m.t.Context(), want{})
	require.Empty(m.t, r.errs)
	return r
}

func (m *testMachine) scraper(extended bool) *hostScraper {
	m.t.Helper()
	s := newScraperFor(sampleSettings(m.t, m.root, extended), m.cfg, m.source())
	s.clock = func() time.Time { return m.now }
	return s
}

// shortly is for readings in which something hangs: long enough for the rest.
func shortly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// diskLine is a line of diskstats, with counters in sectors of 512 bytes.
func diskLine(major, minor int, name string, read, written uint64) string {
	return fmt.Sprintf("%4d %7d %s 1 0 %d 4 5 6 %d 8 0 10 11 0 0 0 0 12 13\n", major, minor, name, read, written)
}

// netDev is a net/dev with these interfaces, each with 100 bytes received and
// 200 sent.
func netDev(names ...string) string {
	var b strings.Builder
	b.WriteString("Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n")
	for _, name := range names {
		b.WriteString(netLine(name, 100, 200))
	}
	return b.String()
}

func netLine(name string, received, sent uint64) string {
	return fmt.Sprintf("%6s: %d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0\n", name, received, sent)
}

// pidStat is a /proc/PID/stat.
func pidStat(pid int, comm, state string, utime, stime, threads, start int) string {
	// The fields after stime are cutime and cstime; field 42 is time spent
	// waiting for disks.
	return fmt.Sprintf("%d (%s) %s 1 %d %d 0 -1 4194304 1 2 3 4 %d %d 5000 6000 20 0 %d 0 %d 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 999999 0 0\n",
		pid, comm, state, pid, pid, utime, stime, threads, start)
}
