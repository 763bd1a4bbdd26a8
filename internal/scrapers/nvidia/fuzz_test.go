// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A device id names a GPU in one way, and is the same however it is written.
func FuzzParseDeviceID(f *testing.F) {
	for _, text := range []string{
		"", "0", "15", "65535", "65536", "-1", "+1", "007", "GPU-", "GPU-1a2B", "gpu-1", "MIG-GPU-1/2/3", "3b:00", "3B:00.0",
		"0000:3b:00.0", "00010000:01:00.7", "10000:01:00.8", "00000:01:00", "GPU-1\n", "3b:00.0\n", "\u212a:00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parseDeviceID(text)
		if err != nil {
			require.Zero(t, id)
			return
		}
		require.Less(t, id.index, 1<<16)
		ways := 0
		for _, named := range []bool{id.index >= 0, id.uuid != "", id.pci != ""} {
			if named {
				ways++
			}
		}
		require.Equal(t, 1, ways)
		if id.uuid != "" {
			require.Equal(t, text, id.uuid)
		}
		if id.pci == "" {
			return
		}
		for _, other := range []string{id.pci, strings.ToUpper(text), strings.ToLower(text)} {
			again, err := parseDeviceID(other)
			require.NoError(t, err)
			require.Equal(t, id, again)
		}
	})
}

// An address is written in one way, as sysfs does, and what is none stays.
func FuzzCanonicalPCI(f *testing.F) {
	for _, address := range []string{
		"", ":", "::", "3b:00", "3b:00.0", "0000:3b:00.0", "00000000:3B:00.0", "00010000:01:00.7", "0000a:0f:1f.1", "a:b:c:d", "pci0000:00",
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		got := canonicalPCI(address)
		require.Equal(t, got, canonicalPCI(got))
		if !pciForm.MatchString(strings.ToLower(address)) {
			require.Equal(t, address, got)
			return
		}
		require.Regexp(t, `^([1-9a-f][0-9a-f]{0,3})?[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`, got)
		// NVML writes the same address with eight digits.
		domain, rest, _ := strings.Cut(got, ":")
		require.Equal(t, got, canonicalPCI(strings.Repeat("0", 8-len(domain))+strings.ToUpper(domain+":"+rest)))
	})
}
