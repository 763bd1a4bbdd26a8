// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// tooLong catches hangs; nothing here takes near as long.
const tooLong = 20 * time.Second

// rig is the family at work.
type rig struct {
	t       testing.TB
	scraper *gpuScraper
	logs    *observer.ObservedLogs
}

// newRig starts the family. It is stopped with the test.
func newRig(t testing.TB, cfg Config, extended bool) *rig {
	t.Helper()
	if cfg.Source == "" {
		cfg.Source = sourceAuto
	}
	if cfg.CommonConfig.Timing.CollectionInterval == 0 {
		cfg.CommonConfig.Timing.CollectionInterval = time.Second
	}
	require.NoError(t, cfg.Validate())
	set, logs := settings(t, extended)
	made, err := newScraper(set, &cfg)
	require.NoError(t, err)
	return startRig(t, made.(*gpuScraper), logs)
}

// lookingRig has a looker of the test's.
func lookingRig(t testing.TB, l looker, cfg Config, extended bool) *rig {
	t.Helper()
	set, logs := settings(t, extended)
	return startRig(t, newScraperFor(set, &cfg, newLooking(l, &cfg, set.Receiver.Logger)), logs)
}

func settings(t testing.TB, extended bool) (scrapers.Settings, *observer.ObservedLogs) {
	t.Helper()
	m := scraperstest.NewMachine(t)
	// Without it the machine's resource would be made at each scrape.
	m.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n")
	set, logs := scraperstest.NewSettings(t, m.Root, extended)
	set.DetectionInterval = time.Minute
	return set, logs
}

func startRig(t testing.TB, s *gpuScraper, logs *observer.ObservedLogs) *rig {
	t.Helper()
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	r := &rig{t, s, logs}
	t.Cleanup(r.shutdown)
	return r
}

func (r *rig) shutdown() {
	r.t.Helper()
	require.NoError(r.t, r.scraper.Shutdown(context.Background())) // the test's has ended
}

func (r *rig) scrape() (pmetric.Metrics, error) {
	r.t.Helper()
	md, err := r.scraper.Scrape(r.t.Context())
	scraperstest.RequireSane(r.t, md)
	return md, err
}

// tags are those of a scrape that has nothing to complain of.
func (r *rig) tags() map[string]float64 {
	r.t.Helper()
	md, err := r.scrape()
	require.NoError(r.t, err)
	return scraperstest.TagsOf(md)
}

// write makes a file of the test's.
func write(t testing.TB, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// busyMac has a GPU that was busy for 3 of 4 seconds, at 800 MHz in the mean.
func busyMac() *capture.Capture {
	table := []byte{0, 132, 215, 23, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 202, 154, 59, 2, 0, 0, 0} // 400, 0 and 1000 MHz
	return &capture.Capture{
		Format: capture.Format,
		System: capture.System{Chip: "Apple M9", Model: "Mac99,1", OS: "27.0", Arch: "arm64", Memory: 1000},
		Pmgr:   map[string][]byte{"voltage-states9": table, "voltage-states1-sram": table, "voltage-states5-sram": table},
		Registry: []capture.Entry{
			{Class: "AppleParavirtGPU"},
			{Class: "AGXAcceleratorG99", Properties: capture.Properties{Model: "Apple M9", Cores: 16, Statistics: capture.Statistics{
				"Device Utilization %": 5, "In use system memory": 250, "Alloc system memory": 2000, "recoveryCount": 3,
			}}},
		},
		Report: capture.IOReport{Samples: []capture.Sample{sampleOf(0), sampleOf(4)}},
		SMC: capture.SMC{Keys: []capture.Key{
			{Name: "Tg01", Type: "flt ", Data: []byte{0, 0, 32, 66}}, // 40
			{Name: "Tg02", Type: "sp78", Data: []byte{50, 0}},
			{Name: "Tp01", Type: "flt ", Data: []byte{0, 0, 112, 66}}, // 60
			{Name: "PSTR", Type: "flt ", Data: []byte{0, 0, 160, 65}}, // 20
		}},
		HID: capture.HID{Sensors: []capture.Sensor{}},
	}
}

func sampleOf(seconds int64) capture.Sample {
	energy := func(name, unit string, value int64) capture.Channel {
		return capture.Channel{Group: "Energy Model", Name: name, Unit: unit, Kind: capture.Simple, Value: value}
	}
	states := func(group, subgroup, name string) capture.Channel {
		return capture.Channel{Group: group, Subgroup: subgroup, Name: name, Unit: "24Mticks", Kind: capture.State, States: []capture.Residency{
			{Name: "OFF", Ticks: 7 + seconds}, {Name: "P1", Ticks: 7 + seconds}, {Name: "P2", Ticks: 2 * seconds},
		}}
	}
	return capture.Sample{At: seconds * 1e9, Channels: []capture.Channel{
		energy("GPU Energy", "nJ", 66e9*seconds/4), energy("GPU", "mJ", 66e3*seconds/4), energy("ANE", "mJ ", 1000*seconds),
		energy("CPU Energy", "mJ", 5000*seconds),
		states("GPU Stats", "GPU Performance States", "GPUPH"), states("GPU Stats", "Other", "GPUPH"),
		states("CPU Stats", "CPU Core Performance States", "ECPU000"), states("CPU Stats", "CPU Core Performance States", "PCPU010"),
	}}
}

// recorded writes a capture to a file.
func recorded(t testing.TB, c *capture.Capture) string {
	t.Helper()
	content, err := c.Content()
	require.NoError(t, err)
	return write(t, "mac.json", string(content))
}

var busyTags = map[string]float64{
	"gpu.0.gpu": 75, "gpu.0.powerWatts": 16.5, "gpu.0.powerPercent": 50, "gpu.0.temp": 45, "gpu.0.memoryAllocated": 25,
}

var busyExtras = map[string]float64{
	"gpu.0.freq": 800, "gpu.0.memoryUsed": 250, "gpu.0.memoryAllocatedBytes": 2000, "gpu.0.recoveryCount": 3,
	"ane.power": 1, "cpu.powerWatts": 5, "system.powerWatts": 20, "cpu.avg_temp": 60,
	"cpu.ecpu_percent": 75, "cpu.pcpu_percent": 75, "cpu.ecpu_freq": 800, "cpu.pcpu_freq": 800,
}

// isSource wants an error of a source.
func isSource(t testing.TB, err error, source string, texts ...string) {
	t.Helper()
	var failed *scrapers.SourceError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, source, failed.Source)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}
