// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"io/fs"
	"slices"
)

// firstRead is the room that a read without a buffer starts with: most files in
// /proc fit, and sysfs gives a page at most.
const firstRead = 4096

// ReadFile returns the contents of a file of up to limit bytes; more is a
// [LimitError]. Other errors are [fs.PathError].
func ReadFile(path string, limit int64) ([]byte, error) {
	buf, err := ReadInto(path, nil, limit)
	if err != nil {
		return nil, err
	}
	return buf, nil
}

// ReadInto is ReadFile into buf[:0], which grows as needed; the result replaces
// buf. After an error that is an empty slice with its room to be used again.
//
// It blocks for as long as the file does (a hung driver, a FIFO, a dead mount):
// where that can happen it belongs inside [Call].
func ReadInto(path string, buf []byte, limit int64) ([]byte, error) {
	buf = buf[:0]
	f, err := openFile(path)
	if err != nil {
		return buf, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer closeFile(f)
	return readOpen(f, path, buf, limit)
}

// readOpen reads an open file from where it stands to its end.
func readOpen(f file, path string, buf []byte, limit int64) ([]byte, error) {
	limit = max(limit, 0)
	for int64(len(buf)) <= limit {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(cap(buf), firstRead))
		}
		// One byte more than allowed tells "just full" from "too large".
		room := buf[len(buf):cap(buf)]
		if left := limit - int64(len(buf)); int64(len(room))-1 > left {
			room = room[:left+1]
		}
		n, err := readFile(f, room)
		if err != nil {
			return buf[:0], &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
	return buf[:0], &LimitError{What: path, Max: limit}
}
