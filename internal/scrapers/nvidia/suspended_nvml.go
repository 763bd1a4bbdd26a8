// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// awake lists the GPUs that the system has not put to sleep, by what sysfs says:
// NVML wakes each that it is asked for.
func (p *pass) awake() []candidate {
	entries, err := os.ReadDir(p.pci)
	if err != nil {
		p.partial = true
		p.sink.fail("sysfs", err)
		return nil
	}
	for _, id := range p.ids {
		if id.PCI != "" && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return gpus.CanonicalPCI(e.Name()) == id.PCI }) {
			p.unmatched(id.PCI)
		}
	}
	var all []candidate
	for _, e := range entries {
		if p.isAwakeGPU(e.Name()) && p.mayBeSelected(e.Name()) {
			all = append(all, candidate{index: -1, address: e.Name()})
		}
	}
	return all
}

func (p *pass) isAwakeGPU(address string) bool {
	if p.attribute(address, "vendor") != "0x10de" || !strings.HasPrefix(p.attribute(address, "class"), "0x03") {
		return false
	}
	switch p.attribute(address, "power/runtime_status") {
	case "suspended", "suspending":
		return false
	}
	return true
}

// mayBeSelected keeps what is named by its address, and all when some are named
// by what only NVML knows.
func (p *pass) mayBeSelected(address string) bool {
	named := len(p.ids) > 0
	for _, id := range p.ids {
		named = named && id.PCI != "" && id.PCI != gpus.CanonicalPCI(address)
	}
	return !named
}

func (p *pass) attribute(address, name string) string {
	content, err := guard.ReadFile(filepath.Join(p.pci, address, name), 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}
