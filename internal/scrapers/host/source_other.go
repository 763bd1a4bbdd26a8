// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// statfsTimeout is how long a file system may take to answer.
const statfsTimeout = 5 * time.Second

// virtualPrefixes begin the names of interfaces that never leave the machine,
// or whose traffic passes another one too.
var virtualPrefixes = map[string][]string{
	"darwin":  {"lo", "utun", "awdl", "llw", "bridge", "gif", "stf", "anpi", "ap", "vmenet"},
	"windows": {"Loopback Pseudo-Interface", "isatap", "Teredo", "vEthernet"},
}

// groupsReading: control groups are Linux'.
type groupsReading struct{}

// groupUse: as above.
func groupUse(_, _ *workloadReading) (cpuUse, bool) { return cpuUse{}, false }

// recordGroup: as above.
func (*hostScraper) recordGroup(pcommon.Timestamp, *workloadReading, *workloadReading) {}

// portableSource asks gopsutil. What it does not implement on a system is
// absent there, not a fault.
type portableSource struct {
	paths            []string
	target           scrapers.Target
	include, exclude []*regexp.Regexp

	memorySlot, diskSlot, networkSlot, coreSlot, processSlot guard.Slot
	pathSlots                                                []guard.Slot
	key                                                      *processKey
	tree                                                     treeTimes
}

func newSource(cfg *Config, set scrapers.Settings) (source, error) {
	target := set.Target
	if set.RootPath != "" {
		return nil, errors.New("root_path: is for Linux; leave it out")
	}
	include, errInclude := compile("include", cfg.Network.Include)
	exclude, errExclude := compile("exclude", cfg.Network.Exclude)
	if err := errors.Join(errInclude, errExclude); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if target.Self {
		target.Pid = os.Getpid()
	}
	return &portableSource{
		paths:     cfg.DiskPaths,
		target:    target,
		include:   include,
		exclude:   exclude,
		pathSlots: make([]guard.Slot, len(cfg.DiskPaths)),
	}, nil
}

// read implements source.
func (s *portableSource) read(ctx context.Context, w want) *reading {
	r := s.counters(ctx)
	r.memory = call(ctx, r, &s.memorySlot, "memory", readMemory)
	s.addFilesystems(ctx, r)
	if w.cores {
		if cores := call(ctx, r, &s.coreSlot, "CPU times", readCores); cores != nil {
			r.cores = *cores
		}
	}
	if s.target.IsSet() {
		if w := call(ctx, r, &s.processSlot, "process", s.readProcess); w != nil {
			r.workloads = []*workloadReading{w}
		}
	}
	return r
}

// counters implements source.
func (s *portableSource) counters(ctx context.Context) *reading {
	r := &reading{}
	r.disks = call(ctx, r, &s.diskSlot, "disk counters", s.readDisks)
	r.network = call(ctx, r, &s.networkSlot, "network counters", s.readNetwork)
	return r
}

// close implements source.
func (*portableSource) close() {}

// call runs one source behind its slot.
func call[T any](ctx context.Context, r *reading, slot *guard.Slot, name string, fn func(context.Context) (*T, error)) *T {
	value, err := guard.Call(ctx, slot, fn)
	switch {
	case err == nil:
		return value
	case isNotImplemented(err):
		return nil
	}
	if _, ok := errors.AsType[*scrapers.GoneError](err); ok {
		r.errs = append(r.errs, err)
		return nil
	}
	r.errs = append(r.errs, &scrapers.SourceError{Source: name, Err: err})
	return nil
}

func readMemory(ctx context.Context) (*memoryReading, error) {
	vm, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r := &memoryReading{total: vm.Total, available: min(vm.Available, vm.Total)}
	if swap, err := mem.SwapMemoryWithContext(ctx); err == nil {
		r.swapTotal, r.swapUsed = swap.Total, min(swap.Used, swap.Total)
	}
	return r, nil
}

func readCores(ctx context.Context) (*[]coreReading, error) {
	times, err := cpu.TimesWithContext(ctx, true)
	if err != nil {
		return nil, err
	}
	cores := make([]coreReading, 0, len(times))
	for i, t := range times {
		busy := t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
		cores = append(cores, coreReading{number: i, busy: busy, total: busy + t.Idle + t.Iowait})
	}
	return &cores, nil
}

func (s *portableSource) addFilesystems(ctx context.Context, r *reading) {
	ctx, cancel := context.WithTimeout(ctx, statfsTimeout)
	defer cancel()
	for i, path := range s.paths {
		f := call(ctx, r, &s.pathSlots[i], path, func(ctx context.Context) (*filesystemReading, error) {
			usage, err := disk.UsageWithContext(ctx, path)
			if err != nil {
				return nil, err
			}
			return &filesystemReading{path: path, resolved: path, blocks: usage.Total > 0, used: usage.Used, available: usage.Free}, nil
		})
		if f != nil {
			r.filesystems = append(r.filesystems, *f)
		}
	}
}

// readDisks takes every device that the system reports as a base device:
// physical disks on macOS, drive letters on Windows.
func (s *portableSource) readDisks(ctx context.Context) (*diskReading, error) {
	counters, err := disk.IOCountersWithContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(counters) == 0 {
		return nil, nil
	}
	r := &diskReading{at: time.Now()}
	for name, c := range counters {
		r.devices = append(r.devices, deviceReading{name: name, read: c.ReadBytes, written: c.WriteBytes, base: true, backing: s.backs(name)})
	}
	return r, nil
}

// backs tells whether a configured path is on a Windows drive. On macOS only
// the physical disk has counters, and it is a base device anyway.
func (s *portableSource) backs(device string) bool {
	for _, path := range s.paths {
		if volume := filepath.VolumeName(path); volume != "" && strings.EqualFold(volume, device) {
			return true
		}
	}
	return false
}

func (s *portableSource) readNetwork(ctx context.Context) (*networkReading, error) {
	counters, err := net.IOCountersWithContext(ctx, true)
	if err != nil {
		return nil, err
	}
	r := &networkReading{at: time.Now()}
	for _, c := range counters {
		r.interfaces = append(r.interfaces, interfaceReading{
			name: c.Name, received: c.BytesRecv, sent: c.BytesSent, counted: s.counts(c.Name),
		})
	}
	return r, nil
}

func (s *portableSource) counts(name string) bool {
	if matchAny(s.exclude, name) {
		return false
	}
	if len(s.include) > 0 {
		return matchAny(s.include, name)
	}
	for _, prefix := range virtualPrefixes[runtime.GOOS] {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}
