// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// statLine is a /proc/PID/stat with this name and fields that tell where they
// came from: field N is N, but for those that are given.
func statLine(comm string, fields map[int]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "41234 (%s)", comm)
	for n := 3; n <= 52; n++ {
		field, given := fields[n]
		switch {
		case given:
		case n == 3:
			field = "S"
		default:
			field = strconv.Itoa(n)
		}
		b.WriteString(" " + field)
	}
	return b.String() + "\n"
}

func TestParsePIDStatFields(t *testing.T) {
	got, err := ParsePIDStat([]byte(statLine("python3", nil)))
	require.NoError(t, err)
	assert.Equal(t, PIDStat{
		Comm: []byte("python3"), State: 'S', PPid: 4, UTime: 14, STime: 15, CUTime: 16, CSTime: 17, Threads: 20, StartTime: 22, StackStart: 28,
	}, got)
}

func TestParsePIDStatNames(t *testing.T) {
	for _, comm := range []string{
		"", " ", "a b", "(sd-pam)", "a)", ")", "((", "a) R 1 (b", "x) Z 9 9 9 9 9 9 9", "line\nbreak", "tab\tin", "\xff\xfe", "tmux: server",
	} {
		t.Run(fmt.Sprintf("%q", comm), func(t *testing.T) {
			got, err := ParsePIDStat([]byte(statLine(comm, nil)))
			require.NoError(t, err)
			assert.Equal(t, comm, string(got.Comm))
			assert.Equal(t, byte('S'), got.State)
			assert.Equal(t, uint64(22), got.StartTime)
		})
	}
}

func TestParsePIDStatNumbers(t *testing.T) {
	tests := []struct {
		name    string
		fields  map[int]string
		check   func(PIDStat) any
		want    any
		wantErr string
	}{
		{
			name:   "negative cutime counts as 0",
			fields: map[int]string{16: "-3"},
			check:  func(s PIDStat) any { return s.CUTime }, want: uint64(0),
		},
		{
			name:   "negative cstime counts as 0",
			fields: map[int]string{17: "-3"},
			check:  func(s PIDStat) any { return s.CSTime }, want: uint64(0),
		},
		{
			name:   "the largest start time",
			fields: map[int]string{22: "18446744073709551615"},
			check:  func(s PIDStat) any { return s.StartTime }, want: uint64(1<<64 - 1),
		},
		{
			name:   "fields that are not used may be anything",
			fields: map[int]string{8: "-1", 13: "99999999999999999999999", 18: "x"},
			check:  func(s PIDStat) any { return s.UTime }, want: uint64(14),
		},
		{
			name:   "a stack that is not told",
			fields: map[int]string{28: "x"},
			check:  func(s PIDStat) any { return s.StackStart }, want: uint64(0),
		},
		{name: "utime is unsigned", fields: map[int]string{14: "-3"}, wantErr: `stat: field 14 not understood: "-3"`},
		{name: "starttime is unsigned", fields: map[int]string{22: "-3"}, wantErr: `stat: field 22 not understood: "-3"`},
		{name: "cutime is a number", fields: map[int]string{16: "-x"}, wantErr: `stat: field 16 not understood: "-x"`},
		{name: "stime above 64 bits", fields: map[int]string{15: "18446744073709551616"}, wantErr: `stat: field 15 not understood: "18446744073709551616"`},
		{name: "threads above an int", fields: map[int]string{20: "9223372036854775808"}, wantErr: `stat: field 20 is too large: 9223372036854775808`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParsePIDStat([]byte(statLine("x", tt.fields)))
			assertError(t, tt.wantErr, err)
			if tt.check != nil {
				assert.Equal(t, tt.want, tt.check(got))
			}
		})
	}
}

// A file that is cut off anywhere is either understood as the whole one is, or
// the process has ended. A number cut short must not pass for another.
func TestParsePIDStatCutOff(t *testing.T) {
	whole := []byte(statLine("name", map[int]string{14: "1414", 22: "222222"}))
	want, err := ParsePIDStat(whole)
	require.NoError(t, err)
	understood := 0
	for length := range whole {
		got, err := ParsePIDStat(whole[:length])
		if err != nil {
			require.ErrorIs(t, err, ErrEnded, "%q", whole[:length])
			continue
		}
		understood++
		if got.StackStart == 0 {
			got.StackStart = want.StackStart // comes later in the line
		}
		require.Equal(t, want, got, "%q", whole[:length])
	}
	assert.Positive(t, understood)
}

func TestGoneProcesses(t *testing.T) {
	for state, want := range map[byte]bool{'R': false, 'S': false, 'D': false, 'T': false, 'I': false, 'Z': true, 'X': true, 'x': true} {
		s := PIDStat{State: state}
		assert.Equal(t, want, s.Gone(), string(state))
	}
}

func TestParseResident(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		want    uint64
		wantErr string
	}{
		{name: "field 2", input: "17123456 9482 2212 706 0 12345678 0\n", want: 9482},
		{name: "a zombie", input: "0 0 0 0 0 0 0\n", want: 0},
		{name: "CRLF", input: "1 2 3\r\n", want: 2},
		{name: "empty", input: "", wantErr: ErrEnded.Error()},
		{name: "one field", input: "17123456\n", wantErr: ErrEnded.Error()},
		{name: "cut off in field 2", input: "17123456 94", wantErr: ErrEnded.Error()},
		{name: "negative", input: "1 -2 3\n", wantErr: `statm: line 1 not understood: "1 -2 3"`},
		{name: "above 64 bits", input: "1 18446744073709551616 3\n", wantErr: `statm: line 1 not understood: "1 18446744073709551616 3"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseResident([]byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseCPUsAllowed(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		want    int
		wantErr string
	}{
		{name: "one", input: "Cpus_allowed_list:\t7\n", want: 1},
		{name: "a range", input: "Cpus_allowed_list:\t0-63\n", want: 64},
		{name: "ranges and single ones", input: "Cpus_allowed_list:\t0,2-3,64-67\n", want: 7},
		{name: "after other lines, CRLF, no last newline", input: "Name:\tx\r\nCpus_allowed:\tff\r\nCpus_allowed_list:\t0-3\r", want: 4},
		{name: "not the line of the mask", input: "Cpus_allowed:\tff\nCpus_allowed_list:\t0-1\n", want: 2},
		{name: "a process of that name", input: "Name:\tCpus_allowed_list:\nCpus_allowed_list:\t0-1\n", want: 2},
		{name: "empty file", input: "", wantErr: "status: no Cpus_allowed_list"},
		{name: "cut off before", input: "Name:\tx\nCpus_allowed", wantErr: "status: no Cpus_allowed_list"},
		{name: "empty list", input: "Cpus_allowed_list:\t\n", wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t"`},
		{name: "a range backwards", input: "Cpus_allowed_list:\t3-0\n", wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t3-0"`},
		{name: "a range backwards after others", input: "Cpus_allowed_list:\t0-7,3-1\n", wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t0-7,3-1"`},
		{name: "an open range", input: "Cpus_allowed_list:\t3-\n", wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t3-"`},
		{name: "a trailing comma", input: "Cpus_allowed_list:\t3,\n", wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t3,"`},
		{
			name: "more than fit an int", input: "Cpus_allowed_list:\t0-9223372036854775807\n",
			wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t0-9223372036854775807"`,
		},
		{
			name: "more than fit an int together", input: "Cpus_allowed_list:\t1-9223372036854775807,1-9223372036854775807,1-9\n",
			wantErr: `status: line 1 not understood: "Cpus_allowed_list:\t1-9223372036854775807,1-9223372036854775807,1-9"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseCPUsAllowed([]byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestCPUSet(t *testing.T) {
	var s CPUSet
	assert.Zero(t, s.Count())
	add := func(list string) error {
		return s.AddCPUsAllowed([]byte("Name:\tx\nCpus_allowed_list:\t" + list + "\n"))
	}
	require.NoError(t, add("0-3"))
	require.NoError(t, add("2-5,64"))
	assert.Equal(t, 7, s.Count())
	s.Clear()
	assert.Zero(t, s.Count())
	require.NoError(t, add("65535"))
	assert.Equal(t, 1, s.Count())

	require.ErrorIs(t, s.AddCPUsAllowed([]byte("Name:\tx\n")), ErrNoCPUs)
	for _, list := range []string{"", "x", "3-1", "0-65536", "99999999999"} {
		require.ErrorContains(t, add(list), "status: line 2 not understood", list)
	}
}
