// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package fetch asks endpoints over HTTP: one answer at a time, bounded in time and
// size, with errors that hold no secrets.
package fetch

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
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configmiddleware"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// shownAnswer is how much of a refusal's text goes into the error.
const shownAnswer = 100

// Options say whom to ask, and how.
type Options struct {
	// Config has the endpoint's URL, see [ParseTarget], and how to reach it.
	Config confighttp.ClientConfig
	// Timeout is the time for one answer.
	Timeout time.Duration
	// Limit is the size of the largest answer, decompressed, in bytes, and LimitKey
	// the configuration's key for it.
	Limit    int
	LimitKey string
	// Accept and UserAgent are headers of every request.
	Accept, UserAgent string
	Telemetry         component.TelemetrySettings
}

// Client asks one endpoint. It keeps the memory of one answer for the next, and is
// not safe for concurrent use.
type Client struct {
	options Options
	target  Target
	host    component.Host

	http      *http.Client
	transport *http.Transport
	// given is what the last request had of the timeout.
	given time.Duration

	body bytes.Buffer
	in   *bufio.Reader
	zip  *gzip.Reader
}

// New returns a client for a configuration that was checked. It does no I/O.
func New(o Options) (*Client, error) {
	at, err := ParseTarget(o.Config.Endpoint)
	if err != nil {
		return nil, err
	}
	return &Client{options: o, target: at}, nil
}

// Target is what the client asks.
func (c *Client) Target() Target { return c.target }

// Start gives the client the extensions that its configuration may name. It does no
// I/O: files are read when the first request is made, and again until they are there.
func (c *Client) Start(host component.Host) { c.host = host }

// connect makes the HTTP client.
func (c *Client) connect(ctx context.Context) error {
	config := c.options.Config
	config.Timeout = 0      // each request has a context that ends
	config.Compression = "" // there is no body, of which confighttp would make one
	extensions := map[component.ID]component.Component{}
	if c.host != nil {
		maps.Copy(extensions, c.host.GetExtensions())
	}
	hook := &transportHook{socket: c.target.socket}
	extensions[hookID] = hook
	config.Middlewares = append(slices.Clone(config.Middlewares), configmiddleware.Config{ID: hookID})
	made, err := config.ToClient(ctx, extensions, c.options.Telemetry)
	if err != nil {
		return fmt.Errorf("making the HTTP client: %w", err)
	}
	// An exporter that moved is a thing to tell, and its new place may be anywhere.
	made.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http, c.transport = made, hook.transport
	return nil
}

// hookID is a name that no configuration has.
var hookID = component.MustNewIDWithName("transport_hook", "wandbsys")

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

// Get asks the endpoint, and returns the body, decompressed, and its Content-Type. The
// body is valid until the next request. Errors are of type
// *scrapers.Fault, their causes "connect", "start", "body", "timeout" or "status 401".
func (c *Client) Get(ctx context.Context) (body []byte, contentType string, err error) {
	return c.GetURL(ctx, c.target.url)
}

// GetURL asks for another URL of the same server.
func (c *Client) GetURL(ctx context.Context, from *url.URL) (body []byte, contentType string, err error) {
	if c.http == nil {
		if err := c.connect(ctx); err != nil {
			return nil, "", scrapers.NewFault("start", err)
		}
	}
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
func (c *Client) timeLeft(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return c.options.Timeout
	}
	return min(c.options.Timeout, time.Duration(float64(time.Until(end))*requestShare))
}

func (c *Client) send(ctx context.Context, from *url.URL) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", c.options.Accept)
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("User-Agent", c.options.UserAgent)
	return c.http.Do(request)
}

// fault tells what went wrong without the URL, whose parameters may be secrets. When the
// time is over the connection is closed, which may be all that err knows of it.
func (c *Client) fault(ctx context.Context, cause string, err error) *scrapers.Fault {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return scrapers.NewFault("timeout", fmt.Errorf("no whole answer in time (%s): %w", c.given.Round(time.Millisecond), context.DeadlineExceeded))
	}
	return scrapers.NewFault(cause, err)
}

// refusal is the error for an answer that is not 200: what the server says often tells
// what to do. Beside a redirect it is the new URL, whose parameters may be secrets.
func (c *Client) refusal(response *http.Response) *scrapers.Fault {
	text := fmt.Sprintf("the endpoint answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	said := c.said(response) // in any case: a connection is kept when its answer is read
	if to, err := response.Location(); err == nil {
		text += " to " + Target{url: to}.String() + ", which is not followed"
	} else if said != "" {
		text += fmt.Sprintf(": %q", said)
	}
	return scrapers.NewFault(fmt.Sprint("status ", response.StatusCode), errors.New(text))
}

// said is the beginning of what a server says beside its refusal.
func (c *Client) said(response *http.Response) string {
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
func (c *Client) read(response *http.Response) error {
	plain, err := c.open(response)
	if err != nil {
		return err
	}
	defer c.in.Reset(nil)
	c.body.Reset()
	_, err = c.body.ReadFrom(guard.LimitReader(plain, int64(c.options.Limit), "the body", c.options.LimitKey))
	return err
}

// open returns the body as it was before compression. Whether it is compressed shows in
// its first two bytes: some servers do not say so, and no exposition begins like that.
func (c *Client) open(response *http.Response) (io.Reader, error) {
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

func (c *Client) unzip() error {
	if c.zip == nil {
		made, err := gzip.NewReader(c.in)
		c.zip = made
		return err
	}
	return c.zip.Reset(c.in)
}

// Shutdown closes the connections that are kept.
func (c *Client) Shutdown() {
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}
