// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func writeFile(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestReadFileUpToTheLimit(t *testing.T) {
	tests := []struct {
		name  string
		size  int
		limit int64
		over  bool
	}{
		{name: "empty", size: 0, limit: 10},
		{name: "empty, nothing allowed", size: 0, limit: 0},
		{name: "below", size: 9, limit: 10},
		{name: "exactly full", size: 10, limit: 10},
		{name: "one over", size: 11, limit: 10, over: true},
		{name: "far over", size: 100_000, limit: 10, over: true},
		{name: "nothing allowed", size: 1, limit: 0, over: true},
		{name: "negative limit", size: 1, limit: -1, over: true},
		{name: "as large as the first read", size: firstRead, limit: firstRead},
		{name: "one over the first read", size: firstRead + 1, limit: firstRead, over: true},
		{name: "several reads", size: 100_000, limit: 100_000},
		{name: "several reads, one over", size: 100_001, limit: 100_000, over: true},
		{name: "no limit to speak of", size: 10_000, limit: math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := bytes.Repeat([]byte("0123456789"), tt.size/10+1)[:tt.size]
			path := writeFile(t, want)
			got, err := ReadFile(path, tt.limit)
			if !tt.over {
				require.NoError(t, err)
				assert.True(t, bytes.Equal(want, got))
				return
			}
			var over *LimitError
			require.ErrorAs(t, err, &over)
			assert.Equal(t, LimitError{What: path, Max: max(tt.limit, 0)}, *over)
			assert.Nil(t, got)
		})
	}
}

func TestReadIntoReusesAndGrowsTheBuffer(t *testing.T) {
	path := writeFile(t, []byte("hello"))
	buf := append(make([]byte, 0, 64), "old content"...)
	got, err := ReadInto(path, buf, 64)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
	assert.Same(t, &buf[0], &got[0], "the same memory")

	got, err = ReadInto(path, make([]byte, 0, 2), 64)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
}

func TestReadIntoKeepsTheBufferAfterAnError(t *testing.T) {
	for name, path := range map[string]string{
		"missing": filepath.Join(t.TempDir(), "none"),
		"over":    writeFile(t, make([]byte, 100)),
		"a dir":   t.TempDir(),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadInto(path, make([]byte, 3, 50), 10)
			require.Error(t, err)
			assert.Empty(t, got)
			assert.Equal(t, 50, cap(got))
		})
	}
}

func TestReadErrorsNameFileAndCause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	_, err := ReadFile(path, 10)
	require.ErrorIs(t, err, fs.ErrNotExist)
	var pathErr *fs.PathError
	require.ErrorAs(t, err, &pathErr)
	assert.Equal(t, path, pathErr.Path)

	dir := t.TempDir()
	_, err = ReadFile(dir, 10)
	require.ErrorContains(t, err, dir)

	_, err = ReadFile("nul\x00byte", 10)
	require.Error(t, err)
}

func BenchmarkReadInto(b *testing.B) {
	path := writeFile(b, []byte("42000\n"))
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = ReadInto(path, buf, 4096); err != nil {
			b.Fatal(err)
		}
	}
}
