// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

var (
	gauge   = shape{form: "gauge", number: pmetric.NumberDataPointValueTypeDouble}
	counter = shape{
		form: "sum", monotonic: true, temporality: pmetric.AggregationTemporalityCumulative,
		number: pmetric.NumberDataPointValueTypeDouble,
	}
)

func (s shape) in(unit string) shape {
	s.unit = unit
	return s
}

func (s shape) integer() shape {
	s.number = pmetric.NumberDataPointValueTypeInt
	return s
}

// hostShapes are the machine's metrics that are on by default, targetShapes
// those of a process.
var (
	hostShapes = map[string]shape{
		"memory_percent":          gauge.in("%"),
		"proc.memory.availableMB": gauge.in("MiBy"),
		"disk.usagePercent":       gauge.in("%"),
		"disk.usageGB":            gauge.in("GiBy"),
		"disk.in":                 counter.in("MiBy"),
		"disk.out":                counter.in("MiBy"),
		"disk.device.in":          counter.in("MiBy"),
		"disk.device.out":         counter.in("MiBy"),
		"network.recv":            counter.in("By").integer(),
		"network.sent":            counter.in("By").integer(),
	}
	targetShapes = map[string]shape{
		"cpu":                 gauge.in("%"),
		"proc.cpu.threads":    gauge.in("{thread}").integer(),
		"proc.memory.rssMB":   gauge.in("MiBy"),
		"proc.memory.percent": gauge.in("%"),
	}
)

// reading is one payload beside what the machine said when it arrived.
type reading struct {
	points points
	truth  truth
}

// watch is a collector that measures the machine and one process, and the
// readings so far.
type watch struct {
	*process
	t      *testing.T
	before truth
	file   string // what the file exporter writes
	sink   *sink
	paths  []string
	target int

	mu       sync.Mutex
	readings []reading
}

const watchInterval = time.Second

// startWatch starts a collector that exports to a sink and to a file. What else
// runs on the machine, in containers or as runs, is not measured.
func startWatch(t *testing.T, target int, paths ...string) *watch {
	t.Helper()
	w := &watch{t: t, file: filepath.Join(t.TempDir(), "metrics.json"), paths: paths, target: target}
	w.sink = startSink(t, w.arrived)
	w.before = readTruth(t, target, paths...)
	w.process = startCollector(t, settings{
		receivers: fmt.Sprintf(`
wandbsys:
  collection_interval: %s
  initial_delay: 0s
  workloads: {pid: %d, discover: []}
  scrapers: {host: {disk_paths: ["%s"]}}
`, watchInterval, target, strings.Join(paths, `", "`)),
		exporters: w.sink.exporter() + "file: {path: " + w.file + "}",
	})
	return w
}

func (w *watch) arrived(md pmetric.Metrics) {
	tr := readTruth(w.t, w.target, w.paths...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readings = append(w.readings, reading{pointsOf(md), tr})
}

func (w *watch) all() []reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.readings)
}

// more waits for n further readings.
func (w *watch) more(n int) []reading {
	w.t.Helper()
	want := len(w.all()) + n
	w.waitFor("metrics arrive", func() bool { return len(w.all()) >= want })
	return w.all()
}

func TestEveryHostTagIsRight(t *testing.T) {
	temp := t.TempDir()
	target := startHelper(t, "idle")
	w := startWatch(t, target.pid(), "/", temp)
	readings := w.more(5)
	w.stop()
	all := w.sink.points()

	t.Run("nothing is missing, nothing is added", func(t *testing.T) {
		want := append(shapeNames(hostShapes), shapeNames(targetShapes)...)
		slices.Sort(want)
		assert.Equal(t, want, all.names())
	})
	t.Run("shapes", func(t *testing.T) { checkShapes(t, all) })
	t.Run("resources", func(t *testing.T) { checkResources(t, all, target.pid()) })
	t.Run("attributes", func(t *testing.T) { checkAttributes(t, all, "/", temp) })
	t.Run("sums", func(t *testing.T) { checkSums(t, all, w.before.at) })
	t.Run("values", func(t *testing.T) {
		for i, r := range readings {
			checkMachine(t, r, w.before)
			checkTarget(t, r)
			if i > 0 {
				checkGrowth(t, readings[i-1], r)
			}
		}
	})
	t.Run("the file has the same", func(t *testing.T) {
		written := readJSONLines(t, w.file)
		require.GreaterOrEqual(t, len(written), len(all))
		assert.Equal(t, all, written[:len(all)])
	})
}

func shapeNames(m map[string]shape) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

func checkShapes(t *testing.T, all points) {
	t.Helper()
	for _, p := range all {
		want, ok := hostShapes[p.name]
		if !ok {
			want = targetShapes[p.name]
		}
		assert.Equal(t, want, p.shape, p.name)
		assert.False(t, math.IsNaN(p.value) || math.IsInf(p.value, 0), p.name)
	}
}

func checkResources(t *testing.T, all points, target int) {
	t.Helper()
	hostName := firstLine(t, "/etc/hostname")
	for _, p := range all {
		_, ofHost := hostShapes[p.name]
		if p.name == "memory_percent" || p.name == "proc.memory.availableMB" {
			ofHost = p.resource["process.pid"] == nil // under a limit, a process has its own
		}
		want := map[string]any{"host.name": hostName, "os.type": "linux", "service.name": "wandbsys", "service.instance.id": hostName}
		if !ofHost {
			want["service.instance.id"] = fmt.Sprintf("%s/pid-%d", hostName, target)
			want["process.pid"] = int64(target)
		}
		for key, value := range want {
			assert.Equal(t, value, p.resource[key], "%s of %s", key, p.name)
		}
		assert.Equal(t, !ofHost, p.resource["process.pid"] != nil, "process.pid of %s", p.name)
	}
}

// firstLine is the host name as the product defines it: the file, else what
// the system says.
func firstLine(t *testing.T, path string) string {
	t.Helper()
	if content, err := os.ReadFile(path); err == nil {
		if line := strings.TrimSpace(string(content)); line != "" {
			return line
		}
	}
	name, err := os.Hostname()
	require.NoError(t, err)
	return name
}

func checkAttributes(t *testing.T, all points, paths ...string) {
	t.Helper()
	for _, p := range all {
		switch p.name {
		case "disk.usagePercent", "disk.usageGB":
			assert.Len(t, p.attrs, 1)
			assert.Contains(t, paths, p.attrs["path"])
		case "disk.device.in", "disk.device.out":
			assert.Len(t, p.attrs, 1)
			assert.NotEmpty(t, p.attrs["device"])
		default:
			assert.Empty(t, p.attrs, p.name)
		}
	}
	for _, path := range paths {
		assert.NotEmpty(t, all.named("disk.usageGB").with("path", path), path)
	}
}

// checkSums: one start for all time, not before the collector ran and not after
// the point, and values that never fall.
func checkSums(t *testing.T, all points, began time.Time) {
	t.Helper()
	last := map[string]point{}
	for _, p := range all {
		if p.shape.form != "sum" {
			continue
		}
		key := fmt.Sprint(p.name, p.attrs)
		assert.False(t, p.start.Before(began), "%s starts at %s, before the collector", key, p.start)
		assert.False(t, p.start.After(p.at), "%s starts after its point", key)
		if before, ok := last[key]; ok {
			assert.Equal(t, before.start, p.start, key)
			assert.True(t, p.at.After(before.at), "%s: time stands still", key)
			assert.GreaterOrEqual(t, p.value, before.value, key)
		}
		last[key] = p
	}
}

// The machine goes on working between the product's reading and the test's.
const (
	slackMemory  = 512 * mebi
	slackDisk    = 64 * mebi
	slackNetwork = 16 * mebi
	slackSpace   = 512 * mebi
)

func checkMachine(t *testing.T, r reading, before truth) {
	t.Helper()
	value := func(name string) float64 { return one(t, r.points.ofMachine().named(name)).value }
	tr := r.truth
	assert.InDelta(t, tr.memAvailable/mebi, value("proc.memory.availableMB"), slackMemory/mebi)
	assert.InDelta(t, 100*(tr.memTotal-tr.memAvailable)/tr.memTotal, value("memory_percent"), 100*slackMemory/tr.memTotal)
	for path, used := range tr.fsUsed {
		assert.InDelta(t, used/gibi, one(t, r.points.named("disk.usageGB").with("path", path)).value, float64(slackSpace)/gibi, path)
		assert.InDelta(t, tr.fsPercent[path], one(t, r.points.named("disk.usagePercent").with("path", path)).value, 1, path)
	}
	// What was counted since the collector started lies between nothing and all
	// that there was since before it started.
	assert.LessOrEqual(t, value("disk.in"), (sum(tr.diskIn)-sum(before.diskIn))/mebi)
	assert.LessOrEqual(t, value("disk.out"), (sum(tr.diskOut)-sum(before.diskOut))/mebi)
	assert.LessOrEqual(t, value("network.recv"), tr.received-before.received)
	assert.LessOrEqual(t, value("network.sent"), tr.sent-before.sent)
	for device := range tr.diskIn {
		one(t, r.points.named("disk.device.in").with("device", device))
		one(t, r.points.named("disk.device.out").with("device", device))
	}
}

func checkTarget(t *testing.T, r reading) {
	t.Helper()
	value := func(name string) float64 { return one(t, r.points.named(name)).value }
	p := r.truth.process
	assert.Greater(t, value("proc.memory.rssMB"), float64(helperMemory)/mebi)
	assert.InDelta(t, p.rss/mebi, value("proc.memory.rssMB"), 4)
	if len(r.points.ofProcess().named("memory_percent")) == 0 { // the tests run under no limit
		assert.InDelta(t, 100*p.rss/r.truth.memTotal, value("proc.memory.percent"), 100*4*mebi/r.truth.memTotal)
	}
	assert.InDelta(t, p.threads, value("proc.cpu.threads"), 2)
}

// checkGrowth compares what the counters grew by from one reading to the next.
func checkGrowth(t *testing.T, before, after reading) {
	t.Helper()
	grew := func(name string) float64 {
		return one(t, after.points.named(name)).value - one(t, before.points.named(name)).value
	}
	a, b := after.truth, before.truth
	assert.InDelta(t, (sum(a.diskIn)-sum(b.diskIn))/mebi, grew("disk.in"), slackDisk/mebi)
	assert.InDelta(t, (sum(a.diskOut)-sum(b.diskOut))/mebi, grew("disk.out"), slackDisk/mebi)
	assert.InDelta(t, a.received-b.received, grew("network.recv"), slackNetwork)
	assert.InDelta(t, a.sent-b.sent, grew("network.sent"), slackNetwork)
	checkParts(t, after.points, "disk.in", "disk.device.in", a.diskIn)
	checkParts(t, after.points, "disk.out", "disk.device.out", a.diskOut)
	assert.Len(t, after.points.named("cpu"), 1, "from the second reading on")
}

// checkParts: the aggregate is the sum of the whole disks.
func checkParts(t *testing.T, ps points, whole, part string, disks map[string]float64) {
	t.Helper()
	parts := 0.0
	for device := range disks {
		parts += one(t, ps.named(part).with("device", device)).value
	}
	assert.InDelta(t, parts, one(t, ps.named(whole)).value, 1e-6)
}

// one returns the only point.
func one(t *testing.T, ps points) point {
	t.Helper()
	require.Len(t, ps, 1)
	return ps[0]
}

func TestCPUOfABusyProcess(t *testing.T) {
	target := startHelper(t, "burn")
	w := startWatch(t, target.pid(), "/")
	capacity := allowedCPUs(t, target.pid())
	full := 100 / capacity

	// One core is 100/CPUs, if the machine lets the process have a whole one;
	// what it did get is what the kernel says, however much that was.
	const enough, most = 6, 15
	shown, given, compared := 0.0, 0.0, 0
	for len(w.all()) < most && (compared < enough || shown < 3*full/4) {
		readings := w.more(1)
		last := len(readings) - 1
		if last < 2 {
			continue
		}
		before, after := readings[last-1].truth, readings[last].truth
		elapsed := after.at.Sub(before.at)
		if elapsed < watchInterval/2 || elapsed > 2*watchInterval {
			continue // a reading came late
		}
		want := 100 * float64(after.process.cpu-before.process.cpu) / float64(elapsed) / capacity
		got := one(t, readings[last].points.named("cpu")).value
		assert.InDelta(t, want, got, full/2)
		assert.Less(t, got, 5*full/4)
		shown, given, compared = max(shown, got), max(given, want), compared+1
	}
	require.Positive(t, compared)
	if given < 3*full/4 {
		t.Logf("the machine is too busy: the process got %.0f %% of a core at most", 100*given/full)
		return
	}
	assert.InDelta(t, full, shown, full/4, "one busy core")
}

func TestBytesWrittenShowInDiskOut(t *testing.T) {
	const size = 48 * mebi
	dir := t.TempDir()
	disk, why := diskOf(t, dir)
	if why != "" {
		t.Skip(why)
	}
	w := startWatch(t, os.Getpid(), dir)
	w.more(2)
	// Taken after a reading, so that nothing of the file is in it.
	before := w.sink.points()
	writeSynced(t, filepath.Join(dir, "data"), size)
	w.more(2)
	after := w.sink.points()

	for name, grew := range map[string]float64{
		"disk.out":        after.named("disk.out").last().value - before.named("disk.out").last().value,
		"disk.device.out": onDisk(after, disk) - onDisk(before, disk),
	} {
		assert.GreaterOrEqual(t, grew, float64(size)/mebi, name)
	}
}

func onDisk(ps points, disk string) float64 {
	return ps.named("disk.device.out").with("device", disk).last().value
}

func writeSynced(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.CopyN(f, rand.Reader, size)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func TestBytesOverLoopbackDoNotShowInNetwork(t *testing.T) {
	const size = 256 * mebi
	w := startWatch(t, os.Getpid(), "/")
	first := w.more(2)[1]
	sendOverLoopback(t, size)
	all := w.more(2)
	last := all[len(all)-1]

	require.GreaterOrEqual(t, last.truth.loopback-first.truth.loopback, float64(size), "the bytes went over the loopback")
	for _, name := range []string{"network.recv", "network.sent"} {
		grew := one(t, last.points.named(name)).value - one(t, first.points.named(name)).value
		assert.Less(t, grew, float64(size)/2, name)
	}
}

func sendOverLoopback(t *testing.T, size int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	received := make(chan int64, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			received <- 0
			return
		}
		n, _ := io.Copy(io.Discard, conn)
		received <- n
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	_, err = io.CopyN(conn, zeros{}, size)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, size, <-received)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestARestartStartsNewSums(t *testing.T) {
	const between = 32 * mebi
	dir := t.TempDir()
	first := startWatch(t, os.Getpid(), dir)
	first.more(2)
	writeSynced(t, filepath.Join(dir, "during"), between)
	first.more(2)
	first.stop()
	old := first.sink.points()
	writeSynced(t, filepath.Join(dir, "between"), between)

	second := startWatch(t, os.Getpid(), dir)
	readings := second.more(2)
	second.stop()
	for _, name := range []string{"disk.in", "disk.out", "network.recv", "network.sent"} {
		p := one(t, readings[0].points.named(name))
		assert.True(t, p.start.After(old.named(name).last().at), "%s starts anew", name)
	}
	checkSums(t, second.sink.points(), second.before.at)
	// Near 0: what was written before this run is not in it.
	checkMachine(t, readings[0], second.before)
	assert.Less(t, one(t, readings[0].points.named("disk.out")).value, float64(between)/mebi)
}
