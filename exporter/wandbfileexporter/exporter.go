// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/collect"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/runs"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

const (
	// producer tells our runs from others.
	producer = "otelcol-wandbsys"
	// shutdownTimeout bounds how long the runs get to end.
	shutdownTimeout = 5 * time.Second
	// maxTick bounds how late a record is closed.
	maxTick = time.Second
	// maxPause bounds for how long nothing is tried again after a failure.
	maxPause = 30 * time.Second
)

// What may fail, each on its own: that one works says nothing of the other.
const (
	writing = iota
	tending
	tasks
)

// fileExporter collects points into records, and writes them. Two things keep it
// apart from a file system that does not answer: what is collected is behind a
// mutex that is never held while something is written, and what is written is
// touched by one call at a time, which may be left behind.
type fileExporter struct {
	cfg       *Config
	settings  exporter.Settings
	telemetry *metadata.TelemetryBuilder
	host      component.Host

	// mu guards what follows.
	mu        sync.Mutex
	collector *collect.Collector
	limited   bool

	// reports guards failures, and keeps what is told of them in order.
	reports sync.Mutex
	// failures are why the last attempt at each task failed, nil if it did not.
	failures [tasks]error

	// slot is taken by the one call that uses the store.
	slot  guard.Slot
	store *runs.Store

	run  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
}

func newExporter(set exporter.Settings, cfg *Config) (*fileExporter, error) {
	names, err := cfg.names()
	if err != nil {
		return nil, err
	}
	one, all := cfg.sizes()
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("making the exporter's own metrics: %w", err)
	}
	e := &fileExporter{cfg: cfg, settings: set, telemetry: telemetry}
	e.run, e.stop = context.WithCancel(context.Background())
	e.store = runs.New(runs.Options{
		Directory: cfg.Directory,
		Names:     names,
		MaxSize:   one, MaxAge: cfg.Rotation.MaxAge, MaxTotal: all,
		Sync: cfg.Fsync, Interval: cfg.Interval,
		Producer: runs.Producer{Name: producer, Version: set.BuildInfo.Version},
		Logger:   set.Logger, Now: time.Now, Did: e.did,
	})
	return e, nil
}

// start begins to look for what is due. The directory is not touched before there
// is something to write.
func (e *fileExporter) start(ctx context.Context, host component.Host) error {
	e.host = host
	e.collector = collect.New(collect.Options{
		Hosts: e.cfg.Runs != runsWorkloads, Workloads: e.cfg.Runs != runsHost,
		IncludeUnknown: e.cfg.IncludeUnknown, Interval: e.cfg.Interval,
		IdleTimeout: e.cfg.IdleTimeout, MaxRuns: e.cfg.MaxRuns,
		LocalHost: identity.HostName(ctx, "", ""),
		Now:       time.Now, Dropped: e.dropped,
	})
	e.done.Add(1)
	go e.tend() //nolint:contextcheck // ends with the exporter, not with its start
	return nil
}

// tend writes what is due, from time to time.
func (e *fileExporter) tend() {
	defer e.done.Done()
	tick := min(e.cfg.Interval/4, maxTick)
	tries := backoff{most: int(maxPause / tick)}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-e.run.Done():
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		e.collector.CloseDue()
		e.mu.Unlock()
		if !tries.due() {
			continue
		}
		ctx, cancel := context.WithTimeout(e.run, e.cfg.Timeout.Timeout)
		written := e.drain(ctx)
		cancel()
		e.report(writing, written)
		tended := e.tendStore()
		e.report(tending, tended)
		tries.tried(written != nil || tended != nil)
	}
}

// tendStore does what need not be done at once. Where that is much, for hundreds of runs
// on a slow file system, it stops after half of the time that it has: to be late with
// it is no failure, and records wait meanwhile.
func (e *fileExporter) tendStore() error {
	ctx, cancel := context.WithTimeout(e.run, e.cfg.Timeout.Timeout)
	defer cancel()
	half, cancelHalf := context.WithTimeout(ctx, e.cfg.Timeout.Timeout/2)
	defer cancelHalf()
	return e.call(ctx,
		func() error { return e.finishIdle(half) },
		func() error { return e.store.Tend(half) })
}

// backoff leaves ticks out after failures, ever more of them: a file system that is full
// may be that of thousands of machines, each of which would make and remove a folder for
// each of its runs.
type backoff struct {
	// most is how many are left out at most, last how many were the last time, and left
	// how many still are.
	most, last, left int
}

func (b *backoff) due() bool {
	if b.left == 0 {
		return true
	}
	b.left--
	return false
}

func (b *backoff) tried(failed bool) {
	if !failed {
		b.last = 0
		return
	}
	b.last = min(2*b.last+1, b.most)
	b.left = b.last
}

// consume takes a payload. While records of a resource could not be written, its
// points are refused, to be sent again.
func (e *fileExporter) consume(ctx context.Context, md pmetric.Metrics) error {
	stuck, failure := e.stuck(ctx)
	e.mu.Lock()
	left := e.collector.Add(md, func(s *collect.Source) bool { return stuck[s] })
	e.mu.Unlock()
	e.report(writing, e.drain(ctx))
	if len(left) == 0 {
		return nil
	}
	return consumererror.NewMetrics(failure, part(md, left))
}

// stuck writes what waits. It returns the sources of which something still does,
// and why. That a source has records says nothing: a payload may hold many, and
// others may be about to write them.
func (e *fileExporter) stuck(ctx context.Context) (map[*collect.Source]bool, error) {
	if !e.waiting() {
		return nil, nil
	}
	err := e.drain(ctx)
	e.report(writing, err)
	if err == nil {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	stuck := map[*collect.Source]bool{}
	for _, s := range e.collector.Sources() {
		stuck[s] = s.Ready() != nil
	}
	return stuck, err
}

// part copies some resources of a payload.
func part(md pmetric.Metrics, places []int) pmetric.Metrics {
	if len(places) == md.ResourceMetrics().Len() {
		return md
	}
	some := pmetric.NewMetrics()
	for _, i := range places {
		md.ResourceMetrics().At(i).CopyTo(some.ResourceMetrics().AppendEmpty())
	}
	return some
}

// waiting tells whether there are records to write.
func (e *fileExporter) waiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.collector.Sources() {
		if s.Ready() != nil {
			return true
		}
	}
	return false
}

// drain writes the records that are closed.
func (e *fileExporter) drain(ctx context.Context) error {
	return e.call(ctx, func() error { return e.write(ctx) })
}

// call does what uses the store, all of it even if something fails. It comes back
// when ctx ends, even if the file system does not.
func (e *fileExporter) call(ctx context.Context, do ...func() error) error {
	_, err := guard.Call(ctx, &e.slot, func(context.Context) (struct{}, error) {
		var errs []error
		for _, f := range do {
			errs = append(errs, f())
		}
		return struct{}{}, errors.Join(errs...)
	})
	return err
}

// write writes all records that are closed. The first failure of a source ends its
// turn. That some are left since ctx ended is an error.
func (e *fileExporter) write(ctx context.Context) error {
	e.mu.Lock()
	sources := e.collector.Sources()
	e.mu.Unlock()
	var errs []error
	for _, s := range sources {
		for {
			subject, record := e.next(s)
			if record == nil {
				break
			}
			if err := ctx.Err(); err != nil {
				return errors.Join(append(errs, err)...)
			}
			if err := e.store.Write(subject, record); err != nil {
				errs = append(errs, err)
				break
			}
			e.mu.Lock()
			s.Written()
			e.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (e *fileExporter) next(s *collect.Source) (*runs.Subject, *runs.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	record := s.Ready()
	if record == nil {
		return nil, nil
	}
	return s.Subject(), record
}

// finishIdle ends the runs of sources from which nothing comes any more, until ctx ends.
func (e *fileExporter) finishIdle(ctx context.Context) error {
	e.mu.Lock()
	sources := e.collector.Sources()
	e.mu.Unlock()
	var errs []error
	for _, s := range sources {
		if ctx.Err() != nil {
			break
		}
		e.mu.Lock()
		idle := e.collector.Idle(s)
		key := s.Key()
		e.mu.Unlock()
		if !idle {
			continue
		}
		if err := e.store.Finish(key); err != nil {
			errs = append(errs, err)
			continue
		}
		e.mu.Lock()
		if e.collector.Idle(s) { // nothing came meanwhile
			e.collector.Forget(s)
		}
		e.mu.Unlock()
	}
	return errors.Join(errs...)
}

// report tells of a change: that something fails, and that nothing does any more.
// exporterhelper logs what is tried again.
func (e *fileExporter) report(task int, err error) {
	if e.run.Err() != nil || errors.Is(err, context.Canceled) {
		return // what is cut short by the end, here or of who sends, is no failure
	}
	e.reports.Lock()
	defer e.reports.Unlock()
	before := errors.Join(e.failures[:]...)
	e.failures[task] = err
	after := errors.Join(e.failures[:]...)
	switch {
	case after != nil && before == nil:
		e.settings.Logger.Error("Cannot write W&B runs; trying again", zap.String("directory", e.cfg.Directory), zap.Error(err))
		componentstatus.ReportStatus(e.host, componentstatus.NewRecoverableErrorEvent(err))
	case after == nil && before != nil:
		e.settings.Logger.Info("Writing W&B runs again", zap.String("directory", e.cfg.Directory))
		componentstatus.ReportStatus(e.host, componentstatus.NewEvent(componentstatus.StatusOK))
	}
}

// shutdown writes what there is and ends the runs, if the file system lets it.
func (e *fileExporter) shutdown(ctx context.Context) error {
	e.stop()
	e.done.Wait()
	defer e.telemetry.Shutdown()
	if e.collector == nil {
		return nil // was not started
	}
	e.mu.Lock()
	e.collector.CloseAll()
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	e.slot.Settle(ctx) // the call that stop cut short
	if err := e.call(ctx, func() error { return e.write(ctx) }, e.store.Close); err != nil {
		return fmt.Errorf("ending the runs in %s: %w", e.cfg.Directory, err)
	}
	return nil
}

func (e *fileExporter) did(w runs.Work) {
	ctx := context.Background()
	add := func(counter interface {
		Add(context.Context, int64, ...metric.AddOption)
	}, n int64,
	) {
		if n != 0 {
			counter.Add(ctx, n)
		}
	}
	add(e.telemetry.WandbFileOpenRuns, w.Opened)
	add(e.telemetry.WandbFileRemovedRuns, w.Removed)
	add(e.telemetry.WandbFileWrittenRecords, w.Records)
	add(e.telemetry.WandbFileWrittenSize, w.Bytes)
}

func (e *fileExporter) dropped(reason string, points int) {
	e.telemetry.WandbFileDroppedPoints.Add(context.Background(), int64(points), metric.WithAttributes(attribute.String("reason", reason)))
	if reason == collect.Limit && !e.limited {
		e.limited = true
		e.settings.Logger.Warn("So many runs are open that no new ones are begun: some data are not written; raise max_runs", zap.Int("max_runs", e.cfg.MaxRuns))
	}
}
