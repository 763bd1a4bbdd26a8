// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBatchReturnsEachResult(t *testing.T) {
	var a, b Slot
	batch := NewBatch(t.Context())
	number := Add(batch, &a, func(context.Context) (int, error) { return 7, nil })
	text := Add(batch, &b, func(context.Context) (string, error) { return "x", assert.AnError })
	batch.Run()
	n, err := number.Wait()
	require.NoError(t, err)
	assert.Equal(t, 7, n)
	s, err := text.Wait()
	require.ErrorIs(t, err, assert.AnError)
	assert.Equal(t, "x", s)
}

func TestBatchGoesOnWithoutACallThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	release := make(chan struct{})
	slots := make([]Slot, 5)
	batch := NewBatch(ctx)
	var pending []*Pending[int]
	for i := range slots {
		pending = append(pending, Add(batch, &slots[i], func(context.Context) (int, error) {
			if i == 0 || i == 2 { // the first, and one that a relief worker meets
				<-release
			}
			return i, nil
		}))
	}
	batch.Run()
	for i, p := range pending {
		v, err := p.Wait()
		if i == 0 || i == 2 {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, slots[i].Hung())
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, i, v)
	}
	close(release)
	for i := range slots {
		assert.True(t, slots[i].Settle(t.Context()))
	}
}

func TestBatchDoesNotWaitForASlotThatHangs(t *testing.T) {
	var s, other Slot
	release := make(chan struct{})
	defer func() {
		close(release)
		s.Settle(t.Context())
	}()
	hang(t, &s, release)

	batch := NewBatch(t.Context()) // no deadline: only ErrHung lets it return
	stuck := Add(batch, &s, func(context.Context) (int, error) { return 1, nil })
	fine := Add(batch, &other, func(context.Context) (int, error) { return 2, nil })
	batch.Run()
	_, err := stuck.Wait()
	require.ErrorIs(t, err, ErrHung)
	v, err := fine.Wait()
	require.NoError(t, err)
	assert.Equal(t, 2, v)
}

func TestBatchWhoseContextEndedStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var s Slot
	batch := NewBatch(ctx)
	started := make(chan struct{}, 1)
	p := Add(batch, &s, func(context.Context) (int, error) {
		started <- struct{}{}
		return 0, nil
	})
	batch.Run()
	_, err := p.Wait()
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, s.Settle(t.Context()))
	assert.Empty(t, started)
}

func TestEmptyBatch(*testing.T) { NewBatch(context.Background()).Run() }

// hang leaves a call behind in s that comes back when release is closed.
func hang(t *testing.T, s *Slot, release <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan struct{})
	go func() {
		<-cancelled
		cancel()
	}()
	_, err := Call(ctx, s, func(context.Context) (int, error) {
		close(cancelled)
		<-release
		return 0, nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			slots := make([]Slot, n)
			b.ReportAllocs()
			for b.Loop() {
				batch := NewBatch(b.Context())
				for i := range slots {
					Add(batch, &slots[i], func(context.Context) (int, error) { return i, nil })
				}
				batch.Run()
			}
		})
	}
}
