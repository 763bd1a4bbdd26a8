// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

type file = *os.File

func openFile(path string) (file, error) {
	f, err := os.Open(path)
	return f, bareError(err)
}

// readFile returns 0 and no error at the end of the file.
func readFile(f file, p []byte) (int, error) {
	n, err := f.Read(p)
	if errors.Is(err, io.EOF) {
		return n, nil
	}
	return n, bareError(err)
}

func closeFile(f file) { _ = f.Close() }

// bareError takes off the path, which the caller puts on.
func bareError(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
