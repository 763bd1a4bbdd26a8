// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configtls"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const (
	// maxPodList is far above what a node's list is: a pod has 1.5 MiB at most, and
	// some 20 KiB as a rule.
	maxPodList = 64 << 20
	// maxToken is far above what a token has.
	maxToken = 64 << 10
)

// podList asks for the list of the pods that the kubelet runs.
type podList struct {
	client  *http.Client
	url     string
	timeout time.Duration
	limit   int64
	token   tokenFile
}

func newPodList(ctx context.Context, cfg PodListConfig, serviceAccount string, host component.Host, settings component.TelemetrySettings) (*podList, error) {
	u, err := cfg.podsURL()
	if err != nil {
		return nil, err
	}
	list := &podList{url: u.String(), timeout: cfg.HTTP.Timeout, limit: maxPodList, token: tokenFile{path: cfg.TokenFile}}
	secure := u.Scheme == "https"
	if secure {
		trustCluster(&cfg.HTTP.TLS, filepath.Join(serviceAccount, "ca.crt"))
	}
	if secure && cfg.TokenFile == "" && !cfg.hasCredentials() {
		list.token = tokenFile{path: filepath.Join(serviceAccount, "token"), optional: true}
	}
	cfg.HTTP.Timeout = 0 // ours bounds the reading of the token too
	if list.client, err = cfg.HTTP.ToClient(ctx, host.GetExtensions(), settings); err != nil {
		return nil, err
	}
	// confighttp would send its headers along to wherever a redirect leads.
	list.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return list, nil
}

// trustCluster adds the cluster's authority to those of the system, unless the
// section says whom to trust. It signs the kubelet's certificate in many clusters.
func trustCluster(c *configtls.ClientConfig, caFile string) {
	if c.CAFile != "" || c.CAPem != "" || c.InsecureSkipVerify {
		return
	}
	if _, err := os.Stat(caFile); err == nil {
		c.CAFile, c.IncludeSystemCACertsPool = caFile, true
	}
}

func (l *podList) containers(ctx context.Context) ([]Container, error) {
	ctx, cancel := withTimeout(ctx, l.timeout)
	defer cancel()
	all, err := l.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("kubelet: GET %s: %w", l.url, causeOf(ctx, err))
	}
	return all, nil
}

func (l *podList) get(ctx context.Context) ([]Container, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	token, err := l.token.read(ctx)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, l.refusal(resp, token != "")
	}
	all, err := parsePods(guard.LimitReader(resp.Body, l.limit, "the list of pods", ""))
	if err != nil {
		return nil, fmt.Errorf("reading the list of pods: %w", err)
	}
	return all, nil
}

// explain drops the address, which the caller adds, and names the key that helps.
func explain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w (name who signed the kubelet's certificate in kubelet::tls::ca_file, or set kubelet::tls::insecure_skip_verify)", err)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("%w (where nodes' names are not known, kubelet::endpoint must have the address: status.hostIP)", err)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w (kubelet::endpoint; the read-only port 10255 is closed in most clusters)", err)
	}
	return err
}

// refusal tells what the kubelet said instead of the list, and what is missing.
func (l *podList) refusal(resp *http.Response, hadToken bool) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxQuoted)) // what came is enough
	text := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if said := quote(string(body)); said != "" {
		text += ": " + said
	}
	if hint := l.hint(resp.StatusCode, hadToken); hint != "" {
		text += " (" + hint + ")"
	}
	return errors.New(text)
}

func (l *podList) hint(status int, hadToken bool) string {
	switch {
	case status == http.StatusUnauthorized && hadToken:
		return "the token of " + l.token.path + " is not accepted; kubelet::token_file names another"
	case status == http.StatusUnauthorized:
		return "a token is needed: kubelet::token_file"
	case status == http.StatusForbidden:
		return "the service account needs the right to get nodes/proxy, or nodes/pods where the kubelet knows that"
	case status == http.StatusNotFound:
		return "kubelet::endpoint must be the address of a kubelet, without /pods"
	case status/100 == 3:
		return "kubelet::endpoint leads elsewhere, which is not followed"
	}
	return ""
}

// tokenFile is read for each request, for tokens of service accounts change.
type tokenFile struct {
	path     string
	optional bool
	slot     guard.Slot
}

func (t *tokenFile) read(ctx context.Context) (string, error) {
	if t.path == "" {
		return "", nil
	}
	content, err := guard.Call(ctx, &t.slot, func(context.Context) ([]byte, error) {
		return guard.ReadFile(t.path, maxToken)
	})
	if t.optional && errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the token: %w (kubelet::token_file)", err)
	}
	token := bytes.TrimSpace(content)
	if len(token) == 0 {
		return "", fmt.Errorf("the token's file %s is empty (kubelet::token_file)", t.path)
	}
	return string(token), nil
}
