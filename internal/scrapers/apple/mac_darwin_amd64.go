// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// notHere says why this cannot be a Mac with Apple silicon: the build for Intel Macs runs
// on both kinds.
func notHere() *scrapers.AbsentError {
	if translated, err := unix.SysctlUint32("sysctl.proc_translated"); err == nil && translated == 1 {
		return &scrapers.AbsentError{
			Reason: "this is the build for Intel Macs, run by Rosetta, which does not see the GPU",
			Cure:   "use the build for darwin/arm64",
		}
	}
	return &scrapers.AbsentError{Reason: "this is an Intel Mac: its GPU is not Apple's"}
}
