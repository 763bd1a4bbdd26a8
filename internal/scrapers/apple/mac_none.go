// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin && arm64)

package apple

import (
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/native"
)

// newNative is not reached: there is no Mac to look at.
func newNative(native.Want, time.Duration) looker { return nil }

// machineMemory is in bytes, 0 where it is unknown: that of this machine is not the Mac's.
func machineMemory() uint64 { return 0 }
