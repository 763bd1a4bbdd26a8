// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

func FuzzParseROCm(f *testing.F) {
	for _, out := range []string{
		"", "{}", "text", "warned\n{\"card0\": {\"GPU use (%)\": \"5\"}}", `{"card0": {"GPU use (%)": NaN, "gpu USE (%)": "1e999"}}`,
		`{"card1": {"VRAM Total Memory (B)": "10", "VRAM Total Used Memory (B)": 5, "Temperature (Sensor HBM 1) (C)": "50", "PCI Bus": "C1:00.0"}, "system": {}}`,
		`{"card4095": {"sclk clock speed:": "(5Mhz)", "pcie clock level": "1 (16.0GT/s x16)", "Accumulated Energy (uJ)": "5.5", "Unique ID": "0x1"}}`,
		`{"card0": {"Average Graphics Package Power (W)": "N/A (Secondary die)", "Max Graphics Package Power (W)": "750.0"`,
		"{\"card0\": {\"Card Series\": \"\xff\u0000\"}}",
	} {
		f.Add([]byte(out))
	}
	f.Fuzz(func(t *testing.T, out []byte) { checkReadings(t, out, ParseROCm) })
}

func FuzzParseAMD(f *testing.F) {
	for _, out := range []string{
		"", "[]", "text", "[WARNING] x\n[{\"gpu\": 0}]\n[{\"gpu\": 1}]", `{"error": "no"}`, `{"gpu_data": [{"gpu": 0, "usage": "N/A"}]}`,
		`[{"gpu": 1, "usage": {"gfx_activity": {"value": 5, "unit": "%"}}, "power": {"power_limit": 300000000, "socket_power": [7]}, "temperature": {"mem": "55 C"}}]`,
		`[{"gpu": 2, "apu_x": 1, "mem_usage": {"total_vram": 5, "used_vram": 1, "total_gtt": 8589934592, "used_gtt": 4}, "energy": {"total_energy_consumption": 1e308}}]`,
		`[{"gpu": 3, "clock": {"gfx_0": {"clk": 5}}, "ecc_blocks": {"UMC": {"correctable_count": 9007199254740993}}, "pcie": {"width": 16, "speed": 32, "replay_count": 1}`,
	} {
		f.Add([]byte(out))
	}
	f.Fuzz(func(t *testing.T, out []byte) { checkReadings(t, out, ParseAMD) })
}

func FuzzParseStatic(f *testing.F) {
	for _, out := range []string{
		"", "[]", "text", `{"gpu_data": [{"gpu": 0, "limit": {"ppt0": {"socket_power_limit": {"value": 750, "unit": "W"}}}}]}`,
		`[{"gpu": 1, "limit": {"max_power": 300000000}, "asic": {"market_name": "x", "asic_serial": "0xab"}, "bus": {"bdf": "0000:C1:00.0", "max_pcie_speed": 16, "max_pcie_width": 8}}]`,
	} {
		f.Add([]byte(out))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		got, err := ParseStatic(out)
		again, err2 := ParseStatic(out)
		require.Equal(t, got, again)
		require.Equal(t, err, err2)
		if err != nil {
			require.Empty(t, got)
			require.NotEmpty(t, err.Error())
		}
		require.LessOrEqual(t, len(got), maxGPUs)
		for index, s := range got {
			require.True(t, index >= 0 && index < maxIndex)
			requireFloat(t, s.Cap, card.Watts)
			requireIdentity(t, s.PCI, s.UniqueID, s.Model)
			requireCount(t, s.MaxGen, 1, 6)
			requireCount(t, s.MaxWidth, 1, maxLanes)
		}
	})
}

// checkReadings checks that nothing that cannot be true comes out, and always the same.
func checkReadings(t *testing.T, out []byte, parse func([]byte) ([]card.Reading, error)) {
	t.Helper()
	got, err := parse(out)
	again, err2 := parse(out)
	require.Equal(t, got, again)
	require.Equal(t, err, err2)
	if err != nil {
		require.Empty(t, got)
		require.Less(t, len(err.Error()), 10*maxQuote)
	}
	require.LessOrEqual(t, len(got), maxGPUs)
	for i := range got {
		r := &got[i]
		require.True(t, r.Index >= 0 && r.Index < maxIndex)
		require.True(t, i == 0 || got[i-1].Index < r.Index)
		for _, share := range []card.Float{r.GPU, r.MemoryActivity, r.OverDrive, r.Memory.Rounded, r.Memory.Share()} {
			requireFloat(t, share, card.Percent)
		}
		for _, temperature := range r.Temperatures {
			requireFloat(t, temperature, card.Celsius)
		}
		requireFloat(t, r.Power, card.Watts)
		requireFloat(t, r.Cap, card.Watts)
		requireIdentity(t, r.PCI, r.UniqueID, r.Model)
		for _, count := range []card.Int{r.Memory.Used, r.Memory.Total, r.Corrected, r.Uncorrected, r.PCIe.Replays} {
			requireCount(t, count, 0, maxCount)
		}
		requireCount(t, r.GraphicsClock, 0, maxMHz)
		requireCount(t, r.MemoryClock, 0, maxMHz)
		requireCount(t, r.PCIe.Gen, 1, 6)
		requireCount(t, r.PCIe.Width, 1, maxLanes)
		require.True(t, !r.Energy.Known || r.Energy.Value > 0 && r.Energy.Value <= maxCount)
	}
}

func requireFloat(t *testing.T, v card.Float, rule func(float64) card.Float) {
	t.Helper()
	if v.Known {
		require.Equal(t, v, rule(v.Value))
	}
}

func requireCount(t *testing.T, v card.Int, least, most int64) {
	t.Helper()
	require.True(t, !v.Known || v.Value >= least && v.Value <= most, "%v", v)
}

func requireIdentity(t *testing.T, pci, id, model string) {
	t.Helper()
	require.True(t, pci == "" || pciForm.MatchString(pci) && strings.Index(pci, ":") >= 4, pci)
	require.True(t, id == "" || len(id) == 16, id)
	require.True(t, len(model) <= maxName && utf8.ValidString(model) && model == strings.TrimSpace(model), model)
}
