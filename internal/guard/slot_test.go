// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func seven(context.Context) (int, error) { return 7, nil }

// blockOn returns a call that ignores its context, as a system call does.
func blockOn(release <-chan struct{}) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		<-release
		return 1, nil
	}
}

func TestCallReturnsWhatTheFunctionReturns(t *testing.T) {
	var s Slot
	got, err := Call(t.Context(), &s, seven)
	require.NoError(t, err)
	assert.Equal(t, 7, got)

	cause := errors.New("no such device")
	got, err = Call(t.Context(), &s, func(context.Context) (int, error) { return 3, cause })
	assert.Equal(t, cause, err)
	assert.Equal(t, 3, got)
	assert.False(t, s.Hung())
}

func TestCallHandsItsContextOn(t *testing.T) {
	type key struct{}
	var s Slot
	got, err := Call(context.WithValue(t.Context(), key{}, "v"), &s, func(ctx context.Context) (any, error) {
		return ctx.Value(key{}), nil
	})
	require.NoError(t, err)
	assert.Equal(t, "v", got)
}

func TestHungCallIsLeftBehindAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slot
		release := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), 1234*time.Millisecond)
		defer cancel()

		got, err := Call(ctx, &s, blockOn(release))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrHung)
		require.EqualError(t, err, "gave up after 1.2s: context deadline exceeded")
		assert.Zero(t, got)
		assert.True(t, s.Hung())

		time.Sleep(3 * time.Second)
		assert.Equal(t, 3*time.Second, s.HungFor())
		_, err = Call(t.Context(), &s, seven)
		require.ErrorIs(t, err, ErrHung)
		require.EqualError(t, err, "an earlier call has not come back yet (given up 3s ago)")

		close(release)
		synctest.Wait()
		assert.False(t, s.Hung())
		assert.Zero(t, s.HungFor())
		got, err = Call(t.Context(), &s, seven)
		require.NoError(t, err)
		assert.Equal(t, 7, got)
	})
}

func TestHungForIsNeverZeroWhileHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		var s Slot
		release := make(chan struct{})
		defer close(release)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Call(ctx, &s, blockOn(release))
		require.Error(t, err)
		assert.Positive(t, s.HungFor())
		assert.True(t, s.Hung())
	})
}

func TestCallNamesTheCause(t *testing.T) {
	var s Slot
	cause := errors.New("the receiver is shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	defer close(release)
	_, err := Call(ctx, &s, func(context.Context) (int, error) {
		cancel(cause)
		<-release
		return 1, nil
	})
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "gave up after")
}

func TestCallDoesNotStartWhenContextIsDone(t *testing.T) {
	var s Slot
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Call(ctx, &s, func(context.Context) (int, error) {
		t.Error("started")
		return 0, nil
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.False(t, s.Hung())
}

func TestCallInFlightIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slot
		release := make(chan struct{})
		first := make(chan error)
		go func() {
			_, err := Call(t.Context(), &s, blockOn(release))
			first <- err
		}()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Call(ctx, &s, func(context.Context) (int, error) {
			t.Error("started next to another call")
			return 0, nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, s.Hung(), "the first caller still waits")

		second := make(chan int)
		go func() {
			got, err := Call(t.Context(), &s, seven)
			assert.NoError(t, err)
			second <- got
		}()
		synctest.Wait()
		close(release)
		require.NoError(t, <-first)
		assert.Equal(t, 7, <-second)
	})
}

func TestWaitingCallLearnsAtOnceThatTheOtherHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Slot
		release := make(chan struct{})
		defer close(release)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			_, err := Call(ctx, &s, blockOn(release))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}()
		synctest.Wait()
		start := time.Now()
		_, err := Call(t.Context(), &s, seven)
		require.ErrorIs(t, err, ErrHung)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestOnlyOneIsLeftBehindUnderConcurrentCallers(t *testing.T) {
	var s Slot
	release := make(chan struct{})
	var started, running, most atomic.Int32
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := Call(ctx, &s, func(context.Context) (int, error) {
				started.Add(1)
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-release
				return 0, nil
			})
			assert.Error(t, err)
		})
	}
	callers.Wait()
	assert.EqualValues(t, 1, started.Load())
	assert.EqualValues(t, 1, most.Load())
	assert.True(t, s.Hung())

	close(release)
	require.Eventually(t, func() bool { return !s.Hung() }, 10*time.Second, time.Millisecond)
	_, err := Call(t.Context(), &s, seven)
	require.NoError(t, err)
}

func TestCallsRunOneAtATime(t *testing.T) {
	var s Slot
	var callers sync.WaitGroup
	calls := 0 // unguarded: the race detector watches
	for range 8 {
		callers.Go(func() {
			for range 100 {
				_, err := Call(t.Context(), &s, func(context.Context) (int, error) {
					calls++
					return calls, nil
				})
				assert.NoError(t, err)
			}
		})
	}
	callers.Wait()
	assert.Equal(t, 800, calls)
}

func TestPanicBecomesAnError(t *testing.T) {
	cause := errors.New("index out of range")
	tests := []struct {
		name string
		fn   func(context.Context) (int, error)
		text string
	}{
		{name: "value", fn: func(context.Context) (int, error) { panic("boom") }, text: "panic: boom\n"},
		{name: "error", fn: func(context.Context) (int, error) { panic(cause) }, text: "panic: index out of range\n"},
		{name: "nil", fn: func(context.Context) (int, error) { panic(nil) }, text: "panic called with nil argument"}, //nolint:govet // on purpose
		{name: "goexit", fn: func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, text: "ended its goroutine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s Slot
			_, err := Call(t.Context(), &s, tt.fn)
			require.ErrorContains(t, err, tt.text)
			require.ErrorContains(t, err, "TestPanicBecomesAnError", "the stack shows where")
			assert.Equal(t, tt.name == "error", errors.Is(err, cause))

			_, err = Call(t.Context(), &s, seven)
			require.NoError(t, err, "the slot is free again")
		})
	}
}

func TestPanicOfACallLeftBehindIsHarmless(t *testing.T) {
	var s Slot
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Call(ctx, &s, func(context.Context) (int, error) {
		cancel()
		<-release
		panic("late")
	})
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	require.Eventually(t, func() bool { return !s.Hung() }, 10*time.Second, time.Millisecond)
}

// endsOnceFree is a context that ends in the instant in which the call came back.
type endsOnceFree struct {
	context.Context
	slot *Slot
}

func (c endsOnceFree) Done() <-chan struct{} {
	for {
		c.slot.mu.Lock()
		busy := c.slot.busy
		c.slot.mu.Unlock()
		if !busy {
			done := make(chan struct{})
			close(done)
			return done
		}
		runtime.Gosched()
	}
}

func TestResultThatIsThereIsPreferred(t *testing.T) {
	var s Slot
	for range 500 {
		got, err := Call(endsOnceFree{t.Context(), &s}, &s, seven)
		require.NoError(t, err)
		require.Equal(t, 7, got)
	}
}

func TestEndOfContextRacesWithTheResult(t *testing.T) {
	var s Slot
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		got, err := Call(ctx, &s, func(context.Context) (int, error) {
			cancel()
			return 7, nil
		})
		if err == nil {
			require.Equal(t, 7, got)
			require.False(t, s.Hung())
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, got)
		for s.Hung() {
			runtime.Gosched()
		}
	}
}

func BenchmarkCall(b *testing.B) {
	var s Slot
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Call(ctx, &s, seven); err != nil {
			b.Fatal(err)
		}
	}
}
