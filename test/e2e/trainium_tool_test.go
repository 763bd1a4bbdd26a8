// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

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
	"time"

	"github.com/stretchr/testify/require"
)

// What neuron-monitor's double does, as a shell runs it: a line at once, of a period
// that is no period, and one each second.
const (
	monitorReports = "cat first; while sleep 1; do cat report; done"
	// monitorDiesAfterTwo works, and ends again and again.
	monitorDiesAfterTwo = "cat report; sleep 1; cat report; sleep 1; echo 'panic: lost the driver' >&2; exit 2"
	// monitorFails ends at once.
	monitorFails = "echo 'nrt: no such device' >&2; exit 3"
	// monitorTalks says something else.
	monitorTalks = "while [ -f talking ]; do echo '{\"version\": \"2.0\"}'; sleep 1; done; " + monitorReports
	// monitorStalls says nothing until it may.
	monitorStalls = "while [ -f stalled ]; do sleep 0.2; done; " + monitorReports
	// monitorStays ignores what asks it to end, and so do its children and theirs.
	monitorStays = "trap '' TERM; sleep 1000 & (sleep 1000 & sleep 1000) & while cat report; do sleep 1; done"
	// monitorClings ignores what asks it to end, alone.
	monitorClings = "trap '' TERM; while cat report; do sleep 1; done"
)

// coresOfMonitor is how many cores the doubles' machine has: 2 devices of 2.
const coresOfMonitor = 4

// neuronRuntime is a process that uses Neuron cores, as neuron-monitor tells of it.
type neuronRuntime struct {
	pid int
	tag string
	// busy is in percent by core.
	busy map[int]float64
	// host and device are bytes, and in parts.
	host, device int
	hostParts    map[string]int
	coreParts    map[int]map[string]int
	// completed and timedOut are executions in a period, millis how long the median
	// of them took.
	completed, timedOut, millis int
}

// aRuntime is one on two cores, with figures of its own for each part of the memory and
// a part that no version known has.
func aRuntime(n, pid int, tag string) neuronRuntime {
	r := neuronRuntime{
		pid: pid, tag: tag, busy: map[int]float64{n: 10.5 + float64(n), n + 1: 20.25 + float64(n)},
		host: 1000*mebi + n, device: 2000*mebi + n, completed: 100 + n, timedOut: 1, millis: 3 + n,
		hostParts: map[string]int{"application_memory": 700*mebi + n, "constants": 7 + n, "dma_buffers": 11 + n, "tensors": 13 + n, "new_part": 17 + n},
		coreParts: map[int]map[string]int{},
	}
	for core := range coresOfMonitor {
		at := 1000 * (core + 1)
		r.coreParts[core] = map[string]int{
			"constants": at + 1 + n, "model_code": at + 2 + n, "model_shared_scratchpad": at + 3 + n, "runtime_memory": at + 4 + n,
			"tensors": at + 5 + n, "new_part": at + 6 + n,
		}
	}
	return r
}

// neuronReport is a line of neuron-monitor.
func neuronReport(t *testing.T, period float64, runtimes ...neuronRuntime) string {
	t.Helper()
	type object = map[string]any
	var data []object
	for _, r := range runtimes {
		busy := object{}
		for core, percent := range r.busy {
			busy[strconv.Itoa(core)] = object{"neuroncore_utilization": percent}
		}
		latency := float64(r.millis) / 1000
		data = append(data, object{"pid": r.pid, "neuron_runtime_tag": r.tag, "error": "", "report": object{
			"neuroncore_counters": object{"period": period, "neuroncores_in_use": busy, "error": ""},
			"memory_used": object{"period": period, "error": "", "loaded_models": []any{}, "neuron_runtime_used_bytes": object{
				"host": r.host, "neuron_device": r.device,
				"usage_breakdown": object{"host": r.hostParts, "neuroncore_memory_usage": r.coreParts},
			}},
			"execution_stats": object{
				"period": period, "error": "",
				"error_summary":     object{"generic": 0, "numerical": 0, "transient": 0, "model": 0, "runtime": 0, "hardware": 0},
				"execution_summary": object{"completed": r.completed, "completed_with_err": 0, "completed_with_num_err": 0, "timed_out": r.timedOut, "incorrect_input": 0, "failed_to_queue": 0},
				"latency_stats":     object{"total_latency": object{"p50": latency}, "device_latency": object{"p50": latency / 2}},
			},
		}})
	}
	devices := []object{}
	for i := range coresOfMonitor / 2 {
		devices = append(devices, object{"neuron_device_index": i, "mem_ecc_corrected": i + 1, "mem_ecc_uncorrected": 0, "sram_ecc_corrected": 0, "sram_ecc_uncorrected": 0})
	}
	line, err := json.Marshal(object{
		"neuron_runtime_data":  data,
		"system_data":          object{"neuron_hw_counters": object{"period": period, "neuron_devices": devices, "error": ""}},
		"neuron_hardware_info": object{"neuron_device_count": len(devices), "neuroncore_per_device_count": 2, "error": ""},
	})
	require.NoError(t, err)
	return string(line) + "\n"
}

// neuronFigures are the values of the series that are on by default and of the
// latencies, by their names in template naming.
func neuronFigures(runtimes ...neuronRuntime) map[string]float64 {
	all := map[string]float64{}
	core := func(i int) map[string]any { return map[string]any{"core_index": int64(i)} }
	add := func(name string, attrs map[string]any, v float64) { all[fmt.Sprint(name, " ", attrs)] += v }
	for _, r := range runtimes {
		for i, percent := range r.busy {
			add("trn.neuroncore_utilization", core(i), percent)
		}
		add("trn.host_total_memory_usage", nil, float64(r.host))
		add("trn.neuron_device_total_memory_usage", nil, float64(r.device))
		for part, bytes := range r.hostParts {
			add("trn.host_total_memory_usage."+part, nil, float64(bytes))
		}
		for i, parts := range r.coreParts {
			for part, bytes := range parts {
				add("trn.neuroncore_memory_usage."+part, core(i), float64(bytes))
			}
		}
	}
	return all
}

// latencyFigures are those of the slowest runtime.
func latencyFigures(runtimes ...neuronRuntime) map[string]float64 {
	seconds := 0.0
	for _, r := range runtimes {
		seconds = math.Max(seconds, float64(r.millis)/1000)
	}
	series := func(of string) string {
		return fmt.Sprint("trn.execution_latency ", map[string]any{"latency_type": of, "percentile": "p50"})
	}
	return map[string]float64{series("total"): seconds, series("device"): seconds / 2}
}

// together are the figures of several maps.
func together(all ...map[string]float64) map[string]float64 {
	sum := map[string]float64{}
	for _, m := range all {
		maps.Copy(sum, m)
	}
	return sum
}

// makeMonitor makes a double of neuron-monitor that tells of runtimes.
func makeMonitor(t *testing.T, runtimes ...neuronRuntime) *fakeTool {
	t.Helper()
	f := makeTool(t, "neuron-monitor")
	f.runtimes(runtimes...)
	f.does(monitorReports)
	return f
}

// firstBusy is the utilisation in a first line, which must not count.
const firstBusy = 99.75

// runtimes changes what it tells of.
func (f *fakeTool) runtimes(all ...neuronRuntime) {
	f.t.Helper()
	f.tells("report", neuronReport(f.t, 1.0007, all...))
	var first []neuronRuntime
	for _, r := range all {
		r.busy = map[int]float64{0: firstBusy}
		first = append(first, r)
	}
	f.tells("first", neuronReport(f.t, 0.0006, first...))
}

// config is what it is told by the collector that started it last.
func (f *fakeTool) config() map[string]any {
	f.t.Helper()
	runs := fieldsOf(f.t, filepath.Join(f.folder, "runs"))
	last := runs[len(runs)-1]
	require.Len(f.t, last, 3)
	require.Equal(f.t, "-c", last[1])
	content, err := os.ReadFile(last[2])
	require.NoError(f.t, err)
	var config map[string]any
	require.NoError(f.t, json.Unmarshal(content, &config))
	return config
}

// monitorSection is that of the family.
func (f *fakeTool) monitorSection(more string) string {
	return fmt.Sprintf("trainium: {neuron_monitor_path: %s, %s}", f.path, more)
}

// deviceInterval is that of Neuron devices and TPUs: neuron-monitor has no shorter one.
const deviceInterval = time.Second

// neuronReceiver is a section that measures the machine and its Neuron devices.
func neuronReceiver(name, section, more string) string {
	return fmt.Sprintf("wandbsys/%s: {host_name: %s, collection_interval: %s, detection_interval: %[3]s, initial_delay: 0s, scrapers: {host: , %s}, %s}\n",
		name, name, deviceInterval, section, more)
}

// ofNeuron keeps points of Neuron devices, but for counters, each once: a report that
// nothing newer followed is emitted again, with its time.
func (ps points) ofNeuron() points {
	seen := map[string]bool{}
	return ps.filter(func(p point) bool {
		key := fmt.Sprint(p.at.UnixNano(), p.name, p.attrs, p.resource["service.instance.id"], p.resource["host.name"])
		if seen[key] || p.shape.form == "sum" || !strings.HasPrefix(p.name, "trn.") {
			return false
		}
		seen[key] = true
		return true
	})
}

// waitForFigures waits for a scrape with these figures, and returns it.
func (p *process) waitForFigures(what string, want map[string]float64, of func() points) points {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := of().lastScrape()
		if haveFigures(want, got) || time.Now().After(deadline) {
			checkFigures(p.t, want, got) // says what is missing
			return got
		}
		require.True(p.t, p.alive(), "the process ended (%v) before: %s", p.err, what)
		time.Sleep(pollInterval)
	}
}

func haveFigures(want map[string]float64, got points) bool {
	return maps.EqualFunc(want, got.figures(), func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, a) })
}
