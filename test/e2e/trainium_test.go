// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// neuronTag is W&B's tag of a point.
func neuronTag(p point) string {
	family, rest, _ := strings.Cut(p.name, ".")
	parts := []string{family}
	for _, key := range []string{"core_index", "neuron_device_index"} {
		if value, ok := p.attrs[key]; ok {
			parts = append(parts, fmt.Sprint(value))
		}
	}
	parts = append(parts, rest)
	for _, key := range []string{"error_type", "status_type", "latency_type", "percentile"} {
		if value, ok := p.attrs[key]; ok {
			parts = append(parts, fmt.Sprint(value))
		}
	}
	return strings.Join(parts, ".")
}

// sdkNeuronTag is the tag that W&B's SDK writes: the parts of the machine's memory are
// called otherwise than the whole.
func sdkNeuronTag(p point) string {
	return strings.Replace(neuronTag(p), "trn.host_total_memory_usage.", "trn.host_memory_usage.", 1)
}

// neuron keeps points of Neuron devices of a host's machine.
func (x *troubled) neuron(host string) func() points {
	return func() points { return x.sink.points().ofInstance(host).ofNeuron() }
}

func TestTrainiumUnderEveryName(t *testing.T) {
	runtimes := []neuronRuntime{aRuntime(0, 4_190_001, "train"), aRuntime(1, 4_190_002, "4190002")}
	f := makeMonitor(t, runtimes...)
	namings := map[string]string{
		"template": "naming: template", "tag": "naming: tag, label: rank-3", "sdk": "naming: sdk", "sdk-labeled": "naming: sdk, label: rank-3",
	}
	var receivers strings.Builder
	for host, naming := range namings {
		receivers.WriteString(neuronReceiver(host, f.monitorSection(""), naming+", extended: true"))
	}
	receivers.WriteString(neuronReceiver("plain", f.monitorSection("tag_filter: ^train, runtime_points: true"), ""))
	x := startFamilyInTrouble(t, "trainium", nil, receivers.String())
	want := neuronFigures(runtimes...)
	x.waitForFigures("all figures", together(want, latencyFigures(runtimes...)), x.neuron("template"))
	template := func() points {
		return x.sink.points().ofInstance("template").filter(func(p point) bool { return strings.HasPrefix(p.name, "trn.") })
	}
	for host, rename := range map[string]func(point) string{
		"tag":         neuronTag,
		"sdk":         sdkNeuronTag,
		"sdk-labeled": func(p point) string { return sdkNeuronTag(p) + "/l:rank-3" },
	} {
		t.Run(host, func(t *testing.T) {
			of := func() points {
				return x.sink.points().ofInstance(host).filter(func(p point) bool { return strings.HasPrefix(p.name, "trn.") })
			}
			x.waitFor("all names", func() bool { return len(of().names()) >= len(seriesOf(template(), rename)) })
			assert.Equal(t, seriesOf(template(), rename), seriesOf(of(), func(p point) string { return p.name }))
			renamed := map[string]float64{}
			for _, p := range template().ofNeuron().lastScrape() {
				renamed[rename(p)] = p.value
			}
			for _, p := range of().ofNeuron().lastScrape() {
				assert.InDelta(t, renamed[p.name], p.value, 1e-9*max(1, p.value), p.name)
			}
		})
	}
	t.Run("examples", func(t *testing.T) {
		for host, names := range map[string][]string{
			"tag": {
				"trn.0.neuroncore_utilization", "trn.host_total_memory_usage.tensors", "trn.3.neuroncore_memory_usage.new_part", "trn.1.mem_ecc_corrected",
				"trn.execution_status.completed", "trn.execution_latency.total.p50",
			},
			"sdk":         {"trn.2.neuroncore_utilization", "trn.host_memory_usage.tensors", "trn.host_memory_usage.new_part", "trn.host_total_memory_usage"},
			"sdk-labeled": {"trn.1.neuroncore_memory_usage.model_code/l:rank-3", "trn.neuron_device_total_memory_usage/l:rank-3"},
		} {
			got := x.sink.points().from(host).names()
			for _, name := range names {
				assert.Contains(t, got, name)
			}
		}
	})
	t.Run("by default, and each runtime", func(*testing.T) {
		all := together(want)
		for _, r := range runtimes {
			for _, p := range template().ofNeuron().lastScrape() {
				own := neuronFigures(r)
				value, has := own[fmt.Sprint(p.name, " ", p.attrs)]
				if !has {
					continue
				}
				attrs := map[string]any{"neuron.runtime.pid": int64(r.pid), "neuron.runtime.tag": r.tag}
				if core, ok := p.attrs["core_index"]; ok {
					attrs["core_index"] = core
				}
				all[fmt.Sprint(p.name, " ", attrs)] = value
			}
		}
		x.waitForFigures("all figures", all, x.neuron("plain"))
	})
	t.Run("shapes", func(t *testing.T) {
		for _, p := range template() {
			require.Equal(t, neuronShape(p.name), p.shape, p.name)
		}
	})
	t.Run("counters", func(t *testing.T) {
		completed := func() points { return template().named("trn.execution_status").with("status_type", "completed") }
		before := completed().last().value
		x.waitFor("more executions", func() bool { return completed().last().value >= before+200 })
		corrected := template().named("trn.mem_ecc_corrected").with("neuron_device_index", int64(1))
		require.NotEmpty(t, corrected)
		for _, sums := range []points{completed(), corrected} {
			for i := 1; i < len(sums); i++ {
				require.GreaterOrEqual(t, sums[i].value, sums[i-1].value)
			}
		}
		checkSumsMayStay(t, template(), x.started)
	})
	t.Run("the first line has no utilisation", func(t *testing.T) {
		for _, p := range x.sink.points().named("trn.neuroncore_utilization") {
			require.Less(t, p.value, firstBusy)
		}
	})
	t.Run("the tool's configuration", func(t *testing.T) {
		assert.Equal(t, "1s", f.config()["period"])
		assert.Len(t, f.runs(), len(namings)+1)
	})
	t.Run("the machine's figures beside", func(t *testing.T) {
		for host := range namings {
			x.waitForHealth(host, "detected", 1, "")
		}
		assert.Contains(t, x.sink.points().ofInstance("template").names(), "memory_percent")
	})
	t.Run("the log is calm", func(t *testing.T) {
		assert.Empty(t, append(x.logLines("warn"), x.logLines("error")...))
	})
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
	assert.Zero(t, f.copies(), "the tools end with the collector")
}

func neuronShape(name string) shape {
	switch {
	case name == "trn.neuroncore_utilization":
		return gauge.in("%")
	case name == "trn.execution_latency":
		return gauge.in("s")
	case name == "trn.execution_status":
		return counter.in("{execution}").integer()
	case name == "trn.execution_errors", strings.Contains(name, "_ecc_"):
		return counter.in("{error}").integer()
	}
	return gauge.in("By").integer()
}

// linesAbout are those of one receiver.
func (x *troubled) linesAbout(host string) []string {
	var all []string
	for _, level := range []string{"error", "warn", "info"} {
		for _, line := range familyLines(x.process, x.family, level) {
			if line.Component == "wandbsys/"+host {
				all = append(all, line.text())
			}
		}
	}
	return all
}

// What is wrong with a tool is said once, costs the machine's figures nothing, and is
// over when the tool works.
func TestTrainiumToolsInTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		mode, said string
		// warned is what is said beside; empty where nothing is.
		warned string
	}{
		"fails":    {monitorFails, "exited with 3 after ", ""},
		"dies":     {toolDies, "died after ", ""},
		"stalls":   {monitorStalls, "no report for ", ""},
		"talks":    {monitorTalks, "of its ", "Skipped a line of neuron-monitor; others like it are not logged"},
		"is a lie": {"gone", "there is no executable ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := aRuntime(0, 4_190_001, "train")
			f := makeMonitor(t, r)
			f.tells("stalled", "")
			f.tells("talking", "")
			f.does(tt.mode)
			if tt.mode == "gone" {
				require.NoError(t, os.Rename(f.path, f.path+".gone"))
			}
			x := startFamilyInTrouble(t, "trainium", nil, neuronReceiver("node", f.monitorSection(""), ""))
			x.waitForHealth("node", "lost", 0, tt.said)
			began := time.Now()
			memory := func() points { return x.sink.points().named("memory_percent").after(began) }
			x.never(f, "many scrapes of the machine", func() bool { return len(memory()) >= several })
			checkPace(t, memory(), deviceInterval)
			assert.Empty(t, x.neuron("node")())
			bad := x.linesAbout("node")
			assert.Equal(t, 1, said(bad, "Error scraping metrics"), "%q", bad)
			assert.LessOrEqual(t, said(bad, "lost "), 2, "%q", bad)
			if tt.warned != "" {
				assert.Equal(t, 1, said(bad, tt.warned), "%q", bad)
			}

			f.does(monitorReports)
			require.NoError(t, os.Remove(filepath.Join(f.folder, "stalled")))
			require.NoError(t, os.Remove(filepath.Join(f.folder, "talking")))
			if tt.mode == "gone" {
				require.NoError(t, os.Rename(f.path+".gone", f.path))
			}
			x.waitForFigures("its figures", neuronFigures(r), x.neuron("node"))
			x.waitForHealth("node", "detected", 1, "")
			good := x.linesAbout("node")
			assert.Equal(t, 1, said(good, "answers again"), "%q", good)
			checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
			assert.Zero(t, f.copies())
		})
	}
}

// A tool that ends is started again. Its last report counts until then, and its
// counters go on.
func TestATrainiumToolThatEndsIsStartedAgain(t *testing.T) {
	r := aRuntime(0, 4_190_001, "train")
	f := makeMonitor(t, r)
	f.does(monitorDiesAfterTwo)
	x := startFamilyInTrouble(t, "trainium", nil, neuronReceiver("node", f.monitorSection(""), "extended: true"))
	x.never(f, "three runs", func() bool { return len(f.runs()) >= 3 })
	f.does(monitorReports)
	runs := func() int { return len(f.runs()) }
	x.never(f, "a run that lasts", func() bool { return runs() >= 4 })
	began := time.Now()
	x.waitFor("its reports", func() bool { return len(x.neuron("node")().named("trn.host_total_memory_usage").after(began)) >= 3 })
	assert.Equal(t, 4, runs(), "it is left running")
	completed := x.sink.points().named("trn.execution_status").with("status_type", "completed")
	for i := 1; i < len(completed); i++ {
		require.Equal(t, completed[0].start, completed[i].start)
		require.GreaterOrEqual(t, completed[i].value, completed[i-1].value)
	}
	assert.GreaterOrEqual(t, completed.last().value, float64(7*r.completed), "of all runs")
	checkPace(t, x.sink.points().named("memory_percent"), deviceInterval)
	x.waitForHealth("node", "detected", 1, "")
	lines := x.linesAbout("node")
	assert.Equal(t, 1, said(lines, "neuron-monitor ended"), "%q", lines)
	assert.Equal(t, 1, said(lines, "panic: lost the driver"), "%q", lines)
	assert.Zero(t, said(lines, "Error scraping metrics"), "%q", lines)

	x.reload("wandbsys/node", "wandbsys/again")
	x.never(f, "the tool of the new receiver", func() bool { return runs() >= 5 })
	x.waitForHealth("again", "detected", 1, "")
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
	assert.Zero(t, f.copies())
}

// A tool that does not want to end does so all the same, with all that it started.
func TestACollectorLeavesNoTrainiumTool(t *testing.T) {
	temporary := publicDir(t)
	start := func(t *testing.T, mode string) (*fakeTool, *troubled) {
		t.Helper()
		f := makeMonitor(t, aRuntime(0, 4_190_001, "train"))
		f.does(mode)
		x := startFamilyInTrouble(t, "trainium", []string{"TMPDIR=" + temporary}, neuronReceiver("node", f.monitorSection(""), ""))
		x.waitFor("its figures", func() bool { return len(x.neuron("node")()) > 0 })
		require.Equal(t, 1, f.copies())
		return f, x
	}
	left := func(t *testing.T) []os.DirEntry {
		t.Helper()
		entries, err := os.ReadDir(temporary)
		require.NoError(t, err)
		return entries
	}
	t.Run("asked to end", func(t *testing.T) {
		f, x := start(t, monitorStays)
		require.Len(t, left(t), 1)
		checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
		assert.Zero(t, f.copies())
		assert.Empty(t, left(t), "its configuration is removed")
		assert.Empty(t, x.logLines("error"))
	})
	t.Run("killed", func(t *testing.T) {
		f, x := start(t, monitorClings)
		require.NoError(t, syscall.Kill(x.pid(), syscall.SIGKILL))
		<-x.exited
		deadline := time.Now().Add(patience)
		for f.copies() > 0 && time.Now().Before(deadline) {
			time.Sleep(pollInterval)
		}
		assert.Zero(t, f.copies(), "the kernel ends it")
	})
}

// What runtimes use counts for the workloads whose processes they are.
func TestNeuronRuntimesOfWorkloads(t *testing.T) {
	skipUnlessMachine(t)
	root, children := startFamily(t)
	stranger := startHelper(t, "idle")
	const ended = 4_194_000 // above what pids here reach
	first, second := aRuntime(0, children[0], "train"), aRuntime(1, children[1], "train")
	other, gone := aRuntime(2, stranger.pid(), "other"), aRuntime(2, ended, "gone")
	f := makeMonitor(t, first, second, other, gone)
	pid := fmt.Sprintf("workloads: {pid: %d, discover: [gpu]}", root.pid())
	x := startFamilyInTrouble(t, "trainium", nil,
		neuronReceiver("both", f.monitorSection(""), pid)+neuronReceiver("counts", f.monitorSection(""), pid+", extended: true")+
			neuronReceiver("none", f.monitorSection(""), "workloads: {discover: []}"))
	of := func(host string, pid int) func() points {
		return func() points { return x.sink.points().of(host, pid).ofNeuron() }
	}
	all := neuronFigures(first, second, other, gone)
	for _, host := range []string{"both", "none"} {
		x.waitForFigures("the machine", all, x.neuron(host))
	}
	for _, p := range x.waitForFigures("the tree", neuronFigures(first, second), of("both", root.pid())) {
		require.Equal(t, "process", p.resource["wandbsys.workload.kind"])
	}
	for _, p := range x.waitForFigures("who else holds a device", neuronFigures(other), of("both", stranger.pid())) {
		require.Equal(t, "gpu", p.resource["wandbsys.workload.kind"])
	}
	x.waitFor("its own figures", func() bool { return len(x.sink.points().of("both", stranger.pid()).named("proc.memory.rssMB")) > 0 })
	assert.Empty(t, x.sink.points().from("none").ofProcess())
	completed := func(pid int) points {
		return x.sink.points().of("counts", pid).named("trn.execution_status").with("status_type", "completed")
	}
	x.waitFor("executions", func() bool {
		return completed(root.pid()).last().value > 600 && completed(stranger.pid()).last().value > 300
	})
	for _, p := range completed(stranger.pid()) {
		require.Zero(t, int(p.value)%other.completed, "its own alone")
	}
	checkSumsMayStay(t, completed(root.pid()), x.started)

	f.runtimes(second)
	x.waitForFigures("what is left of the tree", neuronFigures(second), of("both", root.pid()))
	x.waitFor("the end of a workload", func() bool {
		now := x.sink.points().from("both").named("trn.host_total_memory_usage").lastScrape()
		return len(now) > 0 && len(now.ofPid(stranger.pid())) == 0
	})
	assert.Empty(t, append(x.logLines("warn"), x.logLines("error")...))
}

// exporterOfNeuron is a neuron-monitor-prometheus.
type exporterOfNeuron struct {
	mu     sync.Mutex
	status int
	text   string
}

func (e *exporterOfNeuron) answer(status int, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.text = status, text
}

// ServeHTTP implements http.Handler.
func (e *exporterOfNeuron) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Content-Type", classicText)
	w.WriteHeader(e.status)
	_, _ = w.Write([]byte(e.text))
}

// neuronPage is what the exporter says after so many executions.
func neuronPage(completed int) string {
	return fmt.Sprintf(`# TYPE neuroncore_utilization_ratio gauge
neuroncore_utilization_ratio{neuroncore="0",runtime_tag="a"} 0.25
neuroncore_utilization_ratio{neuroncore="1",runtime_tag="b"} 0.5
# TYPE neuron_runtime_memory_used_bytes gauge
neuron_runtime_memory_used_bytes{memory_location="host",runtime_tag="a"} 1000
neuron_runtime_memory_used_bytes{memory_location="host",runtime_tag="b"} 234
neuron_runtime_memory_used_bytes{memory_location="neuron_device",runtime_tag="a"} 5e9
# TYPE neuroncore_memory_usage_tensors gauge
neuroncore_memory_usage_tensors{neuroncore="1",memory_location="None",runtime_tag="b"} 77
# TYPE execution_status_total counter
execution_status_total{status_type="completed",runtime_tag="a"} %d
# TYPE hardware_ecc_events_total counter
hardware_ecc_events_total{event_type="mem_ecc_corrected",neuron_device_index="1"} 3
# TYPE neuron_hardware_info gauge
neuron_hardware_info{neuron_device_count="1",neuroncore_per_device_count="4"} 1
`, completed)
}

func TestTrainiumFromItsExporter(t *testing.T) {
	e := &exporterOfNeuron{}
	e.answer(http.StatusOK, neuronPage(5000))
	server := httptest.NewServer(e)
	defer server.Close()
	section := fmt.Sprintf("trainium: {report_idle: true, prometheus: {endpoint: '%s/metrics'}}", server.URL)
	x := startFamilyInTrouble(t, "trainium", nil, neuronReceiver("node", section, "extended: true, naming: tag"))
	want := map[string]float64{}
	for name, value := range map[string]float64{"trn.host_total_memory_usage": 1234, "trn.neuron_device_total_memory_usage": 5e9} {
		want[fmt.Sprint(name, " ", map[string]any{})] = value
	}
	for core, percent := range map[int]float64{0: 25, 1: 50, 2: 0, 3: 0} {
		want[fmt.Sprintf("trn.%d.neuroncore_utilization %v", core, map[string]any{"core_index": int64(core)})] = percent
	}
	want[fmt.Sprint("trn.1.neuroncore_memory_usage.tensors ", map[string]any{"core_index": int64(1)})] = 77
	x.waitForFigures("all figures", want, x.neuron("node"))
	completed := func() points { return x.sink.points().named("trn.execution_status.completed") }
	x.waitFor("several counts", func() bool { return len(completed()) >= 3 })
	assert.InDelta(t, 5000, completed().last().value, 0, "the exporter's own count")
	assert.InDelta(t, 3, x.sink.points().named("trn.1.mem_ecc_corrected").last().value, 0)
	seen := x.lines()

	e.answer(http.StatusServiceUnavailable, "no")
	x.waitForHealth("node", "lost", 0, "503")
	began := time.Now()
	x.waitFor("many scrapes of the machine", func() bool { return len(x.sink.points().named("memory_percent").after(began)) >= several })
	assert.Empty(t, x.neuron("node")().after(began))
	bad := x.news(&seen)
	assert.Len(t, bad, 2, "%q", bad)

	e.answer(http.StatusOK, neuronPage(7))
	x.waitForHealth("node", "detected", 1, "")
	x.waitFor("a count from new", func() bool { return completed().last().value == 7 })
	assert.True(t, completed().last().start.After(completed()[0].start), "the exporter began anew")
	assert.Len(t, x.news(&seen), 2)
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
}

// Without devices and tools there is nothing; with devices alone the tool is missing.
func TestWithoutTrainium(t *testing.T) {
	if exists("/opt/aws/neuron/bin/neuron-monitor") {
		t.Skip("there is neuron-monitor")
	}
	n, r := makeAMDNode(t, 0), aRuntime(0, 4_190_001, "train")
	f := makeMonitor(t, r)
	require.NoError(t, os.Rename(f.path, f.path+".later"))
	path := "PATH=" + filepath.Dir(f.path) + ":" + os.Getenv("PATH")
	x := startFamilyInTrouble(t, "trainium", []string{path}, neuronReceiver("node", "trainium: ", "root_path: "+n.root))
	x.checkAbsent("no /dev/neuron*, and neuron-monitor is not installed", "install the Neuron driver (aws-neuronx-dkms) and tools")
	n.write("dev/neuron0", "")
	x.waitForHealth("node", "lost", 0, "install aws-neuronx-tools, or set scrapers::trainium::neuron_monitor_path")
	require.NoError(t, os.Rename(f.path+".later", f.path))
	x.waitForFigures("its figures", neuronFigures(r), x.neuron("node"))
	x.waitForHealth("node", "detected", 1, "")
	assert.Equal(t, 1, said(x.lines(), "Error scraping metrics"), "%q", x.lines())
	assert.Equal(t, 1, said(x.lines(), "answers again"), "%q", x.lines())
}

// What a tool costs that tells of 64 runtimes on 32 cores each second. It is shown, not
// judged.
func TestCostOfTrainium(t *testing.T) {
	var runtimes []neuronRuntime
	for n := range 64 {
		r := aRuntime(n, 4_190_000+n, fmt.Sprint("tag-", n))
		r.busy = map[int]float64{}
		for core := range 32 {
			r.busy[core] = float64(core)
			r.coreParts[core] = map[string]int{"constants": 1, "model_code": 2, "model_shared_scratchpad": 3, "runtime_memory": 4, "tensors": 5}
		}
		runtimes = append(runtimes, r)
	}
	f, s := makeMonitor(t, runtimes...), startSink(t, nil)
	start := func(host, scrapers string) *process {
		return startCollector(t, settings{
			receivers: fmt.Sprintf("wandbsys: {host_name: %s, collection_interval: 1s, initial_delay: 0s, workloads: {discover: []}, scrapers: {host: %s}}", host, scrapers),
			exporters: s.exporter(),
		})
	}
	without, with := start("without", ""), start("with", ", "+f.monitorSection(""))
	with.waitFor("reports", func() bool { return len(s.points().from("with").named("trn.host_total_memory_usage")) > 1 })
	began, before := time.Now(), []time.Duration{readProcess(t, without.pid()).cpu, readProcess(t, with.pid()).cpu}
	observe(5 * time.Second)
	line, err := os.Stat(filepath.Join(f.folder, "report"))
	require.NoError(t, err)
	t.Logf("in %s, at one scrape and one line of %d KiB a second: %s of CPU time without the family, %s with it", time.Since(began).Round(time.Millisecond),
		line.Size()>>10, readProcess(t, without.pid()).cpu-before[0], readProcess(t, with.pid()).cpu-before[1])
	with.stop()
	assert.Zero(t, f.copies())
}
