// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package trainium

import (
	"context"

	"go.opentelemetry.io/collector/component"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// Neuron's driver and tools are Linux's.
const (
	compiledIn    = false
	notCompiledIn = "the Neuron driver needs Linux"
)

type noSource struct{}

func newSource(*Config, scrapers.Settings) (source, owners, error) { return noSource{}, nil, nil }

// start implements source.
func (noSource) start(component.Host) {}

// prime implements source.
func (noSource) prime(context.Context) {}

// read implements source.
func (noSource) read(context.Context) *reading {
	return &reading{errs: []error{&scrapers.AbsentError{Reason: "not compiled in: " + notCompiledIn}}}
}

// close implements source.
func (noSource) close(context.Context) error { return nil }
