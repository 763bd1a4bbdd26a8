// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package keeper keeps a program running that reports again and again, and has its newest
// report. It starts the program again when it ends or hangs, and tells when what it knows
// is no longer of now.
package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const (
	// minStale is how old a report of a program with a short period may be.
	minStale = 10 * time.Second
	// minSilent is how long a program that reports nothing is left running.
	minSilent = time.Minute
	// atOnce is how soon the end of a program that reported nothing is an end at once.
	atOnce = 10 * time.Second
	// steady is how long a program has to work for its next end to be news.
	steady = 5 * time.Minute
)

// Program says what is kept running.
type Program[T any] struct {
	// Name is the program's in messages.
	Name string
	// Period is the time between two reports.
	Period time.Duration
	// FirstReport is how long Await waits after a start.
	FirstReport time.Duration
	// MaxReport is how many bytes a report may have, for messages.
	MaxReport int
	// Cut returns a writer for what a run prints: it calls report with each report, and
	// tooLong for each that is dropped.
	Cut func(report func([]byte), tooLong func()) io.Writer
	// Parse reads a report, which it must not keep.
	Parse func(report []byte) (T, error)
	// Taken is called with each report, in their order; nil for nothing. It must not
	// block.
	Taken  func(T)
	Logger *zap.Logger
}

// Start prepares a run: its command, and what is to be done when it ended.
type Start func() (command guard.Command, ended func(), err error)

// Keeper keeps one program running. Its fields may be changed before the first call;
// Running, Keep, Await, Latest, Stop and Close come one at a time.
type Keeper[T any] struct {
	// StaleAfter is how old a report may be, SilentAfter when a program without reports is
	// stopped, and started again.
	StaleAfter, SilentAfter time.Duration
	Clock                   func() time.Time
	// Pause returns how long to wait before the next run; see guard.Restarts.Next.
	Pause func(worked time.Duration, atOnce bool) time.Duration

	program  Program[T]
	restarts guard.Restarts

	// stop ends the keeper and done is closed when it ended; nil when there is none.
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex
	// began is when the program was started last. first is closed when there is a report
	// since, or when the program ended.
	began time.Time
	first chan struct{}
	// newest came at its time. trouble is why the program ended; nil again with the next
	// report.
	newest  T
	known   bool
	at      time.Time
	trouble error
	// since is when the first report of this run came; zero before.
	since time.Time
	// reports counts all of them, skipped those that are none.
	reports, skipped int
	// tooLong and unsteady say that so much was logged.
	tooLong, unsteady bool
}

// New returns a keeper of a program, which it does not start.
func New[T any](p Program[T]) *Keeper[T] {
	k := &Keeper[T]{program: p, StaleAfter: max(3*p.Period, minStale), Clock: time.Now}
	k.SilentAfter = max(2*k.StaleAfter, minSilent)
	k.Pause = k.restarts.Next
	return k
}

// Running tells whether the program is kept running. It waits for one that was stopped to
// be gone.
func (k *Keeper[T]) Running(ctx context.Context) bool {
	if k.done == nil {
		return false
	}
	if k.stop != nil {
		return true
	}
	select {
	case <-k.done:
		k.done = nil
		return false
	case <-ctx.Done():
		return true
	}
}

// Keep starts the program, and starts it again whenever it ends, until Stop or Close.
func (k *Keeper[T]) Keep(start Start) {
	ctx, stop := context.WithCancel(context.Background()) //nolint:gosec // Stop and Close call it
	done := make(chan struct{})
	k.stop, k.done = stop, done
	k.forget()
	k.begin()
	go func() {
		defer close(done)
		for {
			pause := k.once(ctx, start)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			if ctx.Err() != nil { // both may have come
				return
			}
			k.begin()
		}
	}()
}

// begin notes that the program is started.
func (k *Keeper[T]) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.began, k.since = k.Clock(), time.Time{}
	k.first = make(chan struct{})
}

// once runs the program until its end and returns how long to wait before the next run.
func (k *Keeper[T]) once(ctx context.Context, start Start) time.Duration {
	res, err := k.run(ctx, start)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settle()
	if ctx.Err() != nil {
		return 0
	}
	var worked time.Duration
	reported := !k.since.IsZero()
	if reported {
		worked = k.at.Sub(k.since)
	}
	pause := k.Pause(worked, !reported && res.Duration < atOnce)
	k.trouble = k.ended(res, err, pause)
	if reported {
		k.logEnd(worked)
	}
	return pause
}

// logEnd logs the end of a program that worked: the last report may still count when the
// next one comes, so that no scrape tells of it. One that does so again and again is
// logged once. k.mu is held.
func (k *Keeper[T]) logEnd(worked time.Duration) {
	level := zapcore.WarnLevel
	if k.unsteady && worked < steady {
		level = zapcore.DebugLevel
	}
	k.unsteady = true
	k.program.Logger.Log(level, k.program.Name+" ended", zap.Error(k.trouble))
}

// settle says that there is nothing to wait for; k.mu is held.
func (k *Keeper[T]) settle() {
	select {
	case <-k.first:
	default:
		close(k.first)
	}
}

// run runs the program and takes its reports.
func (k *Keeper[T]) run(ctx context.Context, start Start) (guard.Result, error) {
	command, ended, err := start()
	if err != nil {
		return guard.Result{}, err
	}
	defer ended()
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(k.SilentAfter, func() { cancel(errSilent) })
	defer silence.Stop()
	out := &paced{ctx: watched}
	out.to = k.program.Cut(func(report []byte) {
		out.awaitTurn()
		if k.take(report) {
			silence.Reset(k.SilentAfter)
		}
	}, k.skipLong)
	res, err := guard.Stream(watched, command, out)
	if errors.Is(context.Cause(watched), errSilent) {
		err = fmt.Errorf("%w for %s: it was stopped", errSilent, k.SilentAfter)
	}
	return res, err
}

// errSilent: a program that hangs does so until it is started anew.
var errSilent = errors.New("no report")

// ended says why the program runs no longer; k.mu is held.
func (k *Keeper[T]) ended(res guard.Result, err error, pause time.Duration) error {
	if err == nil {
		err = fmt.Errorf("exited with %d after %s", res.ExitCode, res.Duration.Round(time.Millisecond))
	}
	if n := k.restarts.AtOnce(); n > 1 {
		err = fmt.Errorf("%w, at once, %d times in a row", err, n)
	}
	err = fmt.Errorf("%w; it is started again after %s", err, pause)
	if said := bytes.TrimSpace(res.Stderr); len(said) > 0 {
		err = fmt.Errorf("%w; it said: %q", err, bytes.ToValidUTF8(said, nil))
	}
	return err
}

// take takes a report, and tells whether it is one. It is called by the goroutine that
// reads the program's output.
func (k *Keeper[T]) take(text []byte) bool {
	r, err := k.program.Parse(text)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports++
	if err != nil {
		k.skip(len(text), err)
		return false
	}
	k.newest, k.known, k.at, k.trouble = r, true, k.Clock(), nil
	if k.since.IsZero() {
		k.since = k.at
	}
	if k.program.Taken != nil {
		k.program.Taken(r)
	}
	k.settle()
	return true
}

// skip says once that there was something that is no report; k.mu is held. What is in it
// may be private.
func (k *Keeper[T]) skip(length int, err error) {
	if k.skipped++; k.skipped == 1 {
		k.program.Logger.Warn("Skipped a line of "+k.program.Name+"; others like it are not logged", zap.Int("bytes", length), zap.Error(err))
	}
}

func (k *Keeper[T]) skipLong() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports++
	if !k.tooLong {
		k.tooLong = true
		k.program.Logger.Warn("Skipped a line of "+k.program.Name+" that is too long; others like it are not logged", zap.Int("limit_bytes", k.program.MaxReport))
	}
}

// Await waits for the first report of a program that was started just now, unless there
// is one of before.
func (k *Keeper[T]) Await(ctx context.Context) {
	k.mu.Lock()
	now := k.Clock()
	first, left, fresh := k.first, k.program.FirstReport-now.Sub(k.began), k.isFresh(now)
	k.mu.Unlock()
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

// Latest returns the newest report and its time, and whether it is of now. Where it is not
// the error is a *scrapers.SourceError that says why, or nil while there is nothing to
// tell.
func (k *Keeper[T]) Latest() (report T, at time.Time, fresh bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Clock()
	switch last := later(k.at, k.began); {
	case k.isFresh(now):
		return k.newest, k.at, true, nil
	case k.trouble != nil:
		err = Fault(k.program.Name, "ended", k.trouble)
	case now.Sub(last) > k.StaleAfter:
		err = Fault(k.program.Name, "stale", k.silence(now.Sub(last)))
	}
	return report, k.at, false, err
}

// Reports is how many came, and how many of them were none; those that were too long are
// in the first number alone.
func (k *Keeper[T]) Reports() (all, none int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reports, k.skipped
}

// silence says that there was no report for some time; k.mu is held.
func (k *Keeper[T]) silence(lasts time.Duration) error {
	text := fmt.Sprintf("no report for %s (its period is %s): nothing is emitted until there is one", lasts.Round(time.Second), k.program.Period)
	if k.skipped > 0 {
		text += fmt.Sprintf("; %d of its %d lines were no reports", k.skipped, k.reports)
	}
	return errors.New(text)
}

// isFresh tells whether the newest report is of now; k.mu is held.
func (k *Keeper[T]) isFresh(now time.Time) bool {
	return k.known && now.Sub(k.at) <= k.StaleAfter
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Stop ends the program, without waiting for that, and forgets what it reported.
func (k *Keeper[T]) Stop() {
	if k.stop != nil {
		k.stop()
		k.stop = nil
	}
	k.forget()
}

// forget drops the report of a program that was stopped, which may come after that, too.
func (k *Keeper[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.trouble = false, nil
}

// Close ends the program and waits for that. It ends by itself if that takes longer than
// ctx.
func (k *Keeper[T]) Close(ctx context.Context) error {
	if k.done == nil {
		return nil
	}
	if k.stop != nil {
		k.stop()
		k.stop = nil
	}
	select {
	case <-k.done:
		k.done = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: waiting for it to end: %w", k.program.Name, context.Cause(ctx))
	}
}

// Fault is the trouble of a source. It is logged anew when its cause changes, not when its
// text does.
func Fault(source, cause string, err error) error {
	return &scrapers.SourceError{Source: source, Err: scrapers.NewFault(cause, err)}
}
