// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"time"
)

// Pending is a call in flight, see [Go].
type Pending[T any] struct {
	ctx    context.Context
	slot   *Slot
	start  time.Time
	ticket uint64
	done   chan outcome[T]
	err    error // why the call did not start
}

// Go starts what [Call] does and returns at once, so that several sources can
// run side by side. Every Pending must be waited for, by one goroutine.
func Go[T any](ctx context.Context, s *Slot, fn func(context.Context) (T, error)) *Pending[T] {
	p := &Pending[T]{ctx: ctx, slot: s, start: time.Now()}
	if p.ticket, p.err = s.enter(ctx, p.start); p.err != nil {
		return p
	}
	p.done = make(chan outcome[T], 1) // buffered: nobody may be there to take the result
	go perform(ctx, s, fn, p.done)
	return p
}

// Wait returns what [Call] would.
func (p *Pending[T]) Wait() (T, error) { return p.wait(0) }

// wait is Wait with a time that the call gets, once the context has ended, to
// clean up and come back by itself before it counts as hung.
func (p *Pending[T]) wait(grace time.Duration) (T, error) {
	var none T
	if p.err != nil {
		return none, p.err
	}
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
	if p.slot.leave(p.ticket) {
		return none, gaveUp(p.ctx, p.start)
	}
	o := <-p.done // it came back in the same instant: its result is there, or about to be
	return o.val, o.err
}
