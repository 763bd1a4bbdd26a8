// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// absent stands for a tag that must not be there.
const absent = -1

// noBlob takes away what would help out.
func noBlob(changes fileSet) fileSet {
	all := maps.Clone(changes)
	all["gpu_metrics"] = "-"
	return all
}

// blobWith is gpu_metrics v1.4 of an MI300X with other fields.
func blobWith(changes map[int]uint64) string { return string(accelerator(changes)) }

// missing16 is what the driver writes for what it does not know.
const missing16 = 0xffff

// TestFiguresOfADevice changes single files of an MI300X; the figures that are not
// named stay as they are.
func TestFiguresOfADevice(t *testing.T) {
	const hwmon = "hwmon/hwmon6/"
	apu := fileSet{hwmon + "in1_label": "vddnb"}
	for name, c := range map[string]struct {
		changes fileSet
		want    map[string]float64
	}{
		"as it is": {},
		"the average power goes first": {
			fileSet{hwmon + "power1_average": "600000000"}, map[string]float64{"powerWatts": 600, "powerPercent": 80},
		},
		"an average power of 0 is none":           {changes: fileSet{hwmon + "power1_average": "0"}},
		"an average power that fails is none":     {changes: fileSet{hwmon + "power1_average": "!"}},
		"an average power below 0 is none":        {changes: fileSet{hwmon + "power1_average": "-5"}},
		"an average power of 20 kW is none":       {changes: fileSet{hwmon + "power1_average": "20000000000"}},
		"an average power beyond numbers is none": {changes: fileSet{hwmon + "power1_average": "99999999999999999999"}},
		"no power but in gpu_metrics": {
			fileSet{hwmon + "power1_input": "-", "gpu_metrics": blobWith(map[int]uint64{10: 600})},
			map[string]float64{"powerWatts": 600, "powerPercent": 80},
		},
		"a power of 0 everywhere": {
			fileSet{hwmon + "power1_input": "0", "gpu_metrics": blobWith(map[int]uint64{10: 0})},
			map[string]float64{"powerWatts": absent, "powerPercent": absent},
		},
		"no cap":          {fileSet{hwmon + "power1_cap": "-"}, map[string]float64{"powerPercent": absent}},
		"a cap of 0":      {fileSet{hwmon + "power1_cap": "0"}, map[string]float64{"powerPercent": absent}},
		"beyond the cap":  {fileSet{hwmon + "power1_cap": "306000000"}, map[string]float64{"powerPercent": 200}},
		"a lower maximum": {changes: fileSet{hwmon + "power1_cap_max": "100000000"}},

		"no utilisation but in gpu_metrics": {
			fileSet{"gpu_busy_percent": "-", "gpu_metrics": blobWith(map[int]uint64{12: 42})}, map[string]float64{"gpu": 42},
		},
		"a utilisation above 100 is asked for elsewhere": {
			fileSet{"gpu_busy_percent": "101", "gpu_metrics": blobWith(map[int]uint64{12: 42})}, map[string]float64{"gpu": 42},
		},
		"a utilisation in text is asked for elsewhere": {
			fileSet{"gpu_busy_percent": "N/A", "gpu_metrics": blobWith(map[int]uint64{12: 42})}, map[string]float64{"gpu": 42},
		},
		"an empty utilisation is asked for elsewhere": {
			fileSet{"gpu_busy_percent": "", "gpu_metrics": blobWith(map[int]uint64{12: 42})}, map[string]float64{"gpu": 42},
		},
		"no utilisation anywhere": {
			fileSet{"gpu_busy_percent": "!", "gpu_metrics": blobWith(map[int]uint64{12: missing16})}, map[string]float64{"gpu": absent},
		},
		"idle": {fileSet{"gpu_busy_percent": "0"}, map[string]float64{"gpu": 0}},
		"gpu_metrics of tomorrow": {
			fileSet{"gpu_busy_percent": "-", "gpu_metrics": string(blobOf(4, 0, 288))}, map[string]float64{"gpu": absent},
		},
		"gpu_metrics fails":    {fileSet{"gpu_busy_percent": "-", "gpu_metrics": "!"}, map[string]float64{"gpu": absent}},
		"gpu_metrics is empty": {fileSet{"gpu_busy_percent": "-", "gpu_metrics": ""}, map[string]float64{"gpu": absent}},

		"the memory's temperature from gpu_metrics": {
			fileSet{hwmon + "temp3_input": "-", "gpu_metrics": blobWith(map[int]uint64{6: 61})}, map[string]float64{"temp": 61},
		},
		"a memory of 0 degrees is none": {
			fileSet{hwmon + "temp3_input": "0", "gpu_metrics": blobWith(map[int]uint64{6: 0})}, map[string]float64{"temp": 78},
		},
		"a memory of 200 degrees is none": {
			fileSet{hwmon + "temp3_input": "200000", "gpu_metrics": blobWith(map[int]uint64{6: 255})}, map[string]float64{"temp": 78},
		},
		"a first temperature without a label is the edge's": {
			noBlob(fileSet{hwmon + "temp3_input": "-", hwmon + "temp2_input": "-", hwmon + "temp1_input": "41500"}),
			map[string]float64{"temp": 41.5},
		},
		"another temperature without a label is none": {
			noBlob(fileSet{hwmon + "temp3_label": "-", hwmon + "temp2_input": "-"}), map[string]float64{"temp": absent},
		},
		"temperatures go by label, not by number": {
			fileSet{hwmon + "temp1_input": "55000", hwmon + "temp1_label": "mem", hwmon + "temp3_label": "edge"},
			map[string]float64{"temp": 55},
		},
		"a label that nobody knows": {
			noBlob(fileSet{hwmon + "temp3_label": "vram", hwmon + "temp2_label": "soc"}), map[string]float64{"temp": absent},
		},
		"only the stacks of the memory have temperatures": {
			fileSet{hwmon + "temp2_input": "-", hwmon + "temp3_input": "-", "gpu_metrics": string(blobOf(1, 3, 120,
				field{88, 2, 51}, field{90, 2, 57}, field{92, 2, 49}, field{94, 2, 50}))},
			map[string]float64{"temp": 57},
		},
		"the folder of another driver's sensors": {changes: fileSet{
			"hwmon/hwmon1/name": "mlx5", "hwmon/hwmon1/power1_input": "5000000", "hwmon/hwmon1/power1_cap": "1000000",
			"hwmon/hwmon1/temp1_input": "33000", "hwmon/hwmon1/temp1_label": "mem",
		}},
		"no sensors": {
			noBlob(fileSet{hwmon + "name": "nvme"}),
			map[string]float64{"temp": absent, "powerWatts": absent, "powerPercent": absent},
		},

		"no total of the memory":   {fileSet{"mem_info_vram_total": "!"}, map[string]float64{"memoryAllocated": absent}},
		"no used memory":           {fileSet{"mem_info_vram_used": "!"}, map[string]float64{"memoryAllocated": absent}},
		"more memory used than is": {fileSet{"mem_info_vram_used": "206158430209"}, map[string]float64{"memoryAllocated": absent}},
		"all memory used":          {fileSet{"mem_info_vram_used": "206158430208"}, map[string]float64{"memoryAllocated": 100}},

		"an APU by its voltages has the larger pool": {
			apu.with(fileSet{"mem_info_gtt_total": "412316860416", "mem_info_gtt_used": "103079215104"}),
			map[string]float64{"memoryAllocated": 25},
		},
		"an APU with more memory of its own": {
			changes: apu.with(fileSet{"mem_info_gtt_total": "206158430207", "mem_info_gtt_used": "1"}),
		},
		"an APU with two equal pools": {
			changes: apu.with(fileSet{"mem_info_gtt_total": "206158430208", "mem_info_gtt_used": "1"}),
		},
		"an APU whose larger pool tells nothing": {
			apu.with(fileSet{"mem_info_gtt_used": "!"}), map[string]float64{"memoryAllocated": absent},
		},
		"an APU without the other pool": {changes: apu.with(fileSet{"mem_info_gtt_total": "!", "mem_info_gtt_used": "!"})},
		"an APU by its gpu_metrics": {
			fileSet{
				"mem_info_gtt_total": "412316860416", "mem_info_gtt_used": "103079215104",
				"gpu_metrics": string(blobOf(3, 0, 264)), hwmon + "in1_label": "vddsoc",
			},
			map[string]float64{"memoryAllocated": 25},
		},

		"an accelerator whose memory is the machine's, by its node": {
			fileSet{"mem_info_vram_total": "0", "mem_info_vram_used": "0", "mem_info_gtt_used": "51539607552"},
			map[string]float64{"memoryAllocated": 25}, // 48 of the 192 GiB of its node
		},

		"asleep": {
			fileSet{"power/runtime_status": "suspended"},
			map[string]float64{"gpu": absent, "temp": absent, "powerWatts": absent, "powerPercent": absent},
		},
		"falling asleep": {
			fileSet{"power/runtime_status": "suspending"},
			map[string]float64{"gpu": absent, "temp": absent, "powerWatts": absent, "powerPercent": absent},
		},
		"waking up":                     {changes: fileSet{"power/runtime_status": "resuming"}},
		"no word of sleep":              {changes: fileSet{"power/runtime_status": "-"}},
		"sleep cannot be asked for":     {changes: fileSet{"power/runtime_status": "!"}},
		"sleep is not supported":        {changes: fileSet{"power/runtime_status": "unsupported"}},
		"an error of power management":  {changes: fileSet{"power/runtime_status": "error"}},
		"a word of sleep that is empty": {changes: fileSet{"power/runtime_status": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			want := wantMI300X(0)
			maps.Copy(want, numbered(0, c.want))
			maps.DeleteFunc(want, func(_ string, v float64) bool { return v == absent })
			scraperstest.CompareTags(t, "tags", want, singleGPU(t, c.changes).tags())
		})
	}
}

// A device that says that it has no memory of its own, and that the KFD does not
// know, has the pool that the driver tells.
func TestAnAcceleratorWithoutANodeHasTheMachinesPool(t *testing.T) {
	tr := newTree(t)
	tr.add(gpu{pci: "0000:05:00.0", card: 1, render: 128, files: mi300x().with(fileSet{
		"mem_info_vram_total": "0", "mem_info_vram_used": "0", "mem_info_gtt_total": "1000", "mem_info_gtt_used": "100",
	})})
	assert.InDelta(t, 10, tr.tags()["gpu.0.memoryAllocated"], 1e-9)
}

// Only the files that need no hardware are opened.
func TestASleepingDeviceIsLeftAlone(t *testing.T) {
	all := mi300x().with(fileSet{"pp_mclk_od": "0", "hwmon/hwmon6/power1_average": "1", "hwmon/hwmon6/freq2_input": "1", "hwmon/hwmon6/freq2_label": "mclk", "ras/umc_err_count": "ue: 0\nce: 0"})
	tr := singleGPU(t, all.with(fileSet{"power/runtime_status": "suspended"}))
	s, _ := tr.scraper(true)
	opens := tr.watchOpensBelow(singleFolder)
	first, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	listing := opens.take()
	for _, name := range []string{"gpu_busy_percent", "gpu_metrics", "mem_busy_percent", "hwmon/hwmon6/power1_input", "hwmon/hwmon6/temp3_input", "current_link_speed"} {
		assert.Zero(t, listing[name], name)
	}
	second, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	assert.Equal(t, first, second)
	assert.Equal(t, map[string]int{"power/runtime_status": 1, "mem_info_vram_used": 1}, opens.take())
}

// gpu_metrics costs the driver a transfer from the firmware.
func TestGPUMetricsIsReadOnlyWhereItHelps(t *testing.T) {
	const hwmon = "hwmon/hwmon6/"
	for name, c := range map[string]struct {
		changes fileSet
		// reads are those of the first scrapes, and of the first after the GPUs
		// were listed anew. What two scrapes lack is not asked for again.
		reads [4]int
	}{
		// The first read tells whether it is an APU.
		"nothing is missing":                   {nil, [4]int{1, 0, 0, 0}},
		"nothing is missing, a known APU":      {fileSet{hwmon + "in1_label": "vddnb"}, [4]int{0, 0, 0, 0}},
		"it knows the utilisation":             {fileSet{"gpu_busy_percent": "!"}, [4]int{1, 1, 1, 1}},
		"it knows the power":                   {fileSet{hwmon + "power1_input": "!"}, [4]int{1, 1, 1, 1}},
		"it knows the memory's temperature":    {fileSet{hwmon + "temp3_input": "!"}, [4]int{1, 1, 1, 1}},
		"it does not know the utilisation":     {fileSet{"gpu_busy_percent": "!", "gpu_metrics": blobWith(map[int]uint64{12: missing16})}, [4]int{1, 1, 0, 1}},
		"it does not know the temperature":     {fileSet{hwmon + "temp3_input": "!", "gpu_metrics": blobWith(map[int]uint64{6: 0})}, [4]int{1, 1, 0, 1}},
		"it is of a layout of tomorrow":        {fileSet{"gpu_busy_percent": "!", "gpu_metrics": string(blobOf(9, 9, 99))}, [4]int{1, 0, 0, 1}},
		"nobody asked for the memory activity": {fileSet{"mem_busy_percent": "!"}, [4]int{1, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := singleGPU(t, c.changes)
			s, _ := tr.scraper(false)
			clock := stopClock(s)
			opens := tr.watchOpens("gpu_metrics")
			for i, want := range c.reads {
				if i == 3 {
					clock.advance(detectionInterval)
				}
				_, troubles := scrapeTags(t, s)
				require.Empty(t, troubles)
				assert.Equal(t, want, opens.take()["gpu_metrics"], "scrape %d", i)
			}
		})
	}
}

// What the figures of an APU are missing is asked for once.
func TestWhatOneFigureNeedsDoesNotKeepAnotherFromGPUMetrics(t *testing.T) {
	tr := singleGPU(t, fileSet{"hwmon/hwmon6/temp3_input": "!", "gpu_metrics": blobWith(map[int]uint64{6: 0, 12: 42})})
	s, _ := tr.scraper(false)
	_, _ = scrapeTags(t, s)
	tr.Unreadable(singleFolder + "gpu_busy_percent")
	tags, _ := scrapeTags(t, s)
	assert.InDelta(t, 42, tags["gpu.0.gpu"], 0)
}

func TestOnlyADeviceThatTellsNothingIsATrouble(t *testing.T) {
	tr := singleGPU(t, nil)
	s, _ := tr.scraper(false)
	_, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	files := []string{
		"gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total", "gpu_metrics", "hwmon/hwmon6/power1_input",
		"hwmon/hwmon6/power1_cap", "hwmon/hwmon6/temp2_input", "hwmon/hwmon6/temp3_input",
	}
	for i, name := range files {
		tr.Unreadable(filepath.Join(singleFolder, name))
		tags, troubles := scrapeTags(t, s)
		if i < len(files)-1 {
			require.Empty(t, troubles, name)
			continue
		}
		assert.Empty(t, tags)
		require.Len(t, troubles, 1)
		require.ErrorContains(t, troubles[0], "GPU 0 (0000:05:00.0): ")
	}
	tr.Remove(singleFolder + "gpu_busy_percent")
	tr.Write(singleFolder+"gpu_busy_percent", "7\n")
	tags, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	assert.Equal(t, map[string]float64{"gpu.0.gpu": 7}, tags)
}

// A device without any of the files is no trouble: there is nothing that fails.
func TestADeviceWithoutFilesIsNoTrouble(t *testing.T) {
	tr := newTree(t)
	tr.add(gpu{pci: "0000:05:00.0", card: 1, render: 128})
	assert.Empty(t, tr.tags())
}

func TestExtendedFigures(t *testing.T) {
	const hwmon = "hwmon/hwmon6/"
	files := mi300x().with(fileSet{
		"pp_mclk_od":          "5",
		hwmon + "freq2_input": "1300500000", hwmon + "freq2_label": "mclk",
		hwmon + "temp1_input": "51000", hwmon + "temp1_label": "edge",
		"ras/umc_err_count":  "ue: 2\nce: 31",
		"current_link_speed": "16.0 GT/s PCIe", "current_link_width": "8",
	})
	want := map[string]float64{
		"gpu.memoryReadWriteActivity": 62, "gpu.memoryOverDrive": 5,
		"gpu.graphicsClock": 132, "gpu.memoryClock": 1300,
		"gpu.correctedMemoryErrors": 31, "gpu.unCorrectedMemoryErrors": 2,
		"gpu.pcieLinkGen": 4, "gpu.pcieLinkWidth": 8, "gpu.maxPcieLinkGen": 5, "gpu.maxPcieLinkWidth": 16, "gpu.pcieReplays": 3,
		"gpu.energy":     float64(65536*1000) * 15.2587890625e-6, // the unit of the accumulator in µJ
		"gpu.memoryUsed": 96 * float64(gib), "gpu.memoryTotal": 192 * float64(gib),
		"gpu.sensorTemp mem": 64, "gpu.sensorTemp junction": 78, "gpu.sensorTemp edge": 51,
		"gpu.gpu": 97, "gpu.memoryAllocated": 50, "gpu.temp mem": 64, "gpu.powerWatts": 612, "gpu.powerPercent": 81.6,
	}
	s, _ := singleGPU(t, files).scraper(true)
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	scraperstest.RequireSane(t, md)
	scraperstest.CompareTags(t, "extended", want, figuresOf(scraperstest.PointsOf(md)))
}

// figuresOf lists the points of a single GPU by metric, sensor and reason.
func figuresOf(points []scraperstest.Point) map[string]float64 {
	figures := map[string]float64{}
	for _, p := range points {
		parts := []string{p.Metric.Name()}
		for _, key := range []string{"sensor", "reason"} {
			if value, ok := p.Attributes[key]; ok {
				parts = append(parts, fmt.Sprint(value))
			}
		}
		figures[strings.Join(parts, " ")] = p.Value()
	}
	return figures
}

// Clocks and errors are among the published tags, which NVIDIA's GPUs have by
// default; an AMD GPU has them only when everything is asked for.
func TestClocksAndErrorsComeWithExtendedOnly(t *testing.T) {
	files := fileSet{"hwmon/hwmon6/freq2_input": "1300000000", "hwmon/hwmon6/freq2_label": "mclk", "ras/umc_err_count": "ue: 2\nce: 31"}
	scraperstest.CompareTags(t, "tags", wantMI300X(0), singleGPU(t, files).tags())
}

func TestExtendedFiguresThatCannotBe(t *testing.T) {
	const hwmon = "hwmon/hwmon6/"
	for name, c := range map[string]struct {
		changes fileSet
		metric  string
	}{
		"a clock in text":                {fileSet{hwmon + "freq1_input": "fast"}, "gpu.graphicsClock"},
		"a clock below 0":                {fileSet{hwmon + "freq1_input": "-1"}, "gpu.graphicsClock"},
		"a clock of something else":      {fileSet{hwmon + "freq1_label": "fclk"}, "gpu.graphicsClock"},
		"a link of no known speed":       {fileSet{"current_link_speed": "Unknown"}, "gpu.pcieLinkGen"},
		"a link of no width":             {fileSet{"current_link_width": "0"}, "gpu.pcieLinkWidth"},
		"replays that cannot be read":    {fileSet{"pcie_replay_count": "!"}, "gpu.pcieReplays"},
		"an energy of 0":                 {fileSet{"gpu_metrics": string(blobOf(1, 3, 120, field{24, 8, 0}))}, "gpu.energy"},
		"errors that cannot be read":     {fileSet{"ras/umc_err_count": "!"}, "gpu.correctedMemoryErrors"},
		"errors of another form":         {fileSet{"ras/umc_err_count": "query not supported"}, "gpu.unCorrectedMemoryErrors"},
		"an activity above 100":          {fileSet{"mem_busy_percent": "655", "gpu_metrics": "-"}, "gpu.memoryReadWriteActivity"},
		"more memory used than there is": {fileSet{"mem_info_vram_used": "206158430209"}, "gpu.memoryUsed"},
		"an overdrive above 100":         {fileSet{"pp_mclk_od": "4294967295"}, "gpu.memoryOverDrive"},
		"throttling that is not known":   {fileSet{"gpu_metrics": string(blobOf(1, 3, 120))}, "gpu.clockEventActive"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := singleGPU(t, c.changes).scraper(true)
			md, err := s.Scrape(t.Context())
			require.NoError(t, err)
			for _, p := range scraperstest.PointsOf(md) {
				assert.NotEqual(t, c.metric, p.Metric.Name())
			}
		})
	}
}

// Radeons pass on what their firmware counts: its unit is not known.
func TestEnergyIsThatOfChipsWithAKnownUnit(t *testing.T) {
	for target, known := range map[int]bool{90000: true, 90402: true, 90500: true, 100300: false, 110000: false, 120001: false, 0: false} {
		tr := newTree(t)
		tr.add(gpu{pci: "0000:05:00.0", card: 1, render: 128, node: 1, id: 20000, target: target, files: mi300x()})
		s, _ := tr.scraper(true)
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		_, told := figuresOf(scraperstest.PointsOf(md))["gpu.energy"]
		assert.Equal(t, known, told, "target %d", target)
	}
}

func TestThrottlingByTheBitsOfNow(t *testing.T) {
	for name, c := range map[string]struct {
		bits uint64
		want map[string]float64
	}{
		"none":    {0, map[string]float64{}},
		"power":   {1 << 2, map[string]float64{"power": 1}},
		"current": {1 << 16, map[string]float64{"current": 1}},
		"heat":    {1<<32 | 1<<47, map[string]float64{"thermal": 1}},
		"other":   {1 << 56, map[string]float64{"other": 1}},
		"several": {1<<15 | 1<<33 | 1<<63, map[string]float64{"power": 1, "thermal": 1, "other": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := singleGPU(t, fileSet{"gpu_metrics": string(blobOf(1, 3, 120, field{112, 8, c.bits}))}).scraper(true)
			want := map[string]float64{"power": 0, "current": 0, "thermal": 0, "other": 0}
			maps.Copy(want, c.want)
			scraperstest.CompareTags(t, "reasons", want, reasonsOf(t, s))
		})
	}
}

// The firmware of later accelerators counts how long a limit held: a reason holds
// when its counter grew since the last scrape.
func TestThrottlingByTheCountersOfTwoScrapes(t *testing.T) {
	tr := singleGPU(t, nil)
	s, _ := tr.scraper(true)
	counters := func(cycles, prochot, power, socket, regulator, memory uint64) {
		var fields []field
		for i, v := range []uint64{cycles, prochot, power, socket, regulator, memory} {
			fields = append(fields, field{32 + 4*i, 4, v})
		}
		tr.Write(singleFolder+"gpu_metrics", string(blobOf(1, 6, 1664, fields...)))
	}
	counters(1000, 1, 2, 3, 4, 5)
	assert.Empty(t, reasonsOf(t, s), "nothing to compare with")
	counters(2000, 1, 2, 3, 4, 5)
	assert.Equal(t, map[string]float64{"power": 0, "thermal": 0}, reasonsOf(t, s))
	counters(3000, 1, 9, 3, 4, 5)
	assert.Equal(t, map[string]float64{"power": 1, "thermal": 0}, reasonsOf(t, s))
	counters(4000, 1, 9, 3, 4, 6)
	assert.Equal(t, map[string]float64{"power": 0, "thermal": 1}, reasonsOf(t, s))
	assert.Empty(t, reasonsOf(t, s), "nothing was counted meanwhile")
}

func reasonsOf(t *testing.T, s *gpuScraper) map[string]float64 {
	t.Helper()
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	reasons := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "gpu.clockEventActive" {
			reasons[p.Attributes["reason"].(string)] = p.Value()
		}
	}
	return reasons
}

// Of a layout of tomorrow the format still tells an APU, whose memory is the larger
// pool.
func TestAnAPUOfALayoutOfTomorrow(t *testing.T) {
	tr := singleGPU(t, fileSet{
		"gpu_metrics": string(blobOf(3, 9, 264)), "mem_info_vram_total": "100", "mem_info_vram_used": "100",
		"mem_info_gtt_total": "1000", "mem_info_gtt_used": "250",
	})
	assert.InDelta(t, 25.0, tr.tags()["gpu.0.memoryAllocated"], 1e-9)
}

// What two rounds lacked may be there later.
func TestWhatGPUMetricsLackedIsAskedForAgain(t *testing.T) {
	tr := singleGPU(t, fileSet{"hwmon/hwmon6/power1_input": "!", "gpu_metrics": blobWith(map[int]uint64{10: 0})})
	s, _ := tr.scraper(false)
	for range 2 {
		_, _ = scrapeTags(t, s)
	}
	tr.Write(singleFolder+"/gpu_metrics", blobWith(map[int]uint64{10: 500}))
	seen := false
	for range maxSpared {
		tags, _ := scrapeTags(t, s)
		seen = seen || tags["gpu.0.powerWatts"] == 500
	}
	assert.True(t, seen)
}
