// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// realTree is a tree of real processes that is followed.
type realTree struct {
	t         *testing.T
	root      *child
	pid       int
	snapshots *Snapshots
	usage     TreeUsage
	counted   uint64
	updates   int
	self, all time.Duration // what the kernel accounted at the first snapshot
}

func newRealTree(t *testing.T) *realTree {
	t.Helper()
	r := &realTree{t: t, root: startPart("root"), snapshots: NewSnapshots("/")}
	r.pid = r.root.cmd.Process.Pid
	t.Cleanup(func() {
		r.root.release()
		r.snapshots.Close()
	})
	r.self, r.all = r.account()
	r.measure()
	return r
}

// tell has the root do something, and returns its answer.
func (r *realTree) tell(what string) string {
	r.t.Helper()
	_, err := fmt.Fprintln(r.root.stdin, what)
	require.NoError(r.t, err)
	answer, err := r.root.lines.ReadString('\n')
	require.NoError(r.t, err)
	return strings.TrimSpace(answer)
}

func (r *realTree) do(what string) {
	r.t.Helper()
	require.Equal(r.t, "done", r.tell(what))
}

// account is the root's CPU time, and that of what it waited for, directly or
// not, by the kernel's own account.
func (r *realTree) account() (self, children time.Duration) {
	r.t.Helper()
	_, err := fmt.Sscan(r.tell("account"), &self, &children)
	require.NoError(r.t, err)
	return self, children
}

func (r *realTree) measure() []*Process {
	r.t.Helper()
	s, err := r.snapshots.Take(r.t.Context())
	require.NoError(r.t, err)
	tree := s.Tree(r.pid)
	require.NotEmpty(r.t, tree)
	ticks, ok := r.usage.Update(s, tree)
	require.Equal(r.t, r.updates > 0, ok)
	r.updates++
	r.counted += ticks
	return tree
}

// requireExact compares with the kernel's account, after all have ended. It
// cuts each time of each process to ticks.
func (r *realTree) requireExact(processes int) {
	r.t.Helper()
	self, all := r.account()
	r.measure()
	used := (self + all - r.self - r.all).Seconds() * 100
	assert.InDelta(r.t, used, float64(r.counted), float64(4+4*processes), "the kernel accounts %.1f ticks", used)
}

func TestRealWorkersThatEnd(t *testing.T) {
	r := newRealTree(t)
	for i := range 3 {
		r.tell("hold w" + strconv.Itoa(i) + " held:60")
		assert.Len(t, r.measure(), 2)
		r.do("release w" + strconv.Itoa(i))
		for range 3 {
			r.do("run burn:15") // never seen alive
		}
		assert.Len(t, r.measure(), 1)
	}
	r.requireExact(12)
}

// A rank burnt for a long time; then it ends, its launcher waits for it and ends,
// and the root waits for that, all between two snapshots.
func TestRealLauncherThatWaitsAndEnds(t *testing.T) {
	r := newRealTree(t)
	r.tell("hold launcher launcher:300")
	assert.Len(t, r.measure(), 3)
	counted := r.counted
	assert.Greater(t, counted, uint64(25))
	r.do("release launcher")
	assert.Len(t, r.measure(), 1)
	assert.Less(t, r.counted-counted, uint64(20), "the rank's earlier time does not count again")
	r.do("run torchrun:60") // begins and ends between two
	r.requireExact(4)
}

func TestRealOrphanLeavesTheTree(t *testing.T) {
	r := newRealTree(t)
	orphan, err := strconv.Atoi(r.tell("hold o orphaner:200"))
	require.NoError(t, err)
	r.do("reap o") // the parent, which has ended
	tree := r.measure()
	assert.Len(t, tree, 1)
	s, err := r.snapshots.Take(t.Context())
	require.NoError(t, err)
	p := s.Find(orphan)
	require.NotNil(t, p, "it lives on")
	assert.NotEqual(t, r.pid, p.Parent)
	assert.GreaterOrEqual(t, p.Own, uint64(15))
	r.requireExact(2) // of the root's account the orphan is no part either
}

func TestRealExecKeepsTheProcess(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	other := filepath.Join(t.TempDir(), "another name")
	require.NoError(t, os.Symlink(sleep, other))
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `read x; exec "$0" 60`, other)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	snapshots := NewSnapshots("/")
	defer snapshots.Close()
	find := func() Process {
		s, err := snapshots.Take(t.Context())
		require.NoError(t, err)
		p := s.Find(cmd.Process.Pid)
		require.NotNil(t, p)
		return *p
	}
	before := find()
	require.NoError(t, stdin.Close())
	var after Process
	require.Eventually(t, func() bool { after = find(); return after.Name == "another name" }, 20*time.Second, 5*time.Millisecond)
	assert.NotEqual(t, before.Name, after.Name)
	assert.Equal(t, before.Key(), after.Key())
}

func TestRealPidReuse(t *testing.T) {
	cmd := command("namespace")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	answer := strings.TrimSpace(string(out))
	if reason, ok := strings.CutPrefix(answer, "skip: "); ok || (err != nil && answer == "") {
		t.Skipf("no pid namespace can be made here: %s %v", reason, err)
	}
	assert.Equal(t, "good", answer)
}

// coreScript is called wandb-core, and so is the process that runs it.
const coreScript = `#!/bin/sh
for run; do :; done
exec 3>>"$run"
echo open
read x
exec 3>&-
echo closed
read x
`

// A run of real processes: workers belong to it whatever they become, an orphan
// that left its tree does not, and it is over when its file is closed.
func TestRealRun(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, coreName)
	require.NoError(t, os.WriteFile(script, []byte(coreScript), 0o700))
	run := filepath.Join(dir, "wandb", "offline-run-20260102_030405-a-b-c", "run-a-b-c.wandb")
	require.NoError(t, os.MkdirAll(filepath.Dir(run), 0o755))
	r := &realTree{t: t, root: startPart("root")}
	r.pid = r.root.cmd.Process.Pid
	t.Cleanup(r.root.release)
	logger, logged := observed()
	d := NewDiscovery(Options{Discover: everything, Logger: logger})
	t.Cleanup(d.Close)
	take := func() (*View, *Workload) {
		v, err := d.Take(t.Context())
		require.NoError(t, err)
		requireSound(t, d, v)
		return v, v.Of(r.pid)
	}
	_, w := take()
	if w != nil {
		t.Skipf("all here is the %s %s", w.Kind, w.Identity.ID)
	}

	require.Equal(t, "open", r.tell("core core "+script+" "+run))
	v, w := take()
	require.NotNil(t, w)
	assert.Equal(t, "run-a-b-c-"+strconv.Itoa(r.pid), w.Identity.ID)
	assert.Equal(t, []string{"a-b-c", "offline", "real"}, []string{w.Identity.RunID, w.Identity.Mode, w.Identity.Project})
	assert.Len(t, w.Members, 1, "without the core")
	requireNoSecret(t, d, v, "secret")
	cores := v.Snapshot.Tree(r.pid)
	require.Len(t, cores, 2)
	assert.Equal(t, coreName, cores[1].Name)
	assert.Contains(t, v.Helpers, cores[1].Pid)

	r.tell("hold worker held:0")
	_, w = take()
	assert.Len(t, w.Members, 2)
	orphan, err := strconv.Atoi(r.tell("hold o orphaner:0"))
	require.NoError(t, err)
	r.do("reap o")
	v, w = take()
	assert.Len(t, w.Members, 2)
	require.NotNil(t, v.Snapshot.Find(orphan), "it lives on")
	assert.Nil(t, v.Of(orphan))
	require.Equal(t, "soon", r.tell("hold e executor:cat"))
	require.Eventually(t, func() bool {
		_, w = take()
		return len(w.Members) == 3 && (w.Members[1].Name == "cat" || w.Members[2].Name == "cat")
	}, 20*time.Second, 5*time.Millisecond)
	assert.Equal(t, "run-a-b-c-"+strconv.Itoa(r.pid), w.Identity.ID)

	require.Equal(t, "closed", r.tell("tell core"))
	v, w = take()
	assert.Nil(t, w, "it is over")
	assert.Contains(t, v.Helpers, cores[1].Pid)
	for _, line := range logged() {
		assert.NotContains(t, line, "secret")
	}
}
