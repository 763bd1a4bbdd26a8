// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

type temperatures = [card.Sensors]card.Float

func some(v float64) card.Float { return optional.Some(v) }

func whole(v int64) card.Int { return optional.Some(v) }

func TestParseROCm(t *testing.T) {
	for name, tt := range map[string]struct {
		card string
		want card.Reading
	}{
		"own command on Instinct": {
			`"GPU use (%)": "97", "GPU Memory Allocated (VRAM%)": "49", "GPU Memory Read/Write Activity (%)": "62",
			 "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "103070826496",
			 "Temperature (Sensor junction) (C)": "78.0", "Temperature (Sensor memory) (C)": "64.0",
			 "Current Socket Graphics Package Power (W)": "612.0", "Max Graphics Package Power (W)": "750.0", "PCI Bus": "0000:C5:00.0"`,
			card.Reading{
				GPU: some(97), MemoryActivity: some(62), Memory: card.Memory{Used: whole(103070826496), Total: whole(206141652992), Rounded: some(49)},
				Temperatures: temperatures{card.Mem: some(64), card.Junction: some(78)}, Power: some(612), Cap: some(750), PCI: "0000:c5:00.0",
			},
		},
		"everything of an old Radeon": {
			`"GPU ID": "0x73df", "Unique ID": "0x11223344556600", "Card series": "0x1002", "Card model": "Radeon Nonsense",
			 "Temperature (Sensor HBM 0) (C)": "N/A", "mclk clock speed:": "(96Mhz)", "sclk clock speed:": "(500Mhz)", "sclk clock level:": "S",
			 "pcie clock level": "1 (16.0GT/s x8)", "GPU Memory OverDrive value (%)": "5", "0": "2.5GT/s x1", "2": "1200Mhz",
			 "PCIe Replay Count": "3", "Accumulated Energy (uJ)": "212881272813549.38", "GPU memory use (%)": "1"`,
			card.Reading{
				UniqueID: "0011223344556600", MemoryActivity: some(1), OverDrive: some(5), GraphicsClock: whole(500), MemoryClock: whole(96),
				Energy: some(212881272.81354938), PCIe: card.PCIe{Gen: whole(4), Width: whole(8), Replays: whole(3)},
			},
		},
		"oldest spelling":         {`"Temperature (Sensor mem) (c)": "77.0", " AVERAGE graphics package power (W) ": "214.0"`, card.Reading{Temperatures: temperatures{some(77)}, Power: some(214)}},
		"numbers and units":       {`"GPU use (%)": 17, "Average Graphics Package Power (W)": " 310.5 W", "GPU Memory Allocated (VRAM%)": "44%"`, card.Reading{GPU: some(17), Power: some(310.5), Memory: card.Memory{Rounded: some(44)}}},
		"legacy memory key":       {`"GPU memory use (%)": "43"`, card.Reading{MemoryActivity: some(43)}},
		"second die":              {`"Average Graphics Package Power (W)": "N/A (Secondary die)", "Max Graphics Package Power (W)": "0.0"`, card.Reading{}},
		"die that reads 0 W":      {`"Average Graphics Package Power (W)": "0.0", "Current Socket Graphics Package Power (W)": "-1"`, card.Reading{}},
		"second power":            {`"Average Graphics Package Power (W)": "N/A (Secondary die)", "Current Socket Graphics Package Power (W)": "99"`, card.Reading{Power: some(99)}},
		"stacks only":             {`"Temperature (Sensor HBM 0) (C)": "61.0", "Temperature (Sensor HBM 10) (C)": "67.0", "Temperature (Sensor HBM 2) (C)": "0", "Temperature (Sensor HBM 3) (C)": "N/A"`, card.Reading{Temperatures: temperatures{some(67)}}},
		"stacks after the memory": {`"Temperature (Sensor HBM 0) (C)": "71.0", "Temperature (Sensor memory) (C)": "60"`, card.Reading{Temperatures: temperatures{some(60)}}},
		"stacks after the dump":   {`"Temperature (Sensor HBM 0) (C)": "71.0", "Temperature (Sensor memory) (C)": "0", "temperature_mem (C)": "61"`, card.Reading{Temperatures: temperatures{some(61)}}},
		"sensors that read 0":     {`"Temperature (Sensor memory) (C)": "0.0", "Temperature (Sensor junction) (C)": "200", "Temperature (Sensor edge) (C)": "40"`, card.Reading{Temperatures: temperatures{card.Edge: some(40)}}},
		"dump of gpu_metrics": {
			`"average_gfx_activity (%)": "12", "average_umc_activity (%)": "3", "temperature_hotspot (C)": "50", "temperature_edge (C)": "45",
			 "temperature_hbm (C)": "['N/A', 'N/A']", "average_socket_power (W)": "N/A", "current_socket_power (W)": "77"`,
			card.Reading{GPU: some(12), MemoryActivity: some(3), Temperatures: temperatures{card.Junction: some(50), card.Edge: some(45)}, Power: some(77)},
		},
		"dump after own keys":     {`"average_gfx_activity (%)": "12", "GPU use (%)": "13"`, card.Reading{GPU: some(13)}},
		"share that cannot be":    {`"GPU use (%)": "655", "average_gfx_activity (%)": "12"`, card.Reading{GPU: some(12)}},
		"no figures":              {`"GPU use (%)": "N/A", "PCI Bus": "N/A", "Device Name": "N/A", "Accumulated Energy (uJ)": "0.0", "pcie clock level": "?"`, card.Reading{}},
		"other kinds of values":   {`"GPU use (%)": null, "GPU memory use (%)": true, "Temperature (Sensor edge) (C)": {}, "Max Graphics Package Power (W)": [[]]`, card.Reading{}},
		"target without a name":   {`"Card Series": "N/A", "Device Name": "0x1586", "GFX Version": "gfx1151"`, card.Reading{Model: "gfx1151"}},
		"name that is no Unicode": {"\"Card Series\": \"Radeon\xae\"", card.Reading{Model: "Radeon\ufffd"}},
		"key twice":               {`"GPU use (%)": "5", "GPU use (%)": "6"`, card.Reading{GPU: some(6)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseROCm([]byte(`{"card7": {` + tt.card + `}, "system": {"Driver version": "6.8.5", "PID42": "a: b, 1, 2"}}`))
			require.NoError(t, err)
			tt.want.Index = 7
			assert.Equal(t, []card.Reading{tt.want}, got)
		})
	}
}

func TestROCmMemoryIsExactWhereThereAreBytes(t *testing.T) {
	for name, tt := range map[string]struct {
		card string
		want card.Float
	}{
		"bytes":              {`"VRAM Total Memory (B)": "1000", "VRAM Total Used Memory (B)": "125", "GPU Memory Allocated (VRAM%)": "12"`, some(12.5)},
		"no total":           {`"VRAM Total Memory (B)": "0", "VRAM Total Used Memory (B)": "0", "GPU Memory Allocated (VRAM%)": "12"`, some(12)},
		"more than there is": {`"VRAM Total Memory (B)": "100", "VRAM Total Used Memory (B)": "101", "GPU Memory Allocated (VRAM%)": "12"`, some(12)},
		"negative":           {`"VRAM Total Memory (B)": "100", "VRAM Total Used Memory (B)": "-1"`, card.Float{}},
		"legacy key":         {`"GPU memory use (%)": "43"`, card.Float{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseROCm([]byte(`{"card0": {` + tt.card + `}}`))
			require.NoError(t, err)
			require.Len(t, got, 1)
			assert.Equal(t, tt.want, got[0].Memory.Share())
		})
	}
}

func TestROCmIndexIsTheNumberInTheKey(t *testing.T) {
	got, err := ParseROCm([]byte(`{"card10": {"GPU use (%)": 1}, "card2": {"GPU use (%)": 2}, "cardX": {}, "card": {}, "card1a": {}, "xcard1": {}, "card-1": {},
		"card2": {"GPU use (%)": 3}, "card3": "N/A", "system": {}}`))
	require.NoError(t, err)
	assert.Equal(t, []card.Reading{{Index: 2, GPU: some(3)}, {Index: 3}, {Index: 10, GPU: some(1)}}, got)
}

func TestROCmWithoutGPUs(t *testing.T) {
	for _, out := range []string{"", "\n", `{}`, `{"system": {"Driver version": "6.3.6"}}`, "warned\n{\"system\": {}}\n"} {
		got, err := ParseROCm([]byte(out))
		require.NoError(t, err)
		assert.Empty(t, got)
	}
}

func TestROCmWithMoreThanCanBe(t *testing.T) {
	_, err := ParseROCm([]byte(`{"card0": {}, "card4096": {}}`))
	require.EqualError(t, err, "a GPU has the index 4096, which is over the limit of 4095")

	cards := func(n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `, "card%d": {}`, i)
		}
		return []byte("{" + strings.TrimPrefix(b.String(), ", ") + "}")
	}
	got, err := ParseROCm(cards(maxGPUs))
	require.NoError(t, err)
	assert.Len(t, got, maxGPUs)
	got, err = ParseROCm(cards(maxGPUs + 1))
	require.EqualError(t, err, "there are more than 256 GPUs")
	assert.Empty(t, got)
}

func TestROCmOutputThatIsCutOffGivesNoGPUs(t *testing.T) {
	got, err := ParseROCm([]byte(`{"card0": {"GPU use (%)": "5"}, "card1": {"GPU us`))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Empty(t, got)
}
