// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
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
	if s.buf, err = guard.ReadInto(s.path(pid, "statm"), s.buf, maxFile); err != nil {
		return 0, err
	}
	return procread.ParseResident(s.buf)
}

func (s *processSource) path(pid int, name string) string {
	return s.proc + "/" + strconv.Itoa(pid) + "/" + name
}

// readPSS adds up memory in which a page that n processes share counts one
// n-th in each. It costs the kernel a walk over all of the memory, and needs
// the right to trace the processes. A part of the sum would look like less
// memory: when a living process may not be read there is none.
func (s *processSource) readPSS(r *processReading) error {
	if !s.wantPSS {
		return nil
	}
	var sum uint64
	for _, pid := range s.members {
		pss, err := s.proportional(pid)
		if err != nil && !isEnded(err) {
			return err
		}
		sum += pss
	}
	r.pss = sum
	return nil
}

// proportional returns the proportional memory of a member in bytes. Kernels
// before 4.14 do not have the file, which looks like a member that ended.
func (s *processSource) proportional(pid int) (uint64, error) {
	var err error
	s.buf, err = guard.ReadInto(s.path(pid, "smaps_rollup"), s.buf, maxFile)
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("proc.memory.pssMB needs root or CAP_SYS_PTRACE: %w", err)
	}
	if err != nil {
		return 0, err
	}
	return procread.ParsePSS(s.buf)
}
