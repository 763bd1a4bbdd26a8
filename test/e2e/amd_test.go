// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ofVendor keeps points of the GPUs of one maker.
func (ps points) ofVendor(vendor string) points { return ps.with("gpu_vendor", vendor) }

// ofInstance keeps points of the machine (`host`) or a workload (`host/id`).
func (ps points) ofInstance(instance string) points {
	return ps.filter(func(p point) bool { return p.resource["service.instance.id"] == instance })
}

// amdFigures are those of the metrics that are on by default.
func amdFigures(gpus int) map[string]float64 {
	all := map[string]float64{}
	for g := range amdGPU(gpus) {
		maps.Copy(all, g.figures("gpu."))
	}
	return all
}

func TestEveryAMDTagIsRight(t *testing.T) {
	n := makeAMDNode(t, manyAMD)
	n.fill()
	// The run has memory on one GPU and a queue on another, a step computes beside it
	// on one of them; a worker of the container encodes on a third.
	n.compute(90, map[amdGPU]int{2: 7 * gibi}, 5)
	n.compute(81, map[amdGPU]int{5: gibi})
	n.render(90, 9, 7, "drm-client-id:\t3", "drm-memory-vram:\t412 KiB", "drm-engine-gfx:\t0 ns")
	n.render(71, 5, 0, "drm-client-id:\t4", "drm-memory-vram:\t2048 KiB", "drm-engine-enc:\t1234 ns", "drm-engine-capacity-gfx:\t8")
	n.render(71, 6, 1, "drm-client-id:\t5", "drm-memory-vram:\t0 KiB", "drm-engine-capacity-gfx:\t8")
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("plain", "amd: ", "")+n.amdReceiver("extended", "amd: ", "extended: true")+
		n.amdReceiver("gpu", "amd: ", "workloads: {discover: [gpu]}")+n.amdReceiver("none", "amd: ", "workloads: {discover: []}"))

	plain, extended := amdFigures(manyAMD), amdFigures(manyAMD)
	for g := range amdGPU(manyAMD) {
		maps.Copy(extended, g.extended("gpu."))
		maps.Copy(extended, g.extendedOfMachine())
	}
	memory := map[amdGPU]float64{0: 2048 << 10, 2: 7 * gibi, 5: 0}
	used := func(extended bool, gpus ...amdGPU) map[string]float64 {
		all := map[string]float64{}
		for _, g := range gpus {
			maps.Copy(all, g.figures("gpu.process."))
			if extended {
				maps.Copy(all, g.extended("gpu.process."))
				all[g.series("gpu.process.memoryUsedBytes")] = memory[g]
			}
		}
		return all
	}
	for name, tt := range map[string]struct {
		instance string
		want     map[string]float64
	}{
		"the machine's by default":            {"plain", plain},
		"the machine's, extended":             {"extended", extended},
		"the machine's, where nobody's asked": {"none", plain},
		"a run's, which computes":             {"plain/run-abc-90", used(false, 2, 5)},
		"a run's, extended":                   {"extended/run-abc-90", used(true, 2, 5)},
		"a step's, which computes beside it":  {"plain/slurm-99.0", used(false, 5)},
		"a container's, which encodes":        {"plain/container-" + trainerID[:12], used(false, 0)},
		"a container's, extended":             {"extended/container-" + trainerID[:12], used(true, 0)},
		"a process', which holds two":         {"gpu/pid-90", used(false, 2, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			checkFigures(t, tt.want, x.waitForScrape("all figures", len(tt.want), func() points {
				return x.sink.points().ofInstance(tt.instance).ofVendor("amd")
			}))
		})
	}
	t.Run("nobody else has one", func(t *testing.T) {
		assert.ElementsMatch(t, []string{"90", "<nil>"}, x.holders("plain"), "step and container have no pid")
		assert.Equal(t, []string{"81", "90"}, x.holders("gpu"))
		assert.Empty(t, x.holders("none"))
	})
	t.Run("resources", func(t *testing.T) {
		for _, p := range x.sink.points().ofVendor("amd").ofMachine() {
			require.Subset(t, p.resource, map[string]any{
				"wandb.gpu_count": int64(manyAMD), "wandb.gpu_type": amdModel, "wandb.gpu_driver_version": "6.10.5",
			})
			require.Nil(t, p.resource["process.pid"])
			require.Nil(t, p.resource["wandb.cuda_version"])
		}
	})
	x.waitForHealth("plain", "detected", 1, "")
	t.Run("the log is calm", func(t *testing.T) {
		for _, host := range []string{"plain", "extended", "gpu", "none"} {
			assert.ElementsMatch(t, []string{"sysfs"}, sourcesOf(x, host), "the source is told once")
		}
		assert.Empty(t, append(familyLines(x.process, "amd", "warn"), familyLines(x.process, "amd", "error")...))
	})
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
}

// sourcesOf are those that a receiver has told to use.
func sourcesOf(x *troubled, host string) []string {
	var all []string
	for _, line := range familyLines(x.process, "amd", "info") {
		if line.Msg == "Source of the figures of GPUs" && line.Component == "wandbsys/"+host {
			all = append(all, line.Source)
		}
	}
	return all
}

// In a container that may not use the GPUs the KFD does not tell their numbers, so
// that it is not known who computes on which. Their figures need none of that.
func TestAMDGPUsThatMayNotBeUsed(t *testing.T) {
	n := makeAMDNode(t, manyAMD)
	n.fill()
	n.compute(90, map[amdGPU]int{2: 7 * gibi}, 5)
	n.render(90, 9, 3, "drm-client-id:\t3", "drm-memory-vram:\t412 KiB", "drm-engine-gfx:\t0 ns")
	n.render(71, 5, 0, "drm-client-id:\t4", "drm-memory-vram:\t2048 KiB", "drm-engine-enc:\t1234 ns")
	nodes, err := filepath.Glob(filepath.Join(n.root, "sys/class/kfd/kfd/topology/nodes/*/"))
	require.NoError(t, err)
	for _, node := range nodes {
		for _, name := range []string{"gpu_id", "properties"} { // a folder cannot be read, not by root either
			require.NoError(t, os.RemoveAll(filepath.Join(node, name)))
			require.NoError(t, os.Mkdir(filepath.Join(node, name), 0o755))
		}
	}
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", "amd: ", ""))
	all, used := amdFigures(manyAMD), amdGPU(0).figures("gpu.process.")
	checkFigures(t, all, x.waitForScrape("all figures", len(all), func() points { return x.sink.points().ofInstance("node") }))
	checkFigures(t, used, x.waitForScrape("who encodes", len(used), func() points {
		return x.sink.points().ofInstance("node/container-" + trainerID[:12])
	}))
	x.more("node", several, 0)
	assert.Empty(t, x.sink.points().ofInstance("node/run-abc-90").ofGPUs(), "page tables are on every GPU")
	x.waitForHealth("node", "detected", 1, "")
	warnings := familyLines(x.process, "amd", "warn")
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0].Msg, "Processes that compute are not attributed to all GPUs")
	assert.Contains(t, warnings[0].Cure, "let the container use the devices 226:*")
	assert.Empty(t, familyLines(x.process, "amd", "error"))
}

// A GPU that is asleep is left so: but for its memory, and whether it sleeps, no
// file is opened. Each would hang here.
func TestAnAMDGPUThatSleepsIsLeftAsleep(t *testing.T) {
	n := makeAMDNode(t, 2)
	const sleeper = amdGPU(1)
	awake := []string{"gpu_busy_percent", "gpu_metrics", "hwmon/hwmon5/power1_input", "hwmon/hwmon5/power1_cap", "hwmon/hwmon5/temp2_input", "hwmon/hwmon5/temp3_input"}
	for _, name := range awake {
		makeHang(t, filepath.Join(n.root, sleeper.file(name)))
	}
	n.write(sleeper.file("power/runtime_status"), "suspended\n")
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", "amd: ", ""))
	ofNode := func() points { return x.sink.points().from("node") }

	want := amdGPU(0).figures("gpu.")
	memory := sleeper.series("gpu.memoryAllocated")
	want[memory] = sleeper.figures("gpu.")[memory]
	checkFigures(t, want, x.waitForScrape("what a sleeper tells", len(want), ofNode))
	x.more("node", several, 0)
	x.waitForHealth("node", "detected", 1, "")

	for _, name := range awake {
		n.write(sleeper.file(name), sleeper.files()[name])
	}
	n.write(sleeper.file("power/runtime_status"), "active\n")
	all := amdFigures(2)
	checkFigures(t, all, x.waitForScrape("all figures", len(all), ofNode))
	assert.Empty(t, append(familyLines(x.process, "amd", "warn"), familyLines(x.process, "amd", "error")...))
}

// A driver that hangs with one GPU costs that one's figures.
func TestAnAMDGPUThatHangsDelaysNothingElse(t *testing.T) {
	n := makeAMDNode(t, 3)
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", "amd: ", ""))
	x.more("node", 2, 0, 1, 2)
	seen := x.lines()
	hang := filepath.Join(n.root, amdGPU(1).file("gpu_busy_percent"))
	makeHang(t, hang)
	const said = "GPU 1 (0000:25:00.0): its driver does not answer"
	x.waitForHealth("node", "detected", 0, said)
	gone := x.more("node", several, 0, 2)
	assert.Empty(t, x.temperatures("node", 1).after(gone), "no stale repeats")
	checkPace(t, x.temperatures("node", 0).after(gone), 2*gpuInterval)
	bad := x.news(&seen)
	require.Len(t, bad, 1)
	assert.Contains(t, bad[0], said)

	n.write("new", amdGPU(1).files()["gpu_busy_percent"])
	freeHang(t, hang, filepath.Join(n.root, "new"))
	x.waitForHealth("node", "detected", 1, "")
	x.more("node", 2, 0, 1, 2)
	assert.Equal(t, []string{"GPU 1 (0000:25:00.0) answers again"}, x.news(&seen))
	makeHang(t, hang)
	x.waitForHealth("node", "detected", 0, said)
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
}

// GPUs of two makers have the same numbers, and in naming `tag` the same names:
// attributes tell them apart, also on the Prometheus endpoint.
func TestAMDAndNVIDIAOnOneMachine(t *testing.T) {
	n, nvidia := makeAMDNode(t, manyAMD), fullGPUs(2)
	n.fill()
	n.compute(90, map[amdGPU]int{1: gibi})
	d, s, address := startDriver(t, nvidia...), startSink(t, nil), freeAddress(t)
	d.hold(1, map[int]int{90: 3 * gibi})
	sections := "amd: , " + d.section("")
	p := d.start(settings{
		receivers: n.amdReceiver("template", sections, "naming: template") + n.amdReceiver("tag", sections, "naming: tag"),
		exporters: s.exporter() + "prometheus: {endpoint: '" + address + "'}\n",
	})
	of := func(instance, vendor string) func() points {
		return func() points { return s.points().ofInstance(instance).ofVendor(vendor) }
	}
	const run = "/run-abc-90"
	ofNVIDIA := usedFigures(nvidia, map[int]int{1: 3 * gibi}, false)
	for name, tt := range map[string]struct {
		id, vendor string
		want       map[string]float64
	}{
		"the machine's of AMD":    {"", "amd", amdFigures(manyAMD)},
		"the machine's of NVIDIA": {"", "nvidia", defaultFigures(nvidia)},
		"a run's of AMD":          {run, "amd", amdGPU(1).figures("gpu.process.")},
		"a run's of NVIDIA":       {run, "nvidia", ofNVIDIA},
	} {
		t.Run(name, func(t *testing.T) {
			template := p.waitForScrape("all figures", len(tt.want), of("template"+tt.id, tt.vendor))
			checkFigures(t, tt.want, template)
			tag := p.waitForScrape("all figures", len(tt.want), of("tag"+tt.id, tt.vendor))
			assert.Equal(t, seriesOf(template, gpuTag), seriesOf(tag, func(p point) string { return p.name }))
		})
	}
	t.Run("one name, two series", func(t *testing.T) {
		for name, id := range map[string]string{"gpu.1.temp": "", "gpu.process.1.temp": run} {
			for vendor, want := range map[string]float64{"amd": float64(amdGPU(1).mem()), "nvidia": nvidia[1].value("temperature")} {
				assert.InDelta(t, want, of("tag"+id, vendor)().named(name).last().value, 0, "%s of %s", name, vendor)
			}
		}
	})
	t.Run("on the Prometheus endpoint", func(t *testing.T) {
		all := awaitSamples(t, p, address, "both", func(all samples) bool {
			return len(all.find("gpu_1_temp_celsius", "instance", "tag")) == 2
		})
		assert.Len(t, all.find("gpu_1_temp_celsius", "instance", "tag", "gpu_vendor", "amd", "gpu_uuid", amdGPU(1).uuid(), "sensor", "mem"), 1)
		assert.Len(t, all.find("gpu_1_temp_celsius", "instance", "tag", "gpu_vendor", "nvidia", "gpu_uuid", fmt.Sprint(nvidia[1]["uuid.value"])), 1)
	})
	t.Run("the machine has all", func(t *testing.T) {
		for _, vendor := range []string{"amd", "nvidia"} {
			require.Subset(t, of("tag", vendor)().last().resource, map[string]any{
				"wandb.gpu_count": int64(manyAMD + len(nvidia)), "wandb.gpu_type": amdModel + ", " + fmt.Sprint(nvidia[0]["name.value"]),
				"wandb.gpu_driver_version": "6.10.5, 590.48.01", "wandb.cuda_version": "13.1",
			})
		}
	})
	t.Run("the log is calm", func(t *testing.T) {
		for _, family := range []string{"amd", "nvidia"} {
			assert.Empty(t, append(familyLines(p, family, "warn"), familyLines(p, family, "error")...))
		}
	})
}
