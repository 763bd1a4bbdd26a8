// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// readProcess identifies the process by its pid and creation time.
func (s *portableSource) readProcess(ctx context.Context) (*workloadReading, error) {
	p, err := process.NewProcessWithContext(ctx, int32(s.target.Pid))
	if errors.Is(err, process.ErrorProcessNotRunning) {
		return nil, s.gone()
	}
	if err != nil {
		return nil, err
	}
	created, err := p.CreateTimeWithContext(ctx)
	if err != nil {
		return nil, err
	}
	key := processKey{start: uint64(created)}
	if s.key != nil && *s.key != key {
		return nil, s.gone()
	}
	s.key = &key
	if !s.target.Tree {
		return fillProcess(ctx, p, key, &processTable{})
	}
	table, err := readProcessTable(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	r, err := fillProcess(ctx, p, key, table)
	if err != nil {
		return nil, err
	}
	s.addDescendants(ctx, r, table)
	return r, nil
}

func (s *portableSource) gone() error {
	if s.key == nil {
		return &scrapers.GoneError{What: fmt.Sprintf("there is no process %d", s.target.Pid)}
	}
	return &scrapers.GoneError{What: fmt.Sprintf("process %d is gone", s.target.Pid)}
}

// fillProcess reads a process. Threads and memory that the system does not tell
// are absent.
func fillProcess(ctx context.Context, p *process.Process, key processKey, table *processTable) (*workloadReading, error) {
	times, err := p.TimesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r := &workloadReading{
		at:       time.Now(),
		key:      key,
		cpuTime:  time.Duration((times.User + times.System) * float64(time.Second)),
		capacity: float64(runtime.NumCPU()),
	}
	if r.threads, err = readThreads(ctx, p, table); err != nil {
		return nil, err
	}
	memory, err := p.MemoryInfoWithContext(ctx)
	switch {
	case err == nil:
		r.rss = memory.RSS
	case !isUntold(err):
		return nil, err
	}
	// No living process has none: macOS says 0 of what may not be read.
	r.noThreads, r.noRSS = r.threads == 0, r.rss == 0
	r.who = &identity.Workload{
		Kind: string(workload.KindProcess), ID: "pid-" + strconv.Itoa(int(p.Pid)), Pid: int(p.Pid),
	}
	// The name is for people; a system that does not tell it costs nothing.
	r.who.Executable, _ = p.NameWithContext(ctx)
	return r, nil
}

// readThreads returns 0 where the system does not tell.
func readThreads(ctx context.Context, p *process.Process, table *processTable) (int, error) {
	if threads, ok := table.threads[p.Pid]; ok {
		return threads, nil
	}
	threads, err := p.NumThreadsWithContext(ctx)
	if isUntold(err) {
		return 0, nil
	}
	return int(max(0, threads)), err
}

// addDescendants adds what the target's descendants use. A process that may not
// be read, or has ended, is left out; so is a value of it that is not told.
func (s *portableSource) addDescendants(ctx context.Context, r *workloadReading, table *processTable) {
	root := treeMember{pid: int32(r.who.Pid), created: r.key.start}
	times := map[treeMember]time.Duration{root: r.cpuTime}
	for queue := []treeMember{root}; len(queue) > 0; queue = queue[1:] {
		for _, pid := range table.children[queue[0].pid] {
			c, ok := descendant(ctx, pid, queue[0], table)
			if !ok {
				continue
			}
			m := treeMember{pid: pid, created: c.key.start}
			if _, seen := times[m]; seen {
				continue
			}
			times[m] = c.cpuTime
			r.threads += c.threads
			r.rss += c.rss
			queue = append(queue, m)
		}
	}
	r.cpuTime = s.tree.update(r.at, times)
}

// descendant reads a child. A child that is older than its parent had another
// one, whose pid was used again.
func descendant(ctx context.Context, pid int32, parent treeMember, table *processTable) (*workloadReading, bool) {
	p := &process.Process{Pid: pid}
	created, err := p.CreateTimeWithContext(ctx)
	if err != nil || uint64(created) < parent.created {
		return nil, false
	}
	r, err := fillProcess(ctx, p, processKey{start: uint64(created)}, table)
	return r, err == nil
}
