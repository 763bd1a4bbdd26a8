// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestReadWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	path := writeFile(t, []byte("secret"))
	require.NoError(t, os.Chmod(path, 0))
	_, err := ReadFile(path, 10)
	require.ErrorIs(t, err, fs.ErrPermission)
}

func TestReadOfAHungFileIsLeftBehindAndComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	var s Slot
	read := func(ctx context.Context) ([]byte, error) {
		return Call(ctx, &s, func(context.Context) ([]byte, error) { return ReadInto(path, nil, 100) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := read(ctx) // blocks in open: nobody writes
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, s.Hung())
	_, err = read(t.Context())
	require.ErrorIs(t, err, ErrHung)

	writer, err := os.OpenFile(path, os.O_WRONLY, 0) // lets the reader go on, to block in read
	require.NoError(t, err)
	assert.True(t, s.Hung())
	require.NoError(t, writer.Close())
	require.Eventually(t, func() bool { return !s.Hung() }, 10*time.Second, time.Millisecond)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, []byte("alive"), 0o600))
	got, err := read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "alive", string(got))
}

func TestReadTriesAgainAFewTimesOnly(t *testing.T) {
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	defer closeFile(p[0])
	defer closeFile(p[1])
	require.NoError(t, unix.SetNonblock(p[0], true))
	buf := make([]byte, 10)
	_, err := readFile(p[0], buf)
	require.ErrorIs(t, err, unix.EAGAIN)

	go func() {
		time.Sleep(againPause)
		_, _ = unix.Write(p[1], []byte("late"))
	}()
	require.Eventually(t, func() bool {
		n, err := readFile(p[0], buf)
		return err == nil && string(buf[:n]) == "late"
	}, 10*time.Second, time.Microsecond)
}
