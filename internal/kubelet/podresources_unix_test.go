// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kubelet

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// lister answers List as a kubelet does.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	list func(context.Context) (*podresources.ListPodResourcesResponse, error)
}

func (l lister) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return l.list(ctx)
}

// socketPath returns a place for a socket, whose path must be short.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubelet") //nolint:usetesting // t.TempDir has the name of the test in it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "kubelet.sock")
}

// serveSocket is a kubelet's socket until stop is called, or the test ends.
func serveSocket(t testing.TB, socket string, list func(context.Context) (*podresources.ListPodResourcesResponse, error)) (stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, lister{list: list})
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, server.Serve(listener)) })
	stop = sync.OnceFunc(func() {
		server.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func newSocketSource(t testing.TB, socket string, timeout time.Duration) *podResources {
	t.Helper()
	source, err := newPodResources(&PodResourcesConfig{Endpoint: "unix://" + socket, Timeout: timeout})
	require.NoError(t, err)
	return source
}

func devices(resource string, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func exampleResources(context.Context) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "ml", Name: "train-0", Containers: []*podresources.ContainerResources{
			{Name: "trainer", Devices: []*podresources.ContainerDevices{
				devices("nvidia.com/gpu", "GPU-b", "GPU-a"), devices("nvidia.com/gpu", "GPU-b"), devices("rdma/hca", "mlx5_0"),
			}},
			{Name: "log"},
		}},
		{Namespace: "ml", Name: "new-0", Containers: []*podresources.ContainerResources{
			{Name: "main", Devices: []*podresources.ContainerDevices{devices("nvidia.com/gpu", "GPU-c")}},
		}},
		{Namespace: "ml", Name: "empty"},
	}}, nil
}

func exampleDevices() []Container {
	return []Container{
		{Namespace: "ml", Pod: "train-0", Name: "trainer", Containers: 2, Devices: []string{"GPU-a", "GPU-b", "mlx5_0"}},
		{Namespace: "ml", Pod: "train-0", Name: "log", Containers: 2},
		{Namespace: "ml", Pod: "new-0", Name: "main", Containers: 1, Devices: []string{"GPU-c"}},
	}
}

func TestPodResources(t *testing.T) {
	socket := socketPath(t)
	serveSocket(t, socket, exampleResources)
	source := newSocketSource(t, socket, time.Minute)
	for range 2 {
		got, err := source.containers(t.Context())
		require.NoError(t, err)
		assert.Equal(t, exampleDevices(), got)
	}
}

func TestPodResourcesThatFail(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"plain":    {errors.New("oh\r\nno"), "Unknown: oh no"},
		"limiter":  {status.Error(codes.ResourceExhausted, "rejected by rate limit"), "ResourceExhausted: rejected by rate limit"},
		"old":      {status.Error(codes.Unimplemented, "unknown service"), "Unimplemented: unknown service"},
		"long":     {errors.New(strings.Repeat("x", 5000)), "Unknown: " + strings.Repeat("x", 200)},
		"too_late": {status.Error(codes.DeadlineExceeded, "of its own"), "DeadlineExceeded: of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			serveSocket(t, socket, func(context.Context) (*podresources.ListPodResourcesResponse, error) { return nil, tc.err })
			got, err := newSocketSource(t, socket, time.Minute).containers(t.Context())
			assert.Empty(t, got)
			require.EqualError(t, err, "pod_resources: List of unix://"+socket+": "+tc.want)
		})
	}
}

func TestPodResourcesBeyondTheLimit(t *testing.T) {
	socket := socketPath(t)
	serveSocket(t, socket, func(context.Context) (*podresources.ListPodResourcesResponse, error) {
		return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Name: strings.Repeat("x", maxPodResources)}}}, nil
	})
	_, err := newSocketSource(t, socket, time.Minute).containers(t.Context())
	require.ErrorContains(t, err, "larger than max")
	require.ErrorContains(t, err, "16777216")
}

func TestPodResourcesThatDoNotCome(t *testing.T) {
	socket := socketPath(t)
	release := make(chan struct{})
	stop := serveSocket(t, socket, func(context.Context) (*podresources.ListPodResourcesResponse, error) {
		<-release
		return nil, errors.New("too late")
	})
	source := newSocketSource(t, socket, 100*time.Millisecond)
	_, err := source.containers(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no answer within 100ms (timeout)")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = source.containers(ctx)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	stop()
}

// TestPodResourcesOfSomethingElse has a listener that takes connections and says
// nothing, and one that hangs up.
func TestPodResourcesOfSomethingElse(t *testing.T) {
	for name, hangUp := range map[string]bool{"silent": false, "hangs_up": true} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
			require.NoError(t, err)
			accepted := make(chan int)
			go func() {
				n := 0
				for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
					n++
					if !hangUp {
						defer func() { _ = conn.Close() }()
						continue
					}
					_ = conn.Close()
				}
				accepted <- n
			}()
			_, err = newSocketSource(t, socket, 200*time.Millisecond).containers(t.Context())
			require.ErrorContains(t, err, "pod_resources: List of unix://"+socket)
			require.NoError(t, listener.Close())
			assert.Equal(t, 1, <-accepted, "attempts")
		})
	}
}

func TestPodResourcesSocketThatComesAndGoes(t *testing.T) {
	socket := socketPath(t)
	source := newSocketSource(t, socket, time.Minute)
	_, err := source.containers(t.Context())
	require.EqualError(t, err, "pod_resources: List of unix://"+socket+": connect: no such file or directory (mount the node's folder "+
		filepath.Dir(socket)+" as hostPath, or set pod_resources::endpoint)")

	stop := serveSocket(t, socket, exampleResources)
	_, err = source.containers(t.Context())
	require.NoError(t, err)

	stop()
	_, err = source.containers(t.Context())
	require.Error(t, err)

	serveSocket(t, socket, exampleResources)
	got, err := source.containers(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, 3)
}

func TestPodResourcesSocketOfNobody(t *testing.T) {
	socket := socketPath(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	_, err = newSocketSource(t, socket, time.Minute).containers(t.Context())
	require.ErrorContains(t, err, "connection refused (the kubelet does not run")
}

func TestPodResourcesSocketOfOthers(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may use any socket")
	}
	socket := socketPath(t)
	serveSocket(t, socket, exampleResources)
	require.NoError(t, os.Chmod(socket, 0))
	_, err := newSocketSource(t, socket, time.Minute).containers(t.Context())
	require.ErrorContains(t, err, "permission denied (the kubelet lets only root use it)")
}

func BenchmarkPodResources(b *testing.B) {
	socket := socketPath(b)
	serveSocket(b, socket, exampleResources)
	source := newSocketSource(b, socket, time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := source.containers(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
