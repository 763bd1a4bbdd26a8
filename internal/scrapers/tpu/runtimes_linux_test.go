// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

type tags = map[string]float64

// zapMetric is the field of a log that names a metric.
func zapMetric(name string) zap.Field { return zap.String("metric", name) }

func causeOf(t *testing.T, err error) string {
	t.Helper()
	var with interface{ Cause() string }
	require.ErrorAs(t, err, &with)
	return with.Cause()
}

func TestWithoutTPUNothingIsAsked(t *testing.T) {
	address, accepted := silentListener(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	m := newMachine(t)
	r := newRigWith(t, m, nil, func(name string) string { return map[string]string{portsVariable: port}[name] })
	for range 2 {
		_, err = r.scrape()
		var absent *scrapers.AbsentError
		require.ErrorAs(t, err, &absent)
		assert.Equal(t, "no TPU on the PCI bus", absent.Reason)
		assert.Contains(t, absent.Cure, "scrapers::tpu::endpoints")
	}
	assert.Zero(t, accepted())

	m.addChips(v6e, "", 4)
	r.wait(impatient)
	faults, _ := r.faults()
	assert.Contains(t, faults, "TPU runtime localhost:"+port, "it is asked as soon as there is one")
}

func TestWhatIsConfiguredIsAskedWithoutTPU(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(5, 3)
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
}

func TestPortsOfTheEnvironment(t *testing.T) {
	first, second := newRuntime(), newRuntime()
	first.metrics[dutyName], second.metrics[dutyName] = perDevice(1, 0), perDevice(2, 1)
	a, _ := first.serve(t)
	b, _ := second.serve(t)
	_, portA, err := net.SplitHostPort(a)
	require.NoError(t, err)
	_, portB, err := net.SplitHostPort(b)
	require.NoError(t, err)
	m := newMachine(t)
	m.addChips(v6e, "", 2)
	r := newRigWith(t, m, nil, func(name string) string {
		return map[string]string{portsVariable: portA + ", x,0,70000," + portB + "," + portA}[name]
	})
	assert.Equal(t, tags{"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 2}, r.tags())
}

func TestDefaultEndpoint(t *testing.T) {
	cfg := &Config{}
	for _, value := range []string{"", "none", ","} {
		all, configured := cfg.endpoints(func(string) string { return value })
		assert.False(t, configured)
		require.Len(t, all, 1)
		assert.Equal(t, "localhost:8431", all[0].ClientConfig.Endpoint)
		assert.True(t, all[0].ClientConfig.TLS.Insecure)
	}
}

func TestNoJobIsNoFault(t *testing.T) {
	m := newMachine(t)
	m.addChips(v6e, "", 4)
	r := newRig(t, m, endpoints(nobody(t)))
	for range 3 {
		assert.Empty(t, r.tags())
	}
}

func TestARuntimeThatComesAndGoes(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(5, 0)
	address, stop := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	for range 3 {
		require.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
	}
	assert.Equal(t, 1, runtime.connections, "the connection is kept")
	assert.Equal(t, 1, runtime.lists)

	stop()
	require.Eventually(t, func() bool { return len(r.tags()) == 0 }, testTimeout, 10*time.Millisecond)

	again := newRuntime()
	again.metrics[dutyName] = perDevice(7, 0)
	again.serveOn(t, address)
	assert.Equal(t, tags{"tpu.0.dutyCycle": 7}, r.tags(), "at once, without a wait that grows")
	assert.Equal(t, 1, again.lists)
}

func TestOnlyWhatThereIsIsAskedFor(t *testing.T) {
	runtime := newRuntime()
	runtime.listed = []string{dutyName, "tpu.runtime.uptime.seconds.gauge", idleName}
	runtime.metrics[dutyName], runtime.metrics[totalName] = perDevice(5, 0), perDevice(6, 0)
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
	assert.Equal(t, []string{dutyName}, runtime.questions(), "and what is wanted: the other is off")

	runtime.change(func() { runtime.listed = append(runtime.listed, totalName) })
	r.tags()
	assert.Equal(t, []string{dutyName}, runtime.questions())
	r.now = r.now.Add(listInterval)
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5, "tpu.0.hbmCapacityTotal": 6}, r.tags())
	assert.Equal(t, []string{totalName, dutyName}, runtime.questions())
}

func TestAnEmptyListIsReadAgainAtOnce(t *testing.T) {
	runtime := newRuntime()
	runtime.listed = []string{}
	runtime.metrics[dutyName] = perDevice(5, 0)
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	assert.Empty(t, r.tags())
	assert.Empty(t, runtime.questions())
	runtime.change(func() { runtime.listed = nil })
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
}

func TestARuntimeThatDoesNotListIsAskedForAll(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.Internal, codes.PermissionDenied, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			runtime := newRuntime()
			runtime.listErr = status.Error(code, "no")
			runtime.metrics[dutyName] = perDevice(5, 0)
			address, _ := runtime.serve(t)
			r := newRig(t, newMachine(t), endpoints(address))
			for range 2 {
				assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
				want := r.want.runtimeNames()
				slices.Sort(want)
				assert.Equal(t, want, runtime.questions())
			}
			assert.Len(t, r.logs.FilterField(zapMetric("ListSupportedMetrics")).All(), 1, "said once per connection")
		})
	}
}

func TestAMetricThatFailsIsMissing(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(5, 0)
	runtime.metrics[usageName] = &pb.MetricResponse{}
	runtime.metrics[totalName] = response()
	runtime.metrics[hloName] = response(&pb.Metric{Attribute: intAttr(0)})
	for name, code := range map[string]codes.Code{bufferName: codes.NotFound, rttName: codes.Internal, queueRuntime: codes.Unavailable} {
		runtime.metrics[name], runtime.errs[name] = nil, status.Error(code, "no")
	}
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	for range 3 {
		assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
	}
	assert.Len(t, r.logs.FilterField(zapMetric(bufferName)).All(), 1)
	assert.Len(t, r.logs.FilterField(zapMetric(rttName)).All(), 1)
	assert.Equal(t, 1, runtime.connections)
}

func TestAnAnswerThatIsTooLargeIsLeftOut(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(5, 0)
	runtime.metrics[usageName] = perDevice(5, make([]int64, maxReadings+1)...)
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
	assert.Len(t, r.logs.FilterField(zapMetric(usageName)).All(), 1)
}

func TestARuntimeWithoutAnyMetricIsNoFault(t *testing.T) {
	runtime := newRuntime()
	runtime.listErr = status.Error(codes.Unimplemented, "no")
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	assert.Empty(t, r.tags())
}

func TestARuntimeThatRefusesEverythingIsAFault(t *testing.T) {
	runtime := newRuntime()
	for _, name := range []string{dutyName, usageName} {
		runtime.metrics[name], runtime.errs[name] = nil, status.Error(codes.Internal, "broken")
	}
	address, _ := runtime.serve(t)
	r := newRig(t, newMachine(t), endpoints(address))
	faults, got := r.faults()
	assert.Empty(t, got)
	err := faults["TPU runtime "+address]
	require.ErrorContains(t, err, "every question was answered with an error: ")
	assert.Equal(t, "Internal", causeOf(t, err))

	runtime.change(func() {
		runtime.metrics[dutyName] = perDevice(5, 0)
		delete(runtime.errs, dutyName)
	})
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, r.tags())
}

func TestWhatHangsDoesNotHoldTheOthersUp(t *testing.T) {
	silent, _ := silentListener(t)
	slow, fine := newRuntime(), newRuntime()
	slow.block = make(chan struct{})
	slow.metrics[dutyName] = perDevice(9, 7)
	fine.metrics[dutyName] = perDevice(5, 3)
	slowAddress, _ := slow.serve(t)
	fineAddress, _ := fine.serve(t)
	r := newRig(t, newMachine(t), endpoints(silent, slowAddress, fineAddress))
	r.wait(impatient)
	for range 2 {
		faults, got := r.faults()
		assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, got)
		require.Len(t, faults, 2)
		assert.Equal(t, "connect", causeOf(t, faults["TPU runtime "+silent]))
		assert.Equal(t, "timeout", causeOf(t, faults["TPU runtime "+slowAddress]))
	}
	close(slow.block)
	r.wait(patience{connect: hungTimeout, call: testTimeout, all: testTimeout})
	faults, got := r.faults()
	assert.Len(t, faults, 1)
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5, "tpu.1.dutyCycle": 9}, got)
}

func TestWhatIsNoRuntimeIsAFault(t *testing.T) {
	address := page(t, "hello")[len("http://"):]
	address = address[:len(address)-len("/metrics")]
	r := newRig(t, newMachine(t), endpoints(address))
	r.wait(impatient)
	faults, _ := r.faults()
	require.Error(t, faults["TPU runtime "+address])
}

func TestANameThatDoesNotExistIsAFault(t *testing.T) {
	r := newRig(t, newMachine(t), endpoints("name.invalid:8431"))
	faults, _ := r.faults()
	assert.Equal(t, "connect", causeOf(t, faults["TPU runtime name.invalid:8431"]))
}

func TestSeveralRuntimes(t *testing.T) {
	yes, no := true, false
	for name, tt := range map[string]struct {
		chips int
		// ids are those of each runtime, whose duty cycles are 100 x its place + 1, 2...
		ids   [][]int64
		alone *bool
		want  tags
		at    map[int64]int // endpoint by number
	}{
		"a device each, not in their order": {
			4,
			[][]int64{{3}, {1}, {2}, {0}},
			&yes,
			tags{"tpu.0.dutyCycle": 3000, "tpu.1.dutyCycle": 1000, "tpu.2.dutyCycle": 2000, "tpu.3.dutyCycle": 0},
			map[int64]int{0: 3, 1: 1, 2: 2, 3: 0},
		},
		"one that does not run": {
			4,
			[][]int64{{8}, nil, {9}},
			&yes,
			tags{"tpu.0.dutyCycle": 0, "tpu.1.dutyCycle": 2000},
			map[int64]int{0: 0, 1: 2},
		},
		"only one runs": {4, [][]int64{nil, {9, 8}, nil}, &no, tags{"tpu.0.dutyCycle": 1100, "tpu.1.dutyCycle": 1000}, map[int64]int{0: 1, 1: 1}},
		"two jobs with the same ids": {
			8,
			[][]int64{{1, 0}, {0, 1}},
			&yes,
			tags{"tpu.0.dutyCycle": 100, "tpu.1.dutyCycle": 0, "tpu.2.dutyCycle": 1000, "tpu.3.dutyCycle": 1100},
			map[int64]int{0: 0, 1: 0, 2: 1, 3: 1},
		},
		"one colliding id orders all by their runtimes": {
			8,
			[][]int64{{5, 9}, {1, 9}},
			&yes,
			tags{"tpu.0.dutyCycle": 0, "tpu.1.dutyCycle": 100, "tpu.2.dutyCycle": 1000, "tpu.3.dutyCycle": 1100},
			map[int64]int{0: 0, 1: 0, 2: 1, 3: 1},
		},
		"each for the whole machine": {2, [][]int64{{4, 5}, {5, 4}}, &yes, tags{"tpu.0.dutyCycle": 0, "tpu.1.dutyCycle": 100}, map[int64]int{0: 0, 1: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.addChips(v6e, "", tt.chips)
			var addresses []string
			for i, ids := range tt.ids {
				if ids == nil {
					addresses = append(addresses, nobody(t))
					continue
				}
				runtime := newRuntime()
				runtime.alone = tt.alone
				runtime.metrics[dutyName] = perDevice(1000*float64(i), ids...)
				address, _ := runtime.serve(t)
				addresses = append(addresses, address)
			}
			md, err := newRig(t, m, endpoints(addresses...)).scrape()
			require.NoError(t, err)
			assert.Equal(t, tt.want, scraperstest.TagsOf(md))
			at := map[int64]int{}
			for _, p := range scraperstest.PointsOf(md) {
				index, ok := p.Attributes["tpu_index"].(int64)
				require.True(t, ok)
				at[index] = slices.Index(addresses, p.Attributes["tpu.endpoint"].(string))
			}
			assert.Equal(t, tt.at, at)
		})
	}
}

func TestRuntimesOfAnUnknownNumberOfDevices(t *testing.T) {
	for name, tt := range map[string]struct {
		second float64
		want   tags
	}{
		"the same values are those of one machine": {0, tags{"tpu.0.dutyCycle": 0, "tpu.1.dutyCycle": 100}},
		"other values are another job's": {1000, tags{
			"tpu.0.dutyCycle": 0, "tpu.1.dutyCycle": 100, "tpu.2.dutyCycle": 1000, "tpu.3.dutyCycle": 1100,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := newRuntime(), newRuntime()
			first.metrics[dutyName], second.metrics[dutyName] = perDevice(0, 6, 7), perDevice(tt.second, 6, 7)
			a, _ := first.serve(t)
			b, _ := second.serve(t)
			assert.Equal(t, tt.want, newRig(t, newMachine(t), endpoints(a, b)).tags())
		})
	}
}

func TestDistributionsOfSeveralRuntimesAreOne(t *testing.T) {
	first, second := newRuntime(), newRuntime()
	one := func(m *pb.Metric_Distribution, labels ...string) *pb.Metric {
		return &pb.Metric{Attribute: listAttr(labels...), Measure: m}
	}
	first.metrics[bufferName] = response(one(counted(100, 15, 0, 100), "buffer-size", "8MB+", "type", "grpc"))
	second.metrics[bufferName] = response(one(counted(100, 25, 0, 0, 100), "Buffer_Size", "8mb+"))
	first.metrics[queueRuntime] = response(&pb.Metric{Attribute: listAttr("device_ordinal", "0"), Measure: intGauge(3)})
	second.metrics[queueRuntime] = response(&pb.Metric{Attribute: listAttr("device_ordinal", "0"), Measure: intGauge(4)})
	a, _ := first.serve(t)
	b, _ := second.serve(t)
	got := newRig(t, newMachine(t), endpoints(a, b)).tags()
	scraperstest.CompareTags(t, "merged", tags{
		"tpu.bufferTransferLatency.8mb_plus.meanUs": 20, "tpu.bufferTransferLatency.8mb_plus.p50Us": 20,
		"tpu.bufferTransferLatency.8mb_plus.p90Us": 28, "tpu.bufferTransferLatency.8mb_plus.p95Us": 29,
		"tpu.bufferTransferLatency.8mb_plus.p999Us": 29.98, "tpu.hloQueueSize.device_0": 7,
	}, got)
}

func TestADeviceKeepsItsNumberWhileARuntimeIsAway(t *testing.T) {
	m := newMachine(t)
	m.addChips(v6e, "", 4)
	first, second := newRuntime(), newRuntime()
	first.metrics[dutyName], second.metrics[dutyName] = perDevice(1, 8), perDevice(2, 9)
	a, stop := first.serve(t)
	b, _ := second.serve(t)
	r := newRig(t, m, endpoints(a, b))
	require.Equal(t, tags{"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 2}, r.tags())
	stop()
	require.Eventually(t, func() bool { return len(r.tags()) == 1 }, testTimeout, 10*time.Millisecond)
	assert.Equal(t, tags{"tpu.1.dutyCycle": 2}, r.tags())
	second.change(func() {
		second.metrics[dutyName] = response()
		second.metrics[totalName] = perDevice(5, 9)
		second.listed = []string{dutyName, totalName}
	})
	r.now = r.now.Add(listInterval)
	assert.Equal(t, tags{"tpu.1.hbmCapacityTotal": 5}, r.tags())
}

func TestAnotherJobsDevicesBeginAnew(t *testing.T) {
	m := newMachine(t)
	m.addChips(v6e, "", 2)
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(1, 8, 9)
	address, _ := runtime.serve(t)
	r := newRig(t, m, endpoints(address))
	require.Equal(t, tags{"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 101}, r.tags())
	runtime.change(func() { runtime.metrics[dutyName] = perDevice(1, 12, 13) })
	assert.Equal(t, tags{"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 101}, r.tags())
}

func TestRuntimesThatChangePlaces(t *testing.T) {
	var r ranks
	r.learn([]runtimeID{{0, 0}, {1, 1}}, 8, true)
	r.learn([]runtimeID{{0, 1}, {1, 0}}, 8, true)
	assert.Equal(t, []runtimeID{{1, 0}, {0, 1}}, r.ids)
}

func TestARuntimeThatAnswersForAnAbsentOneGetsItsNumbers(t *testing.T) {
	var r ranks
	r.learn([]runtimeID{{0, 0}, {0, 1}, {1, 2}, {1, 3}}, 0, true)
	whole := []runtimeID{{1, 0}, {1, 1}, {1, 2}, {1, 3}}
	r.learn(whole, 0, false)
	assert.Equal(t, whole, r.ids)

	// Two jobs that had the same ids keep their numbers.
	two := []runtimeID{{0, 0}, {0, 1}, {1, 0}, {1, 1}}
	r.learn(two, 0, true)
	r.learn(two[2:], 0, false)
	assert.Equal(t, two, r.ids)
	r.learn(nil, 0, false)
	assert.Equal(t, two, r.ids)
}

func TestDutyCycleOfChips(t *testing.T) {
	type chip struct{ value, device, chip any }
	for name, tt := range map[string]struct {
		memory, duty []int64
		want         map[int64]chip
	}{
		"of a slice, chips own the devices of twice their number": {
			[]int64{9, 8, 10, 11},
			[]int64{5, 4},
			map[int64]chip{0: {100.0, int64(8), int64(4)}, 1: {100.0, int64(9), int64(4)}, 2: {0.0, int64(10), int64(5)}, 3: {0.0, int64(11), int64(5)}},
		},
		"of other numbers, they go by rank": {
			[]int64{8, 9, 10, 11},
			[]int64{0, 1},
			map[int64]chip{0: {0.0, int64(8), int64(0)}, 1: {0.0, int64(9), int64(0)}, 2: {100.0, int64(10), int64(1)}, 3: {100.0, int64(11), int64(1)}},
		},
		"without devices, their ids are not known": {
			nil,
			[]int64{7, 3},
			map[int64]chip{0: {100.0, nil, int64(3)}, 1: {100.0, nil, int64(3)}, 2: {0.0, nil, int64(7)}, 3: {0.0, nil, int64(7)}},
		},
		"as many as devices are those of devices": {
			[]int64{0, 1, 2, 3},
			[]int64{0, 1, 2, 3},
			map[int64]chip{0: {0.0, int64(0), nil}, 1: {100.0, int64(1), nil}, 2: {200.0, int64(2), nil}, 3: {300.0, int64(3), nil}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.addChips(v3, "0x004f", 2)
			runtime := newRuntime()
			runtime.metrics[dutyName] = perDevice(0, tt.duty...)
			runtime.metrics[usageName] = perDevice(0, tt.memory...)
			address, _ := runtime.serve(t)
			md, err := newRig(t, m, endpoints(address)).scrape()
			require.NoError(t, err)
			got := map[int64]chip{}
			for _, p := range scraperstest.PointsOf(md) {
				if p.Metric.Name() == "tpu.dutyCycle" {
					got[p.Attributes["tpu_index"].(int64)] = chip{p.Value(), p.Attributes["tpu.device_id"], p.Attributes["tpu.chip_id"]}
				}
				assert.NotContains(t, p.Attributes, "tpu.endpoint", "there is only one")
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestValuesOfAllTypes(t *testing.T) {
	metric := func(a *pb.Attribute, m any) *pb.Metric {
		all := &pb.Metric{Attribute: a}
		switch m := m.(type) {
		case *pb.Metric_Gauge:
			all.Measure = m
		case *pb.Metric_Counter:
			all.Measure = m
		}
		return all
	}
	double, whole := &pb.Counter{Value: &pb.Counter_AsDouble{AsDouble: 6.5}}, &pb.Counter{Value: &pb.Counter_AsInt{AsInt: 7}}
	runtime := newRuntime()
	runtime.metrics[dutyName] = response(
		metric(intAttr(0), intGauge(1)), metric(textAttr("id", " 1 "), doubleGauge(2.5)), metric(listAttr("device", "2"), textGauge("3.5")),
		metric(intAttr(3), &pb.Metric_Gauge{Gauge: &pb.Gauge{Value: &pb.Gauge_AsBool{AsBool: true}}}),
		metric(intAttr(4), &pb.Metric_Counter{Counter: double}), metric(intAttr(5), &pb.Metric_Counter{Counter: whole}),
		metric(intAttr(6), textGauge("NaN")), metric(intAttr(7), doubleGauge(-1)), metric(intAttr(8), nil), metric(intAttr(9), textGauge("?")),
		metric(intAttr(10), &pb.Metric_Gauge{Gauge: &pb.Gauge{}}), metric(nil, intGauge(9)), metric(textAttr("id", "x"), intGauge(9)), metric(intAttr(-1), intGauge(9)),
		metric(intAttr(0), intGauge(8)), metric(listAttr("core_type", "tensorcore", "device_id", "11"), intGauge(4)),
	)
	address, _ := runtime.serve(t)
	assert.Equal(t, tags{
		"tpu.0.dutyCycle": 8, "tpu.1.dutyCycle": 2.5, "tpu.2.dutyCycle": 3.5, "tpu.3.dutyCycle": 1, "tpu.4.dutyCycle": 6.5, "tpu.5.dutyCycle": 7, "tpu.6.dutyCycle": 4,
	}, newRig(t, newMachine(t), endpoints(address)).tags())
}

func TestLabels(t *testing.T) {
	number := func(n int64) *pb.AttrValue { return &pb.AttrValue{Attr: &pb.AttrValue_IntAttr{IntAttr: n}} }
	core := listAttr("core_type", "tensorcore")
	core.Value.GetKvlistAttr().Attributes = append(core.Value.GetKvlistAttr().Attributes, &pb.Attribute{Key: "device_ordinal", Value: number(3)})
	for name, tt := range map[string]struct {
		rule labelRule
		of   *pb.Attribute
		want string
	}{
		"buffer with a dash":           {bufferLabel, listAttr("type", "grpc", "buffer-size", "8MB+"), "8mb_plus"},
		"buffer with an underscore":    {bufferLabel, listAttr("buffer_size", "8MB+"), "8mb_plus"},
		"buffer alone":                 {bufferLabel, textAttr("buffer_size", "8MB+"), "8mb_plus"},
		"no buffer: the first":         {bufferLabel, listAttr("type", "GRPC", "x", "y"), "grpc"},
		"nothing":                      {bufferLabel, nil, "unknown"},
		"an empty list":                {bufferLabel, listAttr(), "unknown"},
		"a list without values":        {bufferLabel, listAttr("type", ""), "unknown"},
		"collective":                   {collectiveLabel, listAttr("collective-type", "ALL_REDUCE", "input-size", "2MB+"), "2mb_plus_all_reduce"},
		"collective without a size":    {collectiveLabel, listAttr("x", "y", "collective_type", "ALL_REDUCE"), "all_reduce"},
		"size without a collective":    {collectiveLabel, listAttr("x", "y", "input_size", "2MB+"), "2mb_plus"},
		"neither":                      {collectiveLabel, listAttr("x", "y"), "y"},
		"core with a number":           {coreLabel, core, "tensorcore_3"},
		"core with a text":             {coreLabel, listAttr("device_ordinal", "0", "core_type", "sparsecore"), "sparsecore_0"},
		"number without a kind":        {coreLabel, listAttr("device_ordinal", "0"), "device_0"},
		"kind without a number":        {coreLabel, listAttr("core_type", "tensorcore"), "tensorcore"},
		"flat":                         {noLabel, listAttr("a", "b"), ""},
		"true":                         {bufferLabel, &pb.Attribute{Value: &pb.AttrValue{Attr: &pb.AttrValue_BoolAttr{BoolAttr: true}}}, "true"},
		"bytes":                        {bufferLabel, &pb.Attribute{Value: &pb.AttrValue{Attr: &pb.AttrValue_BytesAttr{BytesAttr: []byte("8MB")}}}, "8mb"},
		"a number with a fraction":     {bufferLabel, &pb.Attribute{Value: &pb.AttrValue{Attr: &pb.AttrValue_DoubleAttr{DoubleAttr: 1.5}}}, "1_5"},
		"a whole number in a fraction": {bufferLabel, &pb.Attribute{Value: &pb.AttrValue{Attr: &pb.AttrValue_DoubleAttr{DoubleAttr: 1 << 21}}}, "2097152"},
		"an array, which is no label":  {bufferLabel, &pb.Attribute{Value: &pb.AttrValue{Attr: &pb.AttrValue_ArrayAttr{ArrayAttr: &pb.ArrayAttrValue{}}}}, "unknown"},
		"an attribute without a value": {bufferLabel, &pb.Attribute{Key: "buffer_size"}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.rule.of(tt.of)) })
	}
}

func TestSummariesAreTakenAsTheyAre(t *testing.T) {
	summary := func(count uint64, sum float64) *pb.Metric {
		return &pb.Metric{Measure: &pb.Metric_Summary{Summary: &pb.Summary{SampleCount: count, SampleSum: sum, Quantile: []*pb.Summary_Quantile{
			{Quantile: 0.5, Value: sum}, {Quantile: 0.9, Value: 9}, {Quantile: 0.99, Value: 99}, {Quantile: 0.42, Value: 1}, {Quantile: 0.999, Value: 999},
		}}}}
	}
	runtime := newRuntime()
	runtime.metrics[rttName] = response(summary(2, 10), summary(4, 20), summary(0, 7))
	address, _ := runtime.serve(t)
	m := newMachine(t)
	assert.Equal(t, tags{
		"tpu.grpcTcpMinRtt.meanUs": 5, "tpu.grpcTcpMinRtt.p50Us": 20, "tpu.grpcTcpMinRtt.p90Us": 9, "tpu.grpcTcpMinRtt.p999Us": 999,
	}, newRig(t, m, endpoints(address)).tags())
	assert.Contains(t, newRig(t, m, endpoints(address), extended).tags(), "tpu.grpcTcpMinRtt.p99Us")
}

func TestExtras(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[usageName], runtime.metrics[totalName] = perDevice(25, 0, 1, 2), perDevice(0, 0, 1)
	runtime.metrics[idleName] = perDevice(1, 0)
	runtime.metrics["tpu.runtime.hbm.utilization.percent"] = perDevice(2, 0)
	address, _ := runtime.serve(t)
	assert.Equal(t, tags{
		"tpu.0.hbmCapacityUsage": 25, "tpu.1.hbmCapacityUsage": 125, "tpu.2.hbmCapacityUsage": 225,
		"tpu.0.hbmCapacityTotal": 0, "tpu.1.hbmCapacityTotal": 100, "tpu.1.hbmMemoryUsage": 125,
		"tpu.0.tensorcoreIdleDuration": 1, "tpu.0.runtimeHbmUtilization": 2,
	}, newRig(t, newMachine(t), endpoints(address), extended).tags())
}

func TestStartsOfDistributions(t *testing.T) {
	for name, tt := range map[string]struct {
		of   *timestamppb.Timestamp
		want time.Time
	}{
		"unknown": {nil, time.Time{}},
		"empty":   {&timestamppb.Timestamp{}, time.Time{}},
		"invalid": {&timestamppb.Timestamp{Seconds: 1 << 60}, time.Time{}},
		"known":   {&timestamppb.Timestamp{Seconds: 100}, time.Unix(100, 0).UTC()},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, timeOf(tt.of)) })
	}
}

func TestBucketsOfAllKinds(t *testing.T) {
	linear := &pb.Distribution{
		Count: 4, Mean: 12, BucketCounts: []int64{0, 2, 2}, Min: math.NaN(), Max: math.Inf(1),
		BucketOptions: &pb.Distribution_BucketOptions{Options: &pb.Distribution_BucketOptions_LinearBuckets{
			LinearBuckets: &pb.Distribution_BucketOptions_Linear{NumFiniteBuckets: 2, Width: 10, Offset: 0},
		}},
	}
	regular := &pb.Distribution{
		Count: 4, Mean: 13, BucketCounts: []int64{0, 4},
		BucketOptions: &pb.Distribution_BucketOptions{Options: &pb.Distribution_BucketOptions_RegularBuckets{}},
	}
	runtime := newRuntime()
	runtime.metrics[bufferName] = response(
		&pb.Metric{Attribute: textAttr("buffer_size", "linear"), Measure: &pb.Metric_Distribution{Distribution: linear}},
		&pb.Metric{Attribute: textAttr("buffer_size", "regular"), Measure: &pb.Metric_Distribution{Distribution: regular}},
		&pb.Metric{Attribute: textAttr("buffer_size", "gauge"), Measure: intGauge(1)},
	)
	runtime.metrics[queueRuntime] = response(&pb.Metric{Measure: doubleGauge(1e300)}, &pb.Metric{})
	address, _ := runtime.serve(t)
	assert.Equal(t, tags{
		"tpu.bufferTransferLatency.linear.meanUs": 12, "tpu.bufferTransferLatency.linear.p50Us": 10, "tpu.bufferTransferLatency.linear.p90Us": 18,
		"tpu.bufferTransferLatency.linear.p95Us": 19, "tpu.bufferTransferLatency.linear.p999Us": 19.98,
		"tpu.bufferTransferLatency.regular.meanUs": 13,
	}, newRig(t, newMachine(t), endpoints(address)).tags())
}

func TestRuntimesThatTellOnlyOfChips(t *testing.T) {
	m := newMachine(t)
	m.addChips(v3, "0x004f", 2)
	first, second := newRuntime(), newRuntime()
	first.metrics[dutyName], second.metrics[dutyName] = perDevice(5, 0, 1), perDevice(6, 0, 1)
	a, _ := first.serve(t)
	b, _ := second.serve(t)
	assert.Equal(t, tags{
		"tpu.0.dutyCycle": 5, "tpu.1.dutyCycle": 5, "tpu.2.dutyCycle": 105, "tpu.3.dutyCycle": 105,
	}, newRig(t, m, endpoints(a, b)).tags(), "both told of the whole machine")
}

func TestABusThatCannotBeReadIsAFault(t *testing.T) {
	m := newMachine(t)
	m.Write("sys/bus/pci/devices", "no folder")
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(5, 0)
	address, _ := runtime.serve(t)
	faults, got := newRig(t, m, endpoints(address)).faults()
	assert.Contains(t, faults, "PCI bus")
	assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, got)
	_, err := newRig(t, m, nil).scrape()
	require.ErrorContains(t, err, "PCI bus: listing the PCI devices")
}

func TestFactory(t *testing.T) {
	f := NewFactory()
	set, _ := scraperstest.NewSettings(t, newMachine(t).Root, false)
	set.DetectionInterval = time.Minute
	s, err := f.New(set, f.DefaultConfig())
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	_, err = s.Scrape(t.Context())
	var absent *scrapers.AbsentError
	require.ErrorAs(t, err, &absent)
	require.NoError(t, s.Shutdown(t.Context()))
	assert.Equal(t, "tpu", f.Name)
	assert.True(t, f.TellsHolders)
	assert.NotNil(t, f.DefaultConfig().Common())
}
