// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import "bytes"

// Mount is one line of /proc/PID/mountinfo, escapes resolved.
type Mount struct {
	// Major and Minor are st_dev of files below the mount; major 0 is an
	// anonymous device (overlay, btrfs, nfs).
	Major, Minor uint64
	// Root is the part of the file system that is mounted.
	Root []byte
	// MountPoint is relative to the root of the process whose file this is.
	MountPoint []byte
	FSType     []byte
	Source     []byte
	// SuperOptions are those of the file system, separated by commas: for a
	// hierarchy of control groups of version 1 its controllers are among them.
	SuperOptions []byte
}

var blank = []byte{' '}

// ParseMountinfo appends the lines of /proc/PID/mountinfo to dst.
func ParseMountinfo(dst []Mount, b []byte) ([]Mount, error) {
	return parseTable("mountinfo", dst, b, 0, parseMount)
}

// parseMount reads "id parent major:minor root mountpoint options [tags...] -
// fstype source superoptions". The fields are separated by single blanks, and
// the source may be empty. Other white space is escaped or, like a carriage
// return, part of a name.
func parseMount(line []byte) (m Mount, ok bool) {
	_, rest, _ := bytes.Cut(line, blank)
	_, rest, _ = bytes.Cut(rest, blank)
	device, rest, _ := bytes.Cut(rest, blank)
	major, minor, found := bytes.Cut(device, []byte{':'})
	if !found {
		return m, false
	}
	if m.Major, ok = parseUint(major); !ok {
		return m, false
	}
	if m.Minor, ok = parseUint(minor); !ok {
		return m, false
	}
	root, rest, _ := bytes.Cut(rest, blank)
	point, rest, found := bytes.Cut(rest, blank)
	if !found || len(point) == 0 {
		return m, false
	}
	// The separator cannot be part of a field before it: tags have a colon or
	// are words, and the options are never just a dash.
	_, tail, found := bytes.Cut(rest, []byte(" - "))
	if !found {
		return m, false
	}
	fsType, tail, _ := bytes.Cut(tail, blank)
	source, options, _ := bytes.Cut(tail, blank)
	m.Root, m.MountPoint = unescape(root), unescape(point)
	m.FSType, m.Source, m.SuperOptions = fsType, unescape(source), options
	return m, true
}

// unescape resolves \040 and its like. It copies only what has an escape.
func unescape(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if c, ok := octal(b[i:]); ok {
			out = append(out, c)
			i += 3
			continue
		}
		out = append(out, b[i])
	}
	return out
}

// octal reads a backslash and three octal digits.
func octal(b []byte) (byte, bool) {
	if len(b) < 4 || b[0] != '\\' || b[1] > '3' {
		return 0, false
	}
	var c byte
	for _, d := range b[1:4] {
		if d < '0' || d > '7' {
			return 0, false
		}
		c = c<<3 | (d - '0')
	}
	return c, true
}
