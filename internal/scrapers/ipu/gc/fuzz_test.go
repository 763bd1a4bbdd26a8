// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// requireSane wants what holds for every device.
func requireSane(t *testing.T, devices []Device) {
	t.Helper()
	last := -1
	for _, d := range devices {
		require.Greater(t, d.Position, last, "in the tool's order")
		last = d.Position
		require.GreaterOrEqual(t, d.Number(), 0)
		require.LessOrEqual(t, d.Number(), math.MaxInt32)
		require.GreaterOrEqual(t, d.Pid, 0)
		for _, f := range []optional.Of[float64]{
			d.BoardTemp, d.DieTemp, d.Clock, d.LinkSpeed, d.Power, d.TotalBoardPower, d.Utilisation, d.SessionUtilisation,
		} {
			require.False(t, math.IsNaN(f.Value) || math.IsInf(f.Value, 0))
		}
		for _, f := range []optional.Of[float64]{d.Power, d.TotalBoardPower, d.Utilisation, d.SessionUtilisation} {
			require.True(t, !f.Known || f.Value >= 0)
		}
	}
}

// Whatever JSON comes, there are sane devices or an error; what is not JSON gives none,
// and neither does half of it.
func FuzzParseJSON(f *testing.F) {
	for _, out := range []string{
		`[{"id": "0", "clock": "1300MHz", "user process id": "4"}]`, `{"0": {"ipu power": "N/A"}, "x": 1}`,
		`{"devices": [{"average die temp": 33.4, "target": "Multi IPU"}, null]}`,
		`{"cards": [{"ipus": [{"ID": "0", "PID": "1", "IPU utilisation session": "1.5%"}]}]}`, `{"devices": {}, "cards": []}`,
	} {
		f.Add([]byte(out))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		devices, err := Parse(out)
		if err != nil {
			require.Empty(t, devices)
			return
		}
		requireSane(t, devices)
		trimmed := bytes.TrimSpace(bytes.TrimPrefix(out, []byte("\xef\xbb\xbf")))
		if trimmed[0] != '{' && trimmed[0] != '[' {
			return
		}
		require.True(t, json.Valid(trimmed))
		for _, length := range []int{1, len(trimmed) / 2, len(trimmed) - 1} {
			if length == 0 || length == len(trimmed) {
				continue
			}
			half, err := Parse(trimmed[:length])
			require.Error(t, err)
			require.Empty(t, half)
		}
	})
}

// Whatever gc-info prints, there are as many devices as headings, and a text that is cut
// off has no value that the whole has not.
func FuzzParseText(f *testing.F) {
	f.Add("Device Info:\n  id: 0\n  clock: 1300MHz\n\nDevice Info:\n  ipu utilisation (session): 5%\n", 20)
	f.Add("x\nDevice Info:\n  average die temp:\n  user name: a: b\n  link speed: 16.0 GT/s", 50)
	f.Fuzz(func(t *testing.T, out string, cut int) {
		if !strings.HasPrefix(out, heading) && !strings.HasPrefix(out, "x") {
			out = heading + "\n" + out
		}
		devices, err := Parse([]byte(out))
		if err != nil {
			require.Empty(t, devices)
			return
		}
		requireSane(t, devices)
		headings := 0
		for line := range strings.Lines(out) {
			if strings.TrimSpace(line) == heading {
				headings++
			}
		}
		require.Len(t, devices, headings)
		if cut < 0 || cut > len(out) {
			return
		}
		half, err := Parse([]byte(out[:cut]))
		if err == nil {
			requireSane(t, half)
			require.LessOrEqual(t, len(half), len(devices)+1) // a value may look like a heading
		}
	})
}

// The numbers of a list are distinct, not below 0, and in the text.
func FuzzParseList(f *testing.F) {
	f.Add([]byte("-+- Id: [0], target: [PCIe]\n -+- Id: [1], type: [Multi IPU]\n |--- Id: [0]\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		ids, err := ParseList(out)
		require.NoError(t, err) // the limit takes more text
		slices.Sort(ids)
		require.Len(t, slices.Compact(slices.Clone(ids)), len(ids))
		for _, id := range ids {
			require.GreaterOrEqual(t, id, 0)
			require.Contains(t, string(out), strconv.Itoa(id))
		}
	})
}

// A number is what it says, whatever stands around it.
func FuzzNumber(f *testing.F) {
	for _, raw := range []string{"33.4 C", "N/A", "1_300MHz", "0x514", "nan", "1e5", "+1.5", "-0", "12.3 kW"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got := number(text(raw), watts)
		if !got.Known {
			return
		}
		require.False(t, math.IsNaN(got.Value) || math.IsInf(got.Value, 0))
		require.NotContains(t, strings.ToLower(raw), "e")
		again := number(text(fmt.Sprintf("  %s W ", strconv.FormatFloat(got.Value, 'f', -1, 64))), watts)
		require.Equal(t, got, again)
	})
}
