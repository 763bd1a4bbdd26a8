// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// GPM's figures are those between two scrapes. Each is missing for itself.
func TestGPM(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true})
	key := func(id int, what string) string { return fmt.Sprintf("devices.0.gpm_metrics.%d.%s", id, what) }
	r.set(key(gpmSMActive, "value"), "inf", key(gpmSMOccupancy, "value"), "nan", key(gpmDRAM, "value"), "-1", key(gpmFP64, "ret"), 3,
		key(gpmFP32, "value"), 0, key(gpmFP16, "value"), 101.5)
	tags, _ := r.scrape()
	for tag := range tags {
		assert.NotRegexp(t, `Active$|Occupancy$|[TR]xBytes$`, tag)
	}
	tags, faults := r.scrape()
	assert.Empty(t, faults)
	for _, tag := range []string{"smActive", "smOccupancy", "dramActive", "pipeFp64Active"} {
		assert.NotContains(t, tags, "gpu.0."+tag)
	}
	assert.InDelta(t, 0, tags["gpu.0.pipeFp32Active"], 0)
	assert.InDelta(t, 101.5, tags["gpu.0.pipeFp16Active"], 0)
	assert.InDelta(t, gpmPCIeTx*mebi, tags["gpu.0.pcieTxBytes"], 0)
	assert.InDelta(t, gpmNVLinkRx*mebi, tags["gpu.0.nvlinkRxBytes"], 0)
}

// Without a good last sample there are no figures, and nothing is kept that
// could spoil the next.
func TestGPMWindow(t *testing.T) {
	for name, tt := range map[string]struct {
		disturb func(r *rig)
		calm    func(r *rig)
		missing int // scrapes without figures
	}{
		"a sample fails": {
			func(r *rig) { r.set("devices.0.gpm_sample.ret", 27) },
			func(r *rig) { r.set("devices.0.gpm_sample.ret", 0) }, 2,
		},
		"the window is too long":  {func(r *rig) { r.advance(maxWindow) }, func(*rig) {}, 1},
		"the window is too short": {func(r *rig) { r.advance(minWindow/2 - testInterval) }, func(*rig) {}, 1},
		"the clock goes back":     {func(r *rig) { r.advance(-time.Hour) }, func(*rig) {}, 1},
		"support is not known": {
			func(r *rig) { r.set("device_count.ret", 1, "ret.nvmlGpmQueryDeviceSupport", 999) },
			func(r *rig) {
				r.set("device_count.ret", 0)
				_, _ = r.scrape()
				r.unset("ret.nvmlGpmQueryDeviceSupport")
			}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, rigOptions{extended: true})
			_, _ = r.scrape()
			tags, _ := r.scrape()
			require.Contains(t, tags, "gpu.0.smActive")
			tt.disturb(r)
			tags, _ = r.scrape()
			assert.NotContains(t, tags, "gpu.0.smActive")
			tt.calm(r)
			for range tt.missing - 1 {
				tags, _ = r.scrape()
				assert.NotContains(t, tags, "gpu.0.smActive")
			}
			tags, faults := r.scrape()
			assert.Contains(t, tags, "gpu.0.smActive")
			assert.Empty(t, faults)
		})
	}
}

// No sample is taken that nobody asked for.
func TestGPMIsOff(t *testing.T) {
	for name, o := range map[string]rigOptions{
		"by default":        {},
		"profiling is off":  {extended: true, config: func(c *Config) { c.Profiling = profilingOff }},
		"not between opens": {extended: true, config: func(c *Config) { c.ReleaseDriverBetweenScrapes = true }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, o)
			for range 2 {
				_, _ = r.scrape()
				assert.NotContains(t, strings.Join(r.calls(), "\n"), "nvmlGpm")
			}
		})
	}
}

func TestXIDs(t *testing.T) {
	r := newRig(t, 2, rigOptions{extended: true})
	r.xid(0, 31) // before anybody listens
	tags, _ := r.scrape()
	since := r.now()
	assert.NotContains(t, tags, "gpu.0.xidErrors.31")
	delete(r.state, "events.#")
	r.xid(0, 79)
	r.xid(0, 79)
	r.xid(1, 48)
	for range 2 {
		md, err := r.scrapeWithin(t.Context())
		require.NoError(t, err)
		var found []string
		for _, p := range scraperstest.PointsOf(md) {
			if p.Metric.Name() == "gpu.xidErrors" {
				found = append(found, fmt.Sprint(p.Attributes["gpu_index"], p.Attributes["xid"], p.Value()))
				assert.Equal(t, since.UnixNano(), p.Data.StartTimestamp().AsTime().UnixNano())
			}
		}
		assert.ElementsMatch(t, []string{"0 79 2", "1 48 1"}, found)
	}
}

// A GPU that cannot be registered costs its own errors; the others are taken
// over into a new set.
func TestXIDRegistrationFails(t *testing.T) {
	r := newRig(t, 3, rigOptions{extended: true})
	r.set("ret.nvmlDeviceRegisterEvents.1", 999)
	_, faults := r.scrape()
	assert.Empty(t, faults)
	_, _ = r.scrape()
	for i := range 3 {
		r.xid(i, 40+i)
	}
	xids := 0
	md, _ := r.scrapeWithin(t.Context())
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "gpu.xidErrors" {
			xids++
			assert.NotEqual(t, int64(1), p.Attributes["gpu_index"])
		}
	}
	assert.Equal(t, 2, xids)
}

// Other kinds of events are no errors, and a flood of them has an end.
func TestXIDFlood(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true})
	_, _ = r.scrape()
	for range 3 {
		r.xid(0, 79)
		r.state[fmt.Sprintf("events.%d.type", len(r.state))] = "1"
	}
	r.set("events.0.type", 1)
	md, _ := r.scrapeWithin(t.Context())
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "gpu.xidErrors" {
			assert.InDelta(t, 2, p.Value(), 0)
		}
	}
	r.set("ret.nvmlEventSetWait_v2", 0) // an event each time, for ever
	_, faults := r.scrape()
	assert.Empty(t, faults)
	assert.Equal(t, maxDrained, r.count("nvmlEventSetWait_v2"))
}

// MIG works where the newer form of memory is not known yet.
func TestMIGWithOldMemory(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true})
	for key, value := range migBoard(0) {
		r.set(key, value)
	}
	r.set("ret.nvmlDeviceGetMemoryInfo_v2", 13)
	md, err := r.scrapeWithin(t.Context())
	require.NoError(t, err)
	got := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if strings.HasPrefix(p.Metric.Name(), "gpu.mig.") {
			got[p.Metric.Name()] = p.Value()
			assert.Equal(t, map[string]any{
				"gpu_index": int64(0), "gpu_vendor": "nvidia", "gpu_uuid": "MIG-0", "gpu_model": "NVIDIA H100 80GB HBM3",
				"mig_gi": int64(5), "mig_ci": int64(0), "mig_profile": "3g.40gb",
			}, p.Attributes)
		}
	}
	scraperstest.CompareTags(t, "mig", map[string]float64{"gpu.mig.memoryAllocated": 30, "gpu.mig.memoryAllocatedBytes": 300, "gpu.mig.memoryTotal": 1000}, got)
	tags := scraperstest.TagsOf(md)
	assert.NotContains(t, tags, "gpu.0.gpu")
	assert.Contains(t, tags, "gpu.0.temp")
}

// A board that is in MIG mode after the next reset only is a plain GPU.
func TestMIGIsPending(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	r.set("devices.0.mig_mode.ret", 0, "devices.0.mig_mode.current", 0, "devices.0.mig_mode.pending", 1)
	tags, _ := r.scrape()
	assert.Contains(t, tags, "gpu.0.gpu")
	assert.Zero(t, r.count("nvmlDeviceGetMaxMigDeviceCount"))
}

func TestMIGIsOff(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true, config: func(c *Config) { c.MIG = false }})
	for key, value := range migBoard(0) {
		r.set(key, value)
	}
	for range 2 {
		md, err := r.scrapeWithin(t.Context())
		require.NoError(t, err)
		for _, p := range scraperstest.PointsOf(md) {
			assert.NotContains(t, p.Metric.Name(), "gpu.mig.")
		}
		assert.Zero(t, r.count("nvmlDeviceGetMaxMigDeviceCount"))
	}
}

// Instances have GPM figures of their own, of each GPU instance once; one that
// is made anew under the same number begins anew.
func TestMIGProfiling(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true})
	for key, value := range migBoard(0) {
		r.set(key, value)
	}
	// A second compute instance in the same GPU instance.
	for key, value := range migBoard(0) {
		if rest, ok := strings.CutPrefix(key, "devices.0.mig.2."); ok {
			r.set("devices.0.mig.4."+rest, value)
		}
	}
	r.set("devices.0.mig.4.uuid.value", "MIG-second", "devices.0.mig.4.ci.value", 1)
	count := func() int {
		md, err := r.scrapeWithin(t.Context())
		require.NoError(t, err)
		n := 0
		for _, p := range scraperstest.PointsOf(md) {
			if p.Metric.Name() == "gpu.mig.smActive" {
				n++
				assert.InDelta(t, gpmSMActive, p.Value(), 0)
			}
		}
		return n
	}
	assert.Equal(t, 0, count())
	assert.Equal(t, 1, count())
	assert.Equal(t, 1, r.count("nvmlGpmMigSampleGet"))
	r.set("devices.0.mig.2.uuid.value", "MIG-anew")
	assert.Equal(t, 0, count())
	assert.Equal(t, 1, count())
}

// An instance that cannot be read is a fault of its board.
func TestMIGFault(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	for key, value := range migBoard(0) {
		r.set(key, value)
	}
	_, _ = r.scrape()
	r.set("devices.0.mig.2.memory_v2.ret", 999)
	tags, faults := r.scrape()
	assert.Equal(t, []string{"GPU 0"}, faults)
	assert.Contains(t, tags, "gpu.0.temp")
}

// Where the board's lists may not be read, those of the instances are.
func TestMIGProcesses(t *testing.T) {
	for name, lists := range map[string][]any{
		"no list of the board": {"devices.0.compute_processes.ret", 4, "devices.0.graphics_processes.ret", 4, "devices.0.mps_processes.ret", 4},
		"some are there":       {"devices.0.compute_processes.ret", 4, "devices.0.graphics_processes.ret", 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, rigOptions{extended: true, pid: 1000})
			for key, value := range migBoard(0) {
				r.set(key, value)
			}
			r.set(lists...)
			r.set("devices.0.mig.2.compute_processes.ret", 0, "devices.0.mig.2.compute_processes.list.#", 1,
				"devices.0.mig.2.compute_processes.list.0.pid", 1000, "devices.0.mig.2.compute_processes.list.0.used", 77)
			tags, faults := r.scrape()
			assert.Empty(t, faults)
			assert.InDelta(t, 77, tags["gpu.process.0.memoryUsedBytes"], 0)
			assert.Contains(t, tags, "gpu.process.0.temp")
		})
	}
}

// A list with rubbish in it is no list; the others count.
func TestProcessListsWithRubbish(t *testing.T) {
	list := func(kind string, fields ...any) []any {
		pairs := []any{"devices.0." + kind + "_processes.list.#", 2}
		for i := 0; i < len(fields); i += 2 {
			pairs = append(pairs, "devices.0."+kind+"_processes.list."+fields[i].(string), fields[i+1])
		}
		return pairs
	}
	for name, rubbish := range map[string][]any{
		"pid 0":                   list("compute", "1.pid", 0),
		"a pid beyond all":        list("compute", "1.pid", 4194305),
		"an instance beyond all":  list("compute", "1.pid", 5, "1.gi", 77),
		"a compute instance, too": list("compute", "1.pid", 5, "1.gi", 1, "1.ci", 16),
		"sizes that are a lie":    {"devices.0.compute_processes.ret", 7, "devices.0.compute_processes.list.#", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, rigOptions{extended: true, pid: 1000})
			r.set(rubbish...)
			tags, _ := r.scrape()
			assert.NotContains(t, tags, "gpu.process.0.temp")
			assert.Contains(t, tags, "gpu.0.temp")
			r.set("devices.0.mps_processes.list.#", 1, "devices.0.mps_processes.list.0.pid", 1000, "devices.0.mps_processes.list.0.used", 5)
			tags, _ = r.scrape()
			assert.InDelta(t, 5, tags["gpu.process.0.memoryUsedBytes"], 0)
		})
	}
}

// Many processes are read, the lists growing; one pid in several lists is one
// process, with the most memory that is known.
func TestProcessListsMerge(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true, pid: 1})
	r.set("devices.0.compute_processes.list.#", 100, "devices.0.graphics_processes.list.#", 1)
	for i := range 100 {
		r.set(fmt.Sprintf("devices.0.compute_processes.list.%d.pid", i), 2000+i, fmt.Sprintf("devices.0.compute_processes.list.%d.used", i), 1)
		r.machine.Process(2000+i, 1, "worker")
	}
	r.set("devices.0.compute_processes.list.7.used", "18446744073709551615",
		"devices.0.graphics_processes.list.0.pid", 2007, "devices.0.graphics_processes.list.0.used", 50)
	tags, faults := r.scrape()
	assert.Empty(t, faults)
	assert.InDelta(t, 99+50, tags["gpu.process.0.memoryUsedBytes"], 0)
}

// Drivers that write entries of another size are not asked for any.
func TestBrokenProcessLists(t *testing.T) {
	if runChild(t, buildStub(t, "nvmlDeviceGetRunningProcessDetailList")) {
		return
	}
	r := newRig(t, 1, rigOptions{extended: true, pid: 1000})
	r.set("process_v3_stride", 32, "devices.0.compute_processes.list.#", 3)
	for range 2 {
		tags, faults := r.scrape()
		assert.Contains(t, tags, "gpu.0.temp")
		assert.NotContains(t, tags, "gpu.process.0.temp")
		assert.Empty(t, faults)
		assert.NotContains(t, strings.Join(r.calls(), "\n"), "RunningProcesses")
	}
	assert.Len(t, r.said(), 1)
}

// In a pid namespace of our own nothing is matched, which is said once, and only
// where there is something to match.
func TestPrivateNamespace(t *testing.T) {
	r := newRig(t, 1, rigOptions{pid: 1000, foreign: true})
	r.set("devices.0.compute_processes.list.#", 0)
	_, _ = r.scrape()
	assert.Empty(t, r.said())
	r.set("devices.0.compute_processes.list.#", 1)
	for range 3 {
		tags, faults := r.scrape()
		assert.NotContains(t, tags, "gpu.process.0.temp")
		assert.Contains(t, tags, "gpu.0.temp")
		assert.Empty(t, faults)
	}
	require.Len(t, r.said(), 1)
	assert.Contains(t, r.said()[0], "GPUs are not attributed to workloads")
	r.machine.Process(2, 0, "kthreadd")
	tags, _ := r.scrape()
	assert.Contains(t, tags, "gpu.process.0.temp")
}

// Unified memory is what the processes have of the machine's; the lists are read
// once.
func TestUnifiedMemory(t *testing.T) {
	r := newRig(t, 1, rigOptions{pid: 1000})
	r.machine.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 500 kB\n")
	r.set("devices.0.memory_v2.ret", 3, "devices.0.memory_v1.ret", 3, "devices.0.name.value", "NVIDIA GB10")
	tags, faults := r.scrape()
	assert.Empty(t, faults)
	assert.InDelta(t, 30000, tags["gpu.0.memoryAllocatedBytes"], 0)
	assert.Equal(t, 1, r.count("nvmlDeviceGetComputeRunningProcesses_v3"))
	for name, tt := range map[string]struct {
		pairs []any
		want  bool
	}{
		"no process":                {[]any{"devices.0.compute_processes.list.#", 0}, true},
		"more than the machine has": {[]any{"devices.0.compute_processes.list.0.used", 1 << 30}, false},
		"lists that are not told":   {[]any{"devices.0.compute_processes.ret", 3, "devices.0.graphics_processes.ret", 3, "devices.0.mps_processes.ret", 3}, false},
		"a GPU with memory":         {[]any{"devices.0.name.value", "NVIDIA GH200 480GB"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, rigOptions{})
			r.machine.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 500 kB\n")
			r.set("devices.0.memory_v2.ret", 3, "devices.0.memory_v1.ret", 3, "devices.0.name.value", "Jetson Thor")
			r.set(tt.pairs...)
			tags, _ := r.scrape()
			_, there := tags["gpu.0.memoryAllocatedBytes"]
			assert.Equal(t, tt.want, there)
		})
	}
}
