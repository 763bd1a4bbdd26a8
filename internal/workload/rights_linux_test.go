// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hang makes a file hang whoever opens it, until it is let go.
func (f *fixture) hang(names ...string) (letGo func()) {
	f.t.Helper()
	path := f.path(names...)
	require.NoError(f.t, os.RemoveAll(path))
	require.NoError(f.t, unix.Mkfifo(path, 0o600))
	gone := false
	letGo = func() {
		if gone {
			return
		}
		gone = true
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0) // fails when nobody waits
		require.NoError(f.t, os.Remove(path))
		if err == nil {
			_ = unix.Close(fd)
		}
	}
	f.t.Cleanup(letGo)
	return letGo
}

// settle waits until nobody is looked into any longer.
func settle(t *testing.T, lookers ...*looker) {
	t.Helper()
	for _, l := range lookers {
		require.True(t, l.slot.Settle(t.Context()))
	}
}

// lookersOf goroutines are in the middle of a look.
func lookersOf(t *testing.T) int {
	t.Helper()
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "workload.(*looker).look(")
}

// A process that does not answer takes only itself away, and that for as long as
// it does not.
func TestAProcessThatDoesNotAnswer(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1).in(inDocker(dockerID)))
	for pid := 30; pid < 40; pid += 2 {
		f.put(python(pid, 1), core(pid+1, pid, pid, "abc"))
	}
	letGo := f.hang("20", "environ")
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, Logger: logger})
	first := d.looker
	v := f.view(d)
	assert.Contains(t, listed(v), "container container-d0d0d0d0d0d0 [20]", "its control group tells of it")
	assert.Equal(t, 1, lookersOf(t))
	assert.Equal(t, []string{"warn A process does not answer when it is looked into; what it runs stays unknown until it does"}, logged())

	for range 3 {
		f.now = f.now.Add(noticeHold)
		v = f.view(d)
		assert.Len(t, v.Runs, 5, "the others are found in the next pass")
		assert.Len(t, v.Workloads, 6)
		assert.Equal(t, 1, lookersOf(t))
		assert.Empty(t, logged())
	}

	letGo()
	settle(t, first)
	f.put(python(20, 1, "RANK=4").in(inDocker(dockerID)))
	v = f.view(d)
	assert.Zero(t, lookersOf(t))
	assert.Empty(t, d.stuck)
	assert.Equal(t, 4, v.Of(20).Identity.Rank.Value)
	assert.Empty(t, logged(), "it may come back")
	f.now = f.now.Add(noticeHold)
	f.view(d)
	assert.Equal(t, []string{"info No longer: A process does not answer when it is looked into"}, logged())
}

// A wandb-core that hangs keeps its run.
func TestACoreThatDoesNotAnswerAnyLonger(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), core(21, 20, 20, "abc"))
	d := f.discovery(Options{Discover: everything})
	released := make(chan struct{})
	var hangs atomic.Bool
	d.WithReadlink(func(name string) (string, error) {
		if hangs.Load() {
			<-released
		}
		return os.Readlink(name)
	})
	first := d.looker
	for range 3 {
		assert.Equal(t, []string{"run run-abc-20 [20]"}, listed(f.view(d)))
		hangs.Store(true)
	}
	hangs.Store(false)
	close(released)
	settle(t, first)
	f.put(core(21, 20, 20))
	assert.Empty(t, listed(f.view(d)), "and loses it when it answers again")
}

// So many may hang at once, each with one goroutine; with one more there is no
// looking any longer until one answers.
func TestManyProcessesThatDoNotAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("each takes its time")
	}
	f := newFixture(t)
	f.put(systemd)
	var letGo []func()
	for i := range maxStuck + 1 {
		f.put(python(20+i, 1))
		letGo = append(letGo, f.hang(strconv.Itoa(20+i), "environ"))
	}
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, Logger: logger})
	d.looker.timeout /= 4
	for range maxStuck + 3 {
		f.view(d)
	}
	assert.Equal(t, maxStuck+1, lookersOf(t))
	assert.Len(t, d.stuck, maxStuck)
	assert.Len(t, logged(), 1)
	lookers := []*looker{d.looker}
	for _, l := range d.stuck {
		lookers = append(lookers, l)
	}
	for _, each := range letGo {
		each()
	}
	settle(t, lookers...)
	f.put(python(50, 1), core(51, 50, 50, "abc"))
	assert.Equal(t, []string{"run run-abc-50 [50]"}, listed(f.view(d)))
	f.now = f.now.Add(noticeHold)
	f.view(d)
	assert.Len(t, logged(), 1)
	assert.Zero(t, lookersOf(t))
}

// Many processes that each take a while are nobody's fault: the rest comes with
// the next pass.
func TestSlowLooksAreNoHang(t *testing.T) {
	f := newFixture(t)
	f.put(systemd)
	for pid := 20; pid < 40; pid++ {
		f.put(stranger{pid: pid, parent: 1, name: "python3", exe: "/bin/x"})
	}
	logger, logged := observed()
	d := f.discovery(Options{Match: []Rule{{Exe: regexp.MustCompile("/bin/x")}}, Logger: logger})
	d.looker.timeout /= 2
	d.WithReadlink(func(name string) (string, error) {
		time.Sleep(d.looker.timeout / 8)
		return os.Readlink(name)
	})
	found := 0
	for found < 20 {
		l := d.looker
		v := f.view(d)
		require.Same(t, l, d.looker)
		require.Greater(t, len(v.Workloads), found)
		found = len(v.Workloads)
		settle(t, l)
	}
	assert.Empty(t, logged())
}

// The end of a scrape is no hang either.
func TestAScrapeThatEnds(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), core(21, 20, 20, "abc"))
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, Logger: logger})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := d.Take(ctx)
	require.NoError(t, err)
	assert.Empty(t, listed(v))
	assert.Equal(t, []string{"run run-abc-20 [20]"}, listed(f.view(d)))
	assert.Empty(t, logged())
}

// forbid makes files of the fixture unreadable, and gives up being root.
func (f *fixture) forbid(t *testing.T, names ...string) {
	t.Helper()
	const nobody = 65534
	require.NoError(t, filepath.WalkDir(f.root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	}))
	for dir := f.root; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	for _, name := range names {
		require.NoError(t, os.Lchown(f.path(name), 0, 0))
		require.NoError(t, os.Chmod(f.path(name), 0o400))
	}
	if err := syscall.Seteuid(nobody); err != nil {
		t.Skipf("cannot give up being root: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Seteuid(0)) })
	if _, err := os.Open(f.path(names[0])); !errors.Is(err, fs.ErrPermission) {
		t.Skipf("may read everything all the same: %v", err)
	}
}

func TestWithoutRights(t *testing.T) {
	f := newFixture(t)
	f.put(
		systemd, python(20, 1), core(21, 20, 20, "mine"), python(30, 1, "RANK=1").in(inDocker(dockerID)), python(40, 1), core(41, 40, 40, "theirs"),
		named(50, 1, "sshd"),
	)
	f.forbid(t, "30/environ", "41/fd", "41/environ", "50/environ")
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, Logger: logger})
	for range 3 {
		assert.Equal(t, []string{"run run-mine-20 [20]", "container container-d0d0d0d0d0d0 [30]"}, listed(f.view(d)))
	}
	assert.Equal(t, []string{
		"warn Processes of other users cannot be looked into: W&B runs among them are not found, and projects, ranks and Slurm jobs that only the environment tells are missing; " +
			"run as root, or with the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; in a container with these, also unconfined by AppArmor and SELinux",
	}, logged())
	require.NoError(t, syscall.Seteuid(0))
	f.remove(30, 40, 41)
	f.view(d)
	f.now = f.now.Add(2 * noticeHold)
	f.view(d)
	f.put(python(30, 1, "RANK=1").in(inDocker(dockerID)))
	f.forbid(t, "30/environ")
	f.view(d)
	assert.Empty(t, logged(), "it is said once")
}

func TestWithoutRightsNothingIsMissing(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), core(21, 20, 20, "mine"), named(50, 1, "sshd"))
	f.forbid(t, "50/environ")
	logger, logged := observed()
	assert.Equal(t, []string{"run run-mine-20 [20]"}, listed(f.discover(Options{Discover: everything, Logger: logger})))
	assert.Empty(t, logged())
}

// What the warning names is what the kernel asks for: both, and no more.
func TestTheCapabilitiesThatAreNeeded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	other := exec.CommandContext(t.Context(), "cat") // ends with its input
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242, NoSetGroups: true}}
	stdin, err := other.StdinPipe()
	require.NoError(t, err)
	if err := other.Start(); err != nil {
		t.Skipf("another user may not run this: %v", err)
	}
	defer func() {
		_ = stdin.Close()
		_ = other.Wait()
	}()
	tests := []struct {
		name string
		caps []int
		want string
	}{
		{"none", nil, "environ denied, fd denied, exe denied"},
		{"to trace", []int{unix.CAP_SYS_PTRACE}, "environ denied, fd denied, exe good"},
		{"to read and search", []int{unix.CAP_DAC_READ_SEARCH}, "environ denied, fd denied, exe denied"},
		{"both", []int{unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}, "environ good, fd good, exe good"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			caps := []string{}
			for _, c := range tt.caps {
				caps = append(caps, strconv.Itoa(c))
			}
			cmd := command(fmt.Sprintf("rights:%d:%s", other.Process.Pid, strings.Join(caps, ",")))
			out, err := cmd.Output()
			require.NoError(t, err)
			if reason, ok := strings.CutPrefix(string(out), "skip: "); ok {
				t.Skip(reason)
			}
			assert.Equal(t, tt.want, strings.TrimSpace(string(out)))
		})
	}
}

// Nothing that is secret is kept or told: of real processes, at any level of the
// log.
func TestSecretsOfRealProcesses(t *testing.T) {
	const secret = "5ecr3t"
	cmd := command("held:0")
	cmd.Args = append(cmd.Args, "--api-key="+secret+"a", "--password", secret+"b")
	cmd.Env = append(
		cmd.Env, "WANDB_API_KEY="+secret+"c", "AWS_SECRET_ACCESS_KEY="+secret+"d", "HF_TOKEN="+secret+"e", "WANDB_PROJECT_TOKEN="+secret+"f",
		"WANDB_PROJECT=not a secret", "SLURM_JOB_ID=777", "SLURM_STEP_ID=3", "RANK=2",
	)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}()
	_, err = stdout.Read(make([]byte, 6))
	require.NoError(t, err)
	logger, logged := observed()
	rules := []Rule{{Command: regexp.MustCompile("--api-key")}}
	for _, o := range []Options{
		{Discover: everything, Match: rules, Logger: logger},
		{Match: rules, Logger: logger},
		{Target: Target{Pid: cmd.Process.Pid, Tree: true}, Discover: everything, MaxWorkloads: 1, MaxProcesses: 1, Logger: logger},
	} {
		d := NewDiscovery(o)
		v, err := d.Take(t.Context())
		require.NoError(t, err)
		w := v.Of(cmd.Process.Pid)
		require.NotNil(t, w)
		if w.Kind == KindStep {
			assert.Equal(t, "777", w.Identity.SlurmJob)
		}
		requireNoSecret(t, d, v, secret)
		for _, line := range logged() {
			assert.NotContains(t, line, secret)
		}
		d.Close()
	}
}

// requireNoSecret looks at all that is kept beyond a pass, and all that is told.
func requireNoSecret(t *testing.T, d *Discovery, v *View, secret string) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "%+v %+v %+v %+v", v, v.Runs, v.Jobs, identities(v))
	for _, w := range v.Workloads {
		fmt.Fprintf(&text, "%+v", *w)
	}
	for _, f := range d.facts {
		fmt.Fprintf(&text, "%+v", *f)
		if f.env != nil {
			fmt.Fprintf(&text, "%+v", *f.env)
		}
	}
	for key := range d.looker.envs.known {
		text.WriteString(key)
	}
	require.NotContains(t, text.String(), secret)
}
