// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ipu

import (
	"context"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Graphcore's tools are Linux's.
const (
	compiledIn    = false
	notCompiledIn = "Graphcore's tools need Linux"
)

type noSource struct{}

func newSource(*Config, scrapers.Settings) (source, owners, error) { return noSource{}, nil, nil }

// read implements source.
func (noSource) read(context.Context) *reading {
	return &reading{at: time.Now(), errs: []error{&scrapers.AbsentError{Reason: "not compiled in: " + notCompiledIn}}}
}

// close implements source.
func (noSource) close(context.Context) error { return nil }
