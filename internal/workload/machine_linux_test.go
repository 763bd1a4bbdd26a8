// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stranger is a process of a recorded machine, with all that can be looked into.
type stranger struct {
	pid, parent int
	name        string
	// start is in ticks; without it the process is old.
	start  uint64
	zombie bool
	// blocked is state D.
	blocked bool
	stack   uint64
	// group is the path of its control group, or all lines of the file.
	group string
	env   []string
	args  []string
	open  []string
	// inner are the pids in nested namespaces, namespace the innermost of them.
	inner     []int
	namespace string
	uid       int
	exe       string
	mounts    string
}

// put makes or replaces processes.
func (f *fixture) put(all ...stranger) {
	f.t.Helper()
	for i := range all {
		f.putOne(&all[i])
	}
}

func (f *fixture) putOne(p *stranger) {
	f.t.Helper()
	dir := strconv.Itoa(p.pid)
	f.remove(p.pid)
	start := p.start
	if start == 0 {
		start = 100
	}
	f.add(Process{Pid: p.pid, Parent: p.parent, Start: start, Zombie: p.zombie, Blocked: p.blocked, Threads: 1, Name: p.name, stack: p.stack})
	group := p.group
	if !strings.Contains(group, ":/") {
		group = "0::/" + strings.TrimPrefix(group, "/") + "\n"
	}
	f.write(dir+"/cgroup", group)
	f.write(dir+"/environ", environ(p.env...))
	f.write(dir+"/cmdline", environ(p.args...))
	f.write(dir+"/mountinfo", p.mounts)
	pids := fmt.Sprint(append([]int{p.pid}, p.inner...))
	pids = strings.ReplaceAll(strings.Trim(pids, "[]"), " ", "\t")
	f.write(dir+"/status", fmt.Sprintf("Name:\t%s\nUid:\t%d\t%d\t%d\t%d\nNSpid:\t%s\n", p.name, p.uid, p.uid, p.uid, p.uid, pids))
	require.NoError(f.t, os.MkdirAll(f.path(dir, "fd"), 0o755))
	for i, target := range p.open {
		f.link(target, dir, "fd", strconv.Itoa(i))
	}
	if p.exe != "" {
		f.link(p.exe, dir, "exe")
	}
	if p.namespace != "" {
		f.link(p.namespace, dir, "ns", "pid")
	}
}

func (f *fixture) path(names ...string) string {
	return filepath.Join(append([]string{f.root, "proc"}, names...)...)
}

func (f *fixture) link(target string, names ...string) {
	f.t.Helper()
	require.NoError(f.t, os.MkdirAll(filepath.Dir(f.path(names...)), 0o755))
	require.NoError(f.t, os.Symlink(target, f.path(names...)))
}

func (f *fixture) remove(pids ...int) {
	f.t.Helper()
	for _, pid := range pids {
		require.NoError(f.t, os.RemoveAll(f.path(strconv.Itoa(pid))))
	}
}

// everything is looked for.
var everything = Discover{Runs: true, Steps: true, Containers: true, GPU: true}

func (f *fixture) discovery(o Options) *Discovery {
	f.t.Helper()
	o.RootPath = f.root
	d := NewDiscovery(o).WithClock(func() time.Time { return f.now }, func() (uint64, error) { return f.ticks, f.ticksErr })
	f.t.Cleanup(d.Close)
	return d
}

// view is what is found, after some time; it is checked.
func (f *fixture) view(d *Discovery) *View {
	f.t.Helper()
	v, err := d.Take(f.t.Context())
	require.NoError(f.t, err)
	requireSound(f.t, d, v)
	f.now = f.now.Add(15 * time.Second)
	f.ticks += 1500
	return v
}

// discover is what a Discovery finds that has just been started.
func (f *fixture) discover(o Options) *View {
	f.t.Helper()
	return f.view(f.discovery(o))
}

// requireSound holds every view to what it promises.
func requireSound(t testing.TB, d *Discovery, v *View) {
	t.Helper()
	require.LessOrEqual(t, len(v.Workloads), d.opts.MaxWorkloads)
	owners, ids := map[int]*Workload{}, map[string]bool{}
	for i, w := range v.Workloads {
		require.NotEmpty(t, w.Identity.ID)
		require.False(t, ids[w.Identity.ID], "two are called %s", w.Identity.ID)
		ids[w.Identity.ID] = true
		require.Equal(t, string(w.Kind), w.Identity.Kind)
		if w.IsGroup() { // it has many processes, that come and go
			require.Zero(t, w.Identity.Pid)
			require.Empty(t, w.Identity.Executable+w.Identity.Command)
		} else {
			require.Equal(t, w.Root.Pid, w.Identity.Pid)
		}
		require.NotEmpty(t, w.Members, w.Identity.ID)
		require.Same(t, w.Root, w.Members[0], "the root comes first in %s", w.Identity.ID)
		for _, p := range w.Members {
			require.False(t, p.Zombie, "%d of %s has ended", p.Pid, w.Identity.ID)
			require.Same(t, v.Snapshot.Find(p.Pid), p)
			require.Nil(t, owners[p.Pid], "%d is in two workloads", p.Pid)
			owners[p.Pid] = w
			require.Contains(t, w.around, p)
			require.False(t, w.foreign[p.Pid], "%d is in %s and foreign", p.Pid, w.Identity.ID)
		}
		around := map[int]bool{}
		for _, p := range w.around {
			require.False(t, around[p.Pid], "%d is twice around %s", p.Pid, w.Identity.ID)
			around[p.Pid] = true
			require.True(t, p.Zombie || w.foreign[p.Pid] || slices.Contains(w.Members, p), "%d around %s is nobody's", p.Pid, w.Identity.ID)
		}
		if i > 0 {
			require.LessOrEqual(t, v.Workloads[i-1].order(), w.order())
		}
		requireClean(t, w.Identity.Executable)
		requireClean(t, w.Identity.Command)
	}
	for i := range v.Snapshot.Processes {
		pid := v.Snapshot.Processes[i].Pid
		require.Same(t, owners[pid], v.Of(pid))
	}
	require.Nil(t, v.Of(-1))
}

// listed are the workloads in short: what they are called, and who is in them.
func listed(v *View) []string {
	var all []string
	for _, w := range v.Workloads {
		pids := pidsOf(w.Members)
		slices.Sort(pids[1:])
		all = append(all, fmt.Sprint(w.Kind, " ", w.Identity.ID, " ", pids))
	}
	return all
}

// Control groups of a machine.
var (
	dockerID = strings.Repeat("d0", 32)
	otherID  = strings.Repeat("e1", 32)
	podmanID = strings.Repeat("f2", 32)
)

const (
	podUID = "0a1b2c3d-1111-2222-3333-444455556666"
	inStep = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
)

func inDocker(id string) string { return "/system.slice/docker-" + id + ".scope" }

func inPod(id string) string { return "/kubepods/burstable/pod" + podUID + "/" + id }

// core is a wandb-core with runs; each is ID or offline/ID, in the order of their
// start.
func core(pid, parent, target int, runs ...string) stranger {
	p := stranger{
		pid: pid, parent: parent, name: coreName, start: 200,
		args: []string{"/venv/wandb/bin/wandb-core", "--port-filename", "/tmp/port", "--pid", strconv.Itoa(target)},
		open: []string{"/dev/null", "socket:[77]"},
	}
	for i, id := range runs {
		p.open = append(p.open, runFile(id, i))
	}
	return p
}

func runFile(id string, i int) string {
	id, isOffline := strings.CutPrefix(id, "offline/")
	prefix := "run-"
	if isOffline {
		prefix = "offline-run-"
	}
	return fmt.Sprintf("/home/ann/wandb/%s20260102_03040%d-%s/run-%s.wandb", prefix, i, id, id)
}

// python is a training process.
func python(pid, parent int, env ...string) stranger {
	return stranger{pid: pid, parent: parent, name: "python3", args: []string{"python3", "train.py"}, env: env}
}
