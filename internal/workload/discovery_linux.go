// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// Discovery finds the workloads of a machine. It is safe for concurrent use.
type Discovery struct {
	opts      Options
	proc      string
	snapshots *Snapshots
	looker    *looker
	groups    *cgroup.Identifier
	names     *containerNames

	mu      sync.Mutex
	latest  *View
	pass    uint64
	facts   map[Key]*facts
	people  []person
	target  target
	notices map[string]bool
	buf     []byte

	holdersMu sync.Mutex
	holders   map[string][]int
}

// target is the configured process, once it was seen. Another one that gets its
// pid later is not it.
type target struct {
	pid   int
	start uint64
	boot  string
	known bool
}

// NewDiscovery returns a Discovery. It reads nothing yet.
func NewDiscovery(o Options) *Discovery {
	if o.MaxWorkloads <= 0 {
		o.MaxWorkloads = DefaultMaxWorkloads
	}
	if o.MaxProcesses <= 0 {
		o.MaxProcesses = DefaultMaxProcesses
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Discovery{
		opts:      o,
		proc:      filepath.Join("/", o.RootPath, "proc"),
		snapshots: NewSnapshots(o.RootPath),
		looker:    newLooker(o.RootPath, o.Match),
		groups:    cgroup.NewIdentifier(o.RootPath),
		names:     newContainerNames(),
		facts:     map[Key]*facts{},
		target:    target{pid: o.Target.Pid},
		notices:   map[string]bool{},
		holders:   map[string][]int{},
	}
}

// WithClock replaces the clocks, for recorded machines.
func (d *Discovery) WithClock(now func() time.Time, bootTicks func() (uint64, error)) *Discovery {
	d.snapshots.WithClock(now, bootTicks)
	return d
}

// WithReadlink replaces how links are read, for recorded machines, which have
// files in their place.
func (d *Discovery) WithReadlink(readlink func(name string) (string, error)) *Discovery {
	d.looker.readlink = readlink
	return d
}

// IsSet tells whether there is anything to find.
func (d *Discovery) IsSet() bool { return d != nil && d.opts.IsSet() }

// WantsHolders tells whether processes that hold an accelerator are looked for.
func (d *Discovery) WantsHolders() bool { return d != nil && d.opts.Discover.GPU }

// SetHolders says which processes hold an accelerator, by family; the pids are
// those below the root path.
func (d *Discovery) SetHolders(family string, pids []int) {
	d.holdersMu.Lock()
	defer d.holdersMu.Unlock()
	d.holders[family] = slices.Clone(pids)
}

// Take finds the workloads as they are now.
func (d *Discovery) Take(ctx context.Context) (*View, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.take(ctx)
}

// Recent returns the latest view when it is not older than maxAge, else one
// made now.
func (d *Discovery) Recent(ctx context.Context, maxAge time.Duration) (*View, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latest != nil && d.snapshots.age(d.latest.Snapshot) <= maxAge {
		return d.latest, nil
	}
	return d.take(ctx)
}

// SetNames says who knows containers by name.
func (d *Discovery) SetNames(names Names) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names.source = names
}

// Close frees what is held open. What hangs keeps what it has.
func (d *Discovery) Close() {
	if !d.mu.TryLock() {
		return
	}
	defer d.mu.Unlock()
	d.snapshots.Close()
}

func (d *Discovery) take(ctx context.Context) (*View, error) {
	if err := d.findSelf(); err != nil {
		return nil, err
	}
	s, err := d.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	v := &View{Snapshot: s, byPid: map[int]*Workload{}}
	d.refresh(s)
	d.lookIntoAll(ctx, s)
	a := newAssignment(d, s)
	if d.opts.discovers() {
		v.Jobs = d.jobs(s)
		v.Helpers = d.helpers(s)
		for _, pid := range v.Helpers {
			a.helpers[pid] = true
		}
		v.Runs = d.runs(ctx, s)
	}
	v.Gone = a.claimTarget()
	a.claimRuns(v.Runs)
	a.claimGroups()
	a.claimMatches()
	a.claimHolders(d.allHolders())
	v.Workloads = a.workloads()
	a.identify(ctx, v)
	for _, w := range v.Workloads {
		for _, p := range w.Members {
			v.byPid[p.Pid] = w
		}
	}
	d.latest = v
	return v, nil
}

// snapshot reads all processes, or the one that is all there is to measure.
func (d *Discovery) snapshot(ctx context.Context) (*Snapshot, error) {
	if d.opts.discovers() || d.opts.Target.Tree {
		return d.snapshots.Take(ctx)
	}
	return d.snapshots.TakeOne(ctx, d.target.pid)
}

// findSelf asks the mounted /proc for our pid: in another pid namespace's
// /proc it is another number.
func (d *Discovery) findSelf() error {
	if !d.opts.Target.Self || d.target.pid > 0 {
		return nil
	}
	link, err := os.Readlink(filepath.Join(d.proc, "self"))
	if err != nil {
		return fmt.Errorf("finding the collector's own process: %w", err)
	}
	pid, err := strconv.Atoi(link)
	if err != nil {
		return fmt.Errorf("finding the collector's own process: %w", err)
	}
	d.target.pid = pid
	return nil
}

func (d *Discovery) allHolders() []int {
	if !d.WantsHolders() {
		return nil
	}
	d.holdersMu.Lock()
	defer d.holdersMu.Unlock()
	var all []int
	for _, pids := range d.holders {
		all = append(all, pids...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lookIntoAll looks into the processes that were not yet.
func (d *Discovery) lookIntoAll(ctx context.Context, s *Snapshot) {
	want := looks(0)
	if d.opts.discovers() {
		want |= lookEnviron
	}
	if len(d.opts.Match) > 0 {
		want |= lookRules
	}
	d.lookInto(ctx, s, want, d.people)
}

// lookInto looks for what is wanted into those of whom that is not known yet.
func (d *Discovery) lookInto(ctx context.Context, s *Snapshot, want looks, people []person) {
	var wanted []look
	for _, p := range people {
		if missing := want &^ p.facts.looked; missing != 0 {
			wanted = append(wanted, look{pid: p.Pid, key: p.Key(), name: p.Name, want: missing})
		}
	}
	d.learn(ctx, s, wanted)
}

// learn makes the looks, and puts what they found into the facts. Open files are
// returned, since they change.
func (d *Discovery) learn(ctx context.Context, s *Snapshot, wanted []look) (made []look) {
	made, err := d.looker.lookInto(ctx, wanted)
	d.noticeHang(s, err)
	for i := range made {
		k := &made[i]
		f := d.facts[k.key]
		f.looked |= k.want
		f.denied = f.denied || k.denied
		if k.want&lookEnviron != 0 {
			f.env, f.core, f.inWandb = k.env, k.core, k.inWandb
		}
		if k.want&lookRules != 0 {
			f.rule = k.rule
		}
		if k.want&lookPids != 0 {
			f.pids, f.namespace = k.pids, k.namespace
		}
		if k.want&lookRoot != 0 {
			f.command, f.mounts = k.command, k.mounts
		}
	}
	return made
}

// notice logs a state when it begins and when it ends.
func (d *Discovery) notice(key string, on bool, message string, fields ...zap.Field) {
	if d.notices[key] == on {
		return
	}
	d.notices[key] = on
	if on {
		d.opts.Logger.Warn(message, fields...)
		return
	}
	d.opts.Logger.Info("No longer: " + message)
}

func (d *Discovery) noticeLimit(key string, limit, left int, what string) {
	d.notice(key, left > 0, "There are more "+what+" than are looked into; the rest is left out",
		zap.Int("left_out", left), zap.String("cure", fmt.Sprintf("raise workloads::%s (%d)", key, limit)))
}

// noticeHang says which process does not answer. A pass that was cut short says
// nothing of it.
func (d *Discovery) noticeHang(s *Snapshot, err error) {
	hung := err != nil && (errors.Is(err, guard.ErrHung) || errors.Is(err, context.DeadlineExceeded))
	pid := int(d.looker.at.Load())
	name := ""
	if p := s.Find(pid); p != nil {
		name = p.Name
	}
	d.notice("hang", hung, "A process does not answer when it is looked into; new ones stay unknown until it does",
		zap.Int("pid", pid), zap.String("name", name))
}
