// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"slices"
	"sync"
)

// Measured tells which GPUs the families of GPUs measure themselves, so that a
// source that relays the figures of others does not give the same ones a second
// time. A nil Measured knows that there are none. It may be used from several
// goroutines.
type Measured struct {
	mu sync.RWMutex
	// families has those that are on, with what they measure once they told it.
	families map[string]told
}

type told struct {
	known bool
	uuids []string
}

// Expect says that a family is on: until it tells what it measures, nothing is
// known.
func (m *Measured) Expect(family string) { m.put(family, told{}) }

// Set says which GPUs a family measures. The UUID of one that does not tell it is
// empty; MIG instances are not listed, but their board is. The slice is kept.
func (m *Measured) Set(family string, uuids []string) {
	m.put(family, told{known: true, uuids: uuids})
}

func (m *Measured) put(family string, t told) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.families == nil {
		m.families = map[string]told{}
	}
	m.families[family] = t
}

// Known says that every family that is on has told what it measures.
func (m *Measured) Known() bool {
	return !m.some(func(t told) bool { return !t.known })
}

// Has says that a family measures the GPU of that UUID.
func (m *Measured) Has(uuid string) bool {
	return uuid != "" && m.some(func(t told) bool { return slices.Contains(t.uuids, uuid) })
}

// Any says that a family measures a GPU.
func (m *Measured) Any() bool {
	return m.some(func(t told) bool { return len(t.uuids) > 0 })
}

func (m *Measured) some(is func(told) bool) bool {
	if m == nil {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, t := range m.families {
		if is(t) {
			return true
		}
	}
	return false
}
