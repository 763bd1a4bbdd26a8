// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/dcgm"
)

const (
	queryPath = "/api/v1/query"
	queryKey  = "query"
	// metricsPath is an exporter's. An URL that ends in it is refused for a query API,
	// but it is what a Unix socket is asked for where nothing else is said.
	metricsPath = "/metrics"
)

// queriesOf returns what is asked of a query API: the configured queries, and the
// `query` parameters of its URL, as W&B has them. The path may be that of the API, or
// that of the server; what is before it stays (proxies, stores with tenants).
func queriesOf(base *url.URL, configured []string) []*url.URL {
	parameters := base.Query()
	queries := slices.Concat(parameters[queryKey], configured)
	if len(queries) == 0 {
		queries = []string{dcgm.DefaultQuery()}
	}
	prefix, _, _ := strings.Cut(base.Path, queryPath)
	prefix = strings.TrimSuffix(prefix, metricsPath)
	var urls []*url.URL
	for _, q := range queries {
		parameters.Set(queryKey, q)
		u := *base
		u.Path, u.RawPath, u.RawQuery = strings.TrimSuffix(prefix, "/")+queryPath, "", parameters.Encode()
		urls = append(urls, &u)
	}
	return urls
}

// query asks a query API. A query that fails costs its own series.
func (e *endpoint) query(ctx context.Context) (*answer, error) {
	got := newAnswer()
	now := pcommon.NewTimestampFromTime(time.Now())
	e.mapper.Begin()
	var errs []error
	for _, q := range e.queries {
		if err := e.ask(ctx, q, got); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		e.filter.Next()
	}
	e.takeMapped(got, now)
	return got, joined(errs)
}

// ask sends one query, and gives the mapper what comes.
func (e *endpoint) ask(ctx context.Context, q *url.URL, got *answer) error {
	body, _, err := e.client.GetURL(ctx, q)
	if err != nil {
		return e.ofQuery(q, err)
	}
	vector, err := dcgm.ParseVector(body)
	if err != nil {
		return e.ofQuery(q, scrapers.NewFault("parse", err))
	}
	got.scraped += len(vector.Rows)
	rows := slices.DeleteFunc(vector.Rows, func(r dcgm.Row) bool { return !e.filter.Keep(r.Field, r.Labels) })
	if over := got.kept + len(rows) - e.config.MaxSeries; over > 0 {
		return e.ofQuery(q, e.overLimit("max_series", fmt.Errorf("%d series too many (limit %d)", over, e.config.MaxSeries)))
	}
	for _, w := range vector.Warnings {
		got.remarks = append(got.remarks, remark{kinds: []string{"warning " + w}, text: "the server warns: " + w})
	}
	got.kept += len(rows)
	for _, row := range rows {
		e.mapper.Add(row.Field, row.Labels, row.Value)
	}
	return nil
}

// ofQuery says which query failed, where there are several.
func (e *endpoint) ofQuery(q *url.URL, err error) error {
	if len(e.queries) == 1 {
		return err
	}
	return fmt.Errorf("query %q: %w", q.Query().Get(queryKey), err)
}

// joined is the fault of several queries: it is another when another query fails.
func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	var causes []string
	whole := errs[0]
	for i, err := range errs {
		if i > 0 { // in one line, which names the endpoint
			whole = fmt.Errorf("%w; %w", whole, err)
		}
		cause := ""
		if f, ok := errors.AsType[*scrapers.Fault](err); ok {
			cause = f.Cause()
		}
		causes = append(causes, cause)
	}
	return scrapers.NewFault(strings.Join(causes, ","), whole)
}
