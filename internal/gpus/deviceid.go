// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DeviceID names a GPU in one of three ways.
type DeviceID struct {
	// Index is the GPU's number; below 0 when it is named otherwise.
	Index int
	// UUID is the maker's identity, PCI domain:bus:device.function in lower case.
	UUID, PCI string
}

// IDForm is how GPUs of a maker are named.
type IDForm struct {
	// UUID is the form of the maker's identity.
	UUID *regexp.Regexp
	// Want says what a name may be.
	Want string
}

var pciForm = regexp.MustCompile(`^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(\.[0-7])?$`)

// Parse reads one name.
func (f IDForm) Parse(text string) (DeviceID, error) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return DeviceID{Index: int(n)}, nil
	}
	if f.UUID.MatchString(text) {
		return DeviceID{Index: -1, UUID: text}, nil
	}
	if lower := strings.ToLower(text); pciForm.MatchString(lower) {
		return DeviceID{Index: -1, PCI: CanonicalPCI(lower)}, nil
	}
	return DeviceID{}, fmt.Errorf("%q: must be %s", text, f.Want)
}

// ParseAll reads the key `device_ids`, in which an index is a number. Its errors
// name the place in the list.
func (f IDForm) ParseAll(values []any) ([]DeviceID, error) {
	var errs []error
	var ids []DeviceID
	seen := map[DeviceID]bool{}
	for i, value := range values {
		text := fmt.Sprint(value)
		id, err := f.Parse(text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("device_ids::%d: %w", i, err))
			continue
		case seen[id]:
			errs = append(errs, fmt.Errorf("device_ids::%d: %q: is listed twice", i, text))
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, errors.Join(errs...)
}

// CanonicalPCI writes an address as sysfs does: a domain of four digits, where
// that is enough, and a function. NVML has eight. What is no address stays as it
// is.
func CanonicalPCI(address string) string {
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
