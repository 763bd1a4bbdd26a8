// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSanitize(t *testing.T) {
	for text, want := range map[string]string{
		"8MB+":              "8mb_plus",
		"8MB+-ALL_REDUCE":   "8mb_plus_all_reduce",
		"tensorcore-0":      "tensorcore_0",
		" tensor_core - 1 ": "tensor_core_1",
		"50%":               "50pct",
		"%+%":               "pct_plus_pct",
		"+":                 "plus",
		"++":                "plus_plus",
		"a__b":              "a_b",
		"Größe":             "gr_e",
		"K":                 "k", // the sign of the unit kelvin, whose lower case is a letter
		"":                  Unknown,
		" -_- ":             Unknown,
	} {
		assert.Equal(t, want, Sanitize(text), "%q", text)
	}
	assert.Len(t, Sanitize(strings.Repeat("x", 1000)), maxLength)
}

var form = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

// A label can be part of a tag, and to make it fit a second time changes nothing.
func FuzzSanitize(f *testing.F) {
	for _, text := range []string{"8MB+", "50%", "", "a+%b", "\xff", "İ", strings.Repeat("+", 100), strings.Repeat("x", 127) + "+x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Sanitize(text)
		require.Regexp(t, form, got)
		require.LessOrEqual(t, len(got), maxLength)
		require.Equal(t, got, Sanitize(got))
	})
}
