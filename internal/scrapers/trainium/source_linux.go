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

// newSource returns the configured source, and who owns its runtimes. An exporter does
// not tell whose they are.
func newSource(cfg *Config, set scrapers.Settings) (source, owners, error) {
	if !cfg.usesExporter() {
		if cfg.Prometheus.HasValue() {
			set.Receiver.Logger.Warn("The endpoint scrapers::trainium::prometheus is not used: neuron_monitor_path is set, which tells more")
		}
		return newMonitor(cfg, set), newOwners(cfg, set), nil
	}
	e, err := newExporter(cfg.Prometheus.Get(), set)
	return e, nil, err
}
