// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Processes of one reading see the same of the groups that they share, and what
// changed at the next.
func TestReadersOfARound(t *testing.T) {
	root := machine(t, v2("pods", "1000", "100", ""), v2("pods/a", "500", "10", ""), v2("pods/b", "max", "20", ""))
	write(t, root, files{fsV2 + "pods/cpu.max": "200000 100000\n", fsV2 + "pods/b/cpu.max": "100000 100000\n"})
	var round Round
	readers := map[int]*Reader{1: nil, 2: nil, 3: nil}
	for pid, group := range map[int]string{1: "a", 2: "b", 3: "b"} {
		write(t, root, files{"proc/" + strconv.Itoa(pid) + "/cgroup": "0::/pods/" + group + "\n"})
		readers[pid] = NewReader(root, WorkingSet).In(&round)
	}
	read := func(pid int) Limits {
		l, err := readers[pid].Limits(pid)
		require.NoError(t, err)
		return l
	}
	for _, used := range []uint64{100, 200} {
		write(t, root, v2("pods", "1000", strconv.FormatUint(used, 10), ""))
		round.Begin()
		pods := Group{Limit: 1000, Used: used}
		assert.Equal(t, Limits{Groups: []Group{{Limit: 500, Used: 10}, pods}, CPUs: 2, Path: "/pods/a"}, read(1))
		write(t, root, v2("pods", "1000", "999", ""))
		for _, pid := range []int{2, 3} {
			assert.Equal(t, Limits{Groups: []Group{pods}, CPUs: 1, Path: "/pods/b"}, read(pid))
		}
	}
}
