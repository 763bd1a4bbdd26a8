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
	if snap.Boot != "" {
		s.boot = snap.Boot
	}
	tree := snap.Tree(s.pid)
	if len(tree) == 0 {
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
// ended since the snapshot has left nothing.
func (s *processSource) addMembers(r *processReading, tree []*workload.Process) error {
	unread := 0
	for _, p := range tree {
		if p.Zombie {
			continue
		}
		resident, err := s.resident(p.Pid)
		if isEnded(err) {
			continue
		}
		if err != nil {
			return err
		}
		r.threads += p.Threads
		r.rss += resident
		if !s.wantPSS {
			continue
		}
		pss, err := s.readPSS(p.Pid)
		if err != nil {
			unread++
			continue
		}
		r.pss += pss
	}
	if unread > 0 {
		r.pss = 0 // a part of the sum would look like less memory
	}
	return nil
}

func (s *processSource) resident(pid int) (uint64, error) {
	var err error
	if s.buf, err = guard.ReadInto(s.proc+"/"+strconv.Itoa(pid)+"/statm", s.buf, maxFile); err != nil {
		return 0, err
	}
	pages, err := procread.ParseResident(s.buf)
	return pages * s.env.pageSize, err
}

// readPSS reads the memory of a process in which a page that n processes share
// counts one n-th. It costs the kernel a walk over all of its memory, and
// needs the right to trace the process.
func (s *processSource) readPSS(pid int) (uint64, error) {
	var err error
	s.buf, err = guard.ReadInto(s.proc+"/"+strconv.Itoa(pid)+"/smaps_rollup", s.buf, maxFile)
	if errors.Is(err, fs.ErrPermission) {
		return 0, fmt.Errorf("proc.memory.pssMB needs root or CAP_SYS_PTRACE: %w", err)
	}
	if err != nil {
		return 0, err
	}
	return procread.ParsePSS(s.buf)
}
