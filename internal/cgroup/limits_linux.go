// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"strconv"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// noLimit is above every limit and below what version 1 writes for "no limit",
// which depends on the page size.
const noLimit = 1 << 62

// memoryKeys are the lines of memory.stat that are used. In version 1 they have
// a form that includes the group's children.
type memoryKeys struct {
	inactive, file, shmem string
}

var (
	memoryKeysV2 = memoryKeys{inactive: "inactive_file", file: "file", shmem: "shmem"}
	memoryKeysV1 = memoryKeys{inactive: "total_inactive_file", file: "total_cache", shmem: "total_shmem"}
)

// memoryLevel is what one group tells of memory.
type memoryLevel struct {
	keys               *memoryKeys
	limit, usage, stat guard.KeptFile
}

func newMemoryLevel(dir string, v1 bool) memoryLevel {
	l := memoryLevel{
		keys:  &memoryKeysV2,
		limit: guard.KeptFile{Path: dir + "/memory.max"},
		usage: guard.KeptFile{Path: dir + "/memory.current"},
		stat:  guard.KeptFile{Path: dir + "/memory.stat"},
	}
	if v1 {
		l.keys = &memoryKeysV1
		l.limit.Path, l.usage.Path = dir+"/memory.limit_in_bytes", dir+"/memory.usage_in_bytes"
	}
	return l
}

// groups reads the memory limits of the levels, the nearest first. memory.high
// only throttles and is none; "max" is no number.
func (r *Reader) groups(from string) []Group {
	var limited []Group
	for i := levelOf(r.places.memoryGroup, from); i < len(r.places.memory); i++ {
		l := &r.places.memory[i]
		g := shared(r.round.groups(), l.limit.Path, func() Group { return r.limited(l) })
		if g != (Group{}) {
			limited = append(limited, g)
		}
	}
	if g, ok := r.hiddenGroup(); ok {
		limited = append(limited, g)
	}
	return limited
}

// levelOf is how many levels a group lies above that of the process; 0 where it is
// not one of its ancestors in this hierarchy.
func levelOf(g group, groupPath string) int {
	dir, ok := g.dir(groupPath)
	if groupPath == "" || !ok {
		return 0
	}
	level, found := 0, -1
	g.each(func(d string) {
		if d == dir {
			found = level
		}
		level++
	})
	return max(0, found)
}

// limited is the limit of one level and what it uses; the zero Group when there
// is none.
func (r *Reader) limited(l *memoryLevel) Group {
	limit, ok := r.number(&l.limit)
	if !ok || limit >= noLimit {
		return Group{}
	}
	used, ok := r.used(l)
	if !ok {
		return Group{}
	}
	return Group{Limit: limit, Used: used}
}

// hiddenGroup is the limit that ancestors set which are not shown: the mount is
// a part of the hierarchy, or a namespace hides them. What they use is not
// known: the topmost group that tells of itself stands for it.
func (r *Reader) hiddenGroup() (Group, bool) {
	if !r.places.hidden {
		return Group{}, false
	}
	for i := len(r.places.memory) - 1; i >= 0; i-- {
		l := &r.places.memory[i]
		limit, ok := r.stat(l, "hierarchical_memory_limit")
		if !ok {
			continue
		}
		used, ok := r.used(l)
		return Group{Limit: limit, Used: used}, ok && limit < noLimit
	}
	return Group{}, false
}

// used is what counts as used in a group. Without memory.stat all that is
// charged counts.
func (r *Reader) used(l *memoryLevel) (uint64, bool) {
	usage, ok := r.number(&l.usage)
	if !ok || r.use == Usage {
		return usage, ok
	}
	if r.use == WorkingSet {
		inactive, _ := r.stat(l, l.keys.inactive)
		return usage - min(usage, inactive), true
	}
	file, _ := r.stat(l, l.keys.file)
	shmem, _ := statValue(r.buf, l.keys.shmem)
	return usage - min(usage, file-min(file, shmem)), true
}

// stat reads memory.stat and returns the number of one line. The file is in
// the buffer afterwards.
func (r *Reader) stat(l *memoryLevel, key string) (uint64, bool) {
	var err error
	if r.buf, err = l.stat.ReadInto(r.buf, maxFile); err != nil {
		return 0, false
	}
	return statValue(r.buf, key)
}

// statValue finds the line of a key among lines of a key and a number.
func statValue(content []byte, key string) (uint64, bool) {
	for len(content) > 0 {
		var line []byte
		line, content, _ = bytes.Cut(content, []byte{'\n'})
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if string(name) != key {
			continue
		}
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// number reads a file that holds one number; ok is false for "max", for a
// missing file, and for anything else.
func (r *Reader) number(f *guard.KeptFile) (uint64, bool) {
	var err error
	if r.buf, err = f.ReadInto(r.buf, maxFile); err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(r.buf)), 10, 64)
	return n, err == nil
}

// cpuLevel is what one group tells of CPUs. Version 2 has both numbers in one
// file.
type cpuLevel struct {
	v1            bool
	quota, period guard.KeptFile
}

func newCPULevel(dir string, v1 bool) cpuLevel {
	if !v1 {
		return cpuLevel{quota: guard.KeptFile{Path: dir + "/cpu.max"}}
	}
	return cpuLevel{
		v1:     true,
		quota:  guard.KeptFile{Path: dir + "/cpu.cfs_quota_us"},
		period: guard.KeptFile{Path: dir + "/cpu.cfs_period_us"},
	}
}

// quota is the smallest number of CPUs that any level allows; 0 is none.
func (r *Reader) quota(from string) float64 {
	smallest := 0.0
	for i := levelOf(r.places.cpuGroup, from); i < len(r.places.cpu); i++ {
		l := &r.places.cpu[i]
		cpus := shared(r.round.quotas(), l.quota.Path, func() float64 { return r.cpus(l) })
		if cpus > 0 && (smallest == 0 || cpus < smallest) {
			smallest = cpus
		}
	}
	return smallest
}

// cpus is the quota of one level; 0 is none. In version 1 a quota of -1 means
// none.
func (r *Reader) cpus(l *cpuLevel) float64 {
	if !l.v1 {
		var err error
		if r.buf, err = l.quota.ReadInto(r.buf, maxFile); err != nil {
			return 0
		}
		return parseQuota(r.buf)
	}
	microseconds, ok := r.number(&l.quota)
	if !ok {
		return 0
	}
	period, ok := r.number(&l.period)
	if !ok || period == 0 {
		return 0
	}
	return float64(microseconds) / float64(period)
}

// defaultPeriod is the kernel's, in microseconds.
const defaultPeriod = 100_000

// parseQuota reads "quota period"; "max" means none, a missing period the
// default.
func parseQuota(content []byte) float64 {
	first, rest, _ := bytes.Cut(bytes.TrimSpace(content), []byte{' '})
	microseconds, err := strconv.ParseUint(string(first), 10, 63)
	if err != nil {
		return 0
	}
	period := uint64(defaultPeriod)
	if rest = bytes.TrimSpace(rest); len(rest) > 0 {
		if period, err = strconv.ParseUint(string(rest), 10, 63); err != nil || period == 0 {
			return 0
		}
	}
	return float64(microseconds) / float64(period)
}
