// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const (
	compiledIn    = true
	notCompiledIn = ""
)

// newSource returns the configured source, and who owns its runtimes.
func newSource(cfg *Config, set scrapers.Settings) (source, owners, error) {
	return newMonitor(cfg, set), newOwners(cfg, set), nil
}
