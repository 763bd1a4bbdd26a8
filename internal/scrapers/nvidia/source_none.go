// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !cgo

package nvidia

import (
	"context"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Without cgo NVML cannot be called.
const (
	compiledIn    = false
	notCompiledIn = "NVML needs Linux and a build with cgo"
)

type noSource struct{}

func newSource(*Config, scrapers.Settings) (source, error) { return noSource{}, nil }

// read implements source.
func (noSource) read(context.Context, want) *reading {
	return &reading{errs: []error{&scrapers.AbsentError{
		Reason: "not compiled in: " + notCompiledIn,
		Cure:   "use a collector for Linux that was built with CGO_ENABLED=1",
	}}}
}

// close implements source.
func (noSource) close(context.Context) error { return nil }
