// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// detectionInterval is how long the list of GPUs stays as it is.
const detectionInterval = time.Minute

// scraperBelow returns the family's scraper for the machine below a root, and what
// it logs. It is shut down at the end of the test.
func scraperBelow(t testing.TB, root string, extended bool, cfg *Config) (*gpuScraper, *observer.ObservedLogs) {
	t.Helper()
	require.NoError(t, cfg.Validate())
	set, logs := scraperstest.NewSettings(t, root, extended)
	set.DetectionInterval = detectionInterval
	made, err := newScraper(set, cfg)
	require.NoError(t, err)
	s := made.(*gpuScraper)
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s, logs
}

// scrapeTags scrapes once, and returns the tags and the troubles, one by one.
func scrapeTags(t testing.TB, s scrapers.Scraper) (map[string]float64, []error) {
	t.Helper()
	md, err := s.Scrape(t.Context())
	scraperstest.RequireSane(t, md)
	return scraperstest.TagsOf(md), troublesOf(err)
}

func troublesOf(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
