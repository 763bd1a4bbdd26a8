// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// maxPodResources is far above what a node with thousands of devices has to say.
const maxPodResources = 16 << 20

// podResources asks for the devices of the pods.
type podResources struct {
	socket  string
	timeout time.Duration
}

func newPodResources(cfg *PodResourcesConfig) (*podResources, error) {
	socket, err := cfg.socket()
	if err != nil {
		return nil, err
	}
	return &podResources{socket: socket, timeout: cfg.Timeout}, nil
}

func (r *podResources) containers(ctx context.Context) ([]Container, error) {
	ctx, cancel := withTimeout(ctx, r.timeout)
	defer cancel()
	resp, err := r.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("pod_resources: List of unix://%s: %w", r.socket, causeOf(ctx, err))
	}
	return withDevices(resp), nil
}

// list makes one attempt over a connection of its own: one that gRPC keeps would
// connect again whenever it thinks fit, and fail calls in between.
func (r *podResources) list(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return nil, r.explain(err)
	}
	defer func() { _ = socket.Close() }()
	conn, err := connect(socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	resp, err := podresources.NewPodResourcesListerClient(conn).List(ownDeadline{ctx}, &podresources.ListPodResourcesRequest{}) //nolint:contextcheck // it is ctx
	if err != nil {
		s := status.Convert(err)
		return nil, fmt.Errorf("%s: %s", s.Code(), quote(s.Message()))
	}
	return resp, nil
}

// ownDeadline ends when the context does and does not say when: a server that is
// told resets the stream on its own clock, now and then before ours has run out,
// and it then looks like an answer.
type ownDeadline struct{ context.Context }

func (ownDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// connect lets gRPC use a socket, and no second one.
func connect(socket net.Conn) (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///kubelet",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection was closed")
			}
			return socket, nil
		}),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPodResources)),
		grpc.WithDisableRetry(),
	)
}

// explain says what a socket that cannot be reached takes.
func (r *podResources) explain(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err // the caller adds the path
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (mount the node's folder %s as hostPath, or set pod_resources::endpoint)", err, path.Dir(r.socket))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (the kubelet lets only root use it)", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (the kubelet does not run, or made a new socket: mount its folder %s, not the socket)", err, path.Dir(r.socket))
	}
	return err
}

// withDevices lists all containers, those without devices too. Their order and
// that of the devices, of which one near several NUMA nodes comes several times,
// is the kubelet's whim.
func withDevices(resp *podresources.ListPodResourcesResponse) []Container {
	var all []Container
	for _, p := range resp.GetPodResources() {
		for _, c := range p.GetContainers() {
			var devices []string
			for _, d := range c.GetDevices() {
				devices = append(devices, d.GetDeviceIds()...)
			}
			slices.Sort(devices)
			all = append(all, Container{
				Namespace:  p.GetNamespace(),
				Pod:        p.GetName(),
				Name:       c.GetName(),
				Containers: len(p.GetContainers()),
				Devices:    slices.Compact(devices),
			})
		}
	}
	return all
}
