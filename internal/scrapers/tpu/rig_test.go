// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	pb "github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/runtimepb"
)

const (
	// testTimeout is what anything may take that must not fail on a busy machine, and
	// hungTimeout what is waited for what never comes.
	testTimeout = time.Minute
	hungTimeout = time.Second
)

var (
	patient   = patience{connect: testTimeout, call: testTimeout, all: testTimeout}
	impatient = patience{connect: hungTimeout, call: hungTimeout, all: 10 * hungTimeout}
)

// fakeRuntime is the metric service of a training process.
type fakeRuntime struct {
	pb.UnimplementedRuntimeMetricServiceServer

	mu      sync.Mutex
	metrics map[string]*pb.MetricResponse
	errs    map[string]error
	// listed are the supported metrics; nil means those in metrics. listErr is answered
	// in place of them.
	listed  []string
	listErr error
	// alone is what skip_node_aggregation must be, where that is set.
	alone *bool
	// block, when set, is waited for before each answer about a metric.
	block chan struct{}

	asked       []string
	lists       int
	connections int
}

func newRuntime() *fakeRuntime {
	return &fakeRuntime{metrics: map[string]*pb.MetricResponse{}, errs: map[string]error{}}
}

func (r *fakeRuntime) ListSupportedMetrics(context.Context, *pb.ListSupportedMetricsRequest) (*pb.ListSupportedMetricsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	if r.listErr != nil {
		return nil, r.listErr
	}
	names := r.listed
	if names == nil {
		for name := range r.metrics {
			names = append(names, name)
		}
	}
	answer := &pb.ListSupportedMetricsResponse{}
	for _, name := range names {
		answer.SupportedMetric = append(answer.SupportedMetric, &pb.SupportedMetric{MetricName: name})
	}
	return answer, nil
}

func (r *fakeRuntime) GetRuntimeMetric(ctx context.Context, q *pb.MetricRequest) (*pb.MetricResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if block := r.block; block != nil {
		r.mu.Unlock()
		select {
		case <-block:
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
	r.asked = append(r.asked, q.GetMetricName())
	if r.alone != nil && *r.alone != q.GetSkipNodeAggregation() {
		return nil, status.Errorf(codes.FailedPrecondition, "skip_node_aggregation is %t", q.GetSkipNodeAggregation())
	}
	if err := r.errs[q.GetMetricName()]; err != nil {
		return nil, err
	}
	if answer, ok := r.metrics[q.GetMetricName()]; ok {
		return answer, nil
	}
	return nil, status.Error(codes.NotFound, "metric is not available")
}

// counting counts the connections.
type counting struct{ *fakeRuntime }

func (counting) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (counting) HandleRPC(context.Context, stats.RPCStats)                         {}
func (counting) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c counting) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.connections++
	}
}

// questions returns what was asked since the last call, sorted.
func (r *fakeRuntime) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	slices.Sort(asked)
	return asked
}

func (r *fakeRuntime) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// serve runs the service until the test ends, or stop is called, and returns its
// address.
func (r *fakeRuntime) serve(t testing.TB) (address string, stop func()) {
	t.Helper()
	return r.serveOn(t, "127.0.0.1:0")
}

func (r *fakeRuntime) serveOn(t testing.TB, address string) (at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := grpc.NewServer(grpc.StatsHandler(counting{r}))
	pb.RegisterRuntimeMetricServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	var once sync.Once
	stop = func() { once.Do(func() { server.Stop(); serving.Wait() }) }
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// silentListener accepts connections and never says anything.
func silentListener(t testing.TB) (address string, accepted func() int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var conns []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		accepting.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return listener.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(conns)
	}
}

// The following make answers as the runtime does.

func intAttr(id int64) *pb.Attribute {
	return &pb.Attribute{Key: "device-id", Value: &pb.AttrValue{Attr: &pb.AttrValue_IntAttr{IntAttr: id}}}
}

func textAttr(key, text string) *pb.Attribute {
	return &pb.Attribute{Key: key, Value: &pb.AttrValue{Attr: &pb.AttrValue_StringAttr{StringAttr: text}}}
}

// listAttr is a list of keys and values.
func listAttr(pairs ...string) *pb.Attribute {
	list := &pb.KeyValueList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list.Attributes = append(list.Attributes, textAttr(pairs[i], pairs[i+1]))
	}
	return &pb.Attribute{Key: "attributes", Value: &pb.AttrValue{Attr: &pb.AttrValue_KvlistAttr{KvlistAttr: list}}}
}

func doubleGauge(v float64) *pb.Metric_Gauge {
	return &pb.Metric_Gauge{Gauge: &pb.Gauge{Value: &pb.Gauge_AsDouble{AsDouble: v}}}
}

func intGauge(v int64) *pb.Metric_Gauge {
	return &pb.Metric_Gauge{Gauge: &pb.Gauge{Value: &pb.Gauge_AsInt{AsInt: v}}}
}

func textGauge(v string) *pb.Metric_Gauge {
	return &pb.Metric_Gauge{Gauge: &pb.Gauge{Value: &pb.Gauge_AsString{AsString: v}}}
}

func response(metrics ...*pb.Metric) *pb.MetricResponse {
	return &pb.MetricResponse{Metric: &pb.TPUMetric{Metrics: metrics}}
}

// perDevice answers with a value for each id, which is 100 more for the next one.
func perDevice(first float64, ids ...int64) *pb.MetricResponse {
	var metrics []*pb.Metric
	for i, id := range ids {
		metrics = append(metrics, &pb.Metric{Attribute: intAttr(id), Measure: doubleGauge(first + 100*float64(i))})
	}
	return response(metrics...)
}

// counted is a distribution with three explicit bounds.
func counted(count int64, mean float64, counts ...int64) *pb.Metric_Distribution {
	return &pb.Metric_Distribution{Distribution: &pb.Distribution{
		Count: count, Mean: mean, BucketCounts: counts,
		BucketOptions: &pb.Distribution_BucketOptions{Options: &pb.Distribution_BucketOptions_ExplicitBuckets{
			ExplicitBuckets: &pb.Distribution_BucketOptions_Explicit{Bounds: []float64{10, 20, 30}},
		}},
	}}
}

const (
	dutyName   = "tpu.runtime.tensorcore.dutycycle.percent"
	totalName  = "tpu.runtime.hbm.memory.total.bytes"
	usageName  = "tpu.runtime.hbm.memory.usage.bytes"
	idleName   = "tpu.runtime.tensorcore.idle_duration.seconds"
	bufferName = "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution"
	rttName    = "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution"
	hloName    = "hlo.execution.timing.distribution.microseconds"
)

// machine has TPUs on its PCI bus.
type machine struct{ scraperstest.Machine }

func newMachine(t testing.TB) machine {
	t.Helper()
	m := machine{scraperstest.NewMachine(t)}
	m.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n")
	return m
}

// addChips puts functions of PCI in, each in a slot of its own.
func (m machine) addChips(device, subsystem string, functions int) {
	for i := range functions {
		folder := fmt.Sprintf("sys/bus/pci/devices/0000:00:%02x.0/", i+4)
		m.Write(folder+"vendor", "0x1ae0\n")
		m.Write(folder+"device", device+"\n")
		m.Write(folder+"subsystem_device", subsystem+"\n")
		m.Write(folder+"class", "0x120000\n")
		m.Link(folder+"iommu_group", "../../../../kernel/iommu_groups/"+strconv.Itoa(i+20))
	}
}

const v6e, v3 = "0x006f", "0x0027"

// rig is the family on a machine.
type rig struct {
	*tpuScraper
	t    testing.TB
	logs *observer.ObservedLogs
	now  time.Time
}

type option func(*scrapers.Settings)

func extended(set *scrapers.Settings) {
	set.Extended = true
	scraperstest.SwitchAll(&set.Metrics.Metrics, true)
}

// section decodes and checks a section as the receiver does.
func section(t testing.TB, values map[string]any) (*Config, error) {
	t.Helper()
	cfg, ok := defaultConfig().(*Config)
	require.True(t, ok)
	cfg.CommonConfig.Timing = scrapers.Timing{CollectionInterval: time.Minute, Timeout: testTimeout}
	cfg.CommonConfig.MaxSeries = scrapers.DefaultMaxSeries
	if err := confmap.NewFromStringMap(values).Unmarshal(cfg); err != nil {
		return nil, err
	}
	return cfg, confmap.Validate(cfg)
}

func newRig(t testing.TB, m machine, values map[string]any, options ...option) *rig {
	t.Helper()
	return newRigWith(t, m, values, func(string) string { return "" }, options...)
}

func newRigWith(t testing.TB, m machine, values map[string]any, getenv func(string) string, options ...option) *rig {
	t.Helper()
	set, logs := scraperstest.NewSettings(t, m.Root, false)
	set.DetectionInterval = time.Minute
	for _, o := range options {
		o(&set)
	}
	cfg, err := section(t, values)
	require.NoError(t, err)
	s, err := newScraperWith(set, cfg, getenv)
	require.NoError(t, err)
	r := &rig{tpuScraper: s, t: t, logs: logs, now: time.Now()}
	clock := func() time.Time { return r.now }
	s.clock, s.detector.clock = clock, clock
	r.wait(patient)
	for _, e := range s.runtimes.endpoints {
		e.clock = clock
	}
	if s.reader != nil {
		s.reader.clock, s.reader.timeout = clock, testTimeout
	}
	require.NoError(t, s.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return r
}

func (r *rig) wait(p patience) {
	r.runtimes.patience = p
	for _, e := range r.runtimes.endpoints {
		e.patience = p
	}
}

// scrape returns the payload and the error of a scrape.
func (r *rig) scrape() (pmetric.Metrics, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
	defer cancel()
	md, err := r.Scrape(ctx)
	scraperstest.RequireSane(r.t, md)
	return md, err
}

// tags wants a scrape without errors and returns its tags.
func (r *rig) tags() map[string]float64 {
	r.t.Helper()
	md, err := r.scrape()
	require.NoError(r.t, err)
	return scraperstest.TagsOf(md)
}

// faults returns the errors of a scrape by their sources, and its tags.
func (r *rig) faults() (map[string]error, map[string]float64) {
	r.t.Helper()
	md, err := r.scrape()
	all := map[string]error{}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			source, ok := e.(*scrapers.SourceError) //nolint:errorlint // what is joined is looked at one by one
			require.True(r.t, ok, "%v", e)
			all[source.Source] = source.Err
		}
	}
	return all, scraperstest.TagsOf(md)
}

func endpoints(addresses ...string) map[string]any {
	var list []any
	for _, a := range addresses {
		list = append(list, a)
	}
	return map[string]any{"endpoints": list}
}

// page serves a text under a URL.
func page(t testing.TB, text string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}
