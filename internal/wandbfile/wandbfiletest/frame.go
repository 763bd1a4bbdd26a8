// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	blockSize       = 32768
	chunkHeaderSize = 7
	fileHeader      = ":W&B\xe1\xbe\x00"
)

// The types of chunks.
const (
	full   = 1
	first  = 2
	middle = 3
	last   = 4
)

// errCut is returned where the data end before what is read does.
var errCut = errors.New("cut")

// chunk is a part of a record, from its header on.
type chunk struct {
	at, end int // in the file
	sum     uint32
	kind    byte
}

func (c chunk) payloadAt() int { return c.at + chunkHeaderSize }

func (c chunk) starts() bool { return c.kind == full || c.kind == first }

func (c chunk) ends() bool { return c.kind == full || c.kind == last }

// payload returns the checked payload.
func (c chunk) payload(data []byte) ([]byte, error) {
	if c.end > len(data) {
		return nil, errCut
	}
	if sum := crc32.ChecksumIEEE(data[c.at+6 : c.end]); sum != c.sum {
		return nil, fmt.Errorf("a chunk's checksum is %08x, its bytes have %08x", c.sum, sum)
	}
	return data[c.payloadAt():c.end], nil
}

// chunkAt reads the header of a chunk.
func chunkAt(data []byte, at int) (chunk, error) {
	if at+chunkHeaderSize > len(data) {
		return chunk{}, errCut
	}
	length := int(binary.LittleEndian.Uint16(data[at+4:]))
	c := chunk{at: at, end: at + chunkHeaderSize + length, sum: binary.LittleEndian.Uint32(data[at:]), kind: data[at+6]}
	if c.kind < full || c.kind > last {
		return chunk{}, fmt.Errorf("unknown chunk type %d", c.kind)
	}
	if c.end > blockEnd(at) {
		return chunk{}, fmt.Errorf("a chunk of %d bytes crosses the end of the block at byte %d", length, blockEnd(at))
	}
	return c, nil
}

// blockEnd is where the block with a byte ends.
func blockEnd(at int) int { return (at/blockSize + 1) * blockSize }

// afterFilling is where the next chunk starts: here, or in the next block.
func afterFilling(at int) int {
	if end := blockEnd(at); end-at < chunkHeaderSize {
		return end
	}
	return at
}

// raw is a record before it is decoded.
type raw struct {
	offset, end int // in the file
	payload     []byte
	parts       []part
}

// part tells where in the file a piece of a payload is.
type part struct{ at, offset int }

// add appends the payload of a chunk.
func (r *raw) add(c chunk, payload []byte) {
	if c.starts() {
		r.offset = c.at
	}
	r.parts = append(r.parts, part{at: len(r.payload), offset: c.payloadAt()})
	r.payload = append(r.payload, payload...)
	r.end = c.end
}

// locate is where in the file a byte of the payload is.
func (r *raw) locate(at int) int {
	offset := r.offset
	for _, p := range r.parts {
		if p.at <= at {
			offset = p.offset + at - p.at
		}
	}
	return offset
}

// checkFileHeader compares as much of the header as there is.
func checkFileHeader(data []byte) error {
	n := min(len(data), len(fileHeader))
	if string(data[:n]) != fileHeader[:n] {
		return fmt.Errorf("the file starts with %q, not with %q", data[:n], fileHeader)
	}
	if n < len(fileHeader) {
		return errCut
	}
	return nil
}

// Parse reads a transaction log and accounts for every byte. A file that ends in the
// middle of a record is no error; anything else that the form does not have is, and so
// are records out of order and values that W&B cannot use.
func Parse(data []byte) (*File, error) {
	f := &File{}
	err := checkFileHeader(data)
	if err == nil {
		f.Good = int64(len(fileHeader))
	}
	var o order
	for err == nil && f.Good < int64(len(data)) {
		err = f.read(data, &o)
	}
	if errors.Is(err, errCut) {
		f.Truncated, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// read reads the record after the last one.
func (f *File) read(data []byte, o *order) error {
	r, err := readRaw(data, int(f.Good))
	var record Record
	if err == nil {
		record, err = r.decode()
	}
	if err == nil {
		err = o.check(&record)
	}
	if err != nil {
		return fmt.Errorf("record %d, %w", len(f.Records)+1, err)
	}
	f.Records = append(f.Records, record)
	f.Good = int64(r.end)
	return nil
}

// readRaw reads a record and the filling before it and within it.
func readRaw(data []byte, at int) (*raw, error) {
	r := &raw{}
	for {
		start := afterFilling(at)
		if filling := data[at:min(start, len(data))]; len(bytes.Trim(filling, "\x00")) > 0 {
			return nil, fmt.Errorf("byte %d: the rest of a block is not zeros: % x", at, filling)
		}
		c, payload, err := r.next(data, start)
		if err != nil {
			return nil, fmt.Errorf("byte %d: %w", start, err)
		}
		r.add(c, payload)
		if c.ends() {
			return r, nil
		}
		at = c.end
	}
}

// next reads a chunk that may come next in a record.
func (r *raw) next(data []byte, at int) (chunk, []byte, error) {
	c, err := chunkAt(data, at)
	if err != nil {
		return c, nil, err
	}
	if started := len(r.parts) > 0; started && c.starts() {
		return c, nil, fmt.Errorf("a chunk of type %d within a record", c.kind)
	} else if !started && !c.starts() {
		return c, nil, fmt.Errorf("a chunk of type %d where a record must start", c.kind)
	}
	payload, err := c.payload(data)
	return c, payload, err
}

// Recover reads what there is, as W&B's reader does: where the data end within a record
// it ends, too, and after a wrong chunk it goes on in the next block. Records that Parse
// could not read for their content are left out; their order is not looked at.
func Recover(data []byte) []Record {
	if checkFileHeader(data) != nil {
		return nil
	}
	var r recovery
	for at := len(fileHeader); ; {
		at = afterFilling(at)
		c, err := chunkAt(data, at)
		var payload []byte
		if err == nil {
			payload, err = c.payload(data)
		}
		switch {
		case errors.Is(err, errCut):
			return r.records
		case err != nil:
			r.open, at = nil, blockEnd(at)
		default:
			r.add(c, payload)
			at = c.end
		}
	}
}

// recovery puts chunks together.
type recovery struct {
	records []Record
	open    *raw // nil where no record has started
}

func (r *recovery) add(c chunk, payload []byte) {
	if c.starts() {
		r.open = &raw{}
	}
	if r.open == nil {
		return
	}
	r.open.add(c, payload)
	if !c.ends() {
		return
	}
	if record, err := r.open.decode(); err == nil {
		r.records = append(r.records, record)
	}
	r.open = nil
}

// order checks the order of a file's records.
type order struct {
	count int64
	rank  int // of the last one
}

func (o *order) check(r *Record) error {
	o.count++
	rank, _ := r.rank() // decode has seen that it has one
	var err error
	switch {
	case o.count <= 2 && rank != int(o.count-1):
		err = fmt.Errorf("%s where %s must be", kinds[rank], kinds[o.count-1])
	case o.count > 2 && (rank < o.rank || rank == o.rank && r.Stats == nil):
		err = fmt.Errorf("%s after %s", kinds[rank], kinds[o.rank])
	case r.Num != o.count:
		err = fmt.Errorf("num: is %d", r.Num)
	}
	if err != nil {
		return fmt.Errorf("byte %d: %w", r.Offset, err)
	}
	o.rank = rank
	return nil
}
