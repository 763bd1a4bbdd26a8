// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

const someURL = "http://localhost:9400/metrics"

// yamlSection is a section as a user writes it; ${env:NAME} is expanded.
func yamlSection(t testing.TB, text string, environment ...string) map[string]any {
	t.Helper()
	provider := environmentProvider{"SECTION": text}
	for i := 0; i < len(environment); i += 2 {
		provider[environment[i]] = environment[i+1]
	}
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:              []string{"env:SECTION"},
		ProviderFactories: []confmap.ProviderFactory{confmap.NewProviderFactory(func(confmap.ProviderSettings) confmap.Provider { return provider })},
		DefaultScheme:     "env",
	})
	require.NoError(t, err)
	conf, err := resolver.Resolve(t.Context())
	require.NoError(t, err)
	return conf.ToStringMap()
}

// environmentProvider expands ${env:NAME} as the collector's own does.
type environmentProvider map[string]string

func (p environmentProvider) Retrieve(_ context.Context, uri string, _ confmap.WatcherFunc) (*confmap.Retrieved, error) {
	return confmap.NewRetrievedFromYAML([]byte(p[strings.TrimPrefix(uri, "env:")]))
}
func (environmentProvider) Scheme() string                 { return "env" }
func (environmentProvider) Shutdown(context.Context) error { return nil }

func accepted(t testing.TB, values map[string]any) *Config {
	t.Helper()
	cfg, err := section(t, values)
	require.NoError(t, err)
	return cfg
}

func TestDefaultConfigOfTheFamily(t *testing.T) {
	cfg := defaultConfig()
	require.NoError(t, componenttest.CheckConfigStruct(cfg))
	assert.Equal(t, &Config{}, cfg)
	for name, values := range map[string]map[string]any{
		"nothing":      nil,
		"no endpoints": {"endpoints": map[string]any{}},
		"null":         {"endpoints": nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := accepted(t, values)
			assert.Empty(t, got.Endpoints)
			assert.Equal(t, scrapers.DefaultMaxSeries, got.CommonConfig.MaxSeries)
		})
	}
}

func TestNoEndpointIsAnAbsentFamily(t *testing.T) {
	md, err := start(t, nil).scrape()
	assert.Zero(t, md.ResourceMetrics().Len())
	var absent *scrapers.AbsentError
	require.ErrorAs(t, err, &absent)
	assert.EqualError(t, err, "no endpoint is configured; name some under scrapers::openmetrics::endpoints")
}

func TestASectionOfAnotherTypeIsRefused(t *testing.T) {
	set, _ := scraperstest.NewSettings(t, "", false)
	_, err := NewFactory().New(set, nil)
	require.EqualError(t, err, "openmetrics: section of type <nil>")
}

// What validation refuses cannot be made a scraper of.
func TestSectionsThatWereNotValidated(t *testing.T) {
	set, _ := scraperstest.NewSettings(t, "", false)
	wrong := []any{"("}
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"no URL":               {Config{Endpoints: map[string]*EndpointConfig{"e": {}}}, "openmetrics: endpoint e: endpoint: is missing"},
		"the family's filters": {Config{Filters: wrong}, "openmetrics: endpoint e: filters::0: error parsing regexp: missing closing ): `(`"},
		"the family's exclude": {Config{Exclude: wrong}, "openmetrics: endpoint e: exclude::0: error parsing regexp: missing closing ): `(`"},
		"the endpoint's exclude": {Config{Endpoints: map[string]*EndpointConfig{
			"e": {ClientConfig: confighttp.ClientConfig{Endpoint: someURL}, Exclude: wrong},
		}}, "openmetrics: endpoint e: exclude::0: error parsing regexp: missing closing ): `(`"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.cfg.Endpoints == nil {
				e := defaultEndpoint()
				e.ClientConfig.Endpoint = someURL
				tt.cfg.Endpoints = map[string]*EndpointConfig{"e": e}
			}
			_, err := NewFactory().New(set, &tt.cfg)
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestEndpointsByURLOrBySettings(t *testing.T) {
	want := &EndpointConfig{
		ClientConfig: confighttp.NewDefaultClientConfig(),
		MaxBodySize:  16 << 20, MaxSeries: 10_000, MaxLabels: 64, MaxNameLength: 512, MaxLabelValueLength: 4096,
	}
	want.ClientConfig.Endpoint = someURL
	cfg := accepted(t, endpointsOf(map[string]any{
		"a":     someURL,
		"b.c-1": map[string]any{"endpoint": someURL},
		"_":     map[string]any{"endpoint": someURL, "strict": true, "timeout": "2s", "max_series": 7},
	}))
	assert.Equal(t, want, cfg.Endpoints["a"])
	assert.Equal(t, want, cfg.Endpoints["b.c-1"])
	assert.Equal(t, defaultTimeout, cfg.Endpoints["a"].timeout())
	want.Strict, want.MaxSeries, want.ClientConfig.Timeout = true, 7, 2*time.Second
	assert.Equal(t, want, cfg.Endpoints["_"])
	assert.Equal(t, 2*time.Second, cfg.Endpoints["_"].timeout())
}

// What the endpoints may give together, the family may give too, unless it is told.
func TestMaxSeriesOfTheFamily(t *testing.T) {
	endpoints := map[string]any{"a": someURL, "b": map[string]any{"endpoint": someURL, "max_series": 50_000}}
	assert.Equal(t, 60_010, accepted(t, endpointsOf(endpoints)).CommonConfig.MaxSeries)
	assert.Equal(t, 9, accepted(t, map[string]any{"endpoints": endpoints, "max_series": 9}).CommonConfig.MaxSeries)
	for key, value := range map[string]any{"stale_markers": true, "map": "dcgm", "query_api": true} {
		twice := map[string]any{"a": map[string]any{"endpoint": someURL, "max_series": 100, key: value}}
		if key == "query_api" {
			twice["a"].(map[string]any)["endpoint"] = "http://prometheus:9090"
		}
		assert.Equal(t, 205, accepted(t, endpointsOf(twice)).CommonConfig.MaxSeries, "%s: a point may come with each", key)
	}
}

// The endpoints and the filters as they come from a file, for one series each.
func TestFiltersAsUsersWriteThem(t *testing.T) {
	url := serveText(t, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 1\nvllm:requests{gpu=\"1\"} 1\n{\"a.b\",gpu=\"2\"} 1\na_b 1\n").URL
	for name, tt := range map[string]struct {
		filters string
		want    []string
	}{
		"none":                      {"", []string{"DCGM_FI_DEV_GPU_TEMP", "a.b", "a_b", "vllm:requests"}},
		"an empty list":             {"filters: []", []string{"DCGM_FI_DEV_GPU_TEMP", "a.b", "a_b", "vllm:requests"}},
		"nothing after the key":     {"filters: ", []string{"DCGM_FI_DEV_GPU_TEMP", "a.b", "a_b", "vllm:requests"}},
		"a list":                    {`filters: [TEMP$, '^e\.vllm:']`, []string{"DCGM_FI_DEV_GPU_TEMP", "vllm:requests"}},
		"a dollar":                  {`filters: [_b$]`, []string{"a_b"}},
		"two dollars are one":       {`filters: [_b$$]`, []string{"a_b"}},
		"a dollar amid a text":      {`filters: ['a_b$|TEMP$']`, []string{"DCGM_FI_DEV_GPU_TEMP", "a_b"}},
		"from the environment":      {`filters: ['${env:LIST_ITEM}']`, []string{"vllm:requests"}},
		"a whole list from there":   {`filters: '${env:LIST}'`, []string{"DCGM_FI_DEV_GPU_TEMP"}},
		"a whole map from there":    {`filters: '${env:MAP}'`, []string{"a_b"}},
		"a map of nothing":          {`filters: {TEMP: }`, []string{"DCGM_FI_DEV_GPU_TEMP"}},
		"an empty map of labels":    {`filters: {TEMP: {}}`, []string{"DCGM_FI_DEV_GPU_TEMP"}},
		"a map with labels":         {`filters: {'.*': {gpu: '[01]'}}`, []string{"DCGM_FI_DEV_GPU_TEMP", "vllm:requests"}},
		"a label that is a number":  {`filters: {'.*': {gpu: 2}}`, []string{"a.b"}},
		"a label's value with $":    {`filters: {'.*': {gpu: '^1$'}}`, []string{"vllm:requests"}},
		"a dot in a key":            {`filters: {'e\.a\.b$': {}, a.b.c: {}}`, []string{"a.b"}},
		"a colon in a key":          {`filters: {'vllm:requests': {gpu: '1'}}`, []string{"vllm:requests"}},
		"capitals stay":             {`filters: {dcgm: {}, GPU_TEMP: {}}`, []string{"DCGM_FI_DEV_GPU_TEMP"}},
		"an exclusion":              {`exclude: [TEMP, '\.a.b']`, []string{"vllm:requests"}},
		"an exclusion by label":     {`exclude: {'.': {gpu: '.'}}`, []string{"a_b"}},
		"all are excluded":          {`exclude: ['']`, nil},
		"an empty map of exclusion": {`exclude: {a: {}}`, []string{"DCGM_FI_DEV_GPU_TEMP", "vllm:requests"}},
	} {
		environment := []string{"LIST_ITEM", "vllm:.*", "LIST", "[TEMP]", "MAP", "{a_b: {}}"}
		t.Run(name+", of the endpoint", func(t *testing.T) {
			text := "{endpoints: {e: {endpoint: '" + url + "', " + tt.filters + "}}}"
			assert.ElementsMatch(t, tt.want, metricNames(t, yamlSection(t, text, environment...)))
		})
		t.Run(name+", of the family", func(t *testing.T) {
			text := "{endpoints: {e: '" + url + "'}, " + tt.filters + "}"
			assert.ElementsMatch(t, tt.want, metricNames(t, yamlSection(t, text, environment...)))
		})
	}
}

func metricNames(t testing.TB, values map[string]any) []string {
	t.Helper()
	var names []string
	for name := range metricsOf(start(t, values).must()) {
		if name, ok := strings.CutPrefix(name, "openmetrics.e."); ok {
			names = append(names, name)
		}
	}
	return names
}

func TestFiltersOfAnEndpointReplaceTheFamilys(t *testing.T) {
	url := serveText(t, "a 1\nb 1\nc 1\n").URL
	own := map[string]any{"endpoint": url, "filters": []any{"b", "c"}, "exclude": []any{`\.c`}}
	assert.Empty(t, metricNames(t, map[string]any{
		"endpoints": map[string]any{"e": own}, "filters": []any{"a"}, "exclude": []any{`\.b`},
	}), "exclusions of both count")
	own["exclude"] = nil
	assert.Equal(t, []string{"c"}, metricNames(t, map[string]any{
		"endpoints": map[string]any{"e": own}, "filters": []any{"a"}, "exclude": []any{`\.b`},
	}))
	own["filters"] = []any{}
	assert.ElementsMatch(t, []string{"a", "b", "c"}, metricNames(t, map[string]any{
		"endpoints": map[string]any{"e": own}, "filters": []any{"a"},
	}), "an empty list keeps everything")
}

// refusal is what decoding and validating say about an endpoint named e.
func refusalOf(t testing.TB, values map[string]any) string {
	t.Helper()
	_, err := section(t, values)
	require.Error(t, err)
	return err.Error()
}

func TestSectionsThatAreRefused(t *testing.T) {
	const (
		decoding  = "decoding failed due to the following error(s):\n\n'' "
		ownKeys   = decoding + "endpoints::e: decoding failed due to the following error(s):\n\n"
		e         = "endpoints::e: "
		name      = ": a name is made of letters, digits, '_', '-' and '.', 100 at most, and begins with a letter, a digit or '_'"
		noBegin   = e + "endpoint: must begin with http://, https:// or unix:///"
		noSecret  = e + "endpoint: must not hold credentials, which would be shown; use auth, or headers"
		noSocket  = e + "endpoint: a socket's path must be absolute: unix:///run/exporter.sock"
		noPath    = e + "endpoint: the parameter `path` must begin with /"
		noURL     = e + "endpoint: is not a URL"
		noProxy   = e + "proxy_url: is not a URL such as http://proxy:3128"
		forms     = ": must be a list of regular expressions, or a map of them to a map of labels to regular expressions"
		noEffect  = ": has no effect with query_api: true"
		protocols = "; use some of OpenMetricsText0.0.1, OpenMetricsText1.0.0, PrometheusProto, PrometheusText0.0.4, PrometheusText1.0.0"
	)
	// The path is confmap's, which knows no name for a squashed field.
	const noTLS = `endpoints::e::clientconfig::tls: invalid TLS min_version: unsupported TLS version: "9"` + "\n" +
		`endpoints::e::clientconfig::tls::config: invalid TLS min_version: unsupported TLS version: "9"`
	long := strings.Repeat("n", 101)
	for what, tt := range map[string]struct {
		section map[string]any
		want    string
	}{
		"endpoints as a list":            {map[string]any{"endpoints": []any{someURL}}, decoding + "endpoints: must be a map of names to URLs, or to settings"},
		"endpoints as a text":            {map[string]any{"endpoints": someURL}, decoding + "endpoints: must be a map of names to URLs, or to settings"},
		"an endpoint that is a number":   {endpointsOf(map[string]any{"e": 9400}), decoding + "endpoints::e: must be a URL, or a map of settings"},
		"an endpoint that is a list":     {endpointsOf(map[string]any{"e": []any{someURL}}), decoding + "endpoints::e: must be a URL, or a map of settings"},
		"an unknown key":                 {map[string]any{"endpoint": someURL}, decoding + "decoding failed due to the following error(s):\n\n'openmetrics.Config' has invalid keys: endpoint"},
		"an unknown key of an endpoint":  {at(someURL, "url", 1), ownKeys + "'openmetrics.EndpointConfig' has invalid keys: url"},
		"a wrong type":                   {at(someURL, "strict", "maybe"), ownKeys + "'strict' expected type 'bool', got unconvertible type 'string'"},
		"a wrong time":                   {at(someURL, "timeout", "soon"), ownKeys + "'timeout' time: invalid duration"},
		"nothing after the name":         {endpointsOf(map[string]any{"e": nil}), e + "endpoint: is missing"},
		"no URL":                         {at(""), e + "endpoint: is missing"},
		"a name with a blank":            {endpointsOf(map[string]any{"a b": someURL}), "endpoints::a b" + name},
		"a name with a slash":            {endpointsOf(map[string]any{"a/b": someURL}), "endpoints::a/b" + name},
		"an empty name":                  {endpointsOf(map[string]any{"": someURL}), "endpoints::" + name},
		"a name that begins with a dot":  {endpointsOf(map[string]any{".a": someURL}), "endpoints::.a" + name},
		"a long name":                    {endpointsOf(map[string]any{long: someURL}), "endpoints::" + long + name},
		"no scheme":                      {at("localhost:9400/metrics"), noBegin},
		"no scheme before an address":    {at("10.0.0.1:9400/metrics"), noBegin},
		"another scheme":                 {at("ftp://localhost/metrics"), noBegin},
		"a path":                         {at("/metrics"), noBegin},
		"no host":                        {at("http:///metrics"), e + "endpoint: the host is missing"},
		"a port alone":                   {at("http://:9400"), e + "endpoint: the host is missing"},
		"a port that is none":            {at("http://h:port"), noURL},
		"a port that cannot be":          {at("http://h:94000/metrics"), e + "endpoint: the port must be from 1 to 65535"},
		"broken":                         {at("http://h/%zz?token=sesame"), noURL},
		"a user":                         {at("http://user@localhost/metrics"), noSecret},
		"a user and a password":          {at("https://user:sesame@localhost/metrics"), noSecret},
		"a password for a socket":        {at("unix://user:sesame@/run/x.sock"), noSecret},
		"a socket's relative path":       {at("unix://run/exporter.sock"), noSocket},
		"a socket without path":          {at("unix://"), noSocket},
		"a socket's path without /":      {at("unix:///run/x.sock?path=metrics"), noPath},
		"a negative timeout":             {at(someURL, "timeout", "-1s"), e + "timeout: -1s: must be above 0"},
		"a timeout above the family's":   {at(someURL, "timeout", "31s"), e + "timeout: 31s: must not be longer than the family's timeout (30s)"},
		"a proxy without host":           {at(someURL, "proxy_url", "proxy:3128"), noProxy},
		"a proxy's broken password":      {at(someURL, "proxy_url", "http://user:ses%ame@proxy"), noProxy},
		"no body at all":                 {at(someURL, "max_body_size", 0), e + "max_body_size: 0: must be above 0"},
		"no series":                      {at(someURL, "max_series", 0), e + "max_series: 0: must be above 0"},
		"no labels":                      {at(someURL, "max_labels", -1), e + "max_labels: -1: must be above 0"},
		"no names":                       {at(someURL, "max_name_length", 0), e + "max_name_length: 0: must be above 0"},
		"no values of labels":            {at(someURL, "max_label_value_length", 0), e + "max_label_value_length: 0: must be above 0"},
		"an unknown protocol":            {at(someURL, "scrape_protocols", []any{"PrometheusText0.0.4", "text"}), "endpoints::e::scrape_protocols::1: unknown value \"text\"" + protocols},
		"an unknown mapping":             {at(someURL, "map", "nvml"), `endpoints::e::map: unknown value "nvml"; use dcgm or leave it out`},
		"queries without API":            {at(someURL, "queries", []any{"up"}), e + "queries: needs query_api: true"},
		"an empty query":                 {at("http://p", "query_api", true, "queries", []any{""}), e + "queries: an empty query has no answer"},
		"keep_unmapped without map":      {at(someURL, "keep_unmapped", true), e + "keep_unmapped: needs map: dcgm"},
		"a query API with strict":        {at("http://p", "query_api", true, "strict", true), e + "strict" + noEffect},
		"a query API with honored times": {at("http://p", "query_api", true, "honor_timestamps", true), e + "honor_timestamps" + noEffect},
		"a query API with protocols":     {at("http://p", "query_api", true, "scrape_protocols", []any{"PrometheusProto"}), e + "scrape_protocols" + noEffect},
		"a query API with markers":       {at("http://p", "query_api", true, "stale_markers", true), e + "stale_markers" + noEffect},
		"several keys of a query API":    {at("http://p/metrics", "query_api", true, "strict", true), e + "endpoint: ends in /metrics, which is no query API: for an exporter use map: dcgm\n" + e + "strict" + noEffect},
		"filters as a text":              {at(someURL, "filters", "TEMP"), `endpoints::e::filters: "TEMP"` + forms},
		"a filter of an endpoint":        {at(someURL, "filters", []any{"ok", "a("}), "endpoints::e::filters::1: error parsing regexp: missing closing ): `a(`"},
		"an exclusion of an endpoint":    {at(someURL, "exclude", map[string]any{"a": map[string]any{"l": "*"}}), "endpoints::e::exclude::a::l: error parsing regexp: missing argument to repetition operator: `*`"},
		"a filter of the family":         {map[string]any{"filters": []any{"["}}, "filters::0: error parsing regexp: missing closing ]: `[`"},
		"an exclusion of the family":     {map[string]any{"exclude": map[string]any{"a)": nil}}, "exclude: error parsing regexp: unexpected ): `a)`"},
		"TLS of an unknown version":      {at("https://h", "tls", map[string]any{"min_version": "9"}), noTLS},
		"everything at once": {
			map[string]any{
				"filters":   []any{"("},
				"endpoints": map[string]any{"e": map[string]any{"endpoint": "x", "max_labels": 0, "filters": 1, "map": "x"}, "a b": someURL},
			},
			"filters::0: error parsing regexp: missing closing ): `(`\nendpoints::a b" + name + "\n" + noBegin + "\n" + e + "max_labels: 0: must be above 0\n" +
				`endpoints::e::filters: "1"` + forms + "\n" + `endpoints::e::map: unknown value "x"; use dcgm or leave it out`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			got := refusalOf(t, tt.section)
			assert.Equal(t, tt.want, got)
			assert.NotContains(t, got, "sesame")
		})
	}
}

func TestAnEndpointThatIsNil(t *testing.T) {
	cfg := &Config{Endpoints: map[string]*EndpointConfig{"e": nil}}
	require.EqualError(t, cfg.Validate(), "endpoints::e: must be a URL, or a map of settings")
}

// The configuration is shown (zpages, feature.ConfigProvider) and read again.
func TestMarshalledSectionsReadTheSameButForSecrets(t *testing.T) {
	values := map[string]any{
		"max_series": 5,
		"filters":    map[string]any{"TEMP": map[string]any{}, "POWER": map[string]any{"gpu": "0"}},
		"exclude":    []any{"a$"},
		"endpoints": map[string]any{
			"a": someURL,
			"b.c": map[string]any{
				"endpoint": "unix:///run/x.sock?path=/a", "headers": map[string]any{"Authorization": "Bearer sesame"},
				"scrape_protocols": []any{"PrometheusProto"}, "timeout": "3s", "stale_markers": true,
				"tls": map[string]any{"ca_file": "/ca.crt"}, "filters": []any{"x"},
			},
			"q": map[string]any{"endpoint": "http://p", "query_api": true, "queries": []any{"up"}},
		},
	}
	cfg := accepted(t, values)
	out := confmap.New()
	require.NoError(t, out.Marshal(cfg))
	assert.NotContains(t, fmt.Sprint(out.ToStringMap()), "sesame")
	assert.Contains(t, fmt.Sprint(out.ToStringMap()), "[REDACTED]")
	again := accepted(t, out.ToStringMap())
	assert.Equal(t, cfg.CommonConfig, again.CommonConfig)
	assert.Equal(t, cfg.Filters, again.Filters)
	assert.Equal(t, cfg.Exclude, again.Exclude)
	assert.Equal(t, cfg.Endpoints["a"], again.Endpoints["a"])
	assert.Equal(t, cfg.Endpoints["q"], again.Endpoints["q"])
	repeated := confmap.New()
	require.NoError(t, repeated.Marshal(again))
	assert.Equal(t, out.ToStringMap(), repeated.ToStringMap())
}

func TestDecodingLeavesTheSectionAlone(t *testing.T) {
	values := func() map[string]any { return at(someURL, "filters", map[string]any{"a": map[string]any{}}) }
	conf := confmap.NewFromStringMap(values())
	require.NoError(t, conf.Unmarshal(defaultConfig()))
	assert.Equal(t, values(), conf.ToStringMap())
}
