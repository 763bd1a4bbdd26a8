// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// keptOpen is of how many workloads the files stay open from one scrape to the
// next: each has some ten, and more would use up what a process may have open.
const keptOpen = 16

// workloadSource reads what the workloads use.
type workloadSource struct {
	slot      guard.Slot
	proc      string
	env       environment
	use       cgroup.MemoryUse
	rootPath  string
	discovery *workload.Discovery
	// want is that of the reading in progress.
	want want
	// followed are the workloads of the last scrape, by id.
	followed map[string]*follower
	// round is what control groups told in this reading.
	round cgroup.Round
	buf   []byte
	// cpus is room for the set of CPUs of a group.
	cpus procread.CPUSet
}

func newWorkloadSource(rootPath, proc string, use cgroup.MemoryUse, discovery *workload.Discovery, env environment) *workloadSource {
	return &workloadSource{
		proc: proc, env: env, use: use, rootPath: rootPath, discovery: discovery, followed: map[string]*follower{},
	}
}

// follower is what is remembered of a workload between scrapes.
type follower struct {
	workload *workload.Workload
	// start is when the root process started, in ticks since boot.
	start uint64
	// began is that on the clock.
	began time.Time
	usage workload.TreeUsage
	// cpuTime is since the first reading.
	cpuTime time.Duration
	groups  *cgroup.Reader
	counted counted
	status  guard.KeptFile
	memory  guard.KeptFile
	// read is the process whose files these are.
	read workload.Key
}

// workloadsReading is what one scrape found. gone is the configured process.
type workloadsReading struct {
	workloads []*workloadReading
	gone      string
	// bad is what was not understood.
	bad error
}

// reader reads all workloads. What one does not tell takes nothing from the
// others.
func (s *workloadSource) reader(w want) func(context.Context) (workloadsReading, error) {
	return func(ctx context.Context) (workloadsReading, error) {
		s.want = w
		return s.read(ctx)
	}
}

func (s *workloadSource) read(ctx context.Context) (workloadsReading, error) {
	view, err := s.discovery.Take(ctx)
	if err != nil {
		return workloadsReading{}, err
	}
	found := workloadsReading{gone: view.Gone}
	followed := make(map[string]*follower, len(view.Workloads))
	s.round.Begin()
	var problems problems
	problems.add(view.Snapshot.Unread)
	for _, w := range view.Workloads {
		f := s.follow(view.Snapshot, w)
		followed[w.Identity.ID] = f
		r, err := s.readWorkload(view.Snapshot, f, &problems)
		if len(view.Workloads) > keptOpen {
			f.release()
		}
		switch {
		case isEnded(err) && w.Kind == workload.KindProcess:
			found.gone = "process " + strconv.Itoa(w.Root.Pid) + " is gone"
		case isEnded(err): // since the snapshot
		case err != nil:
			problems.add(err)
		default:
			found.workloads = append(found.workloads, r)
		}
	}
	s.replace(followed)
	found.bad = problems.err()
	return found, nil
}

// problems keeps the first error, and counts the others.
type problems struct {
	first error
	more  int
}

func (p *problems) add(err error) {
	switch {
	case err == nil:
	case p.first == nil:
		p.first = err
	default:
		p.more++
	}
}

func (p *problems) err() error {
	if p.more == 0 {
		return p.first
	}
	return fmt.Errorf("%w (and %d more)", p.first, p.more)
}

// replace forgets the workloads that are over.
func (s *workloadSource) replace(followed map[string]*follower) {
	for id, f := range s.followed {
		if followed[id] != f {
			f.close()
		}
	}
	s.followed = followed
}

// close frees what is held open.
func (s *workloadSource) close() { s.replace(nil) }

func (f *follower) close() {
	f.groups.Close()
	f.status.Close()
	f.memory.Close()
}

func (f *follower) release() {
	f.groups.Release()
	f.status.Close()
	f.memory.Close()
}

// follow returns what is remembered of the workload. What is known by its root
// process begins anew with another one.
func (s *workloadSource) follow(snap *workload.Snapshot, w *workload.Workload) *follower {
	f := s.followed[w.Identity.ID]
	if f == nil || (!w.IsGroup() && f.start != w.Root.Start) {
		age := time.Duration(snap.BootTicks-min(snap.BootTicks, w.Root.Start)) * tick
		f = &follower{start: w.Root.Start, began: snap.At.Add(-age), groups: cgroup.NewReader(s.rootPath, s.use).In(&s.round)}
	}
	s.turnTo(f, w.Root)
	f.workload = w
	return f
}

// turnTo makes this the process whose files are read again and again.
func (s *workloadSource) turnTo(f *follower, p *workload.Process) {
	if f.read == p.Key() {
		return
	}
	f.close()
	f.read = p.Key()
	f.status.Path = processFile(s.proc, p.Pid, "status")
	f.memory.Path = processFile(s.proc, p.Pid, "statm")
}

// tick is the unit of times in /proc.
const tick = time.Second / procread.TicksPerSecond

// readWorkload reads one workload. Affinity and control groups are those of its
// root process. Without them there is the rest, and a problem.
func (s *workloadSource) readWorkload(snap *workload.Snapshot, f *follower, problems *problems) (*workloadReading, error) {
	w := f.workload
	r := &workloadReading{
		at: snap.At, who: &w.Identity, key: processKey{boot: snap.Boot, start: f.start}, began: f.began,
		cpuTime: f.cpuTimeAt(snap), whole: w.Whole,
	}
	if err := s.addMembers(r, f); err != nil {
		return nil, err
	}
	problems.add(s.readCapacity(r, f))
	problems.add(s.readGroups(r, f, snap))
	return r, nil
}

// cpuTimeAt is the CPU time of the workload's processes, from any beginning.
func (f *follower) cpuTimeAt(snap *workload.Snapshot) time.Duration {
	if f.workload.Single {
		return time.Duration(f.workload.Root.Own) * tick
	}
	ticks, _ := f.usage.Follow(snap, f.workload)
	f.cpuTime += time.Duration(ticks) * tick
	return f.cpuTime
}

// addMembers adds up threads and memory. A member that ended since the snapshot
// has left nothing; the root takes the workload along that is known by it. That
// of a group is replaced by the next.
func (s *workloadSource) addMembers(r *workloadReading, f *follower) error {
	for _, p := range f.workload.Members {
		pages, err := s.resident(f, p.Pid)
		if isEnded(err) && (p != f.workload.Root || f.workload.IsGroup()) {
			continue
		}
		if err != nil {
			return err
		}
		if len(r.pids) == 0 {
			s.turnTo(f, p)
		}
		r.pids = append(r.pids, p.Pid)
		r.threads += p.Threads
		r.rss += pages * s.env.pageSize
	}
	if len(r.pids) == 0 {
		return procread.ErrEnded
	}
	return nil
}

// resident returns the resident pages of a member.
func (s *workloadSource) resident(f *follower, pid int) (uint64, error) {
	var err error
	if pid == f.read.Pid {
		s.buf, err = f.memory.ReadInto(s.buf, maxFile)
	} else {
		s.buf, err = guard.ReadInto(processFile(s.proc, pid, "statm"), s.buf, maxFile)
	}
	if err != nil {
		return 0, err
	}
	return procread.ParseResident(s.buf)
}

func processFile(proc string, pid int, name string) string {
	return proc + "/" + strconv.Itoa(pid) + "/" + name
}

// readCapacity reads the CPUs that the root process may run on, or those that the
// first processes of a group may, all together: each task of a step may be bound to
// a CPU of its own. One that ended by now leaves the rest of the reading good.
func (s *workloadSource) readCapacity(r *workloadReading, f *follower) error {
	if f.workload.IsGroup() {
		return s.readCapacityOfAll(r, f)
	}
	return s.readCapacityOfOne(r, f)
}

func (s *workloadSource) readCapacityOfOne(r *workloadReading, f *follower) error {
	var err error
	s.buf, err = f.status.ReadInto(s.buf, maxFile)
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

// readCapacityOfAll adds up the CPUs of all processes of a group whose parents are
// not in it. The others have theirs from those.
func (s *workloadSource) readCapacityOfAll(r *workloadReading, f *follower) error {
	s.cpus.Clear()
	for _, p := range f.workload.Firsts() {
		var err error
		if p.Key() == f.read {
			s.buf, err = f.status.ReadInto(s.buf, maxFile)
		} else {
			s.buf, err = guard.ReadInto(processFile(s.proc, p.Pid, "status"), s.buf, maxFile)
		}
		if err == nil {
			err = s.cpus.AddCPUsAllowed(s.buf)
		}
		switch {
		case errors.Is(err, procread.ErrNoCPUs):
			return nil
		case err != nil && !isEnded(err):
			return err
		}
	}
	if s.cpus.Count() == 0 { // all of them have ended: the next tells
		return s.readCapacityOfOne(r, f)
	}
	r.capacity = float64(s.cpus.Count())
	return nil
}

// readGroups reads the limits and the use of the control groups. A process that
// ended by now leaves the rest of the reading good.
func (s *workloadSource) readGroups(r *workloadReading, f *follower, snap *workload.Snapshot) error {
	limits, err := f.groups.LimitsFrom(f.read.Pid, f.limitsFrom())
	if isEnded(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.limits = limits
	r.group = cmp.Or(f.workload.Group, limits.Path)
	figures := s.want.figures(f.workload.Whole)
	if r.group == "" || r.group == "/" || figures == 0 {
		return nil // the root group is the machine
	}
	r.statsAt = s.env.now()
	stats, _ := f.groups.Stats(r.group, figures)
	r.stats, r.countedSince = f.counted.since(r.group, stats, snap.At)
	return nil
}

// limitsFrom is the group that limits a workload that is a group. Other
// workloads are limited where their process is.
func (f *follower) limitsFrom() string {
	if f.workload.IsGroup() {
		return f.workload.Group
	}
	return ""
}

// isEnded tells the errors that a process leaves that is not there.
func isEnded(err error) bool {
	return errors.Is(err, procread.ErrEnded) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// pssSource adds up memory in which a page that n processes share counts one
// n-th in each. It costs the kernel a walk over all of the memory, which takes
// seconds where there is much, and needs the right to trace the processes.
type pssSource struct {
	slot guard.Slot
	proc string
	buf  []byte
}

// read returns the sum for each workload. A part of it would look like less
// memory: when a living process may not be read there is none. It stops before
// the time is up, so that what was added up by then counts.
func (s *pssSource) read(ctx context.Context, workloads [][]int) ([]uint64, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*4/5)
		defer cancel()
	}
	sums := make([]uint64, len(workloads))
	var problems problems
	for i, pids := range workloads {
		if ctx.Err() != nil {
			problems.add(fmt.Errorf("was not added up in time: %w", context.Cause(ctx)))
			break
		}
		sum, err := s.sum(ctx, pids)
		problems.add(err)
		sums[i] = sum
	}
	return sums, problems.err()
}

func (s *pssSource) sum(ctx context.Context, pids []int) (uint64, error) {
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

// askWorkloads puts the question for the workloads into the batch. Where the
// proportional memory is wanted too it follows, with the processes that were
// found, while the batch runs.
func (s *linuxSource) askWorkloads(ctx context.Context, b *guard.Batch, w want) func(*reading) {
	if s.workloads == nil {
		return func(*reading) {}
	}
	if !w.pss {
		p := guard.Add(b, &s.workloads.slot, s.workloads.reader(w))
		return func(r *reading) {
			found, err := p.Wait()
			addWorkloads(r, found, err)
		}
	}
	answer := make(chan func(*reading), 1)
	go func() { answer <- s.readWithPSS(ctx, w) }() // both its calls end with ctx
	return func(r *reading) { (<-answer)(r) }
}

// addWorkloads puts what was found into the reading.
func addWorkloads(r *reading, found workloadsReading, err error) {
	r.workloads = found.workloads
	if err = errors.Join(err, found.bad); err != nil {
		r.errs = append(r.errs, &scrapers.SourceError{Source: workloadsName, Err: err})
	}
	if found.gone != "" {
		r.errs = append(r.errs, &scrapers.GoneError{What: found.gone})
	}
}

// workloadsName is how faults of this source are called.
const workloadsName = "processes"

// readWithPSS returns what puts the answers into the reading.
func (s *linuxSource) readWithPSS(ctx context.Context, w want) func(*reading) {
	found, err := guard.Call(ctx, &s.workloads.slot, s.workloads.reader(w))
	pids := make([][]int, 0, len(found.workloads))
	for _, w := range found.workloads {
		pids = append(pids, w.pids)
	}
	var sums []uint64
	var errPSS error
	if len(pids) > 0 {
		sums, errPSS = guard.Call(ctx, &s.pss.slot, func(ctx context.Context) ([]uint64, error) {
			return s.pss.read(ctx, pids)
		})
	}
	return func(r *reading) {
		addWorkloads(r, found, err)
		for i := range sums {
			r.workloads[i].pss = sums[i]
		}
		if errPSS != nil {
			r.errs = append(r.errs, &scrapers.SourceError{Source: "smaps_rollup", Err: fmt.Errorf("proc.memory.pssMB %w", errPSS)})
		}
	}
}
