// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadProc(t *testing.T) {
	for _, path := range []string{"/proc/version", "/proc/self/cmdline", "/proc/self/limits", "/proc/filesystems"} {
		t.Run(path, func(t *testing.T) {
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			got, err := ReadFile(path, 1<<20)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		})
	}
	stat, err := ReadInto("/proc/self/stat", make([]byte, 0, 16), 4096)
	require.NoError(t, err)
	assert.Regexp(t, `^\d+ \(.*\) [A-Z] `, string(stat))

	_, err = ReadFile("/proc/self/stat", 8)
	require.EqualError(t, err, "/proc/self/stat is larger than the limit of 8 bytes")
}

func TestReadIntoAllocatesThePathAtMost(t *testing.T) {
	path := writeFile(t, []byte("42000\n"))
	buf := make([]byte, 0, 64)
	allocs := testing.AllocsPerRun(100, func() { buf, _ = ReadInto(path, buf, 64) })
	assert.LessOrEqual(t, allocs, 1.0)
	assert.Equal(t, "42000\n", string(buf))
}

func BenchmarkReadIntoProcStat(b *testing.B) {
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = ReadInto("/proc/self/stat", buf, 4096); err != nil {
			b.Fatal(err)
		}
	}
}
