// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// One failure of the newer call does not bring the older one's figure, in which
// what is reserved counts as used.
func TestMemoryFormsDoNotMix(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	tags, _ := r.scrape()
	assert.InDelta(t, 40000, tags["gpu.0.memoryAllocatedBytes"], 0)
	r.set("devices.0.memory_v2.ret", 999)
	tags, faults := r.scrape()
	assert.NotContains(t, tags, "gpu.0.memoryAllocatedBytes")
	assert.NotContains(t, tags, "gpu.0.memoryAllocated")
	assert.Contains(t, tags, "gpu.0.temp")
	assert.Equal(t, []string{"GPU 0"}, faults)
	assert.Zero(t, r.count("nvmlDeviceGetMemoryInfo"))
	r.set("devices.0.memory_v2.ret", 0)
	tags, faults = r.scrape()
	assert.InDelta(t, 40000, tags["gpu.0.memoryAllocatedBytes"], 0)
	assert.Empty(t, faults)
}

// Where the newer call never worked the older one is used for good.
func TestMemoryFallsBackForGood(t *testing.T) {
	for _, c := range []int{3, 13, 25, 26, 999} {
		r := newRig(t, 1, rigOptions{})
		r.set("devices.0.memory_v2.ret", c)
		tags, faults := r.scrape()
		assert.InDelta(t, 41000, tags["gpu.0.memoryAllocatedBytes"], 0, c)
		assert.Empty(t, faults, c)
		r.set("devices.0.memory_v2.ret", 0)
		tags, _ = r.scrape()
		assert.InDelta(t, 41000, tags["gpu.0.memoryAllocatedBytes"], 0, c)
		assert.Zero(t, r.count("nvmlDeviceGetMemoryInfo_v2"), c)
	}
}

// Also when the driver is released in between.
func TestMemoryFormOutlivesRelease(t *testing.T) {
	r := newRig(t, 1, rigOptions{config: func(c *Config) { c.ReleaseDriverBetweenScrapes = true }})
	_, _ = r.scrape()
	r.set("devices.0.memory_v2.ret", 999)
	tags, _ := r.scrape()
	assert.NotContains(t, tags, "gpu.0.memoryAllocatedBytes")
}

func TestMemoryWithoutSense(t *testing.T) {
	for name, pairs := range map[string][]any{
		"none":                 {"devices.0.memory_v2.total", 0, "devices.0.memory_v1.total", 0},
		"more used than there": {"devices.0.memory_v2.used", 80001},
		"not available":        {"devices.0.memory_v2.total", "18446744073709551615", "devices.0.memory_v2.used", "18446744073709551615"},
		"no right":             {"devices.0.memory_v2.ret", 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, rigOptions{extended: true})
			r.set(pairs...)
			tags, faults := r.scrape()
			assert.Empty(t, faults)
			assert.NotContains(t, tags, "gpu.0.memoryAllocatedBytes")
			assert.NotContains(t, tags, "gpu.0.memoryAllocated")
			assert.NotContains(t, tags, "gpu.0.memoryTotal")
			assert.Contains(t, tags, "gpu.0.temp")
		})
	}
}

// A driver that comes later is found, and opened once.
func TestDriverIsLoadedLater(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	r.set("init.ret", 9)
	tags, faults := r.scrape()
	assert.Empty(t, tags)
	assert.Equal(t, []string{"absent"}, faults)
	r.set("init.ret", 0)
	tags, faults = r.scrape()
	assert.Contains(t, tags, "gpu.0.temp")
	assert.Empty(t, faults)
	_, _ = r.scrape()
	assert.Zero(t, r.count("nvmlInit_v2"))
}

// A driver that was there and fails is a fault, one and the same until it works
// again; it is tried less and less often.
func TestDriverFailsMidRun(t *testing.T) {
	for _, c := range []int{1, 9, 18, 28} {
		r := newRig(t, 2, rigOptions{})
		_, faults := r.scrape()
		require.Empty(t, faults)
		r.set("device_count.ret", c, "init.ret", c)
		inits := 0
		for range 40 {
			tags, faults := r.scrape()
			assert.Empty(t, tags, c)
			assert.Equal(t, []string{"NVML"}, faults, c)
			inits += r.count("nvmlInit_v2")
		}
		assert.LessOrEqual(t, inits, 8, c)
		assert.GreaterOrEqual(t, inits, 5, c)
		r.set("device_count.ret", 0, "init.ret", 0)
		r.advance(maxBackoff)
		tags, faults := r.scrape()
		assert.Equal(t, []string{"0", "1"}, gpusOf(tags), c)
		assert.Empty(t, faults, c)
	}
}

func TestDriverFailureSaysWhatHelps(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	_, _ = r.scrape()
	r.set("device_count.ret", 18)
	_, err := r.scrapeWithin(t.Context())
	assert.EqualError(t, err, "NVML: library and driver are of different versions; the driver was upgraded underneath: reload it, then restart the collector")
}

// What is the matter with a GPU is said with what helps.
func TestLostGPUSaysWhatHelps(t *testing.T) {
	for c, want := range map[int]string{
		15: "GPU 0: is lost (fell off the bus): GPU_IS_LOST (15); reset it, or the machine",
		16: "GPU 0: needs a reset before it can be used: RESET_REQUIRED (16); reset it with nvidia-smi --gpu-reset",
	} {
		r := newRig(t, 1, rigOptions{})
		r.set("devices.0.handle.ret", c)
		_, err := r.scrapeWithin(t.Context())
		require.EqualError(t, err, want)
	}
}

// A device-level "uninitialized" concerns the library.
func TestUninitializedDevice(t *testing.T) {
	r := newRig(t, 2, rigOptions{})
	r.set("ret.nvmlDeviceGetPowerUsage.1", 1)
	tags, faults := r.scrape()
	assert.Equal(t, []string{"0"}, gpusOf(tags))
	assert.Equal(t, []string{"NVML"}, faults)
	r.unset("ret.nvmlDeviceGetPowerUsage.1")
	tags, faults = r.scrape()
	assert.Equal(t, 1, r.count("nvmlInit_v2"))
	assert.Equal(t, []string{"0", "1"}, gpusOf(tags))
	assert.Empty(t, faults)
}

// All GPUs lost: the library is opened anew once at the next scrape, then less
// and less often. The faults stay the same meanwhile.
func TestAllGPUsLost(t *testing.T) {
	r := newRig(t, 2, rigOptions{})
	_, _ = r.scrape()
	r.set("devices.0.handle.ret", 15, "devices.1.handle.ret", 16)
	_, faults := r.scrape()
	assert.Equal(t, []string{"GPU 0", "GPU 1"}, faults)
	_, _ = r.scrape()
	assert.Equal(t, 1, r.count("nvmlInit_v2"))
	inits := 0
	for range 40 {
		_, faults = r.scrape()
		assert.Equal(t, []string{"GPU 0", "GPU 1"}, faults)
		inits += r.count("nvmlInit_v2")
	}
	assert.LessOrEqual(t, inits, 6)
	r.set("devices.0.handle.ret", 0, "devices.1.handle.ret", 0)
	r.advance(maxBackoff)
	tags, faults := r.scrape()
	assert.Equal(t, []string{"0", "1"}, gpusOf(tags))
	assert.Empty(t, faults)
}

// A GPU that is lost costs itself only, with one call; the others keep their
// numbers. It is there again as soon as it answers, and counts anew.
func TestLostGPUReturns(t *testing.T) {
	for _, c := range []int{15, 16, 28} {
		r := newRig(t, 3, rigOptions{})
		first, _ := r.scrapeWithin(t.Context())
		start := startOf(t, first, "gpu.correctedMemoryErrors", 1)
		r.set("devices.1.handle.ret", c)
		tags, faults := r.scrape()
		assert.Equal(t, []string{"0", "2"}, gpusOf(tags), c)
		assert.Equal(t, []string{"GPU 1"}, faults, c)
		assert.Zero(t, r.count("nvmlInit_v2"), c)
		for _, call := range r.calls() {
			assert.False(t, len(call) > 2 && call[len(call)-2:] == " 1" && call != "nvmlDeviceGetHandleByIndex_v2 1", call)
		}
		r.set("devices.1.handle.ret", 0)
		md, err := r.scrapeWithin(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"0", "1", "2"}, gpusOf(scraperstest.TagsOf(md)), c)
		assert.Greater(t, startOf(t, md, "gpu.correctedMemoryErrors", 1), start, c)
		assert.Equal(t, start, startOf(t, md, "gpu.correctedMemoryErrors", 0), c)
	}
}

// Others must not step in for a GPU that is read here, also while it cannot be
// read. One that is gone is free.
func TestMeasuredGPUsAreTold(t *testing.T) {
	r := newRig(t, 2, rigOptions{})
	var measured gpus.Measured
	r.scraper.measured = &measured
	told := func() []bool { return []bool{measured.Has("GPU-0"), measured.Has("GPU-1")} }

	r.scrape()
	assert.Equal(t, []bool{true, true}, told())
	r.set("devices.1.handle.ret", 15)
	r.scrape()
	assert.Equal(t, []bool{true, true}, told(), "lost")
	r.set("devices.1.handle.ret", 0, "device_count.ret", 999)
	r.scrape()
	assert.Equal(t, []bool{true, true}, told(), "nothing could be asked")
	r.set("device_count.ret", 0, "device_count.value", 1)
	r.scrape()
	assert.Equal(t, []bool{true, false}, told(), "gone")
	assert.True(t, measured.Known())
}

// A GPU that is lost while it is read is asked nothing more, and gives nothing.
func TestGPUIsLostMidRead(t *testing.T) {
	for _, c := range []int{15, 16, 28} {
		r := newRig(t, 2, rigOptions{extended: true})
		r.set("ret.nvmlDeviceGetTemperature.0", c)
		tags, faults := r.scrape()
		assert.Equal(t, []string{"1"}, gpusOf(tags), c)
		assert.Equal(t, []string{"GPU 0"}, faults, c)
		calls := r.calls()
		for i, call := range calls {
			if call == "nvmlDeviceGetTemperature 0" {
				for _, later := range calls[i+1:] {
					assert.NotRegexp(t, ` 0$`, later, c)
				}
			}
		}
	}
}

// A handle that cannot be had just now is a fault; one that may not be had is
// not, and is said once.
func TestHandleFails(t *testing.T) {
	r := newRig(t, 2, rigOptions{})
	r.set("devices.0.handle.ret", 999)
	tags, faults := r.scrape()
	assert.Equal(t, []string{"1"}, gpusOf(tags))
	assert.Equal(t, []string{"GPU 0"}, faults)
	r.set("devices.0.handle.ret", 4)
	for range 2 {
		tags, faults = r.scrape()
		assert.Equal(t, []string{"1"}, gpusOf(tags))
		assert.Empty(t, faults)
	}
	assert.Equal(t, []string{"No right to see a GPU; it is left out"}, r.said())
}

// Counters belong to the UUID: when GPUs swap their numbers, so do start times.
func TestCountersFollowTheUUID(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	md, _ := r.scrapeWithin(t.Context())
	first := startOf(t, md, "gpu.correctedMemoryErrors", 0)
	r.gpus(2)
	md, _ = r.scrapeWithin(t.Context())
	second := startOf(t, md, "gpu.correctedMemoryErrors", 1)
	require.Greater(t, second, first)
	r.set("devices.0.uuid.value", "GPU-1", "devices.1.uuid.value", "GPU-0")
	md, _ = r.scrapeWithin(t.Context())
	assert.Equal(t, second, startOf(t, md, "gpu.correctedMemoryErrors", 0))
	assert.Equal(t, first, startOf(t, md, "gpu.correctedMemoryErrors", 1))
}

// A count that falls began anew after the last reading before; all begin anew
// with the library.
func TestCountersBeginAnew(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	md, _ := r.scrapeWithin(t.Context())
	first := startOf(t, md, "gpu.correctedMemoryErrors", 0)
	md, _ = r.scrapeWithin(t.Context())
	assert.Equal(t, first, startOf(t, md, "gpu.correctedMemoryErrors", 0))
	before := r.now()
	r.set("devices.0.ecc_corrected_volatile_2.value", 1)
	md, _ = r.scrapeWithin(t.Context())
	assert.Equal(t, before.UnixNano(), startOf(t, md, "gpu.correctedMemoryErrors", 0))
	assert.Equal(t, first, startOf(t, md, "gpu.unCorrectedMemoryErrors", 0))
	r.set("device_count.ret", 9)
	_, _ = r.scrapeWithin(t.Context())
	r.set("device_count.ret", 0)
	md, _ = r.scrapeWithin(t.Context())
	assert.Equal(t, r.now().UnixNano(), startOf(t, md, "gpu.correctedMemoryErrors", 0))
	assert.Equal(t, r.now().UnixNano(), startOf(t, md, "gpu.unCorrectedMemoryErrors", 0))
}

// startOf is the start time of a counter of a GPU.
func startOf(t *testing.T, md pmetric.Metrics, metric string, gpu int64) int64 {
	t.Helper()
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == metric && p.Attributes["gpu_index"] == gpu {
			return p.Data.StartTimestamp().AsTime().UnixNano()
		}
	}
	t.Fatalf("no %s of GPU %d", metric, gpu)
	return 0
}

// A GPU that is pulled out and put in again is left out meanwhile, and its
// samples are given back.
func TestHotPlug(t *testing.T) {
	r := newRig(t, 2, rigOptions{extended: true})
	for range 2 {
		_, _ = r.scrape()
	}
	r.set("device_count.value", 1)
	tags, faults := r.scrape()
	assert.Equal(t, []string{"0"}, gpusOf(tags))
	assert.Empty(t, faults)
	assert.Equal(t, 2, r.count("nvmlGpmSampleFree"))
	r.set("device_count.value", 2)
	tags, faults = r.scrape()
	assert.Equal(t, []string{"0", "1"}, gpusOf(tags))
	assert.Empty(t, faults)
	assert.Equal(t, 1, r.count("nvmlDeviceRegisterEvents"))
	assert.Contains(t, tags, "gpu.0.smActive")
	assert.NotContains(t, tags, "gpu.1.smActive")
	tags, _ = r.scrape()
	assert.Contains(t, tags, "gpu.1.smActive")
}

// A GPU that sleeps is asked nothing; the others keep their numbers.
func TestSuspendedGPUSleepsOn(t *testing.T) {
	r := newRig(t, 2, rigOptions{extended: true, config: func(c *Config) { c.SkipSuspended = true }})
	gpuOnBus(r.machine, "0000:11:00.0", "active")
	r.machine.Write("sys/bus/pci/devices/0000:12:00.0/vendor", "0x8086\n")
	for _, status := range []string{"suspended", "suspending"} {
		gpuOnBus(r.machine, "0000:10:00.0", status)
		tags, faults := r.scrape()
		assert.Equal(t, []string{"1"}, gpusOf(tags))
		assert.Empty(t, faults)
		for _, call := range r.calls() {
			assert.NotRegexp(t, ` (0|0000:10:00\.0|0000:12:00\.0)$`, call)
		}
	}
	gpuOnBus(r.machine, "0000:10:00.0", "active")
	tags, _ := r.scrape()
	assert.Equal(t, []string{"0", "1"}, gpusOf(tags))
	assert.Zero(t, r.count("nvmlDeviceGetHandleByIndex_v2"))
}

func TestSuspendedAndSelected(t *testing.T) {
	for name, tt := range map[string]struct {
		ids  []any
		want []string
	}{
		"by number":      {[]any{1}, []string{"1"}},
		"by UUID":        {[]any{"GPU-0"}, []string{"0"}},
		"by PCI address": {[]any{"00000000:11:00.0"}, []string{"1"}},
		"by all":         {[]any{0, "GPU-0", "10:00.0"}, []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, rigOptions{config: func(c *Config) { c.SkipSuspended, c.DeviceIDs = true, tt.ids }})
			gpuOnBus(r.machine, "0000:10:00.0", "active")
			gpuOnBus(r.machine, "0000:11:00.0", "active")
			tags, faults := r.scrape()
			assert.Equal(t, tt.want, gpusOf(tags))
			assert.Empty(t, faults)
			assert.Empty(t, r.said())
		})
	}
}

// What device_ids does not name is not touched, numbers stay, and an entry that
// fits nothing is told once.
func TestDeviceIDs(t *testing.T) {
	for name, tt := range map[string]struct {
		ids       []any
		want      []string
		untouched string
		said      []string
	}{
		"by number":            {[]any{1}, []string{"1"}, ` [02]$`, nil},
		"by UUID":              {[]any{"GPU-2"}, []string{"2"}, ` [01]$`, nil},
		"by PCI address":       {[]any{"11:00.0"}, []string{"1"}, ` [02]$`, nil},
		"by long PCI address":  {[]any{"00000000:12:00.0"}, []string{"2"}, ` [01]$`, nil},
		"one in three ways":    {[]any{"1", "GPU-1", "0000:11:00.0"}, []string{"1"}, ` [02]$`, nil},
		"some that are not":    {[]any{"7", "GPU-9", "0000:aa:00.0", "0"}, []string{"0"}, ` [12]$`, []string{"There is no such GPU", "There is no such GPU", "There is no such GPU"}},
		"none that are there ": {[]any{"7"}, nil, ` [012]$`, []string{"There is no such GPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 3, rigOptions{extended: true, config: func(c *Config) { c.DeviceIDs = tt.ids }})
			for range 2 {
				tags, faults := r.scrape()
				assert.Equal(t, tt.want, gpusOf(tags))
				assert.Empty(t, faults)
				for _, call := range r.calls() {
					assert.NotRegexp(t, tt.untouched, call)
				}
			}
			assert.Equal(t, tt.said, r.said())
		})
	}
}

// The driver is free between scrapes, and nothing is kept open that needs it.
func TestDriverIsReleased(t *testing.T) {
	r := newRig(t, 1, rigOptions{extended: true, config: func(c *Config) { c.ReleaseDriverBetweenScrapes = true }})
	var starts []int64
	for range 3 {
		md, err := r.scrapeWithin(t.Context())
		require.NoError(t, err)
		assert.Contains(t, scraperstest.TagsOf(md), "gpu.0.temp")
		calls := r.calls()
		assert.Equal(t, "nvmlInit_v2", calls[0])
		assert.Equal(t, "nvmlShutdown", calls[len(calls)-1])
		assert.Equal(t, 1, r.count("nvmlInit_v2"))
		assert.Equal(t, 1, r.count("nvmlShutdown"))
		for _, call := range calls {
			assert.NotRegexp(t, `Gpm|Event(Set|s)`, call)
		}
		starts = append(starts, startOf(t, md, "gpu.correctedMemoryErrors", 0))
	}
	assert.Equal(t, []int64{starts[0], starts[0], starts[0]}, starts)
	// Faults end the same way.
	r.set("device_count.ret", 18)
	_, faults := r.scrape()
	assert.Equal(t, []string{"NVML"}, faults)
	assert.Equal(t, 1, r.count("nvmlShutdown"))
}

// No GPU is no trouble.
func TestNoGPU(t *testing.T) {
	r := newRig(t, 0, rigOptions{extended: true})
	tags, faults := r.scrape()
	assert.Empty(t, tags)
	assert.Empty(t, faults)
	r.gpus(1)
	tags, _ = r.scrape()
	assert.Equal(t, []string{"0"}, gpusOf(tags))
}

// One failing call costs its own figure, this once.
func TestFailingCall(t *testing.T) {
	for function, tag := range map[string]string{
		"nvmlDeviceGetUtilizationRates": "gpu.0.gpu", "nvmlDeviceGetTemperature": "gpu.0.temp", "nvmlDeviceGetPowerUsage": "gpu.0.powerWatts",
		"nvmlDeviceGetEnforcedPowerLimit": "gpu.0.powerPercent", "nvmlDeviceGetClockInfo": "gpu.0.smClock",
		"nvmlDeviceGetMemoryErrorCounter": "gpu.0.correctedMemoryErrors", "nvmlDeviceGetEncoderUtilization": "gpu.0.encoderUtilization",
		"nvmlDeviceGetFanSpeed": "gpu.0.fanSpeed", "nvmlDeviceGetTotalEnergyConsumption": "gpu.0.energy", "nvmlGpmMetricsGet": "gpu.0.smActive",
		"nvmlDeviceGetCurrentClocksEventReasons": "gpu.0.clockEventActive.gpu_idle", "nvmlDeviceGetRetiredPages": "gpu.0.retiredPages.single_bit",
	} {
		t.Run(function, func(t *testing.T) {
			r := newRig(t, 1, rigOptions{extended: true})
			r.set("devices.0.temperature_v.ret", 3)
			_, _ = r.scrape()
			before, faults := r.scrape()
			require.Contains(t, before, tag)
			require.Empty(t, faults)
			for _, c := range []int{3, 999, 10, 4, 21} {
				r.set("ret."+function, c)
				tags, faults := r.scrape()
				assert.NotContains(t, tags, tag)
				assert.Contains(t, tags, "gpu.0.memoryAllocated")
				if c == 999 || c == 10 {
					assert.Equal(t, []string{"GPU 0"}, faults, c)
				} else {
					assert.Empty(t, faults, c)
				}
			}
			r.unset("ret." + function)
			after, faults := r.scrape()
			assert.Empty(t, faults)
			assert.Equal(t, before, after)
		})
	}
}

// A damaged infoROM is said once and costs what it costs.
func TestCorruptedInfoROM(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	r.set("devices.0.enforced_power_limit.ret", 14)
	for range 2 {
		tags, faults := r.scrape()
		assert.Empty(t, faults)
		assert.Contains(t, tags, "gpu.0.powerWatts")
	}
	assert.Len(t, r.said(), 1)
}

// Rubbish is no figure.
func TestFiguresNotAvailable(t *testing.T) {
	const none32, none64 = "4294967295", "18446744073709551615"
	r := newRig(t, 1, rigOptions{extended: true})
	for _, key := range []string{
		"temperature", "power_usage", "enforced_power_limit", "clock_graphics", "clock_sm", "clock_mem", "encoder_utilization", "fan_speed",
		"pcie_link_gen", "pcie_link_width", "pcie_max_link_gen", "pcie_max_link_width", "pcie_speed", "pcie_replays",
	} {
		r.set("devices.0."+key+".value", none32)
	}
	r.set("devices.0.utilization.gpu", none32, "devices.0.utilization.memory", "101",
		"devices.0.ecc_corrected_volatile_2.value", none64, "devices.0.ecc_uncorrected_volatile_2.value", none64, "devices.0.total_energy.value", none64)
	tags, faults := r.scrape()
	assert.Empty(t, faults)
	for _, tag := range []string{
		"gpu", "memory", "temp", "powerWatts", "powerPercent", "enforcedPowerLimitWatts", "graphicsClock", "smClock", "memoryClock", "encoderUtilization",
		"fanSpeed", "pcieLinkGen", "pcieLinkWidth", "maxPcieLinkGen", "maxPcieLinkWidth", "pcieLinkSpeed", "pcieReplays",
		"correctedMemoryErrors", "unCorrectedMemoryErrors", "energy",
	} {
		assert.NotContains(t, tags, "gpu.0."+tag)
	}
	assert.Contains(t, tags, "gpu.0.memoryAllocated")
}

// A library that answers "not found" itself is loaded all the same, and stays the
// one of the process.
func TestLoadedLibraryStays(t *testing.T) {
	r := newRig(t, 1, rigOptions{})
	r.set("init.ret", 12)
	_, faults := r.scrape()
	assert.Equal(t, []string{"absent"}, faults)
	assert.True(t, process.loaded)
	other := newInstance(t, r.stub, rigOptions{config: func(c *Config) { c.LibraryPath = "/another/libnvidia-ml.so.1" }})
	_, err := other.scrapeWithin(t.Context())
	require.ErrorContains(t, err, "this process has another one")
	r.set("init.ret", 0)
	tags, _ := r.scrape()
	assert.Contains(t, tags, "gpu.0.temp")
}

// The default path is the loader's business; here there is no driver.
func TestDefaultLibrary(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is an NVIDIA driver")
	}
	l := &library{}
	c, _ := l.open("")
	assert.Equal(t, codeLibraryNotFound, c)
	assert.False(t, l.loaded)
}
