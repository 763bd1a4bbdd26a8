// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

const (
	// mebi is what amd-smi calls MB.
	mebi = 1 << 20
	// leastMicrowatts is from where a cap is in microwatts: no card may use so many watts.
	leastMicrowatts = 100_000
	microwatt       = 1e-6
)

// Static is what amd-smi tells of a GPU that hardly changes.
type Static struct {
	// Cap is the power's present limit in watts.
	Cap card.Float
	// PCI and UniqueID are as in [card.Reading]; each may be empty.
	PCI, UniqueID string
	// Model is the marketing name, else the target (gfx942); it may be empty.
	Model string
	// MaxGen and MaxWidth are the most that the PCIe link can have.
	MaxGen, MaxWidth card.Int
}

// ParseAMD reads what `amd-smi metric ... --json` printed, of any version: the
// GPUs by their index, without what only `static` tells. There are none, and no
// error, when nothing was printed or an empty list; a [TextError] when there is
// text and no JSON, or JSON that tells of a failure; an error, and no GPUs, when
// the output is cut off or has more of them than a machine can have.
func ParseAMD(stdout []byte) ([]card.Reading, error) {
	found, err := parseGPUs(stdout, metric)
	if err != nil {
		return nil, err
	}
	return found.sorted(), nil
}

// ParseStatic reads what `amd-smi static --limit --asic --bus --json` printed, by
// index; the errors are those of [ParseAMD].
func ParseStatic(stdout []byte) (map[int]Static, error) {
	found, err := parseGPUs(stdout, func(_ int, gpu object) Static { return static(gpu) })
	if err != nil {
		return nil, err
	}
	return found.byIndex, nil
}

// parseGPUs reads each GPU of a document. Its root is a list, or since 2025 an
// object with one.
func parseGPUs[T any](stdout []byte, read func(index int, gpu object) T) (*gpus[T], error) {
	doc, err := document(stdout, "[{")
	if err != nil || doc == nil {
		return &gpus[T]{}, err
	}
	list := doc
	if doc[0] == '{' {
		root := objectOf(doc)
		list = root["gpu_data"]
		if len(list) == 0 || list[0] != '[' {
			return nil, noList(doc, root)
		}
	}
	found := &gpus[T]{}
	for element := range elements(list) {
		gpu := objectOf(element)
		if err := found.set(gpu["gpu"], func(index int) T { return read(index, gpu) }); err != nil {
			return nil, err
		}
	}
	return found, nil
}

var errNoList = errors.New("it has no list of GPUs")

// noList says why there is no list, in the words of amd-smi when it has any.
func noList(doc []byte, root object) error {
	if said := plain([]byte(text(root["error"]))); said != "" {
		return &TextError{Text: said}
	}
	return &TextError{Text: plain(bytes.Join(bytes.Fields(doc), []byte{' '})), Cause: errNoList}
}

// metric reads one GPU. A section may be a text ("N/A") where an object is
// expected; it is as good as empty then.
func metric(index int, gpu object) card.Reading {
	usage, power, temperature := gpu.section("usage"), gpu.section("power"), gpu.section("temperature")
	r := card.Reading{
		Index:          index,
		GPU:            first(card.Percent, usage["gfx_activity"], usage["gfx_usage"], usage["apu_average_gfx_activity"]),
		MemoryActivity: first(card.Percent, usage["umc_activity"], usage["mem_usage"]),
		Memory:         memory(gpu),
		Power:          first(card.Watts, power["socket_power"], power["current_power"], power["apu_average_socket_power"]),
		Cap:            first(limit, power["power_limit"]),
		Energy:         energy(1, gpu.section("energy")["total_energy_consumption"]),
	}
	r.Temperatures[card.Mem] = first(card.Celsius, temperature["mem"])
	r.Temperatures[card.Junction] = first(card.Celsius, temperature["hotspot"])
	r.Temperatures[card.Edge] = first(card.Celsius, temperature["edge"], temperature["apu_temperature_gfx"])

	clocks := gpu.section("clock")
	r.GraphicsClock = clockOf(clocks, "gfx_0", "gfx")
	r.MemoryClock = clockOf(clocks, "mem_0", "mem")

	// The section "ecc" counts the errors of all blocks, caches included; those of
	// the memory are its controller's.
	now, before := gpu.section("ecc_blocks").section("umc"), gpu.section("ecc_block").section("umc")
	r.Corrected = counter(now["correctable_count"], before["correctable_count"])
	r.Uncorrected = counter(now["uncorrectable_count"], before["uncorrectable_count"])

	link := gpu.section("pcie")
	r.PCIe = card.PCIe{
		Gen:     generation(link["speed"], link["current_speed"]),
		Width:   lanes(link["width"], link["current_width"], link["current_lanes"]),
		Replays: counter(link["replay_count"]),
	}
	return r
}

// clockOf returns the clock of the first domain that tells one. Until ROCm 6.0 a
// clock was called cur_clk, and the domains had no numbers.
func clockOf(clocks object, domains ...string) card.Int {
	for _, domain := range domains {
		d := clocks.section(domain)
		if v := clock(d["clk"], d["cur_clk"]); v.Known {
			return v
		}
	}
	return card.Int{}
}

// memory returns the pool that counts: the card's own, on an APU the larger one,
// for how much of its memory is set apart is a setting of the firmware.
func memory(gpu object) card.Memory {
	usage := gpu.section("mem_usage")
	vram := pool(usage["used_vram"], usage["total_vram"])
	gtt := pool(usage["used_gtt"], usage["total_gtt"])
	if isAPU(gpu) && gtt.Used.Known && gtt.Total.Known && (!vram.Used.Known || gtt.Total.Value > vram.Total.Value) {
		return gtt
	}
	return vram
}

func pool(used, total json.RawMessage) card.Memory {
	return card.Memory{Used: bytesOf(used), Total: bytesOf(total)}
}

func bytesOf(mebibytes json.RawMessage) card.Int {
	v := first(func(v float64) card.Float {
		return optional.If(math.Round(v*mebi), v >= 0 && v <= maxCount/mebi)
	}, mebibytes)
	return optional.If(int64(v.Value), v.Known)
}

// isAPU tells whether the GPU has fields that only APUs have, with a figure or
// without.
func isAPU(gpu object) bool {
	if hasAPUField(gpu) {
		return true
	}
	for _, value := range gpu {
		if hasAPUField(objectOf(value)) {
			return true
		}
	}
	return false
}

func hasAPUField(o object) bool {
	for key := range o {
		if strings.HasPrefix(key, "apu_") {
			return true
		}
	}
	return false
}

// limit is [card.Watts] for caps, which may be in microwatts.
func limit(v float64) card.Float {
	if v > leastMicrowatts {
		v *= microwatt
	}
	return card.Watts(v)
}

// static reads one GPU. The present limit comes before the largest one. The serial
// number is what the driver calls the unique id.
func static(gpu object) Static {
	limits, asic, bus := gpu.section("limit"), gpu.section("asic"), gpu.section("bus")
	ppt := limits.section("ppt0")
	return Static{
		Cap:      first(limit, ppt["socket_power_limit"], limits["socket_power"], ppt["max_power_limit"], limits["max_power"]),
		PCI:      pciAddress(bus["bdf"]),
		UniqueID: uniqueID(asic["asic_serial"]),
		Model:    name(asic["market_name"], asic["target_graphics_version"]),
		MaxGen:   generation(bus["max_pcie_speed"]),
		MaxWidth: lanes(bus["max_pcie_width"], bus["max_pcie_lanes"]),
	}
}

// complete adds what only static tells.
func (s Static) complete(r *card.Reading) {
	r.Cap = r.Cap.Or(s.Cap)
	r.PCI, r.UniqueID, r.Model = s.PCI, s.UniqueID, s.Model
	r.PCIe.MaxGen, r.PCIe.MaxWidth = s.MaxGen, s.MaxWidth
}

// withoutCap is what is left when the limits cannot be read again: they are
// settings, the rest is the device's own.
func (s Static) withoutCap() Static {
	s.Cap = card.Float{}
	return s
}
