// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"testing"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

func TestDebug(t *testing.T) {
	tr := singleGPU(t, nil)
	scraperstest.CompareTags(t, "tags", wantMI300X(0), tr.tags())
	s, _ := tr.scraper(true)
	md, err := s.Scrape(t.Context())
	t.Log(err)
	for _, p := range scraperstest.PointsOf(md) {
		t.Log(p.Key(), p.Value())
	}
	o := tr.watchOpens("gpu_metrics", "gpu_busy_percent")
	s.Scrape(t.Context())
	t.Log(o.take())
}
