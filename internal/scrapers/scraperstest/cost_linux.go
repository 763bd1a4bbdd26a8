// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package scraperstest

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Cost is what doing something once takes.
type Cost struct {
	CPU    time.Duration
	Allocs float64
}

// CostOf measures the whole process, the collection of garbage included.
func CostOf(tb testing.TB, times int, do func()) Cost {
	tb.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := ProcessorTime(tb)
	for range times {
		do()
	}
	runtime.GC()
	used := ProcessorTime(tb) - start
	runtime.ReadMemStats(&after)
	return Cost{CPU: used / time.Duration(times), Allocs: float64(after.Mallocs-before.Mallocs) / float64(times)}
}

// ProcessorTime is what the process has used.
func ProcessorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
