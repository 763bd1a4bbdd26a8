// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package runs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// childVariable names the directory that a test works in when it runs in a child process.
const childVariable = "WANDBSYS_RUNS_TEST_DIRECTORY"

// child is this test in a process of its own.
func child(t *testing.T, directory string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), childVariable+"="+directory)
	return c
}

// runChild runs a child to its end, which must be a good one. It skips the test where
// the system does not let the child begin.
func runChild(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Skipf("the child cannot be started: %v", err)
	}
	require.NoError(t, err, "%s", out)
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("the child: %s", out)
	}
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "%s", out)
}

// exhausted checks what happens while no log can take another byte: full makes it so,
// and free ends it.
func exhausted(t *testing.T, p *place, full, free func()) {
	t.Helper()
	want := []string{}
	second := 0
	next := func(bytes int) *Record {
		second++
		r := padded(float64(second), bytes)
		r.Items = append(r.Items, value("n", int64(second)))
		return r
	}
	for range 3 { // where it ends within a log, three times
		full()
		var r *Record
		for {
			r = next(3000)
			if err := p.Write(host("a"), r); err != nil {
				assert.True(t, errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EFBIG), "%v", err)
				break
			}
			want = append(want, strconv.Itoa(second))
		}
		log := p.runs["host a"].path
		cut, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, want, wandbfiletest.Texts("n", readLog(t, log)), "what was written before is readable")
		for range 3 {
			require.Error(t, p.Write(host("a"), r))
			require.Error(t, p.Finish("host a"))
		}
		unchanged, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, cut, unchanged)

		free()
		p.write(host("a"), r)
		want = append(want, strconv.Itoa(second))
		whole, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, cut, whole[:len(cut)])
		f := readLog(t, log)
		assert.False(t, f.Truncated)
		assert.NotNil(t, exitOf(f), "it was to be ended")
		assert.Equal(t, want, wandbfiletest.Texts("n", f), "each record is there once")
		want = nil
	}
	require.NoError(t, p.Close())
}

func TestAFileLimit(t *testing.T) {
	directory := os.Getenv(childVariable)
	if directory == "" {
		runChild(t, child(t, t.TempDir()))
		return
	}
	p := newPlace(t, in(directory))
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	set := func(bytes uint64) {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: before.Max}))
	}
	limit := uint64(20_000)
	full := func() { set(limit); limit += 13_001 }
	exhausted(t, p, full, func() { set(before.Cur) })

	set(100) // less than what a run begins with
	what := tree(t, directory)
	r := at(99, value("n", 99))
	for range 3 {
		require.ErrorIs(t, p.Write(host("b"), r), unix.EFBIG)
	}
	set(before.Cur)
	assert.Equal(t, what, tree(t, directory), "nothing is left behind")
	assert.Zero(t, p.work.Opened)
	p.write(host("b"), r)
	assert.Equal(t, []string{"99"}, wandbfiletest.Texts("n", readLog(t, p.runs["host b"].path)))
	require.NoError(t, p.Close())
}

func TestAnEndedStoreOnAFullDisk(t *testing.T) {
	directory := os.Getenv(childVariable)
	if directory == "" {
		runChild(t, child(t, t.TempDir()))
		return
	}
	p := newPlace(t, in(directory))
	p.write(host("a"), at(1, value("n", 1)))
	path := p.runs["host a"].path
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 10, Max: before.Max}))
	require.ErrorContains(t, p.Close(), "host a: ending a run")
	require.NoError(t, p.Close(), "there is nothing open any more")
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	assert.Zero(t, p.work.Opened)
	assert.Equal(t, []string{"1"}, wandbfiletest.Texts("n", readLog(t, path)))
}

func TestModesAreLessTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077} {
		before := syscall.Umask(mask)
		p := newPlace(t)
		p.write(host("a"), at(0, value("n", 1)))
		syscall.Umask(before)
		path := p.runs["host a"].path
		for name, want := range map[string]os.FileMode{path: 0o666, filepath.Dir(path): 0o777, p.Directory: 0o777} {
			info, err := os.Stat(name)
			require.NoError(t, err)
			assert.Equal(t, want&^os.FileMode(mask), info.Mode().Perm(), "%s, umask %o", name, mask)
		}
	}
}

func TestAPipeInThePlaceOfALogIsNotOpened(t *testing.T) {
	p := newPlace(t, limited(1))
	folder := filepath.Join(p.Directory, "offline-run-20260101_000000-aaaa")
	require.NoError(t, os.MkdirAll(folder, 0o750))
	require.NoError(t, unix.Mkfifo(filepath.Join(folder, "run-aaaa.wandb"), 0o600))
	p.tend()
	assertExists(t, filepath.Join(folder, "run-aaaa.wandb"))
}

func TestARunThatAnotherStoreWritesIsNotRemoved(t *testing.T) {
	p := newPlace(t, limited(1000))
	q := newPlace(t, in(p.Directory))
	q.write(host("q"), padded(0, 10_000))
	p.write(host("p"), at(0, value("n", 1)))
	p.tend()
	assertExists(t, q.runs["host q"].path)
	assert.Len(t, p.runs, 1, "it is no reason to end ours")
	path := q.runs["host q"].path
	require.NoError(t, q.Close())
	p.tend()
	assertMissing(t, path)
	assert.Len(t, p.runs, 1)
}

func TestARunThatAnotherProcessWritesIsNotRemoved(t *testing.T) {
	if directory := os.Getenv(childVariable); directory != "" {
		p := newPlace(t, in(directory))
		p.write(host("child"), padded(0, 10_000))
		fmt.Println("path:" + p.runs["host child"].path)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	p := newPlace(t, limited(1000))
	c := child(t, p.Directory)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	path := ""
	for lines := bufio.NewScanner(out); path == "" && lines.Scan(); {
		_, path, _ = strings.Cut(lines.Text(), "path:")
	}
	require.NotEmpty(t, path)
	p.tend()
	assertExists(t, path)
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	_ = in.Close()
	assert.Len(t, readLog(t, path).Records, 4, "the crash left it readable")
	p.tend()
	assertMissing(t, path)
}

func TestALogThatWasEndedHereNeedsNoLock(t *testing.T) {
	p := newPlace(t, limited(1000))
	path := p.finishedRun("a", 0, 10_000)
	locked, err := os.Open(path) // as if locks told nothing
	require.NoError(t, err)
	defer func() { _ = locked.Close() }()
	require.NoError(t, unix.Flock(int(locked.Fd()), unix.LOCK_EX))
	p.tend()
	assertMissing(t, path)
	assert.Empty(t, p.limit.ended)
}

func TestWhereThereAreNoLocks(t *testing.T) {
	for _, err := range []error{unix.ENOSYS, unix.ENOLCK, unix.ENOTSUP, unix.EOPNOTSUPP} {
		assert.True(t, noLocks(err), "%v", err)
	}
	for _, err := range []error{nil, unix.EWOULDBLOCK, unix.EINTR, unix.EBADF} {
		assert.False(t, noLocks(err), "%v", err)
	}
}
