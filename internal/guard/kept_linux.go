// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// KeptFile is a file of /proc, /sys or a control group that is read again and
// again. It stays open, which saves more than half of the cost of a read, and
// for a file of a process makes sure that it is still the same process. A file
// that is not on such a file system, but below a recorded root, is opened anew
// each time. The zero value with a Path is ready. Not safe for concurrent use.
type KeptFile struct {
	Path string

	fd   int
	kept bool
	read bool // since it was opened
}

// ReadInto is like the function of that name. After an error the next call
// opens the file anew; so does this one when its device went away since the last
// call, which may have come back (a driver that was reset).
func (f *KeptFile) ReadInto(buf []byte, limit int64) ([]byte, error) {
	wasKept := f.kept
	buf, err := f.readInto(buf[:0], limit)
	if wasKept && errors.Is(err, unix.ENODEV) {
		return f.readInto(buf[:0], limit)
	}
	return buf, err
}

func (f *KeptFile) readInto(buf []byte, limit int64) ([]byte, error) {
	if !f.kept {
		fd, err := openFile(f.Path)
		if err != nil {
			return buf, &fs.PathError{Op: "open", Path: f.Path, Err: err}
		}
		if !isKept(fd) {
			defer closeFile(fd)
			return readOpen(fd, f.Path, buf, limit)
		}
		f.fd, f.kept = fd, true
	}
	buf, err := f.pread(buf, max(limit, 0))
	if err != nil {
		f.Close()
		return buf[:0], err
	}
	f.read = true
	return buf, nil
}

// Changed tells whether the file may differ from what was read last. Only
// mount tables can say no.
func (f *KeptFile) Changed() bool {
	if !f.kept || !f.read {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return err != nil || (n > 0 && fds[0].Revents&(unix.POLLPRI|unix.POLLERR) != 0)
}

// Close closes the file; a later read opens it again.
func (f *KeptFile) Close() {
	if f.kept {
		closeFile(f.fd)
	}
	f.kept, f.read = false, false
}

// isKept tells whether the file makes its contents anew at every read.
func isKept(fd file) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch st.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return true
	}
	return false
}

func (f *KeptFile) pread(buf []byte, limit int64) ([]byte, error) {
	for again := 0; ; {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(cap(buf), firstRead))
		}
		n, err := unix.Pread(f.fd, buf[len(buf):cap(buf)], int64(len(buf)))
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN && again < againTries {
			again++
			time.Sleep(againPause)
			continue
		}
		if err != nil {
			return buf, &fs.PathError{Op: "read", Path: f.Path, Err: err}
		}
		if n == 0 {
			return buf, nil
		}
		if buf = buf[:len(buf)+n]; int64(len(buf)) > limit {
			return buf, &LimitError{What: f.Path, Max: limit}
		}
	}
}
