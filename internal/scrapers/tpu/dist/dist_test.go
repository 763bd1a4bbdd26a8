// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

func exponential(finite int, growth, scale float64) Buckets {
	return Buckets{Kind: Exponential, Finite: finite, Growth: growth, Scale: scale}
}

func linear(finite int, width, offset float64) Buckets {
	return Buckets{Kind: Linear, Finite: finite, Width: width, Offset: offset}
}

func explicit(bounds ...float64) Buckets { return Buckets{Kind: Explicit, Explicit: bounds} }

func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		buckets Buckets
		want    []float64
	}{
		"exponential":            {exponential(3, 2, 100), []float64{100, 200, 400, 800}},
		"exponential, no finite": {exponential(0, 2, 100), []float64{100}},
		"linear":                 {linear(2, 5, -5), []float64{-5, 0, 5}},
		"explicit":               {explicit(1, 10), []float64{1, 10}},
		"none":                   {Buckets{}, nil},
		"growth of 1":            {exponential(3, 1, 100), nil},
		"scale of 0":             {exponential(3, 2, 0), nil},
		"beyond a float64":       {exponential(3, 1e300, 1), nil},
		"growth is no number":    {exponential(3, math.NaN(), 1), nil},
		"width of 0":             {linear(2, 0, 0), nil},
		"width too small to see": {linear(2, 1e-20, 1), nil},
		"negative number":        {linear(-1, 1, 0), nil},
		"no explicit one":        {explicit(), nil},
		"explicit, descending":   {explicit(1, 3, 2), nil},
		"explicit, no number":    {explicit(1, math.NaN()), nil},
		"explicit, infinite":     {explicit(1, math.Inf(1)), nil},
		"too many":               {linear(999, 1, 0), nil},
		"too many explicit":      {Buckets{Kind: Explicit, Explicit: make([]float64, 1000)}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, tt.buckets.Bounds()) })
	}
	most := linear(998, 1, 0)
	assert.Len(t, most.Bounds(), 999)
}

func TestStats(t *testing.T) {
	some := optional.Some[float64]
	for name, tt := range map[string]struct {
		of   Distribution
		want Stats
	}{
		"nothing was counted": {Distribution{Buckets: explicit(1), Counts: []int64{1, 1}}, Stats{}},
		"mean is no number":   {Distribution{Count: 1, Mean: math.NaN(), Buckets: explicit(1), Counts: []int64{1, 1}}, Stats{}},
		"count makes no sense": {
			Distribution{Count: -1, Mean: 1, Buckets: explicit(1), Counts: []int64{1, 1}}, Stats{},
		},
		"no buckets":             {Distribution{Count: 4, Mean: 2}, Stats{Mean: some(2)}},
		"buckets are empty":      {Distribution{Count: 4, Mean: 2, Buckets: explicit(1, 2), Counts: []int64{0, 0, 0}}, Stats{Mean: some(2)}},
		"more counts than fit":   {Distribution{Count: 4, Mean: 2, Buckets: explicit(1), Counts: []int64{1, 1, 1}}, Stats{Mean: some(2)}},
		"a count below 0":        {Distribution{Count: 4, Mean: 2, Buckets: explicit(1), Counts: []int64{-1, 5}}, Stats{Mean: some(2)}},
		"a count beyond float64": {Distribution{Count: 4, Mean: 2, Buckets: explicit(1), Counts: []int64{math.MaxInt64, math.MaxInt64}}, Stats{Mean: some(2)}},
		"zeros at the end are missing": {
			Distribution{Count: 10, Mean: 15, Buckets: explicit(10, 20, 30), Counts: []int64{0, 10}},
			Stats{Mean: some(15), P50: some(15), P90: some(19), P95: some(19.5), P99: some(19.9), P999: some(19.99)},
		},
		"below the first bound, from 0 on": {
			Distribution{Count: 10, Mean: 5, Buckets: explicit(10), Counts: []int64{10}},
			Stats{Mean: some(5), P50: some(5), P90: some(9), P95: some(9.5), P99: some(9.9), P999: some(9.99)},
		},
		"below the first bound, from the smallest on": {
			Distribution{Count: 10, Mean: 5, Min: 8, Buckets: explicit(10), Counts: []int64{10}},
			Stats{Mean: some(5), P50: some(9), P90: some(9.8), P95: some(9.9), P99: some(9.98), P999: some(9.998)},
		},
		"above the last bound": {
			Distribution{Count: 10, Mean: 5, Buckets: explicit(10), Counts: []int64{0, 10}},
			Stats{Mean: some(5), P50: some(10), P90: some(10), P95: some(10), P99: some(10), P999: some(10)},
		},
		"above the last bound, up to the largest": {
			Distribution{Count: 10, Mean: 5, Max: 20, Buckets: explicit(10), Counts: []int64{0, 10}},
			Stats{Mean: some(5), P50: some(15), P90: some(19), P95: some(19.5), P99: some(19.9), P999: some(19.99)},
		},
		"within what was seen": {
			Distribution{Count: 10, Mean: 5, Min: 12, Max: 13, Buckets: explicit(10, 20), Counts: []int64{0, 10}},
			Stats{Mean: some(5), P50: some(13), P90: some(13), P95: some(13), P99: some(13), P999: some(13)},
		},
		"a smallest above the largest means nothing": {
			Distribution{Count: 10, Mean: 5, Min: 13, Max: 12, Buckets: explicit(10, 20), Counts: []int64{0, 10}},
			Stats{Mean: some(5), P50: some(15), P90: some(19), P95: some(19.5), P99: some(19.9), P999: some(19.99)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.of.Stats()
			requireNear(t, tt.want, got)
		})
	}
}

func values(s Stats) []optional.Of[float64] {
	return []optional.Of[float64]{s.Mean, s.P50, s.P90, s.P95, s.P99, s.P999}
}

func requireNear(t *testing.T, want, got Stats) {
	t.Helper()
	for i, w := range values(want) {
		g := values(got)[i]
		require.Equal(t, w.Known, g.Known, "statistic %d", i)
		require.InDelta(t, w.Value, g.Value, 1e-9*max(1, math.Abs(w.Value)), "statistic %d", i)
	}
}

func TestMerge(t *testing.T) {
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	for name, tt := range map[string]struct {
		all  []Distribution
		want Distribution
		none bool
	}{
		"nothing":               {none: true},
		"none counted anything": {all: []Distribution{{}, {Mean: 3}}, none: true},
		"counts are added up, the mean is weighted": {
			all: []Distribution{
				{Count: 100, Mean: 104, Min: 5, Max: 50, Buckets: explicit(1, 2), Counts: []int64{1, 99}, Start: late},
				{Count: 25, Mean: 30, Min: 0, Max: 60, Buckets: explicit(1, 2), Counts: []int64{5, 10, 10}, Start: early},
				{Count: 0, Mean: 1e9, Min: 1, Max: 99, Buckets: explicit(1, 2), Counts: []int64{5, 10, 10}},
			},
			want: Distribution{Count: 125, Mean: 89.2, Min: 5, Max: 60, Buckets: explicit(1, 2), Counts: []int64{6, 109, 10}, Start: early},
		},
		"of other bounds, most of what was counted": {
			all: []Distribution{
				{Count: 100, Mean: 1, Buckets: explicit(1)},
				{Count: 60, Mean: 2, Buckets: explicit(2)},
				{Count: 60, Mean: 4, Buckets: explicit(2)},
			},
			want: Distribution{Count: 120, Mean: 3, Buckets: explicit(2)},
		},
		"a mean that is no number does not spoil the others": {
			all:  []Distribution{{Count: 100, Mean: math.NaN()}, {Count: 1, Mean: 2}},
			want: Distribution{Count: 1, Mean: 2},
		},
		"a start that is not known": {
			all:  []Distribution{{Count: 1, Mean: 2, Start: early}, {Count: 1, Mean: 2}},
			want: Distribution{Count: 2, Mean: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Merge(tt.all)
			require.Equal(t, !tt.none, ok)
			assert.InDelta(t, tt.want.Mean, got.Mean, 1e-9)
			got.Mean = tt.want.Mean
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestMergeLeavesItsInputAlone(t *testing.T) {
	all := []Distribution{
		{Count: 1, Mean: 1, Buckets: explicit(1), Counts: []int64{1}},
		{Count: 1, Mean: 1, Buckets: explicit(1), Counts: []int64{1, 1}},
	}
	Merge(all)
	assert.Equal(t, []int64{1}, all[0].Counts)
}

func TestSince(t *testing.T) {
	start := time.Unix(100, 0)
	earlier := Distribution{Count: 100, Mean: 10, Buckets: explicit(1, 2), Counts: []int64{50, 50}, Start: start}
	for name, tt := range map[string]struct {
		now, want Distribution
		unknown   bool
	}{
		"more was counted": {
			now:  Distribution{Count: 150, Mean: 20, Buckets: explicit(1, 2), Counts: []int64{60, 50, 40}, Start: start},
			want: Distribution{Count: 50, Mean: 40, Buckets: explicit(1, 2), Counts: []int64{10, 0, 40}, Start: start},
		},
		"nothing was": {
			now:  earlier,
			want: Distribution{Count: 0, Mean: 10, Buckets: explicit(1, 2), Counts: []int64{50, 50}, Start: start},
		},
		"counts at the end went missing": {
			now:  Distribution{Count: 150, Mean: 20, Buckets: explicit(1, 2), Counts: []int64{60}, Start: start},
			want: Distribution{Count: 50, Mean: 40, Buckets: explicit(1, 2), Counts: []int64{10, -50}, Start: start},
		},
		"another start": {
			now:  Distribution{Count: 150, Mean: 20, Start: start.Add(1)},
			want: Distribution{Count: 150, Mean: 20, Start: start.Add(1)},
		},
		"less than before": {now: Distribution{Count: 99, Mean: 20, Start: start}, want: Distribution{Count: 99, Mean: 20, Start: start}},
		"other bounds":     {now: Distribution{Count: 150, Mean: 20, Buckets: explicit(1), Start: start}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := tt.now.Since(&earlier)
			assert.Equal(t, !tt.unknown, ok)
			assert.Equal(t, tt.want, got)
		})
	}
}

// oracle finds a percentile in another way: it looks for the value up to which a share
// of what was counted lies, by halving.
func oracle(d *Distribution, q float64) float64 {
	bounds := d.Buckets.Bounds()
	edges := append([]float64{min(0, bounds[0])}, bounds...)
	if d.Min > 0 && d.Min < bounds[0] {
		edges[0] = d.Min
	}
	edges = append(edges, max(d.Max, bounds[len(bounds)-1]))
	total := 0.0
	for _, n := range d.Counts {
		total += float64(n)
	}
	upTo := func(v float64) float64 {
		sum := 0.0
		for i, n := range d.Counts {
			lower, upper := edges[i], edges[i+1]
			switch {
			case v >= upper:
				sum += float64(n)
			case v > lower:
				sum += float64(n) * (v - lower) / (upper - lower)
			}
		}
		return sum
	}
	low, high := edges[0], edges[len(edges)-1]
	for range 200 {
		if middle := low + (high-low)/2; upTo(middle) < q*total {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

func TestPercentilesAgreeWithAnotherComputation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		d := Distribution{Count: 1, Mean: 1}
		finite := random.IntN(12)
		switch random.IntN(3) {
		case 0:
			d.Buckets = exponential(finite, 1.1+random.Float64()*3, random.Float64()*100+0.01)
		case 1:
			d.Buckets = linear(finite, random.Float64()*10+0.1, random.Float64()*100-50)
		default:
			at := random.Float64()*100 - 50
			for range finite + 1 {
				at += random.Float64()*10 + 0.1
				d.Buckets.Explicit = append(d.Buckets.Explicit, at)
			}
			d.Buckets.Kind = Explicit
		}
		bounds := d.Buckets.Bounds()
		require.NotEmpty(t, bounds)
		d.Counts = make([]int64, len(bounds)+1)
		for i := range d.Counts {
			if random.IntN(3) > 0 {
				d.Counts[i] = random.Int64N(1000)
			}
		}
		if d.Counts[0]++; random.IntN(2) == 0 && bounds[0] > 0 {
			d.Min = bounds[0] * random.Float64()
		}
		if last := bounds[len(bounds)-1]; random.IntN(2) == 0 && last > 0 {
			d.Max = last + random.Float64()*100
		}
		got := d.Stats()
		for i, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999} {
			want := oracle(&d, q)
			v := values(got)[i+1]
			require.True(t, v.Known)
			require.InDelta(t, want, v.Value, 1e-6*max(1, math.Abs(want)), "%v of %+v", q, d)
		}
	}
}

// Percentiles are finite, ascend, and lie within the bounds and what was seen.
func FuzzStats(f *testing.F) {
	f.Add(uint8(1), 5, 2.0, 250.0, 0.0, 0.0, int64(100), 1850.0, []byte{0, 10, 60, 20, 8, 2, 0})
	f.Add(uint8(2), 5, 10.0, -20.0, 3.0, 200.0, int64(9), 1.0, []byte{1, 2, 3})
	f.Add(uint8(3), 3, 1.0, 0.0, 0.0, 0.0, int64(9), 1.0, []byte{0, 0, 0, 1})
	f.Add(uint8(0), -1, math.Inf(1), math.NaN(), math.NaN(), -1.0, int64(-5), math.NaN(), []byte{255})
	f.Fuzz(func(t *testing.T, kind uint8, finite int, a, b, smallest, largest float64, count int64, mean float64, counts []byte) {
		d := Distribution{Count: count, Mean: mean, Min: smallest, Max: largest}
		switch Kind(kind % 4) {
		case Exponential:
			d.Buckets = exponential(finite, a, b)
		case Linear:
			d.Buckets = linear(finite, a, b)
		case Explicit:
			d.Buckets = explicit(a, b, a+b)
		}
		for _, n := range counts {
			d.Counts = append(d.Counts, int64(n)*int64(n)-1)
		}
		merged, ok := Merge([]Distribution{d, d})
		require.Equal(t, d.usable() && 2*d.Count <= maxCount, ok)
		if since, ok := merged.Since(&d); ok {
			for _, v := range values(since.Stats()) {
				require.False(t, v.Known && (math.IsNaN(v.Value) || math.IsInf(v.Value, 0)))
			}
		}
		s := merged.Stats()
		last := math.Inf(-1)
		for i, v := range values(s) {
			if !v.Known {
				continue
			}
			require.False(t, math.IsNaN(v.Value) || math.IsInf(v.Value, 0))
			if i == 0 {
				continue
			}
			require.GreaterOrEqual(t, v.Value, last)
			last = v.Value
		}
		bounds, all := merged.Histogram()
		require.Equal(t, bounds == nil, all == nil)
		if bounds != nil {
			require.Len(t, all, len(bounds)+1)
		}
	})
}
