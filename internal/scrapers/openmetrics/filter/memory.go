// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package filter

import "strings"

// spare is how many texts that no longer occur are kept, beside as many as occur.
const spare = 64

// memory remembers the result of a function of a text. It has no fixed limit, below
// which a large endpoint would always miss: it holds what occurred in a scrape, and
// forgets when more than half of it did not.
type memory[T any] struct {
	known map[string]*entry[T]
	used  int
}

type entry[T any] struct {
	result T
	scrape uint64
}

func newMemory[T any]() memory[T] { return memory[T]{known: map[string]*entry[T]{}} }

func (m *memory[T]) get(scrape uint64, text string, compute func(string) T) T {
	e := m.known[text]
	if e == nil {
		e = &entry[T]{result: compute(text), scrape: scrape}
		m.known[strings.Clone(text)] = e // text is a part of the whole body
		m.used++
	}
	if e.scrape != scrape {
		e.scrape = scrape
		m.used++
	}
	return e.result
}

// sweep ends a scrape.
func (m *memory[T]) sweep(scrape uint64) {
	if len(m.known) > 2*m.used+spare {
		for text, e := range m.known {
			if e.scrape != scrape {
				delete(m.known, text)
			}
		}
	}
	m.used = 0
}
