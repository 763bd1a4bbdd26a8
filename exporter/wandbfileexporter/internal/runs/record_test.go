// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

func counted(i int64, start int) Item {
	return Item{Key: "network.sent", Value: Int(i), Kind: Counter, Start: stamp(start)}
}

// silent counts from a start that it does not say.
func silent(i int64) Item { return Item{Key: "network.sent", Value: Int(i), Kind: Counter} }

func delta(i int64) Item { return Item{Key: "network.sent", Value: Int(i), Kind: Delta} }

func decimal(f float64, kind Kind) Item {
	n, ok := Float(f)
	if !ok {
		panic("not finite")
	}
	return Item{Key: "network.sent", Value: n, Kind: kind, Start: stamp(0)}
}

func TestWhatCounts(t *testing.T) {
	const large = 1<<53 + 1
	for name, test := range map[string]struct {
		items []Item
		want  []string
	}{
		"values are as they are":          {[]Item{value("network.sent", 5), value("network.sent", 3)}, []string{"5", "3"}},
		"begun in the run":                {[]Item{counted(5, 0), counted(8, 0)}, []string{"5", "8"}},
		"begun before the run":            {[]Item{counted(5, -1), counted(8, -1), counted(8, -1)}, []string{"0", "3", "3"}},
		"no start":                        {[]Item{silent(5), silent(8)}, []string{"0", "3"}},
		"a start that is said later":      {[]Item{silent(5), counted(8, -9), counted(9, -9)}, []string{"0", "3", "4"}},
		"a start that is said at times":   {[]Item{counted(5, -9), silent(8), counted(9, -9)}, []string{"0", "3", "4"}},
		"a lower value":                   {[]Item{counted(5, -1), counted(8, -1), counted(2, -1), counted(4, -1)}, []string{"0", "3", "5", "7"}},
		"a later start":                   {[]Item{counted(5, -1), counted(8, -1), counted(9, 1), counted(10, 1)}, []string{"0", "3", "12", "13"}},
		"two resets":                      {[]Item{counted(5, 0), counted(1, 1), counted(1, 2)}, []string{"5", "6", "7"}},
		"an earlier start is none":        {[]Item{counted(5, -1), counted(7, -2), counted(8, -1)}, []string{"0", "2", "3"}},
		"deltas":                          {[]Item{delta(5), delta(3), delta(0)}, []string{"5", "8", "8"}},
		"large integers":                  {[]Item{counted(large, 0), counted(large+2, 0)}, []string{"9007199254740993", "9007199254740995"}},
		"the rest of large integers":      {[]Item{counted(large, -1), counted(large+1, -1)}, []string{"0", "1"}},
		"large deltas":                    {[]Item{delta(large), delta(1)}, []string{"9007199254740993", "9007199254740994"}},
		"the largest integer":             {[]Item{delta(math.MaxInt64), delta(0)}, []string{"9223372036854775807", "9223372036854775807"}},
		"more than an integer holds":      {[]Item{delta(math.MaxInt64), delta(1)}, []string{"9223372036854775807", "9223372036854776000"}},
		"less than an integer holds":      {[]Item{delta(math.MinInt64), delta(-1)}, []string{"-9223372036854775808", "-9223372036854776000"}},
		"from the least integer":          {[]Item{counted(math.MinInt64, -1), counted(math.MaxInt64, -1)}, []string{"0", "18446744073709552000"}},
		"floats":                          {[]Item{decimal(0.5, Delta), decimal(0.25, Delta)}, []string{"0.5", "0.75"}},
		"more than a float holds":         {[]Item{decimal(math.MaxFloat64, Delta), decimal(math.MaxFloat64, Delta)}, []string{"1.7976931348623157e+308", "1.7976931348623157e+308"}},
		"an integer that becomes a float": {[]Item{counted(1, 0), decimal(1.5, Counter)}, []string{"1", "1.5"}},
		"a float that becomes an integer": {[]Item{decimal(1.5, Counter), counted(2, 0)}, []string{"1.5", "2"}},
		"a float's reset into an integer": {[]Item{decimal(1.5, Counter), counted(1, 0)}, []string{"1.5", "2.5"}},
		"small values":                    {[]Item{decimal(-0.5, Value), decimal(1e-7, Value)}, []string{"-0.5", "1e-07"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			for i, it := range test.items {
				p.write(host("a"), at(float64(i), it))
			}
			assert.Equal(t, test.want, wandbfiletest.Texts("network.sent", p.read()...))
		})
	}
}

// A sender with several connections, after an outage: records overtake each other.
func TestALateRecordIsNoReset(t *testing.T) {
	type late struct {
		second float64
		item   Item
	}
	for name, test := range map[string]struct {
		records []late
		want    []string
	}{
		"one":               {[]late{{0, counted(5, 0)}, {2, counted(9, 0)}, {1, counted(7, 0)}, {3, counted(11, 0)}}, []string{"5", "9", "7", "11"}},
		"no start":          {[]late{{0, silent(5)}, {2, silent(9)}, {1, silent(7)}, {3, silent(11)}}, []string{"0", "4", "2", "6"}},
		"before a reset":    {[]late{{0, counted(5, 0)}, {2, counted(1, 2)}, {1, counted(6, 0)}, {3, counted(3, 2)}}, []string{"5", "6", "5", "8"}},
		"before the run":    {[]late{{1, counted(5, -9)}, {0, counted(4, -9)}, {2, counted(7, -9)}}, []string{"0", "0", "2"}},
		"a reset after one": {[]late{{0, counted(5, 0)}, {2, counted(9, 0)}, {1, counted(7, 0)}, {3, counted(1, 0)}}, []string{"5", "9", "7", "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			for _, r := range test.records {
				p.write(host("a"), at(r.second, r.item))
			}
			require.NoError(t, p.Close())
			files := p.read()
			assert.Equal(t, test.want, wandbfiletest.Texts("network.sent", files...))
			assert.Equal(t, int32(test.records[len(test.records)-1].second-test.records[0].second), exitOf(files[0]).Runtime)
		})
	}
}

func TestCountersGoOnInTheNextRun(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []Item
		want          []string
	}{
		"from the last value":           {[]Item{counted(5, 0), counted(8, 0)}, []Item{counted(9, 0), counted(11, 0)}, []string{"5", "8", "1", "3"}},
		"begun before the first":        {[]Item{counted(5, -9), counted(8, -9)}, []Item{counted(9, -9)}, []string{"0", "3", "1"}},
		"a reset between":               {[]Item{counted(5, 0), counted(8, 0)}, []Item{counted(2, 0), counted(4, 0)}, []string{"5", "8", "2", "4"}},
		"a restart between":             {[]Item{counted(5, 0)}, []Item{counted(6, 1), counted(7, 1)}, []string{"5", "6", "7"}},
		"after a reset":                 {[]Item{counted(5, 0), counted(2, 1)}, []Item{counted(3, 1)}, []string{"5", "7", "1"}},
		"deltas":                        {[]Item{delta(5), delta(3)}, []Item{delta(4), delta(1)}, []string{"5", "8", "4", "5"}},
		"new ones count from their own": {[]Item{value("network.sent", 1)}, []Item{counted(5, -1), counted(7, -1)}, []string{"1", "0", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			for i, it := range test.before {
				p.write(host("a"), at(float64(i), it))
			}
			require.NoError(t, p.finish("host a"))
			for i, it := range test.after {
				p.write(host("a"), at(float64(i+9), it))
			}
			// The ids make the order of the folders: `id` is before `id-2`.
			assert.Equal(t, test.want, wandbfiletest.Texts("network.sent", p.read()...))
		})
	}
}

func TestCountersStartAnewAfterAPause(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, counted(5, -9)))
	p.write(host("a"), at(1, counted(8, -9)))
	require.NoError(t, p.Finish("host a"))
	p.write(host("a"), at(600, counted(20, -9)))
	p.write(host("a"), at(601, counted(21, -9)))
	files := p.read()
	assert.Equal(t, []string{"0", "3", "0", "1"}, wandbfiletest.Texts("network.sent", files...))
	assert.Equal(t, noon.Add(600e9), runOf(t, files[1]).StartTime)
}

func TestCountersStartAnewAfterAPauseWithoutARun(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, counted(5, -9)))
	require.NoError(t, p.finish("host a")) // as if the next one could not begin
	require.NoError(t, p.Finish("host a"))
	p.write(host("a"), at(600, counted(20, -9)))
	assert.Equal(t, []string{"0", "0"}, wandbfiletest.Texts("network.sent", p.read()...))
}

// A model that knows nothing of runs: what is counted in all of them is what the
// counter has grown.
func TestNothingIsLostBetweenRuns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		p := newPlace(t)
		var now, total int64
		start := 0
		for second := range 60 {
			grown := random.Int64N(1 << 56)
			if random.IntN(8) == 0 {
				now, start = 0, second
			}
			now += grown
			total += grown
			p.write(host("a"), at(float64(second), counted(now, start)))
			if random.IntN(6) == 0 {
				require.NoError(t, p.finish("host a"))
			}
		}
		require.NoError(t, p.Close())
		var sum int64
		for _, f := range p.read() {
			values := wandbfiletest.Texts("network.sent", f)
			last, err := strconv.ParseInt(values[len(values)-1], 10, 64)
			require.NoError(t, err)
			sum += last
		}
		assert.Equal(t, total, sum)
	}
}

func TestNumbersReadBackAsTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	special := []float64{
		0, math.Copysign(0, -1), 1e-6, 9.999999999999999e-7, 1e21, 999999999999999868928, math.MaxFloat64,
		math.SmallestNonzeroFloat64, -math.MaxFloat64, 1 << 53, 0.1, 87.5, -0.0000012345678901234567,
	}
	for i := range 20_000 {
		f := math.Float64frombits(random.Uint64())
		if i < len(special) {
			f = special[i]
		}
		n, ok := Float(f)
		assert.Equal(t, !math.IsNaN(f) && !math.IsInf(f, 0), ok)
		if !ok {
			continue
		}
		text := n.appendJSON(nil)
		require.True(t, json.Valid(text), "%s", text)
		require.LessOrEqual(t, len(text), 25)
		var back float64
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, math.Float64bits(f), math.Float64bits(back), "%s", text)
		integer := int64(random.Uint64()) >> random.IntN(64)
		require.Equal(t, strconv.FormatInt(integer, 10), string(Int(integer).appendJSON(nil)))
	}
}

func TestRememberedCountersAreBounded(t *testing.T) {
	r := &run{start: noon, counters: map[string]*counter{}}
	add := func(key string) Number { return r.count(&Item{Key: key, Value: Int(1), Kind: Delta}, false) }
	for i := range maxCounters {
		add(strconv.Itoa(i))
	}
	assert.Equal(t, Int(2), add("0"))
	assert.Equal(t, Int(1), add("one more"))
	assert.Len(t, r.counters, 1)
	assert.Equal(t, Int(1), add("0"), "it counts anew")
}
