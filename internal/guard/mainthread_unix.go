// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import "runtime"

// The kernel hands a signal for the process to its main thread, even when that
// sleeps in a call that no signal wakes (a dead FUSE mount), and then nobody
// sees it: a SIGTERM would be lost for as long as the call hangs. Bound to the
// main goroutine, which waits for signals, the main thread makes no guarded
// calls.
func init() { runtime.LockOSThread() }
