// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// sample is one series of a Prometheus endpoint.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

type samples []sample

func get(url string) (body []byte, status int, err error) {
	client := http.Client{Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return body, response.StatusCode, err
}

// scrape reads a Prometheus endpoint; one that does not answer yet gives
// nothing.
func scrape(t *testing.T, address string) samples {
	t.Helper()
	var all samples
	for name, family := range parseExposition(t, address) {
		for _, m := range family.GetMetric() {
			all = append(all, sampleOf(name, m))
		}
	}
	return all
}

// parseExposition reads a Prometheus endpoint with Prometheus' own parser.
func parseExposition(t *testing.T, address string) map[string]*dto.MetricFamily {
	t.Helper()
	body, status, err := get("http://" + address + "/metrics")
	if err != nil {
		return nil
	}
	require.Equal(t, http.StatusOK, status, "%s", body)
	return parseText(t, body)
}

func parseText(t *testing.T, body []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(t, err, "%s", body)
	return families
}

func sampleOf(name string, m *dto.Metric) sample {
	s := sample{name: name, labels: map[string]string{}}
	for _, label := range m.GetLabel() {
		s.labels[label.GetName()] = label.GetValue()
	}
	switch {
	case m.GetGauge() != nil:
		s.value = m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		s.value = m.GetCounter().GetValue()
	case m.GetUntyped() != nil:
		s.value = m.GetUntyped().GetValue()
	}
	return s
}

// find returns the series with this name and these labels, given as pairs.
func (all samples) find(name string, labels ...string) samples {
	var found samples
	for _, s := range all {
		if s.name == name && s.has(labels) {
			found = append(found, s)
		}
	}
	return found
}

func (s sample) has(labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if s.labels[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// awaitSamples scrapes until the series are as wanted.
func awaitSamples(t *testing.T, p *process, address, what string, good func(samples) bool) samples {
	t.Helper()
	var got samples
	p.waitFor(what, func() bool {
		got = scrape(t, address)
		return good(got)
	})
	return got
}

// observe lets the collector work for a while. Only what must not happen needs
// that.
func observe(d time.Duration) { time.Sleep(d) }
