// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package runs

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// abandoned is how long nobody leaves a log that he writes.
const abandoned = 24 * time.Hour

// lock marks a log as being written, for other collectors that write into the
// same directory. Where the file system knows no locks there is no mark.
func lock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// unused tells whether nobody marks the log as being written. quiet is how long it
// has not been changed, which must do where there are no marks.
func unused(f *os.File, quiet time.Duration) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	noLocks := errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK)
	return err == nil || (noLocks && quiet > abandoned)
}

// syncFolder makes the names in a folder survive a crash of the machine.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
