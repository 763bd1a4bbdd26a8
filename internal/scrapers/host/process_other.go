// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// readProcess identifies the process by its pid and creation time.
func (s *portableSource) readProcess(ctx context.Context) (*processReading, error) {
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
	r, err := fillProcess(ctx, p, key)
	if err != nil || !s.target.Tree {
		return r, err
	}
	return r, s.addDescendants(ctx, r)
}

func (s *portableSource) gone() error {
	if s.key == nil {
		return &scrapers.GoneError{What: fmt.Sprintf("there is no process %d", s.target.Pid)}
	}
	return &scrapers.GoneError{What: fmt.Sprintf("process %d is gone", s.target.Pid)}
}

func fillProcess(ctx context.Context, p *process.Process, key processKey) (*processReading, error) {
	times, err := p.TimesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r := &processReading{
		at:       time.Now(),
		pid:      int(p.Pid),
		key:      key,
		cpuTime:  time.Duration((times.User + times.System) * float64(time.Second)),
		capacity: float64(runtime.NumCPU()),
	}
	threads, err := p.NumThreadsWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r.threads = int(threads)
	memory, err := p.MemoryInfoWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r.rss = memory.RSS
	// The name is for people; a system that does not tell it costs nothing.
	r.executable, _ = p.NameWithContext(ctx)
	return r, nil
}

// treeTimes follows the CPU time of a tree. Unlike on Linux nothing tells what
// a process that ended used since it was last read: that is lost.
type treeTimes struct {
	times map[member]time.Duration
	at    time.Time
	total time.Duration
}

// member identifies a process of the tree; created is in milliseconds.
type member struct {
	pid     int32
	created uint64
}

// update takes the times of all members now, and returns the time that the tree
// used since the first update. A member that is older than the last update and
// was not in it joined the tree, and brings nothing.
func (t *treeTimes) update(at time.Time, times map[member]time.Duration) time.Duration {
	for m, now := range times {
		before, was := t.times[m]
		switch {
		case was:
			t.total += max(0, now-before)
		case !t.at.IsZero() && m.created >= uint64(t.at.UnixMilli()):
			t.total += now
		}
	}
	t.times, t.at = times, at
	return t.total
}

// addDescendants adds what the target's descendants use. A process that may not
// be read, or has ended, is left out.
func (s *portableSource) addDescendants(ctx context.Context, r *processReading) error {
	children, err := processTable(ctx)
	if err != nil {
		return err
	}
	root := member{pid: int32(r.pid), created: r.key.start}
	times := map[member]time.Duration{root: r.cpuTime}
	for queue := []member{root}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0].pid] {
			c, ok := descendant(ctx, child, queue[0])
			if !ok {
				continue
			}
			m := member{pid: child.Pid, created: c.key.start}
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
	return nil
}

// processTable lists all processes by their parent's pid.
func processTable(ctx context.Context) (map[int32][]*process.Process, error) {
	all, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	children := make(map[int32][]*process.Process, len(all))
	for _, p := range all {
		if parent, err := p.PpidWithContext(ctx); err == nil {
			children[parent] = append(children[parent], p)
		}
	}
	return children, nil
}

// descendant reads a child. A child that is older than its parent had another
// one, whose pid was used again.
func descendant(ctx context.Context, p *process.Process, parent member) (*processReading, bool) {
	created, err := p.CreateTimeWithContext(ctx)
	if err != nil || uint64(created) < parent.created {
		return nil, false
	}
	r, err := fillProcess(ctx, p, processKey{start: uint64(created)})
	return r, err == nil
}
