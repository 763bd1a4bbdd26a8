// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

const (
	// maxLine is far above what 64 processes on 64 cores make (650 KiB).
	maxLine = 16 << 20
	// minStale is how old a report of a tool with a short period may be.
	minStale = 10 * time.Second
	// firstReport is how long a scrape waits after the tool was started, which gives
	// its first report at once.
	firstReport = 5 * time.Second
	// minSilent is how long a tool that reports nothing is left running.
	minSilent = time.Minute
	// atOnce is how soon the end of a tool that reported nothing is an end at once.
	atOnce = 10 * time.Second
)

// monitor runs neuron-monitor and keeps its newest report.
type monitor struct {
	finder finder
	// config is what the tool is told to measure, every period.
	config     []byte
	period     time.Duration
	staleAfter time.Duration
	// silentAfter is when a tool without reports is stopped, and started again.
	silentAfter time.Duration
	logger      *zap.Logger
	clock       func() time.Time
	// pause returns how long to wait before the next run; see guard.Restarts.Next.
	restarts guard.Restarts
	pause    func(worked time.Duration, atOnce bool) time.Duration

	// stop ends the keeper and done is closed when it ended; nil when there is none.
	// Only calls of the source interface, which come one at a time, use them.
	stop    context.CancelFunc
	done    chan struct{}
	devices bool

	mu sync.Mutex
	// began is when the tool was started last. first is closed when there is a report
	// since, or when the tool ended.
	began time.Time
	first chan struct{}
	// newest came at its time. trouble is why the tool ended; nil again with the next
	// report.
	newest  *report.Report
	at      time.Time
	trouble error
	// since is when the first report of this run came; zero before.
	since  time.Time
	counts counts
	// lines counts all of them, skipped those that are no reports.
	lines, skipped int
	// tooLong and unsteady say that so much was logged.
	tooLong, unsteady bool
}

func newMonitor(cfg *Config, set scrapers.Settings) *monitor {
	period := cfg.period()
	m := &monitor{
		finder:     finder{path: cfg.NeuronMonitorPath, root: set.RootPath},
		config:     toolConfig(period, cfg.TagFilter, wantOf(&set.Metrics.Metrics)),
		period:     period,
		staleAfter: max(3*period, minStale),
		logger:     set.Receiver.Logger,
		clock:      time.Now,
		counts:     newCounts(),
	}
	m.silentAfter = max(2*m.staleAfter, minSilent)
	m.pause = m.restarts.Next
	return m
}

// start implements source.
func (*monitor) start(component.Host) {}

// prime implements source.
func (m *monitor) prime(ctx context.Context) {
	if m.run(ctx) == nil { // the first scrape says why not
		m.await(ctx)
	}
}

// read implements source.
func (m *monitor) read(ctx context.Context) *reading {
	if err := m.run(ctx); err != nil {
		return &reading{counts: newCounts(), errs: []error{err}}
	}
	m.await(ctx)
	r := m.latest()
	if r.report == nil || r.report.HardwareError == "" {
		return r
	}
	return m.withoutHardware(r)
}

// run has the tool running, if it is here.
func (m *monitor) run(ctx context.Context) error {
	if m.isRunning(ctx) {
		return nil
	}
	got, err := m.finder.find(ctx)
	switch {
	case err != nil:
		return m.sourceError("search", err)
	case got.err != nil && m.finder.path == "" && !got.devices:
		return &scrapers.AbsentError{
			Reason: "no /dev/neuron*, and " + toolName + " is not installed",
			Cure:   "install the Neuron driver (aws-neuronx-dkms) and tools (aws-neuronx-tools), or set scrapers::trainium::neuron_monitor_path",
		}
	case got.err != nil:
		return m.sourceError("search", fmt.Errorf("%w; install aws-neuronx-tools, or set scrapers::trainium::neuron_monitor_path", got.err))
	}
	m.devices = got.devices
	m.keep(got.tool) //nolint:contextcheck // it outlives the scrape
	return nil
}

// isRunning waits for one that was stopped to be gone.
func (m *monitor) isRunning(ctx context.Context) bool {
	if m.done == nil {
		return false
	}
	if m.stop != nil {
		return true
	}
	select {
	case <-m.done:
		m.done = nil
		return false
	case <-ctx.Done():
		return true
	}
}

// keep starts the tool, and starts it again whenever it ends.
func (m *monitor) keep(tool string) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	m.stop, m.done = stop, done
	m.forget()
	m.begin()
	go func() {
		defer close(done)
		for {
			pause := m.once(ctx, tool)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			m.begin()
		}
	}()
}

// begin notes that the tool is started.
func (m *monitor) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began, m.since = m.clock(), time.Time{}
	m.first = make(chan struct{})
}

// once runs the tool until its end and returns how long to wait before the next run.
func (m *monitor) once(ctx context.Context, tool string) time.Duration {
	res, err := m.stream(ctx, tool)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	if ctx.Err() != nil {
		return 0
	}
	var worked time.Duration
	reported := !m.since.IsZero()
	if reported {
		worked = m.at.Sub(m.since)
	}
	pause := m.pause(worked, !reported && res.Duration < atOnce)
	m.trouble = m.ended(res, err, pause)
	if reported {
		m.logEnd(worked)
	}
	return pause
}

// steady is how long a tool has to work for its next end to be news.
const steady = 5 * time.Minute

// logEnd logs the end of a tool that worked: the last report may still count when the
// next one comes, so that no scrape tells of it. One that does so again and again is
// logged once. m.mu is held.
func (m *monitor) logEnd(worked time.Duration) {
	level := zapcore.WarnLevel
	if m.unsteady && worked < steady {
		level = zapcore.DebugLevel
	}
	m.unsteady = true
	m.logger.Log(level, toolName+" ended", zap.Error(m.trouble))
}

// settle says that there is nothing to wait for; m.mu is held.
func (m *monitor) settle() {
	select {
	case <-m.first:
	default:
		close(m.first)
	}
}

// stream runs the tool with a configuration of its own, and takes its reports.
func (m *monitor) stream(ctx context.Context, tool string) (guard.Result, error) {
	file, remove, err := writeConfig(m.config)
	if err != nil {
		return guard.Result{}, err
	}
	defer remove()
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(m.silentAfter, func() { cancel(errSilent) })
	defer silence.Stop()
	out := &paced{ctx: watched, to: guard.Lines{Max: maxLine, TooLong: m.skipLong}}
	out.to.Line = func(line []byte) {
		out.awaitTurn()
		if m.takeLine(line) {
			silence.Reset(m.silentAfter)
		}
	}
	res, err := guard.Stream(watched, guard.Command{Path: tool, Args: []string{"-c", file}}, out)
	if errors.Is(context.Cause(watched), errSilent) {
		err = fmt.Errorf("%w for %s: it was stopped", errSilent, m.silentAfter)
	}
	return res, err
}

// errSilent: a tool that hangs does so until it is started anew.
var errSilent = errors.New("no report")

// ended says why the tool runs no longer; m.mu is held.
func (m *monitor) ended(res guard.Result, err error, pause time.Duration) error {
	if err == nil {
		err = fmt.Errorf("exited with %d after %s", res.ExitCode, res.Duration.Round(time.Millisecond))
	}
	if n := m.restarts.AtOnce(); n > 1 {
		err = fmt.Errorf("%w, at once, %d times in a row", err, n)
	}
	err = fmt.Errorf("%w; it is started again after %s", err, pause)
	if said := bytes.TrimSpace(res.Stderr); len(said) > 0 {
		err = fmt.Errorf("%w; it said: %q", err, bytes.ToValidUTF8(said, nil))
	}
	return err
}

// takeLine takes a line, and tells whether it is a report. It is called by the goroutine
// that reads the tool's output.
func (m *monitor) takeLine(line []byte) bool {
	r, err := report.Parse(line)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines++
	if err != nil {
		m.skip(len(line), err)
		return false
	}
	m.newest, m.at, m.trouble = r, m.clock(), nil
	if m.since.IsZero() {
		m.since = m.at
	}
	m.counts.add(r)
	m.settle()
	return true
}

// skip says once that there was a line that is no report; m.mu is held. What is in it
// may be private.
func (m *monitor) skip(length int, err error) {
	if m.skipped++; m.skipped == 1 {
		m.logger.Warn("Skipped a line of "+toolName+"; others like it are not logged", zap.Int("bytes", length), zap.Error(err))
	}
}

func (m *monitor) skipLong() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines++
	if !m.tooLong {
		m.tooLong = true
		m.logger.Warn("Skipped a line of "+toolName+" that is too long; others like it are not logged", zap.Int("limit_bytes", maxLine))
	}
}

// await waits for the first report of a tool that was started just now, unless there
// is one of before.
func (m *monitor) await(ctx context.Context) {
	m.mu.Lock()
	now := m.clock()
	first, left, fresh := m.first, firstReport-now.Sub(m.began), m.isFresh(now)
	m.mu.Unlock()
	if fresh {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// latest returns the newest report, if it is of now, and what was counted since the last
// call.
func (m *monitor) latest() *reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &reading{at: m.at, counts: m.counts}
	m.counts = newCounts()
	now := m.clock()
	switch last := later(m.at, m.began); {
	case m.isFresh(now):
		r.report = m.newest
		if err := m.unread(); err != nil {
			r.errs = append(r.errs, err)
		}
	case m.trouble != nil:
		r.errs = append(r.errs, m.sourceError("ended", m.trouble))
	case now.Sub(last) > m.staleAfter:
		r.errs = append(r.errs, m.sourceError("stale", m.silence(now.Sub(last))))
	}
	return r
}

// silence says that there was no report for some time; m.mu is held.
func (m *monitor) silence(lasts time.Duration) error {
	text := fmt.Sprintf("no report for %s (its period is %s): nothing is emitted until there is one", lasts.Round(time.Second), m.period)
	if m.skipped > 0 {
		text += fmt.Sprintf("; %d of its %d lines were no reports", m.skipped, m.lines)
	}
	return errors.New(text)
}

// isFresh tells whether the newest report is of now; m.mu is held.
func (m *monitor) isFresh(now time.Time) bool {
	return m.newest != nil && now.Sub(m.at) <= m.staleAfter
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// maxTroubles is how many are told.
const maxTroubles = 8

// unread says what the tool could not read; m.mu is held.
func (m *monitor) unread() error {
	all := m.newest.Troubles
	if len(all) == 0 {
		return nil
	}
	var text strings.Builder
	for _, trouble := range all[:min(len(all), maxTroubles)] {
		fmt.Fprintf(&text, "; %s", trouble)
	}
	if left := len(all) - maxTroubles; left > 0 {
		fmt.Fprintf(&text, "; and %d more", left)
	}
	said := text.String()[2:]
	return &scrapers.SourceError{Source: toolName + "'s reading", Err: &fault{cause: said, err: errors.New(said)}}
}

// withoutHardware deals with a tool that finds no hardware: it runs all the same.
func (m *monitor) withoutHardware(r *reading) *reading {
	said := r.report.HardwareError
	if m.devices || len(r.report.Runtimes) > 0 {
		r.errs = append(r.errs, &scrapers.SourceError{Source: toolName + "'s hardware", Err: errors.New(said)})
		return r
	}
	m.stop()
	m.stop = nil
	return &reading{counts: r.counts, errs: []error{&scrapers.AbsentError{
		Reason: fmt.Sprintf("no /dev/neuron*, and %s finds no device: %s", toolName, said),
		Cure:   "install the Neuron driver (aws-neuronx-dkms), or let the container use /dev/neuron*",
	}}}
}

// forget drops the report of a tool that was stopped, which may have come after that.
func (m *monitor) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest, m.trouble = nil, nil
}

func (m *monitor) sourceError(cause string, err error) error {
	return &scrapers.SourceError{Source: toolName, Err: &fault{cause: cause, err: err}}
}

// close implements source. The tool ends by itself if that takes longer than ctx.
func (m *monitor) close(ctx context.Context) error {
	if m.done == nil {
		return nil
	}
	if m.stop != nil {
		m.stop()
		m.stop = nil
	}
	select {
	case <-m.done:
		m.done = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: waiting for it to end: %w", toolName, context.Cause(ctx))
	}
}
