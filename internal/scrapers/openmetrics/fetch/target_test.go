// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

func TestTargets(t *testing.T) {
	for text, tt := range map[string]struct {
		url, shown string
		identity   identity.Endpoint
	}{
		"http://localhost:9400/metrics": {
			"http://localhost:9400/metrics", "http://localhost:9400/metrics",
			identity.Endpoint{Name: "e", Address: "localhost", Port: 9400, Scheme: "http", Local: true},
		},
		"https://10.0.0.1/m?token=secret#part": {
			"https://10.0.0.1/m?token=secret", "https://10.0.0.1/m",
			identity.Endpoint{Name: "e", Address: "10.0.0.1", Port: 443, Scheme: "https"},
		},
		"http://[::1]": {
			"http://[::1]", "http://[::1]",
			identity.Endpoint{Name: "e", Address: "::1", Port: 80, Scheme: "http", Local: true},
		},
		"http://node-1:8000": {
			"http://node-1:8000", "http://node-1:8000",
			identity.Endpoint{Name: "e", Address: "node-1", Port: 8000, Scheme: "http", Local: true},
		},
		"unix:///run/e.sock": {
			"http://localhost/metrics", "unix:///run/e.sock",
			identity.Endpoint{Name: "e", Address: "/run/e.sock", Scheme: "http", Local: true},
		},
		"unix:///run/e.sock?path=/stats&format=prometheus": {
			"http://localhost/stats?format=prometheus", "unix:///run/e.sock",
			identity.Endpoint{Name: "e", Address: "/run/e.sock", Scheme: "http", Local: true},
		},
	} {
		at, err := ParseTarget(text)
		require.NoError(t, err, text)
		assert.Equal(t, tt.url, at.URL().String())
		assert.Equal(t, tt.shown, at.String())
		assert.Equal(t, &tt.identity, at.Identity("e", "node-1"), text)
	}
}

func TestTargetsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "endpoint: is missing",
		"localhost:9400":         "endpoint: must begin with http://, https:// or unix:///",
		"10.0.0.1:9400":          "endpoint: must begin with http://, https:// or unix:///",
		"ftp://h/":               "endpoint: must begin with http://, https:// or unix:///",
		"http:///metrics":        "endpoint: the host is missing",
		"http://h:port/":         "endpoint: is not a URL",
		"http://h:65536/":        "endpoint: the port must be from 1 to 65535",
		"http://h:0/":            "endpoint: the port must be from 1 to 65535",
		"http://u:secret@h/":     "endpoint: must not hold credentials, which would be shown; use auth, or headers",
		"unix://run/e.sock":      "endpoint: a socket's path must be absolute: unix:///run/exporter.sock",
		"unix:///e.sock?path=m":  "endpoint: the parameter `path` must begin with /",
		"http://h/\x00?s=secret": "endpoint: is not a URL",
	} {
		_, err := ParseTarget(text)
		require.EqualError(t, err, want, text)
		_, err = New(Options{})
		require.Error(t, err)
	}
}
