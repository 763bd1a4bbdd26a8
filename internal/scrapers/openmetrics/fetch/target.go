// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// Target is where an endpoint is.
type Target struct {
	// url is what is asked; its host is a stand-in where socket is set.
	url *url.URL
	// socket is the path of a Unix socket; empty for TCP.
	socket string
}

var errBegin = errors.New("endpoint: must begin with http://, https:// or unix:///")

// ParseTarget reads an endpoint's URL: http, https, or unix:///run/exporter.sock, where
// ?path=/metrics says what is asked of the server behind the socket. Errors do not
// repeat what may be a secret.
func ParseTarget(text string) (Target, error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return Target{}, errors.New("endpoint: is missing")
	case err != nil && !strings.Contains(text, "://"): // 10.0.0.1:9400
		return Target{}, errBegin
	case err != nil:
		return Target{}, errors.New("endpoint: is not a URL")
	case u.User != nil:
		return Target{}, errors.New("endpoint: must not hold credentials, which would be shown; use auth, or headers")
	case u.Scheme == "unix":
		return parseSocket(u)
	case u.Scheme != "http" && u.Scheme != "https":
		return Target{}, errBegin
	case u.Hostname() == "":
		return Target{}, errors.New("endpoint: the host is missing")
	case !isPort(u.Port()):
		return Target{}, errors.New("endpoint: the port must be from 1 to 65535")
	}
	u.Fragment = ""
	return Target{url: u}, nil
}

// isPort tells whether a URL's port is one; none is the scheme's.
func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || (err == nil && port > 0)
}

// socketPathKey is the parameter that says what is asked of a server behind a socket.
const socketPathKey = "path"

func parseSocket(u *url.URL) (Target, error) {
	if u.Host != "" || !path.IsAbs(u.Path) {
		return Target{}, errors.New("endpoint: a socket's path must be absolute: unix:///run/exporter.sock")
	}
	query := u.Query()
	asked := "/metrics"
	if p := query.Get(socketPathKey); p != "" {
		asked = p
	}
	query.Del(socketPathKey)
	if !path.IsAbs(asked) {
		return Target{}, errors.New("endpoint: the parameter `path` must begin with /")
	}
	return Target{
		url:    &url.URL{Scheme: "http", Host: "localhost", Path: asked, RawQuery: query.Encode()},
		socket: u.Path,
	}, nil
}

// String returns the target for messages, without parameters, which may be secrets.
func (t Target) String() string {
	if t.socket != "" {
		return "unix://" + t.socket
	}
	return (&url.URL{Scheme: t.url.Scheme, Host: t.url.Host, Path: t.url.Path}).String()
}

// URL returns what is asked, which must not be changed.
func (t Target) URL() *url.URL { return t.url }

// Identity describes the endpoint; host is this machine's name.
func (t Target) Identity(name, host string) *identity.Endpoint {
	if t.socket != "" {
		return &identity.Endpoint{Name: name, Address: t.socket, Scheme: t.url.Scheme, Local: true}
	}
	address := t.url.Hostname()
	ip := net.ParseIP(address)
	return &identity.Endpoint{
		Name:    name,
		Address: address,
		Port:    portOf(t.url),
		Scheme:  t.url.Scheme,
		Local:   address == "localhost" || address == host || (ip != nil && ip.IsLoopback()),
	}
}

func portOf(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
