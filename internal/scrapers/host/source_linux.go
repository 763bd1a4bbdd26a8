// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// maxFile bounds every file read here. The largest are diskstats, net/dev and
// mountinfo of machines with thousands of devices or mounts.
const maxFile = 8 << 20

// sourceTimeout is how long a source may take to answer. statfs on a dead NFS
// or FUSE mount never does, nor does a /proc file of a dead LXCFS.
const sourceTimeout = 5 * time.Second

// linuxSource reads /proc and /sys below a root. What can hang runs behind a
// slot of its own, all of them side by side; the buffers belong to the slots.
type linuxSource struct {
	memory      memorySource
	filesystems []*filesystemSource
	asked       []*guard.Pending[*filesystemReading]
	disks       *diskSource
	network     *networkSource
	stat        statSource
	// workloads is nil when there are none to find.
	workloads *workloadSource
	pss       pssSource

	rootPath    string
	denominator cpuDenominator
	// physical is the number of physical CPUs: 0 before it was told, below 0 when
	// the machine does not say.
	physical     int
	physicalSlot guard.Slot
}

// environment is what tests replace.
type environment struct {
	now      func() time.Time
	statfs   func(path string, st *unix.Statfs_t) error
	pageSize uint64
}

func systemEnvironment() environment {
	return environment{
		now:      time.Now,
		statfs:   unix.Statfs,
		pageSize: uint64(os.Getpagesize()),
	}
}

func newSource(cfg *Config, set scrapers.Settings) (source, error) {
	return newLinuxSource(cfg, set.RootPath, set.Workloads, systemEnvironment())
}

func newLinuxSource(cfg *Config, rootPath string, workloads *workload.Discovery, env environment) (*linuxSource, error) {
	include, errInclude := compile("include", cfg.Network.Include)
	exclude, errExclude := compile("exclude", cfg.Network.Exclude)
	if err := errors.Join(errInclude, errExclude); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	proc, sys := filepath.Join("/", rootPath, "proc"), filepath.Join("/", rootPath, "sys")
	s := &linuxSource{
		memory:  memorySource{file: guard.KeptFile{Path: filepath.Join(proc, "meminfo")}, isThere: isThere},
		disks:   newDiskSource(proc, sys, rootPath, len(cfg.DiskPaths) > 0, env.now),
		network: newNetworkSource(proc, sys, include, exclude, env.now),
		stat:    statSource{file: guard.KeptFile{Path: filepath.Join(proc, "stat")}},
		pss:     pssSource{proc: proc},

		rootPath:    rootPath,
		denominator: cfg.CPUDenominator,
	}
	if workloads.IsSet() {
		s.workloads = newWorkloadSource(rootPath, proc, cfg.CgroupMemory, workloads, env)
	}
	for _, path := range cfg.DiskPaths {
		s.filesystems = append(s.filesystems, newFilesystemSource(path, rootPath, env.statfs))
	}
	return s, nil
}

// read implements source. A source that hangs takes nothing but its own
// reading away.
func (s *linuxSource) read(ctx context.Context, w want) *reading {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	b := guard.NewBatch(ctx)
	memory := guard.Add(b, &s.memory.slot, s.memory.read)
	disks := guard.Add(b, &s.disks.slot, s.disks.read)
	network := guard.Add(b, &s.network.slot, s.network.read)
	var cpus *guard.Pending[*statReading]
	if w.cores || s.workloads != nil {
		cpus = guard.Add(b, &s.stat.slot, s.stat.read)
	}
	addWorkloads := s.askWorkloads(ctx, b, w)
	physical := s.askPhysical(b)
	filesystems := s.askFilesystems(b)
	b.Run()

	r := &reading{}
	s.addFilesystems(r, filesystems)
	r.memory = collect(r, memory, "meminfo")
	s.addDisks(r, collect(r, disks, "diskstats"))
	r.network = collect(r, network, "net/dev")
	online := s.addCPUs(r, w, collect(r, cpus, "stat"))
	if n := collect(r, physical, "cpuinfo"); n != nil {
		s.physical = *n
	}
	addWorkloads(r)
	s.limit(r, online)
	s.checkAbsent(r)
	return r
}

// counters implements source.
func (s *linuxSource) counters(ctx context.Context) *reading {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	b := guard.NewBatch(ctx)
	disks := guard.Add(b, &s.disks.slot, s.disks.read)
	network := guard.Add(b, &s.network.slot, s.network.read)
	b.Run()
	r := &reading{}
	s.addDisks(r, collect(r, disks, "diskstats"))
	r.network = collect(r, network, "net/dev")
	return r
}

// close implements source. What a hanging call has open stays open.
func (s *linuxSource) close() {
	closeUnlessHung(&s.memory.slot, &s.memory.file)
	closeUnlessHung(&s.stat.slot, &s.stat.file)
	closeUnlessHung(&s.disks.slot, s.disks.files()...)
	closeUnlessHung(&s.network.slot, s.network.files()...)
	if s.workloads != nil && !s.workloads.slot.Hung() {
		s.workloads.close()
	}
}

func closeUnlessHung(slot *guard.Slot, files ...*guard.KeptFile) {
	if slot.Hung() {
		return
	}
	for _, f := range files {
		f.Close()
	}
}

// collect waits for one source.
func collect[T any](r *reading, p *guard.Pending[*T], name string) *T {
	if p == nil {
		return nil
	}
	value, err := p.Wait()
	return take(r, value, err, name)
}

// take puts the error of a source into the reading. A source may give a value
// and an error for the part of it that was not understood.
func take[T any](r *reading, value *T, err error, name string) *T {
	if err == nil {
		return value
	}
	if _, ok := errors.AsType[*scrapers.GoneError](err); ok {
		r.errs = append(r.errs, err)
		return value
	}
	r.errs = append(r.errs, &scrapers.SourceError{Source: name, Err: err})
	return value
}

// checkAbsent tells a machine that is not there from one whose files fail: of
// the former nothing else is said.
func (*linuxSource) checkAbsent(r *reading) {
	if absent, ok := errors.AsType[*scrapers.AbsentError](errors.Join(r.errs...)); ok {
		*r = reading{errs: []error{absent}}
	}
}
