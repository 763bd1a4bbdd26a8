// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// fakeSMC answers as the driver does.
type fakeSMC struct {
	keys []fakeKey
	// refuses is a key that cannot be read.
	refuses string
	// questions counts them by command.
	questions map[uint8]int
}

type fakeKey struct {
	name, kind string
	data       []byte
}

func (f *fakeSMC) ask(q *message) (message, error) {
	if f.questions == nil {
		f.questions = map[uint8]int{}
	}
	f.questions[q.command]++
	all := append([]fakeKey{{"#KEY", "ui32", binary.BigEndian.AppendUint32(nil, uint32(len(f.keys)))}}, f.keys...)
	if q.command == keyByIndex {
		if int(q.index) >= len(f.keys) {
			return message{result: noSuchKey}, nil
		}
		return message{key: fourBytes(f.keys[q.index].name)}, nil
	}
	for _, k := range all {
		if fourBytes(k.name) != q.key {
			continue
		}
		var a message
		switch {
		case k.name == f.refuses:
			return message{}, errors.New("refused")
		case q.command == keyInfo:
			a.size, a.kind = uint32(len(k.data)), fourBytes(k.kind)
		case q.command == readKey && q.size == uint32(len(k.data)):
			copy(a.data[:], k.data)
		default:
			a.result = 1
		}
		return a, nil
	}
	return message{result: noSuchKey}, nil
}

var macKeys = []fakeKey{
	{"PSTR", "flt ", []byte{0, 0, 160, 65}},
	{"TG0B", "flt ", []byte{1, 2, 3, 4}},
	{"Tg01", "flt ", []byte{0, 0, 32, 66}},
	{"Tg02", "sp78", []byte{42, 0}},
	{"Tp01", "flt ", []byte{0, 0, 112, 66}},
	{"Tz01", "flt ", []byte{9, 9, 9, 9}},
	{"zETM", "{jst", make([]byte, 32)},
}

func keysOf(want Want, now *time.Time) *keySet {
	return &keySet{again: time.Minute, clock: func() time.Time { return *now }, isWanted: want.key}
}

func namesOf(keys []capture.Key) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

func TestKeysThatAreWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		want  Want
		names []string
	}{
		"by default":    {Want{}, []string{"Tg01", "Tg02"}},
		"the CPU":       {Want{CPUTemperature: true}, []string{"Tg01", "Tg02", "Tp01"}},
		"the system":    {Want{SystemPower: true}, []string{"PSTR", "Tg01", "Tg02"}},
		"for a capture": {Want{Everything: true}, []string{"PSTR", "TG0B", "Tg01", "Tg02", "Tp01", "Tz01"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			keys, err := keysOf(tt.want, &now).read((&fakeSMC{keys: macKeys}).ask)
			require.NoError(t, err)
			assert.Equal(t, tt.names, namesOf(keys))
		})
	}
}

func TestKeysAreFoundOnceForATime(t *testing.T) {
	now := time.Unix(1000, 0)
	smc := &fakeSMC{keys: macKeys}
	set := keysOf(Want{}, &now)
	keys, err := set.read(smc.ask)
	require.NoError(t, err)
	assert.Equal(t, []capture.Key{{Name: "Tg01", Type: "flt ", Data: capture.Hex{0, 0, 32, 66}}, {Name: "Tg02", Type: "sp78", Data: capture.Hex{42, 0}}}, keys)
	assert.Equal(t, map[uint8]int{keyByIndex: len(macKeys), keyInfo: 3, readKey: 3}, smc.questions)

	smc.questions = nil
	smc.keys = append(smc.keys, fakeKey{"Tg03", "flt ", make([]byte, 4)})
	_, err = set.read(smc.ask)
	require.NoError(t, err)
	assert.Equal(t, map[uint8]int{readKey: 2}, smc.questions)

	now = now.Add(time.Minute)
	keys, err = set.read(smc.ask)
	require.NoError(t, err)
	assert.Equal(t, []string{"Tg01", "Tg02", "Tg03"}, namesOf(keys))
}

func TestKeyThatCannotBeReadCostsNoOther(t *testing.T) {
	now := time.Unix(1000, 0)
	set := keysOf(Want{}, &now)
	smc := &fakeSMC{keys: macKeys, refuses: "Tg01"}
	keys, err := set.read(smc.ask)
	require.NoError(t, err)
	assert.Equal(t, []string{"Tg02"}, namesOf(keys))
}

func TestSMCThatDoesNotAnswer(t *testing.T) {
	count := func(n uint32) asker {
		smc := &fakeSMC{}
		return func(q *message) (message, error) {
			a, err := smc.ask(q)
			if q.command == readKey && q.key == countKey {
				binary.BigEndian.PutUint32(a.data[:], n)
			}
			return a, err
		}
	}
	for name, tt := range map[string]struct {
		ask  asker
		want string
	}{
		"an error":      {func(*message) (message, error) { return message{}, errors.New("no driver") }, "no driver"},
		"no such key":   {func(*message) (message, error) { return message{result: noSuchKey}, nil }, "no such key"},
		"another fault": {func(*message) (message, error) { return message{result: 133}, nil }, "the result is 133"},
		"large":         {func(*message) (message, error) { return message{size: 33}, nil }, "33 bytes"},
		"no size":       {func(*message) (message, error) { return message{}, nil }, "0 bytes"},
		"too many":      {count(1 << 30), "1073741824 keys"},
		"a short count": {func(*message) (message, error) { return message{size: 2}, nil }, "an answer of 2 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			_, err := keysOf(Want{}, &now).read(tt.ask)
			require.ErrorContains(t, err, tt.want)
		})
	}
	now := time.Unix(1000, 0)
	set := keysOf(Want{}, &now)
	_, err := set.read((&fakeSMC{keys: macKeys}).ask)
	require.NoError(t, err)
	_, err = set.read(func(*message) (message, error) { return message{}, errors.New("gone") })
	require.ErrorContains(t, err, "gone", "all keys together")
}

// mac is one whose interfaces are all well.
type mac struct {
	parts

	sensorCalls int
	now         time.Time
}

func newMac() *mac {
	m := &mac{now: time.Unix(1000, 0)}
	m.parts = parts{
		system: func() capture.System { return capture.System{Chip: "Apple M9", Memory: 1000} },
		report: func(groups []group) (*sample, error) {
			s := &sample{at: m.now.Add(time.Millisecond)}
			for _, g := range groups {
				s.channels = append(s.channels, capture.Channel{Group: g.name, Subgroup: g.subgroup})
			}
			return s, nil
		},
		registry: func() ([]capture.Entry, error) { return []capture.Entry{{Class: "AGXAcceleratorG99"}}, nil },
		tables:   func() (map[string][]byte, error) { return map[string][]byte{"voltage-states9": {1}}, nil },
		keys:     func(s *keySet) ([]capture.Key, error) { return s.read((&fakeSMC{keys: macKeys}).ask) },
		sensors: func() ([]capture.Sensor, error) {
			m.sensorCalls++
			return []capture.Sensor{{Product: "GPU MTR Temp Sensor1", Celsius: 40}, {Product: "gas gauge battery", Celsius: 30}}, nil
		},
	}
	return m
}

func (m *mac) reader(want Want) *Reader {
	r := newReader(want, time.Minute, m.parts)
	r.clock = func() time.Time { return m.now }
	r.began = m.now
	return r
}

func TestLook(t *testing.T) {
	m := newMac()
	c, errs := m.reader(Want{}).Look(t.Context())
	require.Empty(t, errs)
	assert.Equal(t, &capture.Capture{
		Format: capture.Format, System: capture.System{Chip: "Apple M9", Memory: 1000},
		Registry: []capture.Entry{{Class: "AGXAcceleratorG99"}},
		Report: capture.IOReport{Samples: []capture.Sample{{At: 1e6, Channels: []capture.Channel{
			{Group: "Energy Model"}, {Group: "GPU Stats", Subgroup: "GPU Performance States"},
		}}}},
		SMC: capture.SMC{Keys: []capture.Key{{Name: "Tg01", Type: "flt ", Data: capture.Hex{0, 0, 32, 66}}, {Name: "Tg02", Type: "sp78", Data: capture.Hex{42, 0}}}},
	}, c)
	assert.Zero(t, m.sensorCalls, "the SMC has a temperature")
}

func TestLookForACapture(t *testing.T) {
	m := newMac()
	c, errs := m.reader(Want{Everything: true}).Look(t.Context())
	require.Empty(t, errs)
	assert.Len(t, c.Report.Samples[0].Channels, 3)
	assert.Len(t, c.HID.Sensors, 2)
	assert.Len(t, c.SMC.Keys, 6)
	assert.NotEmpty(t, c.Pmgr)
}

func TestClockTablesAreReadOnce(t *testing.T) {
	m := newMac()
	calls := 0
	m.tables = func() (map[string][]byte, error) {
		if calls++; calls == 1 {
			return nil, errors.New("no pmgr")
		}
		return map[string][]byte{"voltage-states9": {1}}, nil
	}
	r := m.reader(Want{Clocks: true})
	c, errs := r.Look(t.Context())
	assert.Equal(t, []string{"pmgr"}, sourcesOf(t, errs))
	assert.Nil(t, c.Pmgr)
	for range 3 {
		c, errs = r.Look(t.Context())
		require.Empty(t, errs)
		assert.NotNil(t, c.Pmgr)
	}
	assert.Equal(t, 2, calls)
}

func sourcesOf(t testing.TB, errs []error) []string {
	t.Helper()
	var sources []string
	for _, err := range errs {
		var failed *scrapers.SourceError
		require.ErrorAs(t, err, &failed)
		sources = append(sources, failed.Source)
	}
	return sources
}

func TestEachInterfaceFailsAlone(t *testing.T) {
	failed := errors.New("refused")
	for name, tt := range map[string]struct {
		fail func(*mac)
		want []string
	}{
		"IOReport":   {func(m *mac) { m.report = func([]group) (*sample, error) { return nil, failed } }, []string{"IOReport"}},
		"IORegistry": {func(m *mac) { m.registry = func() ([]capture.Entry, error) { return nil, failed } }, []string{"IORegistry"}},
		"SMC":        {func(m *mac) { m.keys = func(*keySet) ([]capture.Key, error) { return nil, failed } }, []string{"SMC"}},
		"a panic":    {func(m *mac) { m.keys = func(*keySet) ([]capture.Key, error) { panic("x") } }, []string{"SMC"}},
		"SMC and HID": {func(m *mac) {
			m.keys = func(*keySet) ([]capture.Key, error) { return nil, failed }
			m.sensors = func() ([]capture.Sensor, error) { return nil, failed }
		}, []string{"SMC", "HID sensors"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMac()
			tt.fail(m)
			r := m.reader(Want{})
			for range 2 {
				c, errs := r.Look(t.Context())
				assert.Equal(t, tt.want, sourcesOf(t, errs))
				assert.Equal(t, name == "IOReport", c.Report.Error != "")
				assert.Equal(t, name == "IORegistry", c.Registry == nil, "else there are none")
				assert.Equal(t, name == "SMC and HID", c.HID.Error != "")
				assert.NotNil(t, c.Report.Samples)
			}
		})
	}
}

func TestMachineWithoutEntries(t *testing.T) {
	m := newMac()
	m.registry = func() ([]capture.Entry, error) { return nil, nil }
	c, errs := m.reader(Want{}).Look(t.Context())
	require.Empty(t, errs)
	assert.NotNil(t, c.Registry)
}

// A GPU that is powered off has no temperature: HID is asked now and then, and nothing is
// said.
func TestHIDIsAskedWhereTheSMCHasNoTemperature(t *testing.T) {
	m := newMac()
	m.keys = func(*keySet) ([]capture.Key, error) {
		return []capture.Key{{Name: "Tg01", Type: "flt ", Data: make([]byte, 4)}}, nil
	}
	r := m.reader(Want{})
	for i := range 2 {
		c, errs := r.Look(t.Context())
		require.Empty(t, errs)
		assert.Equal(t, []capture.Sensor{{Product: "GPU MTR Temp Sensor1", Celsius: 40}}, c.HID.Sensors)
		assert.Equal(t, i+1, m.sensorCalls)
	}
	calls := 0
	r.parts.sensors = func() ([]capture.Sensor, error) {
		if calls++; calls == 1 {
			return []capture.Sensor{{Product: "PMU tdie1", Celsius: 40}}, nil
		}
		return nil, errors.New("IOHIDEventSystemClientCopyServices returned NULL")
	}
	for _, tt := range []struct {
		calls int
		error bool
	}{{1, false}, {1, false}, {2, true}, {2, true}} {
		if tt.error && calls == 1 {
			m.now = m.now.Add(time.Minute)
		}
		c, errs := r.Look(t.Context())
		require.Empty(t, errs)
		assert.Empty(t, c.HID.Sensors)
		assert.Equal(t, tt.calls, calls)
		assert.Equal(t, tt.error, c.HID.Error != "")
	}
}

// What hangs costs its part of the time once, and the others nothing.
func TestInterfaceThatHangs(t *testing.T) {
	release := make(chan struct{})
	var hangs atomic.Int32
	m := newMac()
	m.report = func([]group) (*sample, error) {
		hangs.Add(1)
		<-release
		return nil, errors.New("late")
	}
	r := m.reader(Want{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, errs := r.Look(ctx)
	assert.Equal(t, []string{"IOReport"}, sourcesOf(t, errs))
	require.ErrorContains(t, errs[0], "it did not answer in its part of the time")
	assert.Len(t, c.SMC.Keys, 2)
	require.NoError(t, ctx.Err())

	c, errs = r.Look(t.Context())
	assert.Equal(t, []string{"IOReport"}, sourcesOf(t, errs))
	assert.Len(t, c.SMC.Keys, 2)
	assert.EqualValues(t, 1, hangs.Load(), "it is left alone until it comes back")
	close(release)
	require.True(t, r.report.Settle(t.Context()))
}
