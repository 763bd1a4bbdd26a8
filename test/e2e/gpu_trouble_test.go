// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// gpuInterval is short, so that much happens over many scrapes.
	gpuInterval = 500 * time.Millisecond
	// several scrapes, in which what lasts must not be said again.
	several = 6
)

// troubled is a collector of GPUs that a test gets into trouble.
type troubled struct {
	// driver is NVIDIA's; nil for another family.
	*driver
	*process
	t *testing.T
	// family is the one in trouble.
	family string
	sink   *sink
	health string
	// config is the file, which a reload reads again.
	config string
}

// receiver is a section that measures the machine and the GPUs.
func (d *driver) receiver(name, more string) string {
	return fmt.Sprintf("wandbsys/%s: {host_name: %s, collection_interval: %s, detection_interval: %[3]s, initial_delay: 0s, scrapers: {host: , %s}, %s}\n",
		name, name, gpuInterval, d.section(""), more)
}

func startTroubled(t *testing.T, d *driver, receivers string) *troubled {
	t.Helper()
	x := startFamilyInTrouble(t, "nvidia", d.env(), receivers)
	x.driver = d
	return x
}

func startFamilyInTrouble(t *testing.T, family string, env []string, receivers string) *troubled {
	t.Helper()
	x := &troubled{t: t, family: family, sink: startSink(t, nil), health: freeAddress(t)}
	cfg := settings{receivers: receivers, exporters: x.sink.exporter(), metrics: pullReader(x.health)}
	x.config = cfg.write(t)
	x.process = startProcess(t, collector(t, env, "--config", x.config))
	return x
}

// temperatures are one point per GPU and scrape.
func (x *troubled) temperatures(host string, index int) points {
	return x.sink.points().from(host).named("gpu.temp").ofGPU(index)
}

// more waits for further scrapes of GPUs, and returns when they began.
func (x *troubled) more(host string, n int, gpus ...int) time.Time {
	x.t.Helper()
	began := time.Now()
	for _, index := range gpus {
		x.waitFor(fmt.Sprintf("GPU %d of %s", index, host), func() bool { return len(x.temperatures(host, index).after(began)) >= n })
	}
	return began
}

// lines are those of the log about GPUs: what went wrong, and what is well again.
func (x *troubled) lines() []string {
	var all []string
	for _, level := range []string{"error", "warn", "info"} {
		for _, line := range familyLines(x.process, x.family, level) {
			if text := line.text(); text != "" {
				all = append(all, text)
			}
		}
	}
	return all
}

func (l logLine) text() string {
	switch l.Msg {
	case "NVML is open", "Source of the figures of GPUs":
		return ""
	case "Family state":
		return strings.TrimSpace(strings.Join([]string{l.State, l.Reason, l.Cure}, " "))
	case "Source answers again":
		return l.Source + " answers again"
	}
	return strings.TrimSpace(l.Msg + " " + l.Error)
}

// news returns the lines since the last time, having waited for some.
func (x *troubled) news(seen *[]string) []string {
	x.t.Helper()
	count := map[string]int{}
	for _, line := range *seen {
		count[line]++
	}
	var fresh []string
	all := x.lines()
	for _, line := range all {
		if count[line]--; count[line] < 0 {
			fresh = append(fresh, line)
		}
	}
	*seen = all
	return fresh
}

// waitForHealth waits until the family is well or not, for a reason that contains
// a text.
func (x *troubled) waitForHealth(host, state string, success float64, reason string) {
	x.t.Helper()
	receiver := "wandbsys/" + host
	awaitSamples(x.t, x.process, x.health, fmt.Sprintf("%s: %s", state, reason), func(all samples) bool {
		states := all.find("otelcol_wandbsys_family_state", "receiver", receiver, "family", x.family, "state", state)
		verdicts := all.find("otelcol_wandbsys_family_scrape_success", "receiver", receiver, "family", x.family)
		return len(states) == 1 && (states[0].labels["reason"] == reason || reason != "" && strings.Contains(states[0].labels["reason"], reason)) &&
			len(verdicts) == 1 && verdicts[0].value == success
	})
}

// gpuTrouble is what a GPU's handle answers, and what is said of that.
var gpuTrouble = map[string]struct {
	code       int
	said, cure string
}{
	"lost":           {gpuIsLost, "GPU 1: is lost (fell off the bus): GPU_IS_LOST (15)", "reset it, or the machine"},
	"pulled out":     {gpuNotFound, "GPU 1: is lost (fell off the bus): GPU_NOT_FOUND (28)", "reset it, or the machine"},
	"needs a reset":  {resetRequired, "GPU 1: needs a reset before it can be used: RESET_REQUIRED (16)", "reset it with nvidia-smi --gpu-reset"},
	"a code unknown": {4242, "GPU 1: nvmlDeviceGetHandle", "code 4242"},
}

// A GPU that is lost, or pulled out, costs its own figures. What came back can go
// again.
func TestAGPUThatIsLostComesBack(t *testing.T) {
	d := startDriver(t, fullGPUs(3)...)
	x := startTroubled(t, d, d.receiver("node", ""))
	x.more("node", 2, 0, 1, 2)
	seen := x.lines()
	for name, tt := range gpuTrouble {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			d.set("devices.1.handle.ret", tt.code)
			x.waitForHealth("node", "detected", 0, tt.said)
			gone := x.more("node", 4, 0, 2)
			assert.Empty(t, x.temperatures("node", 1).after(gone.Add(gpuInterval)), "no stale repeats")
			bad := x.news(&seen)
			require.Len(t, bad, 1)
			assert.Contains(t, bad[0], tt.said)
			assert.Contains(t, bad[0], tt.cure)

			d.set("devices.1.handle.ret", 0)
			x.waitForHealth("node", "detected", 1, "")
			x.more("node", 2, 0, 1, 2)
			assert.Equal(t, []string{"GPU 1 answers again"}, x.news(&seen))
			for _, index := range []int{0, 2} {
				checkPace(t, x.temperatures("node", index).after(began), 3*gpuInterval)
			}
		})
	}
	assert.Equal(t, 1, d.calls("nvmlInit_v2"), "the driver stays open")
}

// A GPU that a driver gives up in the middle of a scrape.
func TestAGPUThatIsLostAtACall(t *testing.T) {
	d := startDriver(t, fullGPUs(2)...)
	x := startTroubled(t, d, d.receiver("node", ""))
	x.more("node", 2, 0, 1)
	seen := x.lines()
	d.set("ret.nvmlDeviceGetUtilizationRates.0", gpuIsLost)
	x.waitForHealth("node", "detected", 0, "GPU 0: is lost")
	gone := x.more("node", 4, 1)
	assert.Empty(t, x.temperatures("node", 0).after(gone.Add(gpuInterval)))
	require.Len(t, x.news(&seen), 1)
	d.unset("ret.nvmlDeviceGetUtilizationRates.0")
	x.waitForHealth("node", "detected", 1, "")
	x.more("node", 2, 0, 1)
	assert.Equal(t, []string{"GPU 0 answers again"}, x.news(&seen))
}

// The driver counts fewer GPUs, and more again, in another order.
func TestGPUsGoAndCome(t *testing.T) {
	gpus := fullGPUs(3)
	d := startDriver(t, gpus...)
	x := startTroubled(t, d, d.receiver("node", ""))
	x.more("node", 2, 0, 1, 2)
	first := x.temperatures("node", 2).last()
	d.set("device_count.value", 2)
	x.more("node", 2, 0, 1)
	gone := x.more("node", 3, 0, 1)
	assert.Empty(t, x.temperatures("node", 2).after(gone.Add(gpuInterval)))

	d.set("device_count.value", 3, "devices.1.uuid.value", gpus[2]["uuid.value"], "devices.2.uuid.value", gpus[1]["uuid.value"])
	x.more("node", 2, 0, 1, 2)
	assert.Equal(t, first.attrs["gpu_uuid"], x.temperatures("node", 1).last().attrs["gpu_uuid"])
	x.waitForHealth("node", "detected", 1, "")
	d.set("device_count.value", 0)
	x.waitFor("no GPUs", func() bool {
		return len(x.sink.points().ofGPUs().after(time.Now().Add(-3*gpuInterval))) == 0
	})
	d.set("device_count.value", 3)
	x.more("node", 2, 0, 1, 2)
	errs := append(familyLines(x.process, "nvidia", "warn"), familyLines(x.process, "nvidia", "error")...)
	assert.Empty(t, errs, "to go and come is no fault")
}

// hangCall is a call in the middle of a scrape, of one GPU.
const hangCall = "hang.nvmlDeviceGetTemperature.1"

// said is how often a text is in lines.
func said(lines []string, text string) int {
	return len(only(lines, text))
}

// only keeps lines with a text.
func only(lines []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, text) })
}

func TestADriverThatHangsDelaysNothingElse(t *testing.T) {
	d := startDriver(t, fullGPUs(2)...)
	receivers := d.receiver("a", "") + d.receiver("b", "")
	x := startTroubled(t, d, receivers)
	x.more("a", 2, 0, 1)
	x.more("b", 2, 0, 1)
	seen := x.lines()
	memory := func(host string) points { return x.sink.points().from(host).named("memory_percent") }

	began := time.Now()
	d.set(hangCall, 1)
	for _, host := range []string{"a", "b"} {
		x.waitForHealth(host, "lost", 0, "NVML: a call of the driver does not return")
		x.waitFor("the machine's figures", func() bool { return len(memory(host).after(began)) >= several })
		checkPace(t, memory(host).after(began), 2*gpuInterval)
	}
	calls := d.calls("nvmlDeviceGetCount_v2")
	x.waitFor("more of the machine", func() bool { return len(memory("a").after(began)) >= several+4 })
	assert.Equal(t, calls, d.calls("nvmlDeviceGetCount_v2"), "nobody calls a driver that hangs")
	bad := x.news(&seen)
	for text, times := range map[string]int{"Error scraping metrics": 2, "lost ": 2, "does not return": 4} {
		assert.Equal(t, times, said(bad, text), "%s, in %q", text, bad)
	}
	assert.Empty(t, hostLines(x.process, "error"))

	d.unset(hangCall)
	for _, host := range []string{"a", "b"} {
		x.more(host, 2, 0, 1)
		x.waitForHealth(host, "detected", 1, "")
	}
	good := x.news(&seen)
	assert.Equal(t, 2, said(good, "NVML answers again"), "%q", good)
	assert.Equal(t, 0, said(good, "does not return"), "%q", good)

	again := func() *process {
		d.unset(hangCall)
		y := startTroubled(t, d, receivers)
		y.more("a", 2, 0, 1)
		d.set(hangCall, 1)
		y.waitForHealth("a", "lost", 0, "NVML: a call of the driver does not return")
		return y.process
	}
	d.set(hangCall, 1)
	x.waitForHealth("a", "lost", 0, "NVML: a call of the driver does not return")
	checkShutdown(t, hungShutdown, x.process, again)
}

// With the default timeout, the scrape that hangs is far from giving up.
func TestACollectorEndsWhileADriverHangs(t *testing.T) {
	for _, call := range []string{"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetPowerUsage.0"} {
		t.Run(call, func(t *testing.T) {
			d := startDriver(t, fullGPUs(1)...)
			d.set("hang."+call, 1)
			name, _, _ := strings.Cut(call, ".")
			start := func() *process {
				calls := d.calls(name)
				p := d.start(settings{receivers: "wandbsys: {initial_delay: 0s, scrapers: {" + d.section("") + "}}", exporters: "debug: "})
				p.waitFor("the call", func() bool { return d.calls(name) > calls })
				return p
			}
			checkShutdown(t, hungShutdown, start(), start)
		})
	}
}

// The driver may as well hang at the end.
func TestACollectorEndsWhenTheDriverDoesNotClose(t *testing.T) {
	d := startDriver(t, fullGPUs(1)...)
	d.set("hang.nvmlShutdown", 1)
	start := func() *process {
		x := startTroubled(t, d, d.receiver("node", ""))
		x.more("node", 1, 0)
		return x.process
	}
	checkShutdown(t, hungShutdown, start(), start)
}

// reload makes the collector read its file again, in which a receiver has got
// another name.
func (x *troubled) reload(from, to string) {
	x.t.Helper()
	content, err := os.ReadFile(x.config)
	require.NoError(x.t, err)
	changed := strings.ReplaceAll(string(content), from, to)
	require.NotEqual(x.t, string(content), changed)
	writeFile(x.t, x.config, changed)
	time.Sleep(settled - time.Since(x.started))
	require.NoError(x.t, syscall.Kill(x.pid(), syscall.SIGHUP))
}

func TestAReloadWhileADriverHangs(t *testing.T) {
	for _, hang := range []string{hangCall, "hang.nvmlShutdown"} {
		t.Run(hang, func(t *testing.T) {
			d := startDriver(t, fullGPUs(2)...)
			x := startTroubled(t, d, d.receiver("before", ""))
			x.more("before", 2, 0, 1)
			d.set(hang, 1)
			if hang == hangCall {
				x.waitForHealth("before", "lost", 0, "NVML: a call of the driver does not return")
			}
			opened := d.calls("nvmlInit_v2")
			x.reload("before", "after")
			host := func() points { return x.sink.points().from("after").named("memory_percent") }
			x.waitFor("the machine's figures", func() bool { return len(host()) >= several })
			x.waitForHealth("after", "lost", 0, "does not return")
			assert.Equal(t, opened, d.calls("nvmlInit_v2"), "nobody opens a driver that hangs")
			if hang == hangCall {
				assert.Zero(t, d.calls("nvmlShutdown"), "nor closes it")
			}
			assert.Empty(t, x.sink.points().from("after").ofGPUs())

			d.unset(hang)
			x.more("after", 3, 0, 1)
			x.waitForHealth("after", "detected", 1, "")
			checkFigures(t, defaultFigures(fullGPUs(2)), x.waitForScrape("all figures", 2*len(gpuShapes[true]), func() points {
				return x.sink.points().from("after").ofGPUs()
			}))
			checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
		})
	}
}

// defaultFigures are those of the metrics that are on by default.
func defaultFigures(gpus []gpu) map[string]float64 {
	all := map[string]float64{}
	for i, g := range gpus {
		for series, value := range g.figures(i) {
			name, _, _ := strings.Cut(series, " ")
			if _, ok := gpuShapes[true][name]; ok {
				all[series] = value
			}
		}
	}
	return all
}

func TestADriverThatIsUpgradedUnderneath(t *testing.T) {
	d := startDriver(t, fullGPUs(2)...)
	x := startTroubled(t, d, d.receiver("node", ""))
	x.more("node", 2, 0, 1)
	seen := x.lines()
	d.set("ret.nvmlDeviceGetCount_v2", versionMismatch)
	x.waitForHealth("node", "lost", 0, "restart the collector")
	began := time.Now()
	memory := func() points { return x.sink.points().named("memory_percent").after(began) }
	x.waitFor("many scrapes of the machine", func() bool { return len(memory()) >= several })
	checkPace(t, memory(), 2*gpuInterval)
	bad := x.news(&seen)
	assert.Equal(t, 1, said(bad, "Error scraping metrics"), "%q", bad)
	assert.Equal(t, 1, said(bad, "lost "), "%q", bad)
	for _, line := range bad {
		assert.Contains(t, line, "the driver was upgraded underneath: reload it, then restart the collector")
	}

	d.unset("ret.nvmlDeviceGetCount_v2")
	x.waitForHealth("node", "detected", 1, "")
	x.more("node", 2, 0, 1)
	good := x.news(&seen)
	assert.ElementsMatch(t, []string{"detected", "NVML answers again"}, good)
}

// What is the matter changes on the way, and each has a cure of its own.
func TestADriverThatIsReloaded(t *testing.T) {
	d := startDriver(t, fullGPUs(1)...)
	x := startTroubled(t, d, d.receiver("node", ""))
	x.more("node", 2, 0)
	seen := x.lines()
	start := x.sink.points().named("gpu.correctedMemoryErrors").last().start
	d.set("ret.nvmlDeviceGetCount_v2", 1, "init.ret", driverNotLoaded)
	x.waitForHealth("node", "lost", 0, "the NVIDIA driver is not loaded; load the kernel module nvidia")
	d.unset("ret.nvmlDeviceGetCount_v2")
	d.set("init.ret", versionMismatch)
	x.waitForHealth("node", "lost", 0, "restart the collector")
	bad := x.news(&seen)
	for _, text := range []string{"UNINITIALIZED (1)", "load the kernel module nvidia", "restart the collector"} {
		assert.Equal(t, 1, said(only(bad, "Error scraping metrics NVML: "), text), "%s, in %q", text, bad)
	}
	d.set("init.ret", 0, "devices.0.ecc_corrected_volatile_2.value", 2)
	x.waitForHealth("node", "detected", 1, "")
	x.more("node", 1, 0)
	errors := x.sink.points().named("gpu.correctedMemoryErrors").last()
	assert.InDelta(t, 2, errors.value, 0)
	assert.True(t, errors.start.After(start), "the driver counts anew")
}

func TestWithoutADriver(t *testing.T) {
	for name, tt := range map[string]struct {
		section, reason, cure string
	}{
		"no library": {
			"nvidia: {library_path: /no/such/libnvidia-ml.so.1}", "no NVML library: /no/such/libnvidia-ml.so.1: cannot open shared object file",
			"install the NVIDIA driver; in a container use NVIDIA's runtime with NVIDIA_DRIVER_CAPABILITIES=utility; or name it in scrapers::nvidia::library_path",
		},
		"by default": {"nvidia: ", "no NVML library: libnvidia-ml.so.1: cannot open shared object file", "install the NVIDIA driver;"},
		"no NVML":    {"nvidia: {library_path: /proc/self/exe}", "no NVML library: ", "install the NVIDIA driver;"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "by default" {
				skipWithDriver(t)
			}
			d := &driver{t: t}
			x := startTroubled(t, d, fmt.Sprintf("wandbsys/node: {host_name: node, collection_interval: %s, detection_interval: %[1]s, initial_delay: 0s, scrapers: {host: , %s}}", gpuInterval, tt.section))
			x.checkAbsent(tt.reason, tt.cure)
		})
	}
	t.Run("not loaded", func(t *testing.T) {
		d := startDriver(t, fullGPUs(1)...)
		d.set("init.ret", driverNotLoaded)
		x := startTroubled(t, d, d.receiver("node", ""))
		x.checkAbsent("the NVIDIA driver is not loaded", "load the kernel module nvidia")
		d.set("init.ret", 0)
		x.more("node", 2, 0)
		x.waitForHealth("node", "detected", 1, "")
		assert.Equal(t, "detected", x.lines()[1])
		assert.Len(t, x.lines(), 2)
	})
}

// checkAbsent: one line, and nothing else.
func (x *troubled) checkAbsent(reason, cure string) {
	x.t.Helper()
	x.waitFor("many scrapes of the machine", func() bool { return len(x.sink.points().named("memory_percent")) >= several })
	assert.Empty(x.t, x.sink.points().ofGPUs())
	var about []logLine
	for _, level := range []string{"debug", "info", "warn", "error"} {
		about = append(about, familyLines(x.process, x.family, level)...)
	}
	require.Len(x.t, about, 1)
	assert.Equal(x.t, "info", about[0].Level)
	assert.Equal(x.t, "absent", about[0].State)
	assert.Contains(x.t, about[0].Reason, reason)
	assert.Contains(x.t, about[0].Cure, cure)
	all := scrape(x.t, x.health)
	states := all.find("otelcol_wandbsys_family_state", "family", x.family)
	require.Len(x.t, states, 1)
	assert.Equal(x.t, "absent", states[0].labels["state"])
	assert.Contains(x.t, states[0].labels["reason"], reason)
	assert.Empty(x.t, all.find("otelcol_wandbsys_family_scrape_success", "family", x.family), "no verdict on what is not there")
}

// skipWithDriver skips where the machine has NVML.
func skipWithDriver(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"/usr/lib*/libnvidia-ml.so.1", "/usr/lib*/*/libnvidia-ml.so.1", "/lib/*/libnvidia-ml.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			t.Skip("there is " + found[0])
		}
	}
}

// Functions of NVML are undefined in the binary, which must not be looked for at
// the start: without NVML it would not run.
func TestTheBinaryBindsLazily(t *testing.T) {
	file, err := elf.Open(binary(t))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for _, tag := range []elf.DynTag{elf.DT_FLAGS, elf.DT_FLAGS_1, elf.DT_BIND_NOW} {
		values, err := file.DynValue(tag)
		require.NoError(t, err)
		for _, value := range values {
			switch tag {
			case elf.DT_FLAGS:
				assert.Zero(t, elf.DynFlag(value)&elf.DF_BIND_NOW, "BIND_NOW")
			case elf.DT_FLAGS_1:
				assert.Zero(t, elf.DynFlag1(value)&elf.DF_1_NOW, "NOW")
			default:
				assert.Fail(t, "BIND_NOW")
			}
		}
	}
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	undefined := 0
	for _, s := range symbols {
		if strings.HasPrefix(s.Name, "nvml") && s.Section == elf.SHN_UNDEF {
			undefined++
		}
	}
	assert.Positive(t, undefined, "NVML is in it")
}
