// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configmiddleware"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// defaultAccept asks for the classic text first: in OpenMetrics the Go client changes
// the names of counters. Both are better than protobuf, which has no line to name.
const defaultAccept = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"

// shownAnswer is how much of a refusal's text goes into the error.
const shownAnswer = 100

// fault is why an endpoint gave nothing. cause tells one trouble from the next.
type fault struct {
	cause string
	err   error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }
func (f *fault) Cause() string { return f.cause }

// client asks one endpoint. It keeps the memory of one answer for the next, and is
// not safe for concurrent use.
type client struct {
	http      *http.Client
	transport *http.Transport
	target    target
	accept    string
	userAgent string
	timeout   time.Duration
	limit     int64
	limitKey  string
	// given is what the last request had of the timeout.
	given time.Duration

	body bytes.Buffer
	in   *bufio.Reader
	zip  *gzip.Reader
}

// start makes the HTTP client, with the extensions that the configuration names.
func (c *client) start(ctx context.Context, e *EndpointConfig, host component.Host, set component.TelemetrySettings) error {
	config := e.ClientConfig
	config.Timeout = 0 // each request has a context that ends
	extensions := maps.Clone(host.GetExtensions())
	if extensions == nil {
		extensions = map[component.ID]component.Component{}
	}
	hook := &transportHook{socket: c.target.socket}
	extensions[hookID] = hook
	config.Middlewares = append(slices.Clone(config.Middlewares), configmiddleware.Config{ID: hookID})
	made, err := config.ToClient(ctx, extensions, set)
	if err != nil {
		return fmt.Errorf("making the HTTP client: %w", err)
	}
	// An exporter that moved is a thing to tell, and its new place may be anywhere.
	made.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http, c.transport = made, hook.transport
	return nil
}

// hookID is a name that no configuration has.
var hookID = component.MustNewIDWithName("transport_hook", "wandbsys_openmetrics")

// transportHook is an extension that gets hold of confighttp's transport, for which
// there is no key or method: to connect it to a Unix socket, and to close it.
type transportHook struct {
	socket    string
	transport *http.Transport
}

var _ extensionmiddleware.HTTPClient = (*transportHook)(nil)

func (*transportHook) Start(context.Context, component.Host) error { return nil }
func (*transportHook) Shutdown(context.Context) error              { return nil }

// GetHTTPRoundTripper implements extensionmiddleware.HTTPClient.
func (h *transportHook) GetHTTPRoundTripper(context.Context) (extensionmiddleware.WrapHTTPRoundTripperFunc, error) {
	return func(_ context.Context, base http.RoundTripper) (http.RoundTripper, error) {
		transport, ok := base.(*http.Transport)
		if !ok {
			return nil, fmt.Errorf("%T is not the transport that is expected", base)
		}
		h.transport = transport
		if h.socket != "" {
			transport.Proxy = nil
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", h.socket)
			}
		}
		return transport, nil
	}, nil
}

// get asks for a URL and returns the body, decompressed, and its Content-Type. The
// body is valid until the next get.
func (c *client) get(ctx context.Context, from *url.URL) (body []byte, contentType string, err error) {
	c.given = c.timeLeft(ctx)
	ctx, cancel := context.WithTimeout(ctx, c.given)
	defer cancel()
	response, err := c.send(ctx, from)
	if err != nil {
		return nil, "", c.fault(ctx, "connect", err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost
	if response.StatusCode != http.StatusOK {
		return nil, "", c.refusal(response)
	}
	if err := c.read(response); err != nil {
		return nil, "", c.fault(ctx, "body", fmt.Errorf("reading the answer: %w", err))
	}
	return c.body.Bytes(), response.Header.Get("Content-Type"), nil
}

// requestShare is the part of a scrape's time that a request may take: who waits for
// the scrape should hear from here what it was that took so long.
const requestShare = 0.9

// timeLeft is how long a request may take.
func (c *client) timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return c.timeout
	}
	return min(c.timeout, time.Duration(float64(time.Until(end))*requestShare))
}

func (c *client) send(ctx context.Context, from *url.URL) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", c.accept)
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("User-Agent", c.userAgent)
	return c.http.Do(request)
}

// fault tells what went wrong without the URL, whose parameters may be secrets. When the
// time is over the connection is closed, which may be all that err knows of it.
func (c *client) fault(ctx context.Context, cause string, err error) *fault {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return &fault{cause: "timeout", err: fmt.Errorf("no whole answer in time (%s): %w", c.given.Round(time.Millisecond), context.DeadlineExceeded)}
	}
	return &fault{cause: cause, err: err}
}

// refusal is the error for an answer that is not 200: what the server says often tells
// what to do.
func (c *client) refusal(response *http.Response) *fault {
	text := fmt.Sprintf("the endpoint answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	if to, err := response.Location(); err == nil {
		text += " to " + target{url: to}.String() + ", which is not followed"
	}
	if said := c.said(response); said != "" {
		text += fmt.Sprintf(": %q", said)
	}
	return &fault{cause: fmt.Sprint("status ", response.StatusCode), err: errors.New(text)}
}

// said is the beginning of what a server says beside its refusal.
func (c *client) said(response *http.Response) string {
	plain, err := c.open(response)
	if err != nil {
		return ""
	}
	defer c.in.Reset(nil)
	said, err := io.ReadAll(io.LimitReader(plain, shownAnswer))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(said)), "")
}

// read takes the body in.
func (c *client) read(response *http.Response) error {
	plain, err := c.open(response)
	if err != nil {
		return err
	}
	defer c.in.Reset(nil)
	c.body.Reset()
	_, err = c.body.ReadFrom(guard.LimitReader(plain, c.limit, "the body", c.limitKey))
	return err
}

// open returns the body as it was before compression. Whether it is compressed shows in
// its first two bytes: some servers do not say so, and no exposition begins like that.
func (c *client) open(response *http.Response) (io.Reader, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(response.Header.Get("Content-Encoding"))); encoding {
	case "", "identity", "gzip", "x-gzip":
	default:
		return nil, fmt.Errorf("the encoding %q was not asked for", encoding)
	}
	if c.in == nil {
		c.in = bufio.NewReader(nil)
	}
	c.in.Reset(response.Body)
	if magic, _ := c.in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return c.in, nil
	}
	if err := c.unzip(); err != nil {
		return nil, err
	}
	return c.zip, nil
}

func (c *client) unzip() error {
	if c.zip == nil {
		made, err := gzip.NewReader(c.in)
		c.zip = made
		return err
	}
	return c.zip.Reset(c.in)
}

func (c *client) shutdown() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}
