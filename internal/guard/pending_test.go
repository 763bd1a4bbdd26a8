// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoRunsSideBySide(t *testing.T) {
	var first, second Slot
	met := make(chan struct{})
	a := Go(t.Context(), &first, func(context.Context) (int, error) {
		met <- struct{}{} // only comes back when the other one runs too
		return 1, nil
	})
	b := Go(t.Context(), &second, func(context.Context) (int, error) {
		<-met
		return 2, nil
	})
	va, errA := a.Wait()
	vb, errB := b.Wait()
	require.NoError(t, errors.Join(errA, errB))
	assert.Equal(t, []int{1, 2}, []int{va, vb})
}

func TestGoKeepsAValueBesideItsError(t *testing.T) {
	var s Slot
	fault := errors.New("one line was bad")
	v, err := Go(t.Context(), &s, func(context.Context) (string, error) { return "the others", fault }).Wait()
	require.ErrorIs(t, err, fault)
	assert.Equal(t, "the others", v)
}

func TestGoThatHangsIsLeftBehindAtItsDeadline(t *testing.T) {
	var s Slot
	release := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	p := Go(ctx, &s, func(context.Context) (int, error) {
		<-release
		return 0, nil
	})
	_, err := p.Wait()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = Go(t.Context(), &s, func(context.Context) (int, error) { return 1, nil }).Wait()
	require.ErrorIs(t, err, ErrHung)

	short, cancelShort := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelShort()
	assert.False(t, s.Settle(short), "the call has not come back")
	close(release)
	assert.True(t, s.Settle(t.Context()))
	v, err := Go(t.Context(), &s, func(context.Context) (int, error) { return 1, nil }).Wait()
	require.NoError(t, err)
	assert.Equal(t, 1, v)
}
