// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

func TestReplay(t *testing.T) {
	r := newRig(t, Config{ReplayFile: recorded(t, busyMac())}, false)
	for range 3 {
		scraperstest.CompareTags(t, "tags", busyTags, r.tags())
	}
}

func TestReplayExtended(t *testing.T) {
	all := maps.Clone(busyTags)
	maps.Copy(all, busyExtras)
	scraperstest.CompareTags(t, "tags", all, newRig(t, Config{ReplayFile: recorded(t, busyMac())}, true).tags())
}

func TestAttributesAndResource(t *testing.T) {
	r := newRig(t, Config{ReplayFile: recorded(t, busyMac())}, true)
	md, err := r.scrape()
	require.NoError(t, err)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	resource := md.ResourceMetrics().At(0).Resource().Attributes().AsRaw()
	assert.Equal(t, int64(1), resource["wandb.gpu_count"])
	assert.Equal(t, "Apple M9", resource["wandb.gpu_type"])
	for _, p := range scraperstest.PointsOf(md) {
		if strings.HasPrefix(p.Metric.Name(), "gpu.") {
			assert.Equal(t, map[string]any{"gpu_index": int64(0), "gpu_vendor": "apple", "gpu_model": "Apple M9"}, p.Attributes, p.Metric.Name())
		}
	}
}

func TestLimitOfPower(t *testing.T) {
	c := busyMac()
	c.Config = &capture.Config{GPUPowerLimitWatts: 66}
	file := recorded(t, c)
	assert.InDelta(t, 25, newRig(t, Config{ReplayFile: file}, false).tags()["gpu.0.powerPercent"], 1e-9, "of the file")
	assert.InDelta(t, 200, newRig(t, Config{ReplayFile: file, GPUPowerLimitWatts: 8.25}, false).tags()["gpu.0.powerPercent"], 1e-9, "configured")
}

func TestReplayFileThatCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct{ file, want string }{
		"missing":    {filepath.Join(t.TempDir(), "none.json"), "no such file"},
		"no capture": {write(t, "x.json", "{}"), "unknown format"},
		"large":      {write(t, "x.json", strings.Repeat(" ", maxCapture+1)), "16777216"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{ReplayFile: tt.file}, false)
			md, err := r.scrape()
			isSource(t, err, "replay_file "+tt.file, tt.want)
			assert.Zero(t, md.DataPointCount())
			require.NoError(t, os.WriteFile(tt.file, []byte(content(t, busyMac())), 0o600))
			scraperstest.CompareTags(t, "tags", busyTags, r.tags())
		})
	}
}

func content(t testing.TB, c *capture.Capture) string {
	t.Helper()
	text, err := c.Content()
	require.NoError(t, err)
	return string(text)
}

func TestWhatWasNotReadWhereItWasRecordedIsTold(t *testing.T) {
	c := busyMac()
	c.Report = capture.IOReport{Error: "refused", Samples: []capture.Sample{}}
	r := newRig(t, Config{ReplayFile: recorded(t, c)}, false)
	md, err := r.scrape()
	isSource(t, err, "IOReport", "as recorded: refused")
	scraperstest.CompareTags(t, "tags", map[string]float64{"gpu.0.gpu": 5, "gpu.0.temp": 45, "gpu.0.memoryAllocated": 25}, scraperstest.TagsOf(md))
}

func TestVirtualMachine(t *testing.T) {
	c := busyMac()
	c.Registry, c.Report, c.SMC = c.Registry[:1], capture.IOReport{Error: "NULL"}, capture.SMC{Error: "none"}
	for name, registry := range map[string][]capture.Entry{"another GPU": c.Registry, "none": {}, "not told": nil} {
		t.Run(name, func(t *testing.T) {
			c.Registry = registry
			md, err := newRig(t, Config{ReplayFile: recorded(t, c)}, true).scrape()
			isAbsent(t, err, "shows no Apple GPU")
			assert.Zero(t, md.DataPointCount())
		})
	}
}

// isAbsent wants that error alone.
func isAbsent(t testing.TB, err error, reason string) {
	t.Helper()
	var why *scrapers.AbsentError
	require.ErrorAs(t, err, &why)
	assert.Contains(t, why.Reason, reason)
	assert.Equal(t, why.Error(), err.Error())
}

func TestOtherSystemsHaveNoAppleGPU(t *testing.T) {
	if runtime.GOOS == "darwin" && runtime.GOARCH == "arm64" {
		t.Skip("this is one that has")
	}
	for _, source := range []sourceName{sourceAuto, sourceNative, sourceIOReg, sourceMacmon, sourcePowermetrics} {
		r := newRig(t, Config{Source: source}, false)
		r.scraper.Prime(t.Context())
		md, err := r.scrape()
		isAbsent(t, err, "")
		assert.Zero(t, md.DataPointCount())
	}
}

func TestCounterOfRecoveries(t *testing.T) {
	c := busyMac()
	r := lookingRig(t, seen{c}, Config{}, true)
	point := func() pmetric.NumberDataPoint {
		md, err := r.scrape()
		require.NoError(t, err)
		for _, p := range scraperstest.PointsOf(md) {
			if p.Metric.Name() == "gpu.recoveryCount" {
				return p.Data
			}
		}
		require.Fail(t, "there is none")
		return pmetric.NumberDataPoint{}
	}
	first, second := point(), point()
	assert.Equal(t, first.StartTimestamp(), second.StartTimestamp())
	assert.Equal(t, first.Timestamp(), first.StartTimestamp())
	c.Registry[1].Properties.Statistics["recoveryCount"] = 1
	third := point()
	assert.Equal(t, second.Timestamp(), third.StartTimestamp(), "the Mac was started anew")
	assert.EqualValues(t, 1, third.IntValue())
}

// mac is a looker that sees one sample at a time.
type mac struct {
	seconds int64
	errs    []error
}

func (m *mac) Look(context.Context) (*capture.Capture, []error) {
	c := busyMac()
	c.Report.Samples = []capture.Sample{sampleOf(m.seconds)}
	m.seconds += 4
	return c, m.errs
}

func TestFirstScrapeHasNoDifference(t *testing.T) {
	r := lookingRig(t, &mac{}, Config{}, false)
	scraperstest.CompareTags(t, "first", map[string]float64{"gpu.0.temp": 45, "gpu.0.memoryAllocated": 25}, r.tags())
	for range 2 {
		scraperstest.CompareTags(t, "next", busyTags, r.tags())
	}
}

// What is recorded gives the same figures when it is replayed.
func TestRecording(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mac.json")
	r := lookingRig(t, &mac{}, Config{CaptureFile: file, GPUPowerLimitWatts: 33}, false)
	r.tags()
	require.NoFileExists(t, file, "one look is not enough")
	scraperstest.CompareTags(t, "live", busyTags, r.tags())
	require.FileExists(t, file)
	r.tags()
	require.Equal(t, 1, r.logs.FilterMessageSnippet("A capture was recorded").Len())
	scraperstest.CompareTags(t, "replayed", busyTags, newRig(t, Config{ReplayFile: file}, false).tags())
	info, err := os.Stat(file)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

func TestRecordingLeavesFilesAlone(t *testing.T) {
	file := write(t, "mine.txt", "mine")
	r := lookingRig(t, &mac{}, Config{CaptureFile: file}, false)
	for range 4 {
		r.tags()
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	assert.Equal(t, 1, r.logs.FilterMessageSnippet("No capture is recorded").Len())
}

func TestRecordingThatFailsIsTried(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "later")
	r := lookingRig(t, &mac{}, Config{CaptureFile: filepath.Join(folder, "mac.json")}, false)
	r.tags()
	md, err := r.scrape()
	isSource(t, err, "capture_file", "no such file")
	scraperstest.CompareTags(t, "tags", busyTags, scraperstest.TagsOf(md))
	require.NoError(t, os.Mkdir(folder, 0o700))
	r.tags()
	require.FileExists(t, filepath.Join(folder, "mac.json"))
}

func TestMacWithoutGPUIsRecordedToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vm.json")
	c := &capture.Capture{Format: capture.Format, Registry: []capture.Entry{}}
	r := lookingRig(t, seen{c}, Config{CaptureFile: file}, false)
	for range 2 {
		_, err := r.scrape()
		isAbsent(t, err, "shows no Apple GPU")
	}
	require.FileExists(t, file)
}

func TestSourcesThatFailDoNotHideTheOthers(t *testing.T) {
	r := lookingRig(t, &mac{errs: []error{&scrapers.SourceError{Source: "SMC", Err: errors.New("refused")}}}, Config{}, false)
	_, err := r.scrape()
	isSource(t, err, "SMC")
	md, err := r.scrape()
	isSource(t, err, "SMC")
	scraperstest.CompareTags(t, "tags", busyTags, scraperstest.TagsOf(md))
}

// Linked into a build without cgo, purego makes the binary a dynamic one.
func TestOnlyTheBuildForMacsLoadsLibraries(t *testing.T) {
	packages := func(system, processor string) []string {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "../../../receiver/wandbsysreceiver")
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	const purego = "github.com/ebitengine/purego"
	assert.NotContains(t, packages("linux", "amd64"), purego)
	assert.NotContains(t, packages("linux", "arm64"), purego)
	assert.Contains(t, packages("darwin", "arm64"), purego)
}

// Whatever a capture holds, each scrape has sane points or none.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(content(f, busyMac())))
	f.Add([]byte(`{"format":"apple-capture/1","config":{"gpu_power_limit_watts":-1e308},"ioreg":[{"class":"AGXAccelerator","properties":{"gpu-core-count":-1,"PerformanceStatistics":{"recoveryCount":-1}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := capture.Parse(text)
		if err != nil {
			return
		}
		r := lookingRig(t, seen{c}, Config{}, true)
		for range 2 {
			_, err := r.scrape() // the rig wants sane points
			var source *scrapers.SourceError
			require.NotErrorAs(t, err, &source)
		}
	})
}
