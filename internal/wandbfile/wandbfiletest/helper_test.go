// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// pb is the content of a protobuf message.
type pb []byte

func (m pb) text(n protowire.Number, s string) pb {
	return protowire.AppendString(protowire.AppendTag(m, n, protowire.BytesType), s)
}

func (m pb) sub(n protowire.Number, of pb) pb { return m.text(n, string(of)) }

func (m pb) whole(n protowire.Number, v int64) pb {
	return protowire.AppendVarint(protowire.AppendTag(m, n, protowire.VarintType), uint64(v))
}

func (m pb) fixed64(n protowire.Number) pb {
	return protowire.AppendFixed64(protowire.AppendTag(m, n, protowire.Fixed64Type), 1)
}

func (m pb) group(n protowire.Number) pb {
	return protowire.AppendTag(protowire.AppendTag(m, n, protowire.StartGroupType), n, protowire.EndGroupType)
}

func timestamp(seconds, nanos int64) pb { return pb{}.whole(1, seconds).whole(2, nanos) }

// file is a log that is being made.
type file struct {
	data []byte
	ends []int // of the records
}

func newFile() *file { return &file{data: []byte(":W&B\xe1\xbe\x00")} }

// chunk adds a chunk as it is.
func (f *file) chunk(kind byte, payload []byte) *file {
	sum := crc32.ChecksumIEEE(append([]byte{kind}, payload...))
	f.data = binary.LittleEndian.AppendUint32(f.data, sum)
	f.data = binary.LittleEndian.AppendUint16(f.data, uint16(len(payload)))
	f.data = append(append(f.data, kind), payload...)
	return f
}

func (f *file) room() int { return 32768 - len(f.data)%32768 }

// add adds records.
func (f *file) add(records ...pb) *file {
	for _, r := range records {
		f.record(r)
		f.ends = append(f.ends, len(f.data))
	}
	return f
}

func (f *file) record(r []byte) {
	for begun := false; ; begun = true {
		if room := f.room(); room < 7 {
			f.data = append(f.data, make([]byte, room)...)
		}
		fits := min(len(r), f.room()-7)
		part, rest := r[:fits], r[fits:]
		switch {
		case len(rest) == 0 && !begun:
			f.chunk(1, part)
			return
		case len(rest) == 0:
			f.chunk(4, part)
			return
		case begun:
			f.chunk(3, part)
		default:
			f.chunk(2, part)
		}
		r = rest
	}
}

// of is a record with one of the messages, by its field.
func of(num int64, field protowire.Number, m pb) pb { return pb{}.whole(1, num).sub(field, m) }

func header(num int64) pb {
	return of(num, 21, pb{}.sub(1, pb{}.text(1, "wandbsys").text(2, "0.1.0")))
}

func runMessage() pb { return pb{}.text(1, "ab-C_9").sub(17, timestamp(1_700_000_000, 5)) }

func run(num int64) pb { return of(num, 17, runMessage()) }

func item(key, value string) pb { return pb{}.text(1, key).text(16, value) }

func statsMessage(items ...pb) pb {
	m := pb{}.sub(2, timestamp(1_700_000_001, 250_000_000))
	for _, i := range items {
		m = m.sub(3, i)
	}
	return m
}

func stats(num int64, items ...pb) pb { return of(num, 7, statsMessage(items...)) }

func exit(num int64) pb { return of(num, 18, pb{}.whole(1, -1).whole(2, 60)) }

func gpu(num int64) pb { return stats(num, item("gpu.0.temp", "61")) }

// begun is a file that stats may follow.
func begun() *file { return newFile().add(header(1), run(2)) }

var statsTime = time.Unix(1_700_000_001, 250_000_000).UTC()

func gpuRecord(offset, num int64) Record {
	return Record{Offset: offset, Num: num, Stats: &Stats{Timestamp: statsTime, Items: []Item{{"gpu.0.temp", "61"}}}}
}

// padded is a stats record whose only item has a key of so many bytes.
func padded(num int64, size int) pb { return stats(num, item(strings.Repeat("k", size), "1")) }

// fill adds a stats record that ends so many bytes before the end of the block.
func (f *file) fill(t testing.TB, num int64, distance int) *file {
	t.Helper()
	const size = 20000 // of the same length of length as the key will have
	f.add(padded(num, f.room()-distance-7-len(padded(num, size))+size))
	require.Equal(t, distance, f.room()%32768)
	return f
}

func parse(t testing.TB, data []byte) *File {
	t.Helper()
	f, err := Parse(data)
	require.NoError(t, err)
	return f
}

// long is a file of eight records, of which the fourth is in three blocks.
func long(t testing.TB) *file {
	t.Helper()
	f := begun().fill(t, 3, 40).add(padded(4, 32768+100), gpu(5), gpu(6), gpu(7), exit(8))
	require.Equal(t, []int{0, 2}, []int{f.ends[2] / 32768, f.ends[3] / 32768})
	return f
}
