// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

const (
	maxStat = 64 << 10
	// direntRoom holds some hundred entries of /proc per system call.
	direntRoom = 32 << 10
)

// Process is one process of a snapshot. Times are in clock ticks.
type Process struct {
	Pid, Parent int
	// Start is in ticks since boot; with the pid it identifies the process.
	Start uint64
	// Zombie processes have ended but were not waited for: they have times, but
	// neither memory nor threads.
	Zombie bool
	// Blocked processes wait in the kernel for something that no signal ends.
	Blocked bool
	// Own is the process' own CPU time, Children that of the children that it
	// waited for.
	Own, Children uint64
	Threads       int
	// Name is the first 15 characters of the program's.
	Name string
	// stack changes when the process becomes another program (exec).
	stack uint64
}

// Total is what a process hands over to the parent that waits for it.
func (p *Process) Total() uint64 { return p.Own + p.Children }

// Key identifies a process on one boot of the machine.
type Key struct {
	Pid   int
	Start uint64
}

// Key returns the process' identity.
func (p *Process) Key() Key { return Key{p.Pid, p.Start} }

// Snapshot is all processes that are visible, read in one pass.
type Snapshot struct {
	// At is when the pass began.
	At time.Time
	// BootTicks is At in ticks since boot: a process that started later was not
	// there at the snapshot.
	BootTicks uint64
	// Boot tells one boot of the machine from another; empty where unknown.
	Boot string
	// Processes is in no order that matters.
	Processes []Process
	// Unread says which process, the first of them, is there and could not be
	// understood; nil when none.
	Unread error

	children map[int][]int // pid to indices
	byPid    map[int]int
}

// index makes the look-up tables. One process needs none.
func (s *Snapshot) index() {
	if len(s.Processes) <= 1 {
		s.byPid, s.children = nil, nil
		return
	}
	s.byPid = make(map[int]int, len(s.Processes))
	s.children = make(map[int][]int, len(s.Processes))
	for i := range s.Processes {
		p := &s.Processes[i]
		s.byPid[p.Pid] = i
		s.children[p.Parent] = append(s.children[p.Parent], i)
	}
}

// Find returns the process with this pid, or nil.
func (s *Snapshot) Find(pid int) *Process {
	if len(s.Processes) == 1 && s.Processes[0].Pid == pid {
		return &s.Processes[0]
	}
	i, ok := s.byPid[pid]
	if !ok {
		return nil
	}
	return &s.Processes[i]
}

// Has tells whether this very process is there, as a zombie at least.
func (s *Snapshot) Has(k Key) bool {
	p := s.Find(k.Pid)
	return p != nil && p.Start == k.Start
}

// Tree returns the process with this pid and all its descendants, root first;
// nil when it is not there.
func (s *Snapshot) Tree(pid int) []*Process {
	root := s.Find(pid)
	if root == nil {
		return nil
	}
	tree := []*Process{root}
	seen := map[int]bool{pid: true} // a pass is not one instant: parents may form a ring
	for i := 0; i < len(tree); i++ {
		for _, child := range s.children[tree[i].Pid] {
			p := &s.Processes[child]
			if !seen[p.Pid] {
				seen[p.Pid] = true
				tree = append(tree, p)
			}
		}
	}
	return tree
}

// Snapshots takes snapshots of one machine, one at a time. It is safe for
// concurrent use.
type Snapshots struct {
	proc string
	// now and bootTicks are what tests replace.
	now       func() time.Time
	bootTicks func() (uint64, error)

	mu     sync.Mutex
	latest *Snapshot
	boot   guard.KeptFile
	// one is the stat of the process that is read alone.
	one   guard.KeptFile
	names map[string]string
	buf   []byte
	room  []byte
}

// NewSnapshots returns the snapshots of the machine whose / is at rootPath.
func NewSnapshots(rootPath string) *Snapshots {
	proc := filepath.Join("/", rootPath, "proc")
	return &Snapshots{
		proc:      proc,
		now:       time.Now,
		bootTicks: BootTicks,
		boot:      guard.KeptFile{Path: filepath.Join(proc, "sys/kernel/random/boot_id")},
	}
}

// WithClock replaces the clocks, for recorded machines.
func (s *Snapshots) WithClock(now func() time.Time, bootTicks func() (uint64, error)) *Snapshots {
	s.now, s.bootTicks = now, bootTicks
	return s
}

// BootTicks is the time since boot in clock ticks, suspended time included, as field 22 of
// PID/stat counts it. /proc/uptime is not used: LXCFS rewrites it.
func BootTicks() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("reading the time since boot: %w", err)
	}
	return uint64(ts.Sec)*procread.TicksPerSecond + uint64(ts.Nsec)/(1e9/procread.TicksPerSecond), nil
}

// Take reads all processes now.
func (s *Snapshots) Take(context.Context) (*Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

// Recent returns the latest snapshot when it is not older than maxAge, else
// one taken now.
func (s *Snapshots) Recent(_ context.Context, maxAge time.Duration) (*Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil && s.now().Sub(s.latest.At) <= maxAge {
		return s.latest, nil
	}
	return s.take()
}

// TakeOne reads one process now, as a snapshot that has no other.
func (s *Snapshots) TakeOne(_ context.Context, pid int) (*Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if file := s.proc + "/" + strconv.Itoa(pid) + "/stat"; s.one.Path != file {
		s.one.Close()
		s.one.Path = file
	}
	return s.takeFrom(func(read func(dir, pid int) error) error {
		var err error
		if s.buf, err = s.one.ReadInto(s.buf, maxStat); err == nil {
			return read(alreadyRead, pid)
		}
		return s.inProc(func(dir int) error { return read(dir, pid) }) // which tells why
	})
}

// alreadyRead stands for the folder of a process whose stat is in the buffer.
const alreadyRead = -1

// age is how long ago a snapshot was taken.
func (s *Snapshots) age(snap *Snapshot) time.Duration { return s.now().Sub(snap.At) }

// Close frees what is held open.
func (s *Snapshots) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot.Close()
	s.one.Close()
}

func (s *Snapshots) take() (*Snapshot, error) {
	snap, err := s.takeFrom(s.eachPid)
	if err != nil {
		return nil, err
	}
	snap.dropEnded(s.isThere)
	s.latest = snap
	return snap, nil
}

// takeFrom reads the clocks before the first process, so that what starts during
// the pass counts as later.
func (s *Snapshots) takeFrom(each func(read func(dir, pid int) error) error) (*Snapshot, error) {
	snap := &Snapshot{At: s.now()}
	var err error
	if snap.BootTicks, err = s.bootTicks(); err != nil {
		return nil, err
	}
	snap.Boot = s.readBoot()
	if s.latest != nil {
		snap.Processes = make([]Process, 0, len(s.latest.Processes)+16)
	}
	names := make(map[string]string, len(s.names))
	err = each(func(dir, pid int) error {
		p, err := s.readProcess(dir, pid, names)
		if errors.Is(err, errVanished) {
			return nil
		}
		if unread, ok := errors.AsType[*unreadError](err); ok {
			// One bad process takes no other away.
			if snap.Unread == nil {
				snap.Unread = unread
			}
			return nil
		}
		if err != nil {
			return err
		}
		snap.Processes = append(snap.Processes, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.names = names
	snap.index()
	return snap, nil
}

func (s *Snapshots) readBoot() string {
	var err error
	if s.buf, err = s.boot.ReadInto(s.buf, maxStat); err != nil {
		return ""
	}
	return string(s.buf)
}

// errVanished says that a process ended between being listed and being read,
// or is hidden from us.
var errVanished = errors.New("process vanished")

// unreadError says that a process is there and was not understood.
type unreadError struct {
	pid int
	err error
}

func (e *unreadError) Error() string { return fmt.Sprintf("process %d: %v", e.pid, e.err) }

func (e *unreadError) Unwrap() error { return e.err }

func (s *Snapshots) isThere(pid int) bool {
	return unix.Access(s.proc+"/"+strconv.Itoa(pid), unix.F_OK) == nil
}

// dropEnded drops the processes that ended after they were read and before
// their parents were, which happens where pids have started over: such a
// parent, or the one it left its own time to, may have got their time already,
// and it must not be there twice. Nor may children of theirs be there that
// ended as well.
func (s *Snapshot) dropEnded(isThere func(pid int) bool) {
	var doubtful []int
	for i := range s.Processes {
		parent, ok := s.byPid[s.Processes[i].Parent]
		if parent > i || (!ok && s.Processes[i].Parent > 0) {
			doubtful = append(doubtful, i)
		}
	}
	ended := map[int]bool{}
	for len(doubtful) > 0 {
		i := doubtful[len(doubtful)-1]
		doubtful = doubtful[:len(doubtful)-1]
		if pid := s.Processes[i].Pid; !ended[i] && !isThere(pid) {
			ended[i] = true
			doubtful = append(doubtful, s.children[pid]...)
		}
	}
	if len(ended) == 0 {
		return
	}
	kept := s.Processes[:0]
	for i := range s.Processes {
		if !ended[i] {
			kept = append(kept, s.Processes[i])
		}
	}
	s.Processes = kept
	s.index()
}

// inProc calls fn with the open folder /proc.
func (s *Snapshots) inProc(fn func(dir int) error) error {
	dir, err := unix.Open(s.proc, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: s.proc, Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	return fn(dir)
}

// eachPid calls fn for every numeric entry of /proc, with the open folder.
func (s *Snapshots) eachPid(fn func(dir, pid int) error) error {
	return s.inProc(func(dir int) error { return s.eachPidOf(dir, fn) })
}

func (s *Snapshots) eachPidOf(dir int, fn func(dir, pid int) error) error {
	if s.room == nil {
		s.room = make([]byte, direntRoom)
	}
	var entries []string
	for {
		n, err := unix.ReadDirent(dir, s.room)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "readdir", Path: s.proc, Err: err}
		}
		if n <= 0 {
			return nil
		}
		_, _, entries = unix.ParseDirent(s.room[:n], -1, entries[:0])
		for _, entry := range entries {
			if pid, err := strconv.Atoi(entry); err == nil && pid > 0 {
				if err := fn(dir, pid); err != nil {
					return err
				}
			}
		}
	}
}

func (s *Snapshots) readProcess(dir, pid int, names map[string]string) (Process, error) {
	if dir != alreadyRead {
		if err := s.readAt(dir, strconv.Itoa(pid)+"/stat"); err != nil {
			return Process{}, err
		}
	}
	st, err := procread.ParsePIDStat(s.buf)
	if errors.Is(err, procread.ErrEnded) {
		return Process{}, errVanished
	}
	if err != nil {
		return Process{}, &unreadError{pid, err}
	}
	return Process{
		Pid:      pid,
		Parent:   st.PPid,
		Start:    st.StartTime,
		Zombie:   st.Gone(),
		Blocked:  st.State == 'D',
		Own:      st.UTime + st.STime,
		Children: st.CUTime + st.CSTime,
		Threads:  st.Threads,
		Name:     s.name(st.Comm, names),
		stack:    st.StackStart,
	}, nil
}

// name makes one string of a name that many processes have, at every snapshot.
func (s *Snapshots) name(b []byte, names map[string]string) string {
	if name, ok := names[string(b)]; ok {
		return name
	}
	name, ok := s.names[string(b)]
	if !ok {
		name = string(b)
	}
	names[name] = name
	return name
}

// readAt reads a file below an open folder into the buffer.
func (s *Snapshots) readAt(dir int, name string) error {
	s.buf = s.buf[:0]
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		// All the others would seem to have ended, too.
		return &fs.PathError{Op: "open", Path: s.proc + "/" + name, Err: err}
	default:
		// Ended, hidden (hidepid), or not a process: in any case not for us.
		return errVanished
	}
	defer func() { _ = unix.Close(fd) }()
	if cap(s.buf) < maxStat {
		s.buf = make([]byte, 0, maxStat)
	}
	for len(s.buf) < cap(s.buf) {
		n, err := unix.Read(fd, s.buf[len(s.buf):cap(s.buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return errVanished // ESRCH: it ended just now
		}
		if n == 0 {
			return nil
		}
		s.buf = s.buf[:len(s.buf)+n]
	}
	return nil
}
