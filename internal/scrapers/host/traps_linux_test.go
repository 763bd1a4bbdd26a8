// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mountsV2 = "1 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	mountsV1 = "1 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

// Values that stand for "none" are no numbers to compute with.
func TestLimitsThatAreNone(t *testing.T) {
	for name, tt := range map[string]struct {
		limit string
		v1    bool
		want  bool
	}{
		"a limit":                                {limit: "1048576", want: true},
		"a limit of version 1":                   {limit: "1048576", v1: true, want: true},
		"max":                                    {limit: "max"},
		"zero":                                   {limit: "0"},
		"zero of version 1":                      {limit: "0", v1: true},
		"version 1's none":                       {limit: "9223372036854771712", v1: true},
		"version 1's none with pages of 64 KiB":  {limit: "9223372036854710272", v1: true},
		"as much as the machine has":             {limit: "102400000"},
		"what no kernel writes":                  {limit: "N/A"},
		"what no kernel writes, as version 1":    {limit: "-1", v1: true},
		"a file with nothing in it":              {},
		"a file with nothing in it, a version 1": {v1: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := aWholeMachine(t)
			files := map[string]string{
				"proc/77/cgroup": "0::/job\n", "proc/77/mountinfo": mountsV2, "proc/1/mountinfo": mountsV2,
				"sys/fs/cgroup/job/memory.max": tt.limit + "\n", "sys/fs/cgroup/job/memory.current": "524288\n",
			}
			if tt.v1 {
				files = map[string]string{
					"proc/77/cgroup": "4:memory:/job\n", "proc/77/mountinfo": mountsV1, "proc/1/mountinfo": mountsV1,
					"sys/fs/cgroup/memory/job/memory.limit_in_bytes": tt.limit + "\n",
					"sys/fs/cgroup/memory/job/memory.usage_in_bytes": "524288\n",
				}
			}
			m.write(files)
			r := m.source().read(t.Context(), want{})
			requireSources(t, r)
			require.NotNil(t, r.first())
			if !tt.want {
				assert.Nil(t, r.first().memory)
				return
			}
			require.NotNil(t, r.first().memory)
			assert.Equal(t, limitReading{limit: 1 << 20, used: 1 << 19, headroom: 1 << 19}, *r.first().memory)
		})
	}
}
