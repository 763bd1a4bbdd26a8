// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	// hungShutdown and shutdown are what an operator may rely on.
	hungShutdown = 6 * time.Second
	shutdown     = time.Second
	// shutdownTries: a busy machine may delay one.
	shutdownTries = 3
)

// hangText is what is said of a source that hangs, by whoever waited for it.
const hangText = "^diskstats: (gave up after|an earlier call has not come back yet)"

// netDev is a net/dev in which eth0 has received this much.
func netDev(received int) string {
	return "Inter-|   Receive                                                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		fmt.Sprintf("  eth0: %d 1 0 0 0 0 0 0 77 1 0 0 0 0 0 0\n", received)
}

// makeMachine fills a folder with the files of a machine with 1000 MiB of
// memory, 250 of them available.
func makeMachine(t *testing.T, root string) {
	t.Helper()
	for path, content := range map[string]string{
		"etc/hostname":     "fixture\n",
		"proc/meminfo":     "MemTotal: 1024000 kB\nMemFree: 100 kB\nMemAvailable: 256000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
		"proc/stat":        "cpu  1 0 1 1 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\n",
		"proc/1/net/dev":   netDev(5_000_000),
		"proc/1/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
		"proc/diskstats":   "   8 0 sda 10 0 2048 5 10 0 4096 5 0 0 0\n",
	} {
		writeFile(t, filepath.Join(root, path), content)
	}
	for _, dir := range []string{"sys/class/block/sda/device", "sys/class/net/eth0/device"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
}

// writeFile replaces a file at once, so that no half of it is read.
func writeFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// makeHang puts a FIFO that nobody writes to in a file's place: to open it never
// comes back.
func makeHang(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
}

// hungCollector measures a machine whose diskstats hangs, and a healthy one.
func hungCollector(t *testing.T, root string, s *sink, health string) *process {
	t.Helper()
	return startCollector(t, settings{
		receivers: fmt.Sprintf(`
wandbsys/hung: {collection_interval: 1s, initial_delay: 0s, root_path: %s, host_name: hung}
wandbsys/ok: {collection_interval: 1s, initial_delay: 0s, host_name: ok}
`, root),
		exporters: s.exporter(),
		metrics:   pullReader(health),
	})
}

func TestASourceThatHangsDelaysNothingElse(t *testing.T) {
	root, health := t.TempDir(), freeAddress(t)
	makeMachine(t, root)
	makeHang(t, filepath.Join(root, "proc/diskstats"))
	s := startSink(t, nil)
	p := hungCollector(t, root, s, health)

	count := func(host, name string) int { return len(s.points().from(host).ofMachine().named(name)) }
	p.waitFor("the hung machine's other sources", func() bool { return count("hung", "memory_percent") >= 3 })
	writeFile(t, filepath.Join(root, "proc/1/net/dev"), netDev(5_001_234))
	p.waitFor("more of both", func() bool {
		return count("hung", "memory_percent") >= 7 && count("ok", "memory_percent") >= 7
	})
	all := s.points()

	t.Run("the hung machine's other sources answer", func(t *testing.T) {
		hung := all.from("hung")
		assert.Equal(t, []string{"disk.usageGB", "disk.usagePercent", "memory_percent", "network.recv", "network.sent", "proc.memory.availableMB"}, hung.names())
		assert.InDelta(t, 75, hung.named("memory_percent").last().value, 1e-9)
		assert.InDelta(t, 250, hung.named("proc.memory.availableMB").last().value, 1e-9)
		assert.InDelta(t, 1234, hung.named("network.recv").last().value, 1e-9)
		assert.Zero(t, hung.named("network.sent").last().value)
	})
	t.Run("on time, and so does the healthy machine", func(t *testing.T) {
		for _, host := range []string{"hung", "ok"} {
			checkPace(t, all.from(host).ofMachine().named("memory_percent"), time.Second)
		}
		assert.Contains(t, all.from("ok").names(), "disk.in")
	})
	checkHungHealth(t, p, health)
	t.Run("the log tells once", func(t *testing.T) {
		errs := hostLines(p, "error")
		require.Len(t, errs, 1)
		assert.Equal(t, "wandbsys/hung", errs[0].Component)
		assert.Regexp(t, hangText, errs[0].Error)
	})
	checkShutdown(t, hungShutdown, p, func() *process {
		before := count("hung", "memory_percent")
		again := hungCollector(t, root, s, freeAddress(t))
		again.waitFor("metrics arrive", func() bool { return count("hung", "memory_percent") > before })
		return again
	})
}

// checkPace: no point is missing, as far as a busy machine allows.
func checkPace(t *testing.T, ps points, interval time.Duration) {
	t.Helper()
	for i := 1; i < len(ps); i++ {
		assert.Less(t, ps[i].at.Sub(ps[i-1].at), 3*interval, "between points %d and %d", i-1, i)
	}
}

func checkHungHealth(t *testing.T, p *process, address string) {
	t.Helper()
	all := awaitSamples(t, p, address, "the health metrics", func(all samples) bool {
		return len(all.find("otelcol_wandbsys_family_last_good_age")) == 2
	})
	value := func(name, receiver string) float64 {
		found := all.find(name, "receiver", receiver, "family", "host")
		require.Len(t, found, 1, "%s of %s in %v", name, receiver, all)
		return found[0].value
	}
	for receiver, success := range map[string]float64{"wandbsys/hung": 0, "wandbsys/ok": 1} {
		assert.InDelta(t, 1, value("otelcol_wandbsys_family_state", receiver), 0)
		assert.InDelta(t, success, value("otelcol_wandbsys_family_scrape_success", receiver), 0, receiver)
		assert.Positive(t, value("otelcol_wandbsys_family_scrape_duration", receiver))
		assert.Less(t, value("otelcol_wandbsys_family_last_good_age", receiver), 10.0)
	}
	assert.Len(t, all.find("otelcol_wandbsys_family_state", "receiver", "wandbsys/ok", "state", "detected", "reason", ""), 1)
	hung := all.find("otelcol_wandbsys_family_state", "receiver", "wandbsys/hung", "state", "detected")
	require.Len(t, hung, 1)
	assert.Regexp(t, hangText, hung[0].labels["reason"])
}

// checkShutdown ends a collector, and others after it if that took too long.
func checkShutdown(t *testing.T, bound time.Duration, p *process, again func() *process) {
	t.Helper()
	for try := 1; ; try++ {
		took := p.stop()
		t.Logf("ended after %s", took)
		assert.Zero(t, p.exitCode())
		if took < bound {
			return
		}
		require.Less(t, try, shutdownTries, "took %s, %s are allowed", took, bound)
		p = again()
	}
}

func TestAHealthyCollectorEndsAtOnce(t *testing.T) {
	s := startSink(t, nil)
	start := func() *process {
		before := len(s.points())
		p := startCollector(t, settings{
			receivers: "wandbsys: {collection_interval: 1s, initial_delay: 0s, workloads: {pid: self}}",
			exporters: s.exporter(),
		})
		p.waitFor("metrics arrive", func() bool { return len(s.points()) > before })
		return p
	}
	checkShutdown(t, shutdown, start(), start)
}

// With the default timeout, the scrape that hangs is far from giving up.
func TestACollectorEndsInTheMiddleOfAScrape(t *testing.T) {
	root := t.TempDir()
	makeMachine(t, root)
	for _, file := range []string{"proc/diskstats", "proc/meminfo", "proc/stat", "proc/1/net/dev"} {
		makeHang(t, filepath.Join(root, file))
	}
	start := func() *process {
		p := startCollector(t, settings{
			receivers: "wandbsys: {initial_delay: 0s, workloads: {pid: self}, root_path: " + root + "}",
			exporters: "debug: ",
		})
		p.waitFor("the collector is ready", func() bool { return strings.Contains(p.stderr.String(), "Everything is ready") })
		observe(500 * time.Millisecond)
		return p
	}
	checkShutdown(t, hungShutdown, start(), start)
}

func TestAMachineOfWhichNothingAnswersIsLost(t *testing.T) {
	root, health := t.TempDir(), freeAddress(t)
	makeMachine(t, root)
	for _, file := range []string{"proc/diskstats", "proc/meminfo", "proc/1/net/dev"} {
		makeHang(t, filepath.Join(root, file))
	}
	s := startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 500ms, initial_delay: 0s, root_path: " + root + ", scrapers: {host: {disk_paths: []}}}",
		exporters: s.exporter(),
		metrics:   pullReader(health),
	})
	all := awaitSamples(t, p, health, "the state lost", func(all samples) bool {
		return len(all.find("otelcol_wandbsys_family_state", "state", "lost")) == 1
	})
	assert.Contains(t, all.find("otelcol_wandbsys_family_state", "family", "host")[0].labels["reason"], "diskstats: ")
	assert.Empty(t, all.find("otelcol_wandbsys_family_last_good_age"), "there was no data yet")
	assert.Empty(t, s.points())

	makeMachine(t, filepath.Join(root, "new"))
	for _, file := range []string{"proc/diskstats", "proc/meminfo", "proc/1/net/dev"} {
		freeHang(t, filepath.Join(root, file), filepath.Join(root, "new", file))
	}
	for _, name := range []string{"disk.in", "memory_percent", "network.recv"} {
		p.waitFor(name+" again", func() bool { return len(s.points().named(name)) > 0 })
	}
	awaitSamples(t, p, health, "the state detected", func(all samples) bool {
		return len(all.find("otelcol_wandbsys_family_state", "state", "detected", "reason", "")) == 1
	})
}

// freeHang puts a file in a FIFO's place, and lets the call go that hangs there.
func freeHang(t *testing.T, fifo, file string) {
	t.Helper()
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, os.Rename(file, fifo))
	require.NoError(t, writer.Close())
}

func TestAMachineThatIsNotThereIsLookedForAgain(t *testing.T) {
	root, health := t.TempDir(), freeAddress(t)
	s := startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 200ms, initial_delay: 0s, detection_interval: 200ms, scrapers: {host: }, root_path: " + root + "}",
		exporters: s.exporter(),
		metrics:   pullReader(health),
	})
	absent := awaitSamples(t, p, health, "the state absent", func(all samples) bool {
		return len(all.find("otelcol_wandbsys_family_state", "state", "absent")) == 1
	})
	observe(2 * time.Second) // ten more probes
	assert.Equal(t, "no "+root+"/proc", absent.find("otelcol_wandbsys_family_state", "state", "absent")[0].labels["reason"])
	assert.Empty(t, absent.find("otelcol_wandbsys_family_scrape_success"), "no verdict on what is not there")
	assert.Empty(t, s.points())
	assert.True(t, p.alive())
	assert.Empty(t, append(hostLines(p, "error"), hostLines(p, "warn")...))
	changes := stateChanges(p)
	require.Len(t, changes, 1)
	assert.Equal(t, logLine{
		Level: "info", Msg: "Family state", Component: "wandbsys",
		Family: "host", State: "absent", Reason: "no " + root + "/proc", Cure: "mount the machine's / with its /proc at root_path",
	}, changes[0])

	makeMachine(t, root)
	p.waitFor("the machine's metrics", func() bool { return len(s.points().named("memory_percent")) > 0 })
	assert.InDelta(t, 75, s.points().named("memory_percent").last().value, 1e-9)
	awaitSamples(t, p, health, "the state detected", func(all samples) bool {
		return len(all.find("otelcol_wandbsys_family_state", "state", "detected")) == 1
	})
}

func stateChanges(p *process) []logLine {
	var changes []logLine
	for _, line := range p.logLines("info") {
		if line.State != "" {
			changes = append(changes, line)
		}
	}
	return changes
}
