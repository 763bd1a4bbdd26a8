// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// checkAlike tests what holds for all data.
func checkAlike(t *testing.T, data []byte) {
	t.Helper()
	recovered := Recover(data)
	f, err := Parse(data)
	if err != nil {
		require.Nil(t, f)
		return
	}
	require.Equal(t, f.Records, recovered)
	require.LessOrEqual(t, f.Good, int64(len(data)))
	require.Equal(t, f.Good < int64(len(data)) || f.Good == 0, f.Truncated)
	if f.Good == 0 {
		return
	}
	whole, err := Parse(data[:f.Good])
	require.NoError(t, err)
	require.Equal(t, &File{Records: f.Records, Good: f.Good}, whole)
}

func FuzzParse(f *testing.F) {
	whole := begun().add(of(3, 26, pb{}.text(1, "Linux")), gpu(4), exit(5)).data
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(whole[:3])
	f.Add([]byte{})
	f.Add(begun().chunk(2, gpu(3)[:3]).chunk(3, gpu(3)[3:5]).chunk(4, gpu(3)[5:]).data)
	f.Add(begun().chunk(4, gpu(3)).data)
	f.Fuzz(func(t *testing.T, data []byte) { checkAlike(t, data) })
}

// FuzzParseRecord has right checksums, which FuzzParse does not find, and records in two
// blocks. The data are cut by some bytes.
func FuzzParseRecord(f *testing.F) {
	environment := of(3, 26, pb{}.sub(20, pb{}.text(1, "/").sub(2, pb{}.whole(1, 1))).sub(21, pb{}).sub(24, pb{}.text(1, "H100")))
	f.Add([]byte(gpu(3)), byte(0), byte(0))
	f.Add([]byte(gpu(4)), byte(6), byte(6)) // as the fourth record it is right in two blocks
	f.Add([]byte(exit(4)), byte(7), byte(3))
	f.Add([]byte(environment), byte(30), byte(0))
	f.Add([]byte(of(3, 7, pb{}.sub(2, timestamp(-1, -1)).sub(3, item("k", "NaN")))), byte(99), byte(7))
	f.Fuzz(func(t *testing.T, payload []byte, distance, cut byte) {
		checkAlike(t, begun().add(payload).data)
		data := begun().fill(t, 3, int(distance)).add(payload).data
		checkAlike(t, data)
		checkAlike(t, data[:len(data)-int(cut)])
	})
}
