// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// FuzzWriter appends and flushes as the data say: of three bytes each, the first is what to
// do and the others a size.
func FuzzWriter(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 0, 1, 5, 0, 2, 0, 0, 3, 0, 0})
	f.Add([]byte{0, 0xff, 0x7f, 1, 0, 0x40, 0, 1, 0, 1, 0xff, 0xff, 2, 0, 0})
	f.Add([]byte{0, 0x80, 0x7f, 0, 1, 0, 0, 0xff, 0xff, 1, 7, 0, 1, 1, 0, 0, 2, 0, 3, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		took := &faulty{}
		w := wandbfile.NewWriter(took)
		quiet := newLog(t)
		for _, r := range quiet.appended {
			require.NoError(t, w.Append(r))
		}
		data = data[:min(len(data), 3*100)]
		for ; len(data) >= 3 && quiet.data.Len() < 8*blockSize; data = data[3:] {
			step(t, w, took, quiet, data[0], int(binary.LittleEndian.Uint16(data[1:])))
		}
		took.takes = nil
		require.NoError(t, w.Flush())
		quiet.parse(t)
		require.Equal(t, quiet.data.Bytes(), took.Bytes())
	})
}

// step does one thing to a writer, and to a log that is never disturbed.
func step(t *testing.T, w *wandbfile.Writer, took *faulty, quiet *log, what byte, size int) {
	t.Helper()
	switch what % 4 {
	case 0:
		r := stats(max(1, size), "1")
		quiet.add(t, r)
		require.NoError(t, w.Append(r))
	case 1:
		took.takes = []int{size}
		if err := w.Flush(); !errors.Is(err, errFull) {
			require.NoError(t, err)
		}
	case 2:
		took.takes = nil
		require.NoError(t, w.Flush())
		require.EqualValues(t, took.Len(), w.Size())
	case 3:
		r := run()
		r.GetRun().Notes = "\xff"
		require.Error(t, w.Append(r))
	}
	require.Equal(t, quiet.writer.Size(), w.Size())
}

// FuzzProducer looks at data as they are, and as the first record of a log.
func FuzzProducer(f *testing.F) {
	f.Add(framed(full, produced(f, "p")))
	f.Add(framed(first, produced(f, "p")))
	f.Add(produced(f, "producer"))
	f.Add(produced(f, ""))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		checkProducer(t, data)
		checkProducer(t, framed(full, data[:min(len(data), blockSize)]))
	})
}

// checkProducer compares with what the other reader finds in a log's first record. That
// one takes none with fields that we do not write.
func checkProducer(t *testing.T, data []byte) {
	t.Helper()
	head := data[:min(len(data), wandbfile.HeaderSize)]
	got, ok := wandbfile.Producer(head)
	require.Equal(t, got != "", ok)
	if ok {
		require.True(t, bytes.HasPrefix(head, []byte(fileHeader)))
		require.True(t, bytes.Contains(head, []byte(got)))
	}
	records := wandbfiletest.Recover(head)
	if len(records) > 0 && records[0].Offset == int64(len(fileHeader)) && head[len(fileHeader)+6] == full {
		require.Equal(t, message(&records[0]).GetHeader().GetVersionInfo().GetProducer(), got)
	}
}
