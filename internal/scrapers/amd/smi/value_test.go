// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

func TestFigure(t *testing.T) {
	for value, want := range map[string]float64{
		`0`: 0, `17`: 17, `-5`: -5, `1.5e1`: 15,
		`"17"`: 17, `"17%"`: 17, `" 310.5 W "`: 310.5, `"31.0 C"`: 31, `"31c"`: 31, `"31 °C"`: 31,
		`"(96Mhz)"`: 96, `"((96 MHz))"`: 96, `"( 7 )"`: 7, `"1e2 %"`: 100, `"007"`: 7, `"+3"`: 3, `".5"`: 0.5, `"5."`: 5,
		`"16.0GT/s"`: 16, `"500 mW"`: 0.5, `"750000000 uW"`: 750, `"12 MB"`: 12, `"3 J"`: 3,
		`{"value": 7, "unit": "W"}`: 7, `{"value": "7"}`: 7, `{"unit": "MB", "value": 8}`: 8, `{"value": 7, "unit": "furlongs"}`: 7,
		`{"value": 7000, "unit": "mW"}`: 7, `{"Value": 7, "UNIT": " mw "}`: 0.007, `{"value": 7, "unit": 3}`: 7,
		`[9]`: 9, `["9 W"]`: 9, `[{"value": 9}]`: 9, `{"value": [9]}`: 9,
	} {
		assert.Equal(t, optional.Some(want), figure(json.RawMessage(value)), value)
	}
}

func TestFigureThatIsNone(t *testing.T) {
	for _, value := range []string{
		``, `null`, `true`, `false`, `""`, `"  "`, `"N/A"`, `"n/a"`, `"None"`, `"unknown"`, `"unsupported"`, `"N/A (Secondary die)"`, `"Secondary die"`,
		`"NaN"`, `"Inf"`, `"-Infinity"`, `"1e999"`, `1e999`, `"0x10"`, `"0x1p4"`, `"1_000"`, `"1,5"`, `"1 2"`, `"5 apples"`, `"%"`, `"()"`, `"(5"`, `"5)"`, `"5x3"`,
		`"1-2"`, `"--5"`, `"1e"`, `"e"`, `"٣"`, `"5 W W"`, `"W 5"`,
		`{}`, `{"unit": "W"}`, `{"value": "N/A", "unit": "N/A"}`, `{"value": {"value": {"value": 1}}}`,
		`[]`, `[1, 2]`, `["N/A", 2]`, `[[[1]]]`,
	} {
		assert.False(t, figure(json.RawMessage(value)).Known, value)
	}
}

func TestDeepNestingIsNotFollowed(t *testing.T) {
	const depth = 9000
	assert.False(t, figure(json.RawMessage(strings.Repeat("[", depth)+"1"+strings.Repeat("]", depth))).Known)
}

func TestAFigureThatCannotBeTrueIsPassedOver(t *testing.T) {
	values := []json.RawMessage{nil, []byte(`"N/A"`), []byte(`101`), []byte(`-1`), []byte(`"7 %"`), []byte(`8`)}
	assert.Equal(t, optional.Some(7.0), first(card.Percent, values...))
	assert.Equal(t, card.Float{}, first(card.Percent, values[:4]...))
	assert.Equal(t, optional.Some[int64](7), counter(values[3:]...))
}

func TestCounts(t *testing.T) {
	for value, want := range map[string]card.Int{
		`0`: optional.Some[int64](0), `"12868124672"`: optional.Some[int64](12868124672), `9007199254740992`: optional.Some[int64](1 << 53),
		`9007199254740994`: {}, `-1`: {}, `1.5`: {}, `1e300`: {}, `"N/A"`: {},
	} {
		assert.Equal(t, want, counter(json.RawMessage(value)), value)
	}
	assert.False(t, lanes(json.RawMessage(`0`)).Known, "a link without lanes is none")
	assert.Equal(t, optional.Some[int64](16), lanes(json.RawMessage(`16`)))
	assert.False(t, lanes(json.RawMessage(`33`)).Known)
	assert.Equal(t, optional.Some[int64](0), clock(json.RawMessage(`"(0Mhz)"`)), "a clock may stand still")
	assert.False(t, clock(json.RawMessage(`4294967295`)).Known)
}

func TestGenerations(t *testing.T) {
	for speed, want := range map[string]int64{`2.5`: 1, `"5.0GT/s"`: 2, `8`: 3, `{"value": 16, "unit": "GT/s"}`: 4, `32`: 5, `64`: 6} {
		assert.Equal(t, optional.Some(want), generation(json.RawMessage(speed)), speed)
	}
	assert.False(t, generation(json.RawMessage(`0`)).Known)
	assert.False(t, generation(json.RawMessage(`7`)).Known)
}

func TestPCIAddress(t *testing.T) {
	for value, want := range map[string]string{
		`"0000:C1:00.0"`: "0000:c1:00.0", `"c1:00.1"`: "0000:c1:00.1", `"00000000:C1:0F.7"`: "0000:c1:0f.7", `"10000:e1:00.0"`: "10000:e1:00.0",
		`"1:2:3.4"`: "0001:02:03.4", `" 0002:03:00.0 "`: "0002:03:00.0",
		`"0000:c1:00.8"`: "", `"N/A"`: "", `""`: "", `7`: "", `null`: "", `"x0000:c1:00.0"`: "",
	} {
		assert.Equal(t, want, pciAddress(json.RawMessage(value)), value)
	}
}

func TestUniqueID(t *testing.T) {
	for value, want := range map[string]string{
		`"0x11223344556600"`: "0011223344556600", `"0xAABBCCDD00110000"`: "aabbccdd00110000",
		`"N/A"`: "", `"0x0"`: "", `"0xffffffffffffffff"`: "", `"0x1ffffffffffffffff"`: "", `"11223344"`: "", `1`: "", `"0x"`: "",
	} {
		assert.Equal(t, want, uniqueID(json.RawMessage(value)), value)
	}
}

func TestName(t *testing.T) {
	assert.Equal(t, "AMD Instinct MI300X", name(nil, []byte(`"N/A"`), []byte(`"0x1002"`), []byte(`1`), []byte(`" AMD Instinct MI300X "`), []byte(`"gfx942"`)))
	assert.Equal(t, "ab\ufffdc", name([]byte("\"a\\u0007b\xffc\"")), "what cannot be shown is left out")
	assert.Empty(t, name([]byte(`"unknown"`), []byte(`"None"`), []byte(`""`), []byte(`"n/a (x)"`)))
	assert.Len(t, name([]byte(`"`+strings.Repeat("a", 1000)+`"`)), maxName)
	assert.Equal(t, strings.Repeat("€", maxName/3), name([]byte(`"`+strings.Repeat("€", maxName)+`"`)), "cut between letters")
}

func TestEnergy(t *testing.T) {
	assert.Equal(t, optional.Some(1.5), energy(1e-6, []byte(`"1500000"`)))
	assert.False(t, energy(1, []byte(`0`)).Known, "firmware that does not count")
	assert.False(t, energy(1, []byte(`-3`)).Known)
}
