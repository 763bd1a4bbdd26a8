// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // what the collector's exporters send
	"google.golang.org/grpc/metadata"
)

// sink is a backend that takes metrics over OTLP/gRPC.
type sink struct {
	pmetricotlp.UnimplementedGRPCServer

	address string
	// onArrival, where set, sees every payload before it is answered.
	onArrival func(pmetric.Metrics)

	mu       sync.Mutex
	payloads []pmetric.Metrics
	headers  []metadata.MD
}

func startSink(t *testing.T, onArrival func(pmetric.Metrics)) *sink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &sink{address: listener.Addr().String(), onArrival: onArrival}
	server := grpc.NewServer()
	pmetricotlp.RegisterGRPCServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s
}

// Export implements pmetricotlp.GRPCServer.
func (s *sink) Export(ctx context.Context, request pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	md := pmetric.NewMetrics()
	request.Metrics().CopyTo(md)
	if s.onArrival != nil {
		s.onArrival(md)
	}
	header, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloads = append(s.payloads, md)
	s.headers = append(s.headers, header)
	return pmetricotlp.NewExportResponse(), nil
}

// points returns all points so far, in the order of arrival.
func (s *sink) points() points {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all points
	for _, md := range s.payloads {
		all = append(all, pointsOf(md)...)
	}
	return all
}

// headerOf returns the values that a header had in the payload with the metric.
func (s *sink) headerOf(metric, header string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, md := range s.payloads {
		if len(pointsOf(md).named(metric)) > 0 {
			return s.headers[i].Get(header)
		}
	}
	return nil
}

// exporter is the section of an exporter that sends at once to the sink.
func (s *sink) exporter() string {
	return "otlp_grpc: {endpoint: '" + s.address + "', tls: {insecure: true}, sending_queue: {enabled: false}}\n"
}

// readJSONLines reads what the file exporter wrote.
func readJSONLines(t *testing.T, path string) points {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var all points
	for line := range bytes.Lines(content) {
		var unmarshaler pmetric.JSONUnmarshaler
		md, err := unmarshaler.UnmarshalMetrics(bytes.TrimSpace(line))
		require.NoError(t, err, "%s", line)
		all = append(all, pointsOf(md)...)
	}
	return all
}
