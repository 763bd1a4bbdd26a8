// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// maxDescriptors bounds the descriptors of a process that are looked at.
const maxDescriptors = 4096

// drmClient is what a descriptor of a process tells of its use of a GPU.
type drmClient struct {
	// pci is the chip's address in lower case, id the client's number there;
	// descriptors that were handed on share it.
	pci, id string
	// memory is in bytes of the GPU's own memory.
	memory int64
	// works says that an engine worked for it.
	works bool
	// computes says that the process has the KFD open.
	computes bool
}

// clientsOf reads the descriptors of a process that are of the DRM. An error is
// that of a process that may not be looked into, or that is gone.
func clientsOf(proc string) ([]drmClient, error) {
	entries, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return nil, err
	}
	var all []drmClient
	computes := false
	for _, e := range entries[:min(len(entries), maxDescriptors)] {
		target, err := os.Readlink(filepath.Join(proc, "fd", e.Name()))
		computes = computes || (err == nil && target == "/dev/kfd")
		if err != nil || !strings.HasPrefix(target, "/dev/dri/") {
			continue
		}
		content, err := guard.ReadFile(filepath.Join(proc, "fdinfo", e.Name()), 64<<10)
		if err != nil {
			continue
		}
		if c, ok := parseClient(content); ok && !isDuplicate(all, &c) {
			all = append(all, c)
		}
	}
	for i := range all {
		all[i].computes = computes
	}
	return all, nil
}

func isDuplicate(all []drmClient, c *drmClient) bool {
	for i := range all {
		if all[i].pci == c.pci && all[i].id == c.id && c.id != "" {
			return true
		}
	}
	return false
}

// parseClient reads lines of `key:<tab>value`: those of the kernel's drm-usage-stats
// since 5.19, and those of before.
func parseClient(b []byte) (drmClient, bool) {
	var c drmClient
	driver := ""
	old := false
	resident := int64(0)
	for line := range bytes.Lines(b) {
		key, text, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		name, value := string(key), string(bytes.TrimSpace(text))
		switch {
		case name == "drm-driver":
			driver = value
		case name == "drm-pdev":
			c.pci = strings.ToLower(value)
		case name == "pdev": // before 5.19
			c.pci, old = strings.ToLower(value), true
		case name == "drm-client-id":
			c.id = value
		case name == "pasid" && c.id == "":
			c.id = "pasid " + value
		case name == "drm-memory-vram", name == "vram mem":
			c.memory = memorySize(value)
		case name == "drm-resident-vram":
			resident = memorySize(value)
		case strings.HasPrefix(name, "drm-engine-capacity-"):
		case strings.HasPrefix(name, "drm-engine-"), old && isEngine(name):
			c.works = c.works || isAboveZero(value)
		}
	}
	if c.memory == 0 {
		c.memory = resident
	}
	return c, c.pci != "" && (driver == "amdgpu" || (driver == "" && old))
}

// isEngine tells the engines of kernels before 5.19: gfx0, compute1, dma0, enc0...
func isEngine(name string) bool {
	for _, prefix := range []string{"gfx", "compute", "dma", "dec", "enc", "uvd", "vce", "jpeg"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// memorySize reads `123 KiB`; without a unit the number is in bytes.
func memorySize(text string) int64 {
	digits, unit, _ := strings.Cut(text, " ")
	n, ok := parseNumber([]byte(digits))
	if !ok || n < 0 {
		return 0
	}
	shift := 0
	switch strings.ToLower(unit) {
	case "kib", "kb":
		shift = 10
	case "mib", "mb":
		shift = 20
	case "gib", "gb":
		shift = 30
	}
	if n > maxBytes>>shift {
		return 0
	}
	return n << shift
}

// maxBytes is beyond what any GPU has.
const maxBytes = int64(1) << 52

// isAboveZero tells whether a time (`1234 ns`) or a share (`0.5%`) is above 0.
func isAboveZero(text string) bool {
	digits, _, _ := strings.Cut(text, " ")
	digits = strings.TrimRight(digits, "%")
	for _, c := range digits {
		if (c < '0' || c > '9') && c != '.' {
			return false
		}
	}
	return strings.Trim(digits, "0.") != ""
}
