// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// Whatever a driver answers, the points make sense, every fault has a source,
// nothing leaks, and when it answers well again everything is there again.
func TestRandomTrouble(t *testing.T) {
	// INSUFFICIENT_SIZE, said again and again, keeps the binding in a loop.
	codes := []string{"1", "2", "3", "4", "6", "9", "10", "13", "14", "15", "16", "18", "21", "25", "26", "27", "28", "999", "77"}
	values := []string{"0", "1", "101", "4294967295", "18446744073709551615", "9223372036854775808", "nan", "-inf", "4000000"}
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, 3, rigOptions{extended: true, pid: 1000})
		for key, value := range migBoard(2) {
			r.set(key, value)
		}
		// A decision for the older form of memory is for good; see its tests.
		r.set("devices.0.memory_v2.ret", 3, "devices.1.memory_v2.ret", 3, "devices.2.memory_v2.ret", 3, "devices.2.mig.2.memory_v2.ret", 3)
		_, _ = r.scrape()
		healthy, faults := r.scrape()
		require.Empty(t, faults)
		keys := slices.Sorted(maps.Keys(r.state))
		// That there is no GPM is believed, until the library is opened anew.
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(key, ".gpm_support.") })
		good := maps.Clone(r.state)
		for range 10 {
			r.state = maps.Clone(good)
			for range random.IntN(8) {
				key := keys[random.IntN(len(keys))]
				switch {
				case strings.HasSuffix(key, ".ret"):
					r.state[key] = codes[random.IntN(len(codes))]
				case strings.HasSuffix(key, ".#"), strings.Contains(key, "retired_pages_"):
					// The binding makes room for as many as the driver says.
					r.state[key] = strconv.Itoa(random.IntN(3))
				case !strings.Contains(key, ".uuid."):
					r.state[key] = values[random.IntN(len(values))]
				}
			}
			if n := r.state["device_count.value"]; len(n) > 1 {
				r.state["device_count.value"] = "2"
			}
			r.write()
			_, _ = r.scrape()
		}
		r.state = maps.Clone(good)
		r.write()
		r.advance(maxBackoff)
		_, _ = r.scrape()
		r.advance(maxBackoff)
		_, _ = r.scrape()
		tags, faults := r.scrape()
		assert.Empty(t, faults, "seed %d", seed)
		scraperstest.CompareTags(t, "recovered", healthy, tags)
		require.NoError(t, r.scraper.Shutdown(t.Context()))
		for _, call := range r.calls() {
			assert.NotContains(t, call, "LEAK", "seed %d", seed)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
