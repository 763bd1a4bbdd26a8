// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package guard

import "syscall"

func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit cannot tell here: the group is killed right after the reaping.
func awaitExit(int) bool { return false }
