// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// message is what the SMC's driver is asked with, and what it answers.
type message struct {
	key     uint32 // four characters, the first in the highest byte
	_       [24]byte
	size    uint32
	kind    uint32  // as key
	_       [4]byte // attributes
	result  uint8
	_       uint8 // status
	command uint8
	_       uint8
	index   uint32
	data    [32]byte
}

// The driver refuses any other size.
const messageSize = 80

var (
	_ [messageSize]byte = [unsafe.Sizeof(message{})]byte{}
	_ [28]byte          = [unsafe.Offsetof(message{}.size)]byte{}
	_ [40]byte          = [unsafe.Offsetof(message{}.result)]byte{}
	_ [44]byte          = [unsafe.Offsetof(message{}.index)]byte{}
	_ [48]byte          = [unsafe.Offsetof(message{}.data)]byte{}
)

// The commands and results of the driver.
const (
	readKey    = 5
	keyByIndex = 8
	keyInfo    = 9

	fine      = 0
	noSuchKey = 132
)

// maxKeys is far above what a Mac has (2000).
const maxKeys = 20_000

// countKey has the number of keys.
var countKey = fourBytes("#KEY")

// asker asks the driver.
type asker func(question *message) (answer message, err error)

// keySet finds the keys that are wanted, and remembers them for a time.
type keySet struct {
	again    time.Duration
	clock    func() time.Time
	isWanted func(name string) bool

	found []smcKey
	until time.Time
}

// smcKey is a key with its form.
type smcKey struct{ key, size, kind uint32 }

// read returns the values of the keys that are wanted.
func (s *keySet) read(ask asker) ([]capture.Key, error) {
	ask = checked(ask)
	if now := s.clock(); !now.Before(s.until) {
		found, err := s.find(ask)
		if err != nil {
			return nil, err
		}
		s.found, s.until = found, now.Add(s.again)
	}
	keys := make([]capture.Key, 0, len(s.found))
	var failed error
	for _, key := range s.found {
		data, err := value(ask, key)
		if err != nil {
			failed = err // others may be read
			continue
		}
		keys = append(keys, capture.Key{Name: text(key.key), Type: text(key.kind), Data: data})
	}
	if len(keys) == 0 && failed != nil {
		return nil, failed
	}
	return keys, nil
}

// find goes through all keys, which takes some 14 ms. A key that cannot be read is left
// out.
func (s *keySet) find(ask asker) ([]smcKey, error) {
	n, err := countKeys(ask)
	if err != nil {
		return nil, err
	}
	var found []smcKey
	for i := range n {
		answer, err := ask(&message{command: keyByIndex, index: i})
		if err != nil || !s.isWanted(text(answer.key)) {
			continue
		}
		if key, err := form(ask, answer.key); err == nil {
			found = append(found, key)
		}
	}
	return found, nil
}

func countKeys(ask asker) (uint32, error) {
	key, err := form(ask, countKey)
	var data []byte
	if err == nil {
		data, err = value(ask, key)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("asking how many keys there are: %w", err)
	case len(data) != 4:
		return 0, fmt.Errorf("asking how many keys there are: an answer of %d bytes", len(data))
	}
	n := binary.BigEndian.Uint32(data)
	if n > maxKeys {
		return 0, fmt.Errorf("it says that it has %d keys", n)
	}
	return n, nil
}

// form asks for the size and the type of a key.
func form(ask asker, key uint32) (smcKey, error) {
	answer, err := ask(&message{key: key, command: keyInfo})
	if err != nil {
		return smcKey{}, err
	}
	if answer.size == 0 || int(answer.size) > len(answer.data) {
		return smcKey{}, fmt.Errorf("key %s: it has %d bytes", text(key), answer.size)
	}
	return smcKey{key, answer.size, answer.kind}, nil
}

func value(ask asker, key smcKey) ([]byte, error) {
	answer, err := ask(&message{key: key.key, size: key.size, command: readKey})
	if err != nil {
		return nil, err
	}
	return answer.data[:key.size:key.size], nil
}

// checked makes errors of what the driver's answers say.
func checked(ask asker) asker {
	return func(question *message) (message, error) {
		answer, err := ask(question)
		switch {
		case err != nil:
			return message{}, err
		case answer.result == noSuchKey:
			return message{}, errors.New("there is no such key")
		case answer.result != fine:
			return message{}, fmt.Errorf("the result is %d", answer.result)
		}
		return answer, nil
	}
}

func fourBytes(name string) uint32 { return binary.BigEndian.Uint32([]byte(name)) }

func text(name uint32) string { return string(binary.BigEndian.AppendUint32(nil, name)) }
