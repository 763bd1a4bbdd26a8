// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// Wanted says which figures of a group are read: each costs a file, pressure
// three.
type Wanted uint

// What can be wanted; add them up for more than one.
const (
	CPUTime Wanted = 1 << iota
	Throttling
	OOMKills
	Pressures
)

// Figure is a number or a time that may be absent.
type Figure[T uint64 | time.Duration] struct {
	Value T
	Known bool
}

// Stats is what a group and those below it have used since it was made.
type Stats struct {
	CPU Figure[time.Duration]
	// Periods are those in which the group's CPU quota was in force, Throttled
	// those in which it was used up.
	Periods, Throttled Figure[uint64]
	// ThrottledTime is the sum over all CPUs.
	ThrottledTime Figure[time.Duration]
	// OOMKills are processes killed for want of memory. Version 1 does not count
	// those of groups below.
	OOMKills Figure[uint64]
	// The pressures are told by version 2 alone.
	CPUPressure, MemoryPressure, IOPressure Pressure
}

// Pressure is for how long some, or all, of the processes waited. Old kernels
// have no Full of CPUs.
type Pressure struct {
	Some, Full Figure[time.Duration]
}

// accounts are where the groups of a process are that statistics are in.
type accounts struct {
	// usage is that of CPU time, which in version 1 may be a hierarchy of its
	// own, unified that of pressure.
	usage, unified group
	groups         []account
}

// account is the files of one group. Where there is none it has no path.
type account struct {
	group string
	// usageV1 and cpuV1 tell the formats.
	usageV1, cpuV1         bool
	usage, throttling, oom guard.KeptFile
	pressures              [3]guard.KeptFile
}

func (a *accounts) close() {
	if a == nil {
		return
	}
	for i := range a.groups {
		g := &a.groups[i]
		g.usage.Close()
		g.throttling.Close()
		g.oom.Close()
		for j := range g.pressures {
			g.pressures[j].Close()
		}
	}
}

// Stats reads what a group of the process that Limits was last called for has
// used: its own when the path is empty, else that of this path or, in the
// hierarchies where the process is elsewhere, none. It returns false when no
// hierarchy shows such a group. What cannot be read is absent.
func (r *Reader) Stats(groupPath string, want Wanted) (Stats, bool) {
	a := r.account(groupPath)
	if a == nil {
		return Stats{}, false
	}
	var s Stats
	r.readCPU(a, want, &s)
	if want&OOMKills != 0 && r.load(&a.oom) {
		s.OOMKills = r.count("oom_kill")
	}
	if want&Pressures != 0 {
		for i, p := range []*Pressure{&s.CPUPressure, &s.MemoryPressure, &s.IOPressure} {
			if r.load(&a.pressures[i]) {
				*p = parsePressure(r.buf)
			}
		}
	}
	return s, true
}

// account returns the files of a group, which it remembers.
func (r *Reader) account(groupPath string) *account {
	if r.places.accounts == nil {
		r.places.accounts = r.findAccounts()
	}
	all := r.places.accounts
	for i := range all.groups {
		if all.groups[i].group == groupPath {
			return &all.groups[i]
		}
	}
	a, ok := r.newAccount(groupPath)
	if !ok {
		return nil
	}
	all.groups = append(all.groups, a)
	return &all.groups[len(all.groups)-1]
}

// findAccounts looks for the hierarchies that limits have no need of. It mostly
// finds that they are the same.
func (r *Reader) findAccounts() *accounts {
	m := parseMembership(r.places.membership)
	a := &accounts{usage: r.places.cpuGroup, unified: r.places.cpuGroup}
	if m.v1["cpuacct"] != m.v1["cpu"] {
		a.usage, _ = r.group(m, "cpuacct")
	}
	if _, named := m.v1["cpu"]; named {
		a.unified, _ = r.group(m, "")
	}
	return a
}

// newAccount names the files of a group, and returns false when it has none.
func (r *Reader) newAccount(groupPath string) (account, bool) {
	usage, unified := r.places.accounts.usage, r.places.accounts.unified
	cpu, memory := r.places.cpuGroup, r.places.memoryGroup
	a := account{group: groupPath, usageV1: usage.v1, cpuV1: cpu.v1}
	a.usage = usage.file(groupPath, "cpuacct.usage", "cpu.stat")
	a.throttling = cpu.file(groupPath, "cpu.stat", "cpu.stat")
	a.oom = memory.file(groupPath, "memory.oom_control", "memory.events")
	for i, name := range []string{"cpu.pressure", "memory.pressure", "io.pressure"} {
		a.pressures[i] = unified.file(groupPath, "", name)
	}
	return a, a.usage.Path+a.throttling.Path+a.oom.Path+a.pressures[0].Path != ""
}

// file is one of a group or of its ancestor, by its name in version 1 or 2.
func (g group) file(groupPath, v1, v2 string) guard.KeptFile {
	dir, ok := g.dir(groupPath)
	if groupPath == "" {
		dir, ok = g.own()
	}
	name := v2
	if g.v1 {
		name = v1
	}
	if !ok || name == "" {
		return guard.KeptFile{}
	}
	return guard.KeptFile{Path: dir + "/" + name}
}

// readCPU reads throttling and CPU time, which version 2 has in one file.
func (r *Reader) readCPU(a *account, want Wanted, s *Stats) {
	usage := &a.usage
	if a.usage.Path == a.throttling.Path {
		usage = &a.throttling
	}
	loaded := want&Throttling != 0 && r.load(&a.throttling)
	if loaded {
		s.Periods, s.Throttled = r.count("nr_periods"), r.count("nr_throttled")
		s.ThrottledTime = r.time("throttled_usec", time.Microsecond)
	}
	if loaded && a.cpuV1 {
		s.ThrottledTime = r.time("throttled_time", time.Nanosecond)
	}
	switch {
	case want&CPUTime == 0:
	case a.usageV1:
		ns, ok := r.number(usage)
		s.CPU = duration(ns, time.Nanosecond, ok)
	case (loaded && usage == &a.throttling) || r.load(usage):
		s.CPU = r.time("usage_usec", time.Microsecond)
	}
}

// load reads a file into the buffer.
func (r *Reader) load(f *guard.KeptFile) bool {
	if f.Path == "" {
		return false
	}
	var err error
	r.buf, err = f.ReadInto(r.buf, maxFile)
	return err == nil
}

// count finds a line of the file in the buffer.
func (r *Reader) count(key string) Figure[uint64] {
	n, ok := statValue(r.buf, key)
	return Figure[uint64]{Value: n, Known: ok}
}

func (r *Reader) time(key string, unit time.Duration) Figure[time.Duration] {
	n, ok := statValue(r.buf, key)
	return duration(n, unit, ok)
}

// duration leaves out what is no time: more than a Duration holds is 292 years.
func duration(n uint64, unit time.Duration, ok bool) Figure[time.Duration] {
	if !ok || n > math.MaxInt64/uint64(unit) {
		return Figure[time.Duration]{}
	}
	return Figure[time.Duration]{Value: time.Duration(n) * unit, Known: true}
}

// parsePressure reads lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", in
// microseconds.
func parsePressure(content []byte) Pressure {
	var p Pressure
	for line := range bytes.Lines(content) {
		kind, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		_, total, ok := bytes.Cut(rest, []byte("total="))
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(string(total), 10, 64)
		switch string(kind) {
		case "some":
			p.Some = duration(n, time.Microsecond, err == nil)
		case "full":
			p.Full = duration(n, time.Microsecond, err == nil)
		}
	}
	return p
}
