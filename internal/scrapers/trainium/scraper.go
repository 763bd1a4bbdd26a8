// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package trainium measures AWS Trainium and Inferentia devices through Neuron's own
// tool, neuron-monitor.
package trainium

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/absolute"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

const familyName = "trainium"

// NewFactory returns the factory of the family `trainium`.
func NewFactory() scrapers.Factory {
	return scrapers.Factory{
		Name: familyName, DefaultConfig: defaultConfig, New: newScraper,
		TellsHolders: compiledIn, NotCompiledIn: notCompiledIn,
	}
}

// neuronScraper maps reports to metric points.
type neuronScraper struct {
	source   source
	config   *Config
	identity *identity.Machine
	recorder *recorder
	// owners tells whose runtimes they are; nil when nobody is asked for.
	owners owners
	clock  func() time.Time

	// machine counts what all runtimes executed, devices the errors of each device,
	// since the start; workloads what was executed since that time, by their ids.
	machine   executions
	devices   map[int]tally
	workloads map[string]*workloadCount
	start     time.Time
	// counted is when the counts were taken last.
	counted time.Time
	// absolute has the starts of counters that a source keeps itself.
	absolute absolute.Counters
}

// workloadCount is what was executed for a workload since a time.
type workloadCount struct {
	executions

	start time.Time
}

// owners finds the workloads that runtimes belong to.
type owners interface {
	// of returns the workloads that own one of the pids. The first of these hold a
	// device now, the others did so since the last call.
	of(ctx context.Context, holders, others []int) ([]user, error)
}

// user is a workload and the pids of its runtimes.
type user struct {
	who  *identity.Workload
	owns func(pid int) bool
}

func newScraper(set scrapers.Settings, section scrapers.Config) (scrapers.Scraper, error) {
	cfg := section.(*Config)
	src, owners, err := newSource(cfg, set)
	if err != nil {
		return nil, err
	}
	return newScraperFor(set, cfg, src, owners), nil
}

func newScraperFor(set scrapers.Settings, cfg *Config, src source, owners owners) *neuronScraper {
	return &neuronScraper{
		source: src, config: cfg, identity: set.Identity, owners: owners, clock: time.Now,
		recorder: newRecorder(metadata.NewMetricsBuilder(set.Metrics, set.Receiver), set.Receiver.BuildInfo.Version),
		machine:  *newExecutions(), devices: map[int]tally{}, workloads: map[string]*workloadCount{},
	}
}

// Start implements scrapers.Scraper. The tool is looked for by Prime.
func (s *neuronScraper) Start(_ context.Context, host component.Host) error {
	s.source.start(host)
	s.start = s.clock()
	s.counted = s.start
	return nil
}

// Prime implements scrapers.Primer.
func (s *neuronScraper) Prime(ctx context.Context) { s.source.prime(ctx) }

// Shutdown implements scrapers.Scraper.
func (s *neuronScraper) Shutdown(ctx context.Context) error { return s.source.close(ctx) }

// Scrape implements scrapers.Scraper.
func (s *neuronScraper) Scrape(ctx context.Context) (pmetric.Metrics, error) {
	// What arrives while the source is read, and is told by the next reading, is not
	// before the time that this one is counted until.
	since := s.counted
	s.counted = s.clock()
	r := s.source.read(ctx)
	if !r.absolute {
		s.count(&r.counts)
	}
	md := pmetric.NewMetrics()
	if r.report == nil {
		return md, errors.Join(r.errs...)
	}
	s.emitMachine(ctx, r, md)
	if err := s.emitWorkloads(ctx, r, since, md); err != nil {
		r.errs = append(r.errs, &scrapers.SourceError{Source: "attribution of processes", Err: err})
	}
	return md, errors.Join(r.errs...)
}

// count adds up what happened since the last reading.
func (s *neuronScraper) count(more *counts) {
	for _, of := range more.executions {
		s.machine.add(of)
	}
	for number, errs := range more.devices {
		if s.devices[number] == nil {
			s.devices[number] = tally{}
		}
		s.devices[number].add(errs)
	}
}

func (s *neuronScraper) emitMachine(ctx context.Context, r *reading, md pmetric.Metrics) {
	all := runtimesOf(r.report, func(report.Key) bool { return true })
	sum := sumOf(all)
	if s.config.ReportIdle {
		sum.idle(r.report)
	}
	now := pcommon.NewTimestampFromTime(r.at)
	s.recorder.figures(now, sum)
	if r.absolute {
		s.recordAbsolute(now, r)
	} else {
		s.recorder.since(s.start)
		if sum.ran {
			s.recorder.executions(now, &s.machine)
		}
		for _, number := range sorted(r.report.Devices) {
			s.recorder.errors(now, number, s.devices[number])
		}
	}
	made := s.recorder.emit(s.identity.Host(ctx), now, sum)
	if s.config.RuntimePoints {
		made.addRuntimes(now, all)
	}
	made.moveTo(md)
}

// recordAbsolute records counters that began when the source did, or when one of its
// runtimes ended, which takes its part away.
func (s *neuronScraper) recordAbsolute(now pcommon.Timestamp, r *reading) {
	all := newExecutions()
	for _, of := range r.counts.executions {
		all.add(of)
	}
	one := func(device string, t tally, record func(tally)) {
		for _, kind := range sorted(t) {
			s.recorder.since(s.absolute.Start(device, kind, t[kind], r.at))
			record(tally{kind: t[kind]})
		}
	}
	one("errors", all.errors, func(t tally) { s.recorder.executions(now, &executions{errors: t}) })
	one("outcomes", all.outcomes, func(t tally) { s.recorder.executions(now, &executions{outcomes: t}) })
	for _, number := range sorted(r.counts.devices) {
		one(deviceName(number), r.counts.devices[number], func(t tally) { s.recorder.errors(now, number, t) })
	}
}

// emitWorkloads emits the figures of the runtimes of each workload. Those that are
// counted now were counted since a time.
func (s *neuronScraper) emitWorkloads(ctx context.Context, r *reading, since time.Time, md pmetric.Metrics) error {
	if s.owners == nil || ctx.Err() != nil {
		return nil
	}
	users, err := s.owners.of(ctx, pidsOf(r.report), endedOf(r))
	if err != nil {
		return err
	}
	now := pcommon.NewTimestampFromTime(r.at)
	alive := make(map[string]bool, len(users))
	for _, u := range users {
		alive[u.who.ID] = true
		executed := s.countFor(&u, &r.counts, since)
		mine := runtimesOf(r.report, func(k report.Key) bool { return u.owns(k.Pid) })
		if len(mine) == 0 {
			continue
		}
		sum := sumOf(mine)
		s.recorder.figures(now, sum)
		if sum.ran && executed != nil {
			s.recorder.since(executed.start)
			s.recorder.executions(now, &executed.executions)
		}
		s.recorder.emit(s.identity.Workload(u.who), now, sum).moveTo(md)
	}
	for id := range s.workloads {
		if !alive[id] {
			delete(s.workloads, id)
		}
	}
	return nil
}

// countFor adds up what a workload executed. It is nil when that is not known.
func (s *neuronScraper) countFor(u *user, more *counts, since time.Time) *workloadCount {
	of := s.workloads[u.who.ID]
	for key, executed := range more.executions {
		if !u.owns(key.Pid) {
			continue
		}
		if of == nil {
			of = &workloadCount{executions: *newExecutions(), start: since}
			s.workloads[u.who.ID] = of
		}
		of.add(executed)
	}
	return of
}

func runtimesOf(r *report.Report, is func(report.Key) bool) []*report.Runtime {
	var found []*report.Runtime
	for i := range r.Runtimes {
		if is(r.Runtimes[i].Key) {
			found = append(found, &r.Runtimes[i])
		}
	}
	return found
}

// pidsOf are the processes that use a device.
func pidsOf(r *report.Report) []int {
	var pids []int
	for i := range r.Runtimes {
		if pid := r.Runtimes[i].Key.Pid; pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endedOf are the processes that are counted, and no longer there.
func endedOf(r *reading) []int {
	there := map[int]bool{}
	for _, pid := range pidsOf(r.report) {
		there[pid] = true
	}
	var pids []int
	for key := range r.counts.executions {
		if key.Pid > 0 && !there[key.Pid] {
			pids = append(pids, key.Pid)
		}
	}
	return pids
}
