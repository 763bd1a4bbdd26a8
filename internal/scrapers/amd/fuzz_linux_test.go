// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wholeNumber is what parseNumber reads, but for its size.
var wholeNumber = regexp.MustCompile(`^-?[0-9]{1,19}$`)

func FuzzParseNumber(f *testing.F) {
	for _, text := range []string{"0", "97", "-1", "206158430208", "9223372036854775807", "9223372036854775808", "", "-", "1.5", " 1", "+1", "--1", "00000000000000000001"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := parseNumber([]byte(text))
		want, isNumber := new(big.Int).SetString(text, 10)
		// The least number of 64 bits has one digit's worth less on the other side.
		isNumber = isNumber && wholeNumber.MatchString(text) && new(big.Int).Abs(want).IsInt64()
		require.Equal(t, isNumber, ok)
		if ok {
			assert.Equal(t, want.Int64(), n)
		}
	})
}

func FuzzParseProperties(f *testing.F) {
	f.Add([]byte("simd_count 320\nlocation_id 1280\ndomain 1\ndrm_render_minor 128\ngfx_target_version 90402\n"))
	f.Add([]byte("location_id 4294967296\ndomain\n drm_render_minor  128 \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := parseProperties(text)
		for _, v := range []uint64{p.location, p.domain, p.renderMinor, p.target} {
			assert.Less(t, v, uint64(1)<<32)
		}
		assert.Equal(t, p, parseProperties(append(text, "\nunknown 7\n"...)), "lines of another name change nothing")
	})
}

func FuzzParseClient(f *testing.F) {
	for _, text := range []string{
		"pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t31\ndrm-pdev:\t0000:05:00.0\ndrm-memory-vram:\t100653808 KiB\ndrm-engine-gfx:\t12 ns\n",
		"drm-driver:\tamdgpu\ndrm-pdev:\t0000:05:00.0\ndrm-engine-capacity-gfx:\t4\n",
		"pdev:\t0000:05:00.0\npasid:\t3\nvram mem:\t123 kB\ngfx0:\t1.2%\n",
		"drm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\n",
		"drm-driver:\tamdgpu\ndrm-pdev:\t0000:05:00.0\ndrm-memory-vram:\t9999999999999999999 GiB\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, ok := parseClient(text)
		assert.GreaterOrEqual(t, c.memory, int64(0))
		assert.LessOrEqual(t, c.memory, maxBytes)
		assert.Equal(t, strings.ToLower(c.pci), c.pci)
		if ok {
			assert.NotEmpty(t, c.pci)
		}
		// What tells how many engines there are is no work.
		again, _ := parseClient(append(text, "\ndrm-engine-capacity-gfx:\t4\n"...))
		assert.Equal(t, c, again)
	})
}

func FuzzParseUevent(f *testing.F) {
	f.Add("DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:C1:00.0\nMODALIAS=pci:v00001002d\n")
	f.Add("DRIVER\nPCI_SLOT_NAME=\n=x\n")
	f.Fuzz(func(t *testing.T, text string) {
		driver, pci := parseUevent(text)
		assert.NotContains(t, driver+pci, "\n")
		assert.Equal(t, strings.ToLower(pci), pci)
		assert.Contains(t, text, driver)
		_ = pciOrder(pci)
	})
}

func FuzzParseMarketing(f *testing.F) {
	f.Add("# comment, with, commas\n1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n744c,\tc8,\tAMD Radeon RX 7900 XTX, a name\n")
	f.Add(",,\n,\n#\n")
	f.Fuzz(func(t *testing.T, text string) {
		names := parseMarketing(text)
		assert.LessOrEqual(t, len(names), strings.Count(text, "\n")+1)
		for key, name := range names {
			assert.Equal(t, strings.TrimSpace(name), name)
			device, revision, _ := strings.Cut(key, "/")
			if utf8.ValidString(text) && !strings.Contains(revision, "/") {
				assert.Contains(t, names, marketingKey(device, revision))
			}
		}
	})
}

func FuzzParseErrors(f *testing.F) {
	for _, text := range []string{"ue: 2\nce: 31\n", "ue: -1\nce:\n", "ce: 1\nce: 2\nue: x\n", "query not supported\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		corrected, uncorrected := parseErrors(text)
		assert.GreaterOrEqual(t, corrected.Value, int64(0))
		assert.GreaterOrEqual(t, uncorrected.Value, int64(0))
		if corrected.Known {
			assert.Contains(t, string(text), "ce")
		}
		if uncorrected.Known {
			assert.Contains(t, string(text), "ue")
		}
	})
}

func FuzzLinkGeneration(f *testing.F) {
	for _, text := range []string{"2.5 GT/s PCIe", "8 GT/s", "64.0 GT/s PCIe", "Unknown", "", "16.0"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if g := linkGeneration(text); g.Known {
			assert.GreaterOrEqual(t, g.Value, int64(1))
			assert.LessOrEqual(t, g.Value, int64(len(linkSpeeds)))
		}
	})
}
