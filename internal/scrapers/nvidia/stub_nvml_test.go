// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// stubFolder names the folder of the stub's state, to the stub.
	stubFolder = "NVML_STUB"
	// stubLibrary is the library that a child process uses.
	stubLibrary = "NVML_STUB_LIBRARY"
)

// gcc returns the compiler.
func gcc(t testing.TB) string {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("gcc is needed")
		}
		t.Skip("gcc is missing")
	}
	return compiler
}

// lastingFolder is there until all tests have ended.
func lastingFolder() (string, error) {
	folder, err := os.MkdirTemp("", "nvml")
	removeAtEnd = append(removeAtEnd, folder)
	return folder, err
}

// stubObject is testdata/nvml/stub.c, compiled once.
var stubObject = sync.OnceValues(func() (string, error) {
	folder, err := lastingFolder()
	if err != nil {
		return "", err
	}
	object := filepath.Join(folder, "stub.o")
	out, err := exec.Command("gcc", "-w", "-O1", "-c", "-fPIC", "-o", object, "testdata/nvml/stub.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return object, nil
})

// buildStub makes a library of the stub without some functions, which are
// patterns.
func buildStub(t testing.TB, hidden ...string) string {
	t.Helper()
	compiler := gcc(t)
	object, err := stubObject()
	require.NoError(t, err)
	library := filepath.Join(t.TempDir(), defaultLibrary)
	args := []string{"-shared", "-o", library, object}
	if len(hidden) > 0 {
		script := filepath.Join(filepath.Dir(library), "hide.map")
		require.NoError(t, os.WriteFile(script, []byte("{ local: "+strings.Join(hidden, "; ")+"; };\n"), 0o600))
		args = append(args, "-Wl,--version-script="+script)
	}
	out, err := exec.Command(compiler, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return library
}

// sharedStub is the library of this process: there can be one only.
var sharedStub = struct {
	sync.Mutex
	library, folder string
}{}

// stub is NVML's double.
type stub struct {
	t       testing.TB
	library string
	folder  string
	state   map[string]string
}

// newStub returns the double with an empty state and an empty log.
func newStub(t testing.TB) *stub {
	t.Helper()
	sharedStub.Lock()
	defer sharedStub.Unlock()
	if sharedStub.library == "" {
		keepStub(t)
	}
	t.Setenv(stubFolder, sharedStub.folder)
	s := &stub{t: t, library: sharedStub.library, folder: sharedStub.folder}
	s.reset()
	t.Cleanup(s.settle)
	return s
}

// keepStub makes the library of this process, which outlives the test.
func keepStub(t testing.TB) {
	t.Helper()
	folder, err := lastingFolder()
	require.NoError(t, err)
	library := os.Getenv(stubLibrary)
	if library == "" {
		library = filepath.Join(folder, defaultLibrary)
		require.NoError(t, os.Link(buildStub(t), library))
	}
	sharedStub.library, sharedStub.folder = library, folder
}

// settle ends what hangs, so that one test does not hold up the next.
func (s *stub) settle() {
	s.reset()
	process.slot.Settle(context.Background())
}

func (s *stub) reset() {
	s.state = map[string]string{"init.ret": "0", "device_count.ret": "0"}
	s.write()
	s.clearCalls()
}

// set changes lines of the state: key, value, key, value.
func (s *stub) set(pairs ...any) {
	s.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		s.state[pairs[i].(string)] = fmt.Sprint(pairs[i+1])
	}
	s.write()
}

// unset removes lines.
func (s *stub) unset(keys ...string) {
	for _, key := range keys {
		delete(s.state, key)
	}
	s.write()
}

// load replaces the state by what JSON says.
func (s *stub) load(document map[string]any) {
	s.state = map[string]string{}
	flatten(s.state, "", document)
	s.write()
}

// write replaces the file at once: the stub reads it at every call.
func (s *stub) write() {
	var text bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(s.state)) {
		fmt.Fprintf(&text, "%s %s\n", key, s.state[key])
	}
	next := filepath.Join(s.folder, "next")
	require.NoError(s.t, os.WriteFile(next, text.Bytes(), 0o600))
	require.NoError(s.t, os.Rename(next, filepath.Join(s.folder, "state")))
}

// flatten makes lines of JSON: a.b.0.c, and a.b.# for the length of a list.
func flatten(lines map[string]string, path string, value any) {
	join := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			flatten(lines, join(key), inner)
		}
	case []any:
		lines[join("#")] = strconv.Itoa(len(v))
		for i, inner := range v {
			flatten(lines, join(strconv.Itoa(i)), inner)
		}
	default:
		lines[path] = fmt.Sprint(v)
	}
}

// decode reads JSON with all digits of numbers.
func decode(t testing.TB, content []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	require.NoError(t, d.Decode(into))
}

func (s *stub) clearCalls() {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.folder, "calls"), nil, 0o600))
}

// calls are those since clearCalls: `nvmlDeviceGetName 0`.
func (s *stub) calls() []string {
	content, err := os.ReadFile(filepath.Join(s.folder, "calls"))
	require.NoError(s.t, err)
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
}

// count says how often a function was called, for whatever.
func (s *stub) count(name string) int {
	n := 0
	for _, call := range s.calls() {
		if called, _, _ := strings.Cut(call, " "); called == name {
			n++
		}
	}
	return n
}

// waitFor waits until a function is called.
func (s *stub) waitFor(name string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.count(name) > 0 }, 10*time.Second, time.Millisecond, name)
}

// gpus puts GPUs with all figures into the state: GPU-0, GPU-1...
func (s *stub) gpus(n int) {
	s.set("device_count.value", n, "driver_version", "590.48.01", "cuda_driver_version", 13010)
	for i := range n {
		for key, value := range fullGPU(i) {
			s.state[fmt.Sprintf("devices.%d.%s", i, key)] = fmt.Sprint(value)
		}
	}
	s.write()
}

// fullGPU is a GPU that answers everything, with figures that tell it apart.
func fullGPU(i int) map[string]any {
	gpu := map[string]any{
		"handle.ret": 0, "mig_mode.ret": 3, "utilization.gpu": 50 + i, "utilization.memory": 20 + i,
		"memory_v2.total": 80000, "memory_v2.reserved": 1000, "memory_v2.free": 39000, "memory_v2.used": 40000 + i,
		"memory_v1.total": 80000, "memory_v1.free": 39000, "memory_v1.used": 41000 + i,
		"remapped_rows.corrected": 1, "remapped_rows.uncorrected": 2, "remapped_rows.pending": 1, "remapped_rows.failed": 0,
		"compute_processes.ret": 0, "compute_processes.list.#": 1,
		"compute_processes.list.0.pid": 1000 + i, "compute_processes.list.0.used": 30000 + i,
		"graphics_processes.ret": 0, "graphics_processes.list.#": 0,
		"mps_processes.ret": 0, "mps_processes.list.#": 0,
		"utilization.ret": 0, "memory_v2.ret": 0, "memory_v1.ret": 0, "remapped_rows.ret": 0,
	}
	for key, value := range map[string]any{
		"name": "NVIDIA H100 80GB HBM3", "uuid": fmt.Sprintf("GPU-%d", i), "pci_bus_id": fmt.Sprintf("00000000:%02X:00.0", 0x10+i),
		"temperature": 60 + i, "temperature_v": 61 + i, "power_usage": 350_000, "enforced_power_limit": 700_000,
		"clock_graphics": 1410, "clock_sm": 1400, "clock_mem": 2619,
		"ecc_corrected_volatile_2": 7, "ecc_uncorrected_volatile_2": 3, "encoder_utilization": 4,
		"fan_speed": 30, "pcie_link_gen": 4, "pcie_link_width": 16, "pcie_max_link_gen": 5, "pcie_max_link_width": 16,
		"pcie_speed": 32000, "total_energy": 5_000_500, "pcie_replays": 9,
		"retired_pages_single": 2, "retired_pages_double": 3, "retired_pages_pending": 1,
		"clocks_event_reasons": 0x5, "supported_clocks_event_reasons": 0x1ff, "supported_event_types": 0x1f,
		"gpm_support": 1,
	} {
		gpu[key+".ret"], gpu[key+".value"] = 0, value
	}
	for _, id := range slices.Concat(gpmPercent, gpmRates) {
		gpu[fmt.Sprintf("gpm_metrics.%d.ret", id)], gpu[fmt.Sprintf("gpm_metrics.%d.value", id)] = 0, id
	}
	return gpu
}

// runChild runs this very test in a process of its own, with another library,
// and fails with it. In the child it returns false.
func runChild(t *testing.T, library string) bool {
	t.Helper()
	if os.Getenv(stubLibrary) != "" {
		return false
	}
	out, err := childOutput(t, library)
	require.NoError(t, err, string(out))
	return true
}

// childOutput runs this very test with another library.
func childOutput(t *testing.T, library string) ([]byte, error) {
	t.Helper()
	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+part+"$")
	}
	return runTest(t, strings.Join(pattern, "/"), library)
}

// runTest runs a test in a process of its own, with a library.
func runTest(t *testing.T, pattern, library string) ([]byte, error) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run="+pattern, "-test.timeout=60s")
	child.Env = append(os.Environ(), stubLibrary+"="+library)
	out, err := child.CombinedOutput()
	require.NotNil(t, child.ProcessState)
	require.NotEqual(t, 127, child.ProcessState.ExitCode(), "a function was called that is not there: %s", out)
	return out, err
}

// xid queues an error of a GPU.
func (s *stub) xid(device, number int) {
	s.t.Helper()
	lastEvent++
	n, _ := strconv.Atoi(s.state["events.#"])
	at := fmt.Sprintf("events.%d.", n)
	s.set("events.#", n+1, at+"number", lastEvent, at+"device", device, at+"type", 8, at+"data", number)
}

// lastEvent is the number of the last event: the stub never goes back.
var lastEvent int
