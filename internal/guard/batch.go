// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"sync"
	"time"
)

// patience is how long a call of a batch may keep the next ones waiting.
const patience = 20 * time.Millisecond

// timers are stopped ones: a batch needs one for microseconds, as a rule.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// Batch runs calls that are quick as a rule one after the other in a single
// goroutine, which costs a fraction of one goroutine each. A call that takes
// longer than that (see patience) does not keep the others waiting: they go on
// in another goroutine.
type Batch struct {
	ctx  context.Context
	jobs []job

	mu   sync.Mutex
	next int // the first job that nobody took yet
	left int // jobs that have not come back
	done chan struct{}
}

// job is a Pending of any type.
type job interface {
	begin() bool
	run()
}

// NewBatch returns an empty batch whose calls end with ctx.
func NewBatch(ctx context.Context) *Batch { return &Batch{ctx: ctx} }

// Add puts a call into the batch. Its result is there after [Batch.Run].
func Add[T any](b *Batch, s *Slot, fn func(context.Context) (T, error)) *Pending[T] {
	p := newPending(b.ctx, s, fn)
	b.jobs = append(b.jobs, p)
	return p
}

// Run makes the calls, and returns when all came back or the context ended.
func (b *Batch) Run() {
	if len(b.jobs) == 0 {
		return
	}
	b.left, b.done = len(b.jobs), make(chan struct{})
	timer := timers.Get().(*time.Timer)
	timer.Reset(patience)
	defer func() {
		timer.Stop()
		timers.Put(timer)
	}()
	go b.work()
	for taken := 1; ; { // the worker takes the first at once
		select {
		case <-b.done:
			return
		case <-b.ctx.Done():
			return
		case <-timer.C:
			taken = b.relieve(taken)
			timer.Reset(patience)
		}
	}
}

// relieve starts another worker when none took a job since the last look,
// and returns how many were taken.
func (b *Batch) relieve(taken int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == taken && b.next < len(b.jobs) {
		go b.work()
		return b.next + 1 // it takes one at once
	}
	return b.next
}

// work makes one call after the other until none is left.
func (b *Batch) work() {
	for {
		j := b.take()
		if j == nil {
			return
		}
		if j.begin() {
			j.run()
		}
		b.finish()
	}
}

func (b *Batch) take() job {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == len(b.jobs) {
		return nil
	}
	b.next++
	return b.jobs[b.next-1]
}

func (b *Batch) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left--; b.left == 0 {
		close(b.done)
	}
}
