// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { collectorRoles["private-pids"] = hidePids }

// hidePids mounts the procfs of a pid namespace of its own. The machine's is below
// the place.
func hidePids(place string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("/proc", filepath.Join(place, "proc"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("the machine's /proc: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting proc: %w", err)
	}
	return nil
}

// skipUnlessMachine skips where the test itself does not see the machine's pids.
func skipUnlessMachine(t *testing.T) {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	if link != "pid:[4026531836]" {
		t.Skip("the test has a pid namespace of its own")
	}
}

// processMetrics repeat a figure of the GPU for each process that uses it; true
// are those that are on by default.
var processMetrics = map[bool][]string{
	true: {"gpu", "memory", "memoryAllocated", "memoryAllocatedBytes", "temp", "powerWatts", "powerPercent"},
	false: {
		"enforcedPowerLimitWatts", "encoderUtilization", "graphicsClock", "smClock", "memoryClock",
		"correctedMemoryErrors", "unCorrectedMemoryErrors",
	},
}

// usedFigures are the series of a process on some GPUs, where it has memory of its own;
// without extended only those that are on by default.
func usedFigures(gpus []gpu, memory map[int]int, extended bool) map[string]float64 {
	all := map[string]float64{}
	for index, bytes := range memory {
		figures := gpus[index].figures(index)
		for byDefault, names := range processMetrics {
			for _, name := range names {
				if byDefault || extended {
					all[gpus[index].series(index, "gpu.process."+name)] = figures[gpus[index].series(index, "gpu."+name)]
				}
			}
		}
		if extended {
			all[gpus[index].series(index, "gpu.process.memoryUsedBytes")] = float64(bytes)
		}
	}
	return all
}

// startFamily starts a tree of processes.
func startFamily(t *testing.T) (root treeRoot, children []int) {
	t.Helper()
	root = startRoot(t, "family")
	_, line, _ := strings.Cut(root.stdout.String(), "children ")
	line, _, _ = strings.Cut(line, "\n")
	for field := range strings.FieldsSeq(line) {
		children = append(children, int(number(t, field)))
	}
	require.Len(t, children, 3)
	return root, children
}

func TestGPUsOfProcesses(t *testing.T) {
	skipUnlessMachine(t)
	gpus := fullGPUs(4)
	root, children := startFamily(t)
	stranger := startHelper(t, "idle")
	const ended = 4_194_000 // above what pids here reach
	d := startDriver(t, gpus...)
	d.hold(0, map[int]int{children[0]: 10 * gibi, children[1]: 3 * gibi})
	d.hold(1, map[int]int{children[2]: 7 * gibi, stranger.pid(): gibi, ended: gibi})
	d.hold(2, map[int]int{stranger.pid(): 2 * gibi})
	var receivers strings.Builder
	for host, more := range map[string]string{
		"pid":   fmt.Sprintf("extended: true, workloads: {pid: %d, discover: []}", root.pid()),
		"plain": fmt.Sprintf("workloads: {pid: %d, discover: []}", root.pid()),
		"alone": fmt.Sprintf("extended: true, workloads: {pid: %d, discover: [], track_process_tree: false}", root.pid()),
		"both":  fmt.Sprintf("extended: true, workloads: {pid: %d, discover: [gpu]}", root.pid()),
		"gpu":   "extended: true, workloads: {discover: [gpu]}",
		"none":  "extended: true, workloads: {discover: []}",
	} {
		receivers.WriteString(d.receiver(host, more))
	}
	x := startTroubled(t, d, receivers.String())
	of := func(host string, pid int) func() points {
		return func() points {
			return x.sink.points().of(host, pid).filter(func(p point) bool { return strings.HasPrefix(p.name, "gpu.process.") })
		}
	}
	check := func(t *testing.T, host string, pid int, memory map[int]int) points {
		t.Helper()
		want := usedFigures(gpus, memory, host != "plain")
		got := x.waitForScrape(fmt.Sprintf("process %d of %s", pid, host), len(want), of(host, pid))
		checkFigures(t, want, got)
		return got
	}
	tree := map[int]int{0: 13 * gibi, 1: 7 * gibi}
	strangers := map[int]int{1: gibi, 2: 2 * gibi}
	t.Run("a tree", func(t *testing.T) {
		check(t, "plain", root.pid(), tree)
		for _, p := range check(t, "pid", root.pid(), tree) {
			assert.Equal(t, "process", p.resource["wandbsys.workload.kind"])
			assert.Equal(t, fmt.Sprintf("pid/pid-%d", root.pid()), p.resource["service.instance.id"])
		}
		assert.Equal(t, []string{strconv.Itoa(root.pid())}, x.holders("pid"))
	})
	t.Run("the root alone holds none", func(t *testing.T) {
		x.more("alone", 2, 0)
		assert.Empty(t, x.holders("alone"))
	})
	t.Run("nobody is asked for", func(t *testing.T) {
		x.more("none", 2, 0)
		assert.Empty(t, x.holders("none"))
	})
	t.Run("a tree, and who else holds one", func(t *testing.T) {
		check(t, "both", root.pid(), tree)
		for _, p := range check(t, "both", stranger.pid(), strangers) {
			assert.Equal(t, "gpu", p.resource["wandbsys.workload.kind"])
		}
		assert.ElementsMatch(t, []string{strconv.Itoa(root.pid()), strconv.Itoa(stranger.pid())}, x.holders("both"))
	})
	t.Run("each that holds one", func(t *testing.T) {
		check(t, "gpu", children[0], map[int]int{0: 10 * gibi})
		check(t, "gpu", children[1], map[int]int{0: 3 * gibi})
		check(t, "gpu", children[2], map[int]int{1: 7 * gibi})
		check(t, "gpu", stranger.pid(), strangers)
		assert.Len(t, x.holders("gpu"), 4)
		x.waitFor("its own figures", func() bool { return len(x.sink.points().of("gpu", stranger.pid()).named("proc.memory.rssMB")) > 0 })
	})
	t.Run("a GPU that is left", func(t *testing.T) {
		d.hold(0, nil)
		d.hold(3, map[int]int{root.pid(): 5 * gibi})
		tree = map[int]int{1: 7 * gibi, 3: 5 * gibi}
		x.waitFor("the new one", func() bool { return len(of("pid", root.pid())().ofGPU(3)) > 0 })
		check(t, "pid", root.pid(), tree)
		x.waitFor("the end of a workload", func() bool {
			now := x.sink.points().from("gpu").named("gpu.process.temp").lastScrape()
			return len(now) > 0 && len(now.ofPid(children[0])) == 0
		})
	})
	t.Run("a process that ends", func(t *testing.T) {
		stranger.kill()
		gone := time.Now()
		x.more("both", 4, 1)
		assert.LessOrEqual(t, of("both", stranger.pid())().scrapesAfter(gone), 1, "the driver lists it still")
		check(t, "both", root.pid(), tree)
	})
	t.Run("the log is calm", func(t *testing.T) {
		assert.Empty(t, append(familyLines(x.process, "nvidia", "warn"), familyLines(x.process, "nvidia", "error")...))
	})
}

// holders are the processes with GPUs of their own.
func (x *troubled) holders(host string) []string {
	pids := map[string]bool{}
	for _, p := range x.sink.points().from(host) {
		if strings.HasPrefix(p.name, "gpu.process.") {
			pids[fmt.Sprint(p.resource["process.pid"])] = true
		}
	}
	return slices.Sorted(maps.Keys(pids))
}

// Found by default: a training that uses a GPU with its children.
func TestGPUsOfARun(t *testing.T) {
	skipUnlessMachine(t)
	gpus := fullGPUs(2)
	d := startDriver(t, gpus...)
	tr := startTraining(t, training{work: "idle", runs: []string{"run-20260102_030405-abc123/run-abc123.wandb"}})
	d.hold(1, map[int]int{tr.pid(): 4 * gibi, tr.core: gibi})
	x := startTroubled(t, d, d.receiver("node", "extended: true"))
	want := usedFigures(gpus, map[int]int{1: 4 * gibi}, true)
	ofRun := func() points {
		return x.sink.points().ofRun("abc123").filter(func(p point) bool { return strings.HasPrefix(p.name, "gpu.process.") })
	}
	got := x.waitForScrape("the run's GPU", len(want), ofRun)
	checkFigures(t, want, got)
	assert.Equal(t, tr.resource("node", "abc123", nil), apart(got.last().resource))
	assert.Len(t, x.holders("node"), 1, "W&B's own processes are nobody's work")
}

// The driver tells the machine's pids, which are other processes in a namespace.
func TestGPUsOfProcessesFromAPidNamespace(t *testing.T) {
	skipUnlessMachine(t)
	gpus, target, place := fullGPUs(2), startHelper(t, "idle"), publicDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(place, "proc"), 0o755))
	d, s := startDriver(t, gpus...), startSink(t, nil)
	config := settings{
		receivers: d.receiver("inside", "workloads: {pid: self, discover: [gpu]}") +
			d.receiver("mounted", fmt.Sprintf("root_path: %s, workloads: {pid: %d, discover: [gpu]}", place, target.pid())),
		exporters: s.exporter(),
	}.write(t)
	t.Setenv("NVML_STUB", d.folder)
	p := startCollectorIn(t, "private-pids", place, config, inContainer(t, unix.CLONE_NEWPID|unix.CLONE_NEWNS))
	d.hold(0, map[int]int{1: gibi, p.pid(): gibi}) // its pid inside, and outside
	d.hold(1, map[int]int{target.pid(): 6 * gibi})
	began := time.Now()
	p.waitFor("many scrapes", func() bool { return len(s.points().from("inside").named("gpu.temp").ofGPU(0).after(began)) >= many })

	for _, point := range s.points().from("inside").ofGPUs() {
		require.Nil(t, point.resource["process.pid"], point.name)
	}
	warnings := familyLines(p, "nvidia", "warn")
	require.Len(t, warnings, 1)
	assert.Equal(t, "wandbsys/inside", warnings[0].Component)
	assert.Contains(t, warnings[0].Msg, "GPUs are not attributed to workloads")
	assert.Contains(t, warnings[0].Cure, "run the collector in the machine's pid namespace (hostPID)")
	assert.Empty(t, familyLines(p, "nvidia", "error"))
	t.Run("with the machine's /proc", func(t *testing.T) {
		want := usedFigures(gpus, map[int]int{1: 6 * gibi}, false)
		checkFigures(t, want, p.waitForScrape("the process' GPU", len(want), func() points {
			return s.points().of("mounted", target.pid()).filter(func(p point) bool { return strings.HasPrefix(p.name, "gpu.process.") })
		}))
	})
}
