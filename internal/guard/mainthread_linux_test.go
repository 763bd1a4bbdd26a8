// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A call that hangs on the main thread would take the process' signals with it.
func TestNoGuardedCallIsOnTheMainThread(t *testing.T) {
	const calls = 200
	slots := make([]Slot, calls)
	pending := make([]*Pending[int], calls)
	for i := range slots {
		pending[i] = Go(t.Context(), &slots[i], func(context.Context) (int, error) {
			// Sleeping in the kernel makes the runtime use all its threads.
			pause := unix.NsecToTimespec(int64(5 * time.Millisecond))
			_ = unix.Nanosleep(&pause, nil)
			return unix.Gettid(), nil
		})
	}
	for _, p := range pending {
		thread, err := p.Wait()
		require.NoError(t, err)
		require.NotEqual(t, unix.Getpid(), thread)
	}
}
