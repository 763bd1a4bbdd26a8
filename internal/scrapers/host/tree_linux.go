// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// readTree reads the target and all its descendants from one snapshot.
func (s *processSource) readTree(ctx context.Context) (*processReading, error) {
	snap, err := s.snapshots.Take(ctx)
	if err != nil {
		return nil, err
	}
	s.unread = snap.Unread
	if snap.Boot != "" {
		s.boot = snap.Boot
	}
	tree := snap.Tree(s.pid)
	if len(tree) == 0 {
		if snap.Unread != nil {
			return nil, snap.Unread // which may be the target
		}
		return nil, procread.ErrEnded
	}
	root := tree[0]
	key := processKey{boot: s.boot, start: root.Start}
	if !s.isTarget(key, root.Zombie) {
		return nil, procread.ErrEnded
	}
	ticks, _ := s.usage.Update(snap, tree)
	s.cpuTime += time.Duration(ticks) * (time.Second / procread.TicksPerSecond)
	r := &processReading{at: snap.At, pid: s.pid, key: key, executable: root.Name, cpuTime: s.cpuTime}
	return r, s.addMembers(r, tree)
}

// addMembers adds up threads and memory. Zombies have neither; a member that
// ended since the snapshot has left nothing. Of a root that did the target is
// gone.
func (s *processSource) addMembers(r *processReading, tree []*workload.Process) error {
	s.members = s.members[:0]
	for _, p := range tree {
		if p.Zombie {
			continue
		}
		pages, err := s.resident(p.Pid)
		if isEnded(err) && p.Pid != s.pid {
			continue
		}
		if err != nil {
			return err
		}
		s.members = append(s.members, p.Pid)
		r.threads += p.Threads
		r.rss += pages * s.env.pageSize
	}
	return nil
}

// resident returns the resident pages of a member.
func (s *processSource) resident(pid int) (uint64, error) {
	var err error
	if s.buf, err = guard.ReadInto(processFile(s.proc, pid, "statm"), s.buf, maxFile); err != nil {
		return 0, err
	}
	return procread.ParseResident(s.buf)
}

func processFile(proc string, pid int, name string) string {
	return proc + "/" + strconv.Itoa(pid) + "/" + name
}

// pssSource adds up memory in which a page that n processes share counts one
// n-th in each. It costs the kernel a walk over all of the memory, which takes
// seconds where there is much, and needs the right to trace the processes.
type pssSource struct {
	slot guard.Slot
	proc string
	buf  []byte
}

// read returns the sum over these processes. A part of it would look like less
// memory: when a living process may not be read there is none.
func (s *pssSource) read(ctx context.Context, pids []int) (uint64, error) {
	var sum uint64
	for _, pid := range pids {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("was not added up in time: %w", context.Cause(ctx))
		}
		pss, err := s.proportional(pid)
		if err != nil && !isEnded(err) {
			return 0, err
		}
		sum += pss
	}
	return sum, nil
}

// proportional returns the proportional memory of a process in bytes. Kernels
// before 4.14 do not have the file, which looks like a process that ended.
func (s *pssSource) proportional(pid int) (uint64, error) {
	var err error
	s.buf, err = guard.ReadInto(processFile(s.proc, pid, "smaps_rollup"), s.buf, maxFile)
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("needs root or CAP_SYS_PTRACE: %w", err)
	}
	if err != nil {
		return 0, err
	}
	return procread.ParsePSS(s.buf)
}

// askProcess puts the question for the target into the batch. Where the
// proportional memory is wanted too it follows, with the processes that were
// found, while the batch runs.
func (s *linuxSource) askProcess(ctx context.Context, b *guard.Batch, pss bool) func(*reading) *processReading {
	if !s.hasTarget {
		return func(*reading) *processReading { return nil }
	}
	if !pss {
		p := guard.Add(b, &s.process.slot, s.process.read)
		return func(r *reading) *processReading { return collect(r, p, "process") }
	}
	answer := make(chan func(*reading) *processReading, 1)
	go func() { answer <- s.readWithPSS(ctx) }() // both its calls end with ctx
	return func(r *reading) *processReading { return (<-answer)(r) }
}

// found is the target with the processes that it consists of.
type found struct {
	reading *processReading
	pids    []int
}

// readWithPSS returns what puts the answers into the reading.
func (s *linuxSource) readWithPSS(ctx context.Context) func(*reading) *processReading {
	f, err := guard.Call(ctx, &s.process.slot, func(ctx context.Context) (found, error) {
		p, err := s.process.read(ctx)
		return found{p, slices.Clone(s.process.members)}, err
	})
	var errPSS error
	if f.reading != nil {
		f.reading.pss, errPSS = guard.Call(ctx, &s.pss.slot, func(ctx context.Context) (uint64, error) {
			return s.pss.read(ctx, f.pids)
		})
	}
	return func(r *reading) *processReading {
		p := take(r, f.reading, err, "process")
		if errPSS != nil {
			r.errs = append(r.errs, &scrapers.SourceError{Source: "smaps_rollup", Err: fmt.Errorf("proc.memory.pssMB %w", errPSS)})
		}
		return p
	}
}
