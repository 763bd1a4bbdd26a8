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
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/dcgm"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/fetch"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/filter"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/series"
)

// endpoint is one endpoint at work. What the guarded read uses is its alone while a
// read goes on: one that hangs keeps it.
type endpoint struct {
	name   string
	config *EndpointConfig
	set    scrapers.Settings
	logger *zap.Logger

	// slot holds the one read.
	slot guard.Slot
	// Used by the read only.
	client *fetch.Client
	parser *exposition.Parser
	filter *filter.Filter
	writer writer
	// mapper is nil without a mapping.
	mapper *dcgm.Mapper
	// queries are what a query API is asked for; empty for an exporter.
	queries []*url.URL

	// Used outside of the read only.
	builder  *metadata.MetricsBuilder
	resource pcommon.Resource
	news     news
	// toldUnused says that it was told that nothing of the endpoint is taken.
	toldUnused bool
}

// newEndpoint makes an endpoint of a validated section.
func newEndpoint(name string, e *EndpointConfig, family *Config, set scrapers.Settings) (*endpoint, error) {
	client, err := fetch.New(e.fetchOptions(name, set.Receiver))
	if err != nil {
		return nil, err
	}
	kept, err := newFilter(name, e, family)
	if err != nil {
		return nil, err
	}
	limits := e.limits()
	made := &endpoint{
		name:   name,
		config: e,
		set:    set,
		logger: set.Receiver.Logger.With(zap.String("endpoint", name)),
		client: client,
		parser: exposition.New(exposition.Options{Strict: e.Strict, Limits: limits}),
		filter: kept,
		writer: writer{
			prefix:  metricPrefix + name + ".",
			tracker: series.New(series.Limits{}, e.StaleMarkers),
			limits:  limits,
			honor:   e.HonorTimestamps,
		},
		builder:  metadata.NewMetricsBuilder(set.Metrics, set.Receiver),
		resource: set.Identity.Endpoint(client.Target().Identity(name, set.Identity.HostName())),
	}
	switch {
	case e.QueryAPI:
		made.mapper = dcgm.New(set, dcgm.Query)
		made.queries = queriesOf(client.Target().URL(), e.Queries)
	case e.Map == mapDCGM:
		made.mapper = dcgm.New(set, dcgm.Exporter)
	}
	return made, nil
}

// keyOf is a key of an endpoint, as the user writes it.
func keyOf(name, key string) string {
	return "scrapers::openmetrics::" + endpointsKey + "::" + name + "::" + key
}

func newFilter(name string, e *EndpointConfig, family *Config) (*filter.Filter, error) {
	include := e.Filters
	if include == nil {
		include = family.Filters
	}
	included, err := filter.Parse("filters", include)
	if err != nil {
		return nil, err
	}
	shared, err := filter.Parse("exclude", family.Exclude)
	if err != nil {
		return nil, err
	}
	own, err := filter.Parse("exclude", e.Exclude)
	if err != nil {
		return nil, err
	}
	return filter.New(name, included, slices.Concat(shared, own)), nil
}

// fetchOptions say how the endpoint is asked.
func (e *EndpointConfig) fetchOptions(name string, set receiver.Settings) fetch.Options {
	accept := e.accept()
	if e.QueryAPI {
		accept = "application/json"
	}
	return fetch.Options{
		Config:    e.ClientConfig,
		Timeout:   e.timeout(),
		Limit:     e.MaxBodySize,
		LimitKey:  keyOf(name, "max_body_size"),
		Accept:    accept,
		UserAgent: set.BuildInfo.Command + "/" + set.BuildInfo.Version,
		Telemetry: set.TelemetrySettings,
	}
}

// defaultAccept asks for the classic text first: in OpenMetrics the Go client changes
// the names of counters. Both are better than protobuf, which has no line to name.
const defaultAccept = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"

// accept is the header that asks for the formats.
func (e *EndpointConfig) accept() string {
	if len(e.ScrapeProtocols) == 0 {
		return defaultAccept
	}
	var accept strings.Builder
	for i, p := range e.ScrapeProtocols {
		fmt.Fprintf(&accept, "%s;q=0.%d,", protocols[p], max(9-i, 2))
	}
	return accept.String() + "*/*;q=0.1"
}

// answer is what a read gave, cut loose from the memory of the next one.
type answer struct {
	metrics pmetric.MetricSlice
	// mapped are the scopes of the metrics that go by another family's names.
	mapped                pmetric.ScopeMetricsSlice
	scraped, kept, missed int
	targetInfo            exposition.Labels
	targets               int
	remarks               []remark
	// took is how long the read was.
	took time.Duration
}

// begin starts the read of an endpoint.
func (e *endpoint) begin(ctx context.Context) *reading {
	return &reading{
		start:   time.Now(),
		pending: guard.Go(ctx, &e.slot, e.timed),
	}
}

// reading is a read that goes on.
type reading struct {
	start   time.Time
	pending *guard.Pending[*answer]
}

// finish waits for the read, and adds the endpoint's points to md.
func (e *endpoint) finish(r *reading, md pmetric.Metrics) error {
	got, err := r.pending.Wait()
	if got == nil { // given up
		got = newAnswer()
		got.took = time.Since(r.start)
	}
	e.describe(got.targetInfo, got.targets)
	e.news.tell(e.logger, got.remarks)
	e.tellUnused(got)
	rm := md.ResourceMetrics().AppendEmpty()
	e.resource.CopyTo(rm.Resource())
	scope := rm.ScopeMetrics().AppendEmpty()
	scope.Scope().SetName(metadata.ScopeName)
	scope.Scope().SetVersion(e.set.Receiver.BuildInfo.Version)
	got.metrics.MoveAndAppendTo(scope.Metrics())
	e.health(scope.Metrics(), got, err == nil)
	got.mapped.MoveAndAppendTo(rm.ScopeMetrics())
	if err == nil {
		return nil
	}
	return &scrapers.SourceError{Source: fmt.Sprintf("endpoint %s (%s)", e.name, e.client.Target()), Err: err}
}

// tellUnused tells once of an endpoint that answers while nothing of it is taken: a
// wrong filter, and a mapping of what is not DCGM's, show in nothing else.
func (e *endpoint) tellUnused(got *answer) {
	reason := ""
	switch {
	case got.scraped > 0 && got.kept == 0:
		reason = fmt.Sprintf("filters and exclude leave none of its %d samples", got.scraped)
	case got.kept > 0 && e.config.Map == mapDCGM && got.metrics.Len()+got.mapped.Len() == 0:
		reason = "map: dcgm has a metric that is on for none of its series"
	}
	if reason == "" || e.toldUnused {
		return
	}
	e.toldUnused = true
	e.logger.Info("The endpoint answers, but nothing of it is taken", zap.String("reason", reason))
}

func newAnswer() *answer {
	return &answer{metrics: pmetric.NewMetricSlice(), mapped: pmetric.NewScopeMetricsSlice()}
}

// health adds the points that tell of the scrape.
func (e *endpoint) health(to pmetric.MetricSlice, got *answer, up bool) {
	now := pcommon.NewTimestampFromTime(time.Now())
	e.builder.RecordWandbsysEndpointUpDataPoint(now, gpus.ZeroOrOne(up), e.name)
	e.builder.RecordWandbsysEndpointScrapeDurationDataPoint(now, got.took.Seconds(), e.name)
	e.builder.RecordWandbsysEndpointSamplesScrapedDataPoint(now, int64(got.scraped), e.name)
	e.builder.RecordWandbsysEndpointSamplesKeptDataPoint(now, int64(got.kept), e.name)
	e.builder.RecordWandbsysEndpointLinesSkippedDataPoint(now, int64(got.missed), e.name)
	for _, rm := range e.builder.Emit().ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			sm.Metrics().MoveAndAppendTo(to)
		}
	}
}

// describe gives the resource what target_info says, of which there may be none, or
// several, which are not about the endpoint. It stays while the endpoint is down, so
// that its points do not move to another resource.
func (e *endpoint) describe(info exposition.Labels, targets int) {
	if targets == 0 {
		return
	}
	e.resource = e.set.Identity.Endpoint(e.client.Target().Identity(e.name, e.set.Identity.HostName()))
	attributes := e.resource.Attributes()
	for _, l := range info {
		if _, ours := attributes.Get(l.Name); ours || l.Name == "job" || l.Name == "instance" {
			continue
		}
		attributes.PutStr(strings.Clone(l.Name), strings.Clone(e.writer.limits.Shown(l.Value)))
	}
}

// timed is read, with the time it took: the other endpoints, for which finish waits
// too, are not in it.
func (e *endpoint) timed(ctx context.Context) (*answer, error) {
	start := time.Now()
	got, err := e.read(ctx)
	if got == nil {
		got = newAnswer()
	}
	got.took = time.Since(start)
	return got, err
}

// read asks the endpoint once. It runs behind a guard. There may be an answer beside
// the error.
func (e *endpoint) read(ctx context.Context) (*answer, error) {
	if len(e.queries) > 0 {
		return e.query(ctx)
	}
	body, contentType, err := e.client.Get(ctx)
	if err != nil {
		return nil, err
	}
	now := pcommon.NewTimestampFromTime(time.Now())
	scrape, err := e.parser.Parse(body, contentType, e.filter.Keep)
	if err != nil {
		return nil, e.explained(err)
	}
	e.filter.Next()
	e.writer.detach(scrape.Families, len(body))
	return e.write(scrape, now), nil
}

// explained tells what to do about a limit.
func (e *endpoint) explained(err error) error {
	over, ok := errors.AsType[*exposition.LimitError](err)
	if !ok {
		return scrapers.NewFault("parse", err)
	}
	return e.overLimit(over.Key, over)
}

func (e *endpoint) overLimit(key string, err error) error {
	return scrapers.NewFault(key, fmt.Errorf("%w; raise %s, or filter", err, keyOf(e.name, key)))
}

func (e *endpoint) write(scrape *exposition.Scrape, now pcommon.Timestamp) *answer {
	got := newAnswer()
	got.scraped, got.kept, got.missed = scrape.Samples, scrape.Kept, scrape.Skipped
	got.metrics.EnsureCapacity(len(scrape.Families) + healthPoints)
	e.writer.begin(got.metrics, now)
	if e.mapper != nil {
		e.mapper.Begin()
	}
	for i := range scrape.Families {
		if f := &scrape.Families[i]; e.mapper == nil || e.leave(f) {
			e.writer.family(f)
		}
	}
	e.writer.finish(e.config.StaleMarkers)
	e.takeMapped(got, now)
	got.targetInfo, got.targets = slices.Clone(scrape.TargetInfo), scrape.Targets
	got.remarks = e.remarks(scrape)
	return got
}

// leave gives a family to the mapper, and leaves in it what keeps its own name. It
// tells whether that is anything. Until NVML has told what it measures, neither name is
// right for a GPU, so that its series wait.
func (e *endpoint) leave(f *exposition.Family) bool {
	if len(f.Samples) == 0 {
		return e.config.KeepUnmapped
	}
	field := strings.TrimSuffix(f.Name, "_total") // as OpenMetrics has counters
	f.Samples = slices.DeleteFunc(f.Samples, func(s exposition.Sample) bool {
		switch e.mapper.Add(field, s.Labels, s.Value) {
		case dcgm.Elsewhere:
			return !e.set.GPUs.Known()
		case dcgm.Unmapped:
			return !e.config.KeepUnmapped
		case dcgm.Mapped:
		}
		return true
	})
	return len(f.Samples) > 0
}

// takeMapped adds what the mapper made.
func (e *endpoint) takeMapped(got *answer, now pcommon.Timestamp) {
	if e.mapper == nil {
		return
	}
	for _, rm := range e.mapper.Emit(pcommon.NewResource(), now).ResourceMetrics().All() {
		rm.ScopeMetrics().MoveAndAppendTo(got.mapped)
	}
}
