// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// deviceID names a GPU in one of three ways.
type deviceID struct {
	// index is NVML's; below 0 when the GPU is named otherwise.
	index int
	// uuid is GPU-..., pci domain:bus:device.function in lower case.
	uuid, pci string
}

var (
	uuidForm = regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`)
	pciForm  = regexp.MustCompile(`^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?$`)
)

func parseDeviceID(text string) (deviceID, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return deviceID{index: int(n)}, nil
	}
	if uuidForm.MatchString(text) {
		return deviceID{index: -1, uuid: text}, nil
	}
	if lower := strings.ToLower(text); pciForm.MatchString(lower) {
		return deviceID{index: -1, pci: canonicalPCI(lower)}, nil
	}
	return deviceID{}, fmt.Errorf("%q: must be an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)", text)
}

// canonicalPCI writes an address as sysfs does: a domain of four digits, where
// that is enough, and a function. NVML has eight. What is no address stays as it
// is.
func canonicalPCI(address string) string {
	lower := strings.ToLower(address)
	if !pciForm.MatchString(lower) {
		return address
	}
	parts := strings.Split(lower, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if domain := parts[0]; len(domain) > 4 {
		parts[0] = domain[min(len(domain)-4, len(domain)-len(strings.TrimLeft(domain, "0"))):]
	}
	if !strings.Contains(parts[2], ".") {
		parts[2] += ".0"
	}
	return strings.Join(parts, ":")
}
