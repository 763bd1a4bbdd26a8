// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

const (
	// maxGroupFile is far above what /proc/PID/cgroup can be.
	maxGroupFile = 1 << 20
	// youngFor is how long a process may still become what it is going to be: be
	// put into its control group, and become another program.
	youngFor = 10 * procread.TicksPerSecond
	// membershipTime is after which time the group of a process is read again that
	// is not young, and membershipSpread by how many seconds that differs, so that
	// not all are due at once.
	membershipTime   = 90 * time.Second
	membershipSpread = 60
)

// facts is what is known of a process beyond a snapshot, from one look to the
// next. Reading it costs many times what the snapshot does, and rarely changes.
type facts struct {
	// name and stack are those of the program that was looked into.
	name  string
	stack uint64
	// seen is the pass in which the process was there last.
	seen uint64
	// young tells that it was so when it was looked at.
	young bool

	group   cgroup.Identity
	grouped bool
	// groupedAt is when the group was read.
	groupedAt time.Time

	// looked tells that the process was looked into, for what looks says, and
	// denied that it could not be.
	looked looks
	denied bool

	env *environment
	// sameImage tells that env is of the very program that runs now, whatever it
	// calls itself: to do that some write over their environment.
	sameImage bool
	core      coreArguments
	inWandb   bool // its program is one of W&B's
	// runs are those of a wandb-core, when it was last seen.
	runs []Run
	// command is argv[0], mounts the container that its mount table tells.
	command string
	mounts  cgroup.Identity
	// pids are those of the nested pid namespaces, the reader's first; namespace
	// names the innermost one, where that can be told.
	pids      []int
	namespace string
	// rule is the number of the rule that matches, -1 for none.
	rule int
}

// refresh brings the facts of all processes up to date that do not need a look
// into the processes, and drops those of processes that are gone.
func (d *Discovery) refresh(s *Snapshot) {
	d.pass++
	d.people = d.people[:0]
	isWork := d.workIn(s)
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Zombie || !isWork(p) {
			continue
		}
		d.people = append(d.people, person{p, d.factsOf(s, p)})
	}
	d.noticeLimit("max_processes", d.opts.MaxProcesses, len(d.people)-len(d.within()),
		"There are more processes than are looked into; of the rest only the control groups are known")
	for key, f := range d.facts {
		if f.seen != d.pass {
			delete(d.facts, key)
		}
	}
}

// within are those that are looked into.
func (d *Discovery) within() []person { return d.people[:min(len(d.people), d.opts.MaxProcesses)] }

// kthreadd is the parent of all kernel threads, which are nobody's work.
const kthreadd = 2

// workIn tells which processes may be somebody's work.
func (d *Discovery) workIn(s *Snapshot) func(*Process) bool {
	if !d.opts.discovers() {
		return func(p *Process) bool { return p.Pid == d.target.pid }
	}
	kernel := s.Find(kthreadd)
	if kernel == nil || kernel.Name != "kthreadd" {
		return func(*Process) bool { return true }
	}
	return func(p *Process) bool { return p.Pid != kthreadd && p.Parent != kthreadd }
}

// person is a process that may be somebody's work.
type person struct {
	*Process
	facts *facts
}

// factsOf returns the facts of a process, fresh ones when it is new or has become
// another program.
func (d *Discovery) factsOf(s *Snapshot, p *Process) *facts {
	f, ok := d.facts[p.Key()]
	if !ok || f.name != p.Name || f.stack != p.stack || f.young {
		fresh := &facts{rule: -1}
		if ok { // it counts until the process was looked into again
			*fresh = *f
			fresh.looked, fresh.denied, fresh.grouped = 0, false, false
			fresh.sameImage = f.stack == p.stack && p.stack != 0
		}
		fresh.name, fresh.stack = p.Name, p.stack
		f = fresh
		d.facts[p.Key()] = f
	}
	f.seen = d.pass
	// One that started during the pass is younger than that.
	f.young = s.BootTicks < p.Start+youngFor && p.Start < s.BootTicks+youngFor
	if spread := time.Duration(p.Pid%membershipSpread) * time.Second; !f.grouped || s.At.Sub(f.groupedAt) >= membershipTime+spread {
		d.readGroup(p, f)
		f.groupedAt = s.At
	}
	return f
}

// readGroup reads the control group. A process that ends meanwhile stays what it
// was.
func (d *Discovery) readGroup(p *Process, f *facts) {
	var err error
	d.buf, err = guard.ReadInto(d.proc+"/"+strconv.Itoa(p.Pid)+"/cgroup", d.buf, maxGroupFile)
	if err != nil {
		return
	}
	f.group, f.grouped = d.groups.Identify(p.Pid, d.buf), true
}
