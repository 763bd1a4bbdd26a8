// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

func (s *hostScraper) recordMemory(now pcommon.Timestamp, m *memoryReading) {
	if m == nil || m.total == 0 {
		return
	}
	used := m.total - m.available
	percent := 100 * float64(used) / float64(m.total)
	s.builder.RecordMemoryPercentDataPoint(now, percent)
	s.builder.RecordProcMemoryAvailableMBDataPoint(now, float64(m.available)/mebi)
	s.builder.RecordMemoryUsedDataPoint(now, int64(used))
	s.builder.RecordMemoryUsedPercentDataPoint(now, percent)
	s.builder.RecordSwapUsedDataPoint(now, int64(m.swapUsed))
	if m.swapTotal > 0 {
		s.builder.RecordSwapUsedPercentDataPoint(now, 100*float64(m.swapUsed)/float64(m.swapTotal))
	}
}

func (s *hostScraper) recordFilesystems(now pcommon.Timestamp, filesystems []filesystemReading) {
	for i := range filesystems {
		f := &filesystems[i]
		// A file system that has no room at all (autofs) is none to measure.
		size := f.used + f.available
		if !f.blocks || size == 0 {
			continue
		}
		percent := 100 * float64(f.used) / float64(size)
		s.builder.RecordDiskUsageGBDataPoint(now, float64(f.used)/gibi, f.path)
		s.builder.RecordDiskUsagePercentDataPoint(now, percent, f.path)
		if f.path == s.firstPath {
			s.builder.RecordDiskDataPoint(now, percent)
		}
	}
}

func (s *hostScraper) recordDisks(now pcommon.Timestamp, r *diskReading) {
	if r == nil || len(r.devices) == 0 {
		return
	}
	s.builder.Reset(metadata.WithStartTime(s.disks.start))
	s.builder.RecordDiskInDataPoint(now, float64(s.disks.read)/mebi)
	s.builder.RecordDiskOutDataPoint(now, float64(s.disks.written)/mebi)
	for i := range r.devices {
		d := &r.devices[i]
		if !d.base && !d.backing {
			continue
		}
		c := s.disks.devices[d.name]
		s.builder.RecordDiskDeviceInDataPoint(now, float64(c.read.total)/mebi, d.name)
		s.builder.RecordDiskDeviceOutDataPoint(now, float64(c.written.total)/mebi, d.name)
	}
}

func (s *hostScraper) recordNetwork(now pcommon.Timestamp, r *networkReading) {
	if r == nil {
		return
	}
	s.builder.Reset(metadata.WithStartTime(s.network.start))
	s.builder.RecordNetworkRecvDataPoint(now, int64(s.network.received))
	s.builder.RecordNetworkSentDataPoint(now, int64(s.network.sent))
}

// recordCores needs two readings of a CPU. Times that fell, as after a CPU was
// off, make a new beginning.
func (s *hostScraper) recordCores(now pcommon.Timestamp, cores []coreReading) {
	for _, c := range cores {
		before, known := s.cores[c.number]
		s.cores[c.number] = c
		busy, total := c.busy-before.busy, c.total-before.total
		if !known || busy < 0 || total <= 0 {
			continue
		}
		s.builder.RecordCPUCPUPercentDataPoint(now, min(100, 100*busy/total), int64(c.number))
	}
}

// recordWorkloads emits each workload for its own resource.
func (s *hostScraper) recordWorkloads(now pcommon.Timestamp, r *reading) {
	previous := make(map[string]*workloadReading, len(r.workloads))
	for _, w := range r.workloads {
		if !w.began.IsZero() {
			s.builder.Reset(metadata.WithStartTime(timestamp(w.began)))
		}
		s.recordWorkload(now, w, r.memory)
		w.resource = s.resourceOf(w.who)
		s.builder.EmitForResource(metadata.WithResource(w.resource))
		previous[w.who.ID] = w
	}
	s.previous = previous
}

// resourceOf is the resource of a workload, that of the last scrape as long as
// nothing about it changed.
func (s *hostScraper) resourceOf(who *identity.Workload) pcommon.Resource {
	if before := s.previous[who.ID]; before != nil && *before.who == *who {
		return before.resource
	}
	return s.identity.Workload(who)
}

func (s *hostScraper) recordWorkload(now pcommon.Timestamp, w *workloadReading, m *memoryReading) {
	if !w.noThreads {
		s.builder.RecordProcCPUThreadsDataPoint(now, int64(w.threads))
	}
	if !w.noRSS {
		s.builder.RecordProcMemoryRssMBDataPoint(now, float64(w.rss)/mebi)
	}
	if w.pss > 0 {
		s.builder.RecordProcMemoryPssMBDataPoint(now, float64(w.pss)/mebi)
	}
	s.recordLimit(now, w, m)
	before := s.previous[w.who.ID]
	if percent, ok := cpuPercent(before, w); ok {
		s.builder.RecordCPUDataPoint(now, percent)
	}
	s.recordGroup(now, before, w)
}

// recordLimit records the memory in relation to what the workload may use: its
// limit where there is one, else the machine's memory. Without a limit the
// machine's own points say what is used and left.
func (s *hostScraper) recordLimit(now pcommon.Timestamp, w *workloadReading, m *memoryReading) {
	var limit uint64
	switch {
	case w.memory != nil:
		limit = w.memory.limit
		left := w.memory.headroom
		if m != nil {
			left = min(left, m.available)
		}
		s.builder.RecordMemoryPercentDataPoint(now, 100*float64(w.memory.used)/float64(limit))
		s.builder.RecordProcMemoryAvailableMBDataPoint(now, float64(left)/mebi)
	case m != nil:
		limit = m.total
	}
	if limit > 0 && !w.noRSS {
		s.builder.RecordProcMemoryPercentDataPoint(now, 100*float64(w.rss)/float64(limit))
	}
}

// cpuPercent is the use of the CPUs that the workload may use, over the time
// between two readings of the same workload. Of one that is all that its control
// group holds the group tells exactly.
func cpuPercent(before, after *workloadReading) (float64, bool) {
	if before == nil || !before.key.same(after.key) {
		return 0, false
	}
	if use, ok := groupUse(before, after); ok && before.whole && after.whole && use.used >= 0 && use.elapsed > 0 {
		return use.percent(after.capacity)
	}
	return cpuUse{after.cpuTime - before.cpuTime, after.at.Sub(before.at)}.percent(after.capacity)
}

// cpuUse is the CPU time used in some time.
type cpuUse struct {
	used, elapsed time.Duration
}

// percent is the use in percent of so many CPUs.
func (u cpuUse) percent(capacity float64) (float64, bool) {
	if capacity <= 0 || u.elapsed <= 0 || u.used < 0 {
		return 0, false
	}
	return 100 * u.used.Seconds() / u.elapsed.Seconds() / capacity, true
}
