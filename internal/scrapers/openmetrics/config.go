// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/fetch"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/filter"
)

const (
	// defaultTimeout is W&B's time for one try.
	defaultTimeout = 5 * time.Second
	endpointsKey   = "endpoints"
	// healthPoints are the points that tell of each endpoint's scrape.
	healthPoints = 5
)

// Config is the section `scrapers::openmetrics`.
type Config struct {
	// CommonConfig holds the keys that every family has. Left out, max_series is the
	// sum of what the endpoints may have.
	CommonConfig scrapers.CommonConfig `mapstructure:",squash"`

	// Filters choose the series of the endpoints that have no filters of their own: a
	// list of regular expressions, or a map of them to a map of labels to regular
	// expressions, each searched for in "{endpoint}.{metric}" or the label's value.
	Filters any `mapstructure:"filters,omitempty"`
	// Exclude has the same forms. It leaves series out of all endpoints.
	Exclude any `mapstructure:"exclude,omitempty"`
	// Endpoints are scraped, each apart from the others. The name is part of the
	// metrics' names.
	Endpoints map[string]*EndpointConfig `mapstructure:"endpoints"`
}

// EndpointConfig is one endpoint. Its URL alone may stand for it.
type EndpointConfig struct {
	// ClientConfig has the endpoint's URL, TLS, authentication, proxy and headers.
	ClientConfig confighttp.ClientConfig `mapstructure:",squash"`

	// Filters and Exclude are as the family's. Filters stand in place of the family's,
	// Exclude beside it.
	Filters any `mapstructure:"filters,omitempty"`
	Exclude any `mapstructure:"exclude,omitempty"`
	// ScrapeProtocols are the formats to ask for, the preferred one first; empty means
	// the classic text, else OpenMetrics.
	ScrapeProtocols []Protocol `mapstructure:"scrape_protocols"`
	// HonorTimestamps gives points the time that the endpoint says instead of that of
	// the scrape.
	HonorTimestamps bool `mapstructure:"honor_timestamps"`
	// Strict makes anything wrong with a body fail the scrape.
	Strict bool `mapstructure:"strict"`
	// StaleMarkers gives series that disappear a last point without a value.
	StaleMarkers bool `mapstructure:"stale_markers"`
	// Map gives series another family's names: `dcgm` makes gpu.* of dcgm-exporter's.
	Map Mapping `mapstructure:"map"`
	// KeepUnmapped keeps the series that Map has no name for under their own.
	KeepUnmapped bool `mapstructure:"keep_unmapped"`
	// QueryAPI says that the endpoint is a Prometheus query API that holds
	// dcgm-exporter's series.
	QueryAPI bool `mapstructure:"query_api"`
	// Queries are what is asked of the query API, beside the URL's own `query`
	// parameters; none at all means everything that has a name here.
	Queries []string `mapstructure:"queries"`

	// MaxBodySize is the largest body, decompressed, in bytes, MaxSeries the largest
	// number of series after the filter. A scrape beyond them fails.
	MaxBodySize int `mapstructure:"max_body_size"`
	MaxSeries   int `mapstructure:"max_series"`
	// MaxLabels and MaxNameLength (in bytes) bound a series; one beyond is left out.
	MaxLabels     int `mapstructure:"max_labels"`
	MaxNameLength int `mapstructure:"max_name_length"`
	// MaxLabelValueLength is how many bytes of a label's value are shown.
	MaxLabelValueLength int `mapstructure:"max_label_value_length"`
}

// Protocol is a format to ask for, as Prometheus names it.
type Protocol string

// protocols are the media types of the formats.
var protocols = map[Protocol]string{
	"PrometheusText0.0.4":  "text/plain;version=0.0.4",
	"PrometheusText1.0.0":  "text/plain;version=1.0.0",
	"OpenMetricsText0.0.1": "application/openmetrics-text;version=0.0.1",
	"OpenMetricsText1.0.0": "application/openmetrics-text;version=1.0.0",
	"PrometheusProto":      "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}

// Validate tells whether the format is known.
func (p Protocol) Validate() error {
	if protocols[p] == "" {
		return fmt.Errorf("unknown value %q; use some of %s", string(p), listOf(protocols))
	}
	return nil
}

func listOf(known map[Protocol]string) string {
	var names []string
	for _, p := range slices.Sorted(maps.Keys(known)) {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// Mapping says whose names series get.
type Mapping string

const (
	mapNone Mapping = ""
	mapDCGM Mapping = "dcgm"
)

// Validate tells whether the mapping is known.
func (m Mapping) Validate() error {
	if m != mapNone && m != mapDCGM {
		return fmt.Errorf("unknown value %q; use dcgm or leave it out", string(m))
	}
	return nil
}

func defaultConfig() scrapers.Config { return &Config{} }

func defaultEndpoint() *EndpointConfig {
	limits := exposition.DefaultLimits()
	return &EndpointConfig{
		ClientConfig:        confighttp.NewDefaultClientConfig(),
		MaxBodySize:         limits.BodySize,
		MaxSeries:           limits.Series,
		MaxLabels:           limits.Labels,
		MaxNameLength:       limits.Name,
		MaxLabelValueLength: limits.LabelValue,
	}
}

// Common implements scrapers.Config.
func (c *Config) Common() *scrapers.CommonConfig { return &c.CommonConfig }

// Unmarshal decodes the section: each endpoint is laid over the defaults, and a text in
// place of one is its URL.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	own := confmap.New()
	if err := own.Merge(conf); err != nil {
		return err
	}
	own.Delete(endpointsKey)
	errs := []error{decodeOwn(own, c), c.unmarshalEndpoints(conf)}
	if !conf.IsSet("max_series") && len(c.Endpoints) > 0 {
		c.CommonConfig.MaxSeries = c.allSeries()
	}
	return errors.Join(errs...)
}

// plainConfig is Config without its Unmarshal.
type plainConfig Config

// decodeOwn reads all keys but `endpoints`. What decoding refuses it names after the
// type, which users know as Config from every component.
func decodeOwn(own *confmap.Conf, c *Config) error {
	type Config plainConfig
	return own.Unmarshal((*Config)(c))
}

// allSeries is the number of points that the endpoints may give together.
func (c *Config) allSeries() int {
	all := 0
	for _, e := range c.Endpoints {
		all += e.maxPoints() + healthPoints
	}
	return all
}

// maxPoints is the number of points that the endpoint's series may give: all of them may
// have gone, each with a marker, while as many are new, and a mapping makes a figure of
// two series beside those of each.
func (e *EndpointConfig) maxPoints() int {
	if e.StaleMarkers || e.Map != mapNone || e.QueryAPI {
		return 2 * e.MaxSeries
	}
	return e.MaxSeries
}

func (c *Config) unmarshalEndpoints(conf *confmap.Conf) error {
	if conf.Get(endpointsKey) == nil {
		return nil
	}
	section, err := conf.Sub(endpointsKey)
	if err != nil {
		return errors.New("endpoints: must be a map of names to URLs, or to settings")
	}
	values := section.ToStringMap()
	c.Endpoints = map[string]*EndpointConfig{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		e, err := unmarshalEndpoint(section, name, values[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("endpoints::%s: %w", name, err))
			continue
		}
		c.Endpoints[name] = e
	}
	return errors.Join(errs...)
}

func unmarshalEndpoint(section *confmap.Conf, name string, value any) (*EndpointConfig, error) {
	e := defaultEndpoint()
	if text, ok := value.(string); ok {
		e.ClientConfig.Endpoint = text
		return e, nil
	}
	sub, err := section.Sub(name)
	if err != nil {
		return nil, errors.New("must be a URL, or a map of settings")
	}
	return e, sub.Unmarshal(e)
}

// Validate checks the section; the receiver checks the common keys.
func (c *Config) Validate() error {
	_, include := filter.Parse("filters", c.Filters)
	_, exclude := filter.Parse("exclude", c.Exclude)
	errs := []error{include, exclude}
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		if err := c.validateEndpoint(name); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// nameForm keeps names fit for metric names. W&B's own have no other characters in
// practice.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`)

// validateEndpoint checks what concerns an endpoint as a whole; confmap calls the
// Validate of its parts.
func (c *Config) validateEndpoint(name string) error {
	e, key := c.Endpoints[name], "endpoints::"+name
	if e == nil {
		return fmt.Errorf("%s: must be a URL, or a map of settings", key)
	}
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if !nameForm.MatchString(name) {
		check(errors.New("a name is made of letters, digits, '_', '-' and '.', 100 at most, and begins with a letter, a digit or '_'"))
	}
	_, err := fetch.ParseTarget(e.ClientConfig.Endpoint)
	check(err)
	check(e.checkProxy())
	check(e.checkTimeout(c.CommonConfig.Timing.Timeout))
	for _, err := range e.checkMode() {
		check(err)
	}
	for _, limit := range e.limitKeys() {
		if limit.value <= 0 {
			check(fmt.Errorf("%s: %d: must be above 0", limit.key, limit.value))
		}
	}
	_, err = filter.Parse(key+"::filters", e.Filters)
	errs = append(errs, err)
	_, err = filter.Parse(key+"::exclude", e.Exclude)
	return errors.Join(append(errs, err)...)
}

// checkProxy wants a URL. What is wrong with it is not repeated: it may hold a password.
func (e *EndpointConfig) checkProxy() error {
	if e.ClientConfig.ProxyURL == "" {
		return nil
	}
	u, err := url.ParseRequestURI(e.ClientConfig.ProxyURL)
	if err != nil || u.Hostname() == "" {
		return errors.New("proxy_url: is not a URL such as http://proxy:3128")
	}
	return nil
}

// checkTimeout wants a time that can pass within a scrape.
func (e *EndpointConfig) checkTimeout(family time.Duration) error {
	switch own := e.ClientConfig.Timeout; {
	case own < 0:
		return fmt.Errorf("timeout: %s: must be above 0", own)
	case family > 0 && own > family:
		return fmt.Errorf("timeout: %s: must not be longer than the family's timeout (%s)", own, family)
	}
	return nil
}

// timeout is how long a request to the endpoint may take.
func (e *EndpointConfig) timeout() time.Duration {
	if e.ClientConfig.Timeout > 0 {
		return e.ClientConfig.Timeout
	}
	return defaultTimeout
}

// checkMode wants keys that have an effect together.
func (e *EndpointConfig) checkMode() []error {
	var errs []error
	if len(e.Queries) > 0 && !e.QueryAPI {
		errs = append(errs, errors.New("queries: needs query_api: true"))
	}
	if e.KeepUnmapped && e.Map == mapNone {
		errs = append(errs, errors.New("keep_unmapped: needs map: dcgm"))
	}
	if slices.Contains(e.Queries, "") {
		errs = append(errs, errors.New("queries: an empty query has no answer"))
	}
	if !e.QueryAPI {
		return errs
	}
	if u, err := url.Parse(e.ClientConfig.Endpoint); err == nil && strings.HasSuffix(u.Path, metricsPath) {
		errs = append(errs, errors.New("endpoint: ends in /metrics, which is no query API: for an exporter use map: dcgm"))
	}
	for _, k := range []struct {
		key string
		set bool
	}{
		{"honor_timestamps", e.HonorTimestamps},
		{"scrape_protocols", len(e.ScrapeProtocols) > 0},
		{"stale_markers", e.StaleMarkers},
		{"strict", e.Strict},
		{"keep_unmapped", e.KeepUnmapped},
	} {
		if k.set {
			errs = append(errs, fmt.Errorf("%s: has no effect with query_api: true", k.key))
		}
	}
	return errs
}

type limitKey struct {
	key   string
	value int
}

func (e *EndpointConfig) limitKeys() []limitKey {
	return []limitKey{
		{"max_body_size", e.MaxBodySize},
		{"max_series", e.MaxSeries},
		{"max_labels", e.MaxLabels},
		{"max_name_length", e.MaxNameLength},
		{"max_label_value_length", e.MaxLabelValueLength},
	}
}

func (e *EndpointConfig) limits() exposition.Limits {
	return exposition.Limits{
		BodySize:   e.MaxBodySize,
		Series:     e.MaxSeries,
		Labels:     e.MaxLabels,
		LabelValue: e.MaxLabelValueLength,
		Name:       e.MaxNameLength,
	}
}
