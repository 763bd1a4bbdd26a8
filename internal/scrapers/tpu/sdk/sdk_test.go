// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/dist"
)

type float = optional.Of[float64]

var (
	some = optional.Some[float64]
	none float
)

func TestPerDevice(t *testing.T) {
	got := PerDevice([]string{" 13.60 ", "", "NaN", "inf", "-1", "1e3", "0", "12 %"})
	assert.Equal(t, []float{some(13.6), none, none, none, none, some(1000), some(0), none}, got)
	assert.Empty(t, PerDevice(nil))
}

func TestLabelled(t *testing.T) {
	five := dist.Stats{Mean: some(1), P50: some(2), P90: some(3), P95: some(4), P999: some(5)}
	for name, tt := range map[string]struct {
		description string
		values      []string
		want        map[string]dist.Stats
	}{
		"quoted":      {"", []string{"'8MB+', '1', '2', '3', '4', '5'"}, map[string]dist.Stats{"8mb_plus": five}},
		"in brackets": {"", []string{`["8MB+-ALL_REDUCE", 1, 2, 3, 4, 5]`}, map[string]dist.Stats{"8mb_plus_all_reduce": five}},
		"four":        {"", []string{"a,2,3,4,5"}, map[string]dist.Stats{"a": {P50: some(2), P90: some(3), P95: some(4), P999: some(5)}}},
		"names of the description": {
			"mean, p50, p99.9 and P99",
			[]string{"a,1,2,5,6"},
			map[string]dist.Stats{"a": {Mean: some(1), P50: some(2), P999: some(5), P99: some(6)}},
		},
		"p999 is not p99":                      {"mean, p50, p90, p999, p99", []string{"a,1,2,3,5,6"}, map[string]dist.Stats{"a": {Mean: some(1), P50: some(2), P90: some(3), P999: some(5), P99: some(6)}}},
		"names that do not fit":                {"p99", []string{"a,1,2,3,4,5"}, map[string]dist.Stats{"a": five}},
		"a name twice":                         {"mean mean p50 p90 p95", []string{"a,1,2,3,4,5"}, map[string]dist.Stats{"a": five}},
		"a number of values that nobody knows": {"", []string{"a,1,2,3"}, map[string]dist.Stats{}},
		"one that is no number is left out":    {"", []string{"a,1,x,3,nan,5"}, map[string]dist.Stats{"a": {Mean: some(1), P90: some(3), P999: some(5)}}},
		"none that is a number":                {"", []string{"a,-,-,-,-,-"}, map[string]dist.Stats{}},
		"equal labels: the first counts":       {"", []string{"A+,1,2,3,4,5", "a_plus,9,9,9,9,9"}, map[string]dist.Stats{"a_plus": five}},
		"no label":                             {"", []string{",1,2,3,4,5"}, map[string]dist.Stats{"unknown": five}},
		"a comma at the end":                   {"", []string{"a,1,2,3,4,5,"}, map[string]dist.Stats{"a": five}},
		"nothing":                              {"", []string{"", "a"}, map[string]dist.Stats{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, Labelled(tt.description, tt.values)) })
	}
}

func TestFlat(t *testing.T) {
	want := dist.Stats{P50: some(35.99), P90: some(52.15), P95: some(53.83), P999: some(55.51)}
	assert.Equal(t, want, Flat("p50, p90, p95, p999", []string{"35.99, 52.15, 53.83, 55.51"}))
	assert.Equal(t, want, Flat("", []string{"35.99", "52.15", "53.83", "55.51"}))
	assert.Equal(t, want, Flat("", []string{"'35.99'", " '52.15' ", `"53.83"`, "'55.51'"}))
	assert.Equal(t, want, Flat("", []string{"['35.99', '52.15', '53.83', '55.51']"}))
	assert.Equal(t, dist.Stats{Mean: some(7)}, Flat("the mean", []string{"7"}))
	assert.Equal(t, dist.Stats{}, Flat("", nil))
}

func TestQueueSizes(t *testing.T) {
	got := QueueSizes([]string{"tensorcore-0: 1", "'a:b': 2", "tensor core 0:3", "Tensor-Core-0: 4", "'quoted-0: 6'", "['quoted-1': '7']", "x", "y: -1", "z: many", "huge: 1e300", ": 5"})
	assert.Equal(t, map[string]int64{"tensorcore_0": 1, "a_b": 2, "tensor_core_0": 7, "quoted_0": 6, "quoted_1": 7, "unknown": 5}, got)
}

func TestLinkHealth(t *testing.T) {
	scores, perChip := LinkHealth([]string{
		"tray10.chip0.ici0.int: 7", "tray1.chip3.ici0.int: 10", "tray1.chip3.ici1.int: 0", "tray1.chip0.ici0.int: 0",
		"tray1.chip1.ici0.int: broken", "'tray1.chip2.ici9.ext:3'", "what: 9",
	})
	assert.True(t, perChip)
	assert.Equal(t, []float{some(0), none, some(3), some(10), some(7)}, scores)

	scores, perChip = LinkHealth([]string{"0", "x", "10"})
	assert.False(t, perChip)
	assert.Equal(t, []float{some(0), none, some(10)}, scores)
}

// Whatever libtpu says, what is read of it are finite numbers that are not below 0,
// under labels that are fit for tags.
func FuzzValues(f *testing.F) {
	for _, text := range []string{
		"'8MB+', '2233.25', '2182.02', '2761.11', '2919.54', '3554.10'", "13.60", "tensorcore-0: 1", "tray1.chip3.ici0.int: 0",
		"tray999999999999.chip0.x: 1", "NaN", "", ",,,,,", "[\"a\", 1", "a: 0x1p-2", "1_000: 1_0",
	} {
		f.Add("mean, p50, p90, p95, p999", text, "b,1,2,3,4,5")
	}
	f.Fuzz(func(t *testing.T, description, first, second string) {
		list := []string{first, second}
		sane := func(all ...float) {
			for _, v := range all {
				require.False(t, v.Known && (math.IsNaN(v.Value) || math.IsInf(v.Value, 0) || v.Value < 0))
			}
		}
		saneStats := func(s dist.Stats) { sane(s.Mean, s.P50, s.P90, s.P95, s.P99, s.P999) }
		sane(PerDevice(list)...)
		scores, _ := LinkHealth(list)
		sane(scores...)
		saneStats(Flat(description, list))
		for name, s := range Labelled(description, list) {
			require.NotEmpty(t, name)
			require.Equal(t, strings.ToLower(name), name)
			saneStats(s)
		}
		for name, n := range QueueSizes(list) {
			require.NotEmpty(t, name)
			require.GreaterOrEqual(t, n, int64(0))
		}
	})
}
