// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// state is what a card does. What is below 0 it does not tell.
type state struct {
	busy, memoryBusy, overdrive       int64
	vramUsed, vramTotal               int64 // bytes; amd-smi tells whole MiB
	gttUsed, gttTotal                 int64
	memory, junction, edge, power, cp int64 // °C, W; cp is the cap
	apu                               bool
}

// TestTheSourcesGiveTheSameTags tells the state of a machine's cards as sysfs, as
// amd-smi and as rocm-smi do. rocm-smi knows an APU's carve-out only, and amd-smi
// no overdrive.
func TestTheSourcesGiveTheSameTags(t *testing.T) {
	busy := state{
		busy: 97, memoryBusy: 62, overdrive: none64, vramUsed: 96 * gib, vramTotal: 192 * gib, gttUsed: 20 << 20, gttTotal: 756 * gib,
		memory: 64, junction: 78, edge: none64, power: 612, cp: 750,
	}
	idle := busy.but(func(s *state) {
		s.busy, s.memoryBusy, s.vramUsed, s.memory, s.junction, s.power = 0, 0, 283<<20, 33, 39, 134
	})
	for name, c := range map[string]struct {
		cards []state
		want  map[string]float64
	}{
		"MI300X at work":            {[]state{busy}, numbered(0, map[string]float64{"gpu": 97, "memoryAllocated": 50, "temp": 64, "powerWatts": 612, "powerPercent": 81.6})},
		"eight MI300X, one at work": {[]state{idle, idle, idle, busy, idle, idle, idle, idle}, nil},
		"the second die of an MI250X": {[]state{
			busy.but(func(s *state) { s.edge, s.power, s.cp = 45, 411, 560 }),
			busy.but(func(s *state) { s.edge, s.power, s.cp = 44, 0, 0 }),
		}, nil},
		"a memory without a temperature": {[]state{busy.but(func(s *state) { s.memory, s.edge = none64, 50 })}, nil},
		"a memory of 0 degrees":          {[]state{busy.but(func(s *state) { s.memory, s.edge = 0, 50 })}, nil},
		"an edge alone":                  {[]state{busy.but(func(s *state) { s.memory, s.junction, s.edge = none64, none64, 50 })}, nil},
		"a Radeon above its cap":         {[]state{busy.but(func(s *state) { s.edge, s.overdrive, s.power, s.cp = 50, 3, 310, 303 })}, nil},
		"no utilisation of the memory":   {[]state{busy.but(func(s *state) { s.memoryBusy = none64 })}, nil},
		"no cap":                         {[]state{busy.but(func(s *state) { s.cp = none64 })}, nil},
		"an APU": {[]state{{
			busy: 19, memoryBusy: none64, overdrive: none64, vramUsed: 475 << 20, vramTotal: 512 << 20, gttUsed: 60 * gib, gttTotal: 120 * gib,
			memory: none64, junction: none64, edge: 62, power: 71, cp: none64, apu: true,
		}}, numbered(0, map[string]float64{"gpu": 19, "memoryAllocated": 50, "temp": 62, "powerWatts": 71})},
		"an APU with more memory of its own": {[]state{{
			busy: 19, memoryBusy: none64, overdrive: none64, vramUsed: 48 * gib, vramTotal: 96 * gib, gttUsed: gib, gttTotal: 16 * gib,
			memory: none64, junction: none64, edge: 62, power: 71, cp: none64, apu: true,
		}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, extended := range []bool{false, true} {
				sysfs := scrapeForm(t, sysfsForm(t, c.cards), extended)
				require.NotEmpty(t, sysfs)
				if c.want != nil && !extended {
					scraperstest.CompareTags(t, "sysfs", c.want, sysfs)
				}
				amdSMI := scrapeForm(t, amdSMIForm(t, c.cards), extended)
				scraperstest.CompareTags(t, "amd-smi", without(sysfs, "memoryOverDrive"), amdSMI)
				rocmSMI := scrapeForm(t, rocmSMIForm(t, c.cards), extended)
				for i, card := range c.cards {
					if tag := fmt.Sprintf("gpu.%d.memoryAllocated", i); card.apu && card.gttTotal > card.vramTotal {
						assert.InDelta(t, 100*float64(card.vramUsed)/float64(card.vramTotal), rocmSMI[tag], 1e-6, "the carve-out")
						rocmSMI[tag] = sysfs[tag]
					}
				}
				scraperstest.CompareTags(t, "rocm-smi", sysfs, rocmSMI)
			}
		})
	}
}

const none64 = -1

func (s state) but(change func(*state)) state {
	change(&s)
	return s
}

// form is a machine, and how it is asked.
type form struct {
	root string
	cfg  Config
}

// publishedTags are those that the three sources have in common.
var publishedTags = []string{"gpu", "memoryAllocated", "temp", "powerWatts", "powerPercent", "memoryReadWriteActivity", "memoryOverDrive"}

func scrapeForm(t *testing.T, f form, extended bool) map[string]float64 {
	t.Helper()
	s, _ := scraperBelow(t, f.root, extended, &f.cfg)
	tags, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	published := map[string]float64{}
	for _, name := range publishedTags {
		for tag, v := range tags {
			if strings.HasSuffix(tag, "."+name) {
				published[tag] = v
			}
		}
	}
	return published
}

func without(tags map[string]float64, name string) map[string]float64 {
	left := maps.Clone(tags)
	maps.DeleteFunc(left, func(tag string, _ float64) bool { return strings.HasSuffix(tag, "."+name) })
	return left
}

// sysfsForm has the bytes as they are; microwatts and millidegrees.
func sysfsForm(t *testing.T, cards []state) form {
	t.Helper()
	tr := newTree(t)
	for i, s := range cards {
		files := fileSet{"power/runtime_status": "active", "hwmon/hwmon3/name": "amdgpu"}
		add := func(name string, v, unit int64) {
			if v >= 0 {
				files[name] = strconv.FormatInt(v*unit, 10)
			}
		}
		add("gpu_busy_percent", s.busy, 1)
		add("mem_busy_percent", s.memoryBusy, 1)
		add("pp_mclk_od", s.overdrive, 1)
		add("mem_info_vram_used", s.vramUsed, 1)
		add("mem_info_vram_total", s.vramTotal, 1)
		add("mem_info_gtt_used", s.gttUsed, 1)
		add("mem_info_gtt_total", s.gttTotal, 1)
		add("hwmon/hwmon3/power1_average", s.power, 1e6)
		add("hwmon/hwmon3/power1_cap", s.cp, 1e6)
		for n, sensor := range []struct {
			label string
			value int64
		}{{"edge", s.edge}, {"junction", s.junction}, {"mem", s.memory}} {
			add(fmt.Sprintf("hwmon/hwmon3/temp%d_input", n+1), sensor.value, 1000)
			files[fmt.Sprintf("hwmon/hwmon3/temp%d_label", n+1)] = sensor.label
		}
		if s.apu {
			files["hwmon/hwmon3/in1_label"] = "vddnb"
		}
		tr.add(gpu{pci: fmt.Sprintf("0000:%02x:00.0", 16*i+5), card: i, render: 128 + i, node: i + 1, id: 100 + i, target: 90402, files: files})
	}
	return form{tr.Root, Config{Source: sourceSysfs}}
}

// rocmSMIForm has texts, and no key for what is not known.
func rocmSMIForm(t *testing.T, cards []state) form {
	t.Helper()
	document := map[string]map[string]string{"system": {"Driver version": "6.8.5"}}
	for i, s := range cards {
		c := map[string]string{"PCI Bus": fmt.Sprintf("0000:%02X:00.0", 16*i+5)}
		add := func(key string, v int64, form string) {
			if v >= 0 {
				c[key] = fmt.Sprintf(form, v)
			}
		}
		add("GPU use (%)", s.busy, "%d")
		add("GPU Memory Read/Write Activity (%)", s.memoryBusy, "%d")
		add("GPU Memory OverDrive value (%)", s.overdrive, "%d")
		add("VRAM Total Memory (B)", s.vramTotal, "%d")
		add("VRAM Total Used Memory (B)", s.vramUsed, "%d")
		add("GPU Memory Allocated (VRAM%)", 100*s.vramUsed/s.vramTotal, "%d")
		add("Temperature (Sensor memory) (C)", s.memory, "%d.0")
		add("Temperature (Sensor junction) (C)", s.junction, "%d.0")
		add("Temperature (Sensor edge) (C)", s.edge, "%d.0")
		add("Average Graphics Package Power (W)", s.power, "%d.0")
		add("Max Graphics Package Power (W)", s.cp, "%d.0")
		if s.power == 0 {
			c["Average Graphics Package Power (W)"] = "N/A (Secondary die)"
		}
		document[fmt.Sprintf("card%d", i)] = c
	}
	return form{t.TempDir(), Config{Source: sourceROCmSMI, ROCmSMIPath: printer(t, "rocm-smi", document, nil)}}
}

// amdSMIForm has numbers with units, N/A for what is not known, and the caps in
// another answer.
func amdSMIForm(t *testing.T, cards []state) form {
	t.Helper()
	var metric, static []map[string]any
	for i, s := range cards {
		figure := func(v int64, unit string) any {
			if v < 0 {
				return "N/A"
			}
			return map[string]any{"value": v, "unit": unit}
		}
		pool := func(v int64) any { return figure(v>>20, "MB") }
		usage := map[string]any{"gfx_activity": figure(s.busy, "%"), "umc_activity": figure(s.memoryBusy, "%")}
		if s.apu {
			usage["apu_average_gfx_activity"] = figure(s.busy, "%")
		}
		metric = append(metric, map[string]any{
			"gpu": i, "usage": usage,
			"power":       map[string]any{"socket_power": figure(s.power, "W")},
			"temperature": map[string]any{"edge": figure(s.edge, "C"), "hotspot": figure(s.junction, "C"), "mem": figure(s.memory, "C")},
			"mem_usage": map[string]any{
				"total_vram": pool(s.vramTotal), "used_vram": pool(s.vramUsed), "total_gtt": pool(s.gttTotal), "used_gtt": pool(s.gttUsed),
			},
		})
		static = append(static, map[string]any{"gpu": i, "limit": map[string]any{"ppt0": map[string]any{"socket_power_limit": figure(s.cp, "W")}}})
	}
	return form{t.TempDir(), Config{
		Source: sourceAMDSMI, AMDSMIPath: printer(t, "amd-smi", map[string]any{"gpu_data": metric}, map[string]any{"gpu_data": static}),
	}}
}

// printer writes a tool that prints documents.
func printer(t *testing.T, name string, document, static any) string {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, document any) string {
		text, err := json.Marshal(document)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return writeTool(t, name, file("document", document), file("static", static), "", 0)
}

// TestSamplesOfOneStateGiveTheSameTags compares recorded output of tools with
// recorded files of the driver, where both are of the same cards at work.
func TestSamplesOfOneStateGiveTheSameTags(t *testing.T) {
	all := loadSamples(t)
	for _, driver := range all {
		for _, tool := range all {
			if driver.Kind != "sysfs" || tool.Kind == "sysfs" || tool.Kind == "gpu_metrics" || !isOneState(driver.Tags, tool.Tags) {
				continue
			}
			t.Run(filepath.Base(driver.stem)+"/"+filepath.Base(tool.stem), func(t *testing.T) {
				of, by := driver.scrape(t, false), tool.scrape(t, false)
				for tag, v := range by {
					if !strings.HasSuffix(tag, ".memoryAllocated") {
						assert.InDelta(t, of[tag], v, 1e-6, tag)
						continue
					}
					assert.InDelta(t, math.Floor(of[tag]), math.Floor(v), 0, "%s: at most rounded down", tag)
				}
			})
		}
	}
}

// isOneState tells whether the tool lists a GPU, and all that it lists are as
// busy, as hot and as hungry as the driver's.
func isOneState(driver, tool map[string]float64) bool {
	compared := 0
	for tag, v := range tool {
		if strings.HasSuffix(tag, ".memoryAllocated") || strings.HasSuffix(tag, ".powerPercent") {
			continue
		}
		if of, ok := driver[tag]; !ok || math.Abs(of-v) > 1e-6 {
			return false
		}
		compared++
	}
	return compared > 0
}
