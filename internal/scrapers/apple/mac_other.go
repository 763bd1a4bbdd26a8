// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !darwin

package apple

import (
	"runtime"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// notHere says why this cannot be a Mac with Apple silicon.
func notHere() *scrapers.AbsentError {
	return &scrapers.AbsentError{Reason: "Apple GPUs are in Macs, and this is " + runtime.GOOS}
}
