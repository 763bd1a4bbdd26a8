// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// source fetches raw readings. Each operating system has one; tests bring
// recorded ones. It is used by one goroutine at a time.
type source interface {
	// read reads everything once.
	read(ctx context.Context, w want) *reading
	// counters reads only what counts from the start.
	counters(ctx context.Context) *reading
	// close frees what is held open. Nothing is read after it.
	close()
}

// want says which readings are needed beyond those that always are.
type want struct {
	// cores asks for the times of each logical CPU.
	cores bool
	// pss asks for the workloads' proportional memory, which is slow.
	pss bool
	// groupCPU, throttling, oomKills and pressure ask for what the workloads'
	// control groups tell.
	groupCPU, throttling, oomKills, pressure bool
}

// reading is what one scrape found. What a source did not tell is nil or
// empty, and errs says why. Slices and strings may share memory with the
// source until its next read.
type reading struct {
	memory      *memoryReading
	filesystems []filesystemReading
	disks       *diskReading
	network     *networkReading
	cores       []coreReading
	workloads   []*workloadReading
	// errs holds *scrapers.SourceError and *scrapers.GoneError.
	errs []error
}

// memoryReading is in bytes.
type memoryReading struct {
	total, available    uint64
	swapTotal, swapUsed uint64
}

// filesystemReading is one configured path.
type filesystemReading struct {
	path string
	// resolved is the path without symbolic links, as seen on the machine.
	resolved string
	// blocks is false where a file system has no blocks at all.
	blocks bool
	// used and available are in bytes; available is what ordinary users may
	// still write.
	used, available uint64
}

// diskReading holds the counters of all block devices.
type diskReading struct {
	at      time.Time
	devices []deviceReading
	// partial says that there may be more devices, which were not understood.
	partial bool
}

// deviceReading is one block device.
type deviceReading struct {
	name string
	// read and written are in bytes since boot or attachment.
	read, written uint64
	// base devices make up the aggregate: whole disks.
	base bool
	// backing devices lie under a configured path.
	backing bool
}

// networkReading holds the counters of all interfaces.
type networkReading struct {
	at         time.Time
	interfaces []interfaceReading
}

// interfaceReading is one network interface.
type interfaceReading struct {
	name string
	// received and sent are in bytes since the interface was made.
	received, sent uint64
	// counted interfaces make up the aggregate.
	counted bool
}

// coreReading holds the times of one logical CPU, in any unit.
type coreReading struct {
	number      int
	busy, total float64
}

// workloadReading is one workload.
type workloadReading struct {
	at  time.Time
	who *identity.Workload
	// resource is that of who, once it was emitted.
	resource pcommon.Resource
	// key differs between two processes that had the same pid.
	key processKey
	// began is when the root process started; zero where that is not needed.
	began time.Time
	// cpuTime is the user and system time of the processes, from any beginning
	// that stays the same.
	cpuTime time.Duration
	// whole says that the workload is all that its control group holds, so that
	// the group's time is exact.
	whole   bool
	threads int
	// rss and pss are in bytes; pss is 0 where it is not wanted or not told.
	rss, pss uint64
	// noThreads and noRSS say that the system does not tell threads and rss.
	noThreads, noRSS bool
	// capacity is how many CPUs the workload can use; 0 is unknown.
	capacity float64
	// memory is the memory limit in force; nil is none.
	memory *limitReading
	// pids are the processes that are alive.
	pids []int
	groupsReading
}

// limitReading is a memory limit, in bytes: the smallest one, what its own
// group uses, and the least that any limited group has left.
type limitReading struct {
	limit, used, headroom uint64
}

// processKey identifies a process beside its pid.
type processKey struct {
	// boot tells one boot of the machine from another; empty where unknown.
	boot string
	// start is when the process started, in a unit that the clock being set
	// does not change, where the system has one.
	start uint64
}

// same tells whether both are one process. A boot that is not known tells
// nothing.
func (k processKey) same(other processKey) bool {
	return k.start == other.start && (k.boot == other.boot || k.boot == "" || other.boot == "")
}
