// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tooLong catches hangs; nothing here takes near as long.
const tooLong = 10 * time.Second

// script writes an executable. $D in its body is its directory.
func script(t testing.TB, body string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "tool")
	text := fmt.Sprintf("#!/bin/sh\nD='%s'\n%s\n", dir, body)
	// No fork while the file is open for writing: the child would inherit that,
	// and the start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
	return path
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	t.Cleanup(cancel)
	return ctx
}

// pidIn waits for a script to write a pid next to itself.
func pidIn(t testing.TB, tool, name string) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(tool), name))
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	}, tooLong, time.Millisecond)
	return pid
}

func requireGone(t testing.TB, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return gone(pid) }, tooLong, time.Millisecond, "process %d", pid)
}

// gone counts a dead process whose new parent is slow to reap it; that it is not
// this process's child to reap, requireNoChildren checks.
func gone(pid int) bool {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func requireNoChildren(t testing.TB) {
	t.Helper()
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	require.ErrorIs(t, err, unix.ECHILD, "child %d is left", pid)
}

// cancelOnceWritten returns a context that ends when the script wrote the file.
func cancelOnceWritten(t testing.TB, tool, name string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if info, err := os.Stat(filepath.Join(filepath.Dir(tool), name)); err == nil && info.Size() > 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx
}

func TestRunReturnsOutputAndExitCode(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `echo "out $1 $2"; echo "err" >&2; exit 2`)
	res, err := Run(bounded(t), Command{Path: tool, Args: []string{"a b", "$HOME"}})
	require.NoError(t, err)
	assert.Equal(t, "out a b $HOME\n", string(res.Stdout))
	assert.Equal(t, "err\n", string(res.Stderr))
	assert.Equal(t, 2, res.ExitCode)
	assert.Positive(t, res.Duration)

	res, err = Run(bounded(t), Command{Path: script(t, `exit 0`)})
	require.NoError(t, err)
	assert.Zero(t, res.ExitCode)
	assert.Empty(t, res.Stdout)
}

func TestRunCountsTheProcessorTimeOfTheProgramAndItsChildren(t *testing.T) {
	const busy = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`
	for name, body := range map[string]string{
		"the program itself":     busy,
		"a child it waited for":  "(" + busy + "); exit 0",
		"with a failure":         busy + "; exit 3",
		"ended by the deadline":  busy + "; exec sleep 60",
		"ended by its own death": busy + "; kill -9 $$",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			res, _ := Run(ctx, Command{Path: script(t, body)})
			assert.Greater(t, res.CPU, 5*time.Millisecond)
			assert.Less(t, res.CPU, tooLong)
		})
	}
	res, err := Run(bounded(t), Command{Path: script(t, `exec sleep 0.2`)})
	require.NoError(t, err)
	assert.Less(t, res.CPU, res.Duration, "waiting costs nothing")
	res, err = Run(t.Context(), Command{Path: "/no/such/tool"})
	require.Error(t, err)
	assert.Zero(t, res.CPU)
}

func TestRunGivesStdin(t *testing.T) {
	defer requireNoChildren(t)
	res, err := Run(bounded(t), Command{Path: script(t, `cat`), Stdin: []byte("in")})
	require.NoError(t, err)
	assert.Equal(t, "in", string(res.Stdout))

	res, err = Run(bounded(t), Command{Path: script(t, `cat; echo end`)})
	require.NoError(t, err)
	assert.Equal(t, "end\n", string(res.Stdout))

	_, err = Run(bounded(t), Command{Path: script(t, `exit 0`), Stdin: make([]byte, 1<<20)})
	require.NoError(t, err, "unread input is the program's choice")
}

func TestRunHandsOnlyTheNamedEnvironment(t *testing.T) {
	t.Setenv("GUARD_TEST_SECRET", "leaked")
	for name, tt := range map[string]struct {
		env  []string
		want []string
	}{
		"minimal": {want: minimalEnv()},
		"given":   {env: []string{"A=b"}, want: []string{"A=b"}},
		"empty":   {env: []string{}, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := filepath.EvalSymlinks("/usr/bin/env") // no shell, which adds variables of its own
			require.NoError(t, err)
			if filepath.Base(env) != "env" {
				t.Skip("env is a multi-call program here")
			}
			res, err := Run(bounded(t), Command{Path: env, Env: tt.env})
			require.NoError(t, err)
			assert.ElementsMatch(t, tt.want, strings.Fields(string(res.Stdout)))
		})
	}
}

func TestRunUsesTheDirectory(t *testing.T) {
	tool := script(t, `pwd -P`)
	res, err := Run(bounded(t), Command{Path: tool})
	require.NoError(t, err)
	assert.Equal(t, "/\n", string(res.Stdout))

	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	res, err = Run(bounded(t), Command{Path: tool, Dir: dir})
	require.NoError(t, err)
	assert.Equal(t, dir+"\n", string(res.Stdout))
}

func TestRunSaysWhyItCannotStart(t *testing.T) {
	defer requireNoChildren(t)
	dir := t.TempDir()
	plain := writeFile(t, []byte("#!/bin/sh\n"))
	noInterpreter := filepath.Join(dir, "tool")
	require.NoError(t, os.WriteFile(noInterpreter, []byte("#!/no/such/python3\n"), 0o700))
	noFormat := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(noFormat, []byte("hello\n"), 0o700))
	tests := []struct {
		name string
		c    Command
		is   error
		text string
	}{
		{name: "missing", c: Command{Path: "/no/such/tool"}, is: fs.ErrNotExist, text: "run /no/such/tool: cannot start: no such file or directory"},
		{name: "a directory", c: Command{Path: dir}, is: syscall.EISDIR, text: "run " + dir + ": cannot start: is a directory"},
		{name: "not executable", c: Command{Path: plain}, is: fs.ErrPermission, text: "run " + plain + ": cannot start: permission denied"},
		{name: "no program", c: Command{Path: noFormat}, is: syscall.ENOEXEC, text: "exec format error"},
		{name: "interpreter missing", c: Command{Path: noInterpreter}, is: fs.ErrNotExist, text: "its interpreter"},
		{name: "directory missing", c: Command{Path: "/bin/sh", Dir: "/no/such/dir"}, is: fs.ErrNotExist, text: `the directory "/no/such/dir"`},
		{name: "relative", c: Command{Path: "bin/sh"}, text: `run "bin/sh": the path is not absolute`},
		{name: "by name", c: Command{Path: "sh"}, text: `run "sh": the path is not absolute`},
		{name: "empty", text: `run "": the path is not absolute`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, err := Run(bounded(t), tt.c)
			require.ErrorContains(t, err, tt.text)
			assert.Equal(t, -1, res.ExitCode)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
		})
	}
}

func TestRunDoesNotStartWhenContextIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tool := script(t, `echo $$ > "$D/pid"`)
	_, err := Run(ctx, Command{Path: tool})
	require.ErrorIs(t, err, context.Canceled)
	assert.NoFileExists(t, filepath.Join(filepath.Dir(tool), "pid"))
}

func TestRunReportsTheSignalThatKilled(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `echo partial; kill -SEGV $$`)
	res, err := Run(bounded(t), Command{Path: tool})
	require.ErrorIs(t, err, ErrDied)
	require.ErrorContains(t, err, "run "+tool+": died after")
	require.ErrorContains(t, err, "signal: segmentation fault")
	assert.Equal(t, -1, res.ExitCode)
	assert.Equal(t, "partial\n", string(res.Stdout))
}

func TestRunKillsAHangingProgramAndItsChildren(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `echo begun; echo trouble >&2
trap '' TERM INT HUP
sleep 1000 &
echo $! > "$D/child"
echo $$ > "$D/pid"
wait; sleep 1000`)
	ctx := cancelOnceWritten(t, tool, "pid")
	res, err := Run(ctx, Command{Path: tool})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "run "+tool+": gave up after")
	require.NotErrorIs(t, err, ErrHung)
	assert.Equal(t, "begun\n", string(res.Stdout))
	assert.Equal(t, "trouble\n", string(res.Stderr))
	assert.Equal(t, -1, res.ExitCode)
	require.ErrorIs(t, unix.Kill(pidIn(t, tool, "pid"), 0), unix.ESRCH, "reaped when Run returns")
	requireGone(t, pidIn(t, tool, "child"))
}

func TestRunNamesTheDeadline(t *testing.T) {
	defer requireNoChildren(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("amd: timeout of the scrape"))
	defer cancel()
	_, err := Run(ctx, Command{Path: script(t, `exec sleep 1000`)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "amd: timeout of the scrape")
}

func TestRunKillsWhatTheProgramLeftInItsGroup(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `sleep 1000 &
echo $! > "$D/child"
echo done; exit 3`)
	res, err := Run(bounded(t), Command{Path: tool})
	require.NoError(t, err, "the child held the pipe, yet the program answered")
	assert.Equal(t, "done\n", string(res.Stdout))
	assert.Equal(t, 3, res.ExitCode)
	requireGone(t, pidIn(t, tool, "child"))
}

func TestRunStopsEndlessOutput(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `echo $$ > "$D/pid"
while :; do echo 0123456789; done`)
	res, err := Run(bounded(t), Command{Path: tool, MaxOutput: 1000, LimitKey: "scrapers.amd.max_output"})
	var over *LimitError
	require.ErrorAs(t, err, &over)
	require.EqualError(t, err, "run "+tool+": its output is larger than the limit of 1000 bytes (config key scrapers.amd.max_output)")
	assert.Len(t, res.Stdout, 1000)
	requireGone(t, pidIn(t, tool, "pid"))
}

func TestRunStopsAProgramThatHangsAfterTooMuchOutput(t *testing.T) {
	defer requireNoChildren(t)
	_, err := Run(bounded(t), Command{Path: script(t, `echo 0123456789; trap '' PIPE; sleep 1000; sleep 1000`), MaxOutput: 10})
	var over *LimitError
	require.ErrorAs(t, err, &over)
}

func TestRunKeepsOutputUpToTheLimit(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `printf 0123456789`)
	res, err := Run(bounded(t), Command{Path: tool, MaxOutput: 10})
	require.NoError(t, err)
	assert.Equal(t, "0123456789", string(res.Stdout))
	_, err = Run(bounded(t), Command{Path: tool, MaxOutput: 9})
	require.EqualError(t, err, "run "+tool+": its output is larger than the limit of 9 bytes")
}

func TestRunHasADefaultLimit(t *testing.T) {
	defer requireNoChildren(t)
	res, err := Run(bounded(t), Command{Path: script(t, `exec cat`), Stdin: make([]byte, defaultMaxOutput)})
	require.NoError(t, err)
	assert.Len(t, res.Stdout, defaultMaxOutput)
	_, err = Run(bounded(t), Command{Path: script(t, `exec cat`), Stdin: make([]byte, defaultMaxOutput+1)})
	require.ErrorContains(t, err, "4194304 bytes")
}

func TestRunDropsTheTailOfStderr(t *testing.T) {
	defer requireNoChildren(t)
	noise := bytes.Repeat([]byte("x"), 100_000)
	tool := script(t, `cat >&2; echo fine`)
	res, err := Run(bounded(t), Command{Path: tool, Stdin: noise})
	require.NoError(t, err)
	assert.Len(t, res.Stderr, defaultMaxStderr)
	assert.Equal(t, "fine\n", string(res.Stdout))

	res, err = Run(bounded(t), Command{Path: tool, Stdin: noise, MaxStderr: 5})
	require.NoError(t, err)
	assert.Equal(t, "xxxxx", string(res.Stderr))
}

func TestRunLeavesAProgramThatCannotBeKilledBehindOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/no/such/stuck-tool"
		release := make(chan struct{})
		stuck := func(context.Context, Command) (Result, error) {
			<-release
			return Result{}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		res, err := runWith(ctx, Command{Path: path}, killGrace, stuck)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "left behind, it cannot be killed")
		assert.Equal(t, -1, res.ExitCode)
		assert.Equal(t, time.Second+killGrace, time.Since(start))

		_, err = Run(t.Context(), Command{Path: path})
		require.ErrorIs(t, err, ErrHung)
		_, err = Run(t.Context(), Command{Path: path + "-other"})
		require.NotErrorIs(t, err, ErrHung)

		close(release)
		synctest.Wait()
		_, err = Run(t.Context(), Command{Path: path})
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, found := unreaped.Load(path)
		assert.False(t, found)
	})
}

func TestRunSurvivesAPanic(t *testing.T) {
	_, err := runWith(t.Context(), Command{Path: "/tool"}, killGrace, func(context.Context, Command) (Result, error) { panic("boom") })
	require.ErrorContains(t, err, "run /tool: panic: boom")
}

func BenchmarkRun(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(b.Context(), Command{Path: "/bin/true"}); err != nil {
			b.Fatal(err)
		}
	}
}
