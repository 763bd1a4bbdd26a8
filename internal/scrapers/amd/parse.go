// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"bytes"
	"math"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// parseNumber reads a whole decimal number that fits in 63 bits.
func parseNumber(b []byte) (int64, bool) {
	digits, negative := bytes.CutPrefix(b, []byte("-"))
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// parseErrors reads `ue: 0` and `ce: 0`, one each line.
func parseErrors(b []byte) (corrected, uncorrected card.Int) {
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		n, ok := parseNumber(bytes.TrimSpace(value))
		if !ok || n < 0 {
			continue
		}
		switch string(bytes.TrimSpace(key)) {
		case "ce":
			corrected = optional.Some(n)
		case "ue":
			uncorrected = optional.Some(n)
		}
	}
	return corrected, uncorrected
}

// linkSpeeds are those of the generations of PCIe, from the first, in GT/s.
var linkSpeeds = []string{"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"}

// linkGeneration reads `16.0 GT/s PCIe`; older kernels write `8 GT/s`.
func linkGeneration(b []byte) card.Int {
	speed, _, _ := bytes.Cut(b, []byte(" "))
	for i, s := range linkSpeeds {
		if string(speed) == s || string(speed)+".0" == s {
			return optional.Some(int64(i + 1))
		}
	}
	return card.Int{}
}
