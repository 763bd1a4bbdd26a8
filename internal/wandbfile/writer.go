// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package wandbfile writes W&B's transaction logs (run-ID.wandb): a header, and
// records in the framing of LevelDB's logs, each a message of package wandbpb.
package wandbfile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

const (
	// fileHeader is `:W&B`, the magic number 0xBEE1 with its low byte first, version 0.
	fileHeader = ":W&B\xe1\xbe\x00"
	// blockSize divides the file, its header included.
	blockSize = 32 << 10
	// chunkHeader: 4 bytes checksum, 2 bytes length, 1 byte type.
	chunkHeader = 7
)

// Types of chunks.
const (
	chunkFull = iota + 1
	chunkFirst
	chunkMiddle
	chunkLast
)

// Writer appends records to a log from its first byte on.
type Writer struct {
	w io.Writer
	// size is that of the log with all that was appended.
	size int64
	num  int64
	// framed is what w has not taken yet.
	framed []byte
	record []byte
}

// NewWriter returns a Writer of a new log. Nothing is written before Flush.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, size: int64(len(fileHeader)), framed: []byte(fileHeader)}
}

// Size returns the number of bytes of the log with all that was appended.
func (w *Writer) Size() int64 { return w.size }

// Append numbers a record and frames it, in memory. It fails if a text of the
// record is not UTF-8; the log then stays as it was.
func (w *Writer) Append(r *wandbpb.Record) error {
	r.Num = w.num + 1
	record, err := proto.MarshalOptions{}.MarshalAppend(w.record[:0], r)
	if err != nil {
		return fmt.Errorf("encoding record %d: %w", r.Num, err)
	}
	w.num, w.record = r.Num, record
	w.frame(record)
	return nil
}

// frame cuts a record into chunks, none of which crosses a block's end.
func (w *Writer) frame(rest []byte) {
	for first := true; ; first = false {
		room := blockSize - int(w.size%blockSize)
		if room < chunkHeader {
			w.put(make([]byte, room)...)
			room = blockSize
		}
		n := min(len(rest), room-chunkHeader)
		w.chunk(chunkType(first, n == len(rest)), rest[:n])
		if rest = rest[n:]; len(rest) == 0 {
			return
		}
	}
}

func chunkType(first, last bool) byte {
	switch {
	case first && last:
		return chunkFull
	case first:
		return chunkFirst
	case last:
		return chunkLast
	default:
		return chunkMiddle
	}
}

func (w *Writer) chunk(kind byte, payload []byte) {
	header := [chunkHeader]byte{6: kind}
	binary.LittleEndian.PutUint16(header[4:], uint16(len(payload)))
	w.put(header[:]...)
	w.put(payload...)
	chunk := w.framed[len(w.framed)-chunkHeader-len(payload):]
	binary.LittleEndian.PutUint32(chunk, crc32.ChecksumIEEE(chunk[6:]))
}

func (w *Writer) put(b ...byte) {
	w.framed = append(w.framed, b...)
	w.size += int64(len(b))
}

// Flush hands on what was appended. After an error the next Flush goes on with
// the byte at which the last one stopped, so that the log stays whole.
func (w *Writer) Flush() error {
	if len(w.framed) == 0 {
		return nil
	}
	n, err := w.w.Write(w.framed)
	w.framed = append(w.framed[:0], w.framed[n:]...)
	return err
}
