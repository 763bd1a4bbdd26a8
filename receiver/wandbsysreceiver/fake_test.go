// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadatatest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// interval is the families' in these tests, which run in a bubble of synctest:
// its time passes as soon as everybody waits.
const interval = 15 * time.Second

type (
	scrapeFunc func(ctx context.Context, round int) (pmetric.Metrics, error)

	// fakeFamily is a family that does what a test says. Its functions may be nil.
	fakeFamily struct {
		name     string
		newErr   error
		settings scrapers.Settings
		onStart  func(context.Context) error
		onPrime  func(context.Context)
		onScrape scrapeFunc
		onStop   func(context.Context) error

		mu       sync.Mutex
		calls    []string // start, prime, scrape, stop: in the order in which they came back
		rounds   int
		running  int
		together int // the most calls that ran at a time
	}
	fakeConfig struct {
		CommonConfig scrapers.CommonConfig `mapstructure:",squash"`
	}
	primedFamily struct{ *fakeFamily }
)

func (c *fakeConfig) Common() *scrapers.CommonConfig { return &c.CommonConfig }

func (f *fakeFamily) factory() scrapers.Factory {
	return scrapers.Factory{
		Name:          f.name,
		DefaultConfig: func() scrapers.Config { return &fakeConfig{} },
		New: func(set scrapers.Settings, _ scrapers.Config) (scrapers.Scraper, error) {
			f.settings = set
			if f.onPrime != nil {
				return primedFamily{f}, f.newErr
			}
			return f, f.newErr
		},
	}
}

// call notes when something came back, and how much ran at a time.
func (f *fakeFamily) call(name string, fn func(round int)) {
	f.mu.Lock()
	f.running++
	f.together = max(f.together, f.running)
	if name == "scrape" {
		f.rounds++
	}
	round := f.rounds
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
		f.calls = append(f.calls, name)
	}()
	fn(round)
}

func (f *fakeFamily) Start(ctx context.Context, _ component.Host) (err error) {
	f.call("start", func(int) {
		if f.onStart != nil {
			err = f.onStart(ctx)
		}
	})
	return err
}

func (f primedFamily) Prime(ctx context.Context) { f.call("prime", func(int) { f.onPrime(ctx) }) }

func (f *fakeFamily) Scrape(ctx context.Context) (md pmetric.Metrics, err error) {
	f.call("scrape", func(round int) {
		if f.onScrape == nil {
			md = points(f.name, 1)
			return
		}
		md, err = f.onScrape(ctx, round)
	})
	return md, err
}

func (f *fakeFamily) Shutdown(ctx context.Context) (err error) {
	f.call("stop", func(int) {
		if f.onStop != nil {
			err = f.onStop(ctx)
		}
	})
	return err
}

// count tells how many calls of a kind came back.
func (f *fakeFamily) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c == name {
			n++
		}
	}
	return n
}

func (f *fakeFamily) order() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// scrapesBegun tells how many scrapes began.
func (f *fakeFamily) scrapesBegun() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rounds
}

// points returns n points of a metric, each with a gpu_index.
func points(name string, n int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	dps := m.SetEmptyGauge().DataPoints()
	for i := range n {
		dp := dps.AppendEmpty()
		dp.SetDoubleValue(float64(i))
		dp.Attributes().PutInt("gpu_index", int64(i))
	}
	return md
}

// good, absent, fails and so on are what a round may bring.
func good(context.Context) (pmetric.Metrics, error) { return points("m", 1), nil }

func fails(source, text string) func(context.Context) (pmetric.Metrics, error) {
	return func(context.Context) (pmetric.Metrics, error) {
		return pmetric.NewMetrics(), &scrapers.SourceError{Source: source, Err: errors.New(text)}
	}
}

func partly(text string) func(context.Context) (pmetric.Metrics, error) {
	return func(context.Context) (pmetric.Metrics, error) {
		return points("m", 1), &scrapers.SourceError{Source: "tool", Err: errors.New(text)}
	}
}

func absent(context.Context) (pmetric.Metrics, error) {
	return pmetric.NewMetrics(), &scrapers.AbsentError{Reason: "no driver", Cure: "load it"}
}

func gone(context.Context) (pmetric.Metrics, error) {
	return points("m", 1), &scrapers.GoneError{What: "process 7"}
}

// script brings one thing each round; the last stays.
func script(steps ...func(context.Context) (pmetric.Metrics, error)) scrapeFunc {
	return func(ctx context.Context, round int) (pmetric.Metrics, error) {
		return steps[min(round, len(steps))-1](ctx)
	}
}

// rig is a receiver of fake families and all that can be seen of it.
type rig struct {
	t         *testing.T
	cfg       *Config
	sink      *consumertest.MetricsSink
	logs      *observer.ObservedLogs
	host      *statusHost
	telemetry *componenttest.Telemetry
	receiver  *sysReceiver
}

type rigOption func(*Config)

// build makes a receiver whose families scrape at once and every interval.
func build(t *testing.T, next consumer.Metrics, families []*fakeFamily, options ...rigOption) (*rig, error) {
	t.Helper()
	r := &rig{t: t, sink: &consumertest.MetricsSink{}, host: &statusHost{}, telemetry: componenttest.NewTelemetry()}
	t.Cleanup(func() { require.NoError(t, r.telemetry.Shutdown(context.Background())) })
	factories := make([]scrapers.Factory, 0, len(families))
	for _, f := range families {
		factories = append(factories, f.factory())
	}
	r.cfg = newDefaultConfig(factories)
	r.cfg.HostName = "node"
	r.cfg.Timing.InitialDelay = 0
	r.cfg.delaySet = map[string]bool{"": true}
	for _, option := range options {
		option(r.cfg)
	}
	if next == nil {
		next = r.sink
	}
	core, logs := observer.New(zap.InfoLevel)
	r.logs = logs
	set := metadatatest.NewSettings(r.telemetry)
	set.Logger = zap.New(core)
	var err error
	r.receiver, err = newReceiver(context.Background(), set, r.cfg, next)
	return r, err
}

// list puts a family below scrapers, as the receiver's keys are by then.
func list(f *fakeFamily, maxSeries int) rigOption {
	return func(c *Config) {
		section := c.familyDefaults(f.factory())
		section.Common().MaxSeries = maxSeries
		c.Scrapers = map[string]scrapers.Config{f.name: section}
	}
}

// start builds and starts a receiver.
func start(t *testing.T, next consumer.Metrics, families []*fakeFamily, options ...rigOption) *rig {
	t.Helper()
	r, err := build(t, next, families, options...)
	require.NoError(t, err)
	require.NoError(t, r.receiver.Start(t.Context(), r.host))
	synctest.Wait()
	return r
}

// after lets time pass. A moment more keeps it apart from the ticks.
func (r *rig) after(d time.Duration) {
	r.t.Helper()
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
}

// stop shuts the receiver down and returns how long that took.
func (r *rig) stop() time.Duration {
	r.t.Helper()
	began := time.Now()
	require.NoError(r.t, r.receiver.Shutdown(context.Background()))
	return time.Since(began)
}

// line is what a test compares of a log entry.
type line struct {
	level, message, text string
}

// lines returns the log of one family: the state with its reason, the source or
// target, or the error.
func (r *rig) lines(family string) []line {
	var lines []line
	for _, e := range r.logs.All() {
		fields := e.ContextMap()
		if fields["family"] != family {
			continue
		}
		text := ""
		for _, key := range []string{"state", "reason", "cure", "source", "what", "error"} {
			if v, ok := fields[key].(string); ok && v != "" {
				if text != "" {
					text += "; "
				}
				text += v
			}
		}
		lines = append(lines, line{e.Level.CapitalString(), e.Message, text})
	}
	return lines
}

// names returns the names of all metrics that came out.
func (r *rig) names() []string {
	var names []string
	for _, md := range r.sink.AllMetrics() {
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					names = append(names, m.Name())
				}
			}
		}
	}
	return names
}

// statusHost keeps the status events as `OK` or `StatusRecoverableError: text`.
type statusHost struct {
	mu     sync.Mutex
	events []string
}

func (*statusHost) GetExtensions() map[component.ID]component.Component { return nil }

func (h *statusHost) Report(e *componentstatus.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := e.Status().String()
	if e.Err() != nil {
		text += ": " + e.Err().Error()
	}
	h.events = append(h.events, text)
}

func (h *statusHost) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}
