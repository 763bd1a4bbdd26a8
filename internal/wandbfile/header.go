// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfile

import (
	"encoding/binary"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

// HeaderSize is how many bytes of a log are enough for Producer.
const HeaderSize = 512

// Producer tells who wrote a log, from its first HeaderSize bytes. ok is false for
// what is no log, or one that does not begin with a record that says it.
func Producer(head []byte) (producer string, ok bool) {
	const start = len(fileHeader) + chunkHeader
	if len(head) < start || string(head[:len(fileHeader)]) != fileHeader {
		return "", false
	}
	chunk := head[len(fileHeader):]
	end := start + int(binary.LittleEndian.Uint16(chunk[4:]))
	if chunk[6] != chunkFull || end > len(head) {
		return "", false
	}
	if crc32.ChecksumIEEE(head[start-1:end]) != binary.LittleEndian.Uint32(chunk) {
		return "", false
	}
	var r wandbpb.Record
	if proto.Unmarshal(head[start:end], &r) != nil {
		return "", false
	}
	producer = r.GetHeader().GetVersionInfo().GetProducer()
	return producer, producer != ""
}
