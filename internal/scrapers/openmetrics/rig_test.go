// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

const (
	classicType     = "text/plain; version=0.0.4; charset=utf-8"
	openMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	// testTimeout is what a family has for a scrape, but for tests of what hangs.
	testTimeout = 30 * time.Second
)

// rig is the family with a configuration.
type rig struct {
	t       testing.TB
	scraper scrapers.Scraper
	logs    *observer.ObservedLogs
	set     scrapers.Settings
}

// section decodes and validates a family's section as the receiver does.
func section(t testing.TB, values map[string]any) (*Config, error) {
	t.Helper()
	cfg, ok := defaultConfig().(*Config)
	require.True(t, ok)
	cfg.CommonConfig.Timing = scrapers.Timing{CollectionInterval: time.Minute, Timeout: testTimeout}
	cfg.CommonConfig.MaxSeries = scrapers.DefaultMaxSeries
	if err := confmap.NewFromStringMap(values).Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

// endpointsOf is a section of endpoints alone.
func endpointsOf(endpoints map[string]any) map[string]any {
	return map[string]any{"endpoints": endpoints}
}

// start makes a rig that is stopped at the end of the test.
func start(t testing.TB, values map[string]any, change ...func(*scrapers.Settings)) *rig {
	t.Helper()
	return startOn(t, componenttest.NewNopHost(), values, change...)
}

// startOn is start on a host with extensions.
func startOn(t testing.TB, host component.Host, values map[string]any, change ...func(*scrapers.Settings)) *rig {
	t.Helper()
	cfg, err := section(t, values)
	require.NoError(t, err)
	set, logs := scraperstest.NewSettings(t, "", false)
	for _, c := range change {
		c(&set)
	}
	made, err := NewFactory().New(set, cfg)
	require.NoError(t, err)
	require.NoError(t, made.Start(t.Context(), host))
	t.Cleanup(func() { require.NoError(t, made.Shutdown(context.Background())) })
	return &rig{t: t, scraper: made, logs: logs, set: set}
}

// scrape returns the points and the error of one scrape.
func (r *rig) scrape() (pmetric.Metrics, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
	defer cancel()
	return r.scraper.Scrape(ctx)
}

// must returns the points of a scrape that has no error.
func (r *rig) must() pmetric.Metrics {
	r.t.Helper()
	md, err := r.scrape()
	require.NoError(r.t, err)
	return md
}

// serve answers every request with a body.
func serve(t testing.TB, contentType string, body func() []byte) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answerWith(w, contentType, body())
	}))
	t.Cleanup(server.Close)
	return server
}

func answerWith(w http.ResponseWriter, contentType string, body []byte) {
	w.Header()["Content-Type"] = nil // or net/http would guess one
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	_, _ = w.Write(body)
}

// serveText answers every request with a text in the classic format.
func serveText(t testing.TB, text string) *httptest.Server {
	t.Helper()
	return serve(t, classicType, func() []byte { return []byte(text) })
}

// metricsOf finds metrics by name, of all resources.
func metricsOf(md pmetric.Metrics) map[string]pmetric.Metric {
	found := map[string]pmetric.Metric{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				name := m.Name()
				for i := 2; ; i++ {
					if _, taken := found[name]; !taken {
						break
					}
					name = fmt.Sprintf("%s#%d", m.Name(), i)
				}
				found[name] = m
			}
		}
	}
	return found
}

// newFiles is a folder for files.
func newFiles(t testing.TB) scraperstest.Machine {
	t.Helper()
	return scraperstest.NewMachine(t)
}

func endpointOf(tb testing.TB, keys map[string]any) *endpoint {
	tb.Helper()
	cfg, err := section(tb, endpointsOf(map[string]any{"dcgm": keys}))
	require.NoError(tb, err)
	set, _ := scraperstest.NewSettings(tb, "", false)
	e, err := newEndpoint("dcgm", cfg.Endpoints["dcgm"], cfg, set)
	require.NoError(tb, err)
	return e
}
