// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// uploadLine is how long the line is that W&B sends for a record, in bytes.
func uploadLine(t *testing.T, s *wandbfiletest.Stats) int {
	t.Helper()
	line := map[string]any{"_wandb": true, "_timestamp": 1772625600.123456789, "_runtime": 1772625600.123456789}
	for _, it := range s.Items {
		line["system."+it.Key] = json.RawMessage(it.Value)
	}
	text, err := json.Marshal(line)
	require.NoError(t, err)
	return len(text) + len(line) // Python puts a blank after each colon
}

func TestLargeRecordsAreSplit(t *testing.T) {
	for name, key := range map[string]string{
		"short keys":        "gpu.%d.memory",
		"long keys":         "disk./" + strings.Repeat("x", 4000) + "%d.in",
		"keys to escape":    strings.Repeat("\"\\<>&\x01\x7f", 500) + "%d",
		"keys beyond ASCII": strings.Repeat("äöü€𝄞", 400) + "%d",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			r := at(1)
			want := map[string]string{}
			for size := 0; size < 3_000_000; {
				i := len(r.Items)
				it := value(fmt.Sprintf(key, i), int64(i))
				size += jsonLen(it.Key) + itemCost
				r.Items = append(r.Items, it)
				want[it.Key] = strconv.Itoa(i)
			}
			p.write(host("a"), r)
			f := p.read()[0]
			parts := f.Records[3:]
			assert.GreaterOrEqual(t, len(parts), 4)
			assert.Less(t, len(parts), 8, "a part is not much smaller than it may be")
			assert.Equal(t, int64(len(parts)), p.work.Records)
			got := map[string]string{}
			for _, part := range parts {
				assert.Equal(t, r.Time, part.Stats.Timestamp)
				assert.Less(t, uploadLine(t, part.Stats), 1_000_000)
				for _, it := range part.Stats.Items {
					got[it.Key] = it.Value
				}
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestNoLineIsTooLong(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	p := newPlace(t)
	for second := range 4 {
		r := at(float64(second))
		for size := 0; size < 1_500_000; {
			key := make([]byte, random.IntN(8<<10))
			for i := range key {
				key[i] = byte(random.UintN(1 << random.UintN(9)))
			}
			it := value(strings.ToValidUTF8(string(key), "é")+strconv.Itoa(len(r.Items)), math.MinInt64)
			require.True(t, utf8.ValidString(it.Key))
			size += len(it.Key)
			r.Items = append(r.Items, it)
		}
		p.write(host("a"), r)
	}
	for _, record := range p.read()[0].Records[3:] {
		assert.Less(t, uploadLine(t, record.Stats), 1_000_000)
	}
}

func TestMostBytesIsAtLeastWhatIsWritten(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	p := newPlace(t)
	for second := range 200 {
		r := at(float64(second) + 0.123456789)
		for i := range random.IntN(1 << random.IntN(12)) {
			r.Items = append(r.Items, decimal(-0.0000012345678901234567, Value))
			r.Items[i].Key = strings.Repeat("k", random.IntN(1<<random.IntN(14))) + strconv.Itoa(i)
		}
		most := mostBytes(r)
		before := p.work.Bytes
		p.write(host("a"), r)
		if second > 0 {
			require.LessOrEqual(t, p.work.Bytes-before+64, most, "64 for the exit record")
		}
	}
}
