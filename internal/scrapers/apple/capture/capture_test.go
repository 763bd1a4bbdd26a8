// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// whole has everything that a file may have.
const whole = `{"format": "apple-capture/1", "future": [1],
 "system": {"chip": "Apple M9", "model": "Mac99,1", "os": "27.0", "arch": "arm64", "memsize": 549755813888},
 "config": {"gpu_power_limit_watts": 40},
 "pmgr": {"voltage-states9": "AAAAAJABAAA="},
 "ioreg": [{"class": "AppleParavirtGPU", "properties": {}},
  {"class": "AGXAcceleratorG99", "properties": {"IOClass": "AGXAcceleratorG99", "model": "Apple M9", "gpu-core-count": 16,
   "PerformanceStatistics": {"In use system memory": 274877906944, "name": "x", "share": 0.5, "text": "7", "none": null, "list": [1], "recoveryCount": 2}}}],
 "ioreport": {"samples": [{"t_ns": 5, "channels": [
  {"group": "Energy Model", "subgroup": "", "channel": "GPU Energy", "unit": "nJ", "kind": "simple", "value": 9007199254740993},
  {"group": "GPU Stats", "subgroup": "GPU Performance States", "channel": "GPUPH", "unit": "24Mticks", "kind": "state", "states": [["OFF", 1], ["P1", -2]]}]}]},
 "smc": {"error": "some", "keys": [{"key": "Tg01", "type": "flt ", "data": "0000207f"}]},
 "hid": {"sensors": [{"product": "GPU MTR Temp Sensor1", "celsius": 40.5}]}}`

func TestParse(t *testing.T) {
	c, err := Parse([]byte(whole))
	require.NoError(t, err)
	assert.Equal(t, &Capture{
		Format:   Format,
		System:   System{Chip: "Apple M9", Model: "Mac99,1", OS: "27.0", Arch: "arm64", Memory: 512 << 30},
		Config:   &Config{GPUPowerLimitWatts: 40},
		Pmgr:     map[string][]byte{"voltage-states9": {0, 0, 0, 0, 0x90, 1, 0, 0}},
		Registry: []Entry{{Class: "AppleParavirtGPU"}, {Class: "AGXAcceleratorG99", Properties: Properties{Model: "Apple M9", Cores: 16, Statistics: Statistics{"In use system memory": 256 << 30, "recoveryCount": 2}}}},
		Report: IOReport{Samples: []Sample{{At: 5, Channels: []Channel{
			{Group: "Energy Model", Name: "GPU Energy", Unit: "nJ", Kind: Simple, Value: 9007199254740993},
			{Group: "GPU Stats", Subgroup: "GPU Performance States", Name: "GPUPH", Unit: "24Mticks", Kind: State, States: []Residency{{"OFF", 1}, {"P1", -2}}},
		}}}},
		SMC: SMC{Error: "some", Keys: []Key{{Name: "Tg01", Type: "flt ", Data: Hex{0, 0, 0x20, 0x7f}}}},
		HID: HID{Sensors: []Sensor{{Product: "GPU MTR Temp Sensor1", Celsius: 40.5}}},
	}, c)
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	c, err := Parse([]byte(whole))
	require.NoError(t, err)
	content, err := c.Content()
	require.NoError(t, err)
	assert.Contains(t, string(content), `"data": "0000207f"`)
	again, err := Parse(content)
	require.NoError(t, err)
	assert.Equal(t, c, again)
}

func TestNoCapture(t *testing.T) {
	for name, tt := range map[string]struct{ content, want string }{
		"empty":               {"", "EOF"},
		"half":                {whole[:len(whole)/2], "unexpected EOF"},
		"another format":      {`{"format": "apple-capture/2"}`, `unknown format "apple-capture/2"; known is "apple-capture/1"`},
		"no format":           {`{}`, "unknown format"},
		"a list":              {`[]`, "cannot unmarshal"},
		"a state of one":      {strings.Replace(whole, `["OFF", 1]`, `["OFF"]`, 1), "states"},
		"a state of three":    {strings.Replace(whole, `["OFF", 1]`, `["OFF", 1, 2]`, 1), "a state must be a list"},
		"a state of no list":  {strings.Replace(whole, `["OFF", 1]`, `"OFF"`, 1), "a state must be a list"},
		"data of half a byte": {strings.Replace(whole, "0000207f", "0000207", 1), "odd length"},
		"more behind it":      {whole + "{}", "after top-level value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tt.content))
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "reading a capture")
		})
	}
}

func TestGPU(t *testing.T) {
	statistics := Properties{Statistics: Statistics{}}
	for name, tt := range map[string]struct {
		entries []Entry
		want    int
	}{
		"none":                      {nil, -1},
		"another maker's":           {[]Entry{{Class: "AppleParavirtGPU", Properties: statistics}, {Class: "IOAcceleratorES", Properties: statistics}}, -1},
		"the first with statistics": {[]Entry{{Class: "AGXAcceleratorG13G"}, {Class: "AGXAcceleratorG13X", Properties: statistics}, {Class: "AGXAccelerator", Properties: statistics}}, 1},
		"without statistics":        {[]Entry{{Class: "x", Properties: statistics}, {Class: "AGXAcceleratorG13G"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Capture{Registry: tt.entries}
			if tt.want < 0 {
				assert.Nil(t, c.GPU())
				return
			}
			assert.Same(t, &c.Registry[tt.want], c.GPU())
		})
	}
}

// Whatever a file has, what is read can be written and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"format":"apple-capture/1","pmgr":null,"ioreg":null,"ioreport":{"samples":[{"channels":[{"states":[]}]}]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := Parse(content)
		if err != nil {
			return
		}
		written, err := c.Content()
		require.NoError(t, err)
		again, err := Parse(written)
		require.NoError(t, err)
		rewritten, err := again.Content()
		require.NoError(t, err)
		require.Equal(t, string(written), string(rewritten))
	})
}
