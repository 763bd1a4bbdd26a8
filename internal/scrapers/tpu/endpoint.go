// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

// listInterval is how often the runtime is asked what it has: right after its start it
// does not know all of it.
const listInterval = time.Minute

// maxReadings is far above what a metric can have: devices, or buffer sizes.
const maxReadings = 4096

// patience is how long a runtime is waited for: for a connection, for one answer, and
// for all of it.
type patience struct{ connect, call, all time.Duration }

var defaultPatience = patience{connect: 250 * time.Millisecond, call: 500 * time.Millisecond, all: 2 * time.Second}

// errNoJob says that nobody listens: no job runs.
var errNoJob = errors.New("nothing listens")

// endpoint is a runtime's metric service. Its connection is kept; one that was lost is
// made anew by the next scrape. It is not safe for concurrent use.
type endpoint struct {
	place     int
	config    configgrpc.ClientConfig
	logger    *zap.Logger
	clock     func() time.Time
	patience  patience
	host      component.Host
	telemetry component.TelemetrySettings

	// slot holds what is done with the endpoint; what follows is used there only.
	slot   guard.Slot
	conn   *grpc.ClientConn
	client pb.RuntimeMetricServiceClient
	// listed is when the runtime said what it has; supported is nil where it did not.
	listed    time.Time
	supported map[string]bool
	// logged has the answers that were logged on this connection.
	logged map[string]bool
}

// name is host:port.
func (e *endpoint) name() string { return e.config.Endpoint }

// connect makes sure that there is a connection. Its error is errNoJob where nobody
// listens.
func (e *endpoint) connect(ctx context.Context) error {
	if e.conn != nil && e.conn.GetState() == connectivity.Ready {
		return nil
	}
	e.close()
	ctx, cancel := context.WithTimeout(ctx, e.patience.connect)
	defer cancel()
	wire, err := e.dial(ctx)
	if err != nil {
		return err
	}
	defer wire.close()
	config := e.config
	config.Endpoint = "passthrough:///" + config.Endpoint // it is connected already
	conn, err := config.ToClientConn(ctx, e.host.GetExtensions(), e.telemetry,
		configgrpc.WithGrpcDialOption(grpc.WithContextDialer(wire.dial)),
		configgrpc.WithGrpcDialOption(grpc.WithIdleTimeout(0)), // one that idles costs nothing
		configgrpc.WithGrpcDialOption(grpc.WithDisableServiceConfig()),
	)
	if err != nil {
		return scrapers.NewFault("client", fmt.Errorf("making the gRPC client: %w", err))
	}
	if err := e.awaitReady(ctx, conn); err != nil {
		_ = conn.Close() // it was never used
		return err
	}
	e.conn, e.client = conn, pb.NewRuntimeMetricServiceClient(conn)
	e.supported, e.listed, e.logged = nil, time.Time{}, map[string]bool{}
	return nil
}

// dial connects without a proxy: the runtimes are those of this machine. It is done
// here, since gRPC logs a warning each time where nobody listens.
func (e *endpoint) dial(ctx context.Context) (*wire, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.config.Endpoint)
	switch {
	case err == nil:
		return &wire{conn: conn}, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EADDRNOTAVAIL):
		// The second is what localhost gives where IPv6 is off and nobody listens.
		return nil, errNoJob
	case ctx.Err() != nil:
		return nil, e.noConnection()
	}
	return nil, scrapers.NewFault("connect", err)
}

func (e *endpoint) noConnection() error {
	return scrapers.NewFault("connect", fmt.Errorf("no connection in time (%s)", e.patience.connect))
}

func (e *endpoint) awaitReady(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return scrapers.NewFault("protocol", errors.New("what listens there does not speak gRPC as configured"))
		}
		if !conn.WaitForStateChange(ctx, state) {
			return e.noConnection()
		}
	}
}

// wire is a connection that gRPC takes once. A lost one is not made anew by gRPC, but
// by the next scrape, which then asks what there is.
type wire struct {
	mu   sync.Mutex
	conn net.Conn
}

// dial is what gRPC calls.
func (w *wire) dial(context.Context, string) (net.Conn, error) {
	if conn := w.take(); conn != nil {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (w *wire) take() net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn := w.conn
	w.conn = nil
	return conn
}

// close closes a connection that nobody took.
func (w *wire) close() {
	if conn := w.take(); conn != nil {
		_ = conn.Close() // it was never used
	}
}

// ask asks for metrics; alone leaves out what other runtimes of the machine tell. The
// error says that the runtime as a whole does not answer; it is errNoJob where it is
// gone.
func (e *endpoint) ask(ctx context.Context, names []string, alone bool) (*answers, error) {
	if err := e.list(ctx); err != nil {
		return nil, e.lost(err)
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return e.supported != nil && !e.supported[name] })
	replies := make([]reply, len(names))
	var calls sync.WaitGroup
	for i, name := range names {
		calls.Go(func() { replies[i] = e.get(ctx, name, alone) })
	}
	calls.Wait()
	all := newAnswers(e.place)
	for i := range replies {
		if replies[i].err == nil {
			all.add(names[i], replies[i].metrics)
			continue
		}
		e.note(names[i], replies[i].err)
	}
	if err := refused(replies); err != nil {
		return nil, e.lost(err)
	}
	return all, nil
}

// list asks what there is. Where the runtime does not tell, everything is asked for.
func (e *endpoint) list(ctx context.Context) error {
	now := e.clock()
	if age := now.Sub(e.listed); len(e.supported) > 0 && age >= 0 && age < listInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.patience.call)
	defer cancel()
	list, err := e.client.ListSupportedMetrics(ctx, &pb.ListSupportedMetricsRequest{})
	if err == nil {
		e.supported, e.listed = map[string]bool{}, now
		for _, m := range list.GetSupportedMetric() {
			e.supported[m.GetMetricName()] = true
		}
		return nil
	}
	// Lost connections have that code too, but a runtime may as well answer it.
	if status.Code(err) == codes.Unavailable && e.conn.GetState() != connectivity.Ready {
		return err
	}
	e.note("ListSupportedMetrics", err)
	e.supported = nil
	return nil
}

// reply is the answer to one question.
type reply struct {
	metrics []*pb.Metric
	err     error
}

func (e *endpoint) get(ctx context.Context, name string, alone bool) reply {
	ctx, cancel := context.WithTimeout(ctx, e.patience.call)
	defer cancel()
	answer, err := e.client.GetRuntimeMetric(ctx, &pb.MetricRequest{MetricName: name, SkipNodeAggregation: alone})
	metrics := answer.GetMetric().GetMetrics()
	if len(metrics) > maxReadings {
		return reply{err: fmt.Errorf("%d readings, more than %d", len(metrics), maxReadings)}
	}
	return reply{metrics, err}
}

// refused returns why no question was answered, where that is not the way of a
// runtime that has nothing to tell.
func refused(replies []reply) error {
	var first error
	for i := range replies {
		switch code := status.Code(replies[i].err); code {
		case codes.OK, codes.NotFound, codes.Unimplemented:
			return nil
		}
		if first == nil {
			first = replies[i].err
		}
	}
	return first
}

// lost closes a connection that is of no use, and says why.
func (e *endpoint) lost(err error) error {
	e.close()
	code := status.Code(err)
	switch code {
	case codes.Unavailable:
		return errNoJob // it ended since it was asked last
	case codes.DeadlineExceeded, codes.Canceled:
		return scrapers.NewFault("timeout", fmt.Errorf("no answer in time (%s)", e.patience.call))
	}
	return scrapers.NewFault(code.String(), fmt.Errorf("every question was answered with an error: %w", err))
}

// note logs the answer to a question once per connection.
func (e *endpoint) note(name string, err error) {
	key := name + " " + status.Code(err).String()
	if e.logged[key] {
		return
	}
	e.logged[key] = true
	e.logger.Debug("The TPU runtime does not answer a question", zap.String("endpoint", e.name()), zap.String("metric", name), zap.Error(err))
}

func (e *endpoint) close() {
	if e.conn != nil {
		_ = e.conn.Close() // it is not used any more
		e.conn, e.client = nil, nil
	}
}
