// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

var (
	// cardKey is the key of a GPU; the number in it is the index.
	cardKey = regexp.MustCompile(`^card(\d+)$`)
	// linkForm is the link in "1 (16.0GT/s x16)".
	linkForm = regexp.MustCompile(`\(([0-9.]+) *GT/s,? *x([0-9]+)`)
)

const (
	hbmPrefix = "temperature (sensor hbm "
	microJ    = 1e-6
)

// ParseROCm reads what `rocm-smi ... --json` printed, of any version: the GPUs by
// their index. There are none, and no error, when nothing was printed or nothing
// but the system; a [TextError] when there is text and no JSON; an error, and no
// GPUs, when the output is cut off or has more of them than a machine can have.
func ParseROCm(stdout []byte) ([]card.Reading, error) {
	doc, err := document(stdout, "{")
	if err != nil {
		return nil, err
	}
	var found gpus[card.Reading]
	for key, value := range members(doc) {
		n := cardKey.FindStringSubmatch(key)
		if n == nil {
			continue
		}
		if err := found.set(json.RawMessage(n[1]), func(index int) card.Reading { return rocmCard(index, objectOf(value)) }); err != nil {
			return nil, err
		}
	}
	return found.sorted(), nil
}

// rocmCard reads one GPU. Of the keys for one figure those of the versions come
// first, and last the one of the dump of gpu_metrics that -a has since 6.3. The
// keys of the extended figures are as recorded output of -a has them.
func rocmCard(index int, c object) card.Reading {
	r := card.Reading{
		Index:    index,
		PCI:      pciAddress(c["pci bus"]),
		UniqueID: uniqueID(c["unique id"]),
		Model:    name(c["card series"], c["device name"], c["gfx version"]),
		GPU:      first(card.Percent, c["gpu use (%)"], c["average_gfx_activity (%)"]),
		// Until 6.1.0 "GPU memory use" is how busy the memory is, not how full.
		MemoryActivity: first(card.Percent, c["gpu memory read/write activity (%)"], c["gpu memory use (%)"], c["average_umc_activity (%)"]),
		OverDrive:      first(card.Percent, c["gpu memory overdrive value (%)"]),
		Memory: card.Memory{
			Used:    counter(c["vram total used memory (b)"]),
			Total:   counter(c["vram total memory (b)"]),
			Rounded: first(card.Percent, c["gpu memory allocated (vram%)"]),
		},
		Power: first(card.Watts, c["average graphics package power (w)"], c["current socket graphics package power (w)"],
			c["average_socket_power (w)"], c["current_socket_power (w)"]),
		Cap:           first(card.Watts, c["max graphics package power (w)"]),
		GraphicsClock: clock(c["sclk clock speed:"]),
		MemoryClock:   clock(c["mclk clock speed:"]),
		Energy:        energy(microJ, c["accumulated energy (uj)"]),
		PCIe:          card.PCIe{Replays: counter(c["pcie replay count"])},
	}
	r.Temperatures[card.Mem] = first(card.Celsius, c["temperature (sensor memory) (c)"], c["temperature (sensor mem) (c)"],
		c["temperature_mem (c)"]).Or(hottestHBM(c))
	r.Temperatures[card.Junction] = first(card.Celsius, c["temperature (sensor junction) (c)"], c["temperature_hotspot (c)"])
	r.Temperatures[card.Edge] = first(card.Celsius, c["temperature (sensor edge) (c)"], c["temperature_edge (c)"])
	if link := linkForm.FindStringSubmatch(text(c["pcie clock level"])); link != nil {
		r.PCIe.Gen, r.PCIe.Width = generation(json.RawMessage(link[1])), lanes(json.RawMessage(link[2]))
	}
	return r
}

// hottestHBM returns the highest temperature of the memory's stacks.
func hottestHBM(c object) card.Float {
	var hottest card.Float
	for key, value := range c {
		if !strings.HasPrefix(key, hbmPrefix) {
			continue
		}
		if t := first(card.Celsius, value); t.Known {
			hottest = optional.Some(max(hottest.Value, t.Value))
		}
	}
	return hottest
}
