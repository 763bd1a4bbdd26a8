// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package keeper

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// tooLong catches hangs; nothing here takes near as long.
const tooLong = 20 * time.Second

// rig keeps a shell running whose reports are numbers.
type rig struct {
	*Keeper[int]

	t    *testing.T
	logs *observer.ObservedLogs

	mu    sync.Mutex
	taken []int
	ended int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	r := &rig{t: t, logs: logs}
	r.Keeper = New(Program[int]{
		Name: "counter", Period: time.Second, FirstReport: tooLong, MaxReport: 10,
		Cut: func(report func([]byte), tooLong func()) io.Writer {
			return &guard.Lines{Max: 10, Line: report, TooLong: tooLong}
		},
		Parse: func(line []byte) (int, error) { return strconv.Atoi(string(line)) },
		Taken: func(n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.taken = append(r.taken, n)
		},
		Logger: zap.New(core),
	})
	r.Pause = func(time.Duration, bool) time.Duration { return 10 * time.Millisecond }
	t.Cleanup(func() { require.NoError(t, r.Close(context.Background())) })
	return r
}

// run keeps a script running.
func (r *rig) run(script string) {
	r.Keep(func() (guard.Command, func(), error) {
		return guard.Command{Path: "/bin/sh", Args: []string{"-c", script}}, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended++
		}, nil
	})
}

func (r *rig) eventually(is func() bool) {
	r.t.Helper()
	require.Eventually(r.t, is, tooLong, 5*time.Millisecond)
}

func (r *rig) all() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int{}, r.taken...)
}

// requireFault wants an error of the program, and its cause.
func requireFault(t *testing.T, err error, cause, text string) {
	t.Helper()
	var failed *scrapers.SourceError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "counter", failed.Source)
	var f interface{ Cause() string }
	require.ErrorAs(t, err, &f)
	assert.Equal(t, cause, f.Cause())
	assert.ErrorContains(t, err, text)
}

func TestTheNewestReport(t *testing.T) {
	r := newRig(t)
	assert.False(t, r.Running(t.Context()))
	r.run("echo 1; echo x; echo 12345678901; echo 2; exec sleep 1000")
	r.Await(t.Context())
	r.eventually(func() bool { all, _ := r.Reports(); return all == 4 })
	n, at, fresh, err := r.Latest()
	require.NoError(t, err)
	assert.True(t, fresh)
	assert.Equal(t, 2, n)
	assert.WithinDuration(t, time.Now(), at, tooLong)
	assert.Equal(t, []int{1, 2}, r.all())
	_, none := r.Reports()
	assert.Equal(t, 1, none)
	assert.Equal(t, 1, r.logs.FilterMessage("Skipped a line of counter; others like it are not logged").Len())
	assert.Equal(t, 1, r.logs.FilterMessageSnippet("too long").Len())
	assert.True(t, r.Running(t.Context()))
}

func TestProgramThatEndsIsStartedAgain(t *testing.T) {
	r := newRig(t)
	r.run("echo 7; echo sorry >&2; exit 3")
	r.eventually(func() bool { return len(r.all()) >= 3 })
	n, _, fresh, err := r.Latest()
	require.NoError(t, err, "the last report is of now")
	assert.True(t, fresh)
	assert.Equal(t, 7, n)
	r.eventually(func() bool { return r.logs.FilterMessage("counter ended").Len() >= 2 })
	first := r.logs.FilterMessage("counter ended").All()[:2]
	assert.Equal(t, zap.WarnLevel, first[0].Level)
	assert.Equal(t, zap.DebugLevel, first[1].Level, "again and again is no news")
	assert.Contains(t, first[0].ContextMap()["error"], `exited with 3`)
	assert.Contains(t, first[0].ContextMap()["error"], `it said: "sorry"`)
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	r := newRig(t)
	r.Pause = func(time.Duration, bool) time.Duration { return time.Hour }
	r.Keep(func() (guard.Command, func(), error) { return guard.Command{}, nil, errors.New("no folder") })
	r.Await(t.Context())
	_, _, fresh, err := r.Latest()
	assert.False(t, fresh)
	requireFault(t, err, "ended", "no folder; it is started again after 1h0m0s")
}

func TestReportsGrowOld(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	r.Clock = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	r.run("echo 1; echo x; exec sleep 1000")
	r.eventually(func() bool { all, _ := r.Reports(); return all == 2 })
	mu.Lock()
	now = now.Add(r.StaleAfter + time.Second)
	mu.Unlock()
	_, _, fresh, err := r.Latest()
	assert.False(t, fresh)
	requireFault(t, err, "stale", "no report for 11s (its period is 1s): nothing is emitted until there is one; 1 of its 2 lines were no reports")
}

func TestProgramThatFallsSilentIsStartedAgain(t *testing.T) {
	r := newRig(t)
	r.SilentAfter = time.Second
	r.run("echo 1; exec sleep 1000")
	r.eventually(func() bool { return len(r.all()) >= 2 })
	r.eventually(func() bool { return r.logs.FilterMessage("counter ended").Len() >= 1 })
	assert.Contains(t, r.logs.FilterMessage("counter ended").All()[0].ContextMap()["error"], "no report for 1s: it was stopped")
}

func TestStopForgets(t *testing.T) {
	r := newRig(t)
	r.run("echo 1; exec sleep 1000")
	r.Await(t.Context())
	r.Stop()
	_, _, fresh, err := r.Latest()
	require.NoError(t, err)
	assert.False(t, fresh)
	r.eventually(func() bool { return !r.Running(t.Context()) })
	assert.Equal(t, 1, r.ended)
	r.run("echo 2; exec sleep 1000")
	r.Await(t.Context())
	n, _, fresh, err := r.Latest()
	require.NoError(t, err)
	assert.True(t, fresh)
	assert.Equal(t, 2, n)
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	r := newRig(t)
	r.run("trap '' TERM; echo 1; while :; do sleep 1; done")
	r.Await(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, r.Close(ctx), "counter: waiting for it to end")
	require.NoError(t, r.Close(t.Context()), "it is killed")
	require.NoError(t, r.Close(t.Context()))
}

// A program that runs wild waits for the collector.
func TestPaceOfAFlood(t *testing.T) {
	r := newRig(t)
	start := time.Now()
	r.run("while :; do echo 1; done")
	r.eventually(func() bool { return len(r.all()) >= 20 })
	assert.LessOrEqual(t, len(r.all()), int(time.Since(start)/MinPause)+1)
}

func TestAReportThatComesAfterTheStopIsForgotten(t *testing.T) {
	r := newRig(t)
	r.run("echo 1; exec sleep 1000")
	r.Await(t.Context())
	r.Stop()
	r.eventually(func() bool { return !r.Running(t.Context()) })
	require.True(t, r.take([]byte("2")), "it ends with a last word")
	r.run("exec sleep 1000")
	_, _, fresh, err := r.Latest()
	require.NoError(t, err)
	assert.False(t, fresh)
}
