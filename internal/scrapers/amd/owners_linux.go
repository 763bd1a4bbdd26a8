// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// idleRecheck is how long a process that had no GPU open is left alone: to look
// costs a system call for each of its descriptors.
const idleRecheck = 30 * time.Second

// strangeLooks is how often pids of the KFD must be unknown here before they are
// taken for those of another namespace: processes come and go.
const strangeLooks = 2

// kernelOwners finds the workloads that use the GPUs by what the KFD tells of
// processes that compute, and by the descriptors of the others.
type kernelOwners struct {
	sysfs     *sysfs
	workloads *workload.Discovery
	rootPath  string
	interval  time.Duration
	logger    *zap.Logger
	clock     func() time.Time

	// idle are the processes that had no GPU open, by when they were looked at.
	idle map[workload.Key]time.Time
	// looking guards the looks into processes.
	looking guard.Slot
	// told are the holders that were told last.
	told []int
	// strange counts the looks in a row with unknown pids.
	strange                 int
	foreign, denied, hidden bool
}

func newOwners(set scrapers.Settings, cfg *Config, sys *sysfs) owners {
	if !set.Workloads.IsSet() || (!gpus.UsesProcesses(&set.Metrics.Metrics) && !set.Workloads.WantsHolders()) {
		return nil
	}
	return &kernelOwners{
		sysfs: sys, workloads: set.Workloads, rootPath: set.RootPath, logger: set.Receiver.Logger,
		interval: cfg.CommonConfig.Timing.CollectionInterval, clock: time.Now, idle: map[workload.Key]time.Time{},
	}
}

// of implements owners.
func (o *kernelOwners) of(ctx context.Context, r *reading) ([]user, error) {
	all, err := o.processes(ctx, r)
	if err != nil {
		return nil, err
	}
	view, kfd, err := o.known(ctx, all.Value)
	if err != nil {
		return nil, err
	}
	if all.Known && o.tellHolders(kfd) {
		if view, err = o.workloads.Take(ctx); err != nil {
			return nil, err
		}
	}
	use := &usage{devices: o.sysfs.devices, kfd: kfd, foreign: o.foreign, unlisted: !all.Known}
	o.noteHidden(use)
	var members []*workload.Process
	for _, w := range view.Workloads {
		members = append(members, w.Members...)
	}
	use.clients, err = o.clients(ctx, members, use) // after an error the others are still known
	var users []user
	for _, w := range view.Workloads {
		pids := make([]int, len(w.Members))
		for i, p := range w.Members {
			pids[i] = p.Pid
		}
		if used := use.of(pids, r); len(used) > 0 {
			users = append(users, user{who: &w.Identity, gpus: used})
		}
	}
	return users, err
}

// processes are those of the KFD, read now where the figures are a tool's.
func (o *kernelOwners) processes(ctx context.Context, r *reading) (optional.Of[[]kfdProcess], error) {
	if r.processes.Known || r.ownIndices { // sysfs says itself why it has none
		return r.processes, nil
	}
	if err := o.sysfs.list(ctx); err != nil && len(o.sysfs.devices) == 0 {
		return r.processes, err
	}
	all, err := o.sysfs.kfdProcesses(ctx)
	return optional.If(all, err == nil), err
}

// known returns the workloads, and those of the KFD's processes that can be found
// here: none, where its pids are those of another namespace.
func (o *kernelOwners) known(ctx context.Context, kfd []kfdProcess) (*workload.View, []kfdProcess, error) {
	pids := make([]int, len(kfd))
	for i := range kfd {
		pids[i] = kfd[i].pid
	}
	expected := pids
	if o.foreign { // a new look would not find them either
		expected = nil
	}
	view, err := gpus.View(ctx, o.workloads, o.interval, expected)
	if err != nil || len(kfd) == 0 {
		return view, kfd, err
	}
	if !o.sees(func(pid int) bool { return view.Snapshot.Find(pid) != nil }, pids) {
		return view, nil, nil
	}
	return view, kfd, nil
}

// sees tells whether the KFD's pids, which are the machine's, are those that we
// see. It says once when they are not.
func (o *kernelOwners) sees(isHere func(pid int) bool, pids []int) bool {
	foreign := o.foreign
	switch {
	case gpus.SeesMachine(o.rootPath):
		foreign = false
	case o.rootPath == "":
		foreign = true
	case slices.ContainsFunc(pids, func(pid int) bool { return !isHere(pid) }):
		o.strange++
		foreign = foreign || o.strange >= strangeLooks
	default:
		o.strange, foreign = 0, false
	}
	if foreign && !o.foreign {
		o.logger.Warn("Processes that compute on GPUs are known by their descriptors only: the driver tells the machine's process ids, which are not visible here",
			zap.String("cure", "run the collector in the machine's pid namespace (hostPID), or mount the machine's / and set root_path"))
	}
	o.foreign = foreign
	return !foreign
}

// tellHolders says who holds GPUs. It tells whether that makes other workloads
// than there were.
func (o *kernelOwners) tellHolders(kfd []kfdProcess) bool {
	pids := holders(kfd)
	o.workloads.SetHolders(familyName, pids)
	changed := !slices.Equal(pids, o.told)
	o.told = pids
	return changed && o.workloads.WantsHolders()
}

// noteHidden says once that processes compute on GPUs whose numbers the KFD keeps
// from a container that may not use them: those of a process tell nothing then.
func (o *kernelOwners) noteHidden(use *usage) {
	hidden := slices.ContainsFunc(use.devices, func(d *device) bool { return d.gpuID == 0 }) &&
		slices.ContainsFunc(use.kfd, func(p kfdProcess) bool {
			return slices.ContainsFunc(p.gpus, func(g kfdGPU) bool { return use.deviceWith(g.id) < 0 })
		})
	if hidden && !o.hidden {
		o.logger.Warn("Processes that compute are not attributed to all GPUs: the driver tells their numbers only where the GPUs may be used",
			zap.String("cure", "let the container use the devices 226:* (Kubernetes: privileged; Docker: --device-cgroup-rule 'c 226:* rw')"))
	}
	o.hidden = hidden
}

// holders are the processes that have memory or a queue on a GPU.
func holders(kfd []kfdProcess) []int {
	var pids []int
	for i := range kfd {
		if len(kfd[i].gpus) > 0 {
			pids = append(pids, kfd[i].pid)
		}
	}
	return pids
}

// clients looks into the processes that the KFD says nothing of.
func (o *kernelOwners) clients(ctx context.Context, members []*workload.Process, use *usage) (map[int][]drmClient, error) {
	now := o.clock()
	maps.DeleteFunc(o.idle, func(_ workload.Key, at time.Time) bool { return now.Sub(at) >= idleRecheck || now.Before(at) })
	var look []*workload.Process
	for _, p := range members {
		if _, idle := o.idle[p.Key()]; !idle && !use.computes(p.Pid) && !p.Blocked {
			look = append(look, p)
		}
	}
	if len(look) == 0 {
		return nil, nil
	}
	found, err := guard.Call(ctx, &o.looking, func(context.Context) (looked, error) { return lookAt(o.rootPath, look), nil })
	if err != nil {
		return nil, err
	}
	for _, p := range look {
		if len(found.clients[p.Pid]) == 0 {
			o.idle[p.Key()] = now
		}
	}
	if found.denied && !o.denied {
		o.logger.Warn("Some processes cannot be looked into, so that their use of GPUs without compute is not known",
			zap.String("cure", "run the collector as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"))
	}
	o.denied = o.denied || found.denied
	return found.clients, nil
}

// looked is what looks into processes found.
type looked struct {
	clients map[int][]drmClient
	denied  bool
}

func lookAt(rootPath string, processes []*workload.Process) looked {
	found := looked{clients: map[int][]drmClient{}}
	for _, p := range processes {
		clients, err := clientsOf(filepath.Join("/", rootPath, "proc", strconv.Itoa(p.Pid)))
		found.denied = found.denied || errors.Is(err, fs.ErrPermission)
		if len(clients) > 0 {
			found.clients[p.Pid] = clients
		}
	}
	return found
}

// usage tells who uses which GPU.
type usage struct {
	devices []*device
	kfd     []kfdProcess
	clients map[int][]drmClient
	// foreign says that the KFD's processes are not those that are seen here, and
	// unlisted that they could not be read.
	foreign, unlisted bool
}

func (u *usage) kfdOf(pid int) *kfdProcess {
	for i := range u.kfd {
		if u.kfd[i].pid == pid {
			return &u.kfd[i]
		}
	}
	return nil
}

// computes tells whether the KFD knows what a process uses.
func (u *usage) computes(pid int) bool {
	p := u.kfdOf(pid)
	return p != nil && slices.ContainsFunc(p.gpus, func(g kfdGPU) bool { return u.deviceWith(g.id) >= 0 })
}

// deviceWith finds the device with this number of the KFD; below 0 is none.
func (u *usage) deviceWith(id uint64) int {
	return slices.IndexFunc(u.devices, func(d *device) bool { return d.gpuID == id })
}

// of returns the GPUs of a reading that some processes use.
func (u *usage) of(pids []int, r *reading) []usedGPU {
	memory := make([]optional.Of[int64], len(u.devices))
	used := make([]bool, len(u.devices))
	seen := []drmClient{}
	for _, pid := range pids {
		p := u.kfdOf(pid)
		if u.computes(pid) {
			u.addCompute(p, used, memory)
			continue
		}
		for _, c := range u.clients[pid] {
			if isDuplicate(seen, &c) {
				continue
			}
			seen = append(seen, c)
			u.addClient(&c, p != nil, used, memory)
		}
	}
	var all []usedGPU
	for i := range r.cards {
		if at := u.deviceOf(r, i); at >= 0 && used[at] {
			all = append(all, usedGPU{card: &r.cards[i], memory: memory[at]})
		}
	}
	return all
}

func (u *usage) addCompute(p *kfdProcess, used []bool, memory []optional.Of[int64]) {
	for _, g := range p.gpus {
		at := u.deviceWith(g.id)
		if at < 0 {
			continue
		}
		used[at] = true
		memory[at] = optional.Some(memory[at].Value + g.memory)
	}
}

// runtimeMemory is more than the page tables that the runtime of a process that
// computes has on each GPU that it may use.
const runtimeMemory = 4 << 20

// addClient counts a descriptor. The runtime of a process that computes opens all
// GPUs and has some memory on each: there only work counts, and where it is not
// known what it computes on, memory that is more than that.
func (u *usage) addClient(c *drmClient, computes bool, used []bool, memory []optional.Of[int64]) {
	at := slices.IndexFunc(u.devices, func(d *device) bool { return d.pci == c.pci && !d.partition })
	if at < 0 {
		return
	}
	enough := c.memory > 0 && !computes && !u.unlisted
	if u.foreign && c.computes {
		enough = c.memory > runtimeMemory
	}
	if !c.works && !enough {
		return
	}
	used[at] = true
	memory[at] = optional.Some(memory[at].Value + c.memory)
}

// deviceOf finds the device of sysfs that a reading is of. One of a tool has the
// tool's number: there the address counts, and of the partitions that share one
// their order.
func (u *usage) deviceOf(r *reading, i int) int {
	c := &r.cards[i]
	if r.ownIndices {
		return slices.IndexFunc(u.devices, func(d *device) bool { return d.index == c.Index && d.pci == c.PCI })
	}
	before := 0
	for k := range i {
		if r.cards[k].PCI == c.PCI {
			before++
		}
	}
	for at, d := range u.devices {
		if d.pci != c.PCI {
			continue
		}
		if before == 0 {
			return at
		}
		before--
	}
	return -1
}
