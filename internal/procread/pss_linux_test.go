// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const rollup = "55d0c8a00000-7ffe6c3f2000 ---p 00000000 00:00 0                          [rollup]\n" +
	"Rss:                2076 kB\nPss:                 522 kB\nPss_Dirty:           120 kB\nSwap:                  0 kB\n"

func TestParsePSS(t *testing.T) {
	for _, tt := range []struct {
		name, input string
		want        uint64
		wantErr     string
	}{
		{name: "the line Pss, in bytes", input: rollup, want: 522 << 10},
		{name: "not one that begins alike", input: "Pss_Dirty:           120 kB\nPss:  7 kB", want: 7 << 10},
		{name: "none", input: "Pss:\t0 kB\n"},
		{name: "a process without memory left", input: "", wantErr: ErrEnded.Error()},
		{name: "no number", input: "Pss: x kB\n", wantErr: `smaps_rollup: line 1 not understood: "Pss: x kB"`},
		{name: "no value", input: "a\nPss:\n", wantErr: `smaps_rollup: line 2 not understood: "Pss:"`},
		{name: "more than fits", input: "Pss: 18446744073709551615 kB\n", wantErr: `smaps_rollup: line 1 not understood: "Pss: 18446744073709551615 kB"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParsePSS([]byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParsePSSOfThisProcess(t *testing.T) {
	content, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skipf("not shown here: %v", err)
	}
	got, err := ParsePSS(content)
	require.NoError(t, err)
	assert.Positive(t, got)
	assert.Zero(t, testing.AllocsPerRun(10, func() { _, _ = ParsePSS(content) }))
}

// pssLine is what the kernel writes, as far as the oracle's numbers go.
var pssLine = regexp.MustCompile(`(?m)^Pss: {1,20}[0-9]{1,12} kB$`)

func FuzzParsePSS(f *testing.F) {
	f.Add([]byte(rollup))
	f.Add([]byte("Pss: x kB\n"))
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParsePSS(b)
		requireShortError(t, err)
		require.Zero(t, got%1024, "whole KiB")

		line := pssLine.Find(b)
		if line == nil {
			return
		}
		got, err = ParsePSS(line)
		require.NoError(t, err)
		want, err := o.putPid(t, "smaps_rollup", append([]byte("0-1 ---p 0 00:00 0 [rollup]\n"), append(line, '\n')...)).ProcSMapsRollup()
		require.NoError(t, err)
		require.Equal(t, want.Pss, got)
	})
}
