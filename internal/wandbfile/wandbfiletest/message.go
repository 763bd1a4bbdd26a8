// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is the content of a protobuf message and where in the record's payload it is.
type message struct {
	data []byte
	at   int
}

func (m message) skip(n int) message { return message{data: m.data[n:], at: m.at + n} }

// value is a field's content: a number, or bytes.
type value struct {
	number uint64
	bytes  message
}

// field is one field that a message may have.
type field struct {
	number   protowire.Number
	name     string
	wire     protowire.Type
	repeated bool
	set      func(value) error
}

// fault is what is wrong with a field.
type fault struct {
	at   int // in the record's payload
	path string
	err  error
}

func (f *fault) Error() string { return fmt.Sprintf("%s: %v", f.path, f.err) }

func (f *fault) Unwrap() error { return f.err }

// within adds the name of the field in which something is wrong.
func within(name string, at int, err error) error {
	if inner, ok := errors.AsType[*fault](err); ok {
		return &fault{at: inner.at, path: name + "." + inner.path, err: inner.err}
	}
	return &fault{at: at, path: name, err: err}
}

// read reads a message that has no other fields than these.
func (m message) read(fields ...field) error {
	seen := make([]int, len(fields))
	for rest := m; len(rest.data) > 0; {
		number, wire, n := protowire.ConsumeTag(rest.data)
		if n < 0 {
			return within("(tag)", rest.at, protowire.ParseError(n))
		}
		i := slices.IndexFunc(fields, func(f field) bool { return f.number == number })
		if i < 0 {
			return within(fmt.Sprintf("(field %d)", number), rest.at, errors.New("unknown"))
		}
		f, name := fields[i], fields[i].name
		if f.repeated {
			name = fmt.Sprintf("%s[%d]", name, seen[i])
		} else if seen[i] > 0 {
			return within(name, rest.at, errors.New("is there twice"))
		}
		seen[i]++
		if wire != f.wire {
			return within(name, rest.at, fmt.Errorf("wire type %d, not %d", wire, f.wire))
		}
		v, size := rest.skip(n).consume(wire)
		if size < 0 {
			return within(name, rest.at, protowire.ParseError(size))
		}
		if err := f.set(v); err != nil {
			return within(name, rest.at, err)
		}
		rest = rest.skip(n + size)
	}
	return nil
}

// consume takes a value from the front and returns its size, or a negative number for
// protowire.ParseError.
func (m message) consume(wire protowire.Type) (value, int) {
	if wire == protowire.VarintType {
		v, n := protowire.ConsumeVarint(m.data)
		return value{number: v}, n
	}
	content, n := protowire.ConsumeBytes(m.data)
	return value{bytes: message{data: content, at: m.at + n - len(content)}}, n
}

// sub is a field with a message.
func sub(number protowire.Number, name string, read func(message) error) field {
	return field{number: number, name: name, wire: protowire.BytesType, set: func(v value) error { return read(v.bytes) }}
}

// many is a repeated field with messages.
func many(number protowire.Number, name string, read func(message) error) field {
	f := sub(number, name, read)
	f.repeated = true
	return f
}

// text is a field with a string.
func text(number protowire.Number, name string, to *string) field {
	return sub(number, name, func(m message) error {
		if !utf8.Valid(m.data) {
			return fmt.Errorf("not UTF-8: %q", m.data)
		}
		*to = string(m.data)
		return nil
	})
}

// integer is a field with an integer.
func integer[T int32 | int64 | uint32 | uint64](number protowire.Number, name string, to *T) field {
	return field{number: number, name: name, wire: protowire.VarintType, set: func(v value) error {
		*to = T(v.number)
		if uint64(*to) != v.number {
			return fmt.Errorf("%d is not of type %T", v.number, *to)
		}
		return nil
	}}
}

// The seconds that a google.protobuf.Timestamp may have: the years 1 to 9999.
const (
	minSeconds = -62135596800
	maxSeconds = 253402300799
)

// when is a field with a google.protobuf.Timestamp.
func when(number protowire.Number, name string, to *time.Time) field {
	return sub(number, name, func(m message) error {
		var seconds int64
		var nanos int32
		if err := m.read(integer(1, "seconds", &seconds), integer(2, "nanos", &nanos)); err != nil {
			return err
		}
		if seconds < minSeconds || seconds > maxSeconds {
			return fmt.Errorf("seconds out of range: %d", seconds)
		}
		if nanos < 0 || nanos > 999999999 {
			return fmt.Errorf("nanos out of range: %d", nanos)
		}
		*to = time.Unix(seconds, int64(nanos)).UTC()
		return nil
	})
}

// table is a map field with strings as keys.
func table[V any](number protowire.Number, name string, to *map[string]V, value func(*V) field) field {
	return many(number, name, func(m message) error {
		var key string
		var v V
		if err := m.read(text(1, "key", &key), value(&v)); err != nil {
			return err
		}
		if _, ok := (*to)[key]; ok {
			return fmt.Errorf("the key %q is there twice", key)
		}
		if *to == nil {
			*to = make(map[string]V)
		}
		(*to)[key] = v
		return nil
	})
}
