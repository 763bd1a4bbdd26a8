// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// processSource reads /proc/PID of the target.
type processSource struct {
	slot   guard.Slot
	proc   string
	target scrapers.Target
	env    environment

	bootID, stat, statm, status guard.KeptFile

	// snapshots and usage serve trees, groups the limits of control groups.
	snapshots *workload.Snapshots
	usage     workload.TreeUsage
	members   []int         // pids of the target that are alive
	cpuTime   time.Duration // of the tree, since the first reading
	unread    error         // of a process that was not understood, maybe a member
	groups    *cgroup.Reader

	// pid and key are known from the first good reading on. Another process
	// that gets the pid later is not the target.
	pid  int
	boot string // as last read
	key  *processKey
	buf  []byte
}

func newProcessSource(rootPath string, target scrapers.Target, use cgroup.MemoryUse, env environment) *processSource {
	proc := filepath.Join("/", rootPath, "proc")
	return &processSource{
		proc:      proc,
		target:    target,
		env:       env,
		bootID:    guard.KeptFile{Path: filepath.Join(proc, "sys/kernel/random/boot_id")},
		pid:       target.Pid,
		snapshots: workload.NewSnapshots(rootPath).WithClock(env.now, env.bootTicks),
		groups:    cgroup.NewReader(rootPath, use),
	}
}

// read returns a *scrapers.GoneError when there is no such process, or no
// longer. Affinity and control groups of a tree are those of its root.
func (s *processSource) read(ctx context.Context) (*processReading, error) {
	if err := s.findSelf(); err != nil {
		return nil, err
	}
	s.openFiles()
	read := s.readOne
	if s.target.Tree {
		read = s.readTree
	}
	r, err := read(ctx)
	if err != nil {
		return nil, s.orGone(err)
	}
	return r, errors.Join(s.unread, s.readCapacity(r), s.readLimits(r))
}

// readOne reads the target alone.
func (s *processSource) readOne(context.Context) (*processReading, error) {
	r, err := s.readStat()
	if err != nil {
		return nil, err
	}
	s.members = append(s.members[:0], s.pid)
	return r, s.readMemory(r)
}

// findSelf asks the mounted /proc for our pid: in another pid namespace's
// /proc it is another number.
func (s *processSource) findSelf() error {
	if !s.target.Self || s.pid > 0 {
		return nil
	}
	link, err := os.Readlink(filepath.Join(s.proc, "self"))
	if err != nil {
		return fmt.Errorf("finding the collector's own process: %w", err)
	}
	pid, err := strconv.Atoi(link)
	if err != nil {
		return fmt.Errorf("finding the collector's own process: %w", err)
	}
	s.pid = pid
	return nil
}

// openFiles names the files once the pid is known.
func (s *processSource) openFiles() {
	if s.stat.Path != "" {
		return
	}
	s.stat.Path = processFile(s.proc, s.pid, "stat")
	s.statm.Path = processFile(s.proc, s.pid, "statm")
	s.status.Path = processFile(s.proc, s.pid, "status")
}

// files are those that are held open.
func (s *processSource) files() []*guard.KeptFile {
	return []*guard.KeptFile{&s.bootID, &s.stat, &s.statm, &s.status}
}

func (s *processSource) readStat() (*processReading, error) {
	s.readBootID()
	if err := s.readFile(&s.stat); err != nil {
		return nil, err
	}
	at := s.env.now()
	st, err := procread.ParsePIDStat(s.buf)
	if err != nil {
		return nil, err
	}
	key := processKey{boot: s.boot, start: st.StartTime}
	if !s.isTarget(key, st.Gone()) {
		return nil, procread.ErrEnded
	}
	return &processReading{
		at:         at,
		pid:        s.pid,
		key:        key,
		executable: string(st.Comm),
		cpuTime:    time.Duration(st.UTime+st.STime) * (time.Second / procread.TicksPerSecond),
		threads:    st.Threads,
	}, nil
}

// isTarget tells whether the process that has the pid now is the target, and
// alive. The first one is.
func (s *processSource) isTarget(key processKey, ended bool) bool {
	if ended || (s.key != nil && !s.key.same(key)) {
		return false
	}
	s.key = &key
	return true
}

// readBootID tells one boot from another. Where it is not shown, or is not for
// once, nothing is concluded.
func (s *processSource) readBootID() {
	var err error
	if s.buf, err = s.bootID.ReadInto(s.buf, maxFile); err == nil && string(s.buf) != s.boot {
		s.boot = string(s.buf)
	}
}

func (s *processSource) readMemory(r *processReading) error {
	if err := s.readFile(&s.statm); err != nil {
		return err
	}
	pages, err := procread.ParseResident(s.buf)
	if err != nil {
		return err
	}
	r.rss = pages * s.env.pageSize
	return nil
}

// readLimits reads the limits of the control groups. A process that ended by
// now leaves the rest of the reading good.
func (s *processSource) readLimits(r *processReading) error {
	limits, err := s.groups.Limits(s.pid)
	if err != nil && !isEnded(err) {
		return err
	}
	r.limits = limits
	return nil
}

// readCapacity reads the CPUs that the process may run on. A process that
// ended by now leaves the rest of the reading good.
func (s *processSource) readCapacity(r *processReading) error {
	err := s.readFile(&s.status)
	if isEnded(err) {
		return nil
	}
	if err != nil {
		return err
	}
	allowed, err := procread.ParseCPUsAllowed(s.buf)
	if errors.Is(err, procread.ErrNoCPUs) {
		return nil
	}
	if err != nil {
		return err
	}
	r.capacity = float64(allowed)
	return nil
}

func (s *processSource) readFile(file *guard.KeptFile) error {
	var err error
	s.buf, err = file.ReadInto(s.buf, maxFile)
	return err
}

// isEnded tells the errors that a process leaves that is not there.
func isEnded(err error) bool {
	return errors.Is(err, procread.ErrEnded) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func (s *processSource) orGone(err error) error {
	if !isEnded(err) {
		return err
	}
	what := []string{"process", strconv.Itoa(s.pid), "is gone"}
	if s.key == nil {
		what = []string{"there is no process", strconv.Itoa(s.pid), "below", s.proc}
	}
	return &scrapers.GoneError{What: strings.Join(what, " ")}
}

// addProcess puts the target into the reading, with the CPUs that it can use
// and the memory limit that is in force.
func (s *linuxSource) addProcess(r *reading, online int, p *processReading) {
	if p == nil {
		return
	}
	p.capacity = s.capacity(p, online)
	total := uint64(unknownTotal)
	if r.memory != nil {
		total = r.memory.total
	}
	if m := p.limits.Memory(total); m != nil {
		p.memory = &limitReading{limit: m.Limit, used: m.Used, headroom: m.Headroom}
	}
	r.process = p
}

// unknownTotal stands for the machine's memory where it cannot be read: far
// above any, and below what version 1 of control groups writes for "no limit".
const unknownTotal = 1 << 62

// capacity is how many CPUs the target can use: those online that its affinity
// (and with it its cpuset) names, as far as its quota goes. 0 is unknown.
func (s *linuxSource) capacity(p *processReading, online int) float64 {
	switch s.denominator {
	case denominatorLogical:
		return float64(online)
	case denominatorPhysical:
		if s.physical < 0 {
			return float64(online)
		}
		return float64(s.physical)
	}
	if online == 0 {
		return 0 // affinity names CPUs that are not online too: alone it says nothing
	}
	return smallest(float64(online), p.capacity, p.limits.CPUs)
}

// smallest ignores what is not known.
func smallest(values ...float64) float64 {
	least := 0.0
	for _, v := range values {
		if v > 0 && (least == 0 || v < least) {
			least = v
		}
	}
	return least
}
