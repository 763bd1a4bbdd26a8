// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	bearerToken = "s3cr3t-token"
	headerValue = "s3cr3t-header"
	queryValue  = "s3cr3t-query"
	basicAuth   = "s3cr3t-password"
)

// serveMetrics answers with a gauge `load` of a value.
func serveMetrics(value int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", classicText)
		_, _ = fmt.Fprintf(w, "# TYPE load gauge\nload{of=\"all\"} %d\n", value)
	}
}

// guarded lets requests through that pass a check.
func guarded(check func(*http.Request) bool, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !check(r) {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

// site is a set of endpoints, good and bad.
type site struct {
	folder string
	urls   map[string]string
	// keys are YAML beside the endpoint.
	keys map[string]string
}

// bad endpoints and what their errors say.
var bad = map[string]string{
	"bearer":  `the endpoint answered 401 Unauthorized: "who are you?"`,
	"html":    "HTML",
	"refused": "connection refused",
	"hanging": "no whole answer in time",
	"foreign": "certificate signed by unknown authority",
	"moved":   "302 Found to https://elsewhere.example/metrics, which is not followed",
	"nobody":  "failed to resolve authenticator",
}

// good endpoints and the values of their gauges.
var good = map[string]float64{"plain": 1, "tls": 2, "socket": 3, "headers": 4, "basic": 5}

func startSite(t *testing.T) *site {
	t.Helper()
	x := &site{folder: t.TempDir(), urls: map[string]string{}, keys: map[string]string{}}
	x.serve(t, "plain", serveMetrics(1))
	x.serve(t, "headers", guarded(func(r *http.Request) bool {
		return r.Header.Get("X-Key") == headerValue && r.URL.Query().Get("key") == queryValue
	}, serveMetrics(4)))
	x.urls["headers"] += "?key=" + queryValue
	x.keys["headers"] = "headers: {X-Key: " + headerValue + "}"
	x.serve(t, "basic", guarded(func(r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		return password == basicAuth
	}, serveMetrics(5)))
	x.keys["basic"] = "auth: {authenticator: basicauth}"
	x.serve(t, "bearer", guarded(func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer "+bearerToken
	}, serveMetrics(6)))
	x.keys["bearer"] = "auth: {authenticator: bearertokenauth}"
	x.write(t, "token", "wrong-"+bearerToken)
	x.serve(t, "html", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "<!DOCTYPE html><html><body>Welcome</body></html>")
	})
	x.serve(t, "moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example/metrics?key="+queryValue, http.StatusFound)
	})
	x.serve(t, "nobody", serveMetrics(7))
	x.keys["nobody"] = "auth: {authenticator: bearertokenauth/nobody}"
	x.serve(t, "hanging", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	x.keys["hanging"] = "timeout: 200ms"
	x.urls["refused"] = "http://" + freeAddress(t) + "/metrics"
	x.serveTLS(t)
	x.serveSocket(t)
	return x
}

func (x *site) serve(t *testing.T, name string, handler http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	x.urls[name] = server.URL + "/metrics"
}

// serveTLS: one endpoint knows the authority, the other does not.
func (x *site) serveTLS(t *testing.T) {
	t.Helper()
	server := httptest.NewUnstartedServer(serveMetrics(2))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the other hangs up
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := x.write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	x.urls["tls"], x.urls["foreign"] = server.URL+"/metrics", server.URL+"/metrics"
	x.keys["tls"] = "tls: {ca_file: " + ca + "}"
}

func (x *site) serveSocket(t *testing.T) {
	t.Helper()
	path := filepath.Join(x.folder, "exporter.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: serveMetrics(3)}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	x.urls["socket"] = "unix://" + path
}

func (x *site) write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(x.folder, name)
	writeFile(t, path, content)
	return path
}

// settings is a configuration with all endpoints.
func (x *site) settings(exporters, keys string) settings {
	var endpoints strings.Builder
	for name, at := range x.urls {
		fmt.Fprintf(&endpoints, "%s: {endpoint: %q, %s}, ", name, at, x.keys[name])
	}
	return settings{
		receivers:  fmt.Sprintf("wandbsys: {collection_interval: 1s, initial_delay: 0s, %s scrapers: {openmetrics: {endpoints: {%s}}}}", keys, endpoints.String()),
		exporters:  exporters,
		extensions: fmt.Sprintf("bearertokenauth: {filename: %s/token}\nbasicauth: {client_auth: {username: agent, password: %s}}", x.folder, basicAuth),
		logs:       "level: debug",
	}
}

// ofEndpoint keeps the points of an endpoint's resource.
func (ps points) ofEndpoint(endpoint string) points {
	return ps.filter(func(p point) bool { return p.resource["service.name"] == endpoint })
}

// up is what the last scrape of an endpoint says of it; -1 before the first.
func up(s *sink, endpoint string) float64 {
	ups := s.points().ofEndpoint(endpoint).named(healthName+"up").with("endpoint", endpoint)
	if len(ups) == 0 {
		return -1
	}
	return ups.last().value
}

func (x *site) waitForUp(p *process, s *sink, want map[string]float64) {
	p.waitFor("every endpoint's health", func() bool {
		for name := range x.urls {
			if up(s, name) != want[name] {
				return false
			}
		}
		return true
	})
}

// scrapesOf is how often an endpoint was asked, well or not.
func scrapesOf(s *sink, endpoint string) int {
	return len(s.points().ofEndpoint(endpoint).named(healthName + "up"))
}

// A dozen endpoints, half of them in some trouble: each is for itself.
func TestEndpointsInTroubleCostThemselvesOnly(t *testing.T) {
	x, s := startSite(t), startSink(t, nil)
	p := startCollector(t, x.settings(s.exporter(), "host_name: node-7,"))
	want := map[string]float64{}
	for name := range good {
		want[name] = 1
	}
	x.waitForUp(p, s, want)
	before := scrapesOf(s, "hanging")
	p.waitFor("several scrapes", func() bool { return scrapesOf(s, "hanging") >= before+several })

	for name, value := range good {
		t.Run(name, func(t *testing.T) { x.checkGood(t, s, name, value) })
	}
	for name, text := range bad {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, []string{
				healthName + "lines_skipped", healthName + "samples_kept", healthName + "samples_scraped",
				healthName + "scrape_duration", healthName + "up",
			}, s.points().ofEndpoint(name).names(), "no points but of its health")
			require.Len(t, aboutEndpoint(p, name, "error"), 1, "told once")
			assert.Contains(t, aboutEndpoint(p, name, "error")[0], text)
		})
	}

	x.write(t, "token", bearerToken)
	p.waitFor("the endpoint that takes the new token", func() bool { return up(s, "bearer") == 1 })
	x.checkGood(t, s, "bearer", 6)
	p.waitFor("the log of it", func() bool { return len(aboutEndpoint(p, "bearer", "info")) == 1 })
	assert.Contains(t, aboutEndpoint(p, "bearer", "info")[0], "Source answers again")
	x.write(t, "token", "wrong-"+bearerToken)
	p.waitFor("the trouble that is back", func() bool { return len(aboutEndpoint(p, "bearer", "error")) == 2 })
	p.stop()
	assert.Zero(t, p.exitCode())
	for _, secret := range []string{bearerToken, headerValue, queryValue, basicAuth} {
		assert.NotContains(t, p.stderr.String()+p.stdout.String(), secret)
		assert.NotContains(t, fmt.Sprint(s.points()), secret)
	}
}

// checkGood: the one series of an endpoint, on its resource.
func (x *site) checkGood(t *testing.T, s *sink, name string, value float64) {
	t.Helper()
	got := s.points().ofEndpoint(name).named("openmetrics." + name + ".load").last()
	assert.InDelta(t, value, got.value, 0)
	assert.Equal(t, map[string]any{"of": "all", "wandb.index": int64(0)}, got.attrs)
	u, err := url.Parse(x.urls[name])
	require.NoError(t, err)
	want := map[string]any{
		"service.name": name, "service.instance.id": "node-7/" + name, "host.name": "node-7",
		"server.address": "127.0.0.1", "url.scheme": u.Scheme,
	}
	if u.Scheme == "unix" {
		want["server.address"], want["url.scheme"] = u.Path, "http"
	} else {
		port, err := strconv.ParseInt(u.Port(), 10, 64)
		require.NoError(t, err)
		want["server.port"] = port
	}
	assert.Equal(t, want, got.resource)
}

// aboutEndpoint returns the lines of a level that name an endpoint, but for those
// that tell of the whole family.
func aboutEndpoint(p *process, name, level string) []string {
	var lines []string
	for _, line := range familyLines(p, "openmetrics", level) {
		if line.Msg == "Family state" {
			continue
		}
		for part := range strings.SplitSeq(line.Source+"\n"+line.Error, "\n") {
			if strings.Contains(part, "endpoint "+name+" (") {
				lines = append(lines, strings.TrimSpace(line.Msg+" "+part))
			}
		}
	}
	return lines
}

func TestSecretsOfEndpointsAreNotPrinted(t *testing.T) {
	x := startSite(t)
	x.keys["plain"] = "auth: {authenticator: basicauth}, headers: {Authorization: Bearer " + headerValue + "}"
	delete(x.urls, "headers") // parameters of URLs are shown: they are no place for secrets
	config := x.settings("debug: ", "").write(t)
	stdout, stderr, code := run(t, nil, "print-config", "--config", config)
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, "[REDACTED]")
	for _, secret := range []string{bearerToken, headerValue, basicAuth} {
		assert.NotContains(t, stdout+stderr, secret)
	}
}

// What is wrong with an endpoint is refused at start, with its name.
func TestValidateRefusesWrongEndpoints(t *testing.T) {
	const below = "Error: receivers::wandbsys::scrapers::openmetrics: "
	for name, tt := range map[string]refusal{
		"an expression that is none": {
			`scrapers: {openmetrics: {endpoints: {gpu: {endpoint: "http://h/metrics", filters: ["^vllm", "load("]}}}}`,
			below + "endpoints::gpu::filters::1: error parsing regexp: missing closing ): `load(`",
		},
		"a label's expression that is none": {
			`scrapers: {openmetrics: {endpoints: {gpu: {endpoint: "http://h/metrics", exclude: {load: {of: "*"}}}}}}`,
			below + "endpoints::gpu::exclude::load::of: error parsing regexp: missing argument to repetition operator: `*`",
		},
		"an expression of the family": {
			`scrapers: {openmetrics: {filters: ["a["], endpoints: {gpu: "http://h/metrics"}}}`,
			below + "filters::0: error parsing regexp: missing closing ]: `[`",
		},
		"credentials in the URL": {
			`scrapers: {openmetrics: {endpoints: {gpu: "http://me:` + basicAuth + `@h/metrics"}}}`,
			below + "endpoints::gpu: endpoint: must not hold credentials, which would be shown; use auth, or headers",
		},
		"an endpoint without a scheme": {
			`scrapers: {openmetrics: {endpoints: {gpu: "localhost:9400/metrics"}}}`,
			below + "endpoints::gpu: endpoint: must begin with http://, https:// or unix:///",
		},
		"a query API that is an exporter": {
			`scrapers: {openmetrics: {endpoints: {gpu: {endpoint: "http://h:9400/metrics", query_api: true}}}}`,
			below + "endpoints::gpu: endpoint: ends in /metrics, which is no query API: for an exporter use map: dcgm",
		},
	} {
		t.Run(name, tt.check)
	}
}

func TestRunRefusesAWrongFilter(t *testing.T) {
	_, stderr, code := run(t, nil, "--config=yaml:"+oneLine,
		`--config=yaml:receivers::wandbsys::scrapers: {openmetrics: {endpoints: {gpu: {endpoint: "http://h/metrics", filters: ["load("]}}}}`)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "endpoints::gpu::filters::0: error parsing regexp: missing closing ): `load(`")
}

func TestTagNamingPutsTheIndexIntoTheName(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", classicText)
		_, _ = fmt.Fprint(w, "# TYPE metric gauge\nmetric{a=\"x\"} 7\nmetric{a=\"y\"} 8\n")
	}))
	defer server.Close()
	for naming, suffix := range map[string]string{"tag": "", "sdk": "/l:node-7"} {
		t.Run(naming, func(t *testing.T) {
			s := startSink(t, nil)
			p := startCollector(t, settings{
				receivers: fmt.Sprintf("wandbsys: {collection_interval: 1s, initial_delay: 0s, naming: %s, label: node-7, scrapers: {openmetrics: {endpoints: {ep: '%s'}}}}", naming, server.URL),
				exporters: s.exporter(),
			})
			p.waitFor("both series", func() bool { return len(s.points().named("openmetrics.ep.metric.1"+suffix)) > 0 })
			for i, value := range []float64{7, 8} {
				got := s.points().named(fmt.Sprintf("openmetrics.ep.metric.%d%s", i, suffix)).last()
				assert.InDelta(t, value, got.value, 0)
				assert.Equal(t, string("xy"[i]), got.attrs["a"])
			}
			assert.Empty(t, s.points().named("openmetrics.ep.metric"))
		})
	}
}

// Two endpoints with the same series stay apart on our Prometheus endpoint.
func TestPrometheusKeepsEndpointsApart(t *testing.T) {
	one, two := httptest.NewServer(serveMetrics(1)), httptest.NewServer(serveMetrics(2))
	defer one.Close()
	defer two.Close()
	address := freeAddress(t)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 1s, initial_delay: 0s, host_name: node-7, scrapers: {openmetrics: {endpoints: {one: '%s', two: '%s'}}}}", one.URL, two.URL),
		exporters: "prometheus: {endpoint: '" + address + "'}",
	})
	all := awaitSamples(t, p, address, "both endpoints", func(all samples) bool {
		return len(all.find("openmetrics_one_load")) == 1 && len(all.find("openmetrics_two_load")) == 1
	})
	for i, name := range []string{"one", "two"} {
		load := all.find("openmetrics_" + name + "_load")[0]
		assert.InDelta(t, float64(i+1), load.value, 0)
		assert.Equal(t, "node-7/"+name, load.labels["instance"])
		assert.Equal(t, name, load.labels["job"])
		ups := all.find("wandbsys_endpoint_up", "endpoint", name)
		require.Len(t, ups, 1)
		assert.InDelta(t, 1, ups[0].value, 0)
	}
}

// Without an endpoint there is nothing to scrape, which is no fault.
func TestNoEndpointIsAbsent(t *testing.T) {
	health := freeAddress(t)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 200ms, initial_delay: 0s}", exporters: "debug: ", metrics: pullReader(health),
	})
	all := awaitSamples(t, p, health, "the state", func(all samples) bool {
		return len(all.find("otelcol_wandbsys_family_state", "family", "openmetrics", "state", "absent")) == 1
	})
	assert.Equal(t, "no endpoint is configured", all.find("otelcol_wandbsys_family_state", "family", "openmetrics")[0].labels["reason"])
	assert.Empty(t, familyLines(p, "openmetrics", "warn"))
	assert.Empty(t, familyLines(p, "openmetrics", "error"))
}

// With every endpoint down the family is lost, and its health says why.
func TestAllEndpointsDownIsLost(t *testing.T) {
	health, address, s := freeAddress(t), freeAddress(t), startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 1s, initial_delay: 0s, scrapers: {openmetrics: {endpoints: {ep: 'http://" + address + "/metrics'}}}}",
		exporters: s.exporter(), metrics: pullReader(health),
	})
	state := func(want string) samples {
		return awaitSamples(t, p, health, "the state "+want, func(all samples) bool {
			return len(all.find("otelcol_wandbsys_family_state", "family", "openmetrics", "state", want)) == 1
		})
	}
	lost := state("lost").find("otelcol_wandbsys_family_state", "family", "openmetrics")[0]
	assert.Contains(t, lost.labels["reason"], "endpoint ep (http://"+address+"/metrics): ")
	assert.Contains(t, lost.labels["reason"], "connection refused")
	p.waitFor("its health, which is told all the same", func() bool { return up(s, "ep") == 0 })

	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := &http.Server{Handler: serveMetrics(1)}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	found := state("detected").find("otelcol_wandbsys_family_state", "family", "openmetrics")[0]
	assert.Empty(t, found.labels["reason"])
	p.waitFor("the log of it", func() bool { return len(aboutEndpoint(p, "ep", "info")) == 1 })
	assert.Len(t, aboutEndpoint(p, "ep", "error"), 1)
}
