// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package openmetrics scrapes Prometheus and OpenMetrics endpoints.
package openmetrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const familyName = "openmetrics"

// NewFactory returns the family.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{
		Name:          familyName,
		DefaultConfig: defaultConfig,
		New:           newScraper,
	}
}

func newScraper(set scrapers.Settings, cfg scrapers.Config) (scrapers.Scraper, error) {
	config, ok := cfg.(*Config)
	if !ok {
		return nil, fmt.Errorf("openmetrics: section of type %T", cfg)
	}
	s := &endpoints{}
	for _, name := range slices.Sorted(maps.Keys(config.Endpoints)) {
		e, err := newEndpoint(name, config.Endpoints[name], config, set)
		if err != nil {
			return nil, fmt.Errorf("openmetrics: endpoint %s: %w", name, err)
		}
		s.all = append(s.all, e)
	}
	return s, nil
}

// endpoints is the family at work.
type endpoints struct {
	all []*endpoint
}

// Start implements scrapers.Scraper. The clients are made by the first scrape: that
// reads files, and one that fails must not cost the other endpoints.
func (s *endpoints) Start(_ context.Context, host component.Host) error {
	for _, e := range s.all {
		e.client.Start(host)
	}
	return nil
}

// Scrape asks all endpoints at once.
func (s *endpoints) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	md := pmetric.NewMetrics()
	if len(s.all) == 0 {
		return md, &scrapers.AbsentError{
			Reason: "no endpoint is configured",
			Cure:   "name some under scrapers::openmetrics::endpoints",
		}
	}
	readings := make([]*reading, len(s.all))
	for i, e := range s.all {
		readings[i] = e.begin(ctx)
	}
	var errs []error
	for i, e := range s.all {
		errs = append(errs, e.finish(readings[i], md))
	}
	return md, errors.Join(errs...)
}

// settleTime is how long a request that was cut short may take to end.
const settleTime = 500 * time.Millisecond

// Shutdown implements scrapers.Scraper. A read that does not end keeps its client.
func (s *endpoints) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, e := range s.all {
		if e.slot.Settle(ctx) {
			e.client.Shutdown()
		}
	}
	return nil
}
