// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// collect writes the text in parts and returns the lines, and how many were too long.
func collect(t testing.TB, limit, part int, text []byte) (lines []string, tooLong int) {
	t.Helper()
	l := &Lines{
		Max:     limit,
		Line:    func(line []byte) { lines = append(lines, string(line)) },
		TooLong: func() { tooLong++ },
	}
	for len(text) > 0 {
		n := min(part, len(text))
		written, err := l.Write(text[:n])
		require.NoError(t, err)
		require.Equal(t, n, written)
		text = text[n:]
		require.LessOrEqual(t, len(l.begun), limit)
	}
	return lines, tooLong
}

func TestLinesAreCutWhereverTheWritesAre(t *testing.T) {
	for name, tt := range map[string]struct {
		text    string
		want    []string
		tooLong int
	}{
		"nothing":                  {"", nil, 0},
		"one":                      {"abc\n", []string{"abc"}, 0},
		"several":                  {"a\n\nbc\n", []string{"a", "", "bc"}, 0},
		"without an end":           {"a\nbc", []string{"a"}, 0},
		"as long as allowed":       {"12345678\n1\n", []string{"12345678", "1"}, 0},
		"too long":                 {"123456789\n1\n", []string{"1"}, 1},
		"too long at the end":      {"1\n123456789", []string{"1"}, 1},
		"too long, twice":          {"123456789\n1\n1234567890123456789\n2\n", []string{"1", "2"}, 2},
		"a carriage return stays":  {"a\r\n", []string{"a\r"}, 0},
		"what follows is no part":  {"123456789abc\nabc\n", []string{"abc"}, 1},
		"zeros are bytes as other": {"a\x00b\n", []string{"a\x00b"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for part := 1; part < 25; part++ {
				lines, over := collect(t, 8, part, []byte(tt.text))
				assert.Equal(t, tt.want, lines, part)
				assert.Equal(t, tt.tooLong, over, part)
			}
		})
	}
}

func TestMemoryOfALongLineIsGivenBack(t *testing.T) {
	l := &Lines{Max: 16 << 20, Line: func([]byte) {}, TooLong: func() {}}
	write := func(n int) {
		for range n / 1000 {
			_, _ = l.Write(make([]byte, 1000))
		}
		_, _ = l.Write([]byte{'\n'})
	}
	write(8 << 20)
	assert.Greater(t, cap(l.begun), largeBuffer, "the next may be as long")
	write(1000)
	assert.LessOrEqual(t, cap(l.begun), largeBuffer)
	write(8 << 20)
	_, _ = l.Write([]byte("short, in one piece\n"))
	assert.LessOrEqual(t, cap(l.begun), largeBuffer)
	for range 32 << 10 {
		_, _ = l.Write(make([]byte, 1000))
	}
	assert.Zero(t, cap(l.begun), "a line that is dropped needs none")
}

// However the writes are cut, the lines are those of the text, but for long ones.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbcd\n\n"), 3, 2)
	f.Add([]byte(strings.Repeat("x", 40)+"\ny\n"), 8, 7)
	f.Fuzz(func(t *testing.T, text []byte, limit, part int) {
		limit, part = max(0, limit%64), max(1, part%64)
		all := bytes.Split(text, []byte{'\n'})
		var want []string
		tooLong := 0
		for i, line := range all {
			switch {
			case len(line) > limit:
				tooLong++
			case i < len(all)-1:
				want = append(want, string(line))
			}
		}
		lines, over := collect(t, limit, part, text)
		require.Equal(t, want, lines)
		require.Equal(t, tooLong, over)
	})
}
