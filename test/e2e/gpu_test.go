// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reasons are those for which clocks are held down, bit by bit.
var reasons = []string{
	"gpu_idle", "app_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake", "display",
}

// gpuShapes are the metrics of a GPU; true are those that are on by default.
var gpuShapes = map[bool]map[string]shape{
	true: {
		"gpu.gpu":                     gauge.in("%"),
		"gpu.memory":                  gauge.in("%"),
		"gpu.memoryAllocated":         gauge.in("%"),
		"gpu.memoryAllocatedBytes":    gauge.in("By").integer(),
		"gpu.temp":                    gauge.in("Cel"),
		"gpu.powerWatts":              gauge.in("W"),
		"gpu.powerPercent":            gauge.in("%"),
		"gpu.smClock":                 gauge.in("MHz").integer(),
		"gpu.memoryClock":             gauge.in("MHz").integer(),
		"gpu.graphicsClock":           gauge.in("MHz").integer(),
		"gpu.correctedMemoryErrors":   counter.in("{error}").integer(),
		"gpu.unCorrectedMemoryErrors": counter.in("{error}").integer(),
		"gpu.encoderUtilization":      gauge.in("%"),
	},
	false: {
		"gpu.enforcedPowerLimitWatts": gauge.in("W"),
		"gpu.memoryTotal":             gauge.in("By").integer(),
		"gpu.fanSpeed":                gauge.in("%"),
		"gpu.smActive":                gauge.in("%"),
		"gpu.smOccupancy":             gauge.in("%"),
		"gpu.pipeTensorActive":        gauge.in("%"),
		"gpu.pipeTensorHmmaActive":    gauge.in("%"),
		"gpu.dramActive":              gauge.in("%"),
		"gpu.pipeFp64Active":          gauge.in("%"),
		"gpu.pipeFp32Active":          gauge.in("%"),
		"gpu.pipeFp16Active":          gauge.in("%"),
		"gpu.pcieTxBytes":             gauge.in("By/s"),
		"gpu.pcieRxBytes":             gauge.in("By/s"),
		"gpu.nvlinkTxBytes":           gauge.in("By/s"),
		"gpu.nvlinkRxBytes":           gauge.in("By/s"),
		"gpu.pcieLinkGen":             gauge.in("1").integer(),
		"gpu.pcieLinkWidth":           gauge.in("{lane}").integer(),
		"gpu.maxPcieLinkGen":          gauge.in("1").integer(),
		"gpu.maxPcieLinkWidth":        gauge.in("{lane}").integer(),
		"gpu.pcieLinkSpeed":           gauge.in("bit/s").integer(),
		"gpu.energy":                  counter.in("J"),
		"gpu.pcieReplays":             counter.in("{replay}").integer(),
		"gpu.remappedRows":            counter.in("{row}").integer(),
		"gpu.rowRemapPending":         gauge.in("1").integer(),
		"gpu.rowRemapFailed":          gauge.in("1").integer(),
		"gpu.retiredPages":            counter.in("{page}").integer(),
		"gpu.retiredPagesPending":     gauge.in("1").integer(),
		"gpu.clockEventActive":        gauge.in("1").integer(),
		"gpu.xidErrors":               counter.in("{error}").integer(),
	},
}

// figures are the values that a GPU's metrics must have, by the names of the
// series in template naming.
func (g gpu) figures(index int) map[string]float64 {
	all := map[string]float64{}
	is := func(name string, value float64, more ...any) { all[g.series(index, name, more...)] = value }
	is("gpu.gpu", g.is("utilization.gpu"))
	is("gpu.memory", g.is("utilization.memory"))
	is("gpu.memoryAllocated", 100*g.is("memory_v2.used")/g.is("memory_v2.total"))
	is("gpu.memoryAllocatedBytes", g.is("memory_v2.used"))
	is("gpu.memoryTotal", g.is("memory_v2.total"))
	is("gpu.temp", g.value("temperature"))
	is("gpu.powerWatts", g.value("power_usage")/1000)
	is("gpu.powerPercent", 100*g.value("power_usage")/g.value("enforced_power_limit"))
	is("gpu.enforcedPowerLimitWatts", g.value("enforced_power_limit")/1000)
	is("gpu.smClock", g.value("clock_sm"))
	is("gpu.memoryClock", g.value("clock_mem"))
	is("gpu.graphicsClock", g.value("clock_graphics"))
	is("gpu.correctedMemoryErrors", g.value("ecc_corrected_volatile_2"))
	is("gpu.unCorrectedMemoryErrors", g.value("ecc_uncorrected_volatile_2"))
	is("gpu.encoderUtilization", g.value("encoder_utilization"))
	is("gpu.fanSpeed", g.value("fan_speed"))
	is("gpu.pcieLinkGen", g.value("pcie_link_gen"))
	is("gpu.pcieLinkWidth", g.value("pcie_link_width"))
	is("gpu.maxPcieLinkGen", g.value("pcie_max_link_gen"))
	is("gpu.maxPcieLinkWidth", g.value("pcie_max_link_width"))
	is("gpu.pcieLinkSpeed", g.value("pcie_speed")*1e6)
	is("gpu.energy", g.value("total_energy")/1000)
	is("gpu.pcieReplays", g.value("pcie_replays"))
	is("gpu.remappedRows", g.is("remapped_rows.corrected"), "cause", "corrected")
	is("gpu.remappedRows", g.is("remapped_rows.uncorrected"), "cause", "uncorrected")
	is("gpu.rowRemapPending", g.is("remapped_rows.pending"))
	is("gpu.rowRemapFailed", g.is("remapped_rows.failed"))
	is("gpu.retiredPages", g.value("retired_pages_single"), "cause", "single_bit")
	is("gpu.retiredPages", g.value("retired_pages_double"), "cause", "double_bit")
	is("gpu.retiredPagesPending", g.value("retired_pages_pending"))
	for bit, reason := range reasons {
		active := 0.0
		if int(g.value("clocks_event_reasons"))&(1<<bit) != 0 {
			active = 1
		}
		is("gpu.clockEventActive", active, "reason", reason)
	}
	for id, name := range profileNames {
		value := g.value(fmt.Sprintf("gpm_metrics.%d", id))
		if id >= 20 {
			value *= mebi
		}
		is("gpu."+name, value)
	}
	return all
}

// attributes are those of every point of the GPU.
func (g gpu) attributes(index int, more ...any) map[string]any {
	all := map[string]any{
		"gpu_index": int64(index), "gpu_vendor": "nvidia", "gpu_uuid": g["uuid.value"], "gpu_model": g["name.value"],
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i].(string)] = more[i+1]
	}
	return all
}

// series names a series of the GPU.
func (g gpu) series(index int, name string, more ...any) string {
	return fmt.Sprint(name, " ", g.attributes(index, more...))
}

// ofGPUs keeps points of GPUs.
func (ps points) ofGPUs() points {
	return ps.filter(func(p point) bool { return p.attrs["gpu_vendor"] != nil })
}

// ofGPU keeps points of one GPU.
func (ps points) ofGPU(index int) points {
	return ps.filter(func(p point) bool { return p.attrs["gpu_index"] == int64(index) })
}

// scrapes takes the points apart: those of each time, in order.
func (ps points) scrapes() []points {
	byTime := map[time.Time]points{}
	for _, p := range ps {
		byTime[p.at] = append(byTime[p.at], p)
	}
	var all []points
	for _, at := range slices.SortedFunc(maps.Keys(byTime), time.Time.Compare) {
		all = append(all, byTime[at])
	}
	return all
}

// after keeps points that are later.
func (ps points) after(at time.Time) points {
	return ps.filter(func(p point) bool { return p.at.After(at) })
}

// lastScrape are the points of the last one.
func (ps points) lastScrape() points {
	all := ps.scrapes()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// figures are the values of the points, by the names of their series.
func (ps points) figures() map[string]float64 {
	all := map[string]float64{}
	for _, p := range ps {
		all[fmt.Sprint(p.name, " ", p.attrs)] = p.value
	}
	return all
}

// checkFigures compares series and values.
func checkFigures(t *testing.T, want map[string]float64, got points) {
	t.Helper()
	figures := got.figures()
	assert.Len(t, got, len(figures), "no series comes twice")
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(figures)))
	for series, value := range want {
		assert.InDelta(t, value, figures[series], 1e-9*max(1, value), series)
	}
}

// waitForScrape waits until a scrape has this many points of GPUs, and returns it.
func (p *process) waitForScrape(what string, size int, of func() points) points {
	p.t.Helper()
	var got points
	seen := len(of().ofGPUs().scrapes())
	deadline := time.Now().Add(patience)
	for {
		all := of().ofGPUs().scrapes()
		for _, scrape := range all[min(seen, len(all)):] {
			got = scrape
			if len(got) == size {
				return got
			}
		}
		require.True(p.t, p.alive(), "the process ended (%v) before: %s", p.err, what)
		if time.Now().After(deadline) {
			return got // the comparison says what is missing
		}
		time.Sleep(pollInterval)
	}
}

const (
	manyGPUs = 8
	xid      = 79
	// xidGPU has an error.
	xidGPU = 5
)

func TestEveryGPUTagIsRight(t *testing.T) {
	gpus := fullGPUs(manyGPUs)
	d, s, health := startDriver(t, gpus...), startSink(t, nil), freeAddress(t)
	receiver := func(host, more string) string {
		return fmt.Sprintf("wandbsys/%s: {host_name: %s, collection_interval: 1s, initial_delay: 0s, scrapers: {%s}, %s}\n", host, host, d.section(""), more)
	}
	began := time.Now()
	p := d.start(settings{
		receivers: receiver("extended", "extended: true") + receiver("plain", ""),
		exporters: s.exporter(), metrics: pullReader(health),
	})
	extended := func() points { return s.points().from("extended") }

	want := map[string]float64{}
	for i, g := range gpus {
		maps.Copy(want, g.figures(i))
	}
	t.Run("values", func(t *testing.T) {
		checkFigures(t, want, p.waitForScrape("all figures", len(want), extended))
	})
	t.Run("an error shows once it is there", func(t *testing.T) {
		assert.Empty(t, extended().named("gpu.xidErrors"))
		for n := 1; n <= 2; n++ {
			d.xid(xidGPU, xid)
			want[gpus[xidGPU].series(xidGPU, "gpu.xidErrors", "xid", int64(xid))] = float64(n)
			p.waitFor("the error", func() bool { return extended().named("gpu.xidErrors").last().value == float64(n) })
		}
		checkFigures(t, want, p.waitForScrape("all figures", len(want), extended))
	})
	t.Run("by default", func(t *testing.T) {
		plain := p.waitForScrape("all by default", manyGPUs*len(gpuShapes[true]), func() points { return s.points().from("plain") })
		few := maps.Clone(want)
		maps.DeleteFunc(few, func(series string, _ float64) bool {
			name, _, _ := strings.Cut(series, " ")
			_, ok := gpuShapes[true][name]
			return !ok
		})
		checkFigures(t, few, plain)
	})
	t.Run("shapes", func(t *testing.T) {
		all := maps.Clone(gpuShapes[true])
		maps.Copy(all, gpuShapes[false])
		assert.ElementsMatch(t, shapeNames(all), extended().names())
		for _, p := range s.points() {
			require.Equal(t, all[p.name], p.shape, p.name)
		}
	})
	t.Run("resources", func(t *testing.T) {
		for _, p := range extended() {
			require.Subset(t, p.resource, map[string]any{
				"service.instance.id": "extended", "wandb.gpu_count": int64(manyGPUs), "wandb.gpu_type": gpus[0]["name.value"],
				"wandb.gpu_driver_version": "590.48.01", "wandb.cuda_version": "13.1",
			})
			require.Nil(t, p.resource["process.pid"])
		}
	})
	t.Run("counters", func(t *testing.T) { checkSumsMayStay(t, extended(), began) })
	t.Run("health", func(t *testing.T) {
		all := scrape(t, health)
		assert.Len(t, all.find("otelcol_wandbsys_family_state", "family", "nvidia", "state", "detected", "reason", ""), 2)
		for _, success := range all.find("otelcol_wandbsys_family_scrape_success", "family", "nvidia") {
			assert.InDelta(t, 1, success.value, 0)
		}
	})
	p.stop()
	t.Run("the log is calm", func(t *testing.T) {
		assert.Zero(t, p.exitCode())
		assert.Empty(t, p.logLines("error"))
		for _, line := range p.logLines("warn") { // the first of each XID of each GPU
			assert.Equal(t, "A GPU has an error", line.Msg)
		}
	})
	t.Run("the library is closed", func(t *testing.T) {
		assert.Equal(t, d.calls("nvmlInit_v2"), d.calls("nvmlShutdown"))
		assert.Zero(t, d.calls("LEAK"), "all that was taken was given back")
	})
}

// xid lets a GPU report an error.
func (d *driver) xid(device, number int) {
	d.t.Helper()
	d.mu.Lock()
	n := 0
	_, _ = fmt.Sscan(d.lines["events.#"], &n)
	d.mu.Unlock()
	at := fmt.Sprintf("events.%d.", n)
	d.set("events.#", n+1, at+"number", n+1, at+"device", device, at+"type", 8, at+"data", number)
}

// checkSumsMayStay: one start for all time, after the collector ran and not after
// the point; values that may stay the same.
func checkSumsMayStay(t *testing.T, all points, began time.Time) {
	t.Helper()
	starts := map[string]time.Time{}
	for _, p := range all {
		if p.shape.form != "sum" {
			continue
		}
		key := fmt.Sprint(p.name, p.attrs)
		if _, ok := starts[key]; !ok {
			starts[key] = p.start
		}
		require.Equal(t, starts[key], p.start, key)
		require.False(t, p.start.Before(began), "%s starts before the collector", key)
		require.False(t, p.start.After(p.at), "%s starts after its point", key)
	}
}

// gpuTag is W&B's tag of a point.
func gpuTag(p point) string {
	family, rest, _ := strings.Cut(p.name, ".")
	if part, ok := strings.CutPrefix(rest, "process."); ok {
		family, rest = family+".process", part
	}
	parts := []string{family, fmt.Sprint(p.attrs["gpu_index"]), rest}
	for _, key := range []string{"cause", "reason", "xid"} {
		if value, ok := p.attrs[key]; ok {
			parts = append(parts, fmt.Sprint(value))
		}
	}
	return strings.Join(parts, ".")
}

func TestNamesOfGPUTags(t *testing.T) {
	gpus := fullGPUs(3)
	holder := startHelper(t, "idle")
	d, s := startDriver(t, gpus...), startSink(t, nil)
	d.hold(1, map[int]int{holder.pid(): 5 * gibi})
	namings := map[string]string{
		"template": "naming: template", "tag": "naming: tag, label: rank-3", "sdk": "naming: sdk", "sdk-labeled": "naming: sdk, label: rank-3",
	}
	var receivers strings.Builder
	for host, naming := range namings {
		fmt.Fprintf(&receivers, "wandbsys/%s: {host_name: %s, %s, extended: true, collection_interval: 1s, initial_delay: 0s, workloads: {pid: %d}, scrapers: {%s}}\n",
			host, host, naming, holder.pid(), d.section(""))
	}
	p := d.start(settings{receivers: receivers.String(), exporters: s.exporter()})
	size := 15 // those of gpu.process
	for i, g := range gpus {
		size += len(g.figures(i))
	}
	of := func(host string) points {
		return p.waitForScrape("all of "+host, size, func() points { return s.points().from(host) })
	}
	template := of("template")
	for host, rename := range map[string]func(point) string{
		"tag":         gpuTag,
		"sdk":         sdkGPUTag,
		"sdk-labeled": func(p point) string { return sdkGPUTag(p) + "/l:rank-3" },
	} {
		t.Run(host, func(t *testing.T) {
			got := of(host)
			assert.Equal(t, seriesOf(template, rename), seriesOf(got, func(p point) string { return p.name }))
			values := map[string]float64{}
			for _, p := range template {
				values[rename(p)] = p.value
			}
			for _, p := range got {
				assert.InDelta(t, values[p.name], p.value, 1e-9*max(1, p.value), p.name)
			}
		})
	}
	t.Run("examples", func(t *testing.T) {
		for host, names := range map[string][]string{
			"tag": {
				"gpu.0.gpu", "gpu.2.memoryAllocatedBytes", "gpu.1.unCorrectedMemoryErrors", "gpu.0.clockEventActive.sw_power_cap",
				"gpu.2.retiredPages.double_bit", "gpu.process.1.gpu", "gpu.process.1.memoryUsedBytes",
			},
			"sdk":         {"gpu.0.gpu", "gpu.1.uncorrectedMemoryErrors", "gpu.process.1.powerPercent"},
			"sdk-labeled": {"gpu.0.temp/l:rank-3", "gpu.process.1.memoryAllocated/l:rank-3"},
		} {
			got := s.points().from(host).names()
			for _, name := range names {
				assert.Contains(t, got, name)
			}
		}
	})
}

// sdkGPUTag is the tag that W&B's SDK writes: one is spelled otherwise.
func sdkGPUTag(p point) string {
	if p.name == "gpu.unCorrectedMemoryErrors" {
		p.name = "gpu.uncorrectedMemoryErrors"
	}
	return gpuTag(p)
}

// migGPU is a board that is cut into instances: slots 0, 1 and 4 of 7.
func migGPU() gpu {
	board := fullGPU(0)
	maps.DeleteFunc(board, func(key string, _ any) bool {
		return strings.HasPrefix(key, "utilization.") || strings.HasPrefix(key, "encoder_") || strings.HasPrefix(key, "remapped_")
	})
	maps.Copy(board, gpu{"mig_mode.ret": 0, "mig_mode.current": 1, "mig_mode.pending": 1})
	board.answer("mig_max", 7)
	for slot, m := range migInstances {
		at := fmt.Sprintf("mig.%d.", slot)
		maps.Copy(board, gpu{at + "handle.ret": 0, at + "memory_v2.ret": 0, at + "memory_v2.total": m.total, at + "memory_v2.used": m.used})
		board.answer(at+"name", "NVIDIA H100 80GB HBM3 MIG "+m.profile)
		board.answer(at+"uuid", m.uuid)
		board.answer(at+"gi", m.gi)
		board.answer(at+"ci", m.ci)
		for id, name := range profileNames {
			if id < 20 {
				board.answer(fmt.Sprintf("gpm_mig_metrics.%d.%d", m.gi, id), m.metric(name))
			}
		}
	}
	return board
}

// instance is a part of a board.
type instance struct {
	gi, ci        int
	uuid, profile string
	used, total   int
}

// metric is a value of its own for each metric of GPM and each GPU instance.
func (m instance) metric(name string) float64 { return float64(10*m.gi+len(name)) / 4 }

var migInstances = map[int]instance{
	0: {gi: 1, ci: 0, uuid: "MIG-0e2e-0", profile: "4g.40gb", used: 12 * gibi, total: 40 * gibi},
	1: {gi: 5, ci: 0, uuid: "MIG-0e2e-1", profile: "2g.20gb", used: 0, total: 20 * gibi},
	4: {gi: 13, ci: 0, uuid: "MIG-0e2e-4", profile: "1g.10gb", used: gibi / 2, total: 10 * gibi},
}

func TestInstancesOfAGPU(t *testing.T) {
	board := migGPU()
	d, s := startDriver(t, board, fullGPU(1)), startSink(t, nil)
	var receivers strings.Builder
	for host, more := range map[string]string{
		"template": "extended: true", "plain": "extended: false", "off": "extended: true",
		"tag": "extended: true, naming: tag", "sdk": "extended: true, naming: sdk",
	} {
		section := d.section("")
		if host == "off" {
			section = d.section("mig: false")
		}
		fmt.Fprintf(&receivers, "wandbsys/%s: {host_name: %s, %s, collection_interval: 1s, initial_delay: 0s, scrapers: {%s}}\n", host, host, more, section)
	}
	p := d.start(settings{receivers: receivers.String(), exporters: s.exporter()})

	ofBoard := map[string]float64{}
	whole := fullGPU(0).figures(0) // the board's own are those of a whole one
	maps.DeleteFunc(whole, func(series string, _ float64) bool {
		name, _, _ := strings.Cut(series, " ")
		return slices.Contains([]string{"gpu.gpu", "gpu.memory", "gpu.encoderUtilization", "gpu.remappedRows", "gpu.rowRemapPending", "gpu.rowRemapFailed"}, name)
	})
	maps.Copy(ofBoard, whole)
	maps.Copy(ofBoard, fullGPU(1).figures(1))
	instances, plain := map[string]float64{}, map[string]float64{}
	for _, m := range migInstances {
		series := func(name string) string {
			attrs := board.attributes(0, "mig_gi", int64(m.gi), "mig_ci", int64(m.ci), "mig_profile", m.profile, "gpu_uuid", m.uuid)
			return fmt.Sprint("gpu.mig.", name, " ", attrs)
		}
		plain[series("memoryAllocated")] = 100 * float64(m.used) / float64(m.total)
		plain[series("memoryAllocatedBytes")] = float64(m.used)
		instances[series("memoryTotal")] = float64(m.total)
		for id, name := range profileNames {
			if id < 20 {
				instances[series(name)] = m.metric(name)
			}
		}
	}
	maps.Copy(instances, plain)
	ofHost := func(host string) func() points { return func() points { return s.points().from(host) } }

	t.Run("instances beside boards", func(t *testing.T) {
		want := maps.Clone(ofBoard)
		maps.Copy(want, instances)
		checkFigures(t, want, p.waitForScrape("all", len(want), ofHost("template")))
	})
	t.Run("by default", func(t *testing.T) {
		got := p.waitForScrape("all", manyByDefault+len(plain), ofHost("plain"))
		checkFigures(t, plain, got.filter(func(p point) bool { return strings.HasPrefix(p.name, "gpu.mig.") }))
		assert.Len(t, got, manyByDefault+len(plain))
	})
	for _, host := range []string{"off", "tag", "sdk"} {
		t.Run("not in "+host, func(t *testing.T) {
			got := p.waitForScrape("all", len(ofBoard), ofHost(host))
			assert.Len(t, got, len(ofBoard))
			for _, p := range s.points().from(host) {
				require.NotContains(t, p.name, "mig")
				require.NotContains(t, p.attrs, "mig_gi")
			}
		})
	}
	t.Run("the log is calm", func(t *testing.T) {
		assert.Empty(t, append(p.logLines("warn"), p.logLines("error")...))
	})
}

// manyByDefault are the board's points, without three, and another GPU's.
const manyByDefault = 10 + 13
