// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package chips

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

type bus struct{ scraperstest.Machine }

func (b bus) add(address, vendor, device, subsystem, class string) string {
	folder := "sys/bus/pci/devices/" + address + "/"
	for name, content := range map[string]string{"vendor": vendor, "device": device, "subsystem_device": subsystem, "class": class} {
		if content != "" {
			b.Write(folder+name, content+"\n")
		}
	}
	return folder
}

func TestFind(t *testing.T) {
	tpu := func(device, subsystem string, addresses ...string) func(bus) {
		return func(b bus) {
			for _, a := range addresses {
				b.add(a, "0x1ae0", device, subsystem, "0x120000")
			}
		}
	}
	four := []string{"0000:00:04.0", "0000:00:05.0", "0000:00:06.0", "0000:00:07.0"}
	for name, tt := range map[string]struct {
		bus            func(bus)
		generation     string
		chips, devices int
	}{
		"no bus":                {func(bus) {}, "", 0, 0},
		"v2":                    {tpu("0x0027", "0x004e", four...), "v2", 4, 8},
		"v3":                    {tpu("0x0027", "0x004f", four...), "v3", 4, 8},
		"v3 without subsystem":  {tpu("0x0027", "", four...), "v3", 4, 8},
		"v4":                    {tpu("0x005e", "", four...), "v4", 4, 4},
		"v5e":                   {tpu("0x0063", "", four...), "v5e", 4, 4},
		"v5p":                   {tpu("0x0062", "", four...), "v5p", 4, 4},
		"v6e":                   {tpu("0x006f", "", four...), "v6e", 4, 4},
		"7x, functions apart":   {tpu("0x0076", "", four...), "7x", 2, 4},
		"7x, functions of one":  {tpu("0x0076", "", "0000:00:04.0", "0000:00:04.1", "0000:00:05.0", "0000:00:05.1"), "7x", 2, 4},
		"two functions of a v4": {tpu("0x005e", "", "0000:00:04.0", "0000:00:04.1"), "v4", 1, 1},
		"an unknown one":        {tpu("0x0099", "", four...), "unknown", 4, 4},
		"unknown ones do not hide known ones": {func(b bus) {
			tpu("0x0099", "", four...)(b)
			tpu("0x006f", "", "0000:01:04.0")(b)
		}, "v6e", 1, 1},
		"Google's other devices are none": {func(b bus) {
			b.add("0000:00:03.0", "0x1ae0", "0x0042", "", "0x020000") // gVNIC
			b.add("0000:00:04.0", "0x1ae0", "0x001f", "", "0x010802") // disk
			b.add("0000:00:05.0", "0x10de", "0x0063", "", "0x030200")
		}, "", 0, 0},
		"what cannot be read is left out": {func(b bus) {
			b.add("0000:00:04.0", "0x1ae0", "0x006f", "", "")
			b.add("0000:00:05.0", "0x1ae0", "", "", "0x120000")
			b.add("0000:00:06.0", "", "0x006f", "", "")
			b.add("0000:00:07.0", "1ae0", "0x006f", "", "")
			b.add("not-an-address", "0x1ae0", "0x006f", "", "")
			b.Unreadable("sys/bus/pci/devices/0000:00:08.0/vendor")
		}, "v6e", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := bus{scraperstest.NewMachine(t)}
			tt.bus(b)
			got, err := Find(b.Root)
			require.NoError(t, err)
			assert.Equal(t, tt.generation, got.Generation.Name)
			assert.Equal(t, tt.chips, got.Chips)
			assert.Equal(t, tt.devices, got.Devices())
		})
	}
}

func TestGroupsAreThoseOfTheChips(t *testing.T) {
	b := bus{scraperstest.NewMachine(t)}
	for i := range 12 { // more than nine
		folder := b.add(fmt.Sprintf("0000:00:%02x.0", i+4), "0x1ae0", "0x006f", "", "")
		b.Link(folder+"iommu_group", fmt.Sprintf("../../../../kernel/iommu_groups/%d", i+7))
	}
	got, err := Find(b.Root)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18"}, got.Groups)
}

func TestABusThatCannotBeListedIsAnError(t *testing.T) {
	b := bus{scraperstest.NewMachine(t)}
	b.Write("sys/bus/pci/devices", "no folder")
	_, err := Find(b.Root)
	require.ErrorContains(t, err, "listing the PCI devices: ")
}

// A number is what the kernel writes.
func FuzzParseNumber(f *testing.F) {
	for _, text := range []string{"0x1ae0\n", "0x", "1ae0", "0x1AE0", "0x-1", "0x120000", "0xfffffffff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := parseNumber(text); ok {
			again, ok := parseNumber(fmt.Sprintf("0x%04x\n", n))
			require.True(t, ok)
			require.Equal(t, n, again)
		}
	})
}
