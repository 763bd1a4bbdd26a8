// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile_test

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

// framed is a log with one chunk.
func framed(kind byte, payload []byte) []byte {
	data := binary.LittleEndian.AppendUint32([]byte(fileHeader), crc32.ChecksumIEEE(append([]byte{kind}, payload...)))
	data = binary.LittleEndian.AppendUint16(data, uint16(len(payload)))
	return append(append(data, kind), payload...)
}

// produced is a header record.
func produced(t testing.TB, producer string) []byte {
	t.Helper()
	h := header()
	h.GetHeader().VersionInfo.Producer = producer
	data, err := proto.Marshal(h)
	require.NoError(t, err)
	return data
}

func TestProducerNeedsTheWholeFirstRecord(t *testing.T) {
	l := newLog(t)
	l.add(t, environment(), exit())
	data := l.data.Bytes()
	whole := int(l.parse(t).Records[1].Offset)
	for at := range len(data) + 1 {
		got, ok := wandbfile.Producer(data[:at])
		want := ""
		if at >= whole {
			want = "otelcol-wandbsys/1.2.3"
		}
		require.Equal(t, want, got, "of %d bytes", at)
		require.Equal(t, want != "", ok, "of %d bytes", at)
	}
}

func TestProducerOfOtherFiles(t *testing.T) {
	marshal := func(r *wandbpb.Record) []byte {
		data, err := proto.Marshal(r)
		require.NoError(t, err)
		return data
	}
	good := framed(full, produced(t, "p"))
	changed := func(at int, to byte) []byte {
		data := append([]byte{}, good...)
		data[at] = to
		return data
	}
	// W&B's own header has a field that ours lacks.
	theirs := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("0.28.0"))
	theirs = protowire.AppendBytes(protowire.AppendTag(theirs, 200, protowire.BytesType), []byte{0x0a, 0})
	theirs = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), theirs)
	theirs = protowire.AppendBytes(protowire.AppendTag(nil, 21, protowire.BytesType), theirs)
	// A message's own size is known once it has a producer.
	most := wandbfile.HeaderSize - len(framed(full, produced(t, strings.Repeat("p", 200)))) + 200

	for name, tt := range map[string]struct {
		head []byte
		want string
	}{
		"a header record":            {good, "p"},
		"with a field of W&B's own":  {framed(full, theirs), "0.28.0"},
		"more bytes of any sort":     {append(changed(0, ':'), 0xff, 0, 1), "p"},
		"a producer that just fits":  {framed(full, produced(t, strings.Repeat("p", most))), strings.Repeat("p", most)},
		"one that does not":          {framed(full, produced(t, strings.Repeat("p", most+1))), ""},
		"nothing":                    {nil, ""},
		"another first byte":         {changed(0, ';'), ""},
		"another magic number":       {changed(4, 0), ""},
		"another version":            {changed(6, 1), ""},
		"a wrong checksum":           {changed(7, 0), ""},
		"a wrong payload":            {changed(len(good)-1, 0), ""},
		"a length of zero":           {changed(11, 0), ""},
		"a length beyond the file":   {changed(12, 0xff), ""},
		"the first of several parts": {framed(first, produced(t, "p")), ""},
		"the last of several parts":  {framed(last, produced(t, "p")), ""},
		"an unknown sort of chunk":   {framed(5, produced(t, "p")), ""},
		"an empty record":            {framed(full, nil), ""},
		"no message":                 {framed(full, []byte{0xff}), ""},
		"a producer of bad UTF-8":    {framed(full, []byte(strings.Replace(string(produced(t, "p")), "\x01p", "\x01\xff", 1))), ""},
		"no producer":                {framed(full, produced(t, "")), ""},
		"no version":                 {framed(full, marshal(&wandbpb.Record{RecordType: &wandbpb.Record_Header{}})), ""},
		"another record":             {framed(full, marshal(run())), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := wandbfile.Producer(tt.head[:min(len(tt.head), wandbfile.HeaderSize)])
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.want != "", ok)
		})
	}
}
