// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// figures are the files of control groups that have to be read.
func (w want) figures(whole bool) cgroup.Wanted {
	var f cgroup.Wanted
	if w.groupCPU || whole {
		f |= cgroup.CPUTime
	}
	if w.throttling {
		f |= cgroup.Throttling
	}
	if w.oomKills {
		f |= cgroup.OOMKills
	}
	if w.pressure {
		f |= cgroup.Pressures
	}
	return f
}

// groupUse is the CPU time that the workload's control group used between two
// readings.
func groupUse(before, after *workloadReading) (cpuUse, bool) {
	if before == nil || !before.stats.CPU.Known || !after.stats.CPU.Known || before.group != after.group {
		return cpuUse{}, false
	}
	return cpuUse{
		used:    after.stats.CPU.Value - before.stats.CPU.Value,
		elapsed: after.statsAt.Sub(before.statsAt),
	}, true
}

// counted is what a workload's control group had counted when it was first read:
// a group is mostly older than what runs in it.
type counted struct {
	group string
	first cgroup.Stats
	at    time.Time
}

// since returns what was counted since then, and when that was. Another group, and
// counts that fell, begin anew.
func (c *counted) since(group string, s cgroup.Stats, now time.Time) (cgroup.Stats, time.Time) {
	if c.group != group || fell(&c.first, &s) {
		*c = counted{group, s, now}
	}
	from, of := counts(&c.first), counts(&s)
	for i := range of {
		subtract(of[i], from[i])
	}
	fromTimes, ofTimes := times(&c.first), times(&s)
	for i := range ofTimes {
		subtract(ofTimes[i], fromTimes[i])
	}
	return s, c.at
}

// counts and times are the cumulative figures, but for the CPU time, which is
// never shown as such.
func counts(s *cgroup.Stats) []*cgroup.Figure[uint64] {
	return []*cgroup.Figure[uint64]{&s.Periods, &s.Throttled, &s.OOMKills}
}

func times(s *cgroup.Stats) []*cgroup.Figure[time.Duration] {
	return []*cgroup.Figure[time.Duration]{
		&s.ThrottledTime, &s.CPUPressure.Some, &s.CPUPressure.Full,
		&s.MemoryPressure.Some, &s.MemoryPressure.Full, &s.IOPressure.Some, &s.IOPressure.Full,
	}
}

// subtract takes what was there at first off a figure. One that is told for the
// first time begins there.
func subtract[T uint64 | time.Duration](of, from *cgroup.Figure[T]) {
	if of.Known && !from.Known {
		*from = *of
	}
	of.Value -= from.Value
}

func fell(before, after *cgroup.Stats) bool {
	b, a := counts(before), counts(after)
	for i := range a {
		if a[i].Known && b[i].Known && a[i].Value < b[i].Value {
			return true
		}
	}
	bt, at := times(before), times(after)
	for i := range at {
		if at[i].Known && bt[i].Known && at[i].Value < bt[i].Value {
			return true
		}
	}
	return false
}

// recordGroup records what the control group tells beyond the limits. The counts
// are since the workload was first read.
func (s *hostScraper) recordGroup(now pcommon.Timestamp, before, w *workloadReading) {
	if use, ok := groupUse(before, w); ok {
		if percent, ok := use.percent(w.capacity); ok {
			s.builder.RecordCgroupCPUDataPoint(now, percent)
		}
	}
	if !w.countedSince.IsZero() {
		s.builder.Reset(metadata.WithStartTime(timestamp(w.countedSince)))
	}
	st := &w.stats
	if st.Periods.Known {
		s.builder.RecordCgroupCPUPeriodsDataPoint(now, int64(st.Periods.Value))
	}
	if st.Throttled.Known {
		s.builder.RecordCgroupCPUThrottledPeriodsDataPoint(now, int64(st.Throttled.Value))
	}
	if st.ThrottledTime.Known {
		s.builder.RecordCgroupCPUThrottledTimeDataPoint(now, st.ThrottledTime.Value.Seconds())
	}
	if st.OOMKills.Known {
		s.builder.RecordCgroupMemoryOomKillsDataPoint(now, int64(st.OOMKills.Value))
	}
	s.recordPressure(now, metadata.AttributeResourceCPU, st.CPUPressure)
	s.recordPressure(now, metadata.AttributeResourceMemory, st.MemoryPressure)
	s.recordPressure(now, metadata.AttributeResourceIo, st.IOPressure)
}

func (s *hostScraper) recordPressure(now pcommon.Timestamp, resource metadata.AttributeResource, p cgroup.Pressure) {
	if p.Some.Known {
		s.builder.RecordCgroupPressureDataPoint(now, p.Some.Value.Microseconds(), resource, metadata.AttributeStallSome)
	}
	if p.Full.Known {
		s.builder.RecordCgroupPressureDataPoint(now, p.Full.Value.Microseconds(), resource, metadata.AttributeStallFull)
	}
}

// groupsReading is what control groups tell of a workload: the limits of the root
// process, and the figures of the group that the workload runs in.
type groupsReading struct {
	limits  cgroup.Limits
	group   string
	stats   cgroup.Stats
	statsAt time.Time
	// countedSince is since when the counts of stats count.
	countedSince time.Time
}
