// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// costs are the metrics that a library without a function lacks, as patterns.
// What is not listed costs nothing: something else takes its place.
var costs = map[string]string{
	"nvmlInit": `.*`, "nvmlShutdown": `.*`, "nvmlDeviceGetCount": `.*`, "nvmlDeviceGetHandleByIndex": `.*`,
	"nvmlDeviceGetUtilizationRates":          `gpu\.(process\.)?(gpu|memory)`,
	"nvmlDeviceGetPowerUsage":                `gpu\.(process\.)?power(Watts|Percent)`,
	"nvmlDeviceGetEnforcedPowerLimit":        `gpu\.(process\.)?(powerPercent|enforcedPowerLimitWatts)`,
	"nvmlDeviceGetClockInfo":                 `gpu\.(process\.)?(sm|memory|graphics)Clock`,
	"nvmlDeviceGetMemoryErrorCounter":        `gpu\.(process\.)?(c|unC)orrectedMemoryErrors`,
	"nvmlDeviceGetEncoderUtilization":        `gpu\.(process\.)?encoderUtilization`,
	"nvmlDeviceGetComputeRunningProcesses":   `gpu\.process\..*`,
	"nvmlDeviceGetMigMode":                   `gpu\.mig\..*`,
	"nvmlDeviceGetMaxMigDeviceCount":         `gpu\.mig\..*`,
	"nvmlDeviceGetMigDeviceHandleByIndex":    `gpu\.mig\..*`,
	"nvmlDeviceGetGpuInstanceId":             migGPM,
	"nvmlGpmQueryDeviceSupport":              allGPM,
	"nvmlGpmSampleAlloc":                     allGPM,
	"nvmlGpmSampleFree":                      allGPM,
	"nvmlGpmSampleGet":                       allGPM,
	"nvmlGpmMetricsGet":                      allGPM,
	"nvmlGpmMigSampleGet":                    migGPM,
	"nvmlDeviceGetFanSpeed":                  `gpu\.fanSpeed`,
	"nvmlDeviceGetCurrPcieLinkGeneration":    `gpu\.pcieLinkGen`,
	"nvmlDeviceGetCurrPcieLinkWidth":         `gpu\.pcieLinkWidth`,
	"nvmlDeviceGetMaxPcieLinkGeneration":     `gpu\.maxPcieLinkGen`,
	"nvmlDeviceGetMaxPcieLinkWidth":          `gpu\.maxPcieLinkWidth`,
	"nvmlDeviceGetPcieSpeed":                 `gpu\.pcieLinkSpeed`,
	"nvmlDeviceGetTotalEnergyConsumption":    `gpu\.energy`,
	"nvmlDeviceGetPcieReplayCounter":         `gpu\.pcieReplays`,
	"nvmlDeviceGetRemappedRows":              `gpu\.(remappedRows|rowRemapPending|rowRemapFailed)`,
	"nvmlDeviceGetRetiredPages":              `gpu\.retiredPages`,
	"nvmlDeviceGetRetiredPagesPendingStatus": `gpu\.retiredPagesPending`,
	"nvmlEventSetCreate":                     `gpu\.xidErrors`,
	"nvmlEventSetFree":                       `gpu\.xidErrors`,
	"nvmlEventSetWait":                       `gpu\.xidErrors`,
	"nvmlDeviceRegisterEvents":               `gpu\.xidErrors`,
	"nvmlDeviceGetSupportedEventTypes":       `gpu\.xidErrors`,
	// Then the lists are of the broken form.
	"nvmlDeviceGetRunningProcessDetailList": `gpu\.process\..*`,
}

const (
	migGPM = `gpu\.mig\.(smActive|smOccupancy|dramActive|pipe.*)`
	allGPM = `gpu\.(mig\.)?(smActive|smOccupancy|dramActive|pipe.*|pcie[TR]xBytes|nvlink[TR]xBytes)`
)

// The double has every function that is called.
func TestStubIsComplete(t *testing.T) {
	library := dl.New(buildStub(t), dl.RTLD_LAZY)
	require.NoError(t, library.Open())
	defer func() { _ = library.Close() }()
	for _, s := range symbols {
		for _, name := range s.names {
			assert.NoError(t, library.Lookup(name))
		}
	}
}

// A function that the library lacks costs what it tells, and never the process.
func TestMissingSymbol(t *testing.T) {
	if os.Getenv(stubLibrary) != "" {
		for _, line := range scrapeEverything(t) {
			fmt.Println(pointMark + line)
		}
		return
	}
	if testing.Short() {
		t.Skip("takes a process for each function")
	}
	all := scrapeEverything(t)
	require.Greater(t, len(all), 80)
	for _, s := range symbols {
		hide := [][]string{s.names}
		if len(s.names) > 1 {
			for _, name := range s.names { // another version takes its place
				hide = append(hide, []string{name})
			}
		}
		for _, names := range hide {
			t.Run(strings.Join(names, " "), func(t *testing.T) {
				t.Parallel()
				lost := regexp.MustCompile(`^$`)
				if pattern := costs[s.names[0]]; pattern != "" && len(names) == len(s.names) {
					lost = regexp.MustCompile("^(" + pattern + ")$")
				}
				requireLost(t, all, childPoints(t, "TestMissingSymbol", buildStub(t, names...)), lost)
			})
		}
	}
}

// A library without all that came after R390 works as that does.
func TestOldLibrary(t *testing.T) {
	if os.Getenv(stubLibrary) != "" {
		t.Skip("the child runs TestMissingSymbol")
	}
	library := buildStub(t, "nvml*_v2", "nvml*_v3", "nvmlGpm*", "*Mig*", "*MPS*", "*TemperatureV", "*Event*", "*Energy*", "*RemappedRows",
		"*PcieSpeed", "*InstanceId", "*DetailList", "*ConfCompute*", "nvmlSystemGetCudaDriverVersion")
	points := childPoints(t, "TestMissingSymbol", library)
	names := map[string]bool{}
	for _, p := range points {
		name, _, _ := strings.Cut(p, " ")
		names[name] = true
	}
	for _, name := range []string{"gpu.gpu", "gpu.memoryAllocatedBytes", "gpu.temp", "gpu.correctedMemoryErrors", "gpu.process.gpu", "gpu.clockEventActive", "gpu.retiredPages"} {
		assert.Contains(t, names, name)
	}
}

// What is not NVML is as good as none.
func TestNotNVML(t *testing.T) {
	folder := t.TempDir()
	source := filepath.Join(folder, "empty.c")
	require.NoError(t, os.WriteFile(source, nil, 0o600))
	empty := filepath.Join(folder, "empty.so")
	out, err := exec.Command(gcc(t), "-shared", "-o", empty, source).CombinedOutput()
	require.NoError(t, err, string(out))
	text := filepath.Join(folder, "text.so")
	require.NoError(t, os.WriteFile(text, bytes.Repeat([]byte("not a library\n"), 100), 0o600))
	for name, tt := range map[string]struct{ path, want string }{
		"an empty library": {empty, "no NVML library: " + empty + " is not NVML: it has no nvmlInit"},
		"a text":           {text, "no NVML library: " + text + ": invalid ELF header"},
		"a folder":         {folder, "no NVML library: " + folder + ": cannot read file data: Is a directory"},
		"nothing":          {filepath.Join(folder, "none.so"), "no NVML library: " + filepath.Join(folder, "none.so") + ": cannot open shared object file"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &library{}
			c, reason := l.open(tt.path)
			err := (&nvmlSource{}).describe(c, reason)
			var absent *scrapers.AbsentError
			require.ErrorAs(t, err, &absent)
			assert.Contains(t, absent.Reason, tt.want)
			assert.Contains(t, absent.Cure, "library_path")
		})
	}
}

const pointMark = "POINT "

// childPoints runs a test in a process of its own that prints its points.
func childPoints(t *testing.T, test, library string) []string {
	t.Helper()
	out, err := runTest(t, "^"+test+"$", library)
	require.NoError(t, err, string(out))
	var points []string
	for line := range strings.Lines(string(out)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), pointMark); ok {
			points = append(points, p)
		}
	}
	return points
}

// requireLost wants exactly the metrics lost that match.
func requireLost(t *testing.T, all, got []string, lost *regexp.Regexp) {
	t.Helper()
	for _, p := range all {
		name, _, _ := strings.Cut(p, " ")
		if slices.Contains(got, p) == lost.MatchString(name) {
			t.Errorf("%s: there: %v", p, slices.Contains(got, p))
		}
	}
	for _, p := range got {
		if !slices.Contains(all, p) {
			t.Errorf("%s is surplus", p)
		}
	}
}

// scrapeEverything reads a GPU and an MIG board in every way, and lists the
// points that there are without what names the GPU.
func scrapeEverything(t *testing.T) []string {
	t.Helper()
	double := newStub(t)
	double.gpus(2)
	for key, value := range migBoard(1) {
		double.set(key, value)
	}
	m := scraperstest.NewMachine(t)
	m.Process(2, 0, "kthreadd")
	m.Process(1000, 1, "python")
	gpuOnBus(m, "0000:10:00.0", "active")
	everything := func(change func(*Config), pause time.Duration) pmetric.Metrics {
		set, _ := scraperstest.NewSettings(t, m.Root, true)
		set.Workloads = workload.NewDiscovery(workload.Options{RootPath: m.Root, Target: scrapers.Target{Pid: 1000, Tree: true}})
		cfg := defaultConfig().(*Config)
		cfg.LibraryPath = double.library
		cfg.CommonConfig.Timing.CollectionInterval = time.Millisecond
		change(cfg)
		scraper, err := newScraper(set, cfg)
		require.NoError(t, err)
		_, _ = scraper.Scrape(t.Context())
		double.xid(0, 79)
		time.Sleep(pause)
		md, _ := scraper.Scrape(t.Context())
		scraperstest.RequireSane(t, md)
		require.NoError(t, scraper.Shutdown(t.Context()))
		return md
	}
	// Other ways to find the GPUs must not end the process either.
	everything(func(c *Config) { c.DeviceIDs = []any{"GPU-0", "0000:11:00.0"} }, 0)
	everything(func(c *Config) { c.SkipSuspended = true }, 0)
	everything(func(c *Config) { c.ReleaseDriverBetweenScrapes = true }, 0)

	found := map[string]bool{}
	for _, p := range scraperstest.PointsOf(everything(func(*Config) {}, minWindow+10*time.Millisecond)) {
		for _, key := range []string{"gpu_uuid", "gpu_model", "mig_gi", "mig_ci", "mig_profile"} {
			delete(p.Attributes, key)
		}
		found[p.Key()] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// migBoard makes a GPU an MIG board with one instance, in the second place.
func migBoard(i int) map[string]any {
	lines := map[string]any{}
	board := fmt.Sprintf("devices.%d.", i)
	for key, value := range map[string]any{
		"utilization.ret": 3, "encoder_utilization.ret": 3,
		"mig_mode.ret": 0, "mig_mode.current": 1, "mig_mode.pending": 1, "mig_max.ret": 0, "mig_max.value": 7,
		"mig.2.handle.ret": 0, "mig.2.name.ret": 0, "mig.2.name.value": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
		"mig.2.uuid.ret": 0, "mig.2.uuid.value": "MIG-" + strconv.Itoa(i), "mig.2.gi.ret": 0, "mig.2.gi.value": 5, "mig.2.ci.ret": 0, "mig.2.ci.value": 0,
		"mig.2.memory_v2.ret": 0, "mig.2.memory_v2.total": 1000, "mig.2.memory_v2.used": 250,
		"mig.2.memory_v1.ret": 0, "mig.2.memory_v1.total": 1000, "mig.2.memory_v1.used": 300,
	} {
		lines[board+key] = value
	}
	for _, id := range gpmPercent {
		key := fmt.Sprintf("%sgpm_mig_metrics.5.%d.", board, id)
		lines[key+"ret"], lines[key+"value"] = 0, id
	}
	return lines
}
