// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kubelet

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
)

// newClient returns a client of a section, as the receiver makes it.
func newClient(t *testing.T, text string) *Client {
	t.Helper()
	c, err := New(t.Context(), mustLoad(t, text), componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
	require.NoError(t, err)
	return c
}

func TestClientWithoutSourcesKnowsNothing(t *testing.T) {
	got, err := newClient(t, "").Containers(t.Context())
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestClientJoinsBothSources(t *testing.T) {
	socket := socketPath(t)
	serveSocket(t, socket, exampleResources)
	server := kubeletServer(t, serveExample(t))
	c := newClient(t, "kubelet: {endpoint: '"+server.URL+"', tls: {insecure_skip_verify: true}}\npod_resources: {endpoint: 'unix://"+socket+"'}")
	want := exampleList()
	want[0].Devices = []string{"GPU-a", "GPU-b", "mlx5_0"}
	want = append(want, exampleDevices()[1:]...) // one is not started, one is not listed yet

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := c.Containers(t.Context())
			assert.NoError(t, err) //nolint:testifylint // require must not end another goroutine than the test's
			assert.Equal(t, want, got)
		})
	}
	wg.Wait()
}

func TestClientReturnsWhatOneSourceKnows(t *testing.T) {
	socket := socketPath(t)
	server := kubeletServer(t, serveExample(t))
	c := newClient(t, "kubelet: {endpoint: '"+server.URL+"', tls: {insecure_skip_verify: true}}\npod_resources: {endpoint: 'unix://"+socket+"'}")
	got, err := c.Containers(t.Context())
	require.ErrorContains(t, err, "pod_resources: ")
	assert.Equal(t, exampleList(), got)

	serveSocket(t, socket, exampleResources)
	server.Close()
	got, err = c.Containers(t.Context())
	require.ErrorContains(t, err, "kubelet: GET ")
	assert.Equal(t, exampleDevices(), got)
}
