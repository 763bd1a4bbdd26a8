// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package label makes labels of TPU metrics fit for tags, as W&B does.
package label

import "strings"

// Unknown is the label where there is none.
const Unknown = "unknown"

// maxLength bounds a label in bytes: real ones are sizes and names of operations.
const maxLength = 128

// Sanitize returns the label in lower case, with `+` as `_plus_`, `%` as `pct`, and
// one `_` for each run of other characters than letters and digits. It has none at
// its ends. What is left empty is Unknown.
func Sanitize(text string) string {
	b := make([]byte, 0, min(len(text), maxLength))
	for _, r := range strings.ToLower(strings.TrimSpace(text)) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b = append(b, byte(r))
		case r == '+':
			b = append(separate(b), "plus_"...)
		case r == '%':
			b = append(b, "pct"...)
		default:
			b = separate(b)
		}
		if len(b) >= maxLength {
			break
		}
	}
	if s := strings.Trim(string(b[:min(len(b), maxLength)]), "_"); s != "" {
		return s
	}
	return Unknown
}

func separate(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] == '_' {
		return b
	}
	return append(b, '_')
}
