// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

const (
	fileHeader  = ":W&B\xe1\xbe\x00"
	blockSize   = 32768
	chunkHeader = 7
)

// Types of chunks.
const (
	full   = 1
	first  = 2
	middle = 3
	last   = 4
)

func header() *wandbpb.Record {
	version := &wandbpb.VersionInfo{Producer: "otelcol-wandbsys/1.2.3", MinConsumer: "0.1"}
	return &wandbpb.Record{RecordType: &wandbpb.Record_Header{Header: &wandbpb.HeaderRecord{VersionInfo: version}}}
}

func runRecord() *wandbpb.RunRecord {
	return &wandbpb.RunRecord{RunId: "ab-C_9", DisplayName: "node…", StartTime: &timestamppb.Timestamp{Seconds: 1_700_000_000}}
}

func run() *wandbpb.Record {
	return &wandbpb.Record{RecordType: &wandbpb.Record_Run{Run: runRecord()}}
}

func environment() *wandbpb.Record {
	// One variable: a map's order is another one each time.
	e := &wandbpb.EnvironmentRecord{Os: "Linux", Memory: &wandbpb.MemoryInfo{Total: 1 << 36}, Slurm: map[string]string{"job_id": "12"}}
	return &wandbpb.Record{RecordType: &wandbpb.Record_Environment{Environment: e}}
}

// stats has an item for each value. The key of the first one has so many bytes.
func stats(key int, values ...string) *wandbpb.Record {
	s := &wandbpb.StatsRecord{Timestamp: &timestamppb.Timestamp{Seconds: 1_700_000_001, Nanos: 250_000_000}}
	for i, v := range values {
		s.Item = append(s.Item, &wandbpb.Item{Key: strings.Repeat("k", key+i), ValueJson: v})
	}
	return &wandbpb.Record{RecordType: &wandbpb.Record_Stats{Stats: s}}
}

func exit() *wandbpb.Record {
	return &wandbpb.Record{RecordType: &wandbpb.Record_Exit{Exit: &wandbpb.RunExitRecord{Runtime: 60}}}
}

// log is what a Writer makes, and what was appended.
type log struct {
	data     bytes.Buffer
	writer   *wandbfile.Writer
	appended []*wandbpb.Record
}

// newLog is a log that stats may follow.
func newLog(t testing.TB) *log {
	t.Helper()
	l := &log{}
	l.writer = wandbfile.NewWriter(&l.data)
	l.add(t, header(), run())
	return l
}

// add appends and flushes records one by one.
func (l *log) add(t testing.TB, records ...*wandbpb.Record) {
	t.Helper()
	for _, r := range records {
		before := l.writer.Size()
		require.NoError(t, l.writer.Append(r))
		require.Greater(t, l.writer.Size(), before+chunkHeader)
		require.NoError(t, l.writer.Flush())
		require.Equal(t, int64(l.data.Len()), l.writer.Size())
		l.appended = append(l.appended, proto.CloneOf(r))
	}
}

// sized is a stats record that takes so many bytes when it is the next one.
func (l *log) sized(t testing.TB, payload int) *wandbpb.Record {
	t.Helper()
	for key := payload; key > 0; key-- {
		r := stats(key, "1")
		r.Num = int64(len(l.appended) + 1)
		if proto.Size(r) == payload {
			return r
		}
	}
	require.Failf(t, "no such record", "of %d bytes", payload)
	return nil
}

// parse reads the log and compares it with what was appended.
func (l *log) parse(t testing.TB) *wandbfiletest.File {
	t.Helper()
	f, err := wandbfiletest.Parse(l.data.Bytes())
	require.NoError(t, err)
	require.False(t, f.Truncated)
	require.Equal(t, l.writer.Size(), f.Good)
	requireRecords(t, l.appended, f.Records)
	requireRecords(t, l.appended, wandbfiletest.Recover(l.data.Bytes()))
	return f
}

// requireRecords compares records, numbered from 1 on, with what was read.
func requireRecords(t testing.TB, want []*wandbpb.Record, got []wandbfiletest.Record) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		numbered := proto.CloneOf(want[i])
		numbered.Num = int64(i + 1)
		if read := message(&got[i]); !proto.Equal(numbered, read) {
			require.Failf(t, "another record", "%d: %s", i+1, cmp.Diff(numbered, read, protocmp.Transform()))
		}
	}
}

// chunk is one of a log's, with where its header starts.
type chunk struct {
	kind    byte
	at, end int
}

// chunks walks a log whose chunks are sound.
func chunks(data []byte) []chunk {
	var all []chunk
	for at := len(fileHeader); at < len(data); {
		if room := blockSize - at%blockSize; room < chunkHeader {
			at += room
		}
		c := chunk{kind: data[at+6], at: at, end: at + chunkHeader + int(data[at+4]) + int(data[at+5])<<8}
		all = append(all, c)
		at = c.end
	}
	return all
}

var errFull = errors.New("no space left")

// faulty fails as often as takes has numbers, after that many bytes of a write.
type faulty struct {
	bytes.Buffer
	takes []int
}

func (f *faulty) Write(p []byte) (int, error) {
	if len(f.takes) == 0 {
		return f.Buffer.Write(p)
	}
	n := min(f.takes[0], len(p))
	f.takes = f.takes[1:]
	f.Buffer.Write(p[:n])
	return n, errFull
}
