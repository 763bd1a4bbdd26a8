// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var testForm = IDForm{UUID: regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`), Want: "a name"}

func TestCanonicalPCI(t *testing.T) {
	for address, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0",
		"0000:3b:00.0":     "0000:3b:00.0",
		"3b:00.0":          "0000:3b:00.0",
		"3b:00":            "0000:3b:00.0",
		"00010000:01:00.0": "10000:01:00.0", // a domain that needs five digits, as behind VMD
		"10000:01:00.0":    "10000:01:00.0",
		"0000000a:01:00.1": "000a:01:00.1",
		"00012345:0F:1f.7": "12345:0f:1f.7",
	} {
		assert.Equal(t, want, CanonicalPCI(address), address)
	}
}

func TestDeviceIDsNameTheirPlace(t *testing.T) {
	ids, err := testForm.ParseAll([]any{0, "GPU-1", "3B:00"})
	require.NoError(t, err)
	assert.Equal(t, []DeviceID{{Index: 0}, {Index: -1, UUID: "GPU-1"}, {Index: -1, PCI: "0000:3b:00.0"}}, ids)
	_, err = testForm.ParseAll([]any{"0", -1, 0, 1.5})
	require.EqualError(t, err, "device_ids::1: \"-1\": must be a name\ndevice_ids::2: \"0\": is listed twice\ndevice_ids::3: \"1.5\": must be a name")
}

// A device id names a GPU in one way, and is the same however it is written.
func FuzzParseDeviceID(f *testing.F) {
	for _, text := range []string{
		"", "0", "15", "65535", "65536", "-1", "+1", "007", "GPU-", "GPU-1a2B", "gpu-1", "MIG-GPU-1/2/3", "3b:00", "3B:00.0",
		"0000:3b:00.0", "00010000:01:00.7", "10000:01:00.8", "00000:01:00", "GPU-1\n", "3b:00.0\n", "\u212a:00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := testForm.Parse(text)
		if err != nil {
			require.Zero(t, id)
			return
		}
		require.Less(t, id.Index, 1<<16)
		ways := 0
		for _, named := range []bool{id.Index >= 0, id.UUID != "", id.PCI != ""} {
			if named {
				ways++
			}
		}
		require.Equal(t, 1, ways)
		if id.UUID != "" {
			require.Equal(t, text, id.UUID)
		}
		if id.PCI == "" {
			return
		}
		for _, other := range []string{id.PCI, strings.ToUpper(text), strings.ToLower(text)} {
			again, err := testForm.Parse(other)
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
		got := CanonicalPCI(address)
		require.Equal(t, got, CanonicalPCI(got))
		if !pciForm.MatchString(strings.ToLower(address)) {
			require.Equal(t, address, got)
			return
		}
		require.Regexp(t, `^([1-9a-f][0-9a-f]{0,3})?[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`, got)
		// NVML writes the same address with eight digits.
		domain, rest, _ := strings.Cut(got, ":")
		require.Equal(t, got, CanonicalPCI(strings.Repeat("0", 8-len(domain))+strings.ToUpper(domain+":"+rest)))
	})
}
