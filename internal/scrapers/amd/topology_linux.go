// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const (
	// maxDevices bounds the GPUs of a machine, partitions included.
	maxDevices = 256
	// maxText is what a text file of sysfs can hold: a page.
	maxText = 4096
	// maxMarketing bounds libdrm's list of names, which has some 40 KiB.
	maxMarketing = 1 << 20

	vendorAMD = "0x1002"

	nodesFolder = "sys/class/kfd/kfd/topology/nodes"
	drmFolder   = "sys/class/drm"
)

// place is where a GPU is found in sysfs, and what does not change there.
type place struct {
	// dir is the device's folder; empty when there is none.
	dir string
	// gpuID is the KFD's number of the GPU; 0 when the KFD does not know it.
	gpuID uint64
	// pci is the chip's address; partitions share it.
	pci string
	// partition is true for all partitions of a chip but the first: their folder
	// has no sensors.
	partition bool
	// number is that of the partition.
	number int
	// target is the KFD's gfx_target_version.
	target int
	// bank is the memory that the KFD tells, in bytes; 0 for none.
	bank int64
}

// folder reads below the machine's root, out of which no link leads.
type folder string

func (f folder) join(path string) (string, error) { return securejoin.SecureJoin(string(f), path) }

// text returns a file of one line; empty when it cannot be read.
func (f folder) text(path string) string {
	full, err := f.join(path)
	if err != nil {
		return ""
	}
	return textOf(full)
}

func textOf(path string) string {
	content, err := guard.ReadFile(path, maxText)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func (f folder) list(path string) ([]fs.DirEntry, error) {
	full, err := f.join(path)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(full)
}

// places lists the GPUs of the amdgpu driver in rocm-smi's order (that of ROCm 6.1
// and later): those that the KFD knows by their PCI address, the partitions of a
// chip in the order of their nodes, and then those that it does not know.
func (f folder) places() ([]place, error) {
	all := f.nodes()
	cards, err := f.cards()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the cards: %w", err)
	}
	for _, c := range cards {
		known := func(p place) bool { return p.dir == c.dir || (p.dir == "" && p.number == 0 && p.pci == c.pci) }
		if !slices.ContainsFunc(all, known) {
			all = append(all, c)
		}
	}
	if len(all) > maxDevices {
		return nil, fmt.Errorf("%d GPUs are more than the limit of %d", len(all), maxDevices)
	}
	return all, nil
}

// node is a GPU as the KFD's topology has it.
type node struct {
	place
	order uint64
}

// nodes lists the GPUs that the KFD knows. A node that a container may not see
// cannot be read, and is left out.
func (f folder) nodes() []place {
	var found []node
	for _, number := range f.numbers(nodesFolder) {
		if n, ok := f.node(filepath.Join(nodesFolder, strconv.Itoa(number))); ok {
			found = append(found, n)
		}
	}
	slices.SortStableFunc(found, func(a, b node) int { return cmp.Compare(a.order, b.order) })
	places := make([]place, len(found))
	for i, n := range found {
		places[i] = n.place
		if n.number == 0 && i > 0 && found[i-1].order == n.order { // a kernel that does not number them
			places[i].number = places[i-1].number + 1
		}
	}
	return places
}

// numbers lists the entries of a folder that are numbers, in their order.
func (f folder) numbers(path string) []int {
	entries, err := f.list(path)
	if err != nil {
		return nil
	}
	var numbers []int
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 31); err == nil {
			numbers = append(numbers, int(n))
		}
	}
	slices.Sort(numbers)
	return numbers
}

// partitionBits are the bits of a location that name the partition.
const partitionBits = 0xf0000000

func (f folder) node(path string) (node, bool) {
	id, err := strconv.ParseUint(f.text(path+"/gpu_id"), 10, 64)
	if err != nil || id == 0 { // 0 is a CPU
		return node{}, false
	}
	text := f.text(path + "/properties")
	if text == "" {
		return node{}, false
	}
	p := parseProperties([]byte(text))
	location := p.location &^ partitionBits
	n := node{
		place: place{
			gpuID: id, target: int(p.target), bank: f.banks(path + "/mem_banks"), number: int(p.location >> 28),
			pci: fmt.Sprintf("%04x:%02x:%02x.%x", p.domain, location>>8&0xff, location>>3&0x1f, location&7),
		},
		order: p.domain<<32 | location,
	}
	n.dir = f.renderFolder(p.renderMinor)
	n.partition = f.isPartition(n.dir)
	return n, true
}

// properties are those of a node that count here.
type properties struct {
	location, domain, renderMinor, target uint64
}

// parseProperties reads lines of a name and a number. What is missing is 0.
func parseProperties(b []byte) properties {
	var p properties
	for line := range bytes.Lines(b) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		to := p.field(string(name))
		if to == nil {
			continue
		}
		if n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 32); err == nil {
			*to = n
		}
	}
	return p
}

func (p *properties) field(name string) *uint64 {
	switch name {
	case "location_id":
		return &p.location
	case "domain":
		return &p.domain
	case "drm_render_minor":
		return &p.renderMinor
	case "gfx_target_version":
		return &p.target
	}
	return nil
}

// renderFolder returns the device's folder; empty when it is not there.
func (f folder) renderFolder(minor uint64) string {
	if minor == 0 {
		return ""
	}
	return f.deviceFolder(fmt.Sprintf("renderD%d", minor))
}

func (f folder) deviceFolder(name string) string {
	dir, err := f.join(filepath.Join(drmFolder, name, "device"))
	if err != nil {
		return ""
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// isPartition tells the folders that the driver makes for the further partitions
// of a chip from those of PCI.
func (f folder) isPartition(dir string) bool {
	platform, err := f.join("sys/devices/platform")
	return err == nil && strings.HasPrefix(dir, platform+"/")
}

// banks adds up the memory that the KFD tells of a node.
func (f folder) banks(path string) int64 {
	sum := int64(0)
	for _, bank := range f.numbers(path) {
		for line := range strings.Lines(f.text(filepath.Join(path, strconv.Itoa(bank), "properties"))) {
			value, ok := strings.CutPrefix(strings.TrimSpace(line), "size_in_bytes ")
			if !ok {
				continue
			}
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 && n <= math.MaxInt64-sum {
				sum += n
			}
		}
	}
	return sum
}

// cards lists the GPUs that have a card, by their PCI address. The entries of
// their connectors are not cards.
func (f folder) cards() ([]place, error) {
	entries, err := f.list(drmFolder)
	if err != nil {
		return nil, err
	}
	var found []place
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "card")
		if _, err := strconv.ParseUint(digits, 10, 31); !ok || err != nil {
			continue
		}
		dir := f.deviceFolder(e.Name())
		if dir == "" || textOf(dir+"/vendor") != vendorAMD {
			continue
		}
		driver, pci := parseUevent(textOf(dir + "/uevent"))
		if driver != "amdgpu" || slices.ContainsFunc(found, func(p place) bool { return p.dir == dir }) {
			continue
		}
		found = append(found, place{dir: dir, pci: pci, partition: f.isPartition(dir)})
	}
	slices.SortStableFunc(found, func(a, b place) int { return cmp.Compare(pciOrder(a.pci), pciOrder(b.pci)) })
	return found, nil
}

// parseUevent returns the driver of a device and its PCI address, in lower case.
func parseUevent(text string) (driver, pci string) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "DRIVER":
			driver = value
		case "PCI_SLOT_NAME":
			pci = strings.ToLower(value)
		}
	}
	return driver, pci
}

// pciOrder returns an address as a number; those that are none come last.
func pciOrder(address string) uint64 {
	var domain, bus, device, function uint64
	if n, _ := fmt.Sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function); n < 4 {
		return math.MaxUint64
	}
	return domain<<16 | bus<<8 | device<<3 | function
}
