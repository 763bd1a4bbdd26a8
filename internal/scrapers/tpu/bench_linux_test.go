// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

// eightChips is the runtime of a host with eight chips, in a job of one slice.
func eightChips() *fakeRuntime {
	r := newRuntime()
	ids := []int64{8, 9, 10, 11, 12, 13, 14, 15}
	for _, name := range []string{dutyName, totalName, usageName} {
		r.metrics[name] = perDevice(5, ids...)
	}
	var sizes, times []*pb.Metric
	for i := range ids {
		label := listAttr("core_type", "tensorcore", "device_ordinal", strconv.Itoa(i))
		sizes = append(sizes, &pb.Metric{Attribute: label, Measure: intGauge(3)})
		times = append(times, &pb.Metric{Attribute: label, Measure: counted(100, 15, 10, 20, 30, 40)})
	}
	r.metrics[queueRuntime], r.metrics[hloName] = response(sizes...), response(times...)
	return r
}

// naive asks as W&B does: it connects for each scrape, and asks for every metric
// whether the runtime has it or not, one after the other. What is told is not even
// read.
func naive(b *testing.B, address string, names []string) {
	b.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	client := pb.NewRuntimeMetricServiceClient(conn)
	for _, name := range names {
		_, _ = client.GetRuntimeMetric(b.Context(), &pb.MetricRequest{MetricName: name})
	}
	require.NoError(b, conn.Close())
}

// BenchmarkEightChips compares the processor time of a scrape, with that of the
// runtime that is asked, with the naive way.
func BenchmarkEightChips(b *testing.B) {
	runtime := eightChips()
	address, _ := runtime.serve(b)
	m := newMachine(b)
	m.addChips(v6e, "", 8)
	r := newRig(b, m, endpoints(address))
	md, err := r.scrape()
	require.NoError(b, err)
	require.Len(b, scraperstest.PointsOf(md), 3*8+8+8*5)
	ours := scraperstest.CostOf(b, b.N, func() {
		_, err := r.Scrape(context.Background())
		require.NoError(b, err)
	})
	asked := float64(len(runtime.questions()))
	theirs := scraperstest.CostOf(b, b.N, func() { naive(b, address, r.want.runtimeNames()) })
	askedNaively := float64(len(runtime.questions()))
	b.ReportMetric(float64(ours.CPU.Microseconds()), "µs-cpu/scrape")
	b.ReportMetric(float64(theirs.CPU)/float64(ours.CPU), "naive/ours-cpu")
	b.ReportMetric(theirs.Allocs/ours.Allocs, "naive/ours-allocs")
	b.ReportMetric(askedNaively/asked, "naive/ours-calls")
	assert.Less(b, asked, askedNaively)
}

// BenchmarkNoJob is what a machine costs that has TPUs and no job.
func BenchmarkNoJob(b *testing.B) {
	m := newMachine(b)
	m.addChips(v6e, "", 8)
	r := newRig(b, m, endpoints(nobody(b)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := r.Scrape(context.Background())
		require.NoError(b, err)
	}
}
