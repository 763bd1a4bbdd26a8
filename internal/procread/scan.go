// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package procread parses the files of /proc that are read at every scrape.
// All functions work on bytes that the caller read, keep no state, and return
// sub-slices of their input, so that a caller with reused buffers allocates
// nothing. The formats are those of proc(5) and the kernel's
// Documentation/filesystems/proc.rst and admin-guide/iostats.rst.
//
// A line that cannot be understood does not hide the others: parsers of tables
// return what they understood together with an error for the first bad line.
package procread

import (
	"bytes"
	"fmt"
	"math"
)

// nextLine returns the first line of b without its end, and the rest.
func nextLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte{'\n'})
	return line, rest
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// nextField returns the first blank-separated field of b, and the rest. The
// field is empty when there is none.
func nextField(b []byte) (field, rest []byte) {
	i := 0
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	j := i
	for j < len(b) && !isSpace(b[j]) {
		j++
	}
	return b[i:j], b[j:]
}

// skipFields drops n fields.
func skipFields(b []byte, n int) []byte {
	for range n {
		_, b = nextField(b)
	}
	return b
}

// parseUint reads an unsigned decimal number; ok is false when b is anything
// else, or too large.
func parseUint(b []byte) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// parseInt reads a decimal number that fits an int.
func parseInt(b []byte) (int, bool) {
	n, ok := parseUint(b)
	if !ok || n > math.MaxInt {
		return 0, false
	}
	return int(n), true
}

// uintField reads the first field of b as a number.
func uintField(b []byte) (n uint64, rest []byte, ok bool) {
	field, rest := nextField(b)
	n, ok = parseUint(field)
	return n, rest, ok
}

// parseTable appends what parse makes of each line to dst, with an error for
// the first line that is not empty and not understood. before is the number of
// lines that were taken off b.
func parseTable[T any](file string, dst []T, b []byte, before int, parse func(line []byte) (T, bool)) ([]T, error) {
	var firstBad error
	for number := before + 1; len(b) > 0; number++ {
		var line []byte
		line, b = nextLine(b)
		row, ok := parse(line)
		if ok {
			dst = append(dst, row)
			continue
		}
		if firstBad == nil && len(bytes.TrimSpace(line)) > 0 {
			firstBad = badLine(file, number, line)
		}
	}
	return dst, firstBad
}

// maxQuoted keeps error texts short whatever the input is.
const maxQuoted = 80

func badLine(file string, number int, line []byte) error {
	if len(line) > maxQuoted {
		line = line[:maxQuoted]
	}
	return fmt.Errorf("%s: line %d not understood: %q", file, number, line)
}
