// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"sync"
	"time"
)

// Pending is a call in flight or about to be, see [Go] and [Add].
type Pending[T any] struct {
	ctx   context.Context
	slot  *Slot
	start time.Time
	fn    func(context.Context) (T, error)
	done  chan outcome[T] // buffered: nobody may be there to take the result

	mu        sync.Mutex
	running   bool   // fn was started, under ticket
	cancelled bool   // fn must not start any more
	ticket    uint64 // see Slot
}

func newPending[T any](ctx context.Context, s *Slot, fn func(context.Context) (T, error)) *Pending[T] {
	return &Pending[T]{ctx: ctx, slot: s, start: time.Now(), fn: fn, done: make(chan outcome[T], 1)}
}

// Go starts what [Call] does and returns at once. Every Pending must be waited
// for, by one goroutine.
func Go[T any](ctx context.Context, s *Slot, fn func(context.Context) (T, error)) *Pending[T] {
	p := newPending(ctx, s, fn)
	if p.begin() {
		go p.run()
	}
	return p
}

// Wait returns what [Call] would.
func (p *Pending[T]) Wait() (T, error) { return p.wait(0) }

// begin takes the slot. It returns false when fn must not run: the slot is
// taken for good, or nobody waits any more.
func (p *Pending[T]) begin() bool {
	ticket, err := p.slot.enter(p.ctx, p.start)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.done <- outcome[T]{err: err}
		return false
	case p.cancelled:
		p.slot.release()
		return false
	}
	p.ticket, p.running = ticket, true
	return true
}

func (p *Pending[T]) run() { perform(p.ctx, p.slot, p.fn, p.done) }

// wait is Wait with a time that the call gets, once the context has ended, to
// clean up and come back by itself before it counts as hung.
func (p *Pending[T]) wait(grace time.Duration) (T, error) {
	select {
	case o := <-p.done:
		return o.val, o.err
	case <-p.ctx.Done():
	}
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case o := <-p.done:
			return o.val, o.err
		case <-timer.C:
		}
	}
	if p.leave() {
		var none T
		return none, gaveUp(p.ctx, p.start)
	}
	o := <-p.done // it came back in the same instant: its result is there, or about to be
	return o.val, o.err
}

// leave gives the call up. It returns false when there is a result to take.
func (p *Pending[T]) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		p.cancelled = true
		return len(p.done) == 0
	}
	return p.slot.leave(p.ticket)
}
