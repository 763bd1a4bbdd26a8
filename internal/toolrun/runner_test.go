// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package toolrun

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const (
	// tooLong catches hangs; nothing here takes near as long.
	tooLong = 30 * time.Second
	never   = time.Hour
)

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), tooLong)
	t.Cleanup(cancel)
	return ctx
}

// over is the context of a scrape that has no time to wait.
func over(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// counted is a Runner and how many runs there were; a run ends when it is let go.
type counted struct {
	*Runner[int]
	t     *testing.T
	runs  atomic.Int64
	letGo chan struct{}
	now   atomic.Int64
}

func newCounted(t *testing.T, maxAge time.Duration) *counted {
	t.Helper()
	c := &counted{Runner: NewRunner[int](never, maxAge), t: t, letGo: make(chan struct{}, 1)}
	c.Now = func() time.Time { return time.Unix(c.now.Load(), 0) }
	t.Cleanup(func() { require.NoError(t, c.Close(bounded(t))) })
	return c
}

func (c *counted) take(ctx context.Context) (Answer[int], bool) {
	return c.Take(ctx, func(ctx context.Context) (int, error) {
		n := int(c.runs.Add(1))
		select {
		case <-c.letGo:
			return n, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}

func (c *counted) arrive() {
	c.t.Helper()
	c.letGo <- struct{}{}
	require.Eventually(c.t, c.Arrived, tooLong, time.Millisecond)
}

func TestAnswerComesWithALaterScrape(t *testing.T) {
	c := newCounted(t, 0)
	for range 3 {
		_, ok := c.take(over(t))
		require.False(t, ok)
	}
	c.now.Store(100)
	c.arrive()
	c.now.Store(1000)
	a, ok := c.take(over(t))
	require.True(t, ok, "what is there counts, be the time over")
	assert.Equal(t, Answer[int]{At: time.Unix(100, 0), Value: 1}, a)
	assert.Equal(t, int64(1), c.runs.Load())
}

func TestAnswerThatIsTooOldIsNotTaken(t *testing.T) {
	c := newCounted(t, time.Minute)
	_, _ = c.take(over(t))
	c.arrive()
	c.now.Store(61)
	c.letGo <- struct{}{}
	a, ok := c.take(bounded(t))
	require.True(t, ok)
	assert.Equal(t, Answer[int]{At: time.Unix(61, 0), Value: 2}, a)
}

func TestAnswerIsDropped(t *testing.T) {
	c := newCounted(t, 0)
	assert.False(t, c.Drop(), "nothing was run")
	_, _ = c.take(over(t))
	assert.False(t, c.Drop(), "it goes on")
	c.arrive()
	assert.True(t, c.Drop())
	assert.False(t, c.Drop())
	c.letGo <- struct{}{}
	a, _ := c.take(bounded(t))
	assert.Equal(t, 2, a.Value)
}

func TestRunHasItsTime(t *testing.T) {
	c := newCounted(t, 0)
	c.Timeout = time.Millisecond
	a, ok := c.take(bounded(t))
	require.True(t, ok)
	require.ErrorIs(t, a.Err, context.DeadlineExceeded)
}

func TestClosingEndsTheRun(t *testing.T) {
	c := newCounted(t, 0)
	c.Timeout = 0
	_, _ = c.take(over(t))
	require.NoError(t, c.Close(bounded(t)))
	require.NoError(t, c.Close(bounded(t)), "once more")
}

// A run that does not end when it should does not hold up the end.
func TestClosingHasItsTime(t *testing.T) {
	r := NewRunner[int](never, 0)
	letGo := make(chan struct{})
	_, ok := r.Take(over(t), func(context.Context) (int, error) { <-letGo; return 0, nil })
	require.False(t, ok)
	require.ErrorIs(t, r.Close(over(t)), context.Canceled)
	close(letGo)
	require.NoError(t, r.Close(bounded(t)))
}

func TestErrorsAndPanicsAreAnswers(t *testing.T) {
	r := NewRunner[int](never, 0)
	broken := errors.New("broken")
	a, ok := r.Take(bounded(t), func(context.Context) (int, error) { return 7, broken })
	require.True(t, ok)
	require.ErrorIs(t, a.Err, broken)
	a, ok = r.Take(bounded(t), func(context.Context) (int, error) { panic("no device") })
	require.True(t, ok)
	var panicked *guard.PanicError
	require.ErrorAs(t, a.Err, &panicked)
	require.NoError(t, r.Close(bounded(t)))
}
