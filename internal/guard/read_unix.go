// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// Sensors behind a busy bus (hwmon) answer EAGAIN; a few more tries is all that
// a scrape can afford.
const (
	againTries = 3
	againPause = time.Millisecond
)

// file is a bare descriptor: an os.File costs allocations, a finalizer and a
// visit to the poller, none of which a file in /proc or /sys needs.
type file = int

func openFile(path string) (file, error) {
	for {
		f, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return f, err
		}
	}
}

// readFile returns 0 and no error at the end of the file.
func readFile(f file, p []byte) (int, error) {
	for again := 0; ; {
		n, err := unix.Read(f, p)
		switch {
		case err == nil:
			return n, nil
		case err == unix.EINTR:
		case err == unix.EAGAIN && again < againTries:
			again++
			time.Sleep(againPause)
		default:
			return 0, err
		}
	}
}

// closeFile ignores the error: nothing was written, and a descriptor must not
// be closed again after EINTR.
func closeFile(f file) { _ = unix.Close(f) }
