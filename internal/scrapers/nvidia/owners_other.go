// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package nvidia

import "github.com/wandbsys/otelcol-wandbsys/internal/scrapers"

// newOwners: workloads are known on Linux only.
func newOwners(scrapers.Settings, *Config) owners { return nil }
