// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

// model does what a tracker does with a list.
type model struct {
	limits        Limits
	now, before   pcommon.Timestamp
	swept         pcommon.Timestamp
	series        []*modelled
	indices       map[string]int
	noIndex, told string
}

type modelled struct {
	name, label    string
	numbered       bool
	index          int
	start, created pcommon.Timestamp
	value          float64
	seen           pcommon.Timestamp
}

func (m *model) find(name, label string, numbered bool) *modelled {
	i := slices.IndexFunc(m.series, func(s *modelled) bool {
		return s.name == name && s.label == label && s.numbered == numbered
	})
	if i < 0 {
		return nil
	}
	return m.series[i]
}

func (m *model) allIndices() (n int) {
	for _, of := range m.indices {
		n += of
	}
	return n
}

// show returns the index and the start that a series should have.
func (m *model) show(name, label string, numbered, cumulative bool, value float64, created exposition.Time) (int, pcommon.Timestamp) {
	s := m.find(name, label, numbered)
	if s == nil {
		s = &modelled{name: name, label: label, numbered: numbered, index: none}
		hasIndex := numbered && m.indices[name] < m.limits.Indices && m.allIndices() < m.limits.AllIndices
		switch {
		case hasIndex:
			s.index = m.indices[name]
			m.indices[name]++
		case numbered && m.noIndex == "":
			m.noIndex = name
		}
		if !hasIndex && !cumulative {
			return none, 0
		}
		m.series = append(m.series, s)
	}
	if s.seen != m.before && m.now > s.seen && m.now.AsTime().Sub(s.seen.AsTime()) > memoryTime {
		s.start, s.created, s.value = 0, 0, 0
	}
	s.seen = m.now
	if !cumulative {
		return s.index, 0
	}
	at := pcommon.Timestamp(0)
	if created.Known && created.Millis > 0 && created.Millis*1e6 <= int64(m.now) {
		at = pcommon.Timestamp(created.Millis * 1e6)
	}
	switch {
	case at != 0 && at != s.created:
		s.start, s.created = at, at
	case s.start == 0:
		s.start = m.now
	case value < s.value && m.before != 0:
		s.start = m.before
	}
	s.value = value
	s.start = min(s.start, m.now)
	return s.index, s.start
}

// end forgets what a tracker does.
func (m *model) end() {
	m.before = m.now
	others := 0
	for _, s := range m.series {
		if s.index == none {
			others++
		}
	}
	back := m.now < m.swept
	switch {
	case others > m.limits.Others:
		m.forget(0)
	case m.swept == 0:
		m.swept = m.now
	case back || m.now.AsTime().Sub(m.swept.AsTime()) > sweepTime:
		m.forget(memoryTime)
	}
}

func (m *model) forget(age time.Duration) {
	m.swept = m.now
	m.series = slices.DeleteFunc(m.series, func(s *modelled) bool {
		return s.index == none && m.now.AsTime().Sub(s.seen.AsTime()) > age
	})
}

func (m *model) gone() []string {
	var all []string
	for _, s := range m.series {
		if s.seen == m.before {
			all = append(all, s.name+"/"+s.label)
		}
	}
	slices.Sort(all)
	return all
}

// The clock goes forward by steps of all sizes, and now and then back. It never comes
// back to the same nanosecond.
func (m *model) advance(random *rand.Rand) {
	steps := []time.Duration{time.Second, 15 * time.Second, time.Minute, 4 * time.Minute, 6 * time.Minute, 2 * time.Hour, -time.Second, -time.Hour}
	m.now = stamp(m.now.AsTime().Add(steps[random.IntN(len(steps))] + time.Duration(random.IntN(1e6))))
}

func TestTrackerDoesWhatItsModelDoes(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		limits := Limits{Indices: 1 + random.IntN(6), AllIndices: 1 + random.IntN(12), Others: 5 + random.IntN(20)}
		m := &model{limits: limits, now: after(0), indices: map[string]int{}}
		tracker := New(limits, true)
		for scrape := range 40 {
			compareScrape(t, random, tracker, m)
			require.Equal(t, m.gone(), gone(tracker), "seed %d, scrape %d", seed, scrape)
			tracker.End()
			told, _ := tracker.NoIndex()
			m.told += told
			m.end()
			m.advance(random)
		}
		require.Equal(t, m.noIndex, m.told, "seed %d", seed)
	}
}

// compareScrape shows both the same series.
func compareScrape(t *testing.T, random *rand.Rand, tracker *Tracker, m *model) {
	t.Helper()
	tracker.Begin(m.now)
	for range random.IntN(12) {
		name, label := strconv.Itoa(random.IntN(3)), strconv.Itoa(random.IntN(6))
		numbered, cumulative := random.IntN(3) > 0, random.IntN(3) > 0
		value := float64(random.IntN(4))
		var created exposition.Time
		if random.IntN(4) == 0 {
			created = told(time.Duration(random.IntN(3)-1) * time.Hour)
		}
		index, start := m.show(name, label, numbered, cumulative, value, created)
		n, _ := tracker.Name(name, numbered)
		if !cumulative {
			require.Equal(t, index, indexOf(n.Gauge(labelled(label))))
			continue
		}
		s, got := n.Cumulative(labelled(label), value, created, n.tracker.now)
		require.Equal(t, index, indexOf(s))
		require.Equal(t, start.AsTime(), got.AsTime())
	}
}
