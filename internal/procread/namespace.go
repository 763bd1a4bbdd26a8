// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

// ParseNSpid appends the pids of the line NSpid of /proc/PID/status to dst: the
// process' pid in the reader's pid namespace first, in its own innermost one
// last. A file without the line (before Linux 4.1, sandboxes) has none.
func ParseNSpid(dst []int, b []byte) ([]int, error) {
	line, list, number, found := findLine(b, "NSpid:")
	if !found {
		return dst, nil
	}
	for {
		var field []byte
		if field, list = nextField(list); len(field) == 0 {
			return dst, nil
		}
		pid, ok := parseInt(field)
		if !ok {
			return dst, badLine("status", number, line)
		}
		dst = append(dst, pid)
	}
}
