// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package chips finds the TPU chips of a machine by their numbers on the PCI bus,
// without their driver.
package chips

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const (
	google = 0x1ae0
	// accelerator is the class of processing accelerators, in its highest byte.
	accelerator = 0x12
	// maxNumber is far above the size of the files, which have one number.
	maxNumber = 64
)

// Generation is what is known of a kind of chip.
type Generation struct {
	// Name is Google's.
	Name string
	// DevicesPerChip is the number of devices that the runtime sees in a chip.
	DevicesPerChip int
	// DutyPerChip says that the runtime tells the duty cycle of chips, not of devices.
	DutyPerChip bool

	// functions is how many functions of PCI a chip has.
	functions int
}

// Unknown are accelerators of Google that this table does not have.
var Unknown = Generation{Name: "unknown", DevicesPerChip: 1, functions: 1}

var (
	v2 = Generation{Name: "v2", DevicesPerChip: 2, DutyPerChip: true, functions: 1}
	v3 = Generation{Name: "v3", DevicesPerChip: 2, DutyPerChip: true, functions: 1}
)

// generations has those that the device number tells.
var generations = map[uint64]Generation{
	0x005e: {Name: "v4", DevicesPerChip: 1, functions: 1},
	0x0063: {Name: "v5e", DevicesPerChip: 1, functions: 1},
	0x0062: {Name: "v5p", DevicesPerChip: 1, functions: 1},
	0x006f: {Name: "v6e", DevicesPerChip: 1, functions: 1},
	0x0076: {Name: "7x", DevicesPerChip: 2, functions: 2},
}

// Found are the chips of a machine; without any, Chips is 0.
type Found struct {
	Generation Generation
	Chips      int
	// Groups are the numbers that the chips have below /dev/vfio.
	Groups []string
}

// Devices is the number of devices that the runtime sees; 0 where it is not known.
func (f *Found) Devices() int { return f.Chips * f.Generation.DevicesPerChip }

// address is that of a function: domain:bus:device.function.
var address = regexp.MustCompile(`^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]$`)

// Find looks for chips below a root folder. What cannot be read is left out; the error
// is that of a bus that cannot be listed. It may block as any read of a file.
func Find(root string) (Found, error) {
	bus := filepath.Join("/", root, "sys/bus/pci/devices")
	entries, err := os.ReadDir(bus)
	if os.IsNotExist(err) {
		return Found{}, nil // a machine without PCI
	}
	if err != nil {
		return Found{}, fmt.Errorf("listing the PCI devices: %w", err)
	}
	byName := map[string]*hosted{}
	for _, e := range entries {
		part := address.FindStringSubmatch(e.Name())
		if part == nil {
			continue
		}
		folder := filepath.Join(bus, e.Name())
		g, ok := generationOf(folder)
		if !ok {
			continue
		}
		h := byName[g.Name]
		if h == nil {
			h = &hosted{generation: g, slots: map[string]bool{}}
			byName[g.Name] = h
		}
		h.functions++
		h.slots[part[1]] = true
		if group, err := os.Readlink(filepath.Join(folder, "iommu_group")); err == nil {
			h.groups = append(h.groups, filepath.Base(group))
		}
	}
	return most(byName), nil
}

// hosted are the functions of one generation.
type hosted struct {
	generation Generation
	functions  int
	slots      map[string]bool
	groups     []string
}

// chips counts them by their slots. Where each function of a chip has a slot of its
// own, as virtual machines may show them, the table tells how many make a chip.
func (h *hosted) chips() int {
	if len(h.slots) < h.functions {
		return len(h.slots)
	}
	return (h.functions + h.generation.functions - 1) / h.generation.functions
}

// most returns what the machine has most of: an accelerator of another kind must not
// hide the known ones.
func most(byName map[string]*hosted) Found {
	var best *hosted
	for _, h := range byName {
		if best == nil || h.before(best) {
			best = h
		}
	}
	if best == nil {
		return Found{}
	}
	slices.Sort(best.groups)
	return Found{Generation: best.generation, Chips: best.chips(), Groups: slices.Compact(best.groups)}
}

func (h *hosted) before(other *hosted) bool {
	if unknown := h.generation == Unknown; unknown != (other.generation == Unknown) {
		return !unknown
	}
	if a, b := h.chips(), other.chips(); a != b {
		return a > b
	}
	return h.generation.Name < other.generation.Name
}

// generationOf tells what a function of PCI is part of. Google's number alone is not
// enough: its network cards and disks have it too.
func generationOf(folder string) (Generation, bool) {
	number := func(name string) (uint64, bool) { return readNumber(filepath.Join(folder, name)) }
	if vendor, ok := number("vendor"); !ok || vendor != google {
		return Generation{}, false
	}
	device, ok := number("device")
	if !ok {
		return Generation{}, false
	}
	if device == 0x0027 {
		if subsystem, _ := number("subsystem_device"); subsystem == 0x004e {
			return v2, true
		}
		return v3, true // v2 and v3 differ in their name alone
	}
	if g, ok := generations[device]; ok {
		return g, true
	}
	class, ok := number("class")
	return Unknown, ok && class>>16 == accelerator
}

func readNumber(file string) (uint64, bool) {
	content, err := guard.ReadFile(file, maxNumber)
	if err != nil {
		return 0, false
	}
	return parseNumber(string(content))
}

// parseNumber reads a number as the kernel writes it: 0x1ae0.
func parseNumber(text string) (uint64, bool) {
	digits, ok := strings.CutPrefix(strings.TrimSpace(text), "0x")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	return n, err == nil
}
