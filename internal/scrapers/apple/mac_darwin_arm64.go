// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package apple

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/native"
)

// notHere says why this cannot be a Mac with Apple silicon.
func notHere() *scrapers.AbsentError { return nil }

func newNative(want native.Want, again time.Duration) looker { return native.NewReader(want, again) }

// machineMemory is in bytes, 0 where it is unknown.
func machineMemory() uint64 {
	memory, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return memory
}
