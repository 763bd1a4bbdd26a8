// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package toolrun is what the families that run vendors' tools have in common: a run
// that may take longer than a scrape, what runs cost, and where programs are.
package toolrun

import (
	"context"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// Runner runs a tool apart from the scrapes: one that takes longer than a scrape goes
// on, and its answer comes with a later one. Two never run at a time. It is used by one
// goroutine at a time.
type Runner[T any] struct {
	// Timeout is how long a run may take; 0 leaves that to the run.
	Timeout time.Duration
	// MaxAge is how old the answer of an earlier scrape's run may be; 0 is any age.
	MaxAge time.Duration
	// Now is the clock.
	Now func() time.Time

	// life ends the run in progress.
	life context.Context
	end  context.CancelFunc
	// running gives the answer of the run in progress; nil when there is none.
	running chan Answer[T]
}

// Run is one run of a tool. It returns soon after its context ends.
type Run[T any] func(context.Context) (T, error)

// Answer is what a run gave.
type Answer[T any] struct {
	// At is when the run ended.
	At    time.Time
	Value T
	// Err is the run's, or that of its panic.
	Err error
}

// NewRunner returns a Runner that runs nothing yet.
func NewRunner[T any](timeout, maxAge time.Duration) *Runner[T] {
	r := &Runner[T]{Timeout: timeout, MaxAge: maxAge, Now: time.Now}
	r.life, r.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return r
}

// Take returns the answer of the run in progress, which it starts where there is
// none. It tells that there is none yet when ctx ends before the run does.
func (r *Runner[T]) Take(ctx context.Context, run Run[T]) (Answer[T], bool) {
	isOlder := r.running != nil
	if !isOlder {
		r.start(run) //nolint:contextcheck // it may outlive the scrape
	}
	done := ctx.Done()
	if r.Arrived() { // an answer that is there counts, be the time over
		done = nil
	}
	select {
	case a := <-r.running:
		r.running = nil
		if isOlder && r.MaxAge > 0 && r.Now().Sub(a.At) > r.MaxAge { // nobody asked meanwhile
			return r.Take(ctx, run)
		}
		return a, true
	case <-done:
		return Answer[T]{}, false
	}
}

// Arrived tells whether an answer waits to be taken.
func (r *Runner[T]) Arrived() bool { return len(r.running) > 0 }

// Drop takes an answer that has arrived away, and tells whether there was one. A run in
// progress goes on.
func (r *Runner[T]) Drop() bool {
	if !r.Arrived() {
		return false
	}
	<-r.running
	r.running = nil
	return true
}

func (r *Runner[T]) start(run Run[T]) {
	running := make(chan Answer[T], 1)
	r.running = running
	go func() {
		ctx, cancel := r.life, context.CancelFunc(func() {})
		if r.Timeout > 0 {
			ctx, cancel = context.WithTimeout(r.life, r.Timeout)
		}
		defer cancel()
		// It is waited for, since it ends soon after ctx does: what the guard is for is
		// a panic.
		value, err := guard.Call(context.WithoutCancel(ctx), new(guard.Slot), func(context.Context) (T, error) { return run(ctx) })
		running <- Answer[T]{r.Now(), value, err}
	}()
}

// Close ends the run in progress and waits for that until ctx ends.
func (r *Runner[T]) Close(ctx context.Context) error {
	r.end()
	if r.running == nil {
		return nil
	}
	select {
	case <-r.running:
		r.running = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
