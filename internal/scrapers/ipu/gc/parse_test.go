// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

func some(v float64) optional.Of[float64] { return optional.Some(v) }

func TestNumbers(t *testing.T) {
	for raw, want := range map[string]float64{
		"33.4 C": 33.4, "39C": 39, " 24.2  C ": 24.2, "0": 0, "36.2": 36.2, "-5 C": -5, "+5.50C": 5.5, "007 C": 7, "\t1 C\r": 1,
	} {
		assert.Equal(t, some(want), number(text(raw), celsius), raw)
	}
	for unit, raw := range map[string]string{megahertz: "1300MHz", watts: "92.3 W", percent: "0.00%", transfers: "16.0 GT/s"} {
		assert.True(t, number(text(raw), unit).Known, raw)
	}
	for _, raw := range []string{
		"", " ", "N/A", "n/a", "nan", "NaN C", "inf", "Infinity", "-inf C", "0x14", "1_300", "1e3", "1E3 C", "1.", ".5", "1,5", "1.2.3",
		"20 F", "20 C C", "20 kC", "20 MHz", "C", "--5", "5-", "2.6.8", "20211122T224648Z", "7776000 seconds", "٣", "1" + strings.Repeat("0", 400),
	} {
		assert.False(t, number(text(raw), celsius).Known, raw)
	}
}

func TestNegativePowerAndUtilisationAreAbsent(t *testing.T) {
	devices, err := Parse([]byte(`[{"ipu power": "-1 W", "total board power": "-0.1W", "ipu utilisation": "-3%", "ipu utilisation (session)": "-3%",
		"average die temp": "-3 C", "average board temp": "-4 C", "clock": "-20MHz"}]`))
	require.NoError(t, err)
	assert.Equal(t, []Device{{DieTemp: some(-3), BoardTemp: some(-4), Clock: some(-20)}}, devices)
}

func TestParseAllAttributes(t *testing.T) {
	want := Device{
		ID: optional.Some(3), Pid: 7001, BoardTemp: some(24.2), DieTemp: some(21.1), Clock: some(1850), LinkSpeed: some(16),
		Power: some(92.3), TotalBoardPower: some(200), Utilisation: some(87.31), SessionUtilisation: some(88.02),
	}
	attributes := []string{
		"id", "3", "target", "Fabric", "average board temp", "24.2 C", "average die temp", "21.1 C", "clock", "1850MHz", "ipu power", "92.3 W",
		"total board power", "200 W", "ipu utilisation", "87.31%", "ipu utilisation (session)", "88.02%", "link speed", "16 GT/s",
		"user process id", "7001", "firmware version", "2.6.8", "link width", "8",
	}
	var members, lines []string
	for i := 0; i < len(attributes); i += 2 {
		members = append(members, fmt.Sprintf("%q: %q", attributes[i], attributes[i+1]))
		lines = append(lines, fmt.Sprintf("  %s: %s\n", attributes[i], attributes[i+1]))
	}
	object := "{" + strings.Join(members, ", ") + "}"
	for form, out := range map[string]string{
		"list": "[" + object + "]", "keyed": `{"3": ` + object + "}", "devices": `{"devices": [` + object + "]}",
		"text": "Device Info:\n" + strings.Join(lines, "") + "\n", "windows": strings.ReplaceAll("Device Info:\n"+strings.Join(lines, ""), "\n", "\r\n"),
		"bom": "\xef\xbb\xbf [" + object + "]\n",
	} {
		devices, err := Parse([]byte(out))
		require.NoError(t, err, form)
		assert.Equal(t, []Device{want}, devices, form)
	}
}

func TestParseNumbersOfJSON(t *testing.T) {
	devices, err := Parse([]byte(`{"devices": [{"id": 5, "user process id": 12, "clock": 1300, "average die temp": 33.4, "ipu power": 1e2,
		"average board temp": null, "ipu utilisation": true, "ipu utilisation (session)": ["1%"], "link speed": {"x": 1}}]}`))
	require.NoError(t, err)
	assert.Equal(t, []Device{{ID: optional.Some(5), Pid: 12, Clock: some(1300), DieTemp: some(33.4)}}, devices)
}

func TestParseMonitor(t *testing.T) {
	devices, err := Parse([]byte(`{"timestamp": "x", "cards": [
		{"ipus": [{"ID": "0", "PID": "7", "IPU utilisation": "1.5%", "IPU utilisation session": "2%"}, 3, {"PID": "N/A", "clock": "20MHz"}]},
		{"Type": "M2000"}, "x", {"ipus": {"ID": "9"}},
		{"ipus": [{"ID": "1"}]}]}`))
	require.NoError(t, err)
	assert.Equal(t, []Device{
		{ID: optional.Some(0), Pid: 7, Utilisation: some(1.5), SessionUtilisation: some(2)},
		{Position: 2},
		{ID: optional.Some(1), Position: 3},
	}, devices)
}

func TestTheNumberOfADevice(t *testing.T) {
	for out, want := range map[string][]int{
		`[{"id": "7"}, {}, {"id": ""}, {"id": "N/A"}, {"id": "-1"}, {"id": "x"}]`: {7, 1, 2, 3, 4, 5},
		`{"4": {}, "6": {"id": "2"}, "x": {}, "": {"id": "0x1"}}`:                 {4, 2, 2, 3},
		`[{"target": "Multi IPU"}, {}]`:                                           {0, 1},
		`{"cards": [{"ipus": [{}]}, {"ipus": [{}, {"ID": "5"}]}]}`:                {0, 1, 5},
		"Device Info:\n  clock: 1MHz\n\nDevice Info:\n  id: 7\nDevice Info:\n":    {0, 7, 2},
		`{"devices": ["x", {}]}`:                                                  {1},
	} {
		devices, err := Parse([]byte(out))
		require.NoError(t, err, out)
		var got []int
		for i := range devices {
			got = append(got, devices[i].Number())
		}
		assert.Equal(t, want, got, out)
	}
}

func TestDevicesMadeOfOthersAreMarked(t *testing.T) {
	devices, err := Parse([]byte(`[{"target": "Multi IPU"}, {"target": " multi ipu "}, {"target": "Fabric"}, {"target": "PCIe"}, {}]`))
	require.NoError(t, err)
	for i, multi := range []bool{true, true, false, false, false} {
		assert.Equal(t, multi, devices[i].Multi)
	}
}

func TestPids(t *testing.T) {
	for raw, want := range map[string]int{
		`"7001"`: 7001, `7001`: 7001, `" 7 "`: 7, `"N/A"`: 0, `""`: 0, `"x"`: 0, `"-4"`: 0, `"7.5"`: 0, `7e3`: 0, `null`: 0, `"99999999999"`: 0,
	} {
		devices, err := Parse([]byte(`[{"user process id": ` + raw + `}]`))
		require.NoError(t, err)
		assert.Equal(t, want, devices[0].Pid, raw)
	}
}

func TestSpeedGoesBeforeLinkSpeed(t *testing.T) {
	for attributes, want := range map[string]optional.Of[float64]{
		`"speed": "32 GT/s", "link speed": "16 GT/s"`: some(32),
		`"speed": "32 GT/s"`:                          some(32),
		`"speed": "N/A", "link speed": "16 GT/s"`:     some(16),
		`"top speed": "16 GT/s"`:                      {},
	} {
		devices, err := Parse([]byte("[{" + attributes + "}]"))
		require.NoError(t, err)
		assert.Equal(t, want, devices[0].LinkSpeed, attributes)
	}
}

func TestNoDevicesAreNoError(t *testing.T) {
	for _, out := range []string{`[]`, `{}`, ` {"devices": []} `, `{"cards": []}`, `{"cards": [{"ipus": []}]}`, `{"devices": [], "version": "1"}`} {
		devices, err := Parse([]byte(out))
		require.NoError(t, err, out)
		assert.Empty(t, devices, out)
	}
}

func TestParseRefuses(t *testing.T) {
	for out, want := range map[string]string{
		"":                             "it printed nothing",
		" \n ":                         "it printed nothing",
		"no devices":                   "neither JSON nor",
		"id: 0\nclock: 20MHz\n":        "neither JSON nor",
		`{"devices": [{"id": "0", "cl`: "the output ends within the JSON (28 bytes)",
		`{"devices": [{"id": "0"}]`:    "the output ends within the JSON",
		`[{"id": "0"}] and more`:       "the output is not JSON",
		`{"devices": [{"id": NaN}]}`:   "the output is not JSON",
		`{"devices": null}`:            "lists no device",
		`{"devices": {"0": {}}}`:       "lists no device",
		`{"cards": 1}`:                 "lists no device",
		`[1, "x"]`:                     "lists no device",
		`{"cards": [{"ipus": [1]}]}`:   "lists no device",
		`{"error": "no partition"}`:    "lists no device",
		strings.Repeat("[", 20000):     "the output is not JSON",
	} {
		devices, err := Parse([]byte(out))
		require.ErrorContains(t, err, want, "%.40s", out)
		assert.Empty(t, devices)
	}
}

func TestInfo(t *testing.T) {
	devices, err := Parse([]byte(`warning: old firmware
  clock: 1MHz
Device Info:
  id: 0
  average die temp:
  user name: a: b
  ipu utilisation (session): 5%
  pci id: 0000:00:00.0
no value
  clock: 20MHz

  clock: 30MHz
Device Info:
  id: 1
  clock: 40MHz
Device Info:
  id: 2
  clock: 50MHz: 60MHz
`))
	require.NoError(t, err)
	assert.Equal(t, []Device{
		{ID: optional.Some(0), SessionUtilisation: some(5), Clock: some(20)},
		{ID: optional.Some(1), Position: 1, Clock: some(40)},
		{ID: optional.Some(2), Position: 2},
	}, devices)
}

// Half a number is a number too: a line without its end counts when the unit is there.
func TestInfoThatIsCutOff(t *testing.T) {
	const begin = "Device Info:\n  id: 4\n  "
	for line, want := range map[string]Device{
		"clock: 1300MHz":        {Clock: some(1300)},
		"clock: 1300M":          {},
		"clock: 13":             {},
		"clock: 13\n":           {Clock: some(13)},
		"clock:":                {},
		"clo":                   {},
		"link speed: 16.0 GT/s": {LinkSpeed: some(16)},
		"link speed: 16.0 GT":   {},
		"user process id: 70":   {},
		"user process id: 70\n": {Pid: 70},
	} {
		want.ID = optional.Some(4)
		devices, err := Parse([]byte(begin + line))
		require.NoError(t, err)
		assert.Equal(t, []Device{want}, devices, line)
	}
}

func TestList(t *testing.T) {
	ids, err := ParseList([]byte(`Graphcore device listing:

-+- Id: [0], target: [Fabric],  IPU-M host: [10.0.0.21], IPU#: [3]
 -+- Id:  [7],  type:   [PCIe], PCI Domain: [0000:1b:00.0]
-+- Id: [8], target: [Multi IPU]
 |--- PCIe Id: [0], DNC Id: [0]
 |--- Id: [1], target: [PCIe]
-+- Id: [7], target: [PCIe]
-+- Id: [99999999999], target: [PCIe]
-+- Id: [x], target: [PCIe]
-+- Id: [2]
	-+- Id: [2], target: []
`))
	require.NoError(t, err)
	assert.Equal(t, []int{0, 7, 2}, ids)
	ids, err = ParseList([]byte("no device"))
	require.NoError(t, err)
	assert.Empty(t, ids)
}

func TestListHasALimit(t *testing.T) {
	var out strings.Builder
	for i := range maxListed {
		fmt.Fprintf(&out, "-+- Id: [%d], target: [PCIe]\n", i)
	}
	ids, err := ParseList([]byte(out.String()))
	require.NoError(t, err)
	assert.Len(t, ids, maxListed)
	_, err = ParseList([]byte(out.String() + "-+- Id: [5000], target: [PCIe]\n"))
	require.EqualError(t, err, "there are more than 1024 devices")
}
