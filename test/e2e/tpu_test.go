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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	tpuDuty   = "tpu.runtime.tensorcore.dutycycle.percent"
	tpuTotal  = "tpu.runtime.hbm.memory.total.bytes"
	tpuUsage  = "tpu.runtime.hbm.memory.usage.bytes"
	tpuTiming = "hlo.execution.timing.distribution.microseconds"
	tpuQueue  = "hlo.queue.size.gauge"
	tpuBuffer = "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution"
	tpuRTT    = "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution"
)

// firstDevice is the number in the slice of the machine's first device.
const firstDevice = 4

// aTPUJob is what the runtime of a job on four devices tells.
func aTPUJob() map[string][]message {
	return map[string][]message{
		tpuDuty:   doubles(firstDevice, 12.5, 25, 50, 99.5),
		tpuTotal:  wholes(firstDevice, 32*gibi, 32*gibi, 32*gibi, 32*gibi),
		tpuUsage:  wholes(firstDevice, gibi, 2*gibi, 3*gibi, 16*gibi),
		tpuTiming: {distributed(tpuList("device_ordinal", "0", "core_type", "tensorcore"), 15.5, 0, 1000)},
		tpuQueue:  {tpuList("device_ordinal", "0", "core_type", "tensorcore").message(3, message(nil).whole(2, 3))},
		tpuBuffer: {distributed(tpuList("buffer_size", "8 MB+"), 7, 1000, 0)},
		tpuRTT:    {distributed(tpuList("peer", "a"), 5, 500, 0), distributed(tpuList("peer", "b"), 5, 500, 0)},
		"new.one": doubles(firstDevice, 1),
	}
}

// tpuSeries names a series of a device.
func tpuSeries(name string, index int) string {
	return fmt.Sprint(name, " ", map[string]any{"tpu_index": int64(index), "tpu.device_id": int64(firstDevice + index)})
}

// tpuFigures are those of a job in template naming; without those off by default.
func tpuFigures() map[string]float64 {
	all := map[string]float64{}
	for i, duty := range []float64{12.5, 25, 50, 99.5} {
		all[tpuSeries("tpu.dutyCycle", i)] = duty
		all[tpuSeries("tpu.hbmCapacityTotal", i)] = 32 * gibi
		all[tpuSeries("tpu.hbmCapacityUsage", i)] = float64([]int{1, 2, 3, 16}[i] * gibi)
	}
	all[fmt.Sprint("tpu.hloQueueSize ", map[string]any{"label": "tensorcore_0"})] = 3
	stats := func(name, label string, mean, lower float64) {
		for stat, v := range map[string]float64{"mean": mean, "p50": lower + 5, "p90": lower + 9, "p95": lower + 9.5, "p999": lower + 9.99} {
			attrs := map[string]any{"stat": stat}
			if label != "" {
				attrs["label"] = label
			}
			all[fmt.Sprint(name, " ", attrs)] = v
		}
	}
	stats("tpu.hloExecTiming", "tensorcore_0", 15.5, 10)
	stats("tpu.bufferTransferLatency", "8_mb_plus", 7, 0)
	stats("tpu.grpcTcpMinRtt", "", 5, 0)
	return all
}

// tpuTag is W&B's tag of a point.
func tpuTag(p point) string {
	family, rest, _ := strings.Cut(p.name, ".")
	if index, ok := p.attrs["tpu_index"]; ok {
		return fmt.Sprintf("%s.%v.%s", family, index, rest)
	}
	tag := p.name
	if label, ok := p.attrs["label"]; ok {
		tag += fmt.Sprint(".", label)
	}
	if stat, ok := p.attrs["stat"]; ok {
		tag += fmt.Sprint(".", stat, "Us")
	}
	return tag
}

// tpus keeps points of the TPUs of a host's machine.
func (x *troubled) tpus(host string) func() points {
	return func() points { return x.sink.points().ofInstance(host).ofTPUs() }
}

// TPUs and Neuron devices beside the host's figures, under every name.
func TestTPUsUnderEveryName(t *testing.T) {
	n, r := makeAMDNode(t, 0), aRuntime(0, 4_190_001, "train")
	n.addTPUs(4)
	runtime, f := startTPURuntime(t, "127.0.0.1:0", aTPUJob()), makeMonitor(t, r)
	both := fmt.Sprintf("tpu: {endpoints: ['%s']}, %s", runtime.address, f.monitorSection(""))
	namings := map[string]string{
		"template": "naming: template", "tag": "naming: tag, label: rank-3", "sdk": "naming: sdk", "sdk-labeled": "naming: sdk, label: rank-3",
	}
	var receivers strings.Builder
	for host, naming := range namings {
		receivers.WriteString(n.tpuReceiver(host, both, naming))
	}
	section := fmt.Sprintf("tpu: {endpoints: ['%s'], distributions: ", runtime.address)
	receivers.WriteString(n.tpuReceiver("histogram", section+"histogram}", ""))
	receivers.WriteString(n.tpuReceiver("full", section+"both}", "extended: true"))
	x := startFamilyInTrouble(t, "tpu", nil, receivers.String())
	want := tpuFigures()
	x.waitForFigures("all figures", want, x.tpus("template"))
	x.waitForFigures("Neuron's", neuronFigures(r), x.neuron("template"))
	template := x.tpus("template")
	for host, rename := range map[string]func(point) string{
		"tag":         tpuTag,
		"sdk":         tpuTag,
		"sdk-labeled": func(p point) string { return tpuTag(p) + "/l:rank-3" },
	} {
		t.Run(host, func(t *testing.T) {
			renamed := map[string]float64{}
			for _, p := range template().lastScrape() {
				renamed[fmt.Sprint(rename(p), " ", p.attrs)] = p.value
			}
			got := x.waitForFigures("all figures", renamed, x.tpus(host))
			assert.Equal(t, seriesOf(template(), rename), seriesOf(got, func(p point) string { return p.name }))
			assert.NotEmpty(t, x.sink.points().ofInstance(host).filter(func(p point) bool { return strings.HasPrefix(p.name, "memory_percent") }))
		})
	}
	t.Run("examples", func(t *testing.T) {
		for host, names := range map[string][]string{
			"tag": {
				"tpu.3.dutyCycle", "tpu.0.hbmCapacityUsage", "tpu.hloExecTiming.tensorcore_0.p999Us", "tpu.hloQueueSize.tensorcore_0",
				"tpu.bufferTransferLatency.8_mb_plus.meanUs", "tpu.grpcTcpMinRtt.p50Us",
			},
			"sdk":         {"tpu.1.hbmCapacityTotal", "tpu.bufferTransferLatency.8_mb_plus.p90Us"},
			"sdk-labeled": {"tpu.2.dutyCycle/l:rank-3", "tpu.grpcTcpMinRtt.p95Us/l:rank-3"},
		} {
			got := x.sink.points().from(host).names()
			for _, name := range names {
				assert.Contains(t, got, name)
			}
		}
	})
	t.Run("distributions in whole", func(t *testing.T) {
		for _, host := range []string{"histogram", "full"} {
			var timing []pmetric.HistogramDataPoint
			x.waitFor("a histogram", func() bool {
				timing = x.sink.histograms(host, "tpu.hloExecTiming.histogram")
				return len(timing) > 0
			})
			assert.Equal(t, []float64{10, 20}, timing[0].ExplicitBounds().AsRaw())
			assert.Equal(t, []uint64{0, 1000, 0}, timing[0].BucketCounts().AsRaw())
			assert.InDelta(t, 15500, timing[0].Sum(), 1e-6)
			assert.Equal(t, map[string]any{"label": "tensorcore_0"}, timing[0].Attributes().AsRaw())
		}
		assert.Empty(t, x.sink.points().from("histogram").named("tpu.hloExecTiming"))
		assert.NotEmpty(t, x.sink.points().from("full").named("tpu.hloExecTiming").with("stat", "p99"))
		share := x.sink.points().from("full").named("tpu.hbmMemoryUsage").with("tpu_index", int64(3))
		require.NotEmpty(t, share)
		assert.InDelta(t, 50, share.last().value, 1e-9)
	})
	t.Run("the log is calm", func(t *testing.T) {
		for host := range namings {
			x.waitForHealth(host, "detected", 1, "")
		}
		assert.Empty(t, append(x.logLines("warn"), x.logLines("error")...))
	})
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
	assert.Zero(t, f.copies())
}

// histograms are the points of a histogram of a host.
func (s *sink) histograms(host, name string) []pmetric.HistogramDataPoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []pmetric.HistogramDataPoint
	for _, md := range s.payloads {
		for _, rm := range md.ResourceMetrics().All() {
			if from, _ := rm.Resource().Attributes().Get("host.name"); from.AsString() != host {
				continue
			}
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() != name || m.Type() != pmetric.MetricTypeHistogram {
						continue
					}
					for _, p := range m.Histogram().DataPoints().All() {
						all = append(all, p)
					}
				}
			}
		}
	}
	return all
}

// Without a job nobody listens, which is no fault; jobs come and go.
func TestTPUsWithoutAJob(t *testing.T) {
	n, address := makeNode(t), freeAddress(t)
	n.addTPUs(4)
	_, port, _ := strings.Cut(address, ":")
	x := startFamilyInTrouble(t, "tpu", []string{"TPU_RUNTIME_METRICS_PORTS=" + port}, n.tpuReceiver("node", "tpu: ", ""))
	memory := func() points { return x.sink.points().named("memory_percent") }
	x.waitFor("many scrapes", func() bool { return len(memory()) >= several })
	x.waitForHealth("node", "detected", 1, "")
	assert.Empty(t, x.tpus("node")())

	for range 2 {
		job := startTPURuntime(t, address, aTPUJob())
		x.waitForFigures("its figures", tpuFigures(), x.tpus("node"))
		job.server.Stop()
		ended, seen := time.Now(), len(memory())
		x.waitFor("more scrapes", func() bool { return len(memory()) >= seen+several })
		assert.Empty(t, x.tpus("node")().after(ended.Add(deviceInterval)), "no stale repeats")
		x.waitForHealth("node", "detected", 1, "")
	}
	assert.Equal(t, []string{"detected"}, x.lines())
	assert.Empty(t, append(x.logLines("warn"), x.logLines("error")...))
	checkPace(t, memory(), deviceInterval)
}

// A training process whose port is taken, or one near it, does not start: the collector
// listens on no port but the one for its own metrics.
func TestNothingListensNearTheTPUsPort(t *testing.T) {
	n := makeNode(t)
	n.addTPUs(4)
	x := startFamilyInTrouble(t, "tpu", nil, n.tpuReceiver("node", "tpu: {sdk: {enabled: true, library_path: "+buildLibtpu(t, nil)+"}}", "extended: true"))
	x.waitForHealth("node", "detected", 1, "")
	x.waitFor("several scrapes", func() bool { return len(x.sink.points().named("memory_percent")) >= several })
	_, port, _ := strings.Cut(x.health, ":")
	assert.Equal(t, []int{int(number(t, port))}, listening(t, x.pid()))
}

// listening are the TCP ports that a process listens on.
func listening(t *testing.T, pid int) []int {
	t.Helper()
	held := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil {
			held[target] = true
		}
	}
	require.NotEmpty(t, held)
	var ports []int
	for _, file := range []string{"tcp", "tcp6"} {
		if !exists("/proc/net/" + file) {
			continue
		}
		for _, fields := range fieldsOf(t, "/proc/net/"+file)[1:] {
			const listen = "0A"
			_, port, _ := strings.Cut(fields[1], ":")
			if fields[3] != listen || !held["socket:["+fields[9]+"]"] {
				continue
			}
			n, err := strconv.ParseUint(port, 16, 16)
			require.NoError(t, err)
			ports = append(ports, int(n))
		}
	}
	slices.Sort(ports)
	return ports
}

// What is wrong with a runtime is said once, and over when it answers.
func TestATPURuntimeInTrouble(t *testing.T) {
	n := makeNode(t)
	n.addTPUs(4)
	runtime := startTPURuntime(t, "127.0.0.1:0", aTPUJob())
	x := startFamilyInTrouble(t, "tpu", nil, n.tpuReceiver("node", fmt.Sprintf("tpu: {endpoints: ['%s']}", runtime.address), "timeout: 500ms"))
	x.waitForFigures("its figures", tpuFigures(), x.tpus("node"))
	seen := x.lines()
	for name, tt := range map[string]struct {
		begin, end func()
		said       string
	}{
		"errors": {
			func() { runtime.fault = status.Error(codes.Internal, "no luck") }, func() { runtime.fault = nil }, "every question was answered with an error",
		},
		"hangs": {
			func() { runtime.stuck = make(chan struct{}) }, func() { close(runtime.stuck); runtime.stuck = nil }, "TPU runtime ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.change(tt.begin)
			x.waitForHealth("node", "lost", 0, tt.said)
			began := time.Now()
			memory := func() points { return x.sink.points().named("memory_percent").after(began) }
			x.waitFor("many scrapes of the machine", func() bool { return len(memory()) >= several })
			checkPace(t, memory(), deviceInterval)
			assert.Empty(t, x.tpus("node")().after(began))
			bad := x.news(&seen)
			assert.Len(t, bad, 2, "%q", bad)
			assert.Equal(t, 1, said(bad, "lost "), "%q", bad)
			assert.Equal(t, 1, said(bad, "Error scraping metrics"), "%q", bad)

			runtime.change(tt.end)
			x.waitForHealth("node", "detected", 1, "")
			x.waitForFigures("its figures", tpuFigures(), x.tpus("node"))
			assert.Len(t, x.news(&seen), 2)
		})
	}
	runtime.change(func() { runtime.stuck = make(chan struct{}) })
	asked := runtime.questions()
	x.waitFor("a question without an answer", func() bool { return runtime.questions() > asked })
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
}

// The device plugin tells of pods' devices. It is asked where no TPU is seen, too.
func TestTPUsFromTheDevicePlugin(t *testing.T) {
	plugin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", classicText)
		_, _ = fmt.Fprint(w, `# TYPE duty_cycle gauge
duty_cycle{make="cloud-tpu",accelerator_id="17-4",pod="train-0",namespace="ml",container="main"} 61
duty_cycle{make="cloud-tpu",accelerator_id="17-5",pod="train-0",namespace="ml",container="main"} 62
duty_cycle{make="nvidia",accelerator_id="17-6"} 99
# TYPE tensorcore_utilization_node gauge
tensorcore_utilization_node{make="cloud-tpu",accelerator_id="17-0"} 41
`)
	}))
	defer plugin.Close()
	n := makeNode(t)
	section := fmt.Sprintf("tpu: {device_plugin: '%s/metrics', endpoints: ['%s']}", plugin.URL, freeAddress(t))
	x := startFamilyInTrouble(t, "tpu", nil, n.tpuReceiver("node", section, ""))
	of := func(index, id int) map[string]any {
		return map[string]any{
			"tpu_index": int64(index), "tpu.device_id": int64(id),
			"k8s.namespace.name": "ml", "k8s.pod.name": "train-0", "k8s.container.name": "main",
		}
	}
	x.waitForFigures("its figures", map[string]float64{
		fmt.Sprint("tpu.dutyCycle ", of(0, 4)):                                          61,
		fmt.Sprint("tpu.dutyCycle ", of(1, 5)):                                          62,
		fmt.Sprint("tpu.tensorcoreUtilization ", map[string]any{"tpu_index": int64(0)}): 41,
	}, x.tpus("node"))
	x.waitForHealth("node", "detected", 1, "")
	seen := x.lines()
	plugin.Close()
	x.waitForHealth("node", "lost", 0, "TPU device plugin: ")
	x.waitFor("many scrapes", func() bool {
		return len(x.sink.points().named("memory_percent").after(time.Now().Add(-several*deviceInterval))) >= several-1
	})
	assert.Len(t, x.news(&seen), 2)
}

// libtpu is read by libtpu-reader, which is beside the collector.
func TestTPUsFromLibtpu(t *testing.T) {
	reader := filepath.Join(filepath.Dir(binary(t)), "libtpu-reader")
	require.FileExists(t, reader, "run `make build`")
	n := makeNode(t)
	n.addTPUs(2)
	child := filepath.Join(publicDir(t), "child")
	library := buildLibtpu(t, map[string][]string{"tensorcore_util": {"41.5", "42.5"}, "duty_cycle_pct": {"7", "8"}}, "CHILD="+strconv.Quote(child))
	broken := buildLibtpu(t, nil, "CRASH_IN_CALL")
	hung := buildLibtpu(t, nil, "HANG_IN_CALL")
	runtime := startTPURuntime(t, "127.0.0.1:0", map[string][]message{tpuDuty: doubles(0, 1, 2)})
	section := func(library string) string {
		return fmt.Sprintf("tpu: {collection_interval: 10s, endpoints: ['%s'], sdk: {enabled: true, library_path: %s}}", runtime.address, library)
	}
	x := startFamilyInTrouble(t, "tpu", nil, n.tpuReceiver("node", section(library), "")+
		n.tpuReceiver("broken", section(broken), "")+n.tpuReceiver("hung", section(hung), ""))
	duty := map[string]float64{}
	for i := range 2 {
		duty[fmt.Sprint("tpu.dutyCycle ", map[string]any{"tpu_index": int64(i), "tpu.device_id": int64(i)})] = float64(i + 1)
	}
	want := together(duty, map[string]float64{
		fmt.Sprint("tpu.tensorcoreUtilization ", map[string]any{"tpu_index": int64(0)}): 41.5,
		fmt.Sprint("tpu.tensorcoreUtilization ", map[string]any{"tpu_index": int64(1)}): 42.5,
	})
	x.waitForFigures("what the runtime does not tell", want, x.tpus("node"))
	for host, reason := range map[string]string{"broken": "libtpu: ", "hung": "libtpu: "} {
		x.waitForFigures("the runtime's", duty, x.tpus(host))
		x.waitForHealth(host, "detected", 0, reason)
		lines := x.linesAbout(host)
		assert.Equal(t, 1, said(lines, "Error scraping metrics libtpu: "), "%q", lines)
	}
	x.waitFor("the end of the reader and what it left", func() bool { return len(childrenOf(t, x.pid())) == 0 })
	pid := firstLine(t, child)
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	assert.True(t, err != nil || strings.Contains(string(content), ") Z "), "process %s lives: %s", pid, content)
	for _, library := range []string{library, broken, hung} {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", x.pid()))
		require.NoError(t, err)
		assert.NotContains(t, string(maps), library, "the collector never opens it")
	}
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
}

// Chips may show up later, and a process that has one open is work.
func TestTPUsAreFoundLater(t *testing.T) {
	n := makeAMDNode(t, 0)
	x := startFamilyInTrouble(t, "tpu", []string{"TPU_RUNTIME_METRICS_PORTS=" + strings.TrimPrefix(freeAddress(t), "127.0.0.1:")},
		n.tpuReceiver("node", "tpu: ", "workloads: {discover: [gpu]}"))
	x.checkAbsent("no TPU on the PCI bus", "name them in scrapers::tpu::endpoints")
	assert.Empty(t, x.sink.points().ofProcess())
	n.run(nodeProcess{pid: 70, parent: 1, name: "python", start: 1000, threads: 3, mebibytes: 120, group: "/", open: []string{"/dev/null", "/dev/accel0"}})
	n.run(nodeProcess{pid: 71, parent: 1, name: "bash", start: 1000, threads: 1, mebibytes: 1, group: "/", open: []string{"/dev/null"}})
	n.addTPUs(1)
	x.waitForHealth("node", "detected", 1, "")
	x.waitFor("who has it open", func() bool { return len(x.sink.points().ofPid(70).named("proc.memory.rssMB")) > 0 })
	assert.Equal(t, "gpu", x.sink.points().ofPid(70)[0].resource["wandbsys.workload.kind"])
	assert.Empty(t, x.sink.points().ofPid(71))
	assert.Len(t, x.lines(), 2)
}
