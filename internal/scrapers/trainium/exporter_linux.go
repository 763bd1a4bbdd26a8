// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/fetch"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

const (
	// closeTime is how long a request that was cut short may take to end.
	closeTime = 500 * time.Millisecond
	// manySeries is more than there is place for in a body.
	manySeries = 1 << 20
	// acceptText asks for the classic text, which the exporter has.
	acceptText = "text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
)

// The exporter's series.
const (
	utilisationSeries = "neuroncore_utilization_ratio"
	partSeriesPrefix  = "neuroncore_memory_usage_"
	memorySeries      = "neuron_runtime_memory_used_bytes"
	eccSeries         = "hardware_ecc_events_total"
	errorsSeries      = "execution_errors_total"
	outcomesSeries    = "execution_status_total"
	latencySeries     = "execution_latency_seconds"
	hardwareSeries    = "neuron_hardware_info"
)

// exporter reads what neuron-monitor-prometheus serves.
type exporter struct {
	client *fetch.Client
	parser *exposition.Parser
	want   want
	// slot holds the one request, which uses the client and the parser alone.
	slot guard.Slot
}

func newExporter(cfg *PrometheusConfig, set scrapers.Settings) (*exporter, error) {
	client, err := fetch.New(fetch.Options{
		Config:    cfg.ClientConfig,
		Timeout:   cfg.timeout(),
		Limit:     cfg.MaxBodySize,
		LimitKey:  "scrapers::trainium::prometheus::max_body_size",
		Accept:    acceptText,
		UserAgent: set.Receiver.BuildInfo.Command + "/" + set.Receiver.BuildInfo.Version,
		Telemetry: set.Receiver.TelemetrySettings,
	})
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	limits := exposition.Limits{BodySize: cfg.MaxBodySize, Series: manySeries}
	return &exporter{
		client: client, want: wantOf(&set.Metrics.Metrics),
		parser: exposition.New(exposition.Options{Limits: limits}),
	}, nil
}

// start implements source.
func (e *exporter) start(host component.Host) { e.client.Start(host) }

// prime implements source. The exporter counts by itself.
func (*exporter) prime(context.Context) {}

// read implements source.
func (e *exporter) read(ctx context.Context) *reading {
	r, err := guard.Call(ctx, &e.slot, e.ask)
	if err != nil {
		source := fmt.Sprintf("neuron-monitor-prometheus (%s)", e.client.Target())
		return &reading{absolute: true, errs: []error{&scrapers.SourceError{Source: source, Err: err}}}
	}
	return r
}

// ask makes one request. It runs behind the guard.
func (e *exporter) ask(ctx context.Context) (*reading, error) {
	body, contentType, err := e.client.Get(ctx)
	if err != nil {
		return nil, err
	}
	at := time.Now()
	c := newCollected()
	isExporter := false
	scrape, err := e.parser.Parse(body, contentType, func(name string, _ exposition.Labels) bool {
		wanted := e.wants(name)
		isExporter = isExporter || wanted || isUnused(name)
		return wanted
	})
	if err != nil {
		return nil, scrapers.NewFault("parse", err)
	}
	for i := range scrape.Families {
		c.addFamily(&scrape.Families[i])
	}
	if !isExporter {
		return nil, scrapers.NewFault("series", errors.New("no series of neuron-monitor-prometheus: is it another exporter?"))
	}
	return &reading{report: c.report(), at: at, counts: c.counts, absolute: true}, nil
}

// isUnused tells whether a series is one of the exporter's of which nothing is made by
// default. Without a job there may be no others.
func isUnused(name string) bool {
	switch name {
	case eccSeries, errorsSeries, outcomesSeries, latencySeries, "instance_info":
		return true
	}
	return strings.HasPrefix(name, "system_memory_") || strings.HasPrefix(name, "system_swap_") || strings.HasPrefix(name, "system_vcpu_")
}

// wants tells whether a series is used.
func (e *exporter) wants(name string) bool {
	switch name {
	case errorsSeries, outcomesSeries, latencySeries:
		return e.want.execution
	case eccSeries:
		return e.want.ecc
	case utilisationSeries, memorySeries, hardwareSeries:
		return true
	}
	return strings.HasPrefix(name, partSeriesPrefix)
}

// close implements source. A request that does not end keeps its client.
func (e *exporter) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	if e.slot.Settle(ctx) {
		e.client.Shutdown()
	}
	return nil
}

// collected is what series tell, by the tags of the runtimes: their pids are not told.
type collected struct {
	runtimes map[string]*report.Runtime
	tags     []string
	counts   counts
	cores    int
}

func newCollected() *collected {
	return &collected{runtimes: map[string]*report.Runtime{}, counts: newCounts()}
}

func (c *collected) addFamily(f *exposition.Family) {
	for i := range f.Samples {
		s := &f.Samples[i]
		if s.Value >= 0 && !math.IsInf(s.Value, 0) {
			c.add(f.Name, labels{s.Labels}, s.Value)
		}
	}
}

// labels have texts that outlive the body.
type labels struct{ exposition.Labels }

func (l labels) text(name string) string {
	v, _ := l.Get(name)
	return strings.Clone(v)
}

// number reads a label that is the number of a core or a device.
func (l labels) number(name string) (int, bool) {
	v, _ := l.Get(name)
	n, err := strconv.ParseUint(v, 10, 16)
	return int(n), err == nil
}

func (c *collected) add(name string, l labels, value float64) {
	switch name {
	case utilisationSeries:
		if core, ok := l.number("neuroncore"); ok {
			c.runtime(l).Utilisation[core] = min(100*value, 100)
		}
	case memorySeries:
		c.addMemory(l, value)
	case latencySeries:
		c.execution(l).Total[l.text("percentile")] = value
	case errorsSeries:
		c.executions(l).addErrors(map[string]float64{l.text("error_type"): value})
	case outcomesSeries:
		c.executions(l).addOutcomes(map[string]float64{l.text("status_type"): value})
	case eccSeries:
		if device, ok := l.number("neuron_device_index"); ok {
			c.counts.device(device)[l.text("event_type")] = value
		}
	case hardwareSeries:
		devices, _ := l.number("neuron_device_count")
		perDevice, _ := l.number("neuroncore_per_device_count")
		c.cores = max(c.cores, devices*perDevice)
	default:
		c.addPart(strings.TrimPrefix(name, partSeriesPrefix), l, value)
	}
}

func (c *collected) addMemory(l labels, value float64) {
	r := c.runtime(l)
	switch l.text("memory_location") {
	case "host":
		r.Host = optional.Some(value)
	case "neuron_device":
		r.Device = optional.Some(value)
	}
}

func (c *collected) addPart(part string, l labels, value float64) {
	core, ok := l.number("neuroncore")
	if !ok || !report.IsPart(part) {
		return
	}
	parts := c.runtime(l).CoreParts
	if parts[core] == nil {
		parts[core] = map[string]float64{}
	}
	parts[core][strings.Clone(part)] = value
}

func (c *collected) runtime(l labels) *report.Runtime {
	tag := l.text("runtime_tag")
	r := c.runtimes[tag]
	if r == nil {
		r = &report.Runtime{Key: report.Key{Tag: tag}, Utilisation: map[int]float64{}, CoreParts: map[int]map[string]float64{}}
		c.runtimes[tag] = r
		c.tags = append(c.tags, tag)
	}
	return r
}

func (c *collected) execution(l labels) *report.Execution {
	r := c.runtime(l)
	if r.Execution == nil {
		r.Execution = &report.Execution{Total: map[string]float64{}}
	}
	return r.Execution
}

// executions are those of all runtimes: the exporter adds them up by tag.
func (c *collected) executions(l labels) *executions {
	c.execution(l)
	key := report.Key{}
	if c.counts.executions[key] == nil {
		c.counts.executions[key] = newExecutions()
	}
	return c.counts.executions[key]
}

func (c *collected) report() *report.Report {
	slices.Sort(c.tags)
	r := &report.Report{Cores: c.cores}
	for _, tag := range c.tags {
		r.Runtimes = append(r.Runtimes, *c.runtimes[tag])
	}
	return r
}
