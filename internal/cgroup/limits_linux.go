// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"strconv"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// memoryFiles names the files of a version.
type memoryFiles struct {
	limit, usage string
	// inactive, file and shmem are keys of memory.stat, which in version 1 have
	// a form that includes the group's children.
	inactive, file, shmem string
}

var (
	memoryV2 = memoryFiles{
		limit: "/memory.max", usage: "/memory.current",
		inactive: "inactive_file", file: "file", shmem: "shmem",
	}
	memoryV1 = memoryFiles{
		limit: "/memory.limit_in_bytes", usage: "/memory.usage_in_bytes",
		inactive: "total_inactive_file", file: "total_cache", shmem: "total_shmem",
	}
)

// groups reads the memory limits of a group and its ancestors. memory.high only
// throttles and is none; "max" is no number.
func (r *Reader) groups(g group) []Group {
	files := memoryV2
	if g.v1 {
		files = memoryV1
	}
	var limited []Group
	topmost := ""
	g.each(func(dir string) {
		topmost = dir
		limit, ok := readUint(dir + files.limit)
		if !ok {
			return
		}
		if used, ok := r.used(dir, files); ok {
			limited = append(limited, Group{Limit: limit, Used: used})
		}
	})
	if !g.v1 {
		return limited
	}
	// The limit that ancestors set which are not shown: the mount is a part of
	// the hierarchy, or a namespace hides them. What they use is not known: the
	// topmost group that is shown stands for it. At the true root there is none.
	hidden, ok := readStat(topmost)["hierarchical_memory_limit"]
	if used, known := r.used(topmost, files); ok && known {
		limited = append(limited, Group{Limit: hidden, Used: used})
	}
	return limited
}

// used is what counts as used in a group. Without memory.stat all that is
// charged counts.
func (r *Reader) used(dir string, files memoryFiles) (uint64, bool) {
	usage, ok := readUint(dir + files.usage)
	if !ok || r.use == Usage {
		return usage, ok
	}
	stat := readStat(dir)
	reclaimable := stat[files.inactive]
	if r.use == Anon {
		reclaimable = stat[files.file] - min(stat[files.file], stat[files.shmem])
	}
	return usage - min(usage, reclaimable), true
}

// readStat reads memory.stat: lines of a key and a number.
func readStat(dir string) map[string]uint64 {
	content, err := guard.ReadFile(dir+"/memory.stat", maxFile)
	if err != nil {
		return nil
	}
	stat := map[string]uint64{}
	for line := range bytes.Lines(content) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			stat[string(key)] = n
		}
	}
	return stat
}

// quota is the smallest number of CPUs that the group or an ancestor allows.
func quota(g group) float64 {
	smallest := 0.0
	g.each(func(dir string) {
		cpus := quotaV2(dir)
		if g.v1 {
			cpus = quotaV1(dir)
		}
		if cpus > 0 && (smallest == 0 || cpus < smallest) {
			smallest = cpus
		}
	})
	return smallest
}

// defaultPeriod is the kernel's, in microseconds.
const defaultPeriod = 100_000

// quotaV2 reads "quota period"; "max" means none, a missing period the default.
func quotaV2(dir string) float64 {
	content, err := guard.ReadFile(dir+"/cpu.max", maxFile)
	if err != nil {
		return 0
	}
	fields := bytes.Fields(content)
	if len(fields) == 0 {
		return 0
	}
	microseconds, err := strconv.ParseUint(string(fields[0]), 10, 63)
	if err != nil {
		return 0
	}
	period := uint64(defaultPeriod)
	if len(fields) > 1 {
		if period, err = strconv.ParseUint(string(fields[1]), 10, 63); err != nil || period == 0 {
			return 0
		}
	}
	return float64(microseconds) / float64(period)
}

// quotaV1 reads two files; a quota of -1 means none.
func quotaV1(dir string) float64 {
	microseconds, ok := readUint(dir + "/cpu.cfs_quota_us")
	if !ok {
		return 0
	}
	period, ok := readUint(dir + "/cpu.cfs_period_us")
	if !ok || period == 0 {
		return 0
	}
	return float64(microseconds) / float64(period)
}
