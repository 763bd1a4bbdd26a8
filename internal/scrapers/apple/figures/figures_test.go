// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

const second = 1_000_000_000

func energy(name, unit string, value int64) capture.Channel {
	return capture.Channel{Group: energyGroup, Name: name, Unit: unit, Kind: capture.Simple, Value: value}
}

func phases(states ...capture.Residency) capture.Channel {
	return capture.Channel{Group: "GPU Stats", Subgroup: "GPU Performance States", Name: "GPUPH", Kind: capture.State, States: states}
}

func residency(off, p1, p2 int64) []capture.Residency {
	return []capture.Residency{{Name: "OFF", Ticks: off}, {Name: "P1", Ticks: p1}, {Name: "P2", Ticks: p2}}
}

func sample(at int64, channels ...capture.Channel) capture.Sample {
	return capture.Sample{At: at, Channels: channels}
}

func reported(samples ...capture.Sample) *capture.Capture {
	return &capture.Capture{Report: capture.IOReport{Samples: samples}}
}

func clockTable(entries ...uint32) []byte {
	var data []byte
	for _, e := range entries {
		data = binary.LittleEndian.AppendUint32(data, e)
		data = binary.LittleEndian.AppendUint32(data, 700)
	}
	return data
}

func read(c *capture.Capture) *Figures { return (&Meter{}).Read(c) }

func TestPower(t *testing.T) {
	none := Float{}
	type channels = []capture.Channel
	for name, tt := range map[string]struct {
		before, after channels
		want          Float
	}{
		"the rail in nJ, not the same in mJ": {
			channels{energy("GPU", "mJ", 1), energy("GPU Energy", "nJ", 5)}, channels{energy("GPU", "mJ", 4001), energy("GPU Energy", "nJ", 2_000_000_005)}, optional.Some(1.0),
		},
		"older systems":         {channels{energy("GPU0", "mJ  ", 0)}, channels{energy("GPU0", "mJ  ", 3000)}, optional.Some(1.5)},
		"two dies":              {channels{energy("DIE_0_GPU Energy", "J", 0), energy("DIE_1_GPU Energy", "mJ", 0)}, channels{energy("DIE_0_GPU Energy", "J", 2), energy("DIE_1_GPU Energy", "mJ", 4000)}, optional.Some(3.0)},
		"the same name twice":   {channels{energy("GPU0", "J", 1), energy("GPU0", "J", 10)}, channels{energy("GPU0", "J", 2), energy("GPU0", "J", 15)}, optional.Some(3.0)},
		"another order":         {channels{energy("GPU1", "J", 1), energy("GPU0", "J", 10)}, channels{energy("GPU0", "J", 12), energy("GPU1", "J", 1)}, optional.Some(1.0)},
		"micro":                 {channels{energy("GPU Energy", "µJ", 0)}, channels{energy("GPU Energy", "µJ", 2e6)}, optional.Some(1.0)},
		"pico":                  {channels{energy("GPU Energy", "pJ", 0)}, channels{energy("GPU Energy", "pJ", 2e12)}, optional.Some(1.0)},
		"off":                   {channels{energy("GPU Energy", "nJ", 7)}, channels{energy("GPU Energy", "nJ", 7)}, optional.Some(0.0)},
		"no rail":               {channels{energy("GPU SRAM", "mJ", 0), energy("GPU CS0", "mJ", 0)}, channels{energy("GPU SRAM", "mJ", 1), energy("GPU CS0", "mJ", 1)}, none},
		"unknown unit":          {channels{energy("GPU Energy", "kJ", 0), energy("GPU", "mJ", 0)}, channels{energy("GPU Energy", "kJ", 1), energy("GPU", "mJ", 1)}, none},
		"another unit":          {channels{energy("GPU Energy", "nJ", 0)}, channels{energy("GPU Energy", "mJ", 1)}, none},
		"it fell":               {channels{energy("GPU Energy", "nJ", 9), energy("GPU", "mJ", 0)}, channels{energy("GPU Energy", "nJ", 8), energy("GPU", "mJ", 1)}, none},
		"one of two fell":       {channels{energy("GPU0", "J", 9), energy("GPU1", "J", 0)}, channels{energy("GPU0", "J", 8), energy("GPU1", "J", 9)}, none},
		"in the first only":     {channels{energy("GPU Energy", "nJ", 9), energy("GPU", "mJ", 0)}, channels{energy("GPU", "mJ", 1)}, none},
		"in the second only":    {channels{energy("GPU", "mJ", 0)}, channels{energy("GPU Energy", "nJ", 9), energy("GPU", "mJ", 1)}, none},
		"another group":         {channels{{Group: "x", Name: "GPU", Unit: "J", Kind: capture.Simple}}, channels{{Group: "x", Name: "GPU", Unit: "J", Kind: capture.Simple, Value: 2}}, none},
		"from end to end":       {channels{energy("GPU Energy", "nJ", math.MinInt64)}, channels{energy("GPU Energy", "nJ", math.MaxInt64)}, optional.Some(float64(math.MaxUint64) / 2e9)},
		"a name that goes on":   {channels{energy("GPU0_0x", "J", 0), energy("GPU_", "J", 0)}, channels{energy("GPU0_0x", "J", 1), energy("GPU_", "J", 1)}, none},
		"a die without number":  {channels{energy("DIE__GPU Energy", "J", 0)}, channels{energy("DIE__GPU Energy", "J", 1)}, none},
		"no number of a die":    {channels{energy("DIE_x_GPU Energy", "J", 0)}, channels{energy("DIE_x_GPU Energy", "J", 1)}, none},
		"a prefix without more": {channels{energy("DIE_0", "J", 0)}, channels{energy("DIE_0", "J", 1)}, none},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(reported(sample(0, tt.before...), sample(2*second, tt.after...))).Power
			assert.Equal(t, tt.want.Known, got.Known)
			assert.InDelta(t, tt.want.Value, got.Value, 1e-6)
		})
	}
}

func TestPowerOfTheOtherParts(t *testing.T) {
	before := sample(0, energy("ANE0_0", "mJ", 0), energy("ANE0_1", "mJ", 0), energy("DIE_0_CPU Energy", "mJ", 0), energy("DIE_1_CPU Energy", "mJ", 0))
	after := sample(second, energy("ANE0_0", "mJ", 1000), energy("ANE0_1", "mJ", 500), energy("DIE_0_CPU Energy", "mJ", 3000), energy("DIE_1_CPU Energy", "mJ", 1000))
	f := read(reported(before, after))
	assert.Equal(t, optional.Some(1.5), f.NeuralPower)
	assert.Equal(t, optional.Some(4.0), f.CPUPower)

	before.Channels = append(before.Channels, energy("CPU Energy", "mJ", 0))
	after.Channels = append(after.Channels, energy("CPU Energy", "mJ", 500))
	assert.Equal(t, optional.Some(0.5), read(reported(before, after)).CPUPower, "the package has a rail of its own")
}

func TestUtilisationAndClock(t *testing.T) {
	tables := map[string][]byte{"voltage-states9": clockTable(0, 400e6, 99e6, 1000e6)}
	unknown := Float{}
	for name, tt := range map[string]struct {
		before, after []capture.Residency
		tables        map[string][]byte
		busy, clock   Float
	}{
		"busy":                       {residency(0, 0, 0), residency(1, 1, 2), tables, optional.Some(75.0), optional.Some(800.0)},
		"idle":                       {residency(0, 0, 0), residency(9, 0, 0), tables, optional.Some(0.0), unknown},
		"no tick":                    {residency(1, 1, 1), residency(1, 1, 1), tables, unknown, unknown},
		"one fell and the sum grew":  {residency(0, 5, 0), residency(9, 4, 9), tables, unknown, unknown},
		"a state more":               {residency(0, 0, 0), append(residency(1, 1, 1), capture.Residency{Name: "P3"}), tables, unknown, unknown},
		"another state":              {residency(0, 0, 0), []capture.Residency{{Name: "OFF", Ticks: 1}, {Name: "P1", Ticks: 1}, {Name: "P7", Ticks: 1}}, tables, unknown, unknown},
		"no table":                   {residency(0, 0, 0), residency(1, 1, 2), nil, optional.Some(75.0), unknown},
		"the other table":            {residency(0, 0, 0), residency(1, 1, 2), map[string][]byte{"voltage-states9": clockTable(0), "voltage-states9-sram": clockTable(500e6, 500e6)}, optional.Some(75.0), optional.Some(500.0)},
		"a state without a clock":    {residency(0, 0, 0), residency(1, 1, 2), map[string][]byte{"voltage-states9": clockTable(400e6)}, optional.Some(75.0), optional.Some(400.0)},
		"only states without clocks": {residency(0, 0, 0), residency(1, 0, 2), map[string][]byte{"voltage-states9": clockTable(400e6)}, optional.Some(100 * 2.0 / 3), unknown},
		"a table cut short":          {residency(0, 0, 0), residency(1, 1, 2), map[string][]byte{"voltage-states9": {1, 2, 3}}, optional.Some(75.0), unknown},
		"from end to end":            {residency(math.MinInt64, math.MinInt64, math.MinInt64), residency(math.MaxInt64, math.MaxInt64, math.MaxInt64), tables, optional.Some(100 * 2.0 / 3), optional.Some(700.0)},
	} {
		t.Run(name, func(t *testing.T) {
			c := reported(sample(0, phases(tt.before...)), sample(second, phases(tt.after...)))
			c.Pmgr = tt.tables
			f := read(c)
			assert.Equal(t, tt.busy.Known, f.GPU.Known)
			assert.InDelta(t, tt.busy.Value, f.GPU.Value, 1e-9)
			assert.Equal(t, tt.clock.Known, f.Clock.Known)
			assert.InDelta(t, tt.clock.Value, f.Clock.Value, 1e-9)
		})
	}
}

func TestOtherIdleStates(t *testing.T) {
	before := []capture.Residency{{Name: "DOWN"}, {Name: "IDLE"}, {Name: "V0P1"}}
	after := []capture.Residency{{Name: "DOWN", Ticks: 1}, {Name: "IDLE", Ticks: 2}, {Name: "V0P1", Ticks: 1}}
	assert.Equal(t, optional.Some(25.0), read(reported(sample(0, phases(before...)), sample(second, phases(after...)))).GPU)
}

// Each core has a channel; the clocks are in kHz from the M4 on.
func TestCoresOfTheCPU(t *testing.T) {
	core := func(name string, off, p1, p2 int64) capture.Channel {
		return capture.Channel{Group: "CPU Stats", Subgroup: cpuStates, Name: name, Kind: capture.State, States: residency(off, p1, p2)}
	}
	c := reported(
		sample(0, core("ECPU000", 0, 0, 0), core("ECPU010", 0, 0, 0), core("DIE_1_PCPU000", 0, 0, 0)),
		sample(second, core("ECPU000", 2, 2, 0), core("ECPU010", 4, 0, 0), core("DIE_1_PCPU000", 0, 1, 3)),
	)
	c.Pmgr = map[string][]byte{"voltage-states1-sram": clockTable(600e6, 972e6), "voltage-states5-sram": clockTable(1_000_000, 2_000_000)}
	f := read(c)
	assert.Equal(t, Cluster{optional.Some(25.0), optional.Some(600.0)}, f.Efficiency)
	assert.Equal(t, Cluster{optional.Some(100.0), optional.Some(1750.0)}, f.Performance)
	assert.False(t, f.GPU.Known)
}

func TestIntervals(t *testing.T) {
	at := func(at, ticks int64) *capture.Capture {
		return reported(sample(at, phases(residency(0, ticks, ticks)...), energy("GPU Energy", "J", ticks)))
	}
	var m Meter
	assert.False(t, m.Read(at(0, 0)).GPU.Known, "the first")
	short := m.Read(at(49_999_999, 5))
	assert.False(t, short.GPU.Known, "too short")
	assert.False(t, short.Power.Known)
	assert.InDelta(t, 10, m.Read(at(second, 10)).Power.Value, 1e-9, "since the last that counted")
	assert.InDelta(t, 20, m.Read(at(second+50_000_000, 11)).Power.Value, 1e-9, "long enough")
	assert.False(t, m.Read(at(second+200_000_000, 3)).Power.Known, "the counter began anew")
	assert.InDelta(t, 2, m.Read(at(3*second+200_000_000, 7)).Power.Value, 1e-9)
	assert.False(t, m.Read(reported()).Power.Known, "nothing was read")
	assert.InDelta(t, 0.5, m.Read(at(7*second+200_000_000, 9)).Power.Value, 1e-9, "a longer interval")
	assert.False(t, m.Read(at(0, 20)).Power.Known, "the clock went backwards")
	assert.InDelta(t, 1, m.Read(at(second, 21)).Power.Value, 1e-9)
}

func withStatistics(c *capture.Capture, s capture.Statistics) *capture.Capture {
	c.Registry = []capture.Entry{{Class: "AGXAcceleratorG13X", Properties: capture.Properties{Statistics: s}}}
	return c
}

func TestUtilisationOfTheDriver(t *testing.T) {
	for name, tt := range map[string]struct {
		statistics capture.Statistics
		want       Float
	}{
		"device":   {capture.Statistics{"Device Utilization %": 29, "GPU Activity(%)": 3}, optional.Some(29.0)},
		"activity": {capture.Statistics{"GPU Activity(%)": 3}, optional.Some(3.0)},
		"above":    {capture.Statistics{"Device Utilization %": 101}, optional.Some(100.0)},
		"below":    {capture.Statistics{"Device Utilization %": -1}, optional.Some(0.0)},
		"neither":  {capture.Statistics{"Renderer Utilization %": 3}, Float{}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, read(withStatistics(reported(), tt.statistics)).GPU)
		})
	}
}

// A series has one meaning: where the states were seen once, their absence is not filled.
func TestTheDriversUtilisationDoesNotTakeTurns(t *testing.T) {
	driver := capture.Statistics{"Device Utilization %": 29}
	var m Meter
	assert.Equal(t, optional.Some(29.0), m.Read(withStatistics(reported(), driver)).GPU)
	assert.False(t, m.Read(withStatistics(reported(sample(0, phases(residency(0, 0, 0)...))), driver)).GPU.Known)
	assert.False(t, m.Read(withStatistics(reported(), driver)).GPU.Known)
}

// One look without the IORegistry does not change the names of the series.
func TestTheGPUKeepsItsNameWhileTheRegistryCannotBeRead(t *testing.T) {
	c := reported()
	c.Registry = []capture.Entry{{Class: "AGXAcceleratorG13X", Properties: capture.Properties{Model: "Apple M1 Max", Cores: 32}}}
	var m Meter
	m.Read(c)
	f := m.Read(reported())
	assert.Equal(t, "Apple M1 Max", f.Model)
	assert.EqualValues(t, 32, f.Cores)
	assert.False(t, f.Used.Known)

	c.Registry = []capture.Entry{}
	assert.Empty(t, m.Read(c).Model, "it was read, and there is none")
}

func TestMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		used   int64
		memory uint64
		want   Float
	}{
		"a quarter":     {250, 1000, optional.Some(25.0)},
		"more than all": {1001, 1000, optional.Some(100.0)},
		"no machine":    {250, 0, Float{}},
		"below 0":       {-1, 1000, Float{}},
		"512 GiB":       {256 << 30, 512 << 30, optional.Some(50.0)},
	} {
		t.Run(name, func(t *testing.T) {
			c := withStatistics(reported(), capture.Statistics{"In use system memory": tt.used, "In use system memory (driver)": 7})
			c.System.Memory = tt.memory
			f := read(c)
			assert.Equal(t, tt.want, f.Allocated)
			assert.Equal(t, optional.If(tt.used, tt.used >= 0), f.Used)
			assert.False(t, f.AllocatedBytes.Known)
			assert.False(t, f.Recoveries.Known)
		})
	}
}

func TestPowerPercent(t *testing.T) {
	for name, tt := range map[string]struct {
		figures Figures
		want    Float
	}{
		"estimate":   {Figures{Power: optional.Some(16.5), Cores: 16}, optional.Some(50.0)},
		"configured": {Figures{Power: optional.Some(16.5), Cores: 16, LimitWatts: 10}, optional.Some(165.0)},
		"no limit":   {Figures{Power: optional.Some(16.5)}, Float{}},
		"no power":   {Figures{Cores: 8}, Float{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.figures.PowerPercent()) })
	}
}

func TestTemperature(t *testing.T) {
	float := func(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }
	key := func(name, kind string, data []byte) capture.Key {
		return capture.Key{Name: name, Type: kind, Data: data}
	}
	gpu := capture.Sensor{Product: "GPU MTR Temp Sensor4", Celsius: 42}
	for name, tt := range map[string]struct {
		keys    []capture.Key
		sensors []capture.Sensor
		want    Float
	}{
		"mean":                  {[]capture.Key{key("Tg01", "flt ", float(40)), key("Tg02", "flt ", float(50))}, []capture.Sensor{gpu}, optional.Some(45.0)},
		"sp78":                  {[]capture.Key{key("Tg01", "sp78", []byte{0x2a, 0x80})}, nil, optional.Some(42.5)},
		"sp78 below 0":          {[]capture.Key{key("Tg01", "sp78", []byte{0xff, 0})}, nil, Float{}},
		"ioft":                  {[]capture.Key{key("Tg01", "ioft", binary.LittleEndian.AppendUint64(nil, 42<<16))}, nil, optional.Some(42.0)},
		"sentinels":             {[]capture.Key{key("Tg01", "flt ", float(8.425)), key("Tg02", "flt ", float(128)), key("Tg03", "flt ", float(-4)), key("Tg04", "flt ", float(30))}, nil, optional.Some(30.0)},
		"limits":                {[]capture.Key{key("Tg01", "flt ", float(15)), key("Tg02", "flt ", float(120))}, nil, optional.Some(67.5)},
		"not finite":            {[]capture.Key{key("Tg01", "flt ", float(float32(math.NaN()))), key("Tg02", "flt ", float(float32(math.Inf(1))))}, nil, Float{}},
		"other types":           {[]capture.Key{key("Tg01", "ui8 ", []byte{40}), key("Tg02", "flt ", []byte{1}), key("Tg03", "flt", float(40))}, nil, Float{}},
		"other keys":            {[]capture.Key{key("TG0B", "flt ", float(40)), key("tGAM", "flt ", float(40)), key("Tg1", "flt ", float(40)), key("Tg012", "flt ", float(40))}, nil, Float{}},
		"HID":                   {[]capture.Key{key("Tg01", "flt ", float(0))}, []capture.Sensor{gpu, {Product: "GPU MTR Temp Sensor5", Celsius: 130}, {Product: "gas gauge battery", Celsius: 30}}, optional.Some(42.0)},
		"HID that has no other": {nil, []capture.Sensor{{Product: "PMU tdie1", Celsius: 40}, {Product: "GPU MTR Temp Sensor1", Celsius: math.NaN()}}, Float{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &capture.Capture{SMC: capture.SMC{Keys: tt.keys}, HID: capture.HID{Sensors: tt.sensors}}
			assert.Equal(t, tt.want, read(c).Temperature)
		})
	}
}

func TestPowerOfTheSystem(t *testing.T) {
	for name, tt := range map[string]struct {
		watts float32
		want  bool
	}{"on": {20, true}, "zero": {0, false}, "below": {-1, false}, "not finite": {float32(math.NaN()), false}} {
		t.Run(name, func(t *testing.T) {
			key := capture.Key{Name: "PSTR", Type: "flt ", Data: binary.LittleEndian.AppendUint32(nil, math.Float32bits(tt.watts))}
			got := read(&capture.Capture{SMC: capture.SMC{Keys: []capture.Key{key}}}).SystemPower
			assert.Equal(t, tt.want, got.Known)
		})
	}
}

func TestTemperatureOfTheCPU(t *testing.T) {
	c := &capture.Capture{HID: capture.HID{Sensors: []capture.Sensor{{Product: "pACC MTR Temp Sensor2", Celsius: 50}, {Product: "eACC MTR Temp Sensor0", Celsius: 40}}}}
	assert.Equal(t, optional.Some(45.0), read(c).CPUTemperature)
	c.SMC.Keys = []capture.Key{{Name: "Te05", Type: "sp78", Data: []byte{60, 0}}, {Name: "Tp09", Type: "sp78", Data: []byte{70, 0}}, {Name: "Tg05", Type: "sp78", Data: []byte{99, 0}}}
	assert.Equal(t, optional.Some(65.0), read(c).CPUTemperature)
}

// random captures: counters that wrap, stop and go backwards, states that come and go, one
// die or two, clocks that jump.
func random(r *rand.Rand, at int64) *capture.Capture {
	number := func() int64 {
		switch r.IntN(6) {
		case 0:
			return 0
		case 1:
			return math.MaxInt64 - r.Int64N(100)
		case 2:
			return math.MinInt64 + r.Int64N(100)
		}
		return r.Int64N(1 << 40)
	}
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	s := capture.Sample{At: at}
	for range r.IntN(12) {
		s.Channels = append(s.Channels, energy(
			pick("GPU Energy", "DIE_0_GPU Energy", "DIE_1_GPU Energy", "GPU", "GPU0_0", "GPU SRAM", "ANE", "ANE0_1", "CPU Energy", "DIE_0_CPU Energy"),
			pick("J", "mJ", "uJ", "nJ ", "pJ", "x"), number(),
		))
	}
	for range r.IntN(4) {
		var states []capture.Residency
		for i := range r.IntN(5) {
			states = append(states, capture.Residency{Name: []string{"OFF", "P1", "P2", "IDLE", "P3"}[i], Ticks: number()})
		}
		c := phases(states...)
		if r.IntN(2) == 0 {
			c.Group, c.Subgroup, c.Name = "CPU Stats", cpuStates, pick("ECPU0", "PCPU0", "DIE_1_PCPU0")
		}
		s.Channels = append(s.Channels, c)
	}
	table := make([]byte, r.IntN(40))
	for i := range table {
		table[i] = byte(r.Uint32())
	}
	c := reported(s)
	c.Pmgr = map[string][]byte{"voltage-states9": table, "voltage-states1": table, "voltage-states5-sram": table}
	c.System.Memory = r.Uint64() >> r.IntN(64)
	c.Registry = []capture.Entry{{Class: "AGXAcceleratorG9", Properties: capture.Properties{Cores: number(), Statistics: capture.Statistics{
		"Device Utilization %": number(), "In use system memory": number(), "Alloc system memory": number(), "recoveryCount": number(),
	}}}}
	data := make([]byte, 8)
	binary.LittleEndian.PutUint64(data, r.Uint64())
	c.SMC.Keys = []capture.Key{
		{Name: "Tg01", Type: "flt ", Data: data[:4]}, {Name: "Tg02", Type: "ioft", Data: data}, {Name: "Tp01", Type: "sp78", Data: data[:2]}, {Name: "PSTR", Type: "flt ", Data: data[4:]},
	}
	return c
}

// ranges are those that the metrics promise.
func requireSane(t testing.TB, f *Figures) {
	t.Helper()
	within := func(name string, v Float, low, high float64) {
		t.Helper()
		if v.Known {
			require.GreaterOrEqual(t, v.Value, low, name) // NaN is not
			require.LessOrEqual(t, v.Value, high, name)
		}
	}
	for name, v := range map[string]Float{"gpu": f.GPU, "allocated": f.Allocated, "efficiency": f.Efficiency.Busy, "performance": f.Performance.Busy} {
		within(name, v, 0, 100)
	}
	for name, v := range map[string]Float{"clock": f.Clock, "efficiency": f.Efficiency.Clock, "performance": f.Performance.Clock} {
		within(name, v, minClock-1e-6, maxClock+1e-6)
	}
	for name, v := range map[string]Float{"power": f.Power, "share": f.PowerPercent(), "ane": f.NeuralPower, "cpu": f.CPUPower, "system": f.SystemPower} {
		within(name, v, 0, math.MaxFloat64)
	}
	within("temperature", f.Temperature, minCelsius, maxCelsius)
	within("temperature", f.CPUTemperature, minCelsius, maxCelsius)
	for _, v := range []Whole{f.Used, f.AllocatedBytes, f.Recoveries} {
		require.True(t, !v.Known || v.Value >= 0)
	}
}

func TestWhateverIsToldTheFiguresAreSane(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for range 3000 {
		var m Meter
		var at int64
		for range 4 {
			at += r.Int64N(3 * second)
			next := random(r, at)
			if r.IntN(2) == 0 { // the same channels, so that they can be compared
				next = random(rand.New(rand.NewPCG(3, uint64(r.IntN(4)))), at)
			}
			f := m.Read(next)
			requireSane(t, f)
			if f.GPU.Known || f.Power.Known {
				known++
			}
		}
	}
	assert.Greater(t, known, 1000, "the test would say nothing")
}

// The order of the channels does not count, nor what is listed beside them.
func TestFiguresDoNotDependOnTheOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	for range 300 {
		c := reported(
			sample(0, energy("DIE_1_GPU Energy", "mJ", 1), energy("DIE_0_GPU Energy", "mJ", 5), phases(residency(0, 0, 0)...)),
			sample(second, energy("DIE_1_GPU Energy", "mJ", 11), energy("DIE_0_GPU Energy", "mJ", 1005), phases(residency(1, 1, 2)...)),
		)
		for i := range c.Report.Samples {
			all := slices.Concat(c.Report.Samples[i].Channels, []capture.Channel{energy("GPU SRAM", "mJ", r.Int64())})
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			c.Report.Samples[i].Channels = all
		}
		f := read(c)
		require.InDelta(t, 1.01, f.Power.Value, 1e-9)
		require.InDelta(t, 75, f.GPU.Value, 1e-9)
	}
}
