// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package wandbfile_test

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
)

// TestFlushIntoAFullPipe has a kernel that takes a part.
func TestFlushIntoAFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	l := newLog(t)
	l.add(t, stats(10*blockSize, "1"))
	var got bytes.Buffer
	writer := wandbfile.NewWriter(w)
	for _, record := range l.appended {
		require.NoError(t, writer.Append(record))
	}

	failures := 0
	for done := false; !done; {
		require.NoError(t, w.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
		err := writer.Flush()
		if done = err == nil; !done {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			failures++
		}
		require.NoError(t, r.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		_, err = io.Copy(&got, r)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.NoError(t, w.Close())
	require.NoError(t, r.SetReadDeadline(time.Time{}))
	_, err = io.Copy(&got, r)
	require.NoError(t, err)
	require.Positive(t, failures)
	require.True(t, bytes.Equal(l.data.Bytes(), got.Bytes()))
}
