// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"io/fs"
	"slices"
)

// ReadHead is [ReadInto] for files of which the beginning is enough: it returns
// at most limit bytes, and more is no error.
func ReadHead(path string, buf []byte, limit int) ([]byte, error) {
	buf = buf[:0]
	f, err := openFile(path)
	if err != nil {
		return buf, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer closeFile(f)
	for len(buf) < limit {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(cap(buf), firstRead))
		}
		n, err := readFile(f, buf[len(buf):min(cap(buf), limit)])
		if err != nil {
			return buf[:0], &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		buf = buf[:len(buf)+n]
	}
	return buf, nil
}
