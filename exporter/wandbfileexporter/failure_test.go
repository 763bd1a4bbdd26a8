// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

const (
	failing = "Cannot write W&B runs; trying again"
	again   = "Writing W&B runs again"
)

// obstacles make a directory impossible, until the path that they return is removed.
var obstacles = map[string]func(t *testing.T) (directory, obstacle string){
	"a file in its place": func(t *testing.T) (string, string) {
		t.Helper()
		path := newDirectory(t)
		require.NoError(t, os.WriteFile(path, []byte("no directory"), 0o600))
		return path, path
	},
	"below a file": func(t *testing.T) (string, string) {
		t.Helper()
		path := newDirectory(t)
		require.NoError(t, os.WriteFile(path, []byte("no directory"), 0o600))
		return filepath.Join(path, "a", "b"), path
	},
	"a link to nowhere": func(t *testing.T) (string, string) {
		t.Helper()
		path := newDirectory(t)
		require.NoError(t, os.Symlink(filepath.Join(path, "loop"), path))
		return path, path
	},
}

func TestWhatCannotBeWrittenIsRefusedAndNotLost(t *testing.T) {
	for name, obstruct := range obstacles {
		t.Run(name, func(t *testing.T) {
			directory, obstacle := obstruct(t)
			set, seen := settings()
			host := newHost()
			e := startedExporter(t, set, directConfig(directory), host)
			send := func(md pmetric.Metrics) error { return e.ConsumeMetrics(t.Context(), md) }

			require.NoError(t, send(machine(0, 0, "cpu")), "is not written yet")
			require.NoError(t, send(machine(1, 1, "cpu")), "its record is the first that fails, and is kept")
			third := machine(2, 2, "cpu")
			add(third, "node1/job", 2, 2, "cpu") // of this nothing waits
			add(third, "node1", 2, 2, "disk")
			var refused consumererror.Metrics
			err := send(third)
			require.ErrorAs(t, err, &refused)
			assert.False(t, consumererror.IsPermanent(err))
			require.ErrorContains(t, err, "making the directory")
			require.Equal(t, 2, refused.Data().ResourceMetrics().Len())
			for range 3 { // again and again
				require.ErrorAs(t, send(refused.Data()), &refused)
			}
			require.NoError(t, os.Remove(obstacle))
			require.NoError(t, send(refused.Data()))
			require.NoError(t, send(machine(3, 3, "cpu")))
			require.Eventually(t, func() bool { return seen.FilterMessage(again).Len() > 0 }, patience, time.Millisecond)
			require.NoError(t, e.Shutdown(t.Context()))

			files := byRun(t, directory)
			require.Len(t, files, 2)
			assert.Equal(t, []string{"0", "1", "2", "3"}, wandbfiletest.Texts("cpu", files["node1"]))
			assert.Equal(t, []string{"2"}, wandbfiletest.Texts("disk", files["node1"]))
			assert.Equal(t, []string{"2"}, wandbfiletest.Texts("cpu", files["node1/job"]))
			assertOneChange(t, seen, host)
		})
	}
}

func assertOneChange(t *testing.T, seen *observer.ObservedLogs, host *statusHost) {
	t.Helper()
	assert.Equal(t, 1, seen.FilterMessage(failing).Len())
	assert.Equal(t, 1, seen.FilterMessage(again).Len())
	assert.Equal(t, []componentstatus.Status{componentstatus.StatusRecoverableError, componentstatus.StatusOK}, host.seen())
}

func TestTheQueueKeepsWhatIsRefused(t *testing.T) {
	directory, obstacle := obstacles["a file in its place"](t)
	cfg := directConfig(directory)
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.NumConsumers = 1
	cfg.Queue = configoptional.Some(queue)
	cfg.Retry.Enabled, cfg.Retry.InitialInterval, cfg.Retry.MaxInterval = true, time.Millisecond, 5*time.Millisecond
	set, seen := settings()
	host := newHost()
	e := startedExporter(t, set, cfg, host)
	var want []string
	for i := range 20 {
		md := machine(i, i, "cpu")
		add(md, "node1/job", i, i, "cpu")
		require.NoError(t, e.ConsumeMetrics(t.Context(), md))
		want = append(want, strconv.Itoa(i))
	}
	require.Eventually(t, func() bool { return seen.FilterMessageSnippet("Exporting failed").Len() > 3 }, patience, time.Millisecond)
	require.NoError(t, os.Remove(obstacle))
	require.Eventually(t, func() bool { return seen.FilterMessage(again).Len() > 0 }, patience, time.Millisecond)
	require.NoError(t, e.Shutdown(t.Context()))
	files := byRun(t, directory)
	assert.Equal(t, want, wandbfiletest.Texts("cpu", files["node1"]))
	assert.Equal(t, want, wandbfiletest.Texts("cpu", files["node1/job"]))
	assertOneChange(t, seen, host)
}

func TestAnEndThatCannotWriteSaysSo(t *testing.T) {
	directory, _ := obstacles["a file in its place"](t)
	set, _ := settings()
	e := startedExporter(t, set, directConfig(directory), newHost())
	require.NoError(t, e.ConsumeMetrics(t.Context(), machine(0, 0, "cpu")))
	err := e.Shutdown(t.Context())
	require.ErrorContains(t, err, "ending the runs in "+directory)
	require.ErrorContains(t, err, "making the directory")
}

func TestOneTaskThatWorksDoesNotHideAnotherThatFails(t *testing.T) {
	set, seen := settings()
	host := newHost()
	e, err := newExporter(set, directConfig(newDirectory(t)))
	require.NoError(t, err)
	e.host = host // not started, since its ticks report, too
	defer func() { require.NoError(t, e.shutdown(context.Background())) }()
	for range 3 {
		e.report(tending, errors.New("no rights"))
		e.report(writing, errors.New("no room"))
		e.report(writing, nil)
		e.report(writing, fmt.Errorf("wrapped: %w", context.Canceled))
	}
	assert.Equal(t, 1, seen.FilterMessage(failing).Len())
	assert.Zero(t, seen.FilterMessage(again).Len())
	e.report(tending, nil)
	assertOneChange(t, seen, host)
}

func TestWhatFailsIsTriedEverMoreSeldom(t *testing.T) {
	b := backoff{most: 30}
	pauses := func(failed bool, n int) (all []int) {
		for range n {
			b.tried(failed)
			pause := 0
			for ; !b.due(); pause++ {
			}
			all = append(all, pause)
		}
		return all
	}
	assert.Equal(t, []int{0, 0}, pauses(false, 2))
	assert.Equal(t, []int{1, 3, 7, 15, 30, 30}, pauses(true, 6))
	assert.Equal(t, []int{0}, pauses(false, 1))
	assert.Equal(t, []int{1}, pauses(true, 1))
}

// stalled is an exporter on a file system that does not answer while the lock is held.
func stalled(t *testing.T, directory string) (*fileExporter, *sync.Mutex, *observer.ObservedLogs, *statusHost) {
	t.Helper()
	set, seen := settings()
	host := newHost()
	cfg := directConfig(directory)
	cfg.Timeout.Timeout = 50 * time.Millisecond
	e, err := newExporter(set, cfg)
	require.NoError(t, err)
	lock := new(sync.Mutex)
	e.store.Now = func() time.Time { // is asked before a folder is made
		lock.Lock()
		defer lock.Unlock()
		return time.Now()
	}
	require.NoError(t, e.start(t.Context(), host))
	return e, lock, seen, host
}

// within consumes as exporterhelper does, for so long.
func within(e *fileExporter, patience time.Duration, md pmetric.Metrics) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return e.consume(ctx, md)
}

func TestAFileSystemThatAnswersLateLosesNothing(t *testing.T) {
	directory := newDirectory(t)
	e, lock, seen, host := stalled(t, directory)
	lock.Lock()
	require.NoError(t, within(e, patience, machine(0, 0, "cpu")), "nothing to write yet")
	require.NoError(t, within(e, 50*time.Millisecond, machine(1, 1, "cpu")), "comes back at its deadline")
	require.Eventually(t, e.slot.Hung, patience, time.Millisecond)
	var refused consumererror.Metrics
	err := within(e, patience, machine(2, 2, "cpu"))
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, guard.ErrHung)
	require.NoError(t, within(e, patience, func() pmetric.Metrics {
		md := pmetric.NewMetrics()
		add(md, "node1/job", 2, 2, "cpu")
		return md
	}()), "of others nothing waits")
	lock.Unlock()
	require.True(t, e.slot.Settle(t.Context()))
	require.NoError(t, within(e, patience, refused.Data()))
	require.Eventually(t, func() bool { return seen.FilterMessage(again).Len() > 0 }, patience, time.Millisecond)
	require.NoError(t, e.shutdown(t.Context()))

	files := byRun(t, directory)
	require.Len(t, files, 2)
	assert.Equal(t, []string{"0", "1", "2"}, wandbfiletest.Texts("cpu", files["node1"]))
	assert.Equal(t, []string{"2"}, wandbfiletest.Texts("cpu", files["node1/job"]))
	assert.NotNil(t, last(files["node1"]).Exit)
	assertOneChange(t, seen, host)
}

func TestAFileSystemThatDoesNotAnswerDoesNotHoldTheEnd(t *testing.T) {
	directory := newDirectory(t)
	e, lock, _, _ := stalled(t, directory)
	lock.Lock()
	require.NoError(t, within(e, patience, machine(0, 0, "cpu")))
	require.NoError(t, within(e, 50*time.Millisecond, machine(1, 1, "cpu")))
	require.Eventually(t, e.slot.Hung, patience, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.shutdown(ctx), guard.ErrHung)

	lock.Unlock() // what was left behind ends, which TestMain looks after
	require.True(t, e.slot.Settle(t.Context()))
	assert.Equal(t, []string{"0"}, wandbfiletest.Texts("cpu", logs(t, directory)...))
}

func TestTheEndWaitsForACallThatIsAboutToReturn(t *testing.T) {
	directory := newDirectory(t)
	e, lock, _, _ := stalled(t, directory)
	lock.Lock()
	require.NoError(t, within(e, patience, machine(0, 0, "cpu")))
	require.NoError(t, within(e, 50*time.Millisecond, machine(1, 1, "cpu")))
	time.AfterFunc(50*time.Millisecond, lock.Unlock)
	require.NoError(t, e.shutdown(t.Context()))
	files := logs(t, directory)
	assert.Equal(t, []string{"0", "1"}, wandbfiletest.Texts("cpu", files...))
	assert.NotNil(t, last(files[0]).Exit)
}

// The time of a call may be over while it is at work.
func TestRecordsThatThereWasNoTimeForAreNotTakenAsWritten(t *testing.T) {
	directory := newDirectory(t)
	set, _ := settings()
	e, err := newExporter(set, directConfig(directory))
	require.NoError(t, err)
	require.NoError(t, e.start(t.Context(), newHost()))
	e.stop() // its ticks write, too
	e.done.Wait()
	require.NoError(t, within(e, patience, machine(0, 0, "cpu")))
	e.collector.CloseAll()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.ErrorIs(t, e.write(ctx), context.DeadlineExceeded)
	require.NoError(t, e.shutdown(t.Context()))
	require.NoError(t, e.write(ctx), "none is left")
	assert.Equal(t, []string{"0"}, wandbfiletest.Texts("cpu", logs(t, directory)...))
}

func TestWhoGivesUpIsNoFailureOfTheFileSystem(t *testing.T) {
	set, seen := settings()
	e := startedExporter(t, set, directConfig(newDirectory(t)), newHost())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 {
		require.NoError(t, e.ConsumeMetrics(ctx, machine(i, i, "cpu")))
	}
	require.ErrorIs(t, e.ConsumeMetrics(ctx, machine(2, 2, "cpu")), context.Canceled)
	require.NoError(t, e.Shutdown(t.Context()))
	assert.Zero(t, seen.FilterMessage(failing).Len())
}
