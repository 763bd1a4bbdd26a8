// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
)

// Discovery finds the workloads of a machine. It is safe for concurrent use.
type Discovery struct {
	opts      Options
	proc      string
	snapshots *Snapshots
	looker    *looker
	// stuck are the lookers that a process holds up, with its key; lateIn is the
	// pass in which one was the last time.
	stuck  map[Key]*looker
	lateIn uint64
	groups *cgroup.Identifier
	names  *containerNames

	mu     sync.Mutex
	latest *View
	pass   uint64
	facts  map[Key]*facts
	people []person
	// nested are those of nested pid namespaces, by pid there, in this pass.
	nested  map[int][]person
	target  target
	notices map[string]noticed
	// slurmGroups tells that Slurm uses control groups here: environments, which
	// anybody can write and which outlive jobs, do not count then.
	slurmGroups bool
	// severalRanks are the groups, by id, that have had several ranks.
	severalRanks map[string]bool
	buf          []byte

	holdersMu sync.Mutex
	holders   map[string]holders
}

// holders are the processes of which a family has said that they hold a device.
type holders struct {
	pids []int
	// at and ticks are when it did.
	at    time.Time
	ticks uint64
}

// maxHolding is how long what a family has said holds.
const maxHolding = 5 * time.Minute

// noticed is a state that was logged.
type noticed struct {
	on bool
	// last is when it was so last.
	last time.Time
}

// noticeHold is how long a state must be over before that is said: what comes and
// goes is one state.
const noticeHold = 10 * time.Minute

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
		stuck:     map[Key]*looker{},
		facts:     map[Key]*facts{},
		target:    target{pid: o.Target.Pid},
		notices:   map[string]noticed{},
		holders:   map[string]holders{},

		severalRanks: map[string]bool{},
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

// SetHolders says which processes hold an accelerator now, by family; the pids
// are those below the root path. It holds until it is said anew, for some minutes.
func (d *Discovery) SetHolders(family string, pids []int) {
	ticks, err := d.snapshots.bootTicks()
	d.holdersMu.Lock()
	defer d.holdersMu.Unlock()
	if err != nil {
		delete(d.holders, family)
		return
	}
	d.holders[family] = holders{slices.Clone(pids), d.snapshots.now(), ticks}
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
	d.takeBackStuck()
	d.lookIntoAll(ctx)
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
	if d.opts.discovers() {
		a.claimRuns(v.Runs)
		a.claimGroups()
		a.claimMatches()
		a.claimHolders(d.allHolders(s))
	}
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

// allHolders are the processes that hold an accelerator. One that started since
// that was said has only got the pid.
func (d *Discovery) allHolders(s *Snapshot) map[int]int {
	if !d.WantsHolders() {
		return nil
	}
	d.holdersMu.Lock()
	defer d.holdersMu.Unlock()
	all := map[int]int{}
	for _, h := range d.holders {
		if s.At.Sub(h.at) > maxHolding {
			continue
		}
		for _, pid := range h.pids {
			if p := s.Find(pid); p != nil && p.Start <= h.ticks {
				all[pid] = 1
			}
		}
	}
	return all
}

// lookIntoAll looks into the processes that were not yet.
func (d *Discovery) lookIntoAll(ctx context.Context) {
	want := looks(0)
	if d.opts.discovers() {
		want |= lookEnviron
	}
	if len(d.opts.Match) > 0 {
		want |= lookRules
	}
	d.lookInto(ctx, want, d.within())
}

// lookInto looks for what is wanted into those of whom that is not known yet.
// Those that are blocked in the kernel may not answer: they have time.
func (d *Discovery) lookInto(ctx context.Context, want looks, people []person) {
	var wanted []look
	for _, p := range people {
		if missing := want &^ p.facts.looked; missing != 0 && !p.Blocked {
			wanted = append(wanted, look{pid: p.Pid, key: p.Key(), name: p.Name, want: missing})
		}
	}
	d.learn(ctx, wanted)
}

// learn makes the looks, and puts what they found into the facts. Open files are
// returned, since they change.
func (d *Discovery) learn(ctx context.Context, wanted []look) (made []look) {
	if len(wanted) == 0 || d.lateIn == d.pass {
		return nil // it took enough time
	}
	wanted = slices.DeleteFunc(wanted, func(k look) bool { return d.stuck[k.key] != nil })
	made, err := d.looker.lookInto(ctx, wanted)
	if err != nil {
		d.lateIn = d.pass
	}
	d.leaveStuck()
	for i := range made {
		k := &made[i]
		f := d.facts[k.key]
		f.looked |= k.want
		f.denied = f.denied || k.denied
		if k.want&lookEnviron != 0 {
			f.core, f.inWandb = k.core, k.inWandb
			if k.env != nil || !f.sameImage {
				f.env = k.env
			}
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

// notice logs a state when it begins, and when it has ended for a while.
func (d *Discovery) notice(key string, on bool, message string, fields ...zap.Field) {
	now, n := d.snapshots.now(), d.notices[key]
	switch {
	case on && !n.on:
		d.opts.Logger.Warn(message, fields...)
	case !on && (!n.on || now.Sub(n.last) < noticeHold):
		return
	case !on:
		d.opts.Logger.Info("No longer: " + message)
	}
	d.notices[key] = noticed{on, now}
}

func (d *Discovery) noticeLimit(key string, limit, left int, message string) {
	if left == 0 && !d.notices[key].on {
		return
	}
	d.notice(key, left > 0, message,
		zap.Int("left_out", left), zap.String("cure", fmt.Sprintf("raise workloads::%s (%d)", key, limit)))
}

// leaveStuck leaves a process alone that does not answer, and the looker with it:
// from the next pass on another one looks into the others.
func (d *Discovery) leaveStuck() {
	at, hung := d.looker.hung()
	if !hung {
		return
	}
	d.notice("hang", true, "A process does not answer when it is looked into; what it runs stays unknown until it does",
		zap.Int("pid", at.pid), zap.String("name", at.name), zap.Int("left_behind", len(d.stuck)+1))
	if len(d.stuck) < maxStuck {
		d.stuck[at.key] = d.looker
		d.looker = d.looker.another()
	}
}

// takeBackStuck sees which processes answer again.
func (d *Discovery) takeBackStuck() {
	maps.DeleteFunc(d.stuck, func(_ Key, l *looker) bool { return !l.slot.Hung() })
	if d.notices["hang"].on {
		d.notice("hang", len(d.stuck) > 0 || d.looker.slot.Hung(), "A process does not answer when it is looked into")
	}
}
