// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package guard is the one place for calls that can block or hang, for child
// processes and for byte limits.
//
//   - [Call] and [Go] bound a call that may never come back (statfs on a dead mount, a
//     vendor library, a file of a hung driver) and leave at most one behind.
//   - [Run] bounds a program: its time, its output, its children, its environment;
//     [Stream] is for one that runs for long, [Lines] for what it prints, [Restarts] for
//     when it ends.
//   - [ReadFile], [ReadInto] and [LimitReader] bound the bytes of a reading.
package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// ErrHung says that an earlier call through the same Slot (or an earlier run of
// the same program) was given up and has not come back yet.
var ErrHung = errors.New("an earlier call has not come back yet")

// maxStack bounds the stack kept of a panic.
const maxStack = 8 << 10

// Slot runs calls that may block for ever, one at a time. The zero value is
// ready; every source has its own. It must not be copied after first use.
type Slot struct {
	mu     sync.Mutex
	busy   bool          // a call is in flight
	ticket uint64        // number of the call in flight; calls that came back have lower ones
	left   time.Time     // when the call in flight was given up; zero while somebody waits for it
	turn   chan struct{} // closed when the above changes; there only while somebody waits for that
}

// PanicError is what a panic in a guarded call becomes.
type PanicError struct {
	Value any
	Stack []byte
}

// Error holds the stack too: without it a panic in a vendor's binding cannot be found.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

type outcome[T any] struct {
	val T
	err error
}

// Call runs fn in a goroutine of its own and returns its result, or ctx's cause
// when ctx ends first. The call is then left behind; until it comes back every
// further Call returns an error wrapping ErrHung at once. A call in flight that
// was not given up yet is waited for (bounded by ctx). A result that is there
// when ctx ends is preferred. fn does not start when ctx is done already.
//
// Because fn may outlive Call, it must own what it touches: hand a buffer for
// reuse in, take it back as part of the result, and drop it when Call fails.
func Call[T any](ctx context.Context, s *Slot, fn func(context.Context) (T, error)) (T, error) {
	return Go(ctx, s, fn).Wait()
}

// Hung says whether a call was left behind and has not come back.
func (s *Slot) Hung() bool { return s.HungFor() > 0 }

// HungFor returns how long ago the call that has not come back was given up, 0
// when there is none.
func (s *Slot) HungFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hungFor()
}

// Settle waits until no call is in flight, one that was left behind included,
// and tells whether that came before ctx ended.
func (s *Slot) Settle(ctx context.Context) bool {
	for {
		s.mu.Lock()
		if !s.busy {
			s.mu.Unlock()
			return true
		}
		turn := s.nextTurn()
		s.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return false
		}
	}
}

// perform runs fn, frees the slot and only then delivers, so that a caller with
// a result in its hands never finds the slot occupied by the call that gave it.
func perform[T any](ctx context.Context, s *Slot, fn func(context.Context) (T, error), done chan<- outcome[T]) {
	var o outcome[T]
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit, which recovers as nil
			o.err = newPanicError(recover())
		}
		s.release()
		done <- o
	}()
	o.val, o.err = fn(ctx)
	returned = true
}

func newPanicError(value any) *PanicError {
	if value == nil {
		value = "the call ended its goroutine"
	}
	stack := make([]byte, maxStack)
	return &PanicError{Value: value, Stack: stack[:runtime.Stack(stack, false)]}
}

// enter takes the slot for one call, waiting for the call in flight if need be.
func (s *Slot) enter(ctx context.Context, start time.Time) (uint64, error) {
	for {
		ended := ctx.Err() != nil
		s.mu.Lock()
		if d := s.hungFor(); d > 0 {
			s.mu.Unlock()
			return 0, fmt.Errorf("%w (given up %s ago)", ErrHung, short(d))
		}
		if ended {
			s.mu.Unlock()
			return 0, gaveUp(ctx, start)
		}
		if !s.busy {
			s.busy = true
			ticket := s.ticket
			s.mu.Unlock()
			return ticket, nil
		}
		turn := s.nextTurn()
		s.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
		}
	}
}

// leave marks the call of ticket as left behind, unless it came back already.
func (s *Slot) leave(ticket uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ticket != ticket {
		return false
	}
	s.left = time.Now()
	s.wake()
	return true
}

// release frees the slot after a call that came back, in time or not.
func (s *Slot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	s.ticket++
	s.left = time.Time{}
	s.wake()
}

// nextTurn returns what is closed when the slot's state changes; s.mu is held.
func (s *Slot) nextTurn() <-chan struct{} {
	if s.turn == nil {
		s.turn = make(chan struct{})
	}
	return s.turn
}

// wake lets those who wait for a turn look again; s.mu is held.
func (s *Slot) wake() {
	if s.turn != nil {
		close(s.turn)
		s.turn = nil
	}
}

// hungFor is HungFor with s.mu held.
func (s *Slot) hungFor() time.Duration {
	if s.left.IsZero() {
		return 0
	}
	return max(time.Since(s.left), 1) // a coarse clock must not make it look healthy
}

// gaveUp says how long was waited, and why no longer.
func gaveUp(ctx context.Context, start time.Time) error {
	waited, err, cause := short(time.Since(start)), ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("gave up after %s: %w", waited, cause)
	}
	return fmt.Errorf("gave up after %s: %w: %w", waited, err, cause)
}

// short cuts the digits that nobody reads.
func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
