// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/race"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

func TestANewLogIsItsHeader(t *testing.T) {
	l := &log{}
	l.writer = wandbfile.NewWriter(&l.data)
	assert.Zero(t, l.data.Len())
	assert.EqualValues(t, 7, l.writer.Size())
	require.NoError(t, l.writer.Flush())
	assert.Equal(t, fileHeader, l.data.String())
	require.NoError(t, l.writer.Flush())
	assert.Equal(t, fileHeader, l.data.String())
	l.parse(t)
}

// The checksums are those of Python's zlib.
func TestBytesOfALog(t *testing.T) {
	l := &log{}
	l.writer = wandbfile.NewWriter(&l.data)
	h := header()
	h.GetHeader().VersionInfo = &wandbpb.VersionInfo{Producer: "p"}
	l.add(t, h, exit())
	assert.Equal(t, fileHeader+
		"\x3c\x29\x1e\x7f"+"\x0a\x00"+"\x01"+"\x08\x01"+"\xaa\x01\x05"+"\x0a\x03"+"\x0a\x01p"+
		"\x36\x99\xfc\xa2"+"\x07\x00"+"\x01"+"\x08\x02"+"\x92\x01\x02"+"\x10\x3c", l.data.String())
}

// TestRecordsAroundTheEndOfABlock has records of each length with which one ends, and the
// next one begins, some bytes before or after the end of a block.
func TestRecordsAroundTheEndOfABlock(t *testing.T) {
	kinds := make(map[byte]int)
	for name, tt := range map[string]struct{ from, block int }{
		"the first block":               {0, 1},
		"a later block":                 {3, 3},
		"three blocks further":          {0, 4},
		"three blocks from a later one": {2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			for distance := -20; distance <= 20; distance++ {
				for _, size := range []int{3, blockSize} {
					l := newLog(t)
					if tt.from > 0 {
						l.endNear(t, tt.from, -15000)
					}
					l.endNear(t, tt.block, distance)
					next := len(l.appended)
					l.add(t, stats(size, "1", "2"), stats(5, "3"), exit())

					f := l.parse(t)
					assert.EqualValues(t, tt.block*blockSize+begin(distance), f.Records[next].Offset, "%d bytes from the end", distance)
					l.countChunks(t, kinds)
				}
			}
		})
	}
	assert.Len(t, kinds, 4)
}

// endNear adds a record that ends so many bytes from the end of the blocks before this
// one, where it does not have to go on in it.
func (l *log) endNear(t *testing.T, block, distance int) {
	t.Helper()
	from := l.data.Len()
	headers := (block - from/blockSize) * chunkHeader
	l.add(t, l.sized(t, block*blockSize+distance-from-headers))
}

// countChunks counts the chunks of each type, and looks whether they fill their blocks.
func (l *log) countChunks(t *testing.T, kinds map[byte]int) {
	t.Helper()
	for _, c := range chunks(l.data.Bytes()) {
		kinds[c.kind]++
		if c.kind == first || c.kind == middle {
			assert.Zero(t, c.end%blockSize, "a part of a record leaves room")
		}
	}
}

// begin is where the record after one of endNear begins.
func begin(distance int) int {
	switch {
	case distance > 0:
		return distance + chunkHeader
	case -distance < chunkHeader:
		return 0
	default:
		return distance
	}
}

// cutStep is how many bytes apart long payloads are cut with the race detector, which
// takes too long for each of them.
const cutStep = 61

func TestACutLogHasTheWholeRecords(t *testing.T) {
	l := newLog(t)
	l.add(t, environment(), stats(3, "1", "2"), stats(1), stats(blockSize, "3"), stats(2, "4"), exit())
	data, f := l.data.Bytes(), l.parse(t)
	whole := 0
	for _, c := range chunks(data) {
		for at := c.at; at < c.end; at++ {
			checkCut(t, data[:at], f, whole)
			if race.Enabled && at > c.at+100 && at+cutStep < c.end-100 {
				at += cutStep - 1
			}
		}
		if c.kind == full || c.kind == last {
			whole++
		}
	}
	checkCut(t, data, f, whole)
	for at := range len(fileHeader) {
		checkCut(t, data[:at], f, 0)
	}
	assert.Len(t, f.Records, whole)
}

// end is where a record of a file ends.
func end(f *wandbfiletest.File, record int) int64 {
	if record+1 < len(f.Records) {
		return f.Records[record+1].Offset
	}
	return f.Good
}

func checkCut(t *testing.T, data []byte, f *wandbfiletest.File, whole int) {
	t.Helper()
	got, err := wandbfiletest.Parse(data)
	require.NoError(t, err, "of %d bytes", len(data))
	good := int64(0)
	if len(data) >= len(fileHeader) {
		good = int64(len(fileHeader))
	}
	if whole > 0 {
		good = end(f, whole-1)
	}
	if got.Good != good || !reflect.DeepEqual(f.Records[:whole], append([]wandbfiletest.Record{}, got.Records...)) {
		require.Failf(t, "other records", "of %d bytes: %d, to byte %d", len(data), len(got.Records), got.Good)
	}
	require.Len(t, wandbfiletest.Recover(data), whole)
}

// records are one of each kind, in the order that a log has.
func records() []*wandbpb.Record {
	return []*wandbpb.Record{header(), run(), environment(), stats(3, "1"), exit()}
}

// undisturbed is the log with all of records.
func undisturbed(t *testing.T) []byte {
	t.Helper()
	l := &log{}
	l.writer = wandbfile.NewWriter(&l.data)
	l.add(t, records()...)
	l.parse(t)
	return l.data.Bytes()
}

func TestFlushGoesOnWhereTheLastOneStopped(t *testing.T) {
	want := undisturbed(t)
	for _, tt := range []struct {
		name  string
		takes func(split int) []int
	}{
		{"one failure", func(split int) []int { return []int{split} }},
		{"several in a row", func(split int) []int { return []int{split, 0, 0, 1, 0, split / 2, split} }},
		{"then a byte at a time", func(split int) []int { return []int{split, 1, 1, 1, 1, 1, 1, 1} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for split := range len(want) + 1 {
				f := &faulty{takes: tt.takes(split)}
				w := wandbfile.NewWriter(f)
				for _, r := range records() {
					require.NoError(t, w.Append(r))
				}
				flushAll(t, w, f)
				require.Equal(t, want, f.Bytes(), "after %d bytes", split)
			}
		})
	}
}

// flushAll flushes until the writer no longer fails.
func flushAll(t *testing.T, w *wandbfile.Writer, f *faulty) {
	t.Helper()
	for size, failures := w.Size(), len(f.takes); ; failures-- {
		err := w.Flush()
		require.Equal(t, size, w.Size())
		if failures == 0 || err == nil {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, errFull)
	}
}

func TestRecordsBetweenFailures(t *testing.T) {
	want := undisturbed(t)
	for split := range len(want) + 1 {
		for _, next := range []int{0, 1, 5, 40} {
			f := &faulty{}
			w := wandbfile.NewWriter(f)
			for _, r := range records() {
				require.NoError(t, w.Append(r))
				f.takes = []int{max(0, split-f.Len()), next}
				require.ErrorIs(t, w.Flush(), errFull)
				_ = w.Flush() // fails, too, unless the first one has left nothing
			}
			f.takes = nil
			require.NoError(t, w.Flush())
			require.Equal(t, want, f.Bytes(), "after %d bytes, then %d", split, next)
			require.EqualValues(t, f.Len(), w.Size())
		}
	}
}

func TestARecordThatIsNotUTF8LeavesTheLogAsItWas(t *testing.T) {
	const bad = "a\xffb"
	for name, spoil := range map[string]func(r []*wandbpb.Record) *wandbpb.Record{
		"producer":    func(r []*wandbpb.Record) *wandbpb.Record { r[0].GetHeader().VersionInfo.Producer = bad; return r[0] },
		"notes":       func(r []*wandbpb.Record) *wandbpb.Record { r[1].GetRun().Notes = bad; return r[1] },
		"tag":         func(r []*wandbpb.Record) *wandbpb.Record { r[1].GetRun().Tags = []string{"x", bad}; return r[1] },
		"slurm key":   func(r []*wandbpb.Record) *wandbpb.Record { r[2].GetEnvironment().Slurm[bad] = ""; return r[2] },
		"slurm value": func(r []*wandbpb.Record) *wandbpb.Record { r[2].GetEnvironment().Slurm["k"] = bad; return r[2] },
		"stats key":   func(r []*wandbpb.Record) *wandbpb.Record { r[3].GetStats().Item[0].Key = bad; return r[3] },
	} {
		t.Run(name, func(t *testing.T) {
			want := undisturbed(t)
			for _, flush := range []bool{true, false} {
				var data bytes.Buffer
				w := wandbfile.NewWriter(&data)
				for i, r := range records() {
					size := w.Size()
					require.EqualError(t, w.Append(spoil(records())), fmt.Sprintf("encoding record %d: string field contains invalid UTF-8", i+1))
					require.Equal(t, size, w.Size())
					require.NoError(t, w.Append(r))
					if flush {
						require.NoError(t, w.Flush())
						require.EqualValues(t, data.Len(), w.Size())
					}
				}
				require.NoError(t, w.Flush())
				require.Equal(t, want, data.Bytes())
			}
		})
	}
}

func TestARecordIsNumberedAnewEachTime(t *testing.T) {
	l, r := newLog(t), stats(1, "1")
	for want := int64(3); want < 10; want++ {
		l.add(t, r)
		require.Equal(t, want, r.GetNum())
	}
	l.parse(t)
}

func TestAppendAndFlushCostNoAllocation(t *testing.T) {
	w, r := wandbfile.NewWriter(io.Discard), stats(1, make([]string, 1000)...)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if w.Append(r) != nil || w.Flush() != nil {
			t.Error("did not write")
		}
	}))
}
