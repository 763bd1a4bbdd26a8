// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// NVML's codes.
const (
	notSupported    = 3
	driverNotLoaded = 9
	gpuIsLost       = 15
	resetRequired   = 16
	versionMismatch = 18
	gpuNotFound     = 28
)

// driver is a double of NVML, the one of the family's own tests. It answers from
// lines, which a test may change at any time.
type driver struct {
	t               *testing.T
	library, folder string

	mu    sync.Mutex
	lines map[string]string
}

// startDriver makes a driver with GPUs.
func startDriver(t *testing.T, gpus ...gpu) *driver {
	t.Helper()
	binary(t) // skips without
	d := &driver{t: t, folder: t.TempDir(), lines: map[string]string{}}
	d.library = filepath.Join(d.folder, "libnvidia-ml.so.1")
	buildDouble(t, d.library)
	require.NoError(t, os.WriteFile(filepath.Join(d.folder, "calls"), nil, 0o600))
	for i, g := range gpus {
		for key, value := range g {
			d.lines[fmt.Sprintf("devices.%d.%s", i, key)] = fmt.Sprint(value)
		}
	}
	d.set("driver_version", "590.48.01", "cuda_driver_version", 13010, "device_count.value", len(gpus))
	return d
}

// buildDouble skips without a compiler, but where all tests must run.
func buildDouble(t *testing.T, library string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("gcc is needed")
		}
		t.Skip("gcc is missing")
	}
	source := repo(t, "internal", "scrapers", "nvidia", "testdata", "nvml", "stub.c")
	out, err := exec.Command("gcc", "-w", "-O1", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	require.NoError(t, err, string(out))
}

// env is what the double reads.
func (d *driver) env() []string { return []string{"NVML_STUB=" + d.folder} }

// section is that of the family.
func (d *driver) section(more string) string {
	return "nvidia: {library_path: " + d.library + ", " + more + "}"
}

// start runs a collector on this driver.
func (d *driver) start(cfg settings) *process {
	d.t.Helper()
	return startProcess(d.t, collector(d.t, d.env(), "--config", cfg.write(d.t)))
}

// set changes lines: key, value, key, value.
func (d *driver) set(pairs ...any) {
	d.t.Helper()
	d.change(func() {
		for i := 0; i < len(pairs); i += 2 {
			d.lines[pairs[i].(string)] = fmt.Sprint(pairs[i+1])
		}
	})
}

// unset removes lines.
func (d *driver) unset(keys ...string) {
	d.t.Helper()
	d.change(func() {
		for _, key := range keys {
			delete(d.lines, key)
		}
	})
}

// change writes the lines anew, at once: each call reads them.
func (d *driver) change(how func()) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	how()
	var text bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(d.lines)) {
		fmt.Fprintf(&text, "%s %s\n", key, d.lines[key])
	}
	writeFile(d.t, filepath.Join(d.folder, "state"), text.String())
}

// calls counts the calls of a function since the start: `nvmlInit_v2`, or
// `nvmlDeviceGetName 0`.
func (d *driver) calls(what string) int {
	d.t.Helper()
	content, err := os.ReadFile(filepath.Join(d.folder, "calls"))
	require.NoError(d.t, err)
	n := 0
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, " ")
		if line == what || name == what {
			n++
		}
	}
	return n
}

// gpu holds what a GPU answers: NVML's figures by the double's names.
type gpu map[string]any

// answer sets a figure that has one value.
func (g gpu) answer(name string, value any) {
	g[name+".ret"], g[name+".value"] = 0, value
}

// is returns a figure.
func (g gpu) is(name string) float64 {
	switch v := g[name].(type) {
	case int:
		return float64(v)
	case float64:
		return v
	}
	panic(name)
}

// value returns a figure that has one value.
func (g gpu) value(name string) float64 { return g.is(name + ".value") }

// profileNames are GPM's metrics by their numbers.
var profileNames = map[int]string{
	2: "smActive", 3: "smOccupancy", 5: "pipeTensorActive", 7: "pipeTensorHmmaActive", 10: "dramActive",
	11: "pipeFp64Active", 12: "pipeFp32Active", 13: "pipeFp16Active",
	20: "pcieTxBytes", 21: "pcieRxBytes", 60: "nvlinkRxBytes", 61: "nvlinkTxBytes",
}

// fullGPU answers every question, each GPU with figures of its own.
func fullGPU(i int) gpu {
	g := gpu{
		"handle.ret": 0, "mig_mode.ret": notSupported,
		"utilization.ret": 0, "utilization.gpu": 90 - 7*i, "utilization.memory": 11 + 5*i,
		"memory_v2.ret": 0, "memory_v2.total": 85520809984, "memory_v2.reserved": 636485632,
		"memory_v2.used": 1073741824*(i+1) + 4096*i, "memory_v2.free": 40000000000,
		"memory_v1.ret": 0, "memory_v1.total": 85520809984, "memory_v1.free": 30000000000, "memory_v1.used": 55520809984,
		"remapped_rows.ret": 0, "remapped_rows.corrected": 3 + i, "remapped_rows.uncorrected": i,
		"remapped_rows.pending": i % 2, "remapped_rows.failed": (i + 1) % 2,
	}
	for _, kind := range []string{"compute", "graphics", "mps"} {
		g[kind+"_processes.ret"], g[kind+"_processes.list.#"] = 0, 0
	}
	for name, value := range map[string]any{
		"name": "NVIDIA H100 80GB HBM3", "uuid": fmt.Sprintf("GPU-0e2e0000-0000-4000-8000-00000000000%d", i),
		"pci_bus_id": fmt.Sprintf("00000000:%02X:00.0", 0x18+8*i), "minor": i,
		"temperature": 41 + i, "temperature_v": 99, "power_usage": 123_456 + 50_000*i, "enforced_power_limit": 700_000 - 100_000*(i%3),
		"clock_graphics": 1980 - i, "clock_sm": 1755 - i, "clock_mem": 2619 - i,
		"ecc_corrected_volatile_2": 1000 + i, "ecc_uncorrected_volatile_2": i, "encoder_utilization": 2 * i,
		"ecc_corrected_aggregate_2": 5000, "ecc_uncorrected_aggregate_2": 6000,
		"fan_speed": 30 + i, "pcie_link_gen": 1 + i%5, "pcie_link_width": 8, "pcie_max_link_gen": 5, "pcie_max_link_width": 16,
		"pcie_speed": 32_000, "total_energy": 987_654_321 + i, "pcie_replays": 7 + i,
		"retired_pages_single": 1 + i, "retired_pages_double": 2 + i, "retired_pages_pending": i % 2,
		"clocks_event_reasons": 0x1 << i, "supported_clocks_event_reasons": 0x1ff, "supported_event_types": 0x1f,
		"gpm_support": 1,
	} {
		g.answer(name, value)
	}
	for id := range profileNames {
		g.answer(fmt.Sprintf("gpm_metrics.%d", id), float64(id+i)/2)
	}
	return g
}

// fullGPUs are several of them.
func fullGPUs(n int) []gpu {
	var all []gpu
	for i := range n {
		all = append(all, fullGPU(i))
	}
	return all
}

// hold makes processes hold a GPU, with this much memory each.
func (d *driver) hold(device int, memory map[int]int) {
	d.t.Helper()
	list := fmt.Sprintf("devices.%d.compute_processes.list.", device)
	pairs := []any{list + "#", len(memory)}
	for k, pid := range slices.Sorted(maps.Keys(memory)) {
		pairs = append(pairs, fmt.Sprintf("%s%d.pid", list, k), pid, fmt.Sprintf("%s%d.used", list, k), memory[pid])
	}
	d.set(pairs...)
}
