// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// fakeSource gives recorded readings.
type fakeSource struct {
	readings []reading
	wants    []want
	closed   int
}

// read implements source.
func (f *fakeSource) read(_ context.Context, w want) *reading {
	f.wants = append(f.wants, w)
	r := f.readings[min(len(f.wants), len(f.readings))-1]
	return &r
}

// close implements source.
func (f *fakeSource) close(context.Context) error { f.closed++; return nil }

// fakeOwners gives each GPU to the workloads that it names.
type fakeOwners struct {
	users map[string]map[int]optional.Of[uint64] // workload, GPU, memory
	err   error
}

// of implements owners.
func (f *fakeOwners) of(_ context.Context, r *reading) ([]user, error) {
	var users []user
	for id, gpus := range f.users {
		u := user{who: &identity.Workload{ID: id, Pid: 1}}
		for i := range r.devices {
			if memory, ok := gpus[r.devices[i].index]; ok {
				u.gpus = append(u.gpus, usedGPU{&r.devices[i], memory})
			}
		}
		users = append(users, u)
	}
	return users, f.err
}

var now = time.Unix(1_800_000_000, 0)

// newFake is the family on recorded readings.
func newFake(t testing.TB, extended bool, readings ...reading) *gpuScraper {
	t.Helper()
	set, _ := scraperstest.NewSettings(t, t.TempDir(), extended)
	s := newScraperFor(set, defaultConfig().(*Config), &fakeSource{readings: readings})
	s.clock = func() time.Time { return now.Add(time.Hour) }
	return s
}

// fullReading has every figure there is.
func fullReading() reading {
	return reading{generation: 1, complete: true, devices: []deviceReading{{
		at: now, index: 3, uuid: "GPU-3", name: "NVIDIA H100",
		gpu: optional.Some[uint32](51), memory: optional.Some[uint32](23), encoder: optional.Some[uint32](4),
		usage:       optional.Some(memoryReading{used: 30, total: 120}),
		temperature: optional.Some[uint32](64), power: optional.Some[uint32](350_500), powerLimit: optional.Some[uint32](701_000),
		clocks:    clocksReading{graphics: optional.Some[uint32](1410), sm: optional.Some[uint32](0), memory: optional.Some[uint32](2619)},
		corrected: optional.Some[uint64](7), uncorrected: optional.Some[uint64](2),
		health: healthReading{
			fan: optional.Some[uint32](105), linkGen: optional.Some[uint32](4), linkWidth: optional.Some[uint32](8), maxGen: optional.Some[uint32](5), maxWidth: optional.Some[uint32](16),
			linkSpeed: optional.Some[uint32](32000), energy: optional.Some[uint64](12_345), replays: optional.Some[uint32](9),
			remapped:      optional.Some(remappedReading{corrected: 1, uncorrected: 2, pending: true}),
			retiredSingle: optional.Some(3), retiredDouble: optional.Some(4), retiredPending: optional.Some(true),
			reasons: optional.Some[uint64](0x104), supportedReasons: optional.Some[uint64](0x10c),
			xids: map[uint64]uint64{79: 2, 48: 1}, xidsSince: now.Add(-time.Minute),
		},
		profile: profileReading{
			{gpmSMActive, 97.25},
			{gpmSMOccupancy, 41.5},
			{gpmTensor, 63},
			{gpmTensorHMMA, 62},
			{gpmDRAM, 25},
			{gpmFP64, 0},
			{gpmFP32, 3.5},
			{gpmFP16, 101},
			{gpmPCIeTx, 2},
			{gpmPCIeRx, 1},
			{gpmNVLinkTx, 4},
			{gpmNVLinkRx, 3},
		},
		instances: []instanceReading{
			{
				slot: 2, gi: 5, ci: 1, uuid: "MIG-5", profile: "1g.10gb", usage: optional.Some(memoryReading{used: 1, total: 4}),
				metrics: profileReading{{gpmSMActive, 11}, {gpmSMOccupancy, 12}, {gpmTensor, 13}, {gpmTensorHMMA, 14}, {gpmDRAM, 15}, {gpmFP64, 16}, {gpmFP32, 17}, {gpmFP16, 18}},
			},
			{slot: 3, gi: 5, ci: 2, uuid: "MIG-6", profile: "1g.10gb"},
		},
	}}}
}

const (
	deviceTruth = "gpu_index=3 gpu_model=NVIDIA H100 gpu_uuid=GPU-3 gpu_vendor=nvidia"
	migTruth    = "gpu_index=3 gpu_model=NVIDIA H100 gpu_uuid=MIG-5 gpu_vendor=nvidia mig_ci=1 mig_gi=5 mig_profile=1g.10gb"
)

// truth is what fullReading means, by metric: of the machine and of a workload.
var truth = map[string]float64{
	"gpu": 51, "memory": 23, "encoderUtilization": 4, "memoryAllocated": 25, "memoryAllocatedBytes": 30,
	"temp": 64, "powerWatts": 350.5, "powerPercent": 50, "enforcedPowerLimitWatts": 701,
	"graphicsClock": 1410, "smClock": 0, "memoryClock": 2619, "correctedMemoryErrors": 7, "unCorrectedMemoryErrors": 2,
}

// machineTruth is what only the machine's GPU has.
var machineTruth = map[string]float64{
	"memoryTotal": 120, "fanSpeed": 105, "pcieLinkGen": 4, "pcieLinkWidth": 8, "maxPcieLinkGen": 5, "maxPcieLinkWidth": 16,
	"pcieLinkSpeed": 32e9, "energy": 12.345, "pcieReplays": 9, "rowRemapPending": 1, "rowRemapFailed": 0, "retiredPagesPending": 1,
	"smActive": 97.25, "smOccupancy": 41.5, "pipeTensorActive": 63, "pipeTensorHmmaActive": 62, "dramActive": 25,
	"pipeFp64Active": 0, "pipeFp32Active": 3.5, "pipeFp16Active": 101,
	"pcieTxBytes": 2097152, "pcieRxBytes": 1048576, "nvlinkTxBytes": 4194304, "nvlinkRxBytes": 3145728,
}

func TestEveryMetric(t *testing.T) {
	s := newFake(t, true, fullReading())
	s.owners = &fakeOwners{users: map[string]map[int]optional.Of[uint64]{"a": {3: optional.Some[uint64](17)}, "b": {3: {}}}}
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	scraperstest.RequireSane(t, md)
	want := map[string]float64{}
	for name, value := range truth {
		want["gpu."+name+" "+deviceTruth] = value
		want["gpu.process."+name+" "+deviceTruth+" workload=a"] = value
		want["gpu.process."+name+" "+deviceTruth+" workload=b"] = value
	}
	for name, value := range machineTruth {
		want["gpu."+name+" "+deviceTruth] = value
	}
	want["gpu.process.memoryUsedBytes "+deviceTruth+" workload=a"] = 17
	for name, value := range map[string]float64{
		"memoryAllocated": 25, "memoryAllocatedBytes": 1, "memoryTotal": 4, "smActive": 11, "smOccupancy": 12, "pipeTensorActive": 13,
		"pipeTensorHmmaActive": 14, "dramActive": 15, "pipeFp64Active": 16, "pipeFp32Active": 17, "pipeFp16Active": 18,
	} {
		want["gpu.mig."+name+" "+migTruth] = value
	}
	for name, value := range map[string]float64{
		"gpu.remappedRows cause=corrected ": 1, "gpu.remappedRows cause=uncorrected ": 2,
		"gpu.retiredPages cause=single_bit ": 3, "gpu.retiredPages cause=double_bit ": 4,
	} {
		want[name+deviceTruth] = value
	}
	for suffix, value := range map[string]float64{"reason=sw_power_cap": 1, "reason=hw_slowdown": 0, "reason=display": 1} {
		want["gpu.clockEventActive "+deviceTruth+" "+suffix] = value
	}
	want["gpu.xidErrors "+deviceTruth+" xid=79"], want["gpu.xidErrors "+deviceTruth+" xid=48"] = 2, 1
	scraperstest.CompareTags(t, "points", want, byKey(md))
}

func byKey(md pmetric.Metrics) map[string]float64 {
	got := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		got[p.Key()] = p.Value()
	}
	return got
}

// By default the tags of the published list are on, and nothing else.
func TestDefaultMetrics(t *testing.T) {
	s := newFake(t, false, fullReading())
	s.owners = &fakeOwners{users: map[string]map[int]optional.Of[uint64]{"a": {3: optional.Some[uint64](17)}}}
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	names := map[string]bool{}
	for _, p := range scraperstest.PointsOf(md) {
		names[p.Metric.Name()] = true
	}
	want := map[string]bool{}
	for name := range truth {
		want["gpu."+name] = name != "enforcedPowerLimitWatts"
	}
	for _, name := range []string{"gpu", "memory", "memoryAllocated", "memoryAllocatedBytes", "temp", "powerWatts", "powerPercent"} {
		want["gpu.process."+name] = true
	}
	want["gpu.mig.memoryAllocated"], want["gpu.mig.memoryAllocatedBytes"] = true, true
	delete(want, "gpu.enforcedPowerLimitWatts")
	assert.Equal(t, want, names)
}

// No reading, no point.
func TestNothingKnown(t *testing.T) {
	s := newFake(t, true, reading{generation: 1, complete: true, devices: []deviceReading{{at: now, instances: []instanceReading{{gi: -1, ci: -1}}}}})
	s.owners = &fakeOwners{users: map[string]map[int]optional.Of[uint64]{"a": {0: {}}}}
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	assert.Zero(t, md.DataPointCount())
	assert.Zero(t, md.ResourceMetrics().Len())
}

// Without names there are points all the same, without the attributes.
func TestGPUWithoutIdentity(t *testing.T) {
	r := fullReading()
	r.devices[0].uuid, r.devices[0].name = "", ""
	md, err := newFake(t, false, r).Scrape(t.Context())
	require.NoError(t, err)
	assert.Contains(t, byKey(md), "gpu.temp gpu_index=3 gpu_vendor=nvidia")
}

// Unified memory is marked, on the memory's points alone.
func TestUnifiedMemoryIsMarked(t *testing.T) {
	r := fullReading()
	r.devices[0].usage.Value.unified = true
	s := newFake(t, true, r)
	s.owners = &fakeOwners{users: map[string]map[int]optional.Of[uint64]{"a": {3: {}}}}
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	marked := map[string]bool{}
	for _, p := range scraperstest.PointsOf(md) {
		if p.Attributes["memory_unified"] == true {
			marked[p.Metric.Name()] = true
		}
	}
	assert.Equal(t, map[string]bool{
		"gpu.memoryAllocated": true, "gpu.memoryAllocatedBytes": true, "gpu.memoryTotal": true,
		"gpu.process.memoryAllocated": true, "gpu.process.memoryAllocatedBytes": true,
	}, marked)
}

// Counters have the start of the device's count, on the machine's resource and
// the workloads'.
func TestStartTimes(t *testing.T) {
	first, second := fullReading(), fullReading()
	second.devices[0].at = now.Add(time.Minute)
	s := newFake(t, true, first, second)
	s.owners = &fakeOwners{users: map[string]map[int]optional.Of[uint64]{"a": {3: {}}}}
	for range 2 {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		sums := 0
		for _, p := range scraperstest.PointsOf(md) {
			if p.Metric.Type() != pmetric.MetricTypeSum {
				continue
			}
			sums++
			want := now
			if p.Metric.Name() == "gpu.xidErrors" {
				want = now.Add(-time.Minute)
			}
			assert.Equal(t, want.UnixNano(), p.Data.StartTimestamp().AsTime().UnixNano(), p.Key())
		}
		assert.Equal(t, 12, sums)
	}
}

// Which GPUs are there is known when all were asked; only then is one forgotten.
func TestCountersOutliveACutReading(t *testing.T) {
	cut := reading{generation: 1}
	later := fullReading()
	later.devices[0].at = now.Add(time.Minute)
	gone := reading{generation: 1, complete: true}
	s := newFake(t, false, fullReading(), cut, later, gone, later)
	start := func() time.Time {
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		for _, p := range scraperstest.PointsOf(md) {
			if p.Metric.Name() == "gpu.correctedMemoryErrors" {
				return p.Data.StartTimestamp().AsTime()
			}
		}
		return time.Time{}
	}
	assert.True(t, now.Equal(start()))
	assert.Zero(t, start())
	assert.True(t, now.Equal(start()))
	assert.Zero(t, start())
	assert.True(t, later.devices[0].at.Equal(start()))
}

// What failed does not cost what did not.
func TestErrorsComeWithTheData(t *testing.T) {
	r := fullReading()
	fault := &scrapers.SourceError{Source: "GPU 7", Err: codeGPUIsLost}
	r.errs = []error{fault}
	s := newFake(t, false, r)
	s.owners = &fakeOwners{err: errors.New("no /proc")}
	md, err := s.Scrape(t.Context())
	require.ErrorIs(t, err, fault)
	require.ErrorContains(t, err, "GPU 7: GPU_IS_LOST (15)")
	require.ErrorContains(t, err, "attribution of processes: no /proc")
	assert.NotZero(t, md.DataPointCount())
	require.NoError(t, s.Start(t.Context(), nil))
	require.NoError(t, s.Shutdown(t.Context()))
	assert.Equal(t, 1, s.source.(*fakeSource).closed)
}

// Each switch asks for what it needs, and for nothing else.
func TestWantOf(t *testing.T) {
	needs := map[string]want{
		"GpuFanSpeed": {fan: true}, "GpuPcieLinkGen": {pcieLink: true}, "GpuPcieLinkWidth": {pcieLink: true},
		"GpuMaxPcieLinkGen": {pcieLink: true}, "GpuMaxPcieLinkWidth": {pcieLink: true}, "GpuPcieLinkSpeed": {pcieSpeed: true},
		"GpuEnergy": {energy: true}, "GpuPcieReplays": {replays: true}, "GpuRemappedRows": {remapped: true},
		"GpuRowRemapPending": {remapped: true}, "GpuRowRemapFailed": {remapped: true}, "GpuRetiredPages": {retired: true},
		"GpuRetiredPagesPending": {retiredPending: true}, "GpuClockEventActive": {reasons: true}, "GpuXidErrors": {xids: true},
		"GpuMigMemoryAllocated": {mig: true}, "GpuMigMemoryAllocatedBytes": {mig: true}, "GpuMigMemoryTotal": {mig: true},
	}
	for _, name := range []string{
		"SmActive", "SmOccupancy", "DramActive", "PipeTensorActive", "PipeTensorHmmaActive", "PipeFp64Active", "PipeFp32Active", "PipeFp16Active",
	} {
		needs["Gpu"+name] = want{profiling: true}
		needs["GpuMig"+name] = want{mig: true, migProfiling: true}
	}
	for _, name := range []string{"PcieTxBytes", "PcieRxBytes", "NvlinkTxBytes", "NvlinkRxBytes"} {
		needs["Gpu"+name] = want{profiling: true}
	}
	cfg := defaultConfig().(*Config)
	fields := reflect.TypeFor[metadata.MetricsConfig]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		m := metadata.NewDefaultMetricsBuilderConfig().Metrics
		scraperstest.SwitchAll(&m, false)
		reflect.ValueOf(&m).Elem().Field(i).FieldByName("Enabled").SetBool(true)
		got := wantOf(&m, cfg, false)
		assert.Equal(t, needs[name], got, name)
		assert.Equal(t, strings.HasPrefix(name, "GpuProcess"), gpus.UsesProcesses(&m), name)
	}
	m := metadata.NewDefaultMetricsBuilderConfig().Metrics
	assert.Equal(t, want{mig: true, processes: true}, wantOf(&m, cfg, true), "by default")
	scraperstest.SwitchAll(&m, true)
	all := wantOf(&m, cfg, true)
	assert.NotContains(t, fmt.Sprintf("%+v", all), "false")
	all = wantOf(&m, &Config{Profiling: profilingOff, MIG: true}, true)
	assert.False(t, all.profiling || all.migProfiling)
	assert.True(t, all.mig)
	all = wantOf(&m, &Config{Profiling: profilingAuto}, true)
	assert.False(t, all.mig || all.migProfiling)
	assert.True(t, all.profiling)
}

func TestCodes(t *testing.T) {
	require.EqualError(t, codeGPUIsLost, "GPU_IS_LOST (15)")
	require.EqualError(t, code(1234), "code 1234")
}

func TestTheMachineIsToldItsGPUs(t *testing.T) {
	machine := identity.New("node", "", "", metadata.DefaultResourceAttributesConfig())
	s := &gpuScraper{identity: machine}
	told := func() map[string]any { return machine.Host(t.Context()).Attributes().AsRaw() }
	s.describe(&reading{})
	assert.NotContains(t, told(), "wandb.gpu_count", "nothing was counted")
	s.describe(&reading{gpus: identity.GPUs{Count: 2, DriverVersion: "590"}, devices: []deviceReading{{index: 1, name: "B"}}})
	assert.Equal(t, "B", told()["wandb.gpu_type"])
	s.describe(&reading{gpus: identity.GPUs{Count: 2, DriverVersion: "590"}, devices: []deviceReading{{index: 0, name: "A"}, {index: 1, name: "B"}}})
	s.describe(&reading{gpus: identity.GPUs{Count: 1, DriverVersion: "590"}, devices: []deviceReading{{index: 1, name: "B"}}})
	assert.Equal(t, "A", told()["wandb.gpu_type"], "a GPU that is lost for once changes nothing")
	assert.Equal(t, int64(1), told()["wandb.gpu_count"])
}

func TestWhatIsMeasuredIsKnownAfterTheFirstScrapeOnly(t *testing.T) {
	set, _ := scraperstest.NewSettings(t, t.TempDir(), false)
	set.GPUs = &gpus.Measured{}
	absent := reading{errs: []error{&scrapers.AbsentError{Reason: "no NVML library"}}}
	s := newScraperFor(set, defaultConfig().(*Config), &fakeSource{readings: []reading{absent, fullReading()}})
	assert.False(t, set.GPUs.Known())
	_, err := s.Scrape(t.Context())
	require.Error(t, err)
	assert.True(t, set.GPUs.Known(), "without a driver nothing is measured")
	assert.False(t, set.GPUs.Any())
	_, err = s.Scrape(t.Context())
	require.NoError(t, err)
	assert.True(t, set.GPUs.Has("GPU-3"))
	assert.False(t, set.GPUs.Has("MIG-5"))
}
