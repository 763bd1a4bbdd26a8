// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

// ParseUID returns the real user id of the line Uid of /proc/PID/status; ok is
// false when there is none.
func ParseUID(b []byte) (uid int, ok bool) {
	_, list, _, found := findLine(b, "Uid:")
	if !found {
		return 0, false
	}
	field, _ := nextField(list)
	return parseInt(field)
}
