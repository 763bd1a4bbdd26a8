// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetrics

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// told is what a blob tells beyond its header, nil for what is missing.
type told struct {
	mem, junction, edge, gfx, umc, power, energy any
}

func tells(m *Metrics) told {
	return told{
		mem: value(m.Temperatures[card.Mem]), junction: value(m.Temperatures[card.Junction]),
		edge: value(m.Temperatures[card.Edge]),
		gfx:  value(m.GFX), umc: value(m.UMC), power: value(m.Power), energy: value(m.Energy),
	}
}

func value(f card.Float) any {
	if !f.Known {
		return nil
	}
	return f.Value
}

func decode(t *testing.T, b []byte) *Metrics {
	t.Helper()
	// What was in it before does not count.
	m := &Metrics{
		GFX: optional.Some(99.0), Energy: optional.Some(99.0),
		Residency: Residency{Cycles: optional.Some(uint32(99))},
	}
	m.Throttles[card.ByHeat] = optional.Some(true)
	m.Temperatures[card.Edge] = optional.Some(99.0)
	require.NoError(t, Decode(b, m))
	return m
}

// with makes a structure and changes it.
func with[T any](format, content uint8, change func(*T)) *T {
	s := fresh[T](format, content)
	change(s)
	return s
}

// revisions is a structure of each revision, in which every field that counts has a
// value, and what it tells.
func revisions() []revision {
	discrete := told{69.0, 62.0, 57.0, 100.0, 43.0, 411.0, 3.5}
	noEdge := discrete
	noEdge.edge = nil
	noEnergy := discrete
	noEnergy.energy = nil
	fill1 := func(s *v1x1) {
		s.Edge, s.Hotspot, s.Mem = 57, 62, 69
		s.GFX, s.UMC, s.SocketPower, s.Energy = 100, 43, 411, 0x38000
	}
	fill7 := func(s *v1x7head) {
		s.Hotspot, s.Mem, s.GFX, s.UMC, s.SocketPower, s.Energy = 62, 69, 100, 43, 411, 0x38000
		s.MaxBandwidth = 5300
	}
	fill6 := func(s *v1x6early) {
		s.Hotspot, s.Mem, s.GFX, s.UMC, s.SocketPower, s.Energy = 62, 69, 100, 43, 411, 0x38000
	}
	fill21 := func(s *v2x1) {
		s.TGFX, s.TSoc, s.GFX, s.MM, s.SocketPower, s.GFXPwr = 5150, 4900, 1925, 300, 15000, 7000
	}
	apu := told{edge: 51.5, gfx: 19.25}
	noActivity := told{edge: 51.5}
	return []revision{
		{"1.0", with(1, 0, func(s *v1x0) {
			s.Edge, s.Hotspot, s.Mem = 57, 62, 69
			s.GFX, s.UMC, s.SocketPower, s.Energy = 100, 43, 411, 0x38000
		}), noEnergy},
		{"1.1", with(1, 1, fill1), discrete},
		{"1.2", with(1, 2, func(s *v1x2) { fill1(&s.v1x1) }), discrete},
		{"1.3", with(1, 3, func(s *v1x3) { fill1(&s.v1x1) }), discrete},
		{"1.4", with(1, 4, func(s *v1x4) {
			s.Hotspot, s.Mem, s.VRSoc = 62, 69, 33
			s.GFX, s.UMC, s.SocketPower, s.Energy = 100, 43, 411, 0x38000
		}), noEdge},
		{"1.5", with(1, 5, func(s *v1x5) {
			s.Hotspot, s.Mem, s.VRSoc = 62, 69, 33
			s.GFX, s.UMC, s.SocketPower, s.Energy = 100, 43, 411, 0x38000
		}), noEdge},
		{"1.6 before it had partitions", with(1, 6, fill6), noEdge},
		{"1.6", with(1, 6, func(s *v1x6) { fill6(&s.v1x6early) }), noEdge},
		{"1.7", with(1, 7, func(s *v1x7) { fill7(&s.v1x7head) }), noEdge},
		{"1.8", with(1, 8, func(s *v1x8) { fill7(&s.v1x7head) }), noEdge},
		{"2.0", with(2, 0, func(s *v2x0) {
			s.TGFX, s.TSoc, s.GFX, s.MM, s.SocketPower = 5150, 4900, 1925, 300, 15
		}), apu},
		{"2.1", with(2, 1, fill21), apu},
		{"2.2", with(2, 2, func(s *v2x2) { fill21(&s.v2x1) }), apu},
		{"2.3", with(2, 3, func(s *v2x3) { fill21(&s.v2x1) }), noActivity},
		{"2.4", with(2, 4, func(s *v2x4) { fill21(&s.v2x1) }), noActivity},
		{"3.0", with(3, 0, func(s *v3x0) {
			s.TGFX, s.TSoc, s.TSkin, s.GFX, s.VCN, s.SocketPower, s.GFXPower = 6200, 5100, 4100, 88, 7, 71017, 51017
		}), told{edge: 62.0, gfx: 88.0, power: 71.017}},
	}
}

type revision struct {
	name      string
	structure any
	want      told
}

func TestEachRevisionIsRead(t *testing.T) {
	for _, r := range revisions() {
		t.Run(r.name, func(t *testing.T) {
			b := bytesOf(r.structure)
			m := decode(t, b)
			assert.Equal(t, r.want, tells(m))
			assert.Equal(t, len(b), m.Size)
			assert.Equal(t, [2]uint8{r.name[0] - '0', r.name[2] - '0'}, [2]uint8{m.Format, m.Content})
			assert.Equal(t, r.name[0] != '1', m.IsAPU())
			assert.Equal(t, [card.Reasons]optional.Of[bool]{}, m.Throttles)
			assert.Equal(t, Residency{}, m.Residency)
		})
	}
}

func TestABlobThatIsLongerThanItsRevisionIsRead(t *testing.T) {
	for _, r := range revisions() {
		b := bytesOf(r.structure)
		b[0], b[1] = byte(len(b)+64), byte((len(b)+64)>>8)
		m := decode(t, append(b, make([]byte, 64)...))
		assert.Equal(t, r.want, tells(m), r.name)
		assert.Equal(t, len(b)+64, m.Size, r.name)
	}
}

func TestWhatTheFirmwareDoesNotTellIsMissing(t *testing.T) {
	for _, r := range revisions() {
		b := bytesOf(r.structure)
		for i := range b[4:] {
			b[4+i] = 0xff
		}
		assert.Equal(t, told{}, tells(decode(t, b)), r.name)
	}
}

func TestZeroIsNoTemperatureAndNoPowerButAnActivity(t *testing.T) {
	for _, r := range revisions() {
		b := bytesOf(r.structure)
		clear(b[4:])
		want := told{}
		if r.want.gfx != nil {
			want.gfx = 0.0
		}
		if r.want.umc != nil {
			want.umc = 0.0
		}
		assert.Equal(t, want, tells(decode(t, b)), r.name)
	}
}

func TestWhatCannotBeTrueIsMissing(t *testing.T) {
	m := decode(t, bytesOf(with(1, 3, func(s *v1x3) {
		s.Edge, s.Hotspot, s.Mem, s.GFX, s.UMC, s.SocketPower = 200, 199, 4096, 101, 100, 10000
	})))
	assert.Equal(t, told{junction: 199.0, umc: 100.0}, tells(m))

	m = decode(t, bytesOf(with(2, 1, func(s *v2x1) { s.TGFX, s.GFX = 20000, 10001 })))
	assert.Equal(t, told{}, tells(m))

	m = decode(t, bytesOf(with(3, 0, func(s *v3x0) { s.TGFX, s.GFX, s.SocketPower = 1, 10001, 10_000_000 })))
	assert.Equal(t, told{edge: 0.01}, tells(m))
}

func TestOldFirmwareGivesTheActivityInHundredths(t *testing.T) {
	for raw, want := range map[uint16]any{
		0: 0.0, 1: 1.0, 100: 100.0, 101: 1.01, 8800: 88.0, 10000: 100.0, 10001: nil, math.MaxUint16 - 1: nil,
	} {
		m := decode(t, bytesOf(with(3, 0, func(s *v3x0) { s.GFX = raw })))
		assert.Equal(t, want, value(m.GFX), raw)
	}
}

func TestTheMemoryIsAsHotAsItsHottestStack(t *testing.T) {
	for name, c := range map[string]struct {
		mem  uint16
		hbm  [4]uint16
		want any
	}{
		"the memory's own goes first":      {60, [4]uint16{70, 71, 72, 73}, 60.0},
		"the first is the hottest":         {0xffff, [4]uint16{64, 61, 62, 63}, 64.0},
		"the last is the hottest":          {0xffff, [4]uint16{61, 62, 63, 64}, 64.0},
		"a memory that is not there":       {0, [4]uint16{61, 62, 63, 64}, 64.0},
		"a stack that tells nothing":       {0xffff, [4]uint16{0xffff, 62, 0, 61}, 62.0},
		"a stack that cannot be right":     {0xffff, [4]uint16{61, 250, 62, 63}, 63.0},
		"no stack":                         {0xffff, [4]uint16{0xffff, 0xffff, 0xffff, 0xffff}, nil},
		"stacks and memory that read zero": {0, [4]uint16{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fill := func(s *v1x1) { s.Mem, s.HBM = c.mem, c.hbm }
			for _, s := range []any{
				with(1, 1, fill),
				with(1, 2, func(s *v1x2) { fill(&s.v1x1) }),
				with(1, 3, func(s *v1x3) { fill(&s.v1x1) }),
			} {
				assert.Equal(t, c.want, value(decode(t, bytesOf(s)).Temperatures[card.Mem]), "%T", s)
			}
		})
	}
}

func TestTheHottestOfSomeStacksIsNotTheHottest(t *testing.T) {
	b := bytesOf(with(1, 3, func(s *v1x3) { s.HBM = [4]uint16{61, 62, 63, 64} }))
	assert.Equal(t, told{mem: 64.0}, tells(decode(t, b[:96])))
	assert.Equal(t, told{}, tells(decode(t, b[:95])))
}

func TestEnergyIsCountedInTheSixteenthPowerOfTwo(t *testing.T) {
	for raw, want := range map[uint64]any{
		0: nil, 1: 15.2587890625e-6, 1 << 16: 1.0, 0xca78f9d1122: 212307869.06692505, math.MaxUint64: nil,
		math.MaxUint32: (1<<32 - 1) * 0x1p-16,
	} {
		got := value(decode(t, bytesOf(with(1, 3, func(s *v1x3) { s.Energy = raw }))).Energy)
		if want == nil {
			assert.Nil(t, got, raw)
			continue
		}
		assert.InEpsilon(t, want, got, 1e-9, raw)
	}
}

func TestThrottlingIsByTheKernelsReasons(t *testing.T) {
	for name, c := range map[string]struct {
		bits uint64
		// power, current, heat, other
		want [4]bool
	}{
		"nothing":         {0, [4]bool{}},
		"PPT0":            {1 << 0, [4]bool{true, false, false, false}},
		"last of power":   {1 << 15, [4]bool{true, false, false, false}},
		"TDC_GFX":         {1 << 16, [4]bool{false, true, false, false}},
		"last of current": {1 << 31, [4]bool{false, true, false, false}},
		"TEMP_GPU":        {1 << 32, [4]bool{false, false, true, false}},
		"PROCHOT_GFX":     {1 << 47, [4]bool{false, false, true, false}},
		"first of other":  {1 << 48, [4]bool{false, false, false, true}},
		"FIT":             {1 << 57, [4]bool{false, false, false, true}},
		"last of other":   {1 << 63, [4]bool{false, false, false, true}},
		"several":         {1<<3 | 1<<36, [4]bool{true, false, true, false}},
		"all but one":     {math.MaxUint64 - 1, [4]bool{true, true, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var want [card.Reasons]optional.Of[bool]
			for i, r := range []card.Reason{card.ByPower, card.ByCurrent, card.ByHeat, card.ByOther} {
				want[r] = optional.Some(c.want[i])
			}
			for _, s := range []any{
				with(1, 3, func(s *v1x3) { s.IndepThrottleStatus = c.bits }),
				with(2, 2, func(s *v2x2) { s.IndepThrottleStatus = c.bits }),
				with(2, 3, func(s *v2x3) { s.IndepThrottleStatus = c.bits }),
				with(2, 4, func(s *v2x4) { s.IndepThrottleStatus = c.bits }),
			} {
				assert.Equal(t, want, decode(t, bytesOf(s)).Throttles, "%T", s)
			}
		})
	}
}

func TestAFileThatWasCutOffKeepsWhatIsThere(t *testing.T) {
	b := bytesOf(with(1, 7, func(s *v1x7) {
		s.Hotspot, s.Mem, s.GFX, s.UMC, s.SocketPower, s.Energy = 62, 69, 100, 43, 411, 0x38000
	}))
	assert.Equal(t, told{}, tells(decode(t, b[:5])))
	assert.Equal(t, told{junction: 62.0}, tells(decode(t, b[:7])))
	assert.Equal(t, told{junction: 62.0, mem: 69.0, power: 411.0, gfx: 100.0}, tells(decode(t, b[:15])))
	assert.Equal(t, told{69.0, 62.0, nil, 100.0, 43.0, 411.0, nil}, tells(decode(t, b[:31])))
	m := decode(t, b[:32])
	assert.Equal(t, told{69.0, 62.0, nil, 100.0, 43.0, 411.0, 3.5}, tells(m))
	assert.Equal(t, 2208, m.Size)
}

func TestWithoutAHeaderThereIsNothing(t *testing.T) {
	for n := range 4 {
		m := Metrics{Format: 1, GFX: optional.Some(1.0)}
		require.ErrorIs(t, Decode([]byte{120, 0, 1}[:min(n, 3)], &m), ErrShort)
		assert.Equal(t, Metrics{}, m)
	}
}

func TestRevisionsThatAreNotKnownAreNotRead(t *testing.T) {
	for _, r := range [][2]uint8{{0, 0}, {0, 1}, {1, 10}, {1, 255}, {2, 5}, {3, 1}, {4, 0}, {255, 255}} {
		b := make([]byte, 256)
		copy(b, []byte{0, 1, r[0], r[1]})
		for i := range b[4:] {
			b[4+i] = 0x33
		}
		var m Metrics
		err := Decode(b, &m)
		var unknown *UnknownError
		require.ErrorAs(t, err, &unknown)
		assert.Equal(t, UnknownError{r[0], r[1]}, *unknown)
		assert.Equal(t, Metrics{Format: r[0], Content: r[1], Size: 256}, m)
	}
	require.EqualError(t, &UnknownError{4, 1}, "gpu_metrics: unknown revision 4.1")
}
