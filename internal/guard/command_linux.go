// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// groupAttr also has the kernel kill the program when the collector dies without
// a chance to do so. That reaches neither the program's own children nor a
// program that gains privileges on exec.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits for the end of a child without reaping it: until that is done
// the number of its group cannot be given to another one.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
