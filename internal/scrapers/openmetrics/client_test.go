// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const goodBody = "# TYPE m gauge\nm 7\n"

// at is a section with one endpoint, named e.
func at(url string, keys ...any) map[string]any {
	e := map[string]any{"endpoint": url}
	for i := 0; i < len(keys); i += 2 {
		e[keys[i].(string)] = keys[i+1]
	}
	return endpointsOf(map[string]any{"e": e})
}

// valueOf is the value of the endpoint e's metric m.
func valueOf(t testing.TB, md pmetric.Metrics) float64 {
	t.Helper()
	m, ok := metricsOf(md)["openmetrics.e.m"]
	require.True(t, ok, "there is no value")
	return m.Gauge().DataPoints().At(0).DoubleValue()
}

// upOf tells of each endpoint whether it is up.
func upOf(md pmetric.Metrics) map[string]int64 {
	up := map[string]int64{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "wandbsys_endpoint_up" {
				name, _ := rm.Resource().Attributes().Get("service.name")
				up[name.Str()] = m.Gauge().DataPoints().At(0).IntValue()
			}
		}
	}
	return up
}

// failed is what the endpoint e's trouble is.
type failed struct{ source, cause, text string }

func failureOf(t testing.TB, md pmetric.Metrics, err error) failed {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, map[string]int64{"e": 0}, upOf(md))
	assert.NotContains(t, metricsOf(md), "openmetrics.e.m")
	source, ok := errors.AsType[*scrapers.SourceError](err)
	require.True(t, ok)
	cause, ok := errors.AsType[*scrapers.Fault](err)
	require.True(t, ok, "%v has no cause", err)
	return failed{source.Source, cause.Cause(), source.Err.Error()}
}

// fails returns the trouble of a scrape.
func (r *rig) fails() failed {
	r.t.Helper()
	md, err := r.scrape()
	return failureOf(r.t, md, err)
}

func handle(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

// answers is a handler of one answer; headers are in pairs.
func answers(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func zipped(body string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	return b.String()
}

func TestAnswersThatHaveMetrics(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"as it is":                        answers(200, goodBody, "Content-Type", classicType),
		"gzip":                            answers(200, zipped(goodBody), "Content-Type", classicType, "Content-Encoding", "gzip"),
		"gzip by its old name":            answers(200, zipped(goodBody), "Content-Type", classicType, "Content-Encoding", "X-GZIP"),
		"gzip that nobody tells of":       answers(200, zipped(goodBody), "Content-Type", classicType),
		"gzip in two members":             answers(200, zipped("# TYPE m gauge\n")+zipped("m 7\n"), "Content-Encoding", "gzip"),
		"gzip that is none":               answers(200, goodBody, "Content-Type", classicType, "Content-Encoding", "gzip"),
		"the encoding identity":           answers(200, goodBody, "Content-Type", classicType, "Content-Encoding", "identity"),
		"a type that says nothing":        answers(200, goodBody, "Content-Type", "application/octet-stream"),
		"the type of JSON":                answers(200, goodBody, "Content-Type", "application/json"),
		"a type that is malformed":        answers(200, goodBody, "Content-Type", ";;"),
		"OpenMetrics by its type":         answers(200, goodBody+"# EOF\n", "Content-Type", openMetricsType),
		"OpenMetrics without a type":      func(w http.ResponseWriter, _ *http.Request) { answerWith(w, "", []byte(goodBody+"# EOF\n")) },
		"no type":                         func(w http.ResponseWriter, _ *http.Request) { answerWith(w, "", []byte(goodBody)) },
		"in parts":                        inParts(goodBody),
		"after a hint":                    hinted,
		"many headers that do not matter": answers(200, goodBody, "Set-Cookie", "a=b", "Location", "http://elsewhere", "X-Content-Type-Options", "nosniff"),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, at(handle(t, answer)))
			for range 3 { // with the memory of the one before
				assert.InDelta(t, 7, valueOf(t, r.must()), 0)
			}
			assert.Zero(t, r.logs.Len(), r.logs.All())
		})
	}
}

func inParts(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range []byte(body) {
			_, _ = w.Write([]byte{c})
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func hinted(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusEarlyHints)
	_, _ = io.WriteString(w, goodBody)
}

func TestAnswersThatFailTheScrape(t *testing.T) {
	long := strings.Repeat("0123456789", 20)
	for name, tt := range map[string]struct {
		answer      http.HandlerFunc
		cause, text string
	}{
		"no content":               {answers(204, ""), "status 204", "the endpoint answered 204 No Content"},
		"a part":                   {answers(206, goodBody), "status 206", `the endpoint answered 206 Partial Content: "# TYPE m gauge\nm 7"`},
		"unauthorized":             {answers(401, "who are you?\n"), "status 401", `the endpoint answered 401 Unauthorized: "who are you?"`},
		"too many requests":        {answers(429, ""), "status 429", "the endpoint answered 429 Too Many Requests"},
		"an error that says a lot": {answers(500, long), "status 500", fmt.Sprintf("the endpoint answered 500 Internal Server Error: %q", long[:100])},
		"half a character": {
			answers(500, strings.Repeat("a", 99)+"ä"), "status 500",
			fmt.Sprintf("the endpoint answered 500 Internal Server Error: %q", strings.Repeat("a", 99)),
		},
		"several lines":      {answers(503, "a\n\tb\x1b[31m\n"), "status 503", `the endpoint answered 503 Service Unavailable: "a\n\tb\x1b[31m"`},
		"compressed":         {answers(502, zipped("no backend"), "Content-Encoding", "gzip"), "status 502", `the endpoint answered 502 Bad Gateway: "no backend"`},
		"compressed, broken": {answers(502, "\x1f\x8bno"), "status 502", "the endpoint answered 502 Bad Gateway"},
		"cut": {
			answers(502, zipped("no backend")[:12], "Content-Encoding", "gzip"), "status 502", "the endpoint answered 502 Bad Gateway",
		},
		"compressed in another way": {answers(502, "x", "Content-Encoding", "br"), "status 502", "the endpoint answered 502 Bad Gateway"},
		"an unknown status":         {answers(599, ""), "status 599", "the endpoint answered 599 "},
		"moved for good": {
			answers(301, "", "Location", "https://user:sesame@other:9/new?token=sesame#x"), "status 301",
			"the endpoint answered 301 Moved Permanently to https://other:9/new, which is not followed",
		},
		"found": {
			answers(302, `<a href="http://other/?a=b">Found</a>.`, "Location", "http://other/?a=b"), "status 302", "the endpoint answered 302 Found to http://other/, which is not followed",
		},
		"redirected": {
			answers(307, "", "Location", "http://other/m"), "status 307", "the endpoint answered 307 Temporary Redirect to http://other/m, which is not followed",
		},
		"redirected to nowhere": {answers(302, ""), "status 302", "the endpoint answered 302 Found"},
		"an unknown encoding":   {answers(200, goodBody, "Content-Encoding", "zstd"), "body", `reading the answer: the encoding "zstd" was not asked for`},
		"two encodings":         {answers(200, goodBody, "Content-Encoding", "gzip, br"), "body", `reading the answer: the encoding "gzip, br" was not asked for`},
		"broken gzip":           {answers(200, "\x1f\x8b\x00\x00"+goodBody), "body", "reading the answer: gzip: invalid header"},
		"cut gzip":              {answers(200, zipped(goodBody)[:25]), "body", "reading the answer: unexpected EOF"},
		"a page":                {answers(200, "<html>", "Content-Type", "text/html"), "parse", "the endpoint answered with an HTML page and not with metrics"},
		"a page as text":        {answers(200, "<!DOCTYPE html>", "Content-Type", classicType), "parse", `the body has no metrics, it begins with "<!DOCTYPE html>"`},
		"JSON":                  {answers(200, `{"error": 1}`, "Content-Type", "application/json"), "parse", `the body has no metrics, it begins with "{\"error\": 1}"`},
		"too large": {
			answers(200, strings.Repeat("a 1\n", 1000)), "body",
			"reading the answer: the body is larger than the limit of 2000 bytes (config key scrapers::openmetrics::endpoints::e::max_body_size)",
		},
		"a bomb": {
			answers(200, zipped(strings.Repeat(" ", 10<<20)), "Content-Encoding", "gzip"), "body",
			"reading the answer: the body is larger than the limit of 2000 bytes (config key scrapers::openmetrics::endpoints::e::max_body_size)",
		},
		"without end": {
			endless, "body",
			"reading the answer: the body is larger than the limit of 2000 bytes (config key scrapers::openmetrics::endpoints::e::max_body_size)",
		},
		"too many series": {
			answers(200, "a 1\nb 1\nc 1\nd 1\n"), "max_series",
			"the endpoint has too many series after filtering (max_series: 3); raise scrapers::openmetrics::endpoints::e::max_series, or filter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := handle(t, tt.answer)
			r := start(t, at(url+"/metrics?token=sesame", "max_body_size", 2000, "max_series", 3))
			for range 3 {
				assert.Equal(t, failed{"endpoint e (" + url + "/metrics)", tt.cause, tt.text}, r.fails())
			}
			assert.Zero(t, r.logs.Len(), r.logs.All())
		})
	}
}

// endless sends until the client has enough.
func endless(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := io.WriteString(w, "m 7\n"); err != nil {
			return
		}
	}
}

// Neither another text nor another number in it is a new trouble; another status is.
func TestTheCauseOfARefusalIsItsStatus(t *testing.T) {
	var status, n atomic.Int64
	status.Store(500)
	r := start(t, at(handle(t, func(w http.ResponseWriter, _ *http.Request) {
		answers(int(status.Load()), fmt.Sprint("request ", n.Add(1)))(w, nil)
	})))
	first, second := r.fails(), r.fails()
	assert.NotEqual(t, first.text, second.text)
	assert.Equal(t, first.cause, second.cause)
	status.Store(503)
	assert.NotEqual(t, first.cause, r.fails().cause)
}

// raw answers each connection's first request by hand.
func raw(t testing.TB, network, address string, answer func(*net.TCPConn)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close() //nolint:errcheck // nothing is lost
				_, _ = conn.Read(make([]byte, 4096))
				answer(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return "http://" + listener.Addr().String()
}

func TestConnectionsThatBreak(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	for name, tt := range map[string]struct {
		answer      func(*net.TCPConn)
		cause, text string
	}{
		"a reset amid the body": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, head+"Content-Length: 1000\r\n\r\nm 7\n")
			_ = c.SetLinger(0)
		}, "body", "reading the answer: "},
		"an end before the length that was told": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, head+"Content-Length: 1000\r\n\r\nm 7\n")
		}, "body", "reading the answer: unexpected EOF"},
		"an end within a chunk": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n100\r\nm 7\n")
		}, "body", "reading the answer: unexpected EOF"},
		"an end before the answer": {func(*net.TCPConn) {}, "connect", "EOF"},
		"something that is not HTTP": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n")
		}, "connect", "malformed HTTP"},
		"a refusal that breaks off": {func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\nsorry")
		}, "status 500", "the endpoint answered 500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, at(raw(t, "tcp", "127.0.0.1:0", tt.answer)+"/?token=sesame"))
			got := r.fails()
			assert.Equal(t, tt.cause, got.cause)
			assert.Contains(t, got.text, tt.text)
			assert.NotContains(t, got.text, "sesame")
		})
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	r := start(t, at("http://"+listener.Addr().String()+"/?token=sesame"))
	assert.Equal(t, failed{
		"endpoint e (http://" + listener.Addr().String() + "/)", "connect",
		"dial tcp " + listener.Addr().String() + ": connect: connection refused",
	}, r.fails())
}

// Each of these servers would take for ever.
func TestServersThatAreTooSlow(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"no headers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"no body": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"a body in drops": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "m 7\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		},
		"compressed drops": func(w http.ResponseWriter, r *http.Request) {
			zip := gzip.NewWriter(w)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(zip, "m 7\n")
				_ = zip.Flush()
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, at(handle(t, answer)+"/?token=sesame", "timeout", "1s"))
			got := r.fails()
			assert.Equal(t, "timeout", got.cause)
			assert.Equal(t, "no whole answer in time (1s): context deadline exceeded", got.text)
		})
	}
}

// The endpoint says what is wrong before the guard gives it up, which would not know.
func TestAScrapeThatHasLessTimeThanTheEndpoint(t *testing.T) {
	r := start(t, at(handle(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "timeout", "20s"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	md, err := r.scraper.Scrape(ctx)
	got := failureOf(t, md, err)
	assert.Equal(t, "timeout", got.cause)
	assert.Regexp(t, `^no whole answer in time \(1\.\d+s\): context deadline exceeded$`, got.text)
}

func TestAScrapeThatIsCalledOff(t *testing.T) {
	asked := make(chan struct{})
	r := start(t, at(handle(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := r.scraper.Scrape(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, r.first().slot.Settle(t.Context()))
}

// first is the endpoint that comes first in the alphabet.
func (r *rig) first() *endpoint { return r.scraper.(*endpoints).all[0] }

// hosted is a host with extensions.
type hosted map[component.ID]component.Component

func (h hosted) GetExtensions() map[component.ID]component.Component { return h }

// authentication is an extension that sends requests in its own way.
type authentication struct {
	component.StartFunc
	component.ShutdownFunc
	send func(base http.RoundTripper, r *http.Request) (*http.Response, error)
}

// RoundTripper has the form of extensionauth.HTTPClient.
func (a *authentication) RoundTripper(base http.RoundTripper) (http.RoundTripper, error) {
	if a.send == nil {
		return nil, errors.New("no credentials are there")
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) { return a.send(base, r) }), nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var authID = component.MustNewIDWithName("bearertokenauth", "exporter")

func TestAuthenticationByAnExtension(t *testing.T) {
	url := handle(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			answers(401, "")(w, r)
			return
		}
		_, _ = io.WriteString(w, goodBody)
	})
	auth := &authentication{send: func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer sesame")
		return base.RoundTrip(r)
	}}
	keys := at(url, "auth", map[string]any{"authenticator": authID.String()})
	assert.InDelta(t, 7, valueOf(t, startOn(t, hosted{authID: auth}, keys).must()), 0)
	assert.Equal(t, "status 401", start(t, at(url)).fails().cause)
}

func TestAnExtensionThatIsMissingCostsOneEndpoint(t *testing.T) {
	url := handle(t, answers(200, goodBody))
	for name, tt := range map[string]struct {
		host hosted
		text string
	}{
		"no extension at all": {nil, `making the HTTP client: failed to resolve authenticator "bearertokenauth/exporter": authenticator not found`},
		"another":             {hosted{component.MustNewID("another"): &authentication{}}, `making the HTTP client: failed to resolve authenticator "bearertokenauth/exporter": authenticator not found`},
		"one that fails":      {hosted{authID: &authentication{}}, "making the HTTP client: no credentials are there"},
		"one for others":      {hosted{authID: struct{ component.Component }{}}, "making the HTTP client: requested authenticator is not a HTTP client authenticator"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startOn(t, tt.host, endpointsOf(map[string]any{
				"a": url,
				"b": map[string]any{"endpoint": url, "auth": map[string]any{"authenticator": authID.String()}},
				"c": url,
			}))
			for range 2 {
				md, err := r.scrape()
				require.EqualError(t, err, "endpoint b ("+url+"): "+tt.text)
				assert.Equal(t, map[string]int64{"a": 1, "b": 0, "c": 1}, upOf(md))
			}
		})
	}
}

// release lets something that hangs come back.
type release struct {
	once sync.Once
	c    chan struct{}
}

func (r *release) now() { r.once.Do(func() { close(r.c) }) }

func TestAnEndpointThatHangsCostsNoOther(t *testing.T) {
	free := &release{c: make(chan struct{})}
	hang := &authentication{send: func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
		<-free.c // whatever the request's context says
		return base.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	}}
	url := handle(t, answers(200, goodBody))
	r := startOn(t, hosted{authID: hang}, endpointsOf(map[string]any{
		"a": map[string]any{"endpoint": url, "auth": map[string]any{"authenticator": authID.String()}},
		"b": url,
		"e": url,
	}))
	t.Cleanup(func() { r.first().slot.Settle(context.Background()) })
	t.Cleanup(free.now)
	for _, want := range []error{context.DeadlineExceeded, guard.ErrHung} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		md, err := r.scraper.Scrape(ctx)
		cancel()
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "endpoint a ("+url+"): ")
		assert.Equal(t, map[string]int64{"a": 0, "b": 1, "e": 1}, upOf(md))
		assert.InDelta(t, 7, valueOf(t, md), 0)
	}
	free.now()
	require.True(t, r.first().slot.Settle(t.Context()))
	assert.Equal(t, map[string]int64{"a": 1, "b": 1, "e": 1}, upOf(r.must()))
}

// What an endpoint that hangs may still use is left to it.
func TestShutdownWhileAnEndpointHangs(t *testing.T) {
	free := &release{c: make(chan struct{})}
	hang := &authentication{send: func(http.RoundTripper, *http.Request) (*http.Response, error) {
		<-free.c
		return nil, assert.AnError
	}}
	r := startOn(t, hosted{authID: hang}, at("http://127.0.0.1:1", "auth", map[string]any{"authenticator": authID.String()}))
	t.Cleanup(func() { r.first().slot.Settle(context.Background()) })
	t.Cleanup(free.now)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := r.scraper.Scrape(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, r.scraper.Shutdown(t.Context()))
}

func TestWhatIsAsked(t *testing.T) {
	const rest = "*/*;q=0.1"
	for name, tt := range map[string]struct {
		keys map[string]any
		want http.Header
		host string
	}{
		"by default": {want: http.Header{
			"Accept": {"text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"},
		}},
		"OpenMetrics before text": {
			keys: map[string]any{"scrape_protocols": []any{"OpenMetricsText1.0.0", "OpenMetricsText0.0.1", "PrometheusText1.0.0", "PrometheusText0.0.4"}},
			want: http.Header{"Accept": {"application/openmetrics-text;version=1.0.0;q=0.9,application/openmetrics-text;version=0.0.1;q=0.8," +
				"text/plain;version=1.0.0;q=0.7,text/plain;version=0.0.4;q=0.6," + rest}},
		},
		"protobuf": {
			keys: map[string]any{"scrape_protocols": []any{"PrometheusProto"}},
			want: http.Header{"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.9," + rest}},
		},
		"compression, which is of bodies": {
			keys: map[string]any{"compression": "gzip"},
			want: http.Header{"Accept": {"text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"}},
		},
		"headers": {
			keys: map[string]any{"headers": map[string]any{"X-Token": "a", "Accept": "text/plain", "User-Agent": "me", "Host": "exporter"}},
			want: http.Header{"Accept": {"text/plain"}, "X-Token": {"a"}, "User-Agent": {"me"}},
			host: "exporter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan *http.Request, 1)
			url := handle(t, func(w http.ResponseWriter, r *http.Request) {
				requests <- r
				_, _ = io.WriteString(w, goodBody)
			})
			section := at(url + "/a%2Fb?x=1&x=2#part")
			maps.Copy(section["endpoints"].(map[string]any)["e"].(map[string]any), tt.keys)
			start(t, section, func(set *scrapers.Settings) {
				set.Receiver.BuildInfo.Command, set.Receiver.BuildInfo.Version = "otelcol-x", "1.2.3"
			}).must()
			got := <-requests
			assert.Equal(t, "GET", got.Method)
			assert.Zero(t, got.ContentLength)
			assert.Equal(t, "/a%2Fb?x=1&x=2", got.RequestURI)
			if tt.host != "" {
				assert.Equal(t, tt.host, got.Host)
			}
			want := http.Header{"Accept-Encoding": {"gzip"}, "User-Agent": {"otelcol-x/1.2.3"}}
			maps.Copy(want, tt.want)
			assert.Equal(t, want, got.Header)
		})
	}
}

func TestUnixSockets(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "exporter.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "# TYPE m gauge\nm{uri=%q,host=%q} 7\n", r.RequestURI, r.Host)
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	for name, tt := range map[string]struct {
		keys      []any
		url, want string
	}{
		"by default":           {nil, "unix://" + socket, "/metrics"},
		"a path":               {nil, "unix://" + socket + "?path=/a/b", "/a/b"},
		"a path and others":    {nil, "unix://" + socket + "?path=/a&x=1", "/a?x=1"},
		"a proxy is for hosts": {[]any{"proxy_url", "http://127.0.0.1:1"}, "unix://" + socket, "/metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			md := start(t, at(tt.url, tt.keys...)).must()
			require.Contains(t, metricsOf(md), "openmetrics.e.m")
			point := metricsOf(md)["openmetrics.e.m"].Gauge().DataPoints().At(0)
			assert.Equal(t, map[string]any{"uri": tt.want, "host": "localhost", indexKey: int64(0)}, point.Attributes().AsRaw())
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		got := start(t, at("unix://"+socket+".x?path=/a&token=sesame")).fails()
		assert.Equal(t, failed{
			"endpoint e (unix://" + socket + ".x)", "connect", "dial unix " + socket + ".x: connect: no such file or directory",
		}, got)
	})
}

func TestIPv6(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("there is no IPv6 here: ", err)
	}
	server := httptest.NewUnstartedServer(answers(200, goodBody))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	md := start(t, at("http://"+listener.Addr().String())).must()
	assert.InDelta(t, 7, valueOf(t, md), 0)
	address, _ := md.ResourceMetrics().At(0).Resource().Attributes().Get("server.address")
	assert.Equal(t, "::1", address.Str())
}

// secure is a server with TLS, and the PEM of its certificate and key.
func secure(t testing.TB, change func(*httptest.Server)) (url, certificate, key string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "# TYPE m gauge\nm{protocol=%q} 7\n", r.Proto)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	change(server)
	server.StartTLS()
	t.Cleanup(server.Close)
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return server.URL, certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func TestTLS(t *testing.T) {
	type m = map[string]any
	url, authority, key := secure(t, func(*httptest.Server) {})
	strict, _, _ := secure(t, func(s *httptest.Server) { s.TLS.ClientAuth = tls.RequireAnyClientCert })
	for name, tt := range map[string]struct {
		url         string
		tls         m
		cause, text string
	}{
		"a known authority":           {url, m{"ca_pem": authority}, "", ""},
		"an unknown authority":        {url, m{}, "connect", "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"no check":                    {url, m{"insecure_skip_verify": true}, "", ""},
		"another name":                {url, m{"ca_pem": authority, "server_name_override": "example.com"}, "", ""},
		"a wrong name":                {url, m{"ca_pem": authority, "server_name_override": "example.net"}, "connect", "not example.net"},
		"a certificate of the client": {strict, m{"ca_pem": authority, "cert_pem": authority, "key_pem": key}, "", ""},
		"no certificate of the client": {
			strict, m{"ca_pem": authority}, "connect", "remote error: tls: certificate required",
		},
		"no file":      {url, m{"ca_file": "/no/such/file"}, "start", "making the HTTP client: failed to load TLS config: failed to load CA CertPool File: failed to load cert /no/such/file: open /no/such/file: no such file or directory"},
		"not over TLS": {strings.Replace(url, "https", "http", 1), m{}, "status 400", `the endpoint answered 400 Bad Request: "Client sent an HTTP request to an HTTPS server."`},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, at(tt.url, "tls", tt.tls))
			if tt.cause == "" {
				assert.InDelta(t, 7, valueOf(t, r.must()), 0)
				return
			}
			got := r.fails()
			assert.Equal(t, tt.cause, got.cause)
			assert.Contains(t, got.text, tt.text)
			assert.NotContains(t, got.text, "PRIVATE KEY")
		})
	}
}

// The files that a client is made of may come later.
func TestTheClientIsMadeWhenItsFilesAreThere(t *testing.T) {
	machine := newFiles(t)
	url, authority, _ := secure(t, func(*httptest.Server) {})
	r := start(t, at(url, "tls", map[string]any{"ca_file": filepath.Join(machine.Root, "ca.crt")}))
	assert.Equal(t, "start", r.fails().cause)
	machine.Write("ca.crt", authority)
	assert.InDelta(t, 7, valueOf(t, r.must()), 0)
}

func TestHTTP2(t *testing.T) {
	url, authority, _ := secure(t, func(s *httptest.Server) { s.EnableHTTP2 = true })
	md := start(t, at(url, "tls", map[string]any{"ca_pem": authority})).must()
	protocol, _ := metricsOf(md)["openmetrics.e.m"].Gauge().DataPoints().At(0).Attributes().Get("protocol")
	assert.Equal(t, "HTTP/2.0", protocol.Str())
}

func TestProxy(t *testing.T) {
	exporter := handle(t, answers(200, goodBody))
	proxied := make(chan string, 1)
	proxy := handle(t, func(w http.ResponseWriter, r *http.Request) {
		proxied <- r.RequestURI + " " + r.Header.Get("Proxy-Authorization")
		forwarded, err := http.NewRequestWithContext(r.Context(), http.MethodGet, exporter, http.NoBody)
		if !assert.NoError(t, err) {
			return
		}
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := transport.RoundTrip(forwarded)
		if !assert.NoError(t, err) {
			return
		}
		defer response.Body.Close() //nolint:errcheck // nothing is lost
		_, _ = io.Copy(w, response.Body)
	})
	with := strings.Replace(proxy, "http://", "http://user:sesame@", 1)
	r := start(t, at("http://exporter.invalid:9400/metrics", "proxy_url", with))
	assert.InDelta(t, 7, valueOf(t, r.must()), 0)
	assert.Equal(t, "http://exporter.invalid:9400/metrics Basic dXNlcjpzZXNhbWU=", <-proxied)
}

// connections counts those that a server has, and those that it had.
type connections struct{ made, open atomic.Int64 }

func (c *connections) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.made.Add(1)
		c.open.Add(1)
	case http.StateClosed:
		c.open.Add(-1)
	}
}

func TestConnectionsAreKeptUntilTheShutdown(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"text":      answers(200, goodBody),
		"gzip":      answers(200, zipped(goodBody)),
		"refusals":  answers(503, "not yet"),
		"redirects": answers(302, "elsewhere", "Location", "http://other"),
	} {
		t.Run(name, func(t *testing.T) {
			var seen connections
			server := httptest.NewUnstartedServer(answer)
			server.Config.ConnState = seen.note
			server.Start()
			t.Cleanup(server.Close)
			r := start(t, at(server.URL))
			for range 5 {
				_, _ = r.scrape()
			}
			assert.Equal(t, int64(1), seen.made.Load())
			require.NoError(t, r.scraper.Shutdown(t.Context()))
			require.Eventually(t, func() bool { return seen.open.Load() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}

func TestWithoutKeepAliveEachScrapeHasItsConnection(t *testing.T) {
	var seen connections
	server := httptest.NewUnstartedServer(answers(200, goodBody))
	server.Config.ConnState = seen.note
	server.Start()
	t.Cleanup(server.Close)
	r := start(t, at(server.URL, "keepalive", map[string]any{"enabled": false}))
	for range 3 {
		r.must()
	}
	assert.Equal(t, int64(3), seen.made.Load())
}

// textOf is everything that leaves the family.
func textOf(t testing.TB, r *rig, md pmetric.Metrics, err error) string {
	t.Helper()
	points, failed := new(pmetric.JSONMarshaler).MarshalMetrics(md)
	require.NoError(t, failed)
	var text strings.Builder
	_, _ = fmt.Fprint(&text, string(points), err)
	for _, entry := range r.logs.All() {
		line, failed := json.Marshal(entry.ContextMap())
		require.NoError(t, failed)
		_, _ = fmt.Fprint(&text, entry.Message, string(line))
	}
	return text.String()
}

func TestSecretsAreNotTold(t *testing.T) {
	const query = "/metrics?token=sesame"
	headers := map[string]any{"Authorization": "Bearer sesame", "X-Key": "sesame"}
	auth := map[string]any{"authenticator": authID.String()}
	refused := "http://127.0.0.1:1"
	exporter := handle(t, answers(200, goodBody+"bad line\nm 8\n"))
	for name, section := range map[string]map[string]any{
		"an answer":                 at(exporter+query, "headers", headers),
		"a refusal":                 at(handle(t, answers(500, "no"))+query, "headers", headers),
		"a redirect":                at(handle(t, answers(302, "", "Location", "/x?token=sesame"))+query, "headers", headers),
		"a bad body":                at(handle(t, answers(200, "<html>"))+query, "headers", headers),
		"nobody listens":            at(refused+query, "headers", headers),
		"nobody has that name":      at("http://exporter.invalid"+query, "headers", headers, "timeout", "1s"),
		"no proxy listens":          at(exporter+query, "proxy_url", "http://user:sesame@127.0.0.1:1"),
		"no proxy for TLS listens":  at("https://127.0.0.1:2"+query, "proxy_url", "http://user:sesame@127.0.0.1:1"),
		"a proxy that refuses":      at("https://127.0.0.1:2"+query, "proxy_url", strings.Replace(handle(t, answers(407, "")), "//", "//user:sesame@", 1)),
		"a proxy of unknown scheme": at(exporter+query, "proxy_url", "gopher://user:sesame@127.0.0.1:1"),
		"no extension":              at(exporter+query, "headers", headers, "auth", auth),
		"a header that is not one":  at(exporter+query, "headers", map[string]any{"X-Key": "sesame\n"}),
		"a body that is too large":  at(exporter+query, "headers", headers, "max_body_size", 3),
		"too many series":           at(exporter+query, "headers", headers, "max_series", 1),
		"a server that is too slow": at(handle(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })+query, "headers", headers, "timeout", "1s"),
		"a socket":                  at("unix:///no/such/socket?path=/sesame&token=sesame", "headers", headers),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, section)
			for range 2 {
				md, err := r.scrape()
				assert.NotContains(t, textOf(t, r, md, err), "sesame")
			}
		})
	}
}
