// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package runs

import (
	"os"
	"time"
)

// lock does nothing: Windows does not let go of a file that somebody has open.
func lock(*os.File) {}

func unused(*os.File, time.Duration) bool { return true }

// syncFolder does nothing: Windows cannot do it.
func syncFolder(string) error { return nil }
