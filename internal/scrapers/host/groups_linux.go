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

// recordGroup records what the control group tells beyond the limits. The counts
// are since the group was made, which is when the workload began.
func (s *hostScraper) recordGroup(now pcommon.Timestamp, before, w *workloadReading) {
	if use, ok := groupUse(before, w); ok {
		if percent, ok := use.percent(w.capacity); ok {
			s.builder.RecordCgroupCPUDataPoint(now, percent)
		}
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
}
