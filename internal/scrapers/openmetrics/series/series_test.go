// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

// noon is when the first scrape of most tests is.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func stamp(t time.Time) pcommon.Timestamp { return pcommon.NewTimestampFromTime(t) }

// after is so long after noon.
func after(d time.Duration) pcommon.Timestamp { return stamp(noon.Add(d)) }

// told is a start time in the exposition, so long after noon.
func told(d time.Duration) exposition.Time {
	return exposition.Time{Millis: noon.Add(d).UnixMilli(), Known: true}
}

var untold exposition.Time

func labelled(value string) exposition.Labels {
	return exposition.Labels{{Name: "l", Value: value}}
}

// numbers are the indices of series that a scrape shows; -1 is none.
func numbers(t *Tracker, at pcommon.Timestamp, metric string, values ...string) []int {
	t.Begin(at)
	defer t.End()
	n, _ := t.Name(metric, true)
	var got []int
	for _, v := range values {
		got = append(got, indexOf(n.Gauge(labelled(v))))
	}
	return got
}

func indexOf(s *Series) int {
	if s == nil {
		return none
	}
	i, ok := s.Index()
	if !ok {
		return none
	}
	return i
}

func TestSeriesAreNumberedPerNameAsTheyAreSeen(t *testing.T) {
	tracker := New(Limits{}, false)
	assert.Equal(t, []int{0, 1, 0, 2}, numbers(tracker, after(0), "a", "x", "y", "x", "z"))
	assert.Equal(t, []int{0, 1}, numbers(tracker, after(1), "b", "z", "x"))
	assert.Equal(t, []int{2, 3, 0}, numbers(tracker, after(2), "a", "z", "new", "x"))
}

func TestNumbersAreKeptForGood(t *testing.T) {
	tracker := New(Limits{}, false)
	numbers(tracker, after(0), "a", "x", "y")
	for hour := range 48 {
		numbers(tracker, after(time.Duration(hour)*time.Hour), "b", "x")
	}
	assert.Equal(t, []int{2, 1, 0}, numbers(tracker, after(49*time.Hour), "a", "z", "y", "x"))
}

func TestLabelSetsAreToldApartByAllOfThem(t *testing.T) {
	tracker := New(Limits{}, false)
	tracker.Begin(after(0))
	n, fresh := tracker.Name("m", true)
	assert.True(t, fresh)
	again, fresh := tracker.Name("m", true)
	assert.False(t, fresh)
	assert.Same(t, n, again)
	for i, ls := range []exposition.Labels{
		nil,
		{{Name: "a", Value: ""}},
		{{Name: "a", Value: "1;b=2"}},
		{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
		{{Name: "ab", Value: "12"}},
		{{Name: "a", Value: "b12"}},
	} {
		assert.Equal(t, i, indexOf(n.Gauge(ls)))
	}
}

func TestNumbersOfANameAreBounded(t *testing.T) {
	tracker := New(Limits{Indices: 2}, false)
	assert.Equal(t, []int{0, 1}, numbers(tracker, after(0), "a", "x", "y"))
	_, found := tracker.NoIndex()
	assert.False(t, found, "there is one for each")
	assert.Equal(t, []int{none, none, 0, 1}, numbers(tracker, after(1), "a", "z", "w", "x", "y"))
	assert.Equal(t, []int{0, 1, none}, numbers(tracker, after(1), "b", "1", "2", "3"))
	metric, found := tracker.NoIndex()
	assert.True(t, found)
	assert.Equal(t, "a", metric)
	numbers(tracker, after(2), "a", "v")
	_, found = tracker.NoIndex()
	assert.False(t, found, "it is told once")
}

func TestNumbersOfAnEndpointAreBounded(t *testing.T) {
	tracker := New(Limits{AllIndices: 3}, false)
	assert.Equal(t, []int{0, 1}, numbers(tracker, after(0), "a", "x", "y"))
	assert.Equal(t, []int{0, none}, numbers(tracker, after(0), "b", "x", "y"))
	assert.Equal(t, []int{none}, numbers(tracker, after(0), "c", "x"))
	assert.Equal(t, []int{1, none}, numbers(tracker, after(0), "a", "y", "z"))
	metric, _ := tracker.NoIndex()
	assert.Equal(t, "b", metric)
}

func TestNamesThatAreNotNumberedHaveTheirOwnSeries(t *testing.T) {
	tracker := New(Limits{}, false)
	tracker.Begin(after(0))
	n, _ := tracker.Name("m", false)
	s, _ := n.Cumulative(labelled("x"), 1, untold, n.tracker.now)
	assert.Equal(t, none, indexOf(s))
	assert.Nil(t, n.Gauge(labelled("y")))
	_, found := tracker.NoIndex()
	assert.False(t, found, "nothing was to be numbered")
	numbered, fresh := tracker.Name("m", true)
	assert.True(t, fresh)
	assert.Equal(t, 0, indexOf(numbered.Gauge(labelled("x"))))
}

// step is a scrape that shows a series, so long after noon.
type step struct {
	at    time.Duration
	value float64
	told  exposition.Time
	// start is what is expected, as a time after noon.
	start time.Duration
	// absent is a scrape that does not show it.
	absent bool
}

func TestStartTimes(t *testing.T) {
	const s, m = time.Second, time.Minute
	for name, steps := range map[string][]step{
		"the first scrape that saw it": {{at: 0, value: 5, start: 0}, {at: 15 * s, value: 5, start: 0}, {at: 30 * s, value: 9, start: 0}},
		"what the endpoint tells":      {{at: 0, value: 5, told: told(-m), start: -m}, {at: 15 * s, value: 6, told: told(-m), start: -m}},
		"told later on":                {{at: 0, value: 5, start: 0}, {at: 15 * s, value: 6, told: told(-m), start: -m}},
		"told at first only":           {{at: 0, value: 5, told: told(-m), start: -m}, {at: 15 * s, value: 6, start: -m}},
		"told anew":                    {{at: 0, value: 5, told: told(-m), start: -m}, {at: 15 * s, value: 6, told: told(10 * s), start: 10 * s}},
		"now":                          {{at: 0, value: 5, told: told(0), start: 0}},
		"in the future":                {{at: 0, value: 5, told: told(s), start: 0}, {at: 15 * s, value: 5, told: told(s), start: s}},
		"far in the future":            {{at: 0, value: 5, told: exposition.Time{Millis: 1 << 62, Known: true}, start: 0}},
		"before 1970":                  {{at: 0, value: 5, told: exposition.Time{Millis: -5, Known: true}, start: 0}},
		"zero":                         {{at: 0, value: 5, told: exposition.Time{Known: true}, start: 0}},
		"a lower value": {
			{at: 0, value: 5, start: 0},
			{at: 15 * s, value: 7, start: 0},
			{at: 30 * s, value: 6, start: 15 * s},
			{at: 45 * s, value: 8, start: 15 * s},
			{at: 60 * s, value: 0, start: 45 * s},
		},
		"a lower value although the endpoint tells the old time": {
			{at: 0, value: 5, told: told(-m), start: -m},
			{at: 15 * s, value: 4, told: told(-m), start: 0},
			{at: 30 * s, value: 6, told: told(-m), start: 0},
		},
		"a lower value and a new time": {{at: 0, value: 5, told: told(-m), start: -m}, {at: 15 * s, value: 1, told: told(12 * s), start: 12 * s}},
		"it is missing for a while": {
			{at: 0, value: 5, start: 0},
			{at: m, absent: true},
			{at: 5 * m, value: 6, start: 0},
		},
		"it is missing for a while, and lower then": {{at: 0, value: 5, start: 0}, {at: 2 * m, absent: true}, {at: 3 * m, value: 4, start: 2 * m}},
		"no scrape for a while":                     {{at: 0, value: 5, start: 0}, {at: 5 * m, value: 5, start: 0}},
		"it is missing for long": {
			{at: 0, value: 5, start: 0},
			{at: 3 * m, absent: true},
			{at: 5*m + 1, value: 6, start: 5*m + 1},
			{at: 6 * m, value: 7, start: 5*m + 1},
		},
		"it is missing for long, and told": {
			{at: 0, value: 5, told: told(-m), start: -m},
			{at: 3 * m, absent: true},
			{at: 6 * m, absent: true},
			{at: 9 * m, value: 6, told: told(-m), start: -m},
		},
		"it is missing for long, and no longer told": {
			{at: 0, value: 5, told: told(-m), start: -m},
			{at: m, absent: true},
			{at: 9 * m, value: 6, start: 9 * m},
		},
		"no scrape for long":                    {{at: 0, value: 5, start: 0}, {at: 9 * m, value: 6, start: 0}, {at: 30 * m, value: 7, start: 0}},
		"no scrape for long, and a lower value": {{at: 0, value: 5, start: 0}, {at: 9 * m, value: 4, start: 0}, {at: 30 * m, value: 3, start: 9 * m}},
		"the clock is set back": {
			{at: 0, value: 5, start: 0},
			{at: -4 * m, value: 6, start: -4 * m},
			{at: 0, value: 7, start: -4 * m},
		},
		"the clock is set back, and a lower value":   {{at: 0, value: 5, start: 0}, {at: -10 * m, value: 4, start: -10 * m}},
		"the clock is set back, and a told time too": {{at: 0, value: 5, told: told(-m), start: -m}, {at: -10 * m, value: 6, told: told(-m), start: -10 * m}},
	} {
		for _, numbered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, numbered %v", name, numbered), func(t *testing.T) { checkSteps(t, numbered, steps) })
		}
	}
}

func checkSteps(t *testing.T, numbered bool, steps []step) {
	t.Helper()
	tracker := New(Limits{}, false)
	for i, s := range steps {
		tracker.Begin(after(s.at))
		n, _ := tracker.Name("m", numbered)
		if !s.absent {
			_, start := n.Cumulative(labelled("x"), s.value, s.told, n.tracker.now)
			assert.Equal(t, noon.Add(s.start), start.AsTime(), "step %d", i)
		}
		tracker.End()
	}
}

// A counter whose value is not finite for a while is there all the same.
func TestASeriesWithoutValueIsNotMissing(t *testing.T) {
	tracker := New(Limits{}, false)
	for i := range 5 {
		tracker.Begin(after(time.Duration(i) * 4 * time.Minute))
		n, _ := tracker.Name("m", true)
		if i == 0 || i == 4 {
			_, start := n.Cumulative(labelled("x"), float64(i), untold, n.tracker.now)
			assert.Equal(t, after(0), start)
		} else {
			assert.Equal(t, 0, indexOf(n.Gauge(labelled("x"))))
		}
		tracker.End()
	}
}

// show is a scrape of series without number.
func show(t *Tracker, at pcommon.Timestamp, values ...string) {
	t.Begin(at)
	n, _ := t.Name("m", false)
	for _, v := range values {
		n.Cumulative(labelled(v), 1, untold, n.tracker.now)
	}
	t.End()
}

func known(t *Tracker) []string {
	var all []string
	for _, n := range t.names {
		for _, s := range n.series {
			all = append(all, s.Labels[0].Value)
		}
	}
	slices.Sort(all)
	return all
}

func TestSeriesWithoutNumberAreForgotten(t *testing.T) {
	tracker := New(Limits{}, true)
	show(tracker, after(0), "x", "y")
	show(tracker, after(2*time.Minute), "y")
	show(tracker, after(5*time.Minute), "z")
	assert.Equal(t, []string{"x", "y", "z"}, known(tracker), "not before five minutes have passed")
	show(tracker, after(6*time.Minute+1), "z")
	assert.Equal(t, []string{"y", "z"}, known(tracker))
	assert.Equal(t, 2, tracker.others)
	numbers(tracker, after(time.Hour), "other", "x")
	assert.Equal(t, []string{"x"}, known(tracker))
	assert.Len(t, tracker.names, 1, "nor is its name kept")
	assert.Zero(t, tracker.others)
}

func TestSeriesWithoutNumberAreBounded(t *testing.T) {
	tracker := New(Limits{Others: 3}, true)
	show(tracker, after(0), "a", "b")
	show(tracker, after(time.Second), "c")
	assert.Equal(t, []string{"a", "b", "c"}, known(tracker))
	show(tracker, after(2*time.Second), "d", "e", "f", "g")
	assert.Equal(t, []string{"d", "e", "f", "g"}, known(tracker), "what the scrape shows is kept")
	assert.Equal(t, 4, tracker.others)
}

func TestAClockThatIsSetBackLosesNoSeries(t *testing.T) {
	tracker := New(Limits{}, true)
	show(tracker, after(time.Hour), "a", "b")
	show(tracker, after(0), "a")
	show(tracker, after(10*time.Minute), "a")
	assert.Equal(t, []string{"a", "b"}, known(tracker))
	show(tracker, after(3*time.Hour), "a")
	assert.Equal(t, []string{"a"}, known(tracker))
}

func gone(t *Tracker) []string {
	var all []string
	t.Gone(func(n *Name, s *Series) { all = append(all, n.name+"/"+s.Labels[0].Value) })
	slices.Sort(all)
	return all
}

func TestSeriesThatAreGoneAreToldOnce(t *testing.T) {
	tracker := New(Limits{}, true)
	for i, tt := range []struct {
		at         time.Duration
		show, gone []string
	}{
		{at: 0, show: []string{"x", "y"}},
		{at: time.Second, show: []string{"y"}, gone: []string{"a/x", "m/x"}},
		{at: 2 * time.Second, show: []string{"y"}},
		{at: 3 * time.Second, show: []string{"x", "y"}},
		{at: time.Hour, show: nil, gone: []string{"a/x", "a/y", "m/x", "m/y"}},
		{at: 2 * time.Hour, show: []string{"x"}},
		{at: time.Hour, show: []string{"y"}, gone: []string{"a/x", "m/x"}}, // the clock was set back
		{at: time.Hour, show: nil},                                         // nor is it a scrape later
	} {
		tracker.Begin(after(tt.at))
		numbered, _ := tracker.Name("a", true)
		other, _ := tracker.Name("m", false)
		for _, v := range tt.show {
			numbered.Gauge(labelled(v))
			other.Cumulative(labelled(v), 1, untold, other.tracker.now)
			other.Cumulative(labelled(v), 1, untold, other.tracker.now)
		}
		assert.Equal(t, tt.gone, gone(tracker), "step %d", i)
		tracker.End()
	}
}

func TestLabelsAreKeptForMarkersOnly(t *testing.T) {
	for _, keep := range []bool{true, false} {
		tracker := New(Limits{}, keep)
		tracker.Begin(after(0))
		n, _ := tracker.Name("m", true)
		s := n.Gauge(labelled("x"))
		require.NotNil(t, s)
		if keep {
			assert.Equal(t, labelled("x"), s.Labels)
		} else {
			assert.Empty(t, s.Labels)
		}
	}
}
