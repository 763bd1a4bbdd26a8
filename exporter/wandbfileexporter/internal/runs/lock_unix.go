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

// lock marks a log as being written, for other collectors that write into the
// same directory. Where the file system knows no locks there is no mark.
func lock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// unused tells whether nobody marks the log as being written. quiet is how long it
// has not been changed, which must do where there are no marks.
func unused(f *os.File, quiet time.Duration) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	return err == nil || (noLocks(err) && quiet > abandoned)
}

// noLocks tells whether a file system knows no locks. Lustre says ENOSYS, unless it is
// mounted with them.
func noLocks(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK)
}

// syncFolder makes the names in a folder survive a crash of the machine, where the
// file system can do it.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
