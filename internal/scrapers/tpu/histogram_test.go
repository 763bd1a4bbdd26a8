// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

// histogramsOf lists the histograms of a payload by their names.
func histogramsOf(md pmetric.Metrics) map[string]pmetric.Metric {
	all := map[string]pmetric.Metric{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Type() == pmetric.MetricTypeHistogram {
					all[m.Name()] = m
				}
			}
		}
	}
	return all
}

// twoDistributions is a runtime with one that has buckets and a start, and one that
// has only a mean.
func twoDistributions() *fakeRuntime {
	runtime := newRuntime()
	whole := counted(10, 16, 1, 2, 3, 3)
	whole.Distribution.Min, whole.Distribution.Max = 2, 29
	runtime.metrics[hloName] = response(
		&pb.Metric{Attribute: listAttr("core_type", "tensorcore", "device_ordinal", "0"), Measure: whole, StartTimestamp: timestamppb.New(time.Unix(1000, 0))},
		&pb.Metric{Attribute: listAttr("core_type", "tensorcore", "device_ordinal", "1"), Measure: counted(4, 7)},
	)
	runtime.metrics[rttName] = response(&pb.Metric{Measure: counted(5, 11, 5)})
	return runtime
}

func TestForms(t *testing.T) {
	const whole, meanOnly, flat = "tpu.hloExecTiming.tensorcore_0.p50Us", "tpu.hloExecTiming.tensorcore_1.meanUs", "tpu.grpcTcpMinRtt.p50Us"
	address, _ := twoDistributions().serve(t)
	for form, tt := range map[string]struct{ quantiles, histograms bool }{
		"quantiles": {true, false}, "histogram": {false, true}, "both": {true, true},
	} {
		t.Run(form, func(t *testing.T) {
			values := endpoints(address)
			values["distributions"] = form
			md, err := newRig(t, newMachine(t), values).scrape()
			require.NoError(t, err)
			got := scraperstest.TagsOf(md)
			assert.Equal(t, tt.quantiles, hasTag(got, whole))
			assert.Equal(t, tt.quantiles, hasTag(got, flat))
			assert.True(t, hasTag(got, meanOnly), "what has no buckets stays what it is")
			assert.Equal(t, tt.histograms, len(histogramsOf(md)) == 2)
		})
	}
}

func hasTag(tags map[string]float64, tag string) bool {
	_, ok := tags[tag]
	return ok
}

func TestHistogram(t *testing.T) {
	runtime := twoDistributions()
	address, _ := runtime.serve(t)
	values := endpoints(address)
	values["distributions"] = "histogram"
	r := newRig(t, newMachine(t), values)
	first := r.now
	md, err := r.scrape()
	require.NoError(t, err)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	require.Equal(t, metadata.ScopeName, md.ResourceMetrics().At(0).ScopeMetrics().At(0).Scope().Name())

	m := histogramsOf(md)["tpu.hloExecTiming.histogram"]
	assert.Equal(t, "us", m.Unit())
	assert.NotEmpty(t, m.Description())
	assert.Equal(t, pmetric.AggregationTemporalityCumulative, m.Histogram().AggregationTemporality())
	require.Equal(t, 1, m.Histogram().DataPoints().Len())
	p := m.Histogram().DataPoints().At(0)
	assert.Equal(t, map[string]any{"label": "tensorcore_0"}, p.Attributes().AsRaw())
	assert.Equal(t, []float64{10, 20, 30}, p.ExplicitBounds().AsRaw())
	assert.Equal(t, []uint64{1, 2, 3, 3}, p.BucketCounts().AsRaw())
	assert.Equal(t, uint64(9), p.Count(), "the buckets count")
	assert.InDelta(t, 9*16, p.Sum(), 1e-9)
	assert.InDelta(t, 2, p.Min(), 1e-9)
	assert.InDelta(t, 29, p.Max(), 1e-9)
	assert.Equal(t, time.Unix(1000, 0).UTC(), p.StartTimestamp().AsTime())
	assert.Equal(t, first.UnixNano(), p.Timestamp().AsTime().UnixNano())

	flat := histogramsOf(md)["tpu.grpcTcpMinRtt.histogram"].Histogram().DataPoints().At(0)
	assert.Empty(t, flat.Attributes().AsRaw())
	assert.False(t, flat.HasMin() || flat.HasMax())
	assert.Equal(t, first.UnixNano(), flat.StartTimestamp().AsTime().UnixNano(), "seen first")
	startOfFlat := func() time.Time {
		md, err := r.scrape()
		require.NoError(t, err)
		return histogramsOf(md)["tpu.grpcTcpMinRtt.histogram"].Histogram().DataPoints().At(0).StartTimestamp().AsTime()
	}
	r.now = first.Add(time.Minute)
	assert.Equal(t, first.UnixNano(), startOfFlat().UnixNano())
	runtime.change(func() { runtime.metrics[rttName] = response(&pb.Metric{Measure: counted(1, 11, 1)}) })
	r.now = first.Add(2 * time.Minute)
	assert.Equal(t, first.Add(time.Minute).UnixNano(), startOfFlat().UnixNano(), "another job counts anew")
}

func TestAHistogramAlone(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[rttName] = response(&pb.Metric{Measure: counted(5, 11, 5), StartTimestamp: timestamppb.New(time.Now().Add(time.Hour))})
	address, _ := runtime.serve(t)
	values := endpoints(address)
	values["distributions"] = "histogram"
	r := newRig(t, newMachine(t), values)
	md, err := r.scrape()
	require.NoError(t, err)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	name, ok := md.ResourceMetrics().At(0).Resource().Attributes().Get("host.name")
	require.True(t, ok)
	assert.Equal(t, "sample", name.Str())
	p := histogramsOf(md)["tpu.grpcTcpMinRtt.histogram"].Histogram().DataPoints().At(0)
	assert.Equal(t, p.Timestamp(), p.StartTimestamp(), "a start in the future is none")
}

func TestStatisticsOfTheTimeSinceTheLastScrape(t *testing.T) {
	runtime := newRuntime()
	set := func(start int64, m *pb.Metric_Distribution) {
		runtime.change(func() {
			runtime.metrics[bufferName] = response(&pb.Metric{
				Attribute: listAttr("buffer_size", "8MB"), Measure: m, StartTimestamp: &timestamppb.Timestamp{Seconds: start},
			})
		})
	}
	set(1000, counted(100, 15, 0, 100))
	address, _ := runtime.serve(t)
	values := endpoints(address)
	values["distribution_window"] = "interval"
	r := newRig(t, newMachine(t), values)
	assert.Empty(t, r.tags(), "nothing is known of the time before")
	assert.Empty(t, r.tags(), "nothing was counted")
	set(1000, counted(110, 16, 0, 100, 10))
	const mean, p50 = "tpu.bufferTransferLatency.8mb.meanUs", "tpu.bufferTransferLatency.8mb.p50Us"
	got := r.tags()
	assert.InDelta(t, 26, got[mean], 1e-9)
	assert.InDelta(t, 25, got[p50], 1e-9)
	set(2000, counted(200, 12, 0, 200))
	got = r.tags()
	assert.InDelta(t, 12, got[mean], 1e-9, "another job counts anew")
	assert.InDelta(t, 15, got[p50], 1e-9)
}

func TestARuntimeThatIsAwayIsNoNewJob(t *testing.T) {
	var v intervals
	meanOf := func(count int64, runtimes ...int) dist.Stats {
		f := newFigures()
		f.runtimes = runtimes
		f.counted[tcpMinRTT][""] = dist.Distribution{Count: count, Mean: 5}
		f.stats[tcpMinRTT][""] = dist.Stats{Mean: optional.Some(5.0)}
		v.apply(f)
		return f.stats[tcpMinRTT][""]
	}
	assert.Empty(t, meanOf(2000, 0, 1))
	assert.Empty(t, meanOf(1000, 0), "those of one in all its life")
	assert.Empty(t, meanOf(2000, 0, 1))
	assert.Equal(t, dist.Stats{Mean: optional.Some(5.0)}, meanOf(2001, 0, 1))
}
