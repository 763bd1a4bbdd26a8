// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a tool's double does, as a shell runs it.
const (
	toolAnswers = "case \"$1\" in static) cat static;; *) cat answer;; esac"
	// toolHangs with a child that holds the pipe.
	toolHangs   = "sleep 1000 & sleep 1000"
	toolCrashes = "echo Traceback >&2; echo 'RuntimeError: no luck' >&2; exit 1"
	toolDies    = "kill -SEGV $$"
	// toolFloods prints 1 GiB of one text.
	toolFloods = `printf '{"card0": {"GPU use (%)": "'; head -c 1073741824 /dev/zero | tr '\0' 7`
)

// fakeTool is a double of rocm-smi or amd-smi, which a test may change at any
// time.
type fakeTool struct {
	t            *testing.T
	folder, path string
}

// makeTool makes one below a folder of ROCm, which answers.
func makeTool(t *testing.T, name string) *fakeTool {
	t.Helper()
	folder := publicDir(t)
	f := &fakeTool{t: t, folder: folder, path: filepath.Join(folder, "bin", name)}
	require.NoError(t, os.MkdirAll(filepath.Dir(f.path), 0o755))
	script := fmt.Sprintf("#!/bin/sh\ncd %s && echo $$ \"$@\" >> runs && . ./mode\n", folder)
	require.NoError(t, os.WriteFile(f.path, []byte(script), 0o755))
	f.does(toolAnswers)
	t.Cleanup(func() {
		for _, group := range f.living() { // of a collector that was killed
			_ = syscall.Kill(-int(number(t, group)), syscall.SIGKILL)
		}
	})
	return f
}

// does changes what it does from its next run on.
func (f *fakeTool) does(mode string) {
	f.t.Helper()
	writeFile(f.t, filepath.Join(f.folder, "mode"), mode+"\n")
}

// tells changes what it answers.
func (f *fakeTool) tells(name, text string) {
	f.t.Helper()
	writeFile(f.t, filepath.Join(f.folder, name), text)
}

// runs are the process groups of its runs.
func (f *fakeTool) runs() []string {
	content, _ := os.ReadFile(filepath.Join(f.folder, "runs")) // without one there is none
	var all []string
	for line := range strings.Lines(string(content)) {
		pid, _, _ := strings.Cut(line, " ")
		all = append(all, pid)
	}
	return all
}

// copies counts the runs of which a process lives, be it a child.
func (f *fakeTool) copies() int { return len(f.living()) }

// living are the process groups in which a process lives.
func (f *fakeTool) living() []string {
	started, alive := f.runs(), map[string]bool{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(f.t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(content), ") ")
		fields := strings.Fields(rest) // state, parent, group
		if len(fields) > 2 && fields[0] != "Z" && slices.Contains(started, fields[2]) {
			alive[fields[2]] = true
		}
	}
	return slices.Sorted(maps.Keys(alive))
}

// section is that of the family.
func (f *fakeTool) section(more string) string {
	name := filepath.Base(f.path)
	return fmt.Sprintf("amd: {source: %s, %s_path: %s, %s}", name, strings.ReplaceAll(name, "-", "_"), f.path, more)
}

// toolGPUs are those that the doubles know.
var toolGPUs = []amdGPU{0, 1}

// rocmAnswer is what rocm-smi prints of them; the order is none.
func rocmAnswer() string {
	var text strings.Builder
	text.WriteString("WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n{")
	for _, g := range slices.Backward(toolGPUs) {
		fmt.Fprintf(&text, `"card%d": {"Device Name": "%s", "Unique ID": "0x%s", "PCI Bus": "%s", "Temperature (Sensor junction) (C)": "%d.0", `+
			`"Temperature (Sensor memory) (C)": "%d.0", "Max Graphics Package Power (W)": "%d.0", "Current Socket Graphics Package Power (W)": "%d.5", `+
			`"GPU use (%%)": "%d", "GPU Memory Allocated (VRAM%%)": "1", "GPU Memory Read/Write Activity (%%)": "%d", `+
			`"VRAM Total Memory (B)": "%d", "VRAM Total Used Memory (B)": "%d"}, `,
			int(g), amdModel, g.uuid(), strings.ToUpper(g.pci()), g.junction(), g.mem(), g.limit(), g.watts(), g.busy(), g.activity(), amdMemory, g.used())
	}
	return text.String() + "\"system\": {\"Driver version\": \"6.10.5\"}}\n"
}

// amdSMIAnswers are what amd-smi prints of them; its memory is in MiB.
func amdSMIAnswers() (metric, static string) {
	var metrics, statics []string
	for _, g := range toolGPUs {
		metrics = append(metrics, fmt.Sprintf(`{"gpu": %d, "usage": {"gfx_activity": {"value": %d, "unit": "%%"}, "umc_activity": {"value": %d, "unit": "%%"}}, `+
			`"power": {"socket_power": {"value": %d.5, "unit": "W"}}, "temperature": {"edge": "N/A", "hotspot": {"value": %d, "unit": "C"}, "mem": {"value": %d, "unit": "C"}}, `+
			`"mem_usage": {"total_vram": {"value": %d, "unit": "MB"}, "used_vram": {"value": %d, "unit": "MB"}}}`,
			int(g), g.busy(), g.activity(), g.watts(), g.junction(), g.mem(), amdMemory/mebi, g.used()/mebi))
		statics = append(statics, fmt.Sprintf(`{"gpu": %d, "asic": {"market_name": "%s", "asic_serial": "0x%s"}, "bus": {"bdf": "%s"}, `+
			`"limit": {"ppt0": {"socket_power_limit": {"value": %d, "unit": "W"}}}}`, int(g), amdModel, g.uuid(), g.pci(), g.limit()))
	}
	return `{"gpu_data": [` + strings.Join(metrics, ", ") + "]}\n", `{"gpu_data": [` + strings.Join(statics, ", ") + "]}\n"
}

func makeROCmSMI(t *testing.T) *fakeTool {
	t.Helper()
	f := makeTool(t, "rocm-smi")
	f.tells("answer", rocmAnswer())
	return f
}

func makeAMDSMI(t *testing.T) *fakeTool {
	t.Helper()
	f := makeTool(t, "amd-smi")
	metric, static := amdSMIAnswers()
	f.tells("answer", metric)
	f.tells("static", static)
	return f
}

// smiFigures are those of amd-smi, whose memory is in MiB.
func smiFigures() map[string]float64 {
	all := amdFigures(len(toolGPUs))
	for _, g := range toolGPUs {
		all[g.series("gpu.memoryAllocated")] = 100 * float64(g.used()/mebi) / float64(amdMemory/mebi)
	}
	return all
}

// cost is a sum of what the runs of a tool took.
func (x *troubled) cost(what, tool string) float64 {
	x.t.Helper()
	sum := 0.0
	for _, s := range scrape(x.t, x.health).find("otelcol_wandbsys_family_tool_"+what, "receiver", "wandbsys/node", "family", "amd", "tool", tool) {
		sum += s.value
	}
	return sum
}

// never checks until a condition holds that there are not two copies of a tool.
func (x *troubled) never(f *fakeTool, what string, until func() bool) {
	x.t.Helper()
	x.waitFor(what, func() bool {
		require.LessOrEqual(x.t, f.copies(), 1, "two copies of a tool")
		return until()
	})
}

func TestROCmSMI(t *testing.T) {
	n, f := makeAMDNode(t, manyAMD), makeROCmSMI(t)
	n.fill()
	n.compute(90, map[amdGPU]int{1: gibi, 2: gibi})
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", f.section(""), ""))
	want, used := amdFigures(len(toolGPUs)), amdGPU(1).figures("gpu.process.")
	checkFigures(t, want, x.waitForScrape("all figures", len(want), func() points { return x.sink.points().ofInstance("node") }))
	checkFigures(t, used, x.waitForScrape("a run's", len(used), func() points { return x.sink.points().ofInstance("node/run-abc-90") }))
	x.waitForHealth("node", "detected", 1, "")
	x.never(f, "several runs", func() bool { return len(f.runs()) >= several })
	before := float64(len(f.runs()))
	awaitSamples(t, x.process, x.health, "what they cost", func(samples) bool { return x.cost("runs", "rocm-smi") >= before })
	assert.Positive(t, x.cost("time", "rocm-smi"))
	assert.Positive(t, x.cost("cpu_time", "rocm-smi"))
	assert.Zero(t, x.cost("runs", "amd-smi"))
	assert.Empty(t, append(familyLines(x.process, "amd", "warn"), familyLines(x.process, "amd", "error")...))
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
}

// What is wrong with a tool is said once, costs nothing but the family, and is over
// when the tool answers.
func TestAToolInTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		mode, said string
		warnings   []string
	}{
		"hangs":   {toolHangs, "rocm-smi: run ", []string{"A tool takes longer than a scrape may; what it tells comes with a later one"}},
		"crashes": {toolCrashes, `rocm-smi exited with 1: "RuntimeError: no luck"`, nil},
		"dies":    {toolDies, "died after", nil},
		"is gone": {"", "cannot start: no such file or directory", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := makeAMDNode(t, 0), makeROCmSMI(t)
			x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", f.section("tool_timeout: 1200ms"), ""))
			x.more("node", 2, 0, 1)
			seen, began := x.lines(), time.Now()
			memory := func() points { return x.sink.points().named("memory_percent").after(began) }
			f.does(tt.mode)
			if tt.mode == "" {
				require.NoError(t, os.Rename(f.path, f.path+".gone"))
			}
			x.waitForHealth("node", "lost", 0, tt.said)
			gone := time.Now()
			x.never(f, "many scrapes of the machine", func() bool { return len(memory()) >= several })
			checkPace(t, memory(), 2*gpuInterval)
			assert.Empty(t, x.temperatures("node", 0).after(gone), "no stale repeats")
			bad := x.news(&seen)
			assert.Equal(t, 1, said(bad, "Error scraping metrics"), "%q", bad)
			assert.Equal(t, 1, said(bad, "lost "), "%q", bad)
			assert.Len(t, bad, 2+len(tt.warnings), "%q", bad)
			for _, warning := range tt.warnings {
				assert.Equal(t, 1, said(bad, warning), "%q", bad)
			}

			f.does(toolAnswers)
			if tt.mode == "" {
				require.NoError(t, os.Rename(f.path+".gone", f.path))
			}
			x.waitForHealth("node", "detected", 1, "")
			x.more("node", 2, 0, 1)
			assert.ElementsMatch(t, []string{"detected", "rocm-smi answers again"}, x.news(&seen))
		})
	}
}

// That a tool lists no GPU is no fault: its driver may be loaded later.
func TestAToolWithoutAGPU(t *testing.T) {
	n, f := makeAMDNode(t, 0), makeROCmSMI(t)
	f.does("echo 'ERROR:root:Driver not initialized (amdgpu not found in modules)' >&2")
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", f.section(""), ""))
	x.checkAbsent("no AMD GPU: rocm-smi lists no GPU", "load the amdgpu driver, install ROCm's tools, or use source: auto")
	f.does(toolAnswers)
	x.more("node", 2, 0, 1)
	f.does("echo '{\"system\": {\"Driver version\": \"6.10.5\"}}'")
	x.waitFor("the state absent", func() bool { return said(x.lines(), "absent ") == 2 })
	assert.Empty(t, append(familyLines(x.process, "amd", "warn"), familyLines(x.process, "amd", "error")...))
}

// With the default timeouts, the run is far from its end.
func TestACollectorEndsWhileAToolHangs(t *testing.T) {
	f := makeROCmSMI(t)
	f.does(toolHangs)
	start := func() *process {
		runs := len(f.runs())
		p := startCollector(t, settings{receivers: "wandbsys: {initial_delay: 0s, scrapers: {" + f.section("") + "}}", exporters: "debug: "})
		p.waitFor("a run", func() bool { return len(f.runs()) > runs && f.copies() == 1 })
		return p
	}
	checkShutdown(t, hungShutdown, start(), start)
	assert.Zero(t, f.copies(), "the run ends with the collector")
}

// floodSlack is what may be held of a tool's output, with what the collector takes
// for it: 8 MiB are kept, in a buffer that doubles.
const floodSlack = 64 * mebi

// A tool that prints without end is stopped, however often it does so.
func TestAToolThatPrintsTooMuch(t *testing.T) {
	n, f := makeAMDNode(t, 0), makeROCmSMI(t)
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", f.section(""), ""))
	x.more("node", several, 0, 1)
	before := peakMemory(t, x.pid())
	f.does(toolFloods)
	x.waitForHealth("node", "lost", 0, "its output")
	runs := len(f.runs())
	x.never(f, "many runs", func() bool { return len(f.runs()) >= runs+several })
	grown := peakMemory(t, x.pid()) - before
	t.Logf("the most resident memory grew by %.1f MiB, from %.1f MiB", grown/mebi, before/mebi)
	assert.Less(t, grown, float64(floodSlack))
}

// peakMemory is the most that a process had resident, in bytes.
func peakMemory(t *testing.T, pid int) float64 {
	t.Helper()
	for _, fields := range fieldsOf(t, fmt.Sprintf("/proc/%d/status", pid)) {
		if fields[0] == "VmHWM:" {
			return number(t, fields[1]) * 1024
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// A tool that takes longer than a scrape gives its figures to a later one.
func TestASlowTool(t *testing.T) {
	n, f := makeAMDNode(t, 0), makeAMDSMI(t)
	f.does("sleep 0.8; " + toolAnswers)
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", f.section(""), ""))
	want := smiFigures()
	checkFigures(t, want, x.waitForScrape("all figures", len(want), func() points { return x.sink.points().from("node") }))
	x.never(f, "more of them", func() bool { return len(x.temperatures("node", 0)) >= 4 })
	checkPace(t, x.sink.points().named("memory_percent"), 2*gpuInterval)
	x.waitForHealth("node", "detected", 1, "")
	assert.Empty(t, familyLines(x.process, "amd", "error"))
	warnings := familyLines(x.process, "amd", "warn")
	require.Len(t, warnings, 1)
	assert.Equal(t, "raise collection_interval and timeout, or use source: sysfs", warnings[0].Cure)
}

// Where the driver's files are not to be seen, the first tool that lists a GPU is
// used, and no longer than those are missing.
func TestTheSourceIsChosen(t *testing.T) {
	skipWithROCm(t)
	n, f := makeAMDNode(t, 0), makeAMDSMI(t)
	x := startFamilyInTrouble(t, "amd", []string{"ROCM_PATH=" + f.folder}, n.amdReceiver("node", "amd: ", ""))
	of := func() points { return x.sink.points().from("node") }
	checkFigures(t, smiFigures(), x.waitForScrape("all figures", len(smiFigures()), of))
	assert.Equal(t, "amd-smi", sourcesOf(x, "node")[0])
	for g := range amdGPU(manyAMD) {
		n.addAMD(g)
	}
	checkFigures(t, amdFigures(manyAMD), x.waitForScrape("all figures", len(amdFigures(manyAMD)), of))
	assert.Equal(t, "sysfs", sourcesOf(x, "node")[len(sourcesOf(x, "node"))-1])
	runs := len(f.runs())
	x.more("node", several, 0)
	assert.Len(t, f.runs(), runs, "the tool is not run any more")
	assert.Empty(t, append(familyLines(x.process, "amd", "warn"), familyLines(x.process, "amd", "error")...))
}

func TestWithoutAnAMDGPU(t *testing.T) {
	skipWithROCm(t)
	n := makeAMDNode(t, 0)
	x := startFamilyInTrouble(t, "amd", nil, n.amdReceiver("node", "amd: ", ""))
	x.checkAbsent("no AMD GPU: no GPU of the amdgpu driver in /sys, and no tool lists one", "load the amdgpu driver; in a container, let it see /sys")
	for g := range amdGPU(manyAMD) {
		n.addAMD(g)
	}
	x.more("node", 2, 0, manyAMD-1)
	x.waitForHealth("node", "detected", 1, "")
	assert.Len(t, x.lines(), 2)
}

// skipWithROCm skips where the machine has AMD's tools.
func skipWithROCm(t *testing.T) {
	t.Helper()
	found, _ := filepath.Glob("/opt/rocm*/bin/*-smi")
	for _, tool := range []string{"amd-smi", "rocm-smi"} {
		if path, err := exec.LookPath(tool); err == nil {
			found = append(found, path)
		}
	}
	if len(found) > 0 {
		t.Skip("there is " + found[0])
	}
}
