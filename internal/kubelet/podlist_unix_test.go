// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kubelet

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// kubeletServer is a kubelet with a certificate, for a test's time.
func kubeletServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that hang up
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// authority writes the server's certificate into a file.
func authority(t *testing.T, server *httptest.Server, file string) string {
	t.Helper()
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	return file
}

func write(t *testing.T, file, content string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// newList returns the source that a section describes, in a pod whose service
// account's folder is given.
func newList(t *testing.T, serviceAccount, text string) *podList {
	t.Helper()
	cfg := mustLoad(t, text)
	list, err := newPodList(t.Context(), *cfg.Kubelet.Get(), serviceAccount, componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
	require.NoError(t, err)
	return list
}

// trusting returns a source that accepts any certificate and has no token.
func trusting(t *testing.T, server *httptest.Server, more string) *podList {
	t.Helper()
	return newList(t, t.TempDir(), fmt.Sprintf("kubelet: {endpoint: '%s', tls: {insecure_skip_verify: true}%s}", server.URL, more))
}

func serveExample(t *testing.T) http.HandlerFunc {
	t.Helper()
	content := readExample(t)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/pods" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(content)
	}
}

// serveTo serves the example to those who have the token.
func serveTo(t *testing.T, token func() string) http.HandlerFunc {
	t.Helper()
	next := serveExample(t)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token() {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func TestPodListOverTLS(t *testing.T) {
	server := kubeletServer(t, serveExample(t))
	ca := authority(t, server, filepath.Join(t.TempDir(), "ca"))
	list := newList(t, t.TempDir(), fmt.Sprintf("kubelet: {endpoint: '%s', tls: {ca_file: '%s'}}", server.URL, ca))
	for range 2 {
		got, err := list.containers(t.Context())
		require.NoError(t, err)
		assert.Equal(t, exampleList(), got)
	}
}

func TestPodListWithAServiceAccountAlone(t *testing.T) {
	server := kubeletServer(t, serveTo(t, func() string { return "sa-token" }))
	account := t.TempDir()
	write(t, filepath.Join(account, "token"), "sa-token\n")
	authority(t, server, filepath.Join(account, "ca.crt"))
	got, err := newList(t, account, "kubelet: {endpoint: '"+server.URL+"'}").containers(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, 7)
}

func TestPodListOfTheReadOnlyPortGetsNoToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		serveExample(t)(w, r)
	}))
	t.Cleanup(server.Close)
	account := t.TempDir()
	write(t, filepath.Join(account, "token"), "secret")
	got, err := newList(t, account, "kubelet: {endpoint: '"+server.URL+"'}").containers(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, 7)
}

func TestPodListFollowsATokenThatChanges(t *testing.T) {
	token := "token-one"
	server := kubeletServer(t, serveTo(t, func() string { return token }))
	file := write(t, filepath.Join(t.TempDir(), "token"), token)
	list := trusting(t, server, ", token_file: '"+file+"'")
	_, err := list.containers(t.Context())
	require.NoError(t, err)

	token = "token-two"
	_, err = list.containers(t.Context())
	require.ErrorContains(t, err, "401 Unauthorized: Unauthorized (the token of "+file+" is not accepted; kubelet::token_file")
	assert.NotContains(t, err.Error(), "token-one")

	write(t, file, token)
	_, err = list.containers(t.Context())
	require.NoError(t, err)
}

func TestPodListWithAHeaderSendsNoOtherToken(t *testing.T) {
	server := kubeletServer(t, serveTo(t, func() string { return "mine" }))
	account := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(account, "token"), 0o700)) // reading it would fail
	list := newList(t, account, fmt.Sprintf("kubelet: {endpoint: '%s', headers: {Authorization: Bearer mine}, tls: {insecure_skip_verify: true}}", server.URL))
	_, err := list.containers(t.Context())
	require.NoError(t, err)
}

func TestPodListWithoutAUsableToken(t *testing.T) {
	server := kubeletServer(t, serveExample(t))
	dir := t.TempDir()
	empty := write(t, filepath.Join(dir, "empty"), " \n")
	broken := write(t, filepath.Join(dir, "broken"), "secret\nsecret")
	for file, want := range map[string]string{
		filepath.Join(dir, "none"): "reading the token: open " + dir + "/none: no such file or directory (kubelet::token_file)",
		empty:                      "the token's file " + empty + " is empty (kubelet::token_file)",
		broken:                     "invalid header field value",
	} {
		_, err := trusting(t, server, ", token_file: '"+file+"'").containers(t.Context())
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestPodListSaysWhatIsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"no_token":     {401, "Unauthorized", "401 Unauthorized: Unauthorized (a token is needed: kubelet::token_file)"},
		"no_right":     {403, "Forbidden (verb=get, resource=nodes,\r\n\tsubresource=proxy)\x1b[31m", "403 Forbidden: Forbidden (verb=get, resource=nodes, subresource=proxy) [31m (the service account needs the right to get nodes/proxy, or nodes/pods where"},
		"wrong_place":  {404, "", "404 Not Found (kubelet::endpoint must be"},
		"broken":       {500, "oh", "500 Internal Server Error: oh"},
		"no_content":   {204, "", "204 No Content"},
		"long_body":    {503, strings.Repeat("ä", 5000), "503 Service Unavailable: " + strings.Repeat("ä", 100)},
		"cut_rune":     {503, "x" + strings.Repeat("ä", 5000), "503 Service Unavailable: x" + strings.Repeat("ä", 99)},
		"unknown_code": {599, "\xff", "599 "},
	} {
		t.Run(name, func(t *testing.T) {
			server := kubeletServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			got, err := trusting(t, server, "").containers(t.Context())
			assert.Empty(t, got)
			require.ErrorContains(t, err, "kubelet: GET "+server.URL+"/pods: "+tc.want)
			assert.Less(t, len(err.Error()), 400)
			assert.NotRegexp(t, `[\x00-\x1f]`, err.Error())
		})
	}
}

func TestPodListFollowsNoRedirect(t *testing.T) {
	other := kubeletServer(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with %v", r.Header)
	})
	server := kubeletServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/pods", http.StatusFound)
	})
	_, err := trusting(t, server, ", headers: {Authorization: Bearer secret}").containers(t.Context())
	require.ErrorContains(t, err, "302 Found")
	require.ErrorContains(t, err, "kubelet::endpoint leads elsewhere, which is not followed")
}

func TestPodListThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		`{"items":[{"metadata":{`: "reading the list of pods: unexpected EOF",
		`{"items":[{"spec":7}]}`:  "reading the list of pods: json: cannot unmarshal number",
		`<html>`:                  "reading the list of pods: invalid character '<'",
	} {
		server := kubeletServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
		got, err := trusting(t, server, "").containers(t.Context())
		require.ErrorContains(t, err, want)
		assert.Empty(t, got)
	}
}

func TestPodListOfALargeNode(t *testing.T) {
	content := bigList(1000)
	server := kubeletServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	got, err := trusting(t, server, ", timeout: 30s").containers(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, 2000)
}

func TestPodListBeyondTheLimit(t *testing.T) {
	pods := bytes.Repeat([]byte(`{"metadata":{"name":"x"}}, `), 1<<15)
	server := kubeletServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, `{"items":[`)
		for err == nil { // until the client has had enough
			_, err = w.Write(pods)
		}
	})
	list := trusting(t, server, ", timeout: 60s")
	require.EqualValues(t, 64<<20, list.limit)
	list.limit = 3 << 20 // the race detector would take half a minute for all
	got, err := list.containers(t.Context())
	over := &guard.LimitError{}
	require.ErrorAs(t, err, &over)
	require.ErrorContains(t, err, "the list of pods is larger than the limit of 3145728 bytes")
	assert.Empty(t, got)
}

func TestPodListThatDoesNotCome(t *testing.T) {
	for name, begin := range map[string]string{"no_answer": "", "stalled_list": `{"items":[`} {
		t.Run(name, func(t *testing.T) {
			server := kubeletServer(t, func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			list := trusting(t, server, ", timeout: 100ms")
			_, err := list.containers(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "no answer within 100ms (timeout)")

			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err = list.containers(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotContains(t, err.Error(), "100ms")
		})
	}
}

func TestPodListWithoutTrust(t *testing.T) {
	server := kubeletServer(t, serveExample(t))
	_, err := newList(t, t.TempDir(), "kubelet: {endpoint: '"+server.URL+"'}").containers(t.Context())
	require.ErrorContains(t, err, "x509")
	require.ErrorContains(t, err, "kubelet::tls::ca_file")
}

func TestPodListOfNobody(t *testing.T) {
	server := kubeletServer(t, serveExample(t))
	list := trusting(t, server, "")
	server.Close()
	_, err := list.containers(t.Context())
	require.ErrorContains(t, err, "connection refused (kubelet::endpoint;")

	list = newList(t, t.TempDir(), "kubelet: {endpoint: 'https://node.invalid:10250'}")
	_, err = list.containers(t.Context())
	require.ErrorContains(t, err, "kubelet::endpoint must have the address")
	assert.Equal(t, 1, strings.Count(err.Error(), "/pods"))
}

func TestPodListThatCannotBeMade(t *testing.T) {
	for text, want := range map[string]string{
		"kubelet: {endpoint: 'https://n', tls: {ca_file: /does/not/exist}}":     "/does/not/exist",
		"kubelet: {endpoint: 'https://n', auth: {authenticator: nobody}}":       "nobody",
		"kubelet: {endpoint: 'https://n', proxy_url: 'no proxy'}":               "no proxy",
		"kubelet: {endpoint: 'https://n', middlewares: [{id: does_not_exist}]}": "does_not_exist",
	} {
		_, err := New(t.Context(), mustLoad(t, text), componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
		require.ErrorContains(t, err, "kubelet: ")
		require.ErrorContains(t, err, want)
	}
}

func BenchmarkPodList(b *testing.B) {
	content := bigList(200)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	defer server.Close()
	cfg := NewDefaultConfig()
	section := cfg.Kubelet.GetOrInsertDefault()
	section.HTTP.Endpoint = server.URL
	section.HTTP.TLS.InsecureSkipVerify = true
	list, err := newPodList(b.Context(), *section, b.TempDir(), componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := list.containers(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
