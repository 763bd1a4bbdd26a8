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

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

const mib = 1 << 20

func TestParseAMD(t *testing.T) {
	for name, tt := range map[string]struct {
		gpu  string
		want card.Reading
	}{
		"figures with units": {
			`"usage": {"gfx_activity": {"value": 99, "unit": "%"}, "umc_activity": {"value": 63, "unit": "%"}, "vcn_activity": ["N/A", {"value": 1, "unit": "%"}]},
			 "power": {"socket_power": {"value": 705, "unit": "W"}, "power_management": "ENABLED"},
			 "temperature": {"edge": "N/A", "hotspot": {"value": 68, "unit": "C"}, "mem": {"value": 55, "unit": "C"}},
			 "mem_usage": {"total_vram": {"value": 1000, "unit": "MB"}, "used_vram": {"value": 250, "unit": "MB"}, "total_gtt": {"value": 9000, "unit": "MB"}, "used_gtt": {"value": 1, "unit": "MB"}}`,
			card.Reading{
				GPU: some(99), MemoryActivity: some(63), Power: some(705), Temperatures: temperatures{card.Mem: some(55), card.Junction: some(68)},
				Memory: card.Memory{Used: whole(250 * mib), Total: whole(1000 * mib)},
			},
		},
		"names and plain numbers of ROCm 6.0": {
			`"usage": {"gfx_usage": 97, "mem_usage": 41}, "power": {"current_power": 211, "power_limit": 300}, "temperature": {"edge": 55, "hotspot": 60, "mem": 66},
			 "mem_usage": {"total_vram": 65520, "used_vram": 32760}`,
			card.Reading{
				GPU: some(97), MemoryActivity: some(41), Power: some(211), Cap: some(300), Temperatures: temperatures{some(66), some(60), some(55)},
				Memory: card.Memory{Used: whole(32760 * mib), Total: whole(65520 * mib)},
			},
		},
		"extended figures": {
			`"clock": {"gfx_0": {"clk": {"value": 132, "unit": "MHz"}, "max_clk": {"value": 2100, "unit": "MHz"}}, "gfx_1": {"clk": {"value": 140, "unit": "MHz"}}, "mem_0": {"clk": {"value": 900, "unit": "MHz"}}},
			 "ecc": {"total_correctable_count": 90, "total_uncorrectable_count": 91}, "ecc_blocks": {"UMC": {"correctable_count": 4, "uncorrectable_count": 1}, "SDMA": {"correctable_count": 86}},
			 "energy": {"total_energy_consumption": {"value": 12.5, "unit": "J"}},
			 "pcie": {"width": 16, "speed": {"value": 32, "unit": "GT/s"}, "replay_count": 2, "nak_sent_count": 7}`,
			card.Reading{
				GraphicsClock: whole(132), MemoryClock: whole(900), Corrected: whole(4), Uncorrected: whole(1), Energy: some(12.5),
				PCIe: card.PCIe{Gen: whole(5), Width: whole(16), Replays: whole(2)},
			},
		},
		"extended figures of ROCm 6.0": {
			`"clock": {"gfx": {"cur_clk": 800, "max_clk": 1700}, "mem": {"cur_clk": 1600}}, "ecc_block": {"UMC": {"correctable_count": 0, "uncorrectable_count": 0}},
			 "pcie": {"current_lanes": 16, "current_speed": 16}`,
			card.Reading{
				GraphicsClock: whole(800), MemoryClock: whole(1600), Corrected: whole(0), Uncorrected: whole(0), PCIe: card.PCIe{Gen: whole(4), Width: whole(16)},
			},
		},
		"extended figures that are not": {
			`"clock": {"gfx_0": {"clk": "N/A"}}, "ecc": {"total_correctable_count": 5}, "ecc_blocks": "N/A", "energy": {"total_energy_consumption": {"value": 0.0, "unit": "J"}},
			 "pcie": {"width": 0, "speed": "N/A", "replay_count": "N/A"}`,
			card.Reading{},
		},
		"sections that are texts":   {`"usage": "N/A", "power": "N/A", "temperature": ["N/A"], "mem_usage": null, "clock": 5, "pcie": "N/A", "energy": "N/A"`, card.Reading{}},
		"die that reads 0 W":        {`"power": {"socket_power": {"value": 0, "unit": "W"}, "current_power": 0}`, card.Reading{}},
		"second power":              {`"power": {"socket_power": "N/A", "current_power": 12}`, card.Reading{Power: some(12)}},
		"cap in microwatts":         {`"power": {"power_limit": 300000000}`, card.Reading{Cap: some(300)}},
		"cap in microwatts by unit": {`"power": {"power_limit": {"value": 300000000, "unit": "uW"}}`, card.Reading{Cap: some(300)}},
		"cap of 0":                  {`"power": {"power_limit": 0}`, card.Reading{}},
		"share that cannot be":      {`"usage": {"gfx_activity": 65535, "gfx_usage": 7, "umc_activity": -1}`, card.Reading{GPU: some(7)}},
		"sensors that read 0":       {`"temperature": {"mem": 0, "hotspot": 40}`, card.Reading{Temperatures: temperatures{card.Junction: some(40)}}},
		"a list for a figure":       {`"usage": {"gfx_activity": [50, 60], "umc_activity": [{"value": 7, "unit": "%"}]}`, card.Reading{MemoryActivity: some(7)}},
		"APU": {
			`"usage": {"gfx_activity": "N/A", "apu_average_gfx_activity": {"value": 33, "unit": "%"}}, "power": {"socket_power": "N/A", "apu_average_socket_power": {"value": 15, "unit": "W"}},
			 "temperature": {"edge": "N/A", "apu_temperature_gfx": {"value": 44, "unit": "C"}}, "mem_usage": {"total_vram": 512, "used_vram": 489, "total_gtt": 1024, "used_gtt": 256}`,
			card.Reading{
				GPU: some(33), Power: some(15), Temperatures: temperatures{card.Edge: some(44)}, Memory: card.Memory{Used: whole(256 * mib), Total: whole(1024 * mib)},
			},
		},
		"APU with more memory of its own": {
			`"apu_x": 1, "mem_usage": {"total_vram": 2048, "used_vram": 489, "total_gtt": 1024, "used_gtt": 256}`,
			card.Reading{Memory: card.Memory{Used: whole(489 * mib), Total: whole(2048 * mib)}},
		},
		"APU without memory of its own": {
			`"clock": {"apu_clk": 1}, "mem_usage": {"total_vram": "N/A", "used_vram": "N/A", "total_gtt": 1024, "used_gtt": 256}`,
			card.Reading{Memory: card.Memory{Used: whole(256 * mib), Total: whole(1024 * mib)}},
		},
		"APU that does not tell the use of the larger pool": {
			`"apu_x": 1, "mem_usage": {"total_vram": 512, "used_vram": 1, "total_gtt": 1024, "used_gtt": "N/A"}`,
			card.Reading{Memory: card.Memory{Used: whole(1 * mib), Total: whole(512 * mib)}},
		},
		"a part of a MiB": {
			`"mem_usage": {"total_vram": {"value": 1024.0, "unit": "MB"}, "used_vram": 0.5}`,
			card.Reading{Memory: card.Memory{Used: whole(mib / 2), Total: whole(1024 * mib)}},
		},
		"fields of an APU without figures": {
			`"usage": {"apu_average_gfx_activity": "N/A"}, "mem_usage": {"total_vram": 512, "used_vram": 1, "total_gtt": 1024, "used_gtt": 2}`,
			card.Reading{Memory: card.Memory{Used: whole(2 * mib), Total: whole(1024 * mib)}},
		},
		"keys in capitals": {`"Usage": {"GFX_Activity": 5}`, card.Reading{GPU: some(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			gpu := `{"gpu": 7, ` + tt.gpu + `}`
			tt.want.Index = 7
			for _, document := range []string{
				`[` + gpu + `]`,
				`{"gpu_data": [` + gpu + `], "cpu_data": [{"cpu": 0}]}`,
				"WARNING: user is missing the render group\n\n[WARNING] again\n[\n" + gpu + "\n]\n[\n" + gpu + "\n]\n",
			} {
				got, err := ParseAMD([]byte(document))
				require.NoError(t, err)
				assert.Equal(t, []card.Reading{tt.want}, got)
			}
		})
	}
}

func TestAMDIndexIsTheFieldGPU(t *testing.T) {
	got, err := ParseAMD([]byte(`[{"gpu": 10}, {"gpu": 2}, {"usage": {"gfx_activity": 1}}, {"gpu": "N/A"}, {"gpu": -1}, {"gpu": 1.5}, "N/A", 7, null,
		{"gpu": "3"}, {"gpu": 2, "usage": {"gfx_activity": 9}}]`))
	require.NoError(t, err)
	assert.Equal(t, []card.Reading{{Index: 2, GPU: some(9)}, {Index: 3}, {Index: 10}}, got)
}

func TestAMDWithoutGPUs(t *testing.T) {
	for _, out := range []string{"", " \n", "[]", `{"gpu_data": []}`, "[\n]\n"} {
		got, err := ParseAMD([]byte(out))
		require.NoError(t, err)
		assert.Empty(t, got)
		fixed, err := ParseStatic([]byte(out))
		require.NoError(t, err)
		assert.Empty(t, fixed)
	}
}

func TestAMDThatTellsOfAFailure(t *testing.T) {
	for out, want := range map[string]string{
		`{"error": "Command '--foo' is invalid.\n", "code": -2}`: `no figures, but "Command '--foo' is invalid."`,
		"{\n \"a\": 1\n}":     `not understood: "{ \"a\": 1 }": it has no list of GPUs`,
		`{"gpu_data": "N/A"}`: `not understood: "{\"gpu_data\": \"N/A\"}": it has no list of GPUs`,
		"+---+\n| 0 |\n":      `no figures, but "+---+"`,
	} {
		_, err := ParseAMD([]byte(out))
		require.EqualError(t, err, want)
		_, err = ParseStatic([]byte(out))
		require.EqualError(t, err, want)
	}
}

func TestAMDWithMoreThanCanBe(t *testing.T) {
	var b strings.Builder
	for i := range maxGPUs + 1 {
		fmt.Fprintf(&b, `, {"gpu": %d}`, i)
	}
	many := []byte("[" + strings.TrimPrefix(b.String(), ", ") + "]")
	got, err := ParseAMD(many)
	require.EqualError(t, err, "there are more than 256 GPUs")
	assert.Empty(t, got)
	fixed, err := ParseStatic(many)
	require.EqualError(t, err, "there are more than 256 GPUs")
	assert.Empty(t, fixed)
	_, err = ParseAMD([]byte(`[{"gpu": 4096}]`))
	require.EqualError(t, err, "a GPU has the index 4096, which is over the limit of 4095")
}

func TestAMDOutputThatIsCutOffGivesNoGPUs(t *testing.T) {
	got, err := ParseAMD([]byte("[\n {\"gpu\": 0,\n \"usage\":\n {\"gfx_activity\": 5}},\n {\"gpu\": 1,"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Empty(t, got)
}

func TestParseStatic(t *testing.T) {
	for name, tt := range map[string]struct {
		gpu  string
		want Static
	}{
		"all": {
			`"limit": {"ppt0": {"max_power_limit": {"value": 750, "unit": "W"}, "socket_power_limit": {"value": 500, "unit": "W"}}},
			 "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x11223344556600", "target_graphics_version": "gfx942"},
			 "bus": {"bdf": "0000:C1:00.0", "max_pcie_width": 16, "max_pcie_speed": {"value": 32, "unit": "GT/s"}, "slot_type": "OAM"}`,
			Static{Cap: some(500), PCI: "0000:c1:00.0", UniqueID: "0011223344556600", Model: "AMD Instinct MI300X", MaxGen: whole(5), MaxWidth: whole(16)},
		},
		"older name of the limit":   {`"limit": {"max_power": {"value": 750, "unit": "W"}, "socket_power": {"value": 700, "unit": "W"}}`, Static{Cap: some(700)}},
		"largest limit":             {`"limit": {"max_power": {"value": 750, "unit": "W"}, "socket_power": "N/A"}`, Static{Cap: some(750)}},
		"largest limit of ppt0":     {`"limit": {"ppt0": {"max_power_limit": 750, "socket_power_limit": "N/A"}, "max_power": 800}`, Static{Cap: some(750)}},
		"older name before largest": {`"limit": {"ppt0": {"max_power_limit": 750}, "socket_power": 600}`, Static{Cap: some(600)}},
		"microwatts":                {`"limit": {"socket_power": 300000000}`, Static{Cap: some(300)}},
		"no limit":                  {`"limit": {"socket_power": 0}`, Static{}},
		"target without a name":     {`"asic": {"market_name": "0x73bf", "target_graphics_version": "gfx1030"}`, Static{Model: "gfx1030"}},
		"older name of the lanes":   {`"bus": {"bdf": "N/A", "max_pcie_lanes": 8}`, Static{MaxWidth: whole(8)}},
		"sections that are texts":   {`"limit": "N/A", "asic": "N/A", "bus": "N/A"`, Static{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseStatic([]byte(`[{"gpu": 3, ` + tt.gpu + `}]`))
			require.NoError(t, err)
			assert.Equal(t, map[int]Static{3: tt.want}, got)
		})
	}
}
