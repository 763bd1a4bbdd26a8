// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// A pid of a nested namespace is that of a process in the same namespace.
func TestProcessesOfNestedNamespaces(t *testing.T) {
	first, second := inDocker(dockerID), inDocker(otherID)
	tests := []struct {
		name      string
		processes []stranger
		want      []string
	}{
		{
			"two containers with the same pid inside",
			[]stranger{
				python(20, 1).nested("pid:[1]", 7).in(first), core(21, 20, 7, "one").nested("pid:[1]", 8).in(first),
				python(30, 1).nested("pid:[2]", 7).in(second), core(31, 30, 7, "two").nested("pid:[2]", 8).in(second),
			},
			[]string{"run run-one-20 [20]", "run run-two-30 [30]"},
		},
		{
			"the namespaces are not told",
			[]stranger{
				python(20, 1).nested("", 7).in(first), core(21, 20, 7, "one").nested("", 8).in(first),
				python(30, 1).nested("", 7).in(second), core(31, 30, 7, "two").nested("", 8).in(second),
			},
			[]string{"run run-one-20 [20]", "run run-two-30 [30]"},
		},
		{
			"detached from their processes",
			[]stranger{
				python(20, 1).nested("pid:[1]", 7).in(first), core(21, 1, 7, "one").nested("pid:[1]", 8).in(first).detached(),
				python(30, 1).nested("pid:[2]", 7).in(second), core(31, 1, 7, "two").nested("pid:[2]", 8).in(second).detached(),
			},
			[]string{"run run-one-20 [20]", "run run-two-30 [30]"},
		},
		{
			"detached, and the namespaces are not told",
			[]stranger{
				python(20, 1).nested("", 7).in(first), core(21, 1, 7, "one").nested("", 8).in(first).detached(),
				python(30, 1).nested("", 7).in(second), core(31, 1, 7, "two").nested("", 8).in(second).detached(),
			},
			[]string{"run run-one-20 [20]", "run run-two-30 [30]"},
		},
		{
			"the process is gone, and another container has the pid",
			[]stranger{
				named(19, 1, "sh").nested("", 1).in(first), core(21, 19, 7, "one").nested("", 8).in(first).detached(),
				python(30, 1).nested("", 7).in(second),
			},
			[]string{"container container-d0d0d0d0d0d0 [19 21]", "container container-e1e1e1e1e1e1 [30]"},
		},
		{
			"two may be it: none is",
			[]stranger{python(20, 1).nested("", 7), python(30, 1).nested("", 7), core(21, 1, 7, "one").nested("", 8).detached()},
			nil,
		},
		{
			"a younger process has the pid inside",
			[]stranger{python(20, 1).at(300).nested("pid:[1]", 7), core(21, 1, 7, "one").nested("pid:[1]", 8).detached()},
			nil,
		},
		{
			"the pid inside is another's outside",
			[]stranger{named(7, 1, "sshd"), python(20, 1).nested("pid:[1]", 7), core(21, 1, 7, "one").nested("pid:[1]", 8).detached()},
			[]string{"run run-one-20 [20]"},
		},
		{
			"whoever has the pid of the parent is younger than the core, and another is it",
			[]stranger{python(19, 1).at(300).nested("pid:[1]", 7), python(20, 1).nested("pid:[1]", 7), core(21, 19, 7, "one").nested("pid:[1]", 8)},
			[]string{"run run-one-20 [20]"},
		},
		{
			"three namespaces deep",
			[]stranger{python(20, 1).nested("pid:[3]", 50, 7), core(21, 20, 7, "one").nested("pid:[3]", 51, 8), python(22, 1).nested("pid:[2]", 7)},
			[]string{"run run-one-20 [20]"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.put(systemd)
			f.put(tt.processes...)
			assert.Equal(t, tt.want, listed(f.discover(Options{Discover: everything})))
		})
	}
}

func TestARunComesAndGoes(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1))
	d := f.discovery(Options{Discover: everything})
	steps := []struct {
		what  string
		do    func()
		want  []string
		known int
	}{
		{"W&B is not started yet", func() {}, nil, 0},
		{"its core is, without a run", func() { f.put(core(21, 20, 20)) }, nil, 0},
		{"the run begins", func() { f.put(core(21, 20, 20, "abc")) }, []string{"run run-abc-20 [20]"}, 1},
		{"a second one", func() { f.put(core(21, 20, 20, "abc", "offline/xyz")) }, []string{"run run-abc-20 [20]"}, 2},
		{"the first ends", func() { f.put(core(21, 20, 20, "offline/xyz")) }, []string{"run run-xyz-20 [20]"}, 1},
		{"both ended, the process works on", func() { f.put(core(21, 20, 20)) }, nil, 0},
		{"a third", func() { f.put(core(21, 20, 20, "third")) }, []string{"run run-third-20 [20]"}, 1},
		{"the process has ended", func() { f.put(python(20, 1).ended()) }, nil, 1},
		{"and was waited for", func() { f.remove(20) }, nil, 1},
		{"another one has its pid", func() { f.put(python(20, 1).at(6000)) }, nil, 1},
		{"the core is gone", func() { f.remove(21) }, nil, 0},
	}
	for _, step := range steps {
		step.do()
		v := f.view(d)
		assert.Equal(t, step.want, listed(v), step.what)
		assert.Len(t, v.Runs, step.known, step.what)
	}
}

func TestTheConfiguredProcess(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1).in(inDocker(dockerID)), python(21, 20).in(inDocker(dockerID)), named(22, 1, "sh").in(inDocker(dockerID)))
	tree := f.discovery(Options{Target: Target{Pid: 20, Tree: true}})
	single := f.discovery(Options{Target: Target{Pid: 20}})
	both := f.discovery(Options{Target: Target{Pid: 20, Tree: true}, Discover: everything})
	boot := func(id string) func() { return func() { f.write("sys/kernel/random/boot_id", id) } }
	steps := []struct {
		what               string
		do                 func()
		tree, single, both []string
		gone               string
	}{
		{
			"it is there", func() {},
			[]string{"process pid-20 [20 21]"},
			[]string{"process pid-20 [20]"},
			[]string{"process pid-20 [20 21]", "container container-d0d0d0d0d0d0 [22]"},
			"",
		},
		{"the boot is not told for once", boot(""), []string{"process pid-20 [20 21]"}, []string{"process pid-20 [20]"}, []string{"process pid-20 [20 21]", "container container-d0d0d0d0d0d0 [22]"}, ""},
		{"another boot", boot("other"), nil, nil, []string{"container container-d0d0d0d0d0d0 [20 21 22]"}, "process 20 is gone"},
		{"the same again", boot("the boot\n"), []string{"process pid-20 [20 21]"}, []string{"process pid-20 [20]"}, []string{"process pid-20 [20 21]", "container container-d0d0d0d0d0d0 [22]"}, ""},
		{"it has ended", func() { f.put(python(20, 1).in(inDocker(dockerID)).ended()) }, nil, nil, []string{"container container-d0d0d0d0d0d0 [21 22]"}, "process 20 is gone"},
		{"it is gone", func() { f.remove(20) }, nil, nil, []string{"container container-d0d0d0d0d0d0 [21 22]"}, "process 20 is gone"},
		{"another has its pid", func() { f.put(python(20, 1).at(6000)) }, nil, nil, []string{"container container-d0d0d0d0d0d0 [21 22]"}, "process 20 is gone"},
		{"something cannot be read, and may be it", func() {
			f.remove(20)
			f.write("20/stat", "20 (bad) S 1 1 1 0 -1 4194304 1 2 3 4 x 0 0 0 20 0 1 0 5 1 2\n")
		}, nil, nil, []string{"container container-d0d0d0d0d0d0 [21 22]"}, ""},
	}
	for _, step := range steps {
		step.do()
		for d, want := range map[*Discovery][]string{tree: step.tree, single: step.single, both: step.both} {
			v, err := d.Take(t.Context())
			require.NoError(t, err, step.what)
			requireSound(t, d, v)
			if v.Snapshot.Unread == nil {
				assert.ElementsMatch(t, want, listed(v), step.what)
				assert.Equal(t, step.gone, v.Gone, step.what)
			} else {
				assert.Empty(t, v.Gone, step.what)
			}
		}
	}
	never := f.discovery(Options{Target: Target{Pid: 999}})
	assert.Equal(t, "there is no process 999 below "+f.root+"/proc", f.view(never).Gone)
}

func TestTheCollectorItself(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), python(21, 20))
	d := f.discovery(Options{Target: Target{Self: true, Tree: true}})
	_, err := d.Take(t.Context())
	require.ErrorContains(t, err, "finding the collector's own process")
	f.link("x", "self")
	_, err = d.Take(t.Context())
	require.ErrorContains(t, err, "finding the collector's own process")
	require.NoError(t, os.Remove(f.path("self")))
	f.link("20", "self")
	assert.Equal(t, []string{"process pid-20 [20 21]"}, listed(f.view(d)))
	require.True(t, d.IsSet())
	require.False(t, (*Discovery)(nil).IsSet())
	require.False(t, f.discovery(Options{}).IsSet())
}

func TestRecentViews(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1))
	d := f.discovery(Options{Discover: everything})
	recent := func() *View {
		v, err := d.Recent(t.Context(), time.Minute)
		require.NoError(t, err)
		return v
	}
	first := recent()
	f.now = f.now.Add(time.Minute)
	assert.Same(t, first, recent())
	f.now = f.now.Add(1)
	assert.NotSame(t, first, recent())
	f.ticksErr = os.ErrInvalid
	f.now = f.now.Add(time.Hour)
	_, err := d.Recent(t.Context(), time.Minute)
	require.ErrorIs(t, err, os.ErrInvalid)
}

func TestRules(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, os.MkdirAll(f.root+"/etc", 0o755))
	require.NoError(t, os.WriteFile(f.root+"/etc/passwd", []byte("root:x:0:0::/:\nann:x:1000:1000::/:\nbob:x:1001:1001::/:\n"), 0o600))
	f.put(
		systemd,
		stranger{pid: 20, parent: 1, name: "python3", uid: 1000, exe: "/opt/venv/bin/python3.12", args: []string{"python3", "-m", "train", "--lr=1"}},
		stranger{pid: 30, parent: 1, name: "ollama", uid: 1001, exe: "/usr/bin/ollama (deleted)", args: []string{"ollama", "serve"}},
		stranger{pid: 40, parent: 1, name: "serve", uid: 4242, args: []string{"/bin/serve", "", "x y"}},
	)
	re := regexp.MustCompile
	tests := []struct {
		name string
		rule Rule
		want []string
	}{
		{"name", Rule{Name: re("^python")}, []string{"match pid-20 [20]"}},
		{"name, anywhere", Rule{Name: re("llam")}, []string{"match pid-30 [30]"}},
		{"name is not the command", Rule{Name: re("train")}, nil},
		{"program", Rule{Exe: re("^/opt/venv/")}, []string{"match pid-20 [20]"}},
		{"program that was deleted", Rule{Exe: re("/ollama$")}, []string{"match pid-30 [30]"}},
		{"command", Rule{Command: re("-m train --lr")}, []string{"match pid-20 [20]"}},
		{"command with an empty word", Rule{Command: re("^/bin/serve  x y$")}, []string{"match pid-40 [40]"}},
		{"user by name", Rule{User: re("^ann$")}, []string{"match pid-20 [20]"}},
		{"user by number", Rule{User: re("^1001$")}, []string{"match pid-30 [30]"}},
		{"user without a name", Rule{User: re("^4242$")}, []string{"match pid-40 [40]"}},
		{"a user without a name has no empty one", Rule{User: re("^$")}, nil},
		{"all fields have to match", Rule{Name: re("python3"), User: re("bob")}, nil},
		{"all fields match", Rule{Name: re("python3"), User: re("ann"), Command: re("train"), Exe: re("venv")}, []string{"match pid-20 [20]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, listed(f.discover(Options{Match: []Rule{tt.rule}})))
			// A rule before that matches nothing changes nothing.
			never := Rule{User: re("^nobody at all$"), Exe: re("x"), Command: re("x")}
			assert.Equal(t, tt.want, listed(f.discover(Options{Match: []Rule{never, tt.rule}})))
		})
	}
}

// A process that may not be understood has no user.
func TestRulesOfAProcessWithoutStatus(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1))
	require.NoError(t, os.Remove(f.path("20", "status")))
	require.NoError(t, os.Remove(f.path("20", "cmdline")))
	rules := []Rule{{User: regexp.MustCompile("^[^0]")}, {Command: regexp.MustCompile("train")}, {Exe: regexp.MustCompile("x")}}
	assert.Empty(t, listed(f.discover(Options{Match: rules})))
}

// A process is looked into again when it becomes another program, which its name
// or the address of its stack tells, and else never.
func TestBecomingAnotherProgram(t *testing.T) {
	tests := []struct {
		name          string
		before, after stranger
		want          string // the rank after
	}{
		{"the same", stranger{name: "python3", stack: 5}, stranger{name: "python3", stack: 5}, "0"},
		{"another name", stranger{name: "bash", stack: 5}, stranger{name: "python3", stack: 5}, "1"},
		{"the same name", stranger{name: "python3", stack: 5}, stranger{name: "python3", stack: 6}, "1"},
		{"the stack is not told", stranger{name: "python3"}, stranger{name: "python3"}, "0"},
		{"the stack is not told any longer", stranger{name: "python3", stack: 5}, stranger{name: "python3"}, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			put := func(p stranger, rank string) {
				p.pid, p.parent, p.group, p.env = 20, 1, inDocker(dockerID), []string{"RANK=" + rank}
				f.put(p)
			}
			put(tt.before, "0")
			d := f.discovery(Options{Discover: everything})
			f.view(d)
			put(tt.after, "1")
			for range 40 {
				v := f.view(d)
				require.Len(t, v.Workloads, 1)
				require.Equal(t, tt.want, strconv.Itoa(v.Workloads[0].Identity.Rank.Value))
			}
		})
	}
}

// A program that writes a title over its environment keeps its rank, but not the
// one that it executes.
func TestATitleOverTheEnvironment(t *testing.T) {
	f := newFixture(t)
	p := stranger{pid: 20, parent: 1, name: "python3", stack: 5, env: []string{"RANK=3"}}
	f.put(p)
	d := f.discovery(Options{Match: []Rule{{}}})
	rank := func() (int, bool) {
		r := f.view(d).Workloads[0].Identity.Rank
		return r.Value, r.Known
	}
	n, _ := rank()
	assert.Equal(t, 3, n)
	p.name, p.env, p.args = "ray::train", nil, []string{"ray::train --key=secret"}
	f.put(p)
	f.write("20/environ", strings.Repeat("\x00", 500))
	n, known := rank()
	assert.True(t, known)
	assert.Equal(t, 3, n)
	assert.Equal(t, "ray::train", f.view(d).Workloads[0].Identity.Command)
	p.name, p.stack = "sh", 6
	f.put(p)
	_, known = rank()
	assert.False(t, known)
}

// A young process is looked into at each pass, and once more when it is not young
// any longer; so is one that started during a pass.
func TestYoungProcesses(t *testing.T) {
	for _, start := range []uint64{4900, 5000, 5003} {
		f := newFixture(t)
		at := func(rank, group string) {
			f.put(stranger{pid: 21, parent: 1, name: "python3", start: start, group: group, env: []string{"RANK=" + rank}})
		}
		d := f.discovery(Options{Discover: everything})
		take := func(seconds uint64) []string {
			v, err := d.Take(t.Context())
			require.NoError(t, err)
			f.ticks += seconds * 100
			f.now = f.now.Add(time.Duration(seconds) * time.Second)
			var all []string
			for _, w := range v.Workloads {
				all = append(all, w.Identity.ID+" "+strconv.Itoa(w.Identity.Rank.Value))
			}
			return all
		}
		at("1", "/")
		assert.Empty(t, take(2), "started at %d", start)
		at("2", inDocker(dockerID))
		assert.Equal(t, []string{"container-d0d0d0d0d0d0 2"}, take(20), "started at %d", start)
		at("3", inDocker(otherID))
		assert.Equal(t, []string{"container-e1e1e1e1e1e1 3"}, take(2), "the last time, of one that started at %d", start)
		at("4", inDocker(dockerID))
		assert.Equal(t, []string{"container-e1e1e1e1e1e1 3"}, take(2), "started at %d", start)
		passes := 0
		for take(2)[0] != "container-d0d0d0d0d0d0 3" {
			passes++
			require.Less(t, passes, 75, "the group is read again within two and a half minutes")
		}
	}
}

// It is the turn of some at each pass, not of all at once.
func TestGroupsAreReadInTurns(t *testing.T) {
	f := newFixture(t)
	for pid := 100; pid < 200; pid++ {
		f.put(named(pid, 1, "sh").in(inDocker(dockerID)))
	}
	d := f.discovery(Options{Discover: everything})
	f.view(d)
	for pid := 100; pid < 200; pid++ {
		f.write(strconv.Itoa(pid)+"/cgroup", "0::"+inDocker(otherID)+"\n")
	}
	moved := 0
	for range 11 {
		v := f.view(d)
		now := 0
		for _, w := range v.Workloads {
			if w.Identity.ContainerID == otherID {
				now = len(w.Members)
			}
		}
		assert.Less(t, now-moved, 40)
		moved = now
	}
	assert.Equal(t, 100, moved)
}

// The group of a process is read again after a minute and a half, and not for all
// at once.
func TestWhenGroupsAreReadAgain(t *testing.T) {
	for pid, seconds := range map[int]int{120: 90, 121: 91, 179: 149} {
		f := newFixture(t)
		f.put(named(pid, 1, "sh").in(inDocker(dockerID)))
		d := f.discovery(Options{Discover: everything})
		idAfter := func(after int) string {
			f.now = testStart.Add(time.Duration(after) * time.Second)
			v, err := d.Take(t.Context())
			require.NoError(t, err)
			return v.Workloads[0].Identity.ContainerID
		}
		assert.Equal(t, dockerID, idAfter(0))
		f.write(strconv.Itoa(pid)+"/cgroup", "0::"+inDocker(otherID)+"\n")
		assert.Equal(t, dockerID, idAfter(seconds-1), "pid %d", pid)
		assert.Equal(t, otherID, idAfter(seconds), "pid %d", pid)
	}
}

// Of a group that had several ranks, one that is left does not become the one.
func TestSeveralRanksStay(t *testing.T) {
	f := newFixture(t)
	rank := func(pid int, group string) stranger {
		return python(pid, 1, "RANK="+strconv.Itoa(pid), "WORLD_SIZE=99").in(group)
	}
	put := func(pids ...int) {
		f.remove(20, 21, 22)
		for _, pid := range pids {
			f.put(rank(pid, inDocker(dockerID)))
		}
	}
	f.put(systemd)
	put(20)
	d := f.discovery(Options{Discover: everything})
	ranks := func() []identity.Number {
		var all []identity.Number
		for _, w := range f.view(d).Workloads {
			assert.Equal(t, identity.Known(99), w.Identity.WorldSize)
			all = append(all, w.Identity.Rank)
		}
		return all
	}
	several := []identity.Number{{}}
	assert.Equal(t, []identity.Number{identity.Known(20)}, ranks())
	put(20, 21)
	assert.Equal(t, several, ranks())
	put(21)
	assert.Equal(t, several, ranks())
	put(22)
	assert.Equal(t, several, ranks(), "and another one does not either")
	f.put(rank(30, inDocker(otherID)))
	assert.Equal(t, []identity.Number{{}, identity.Known(30)}, ranks(), "others are not concerned")
	f.put(core(31, 22, 22, "abc"))
	assert.Equal(t, []identity.Number{identity.Known(22), identity.Known(30)}, ranks(), "a run of the group is one")
	f.remove(31)
	assert.Equal(t, []identity.Number{{}, identity.Known(30)}, ranks(), "while it has all, the group is not gone")
	d.opts.MaxWorkloads = 1
	f.put(rank(22, inDocker(dockerID)).at(300))
	assert.Equal(t, []identity.Number{identity.Known(30)}, ranks())
	d.opts.MaxWorkloads = 2
	assert.Equal(t, []identity.Number{identity.Known(30), {}}, ranks(), "nor while there is no room for it")
	put()
	assert.Equal(t, []identity.Number{identity.Known(30)}, ranks())
	assert.Empty(t, d.severalRanks)
	put(20)
	assert.Equal(t, []identity.Number{identity.Known(20), identity.Known(30)}, ranks(), "it was gone: this is a new one")
}

// A process that is blocked in the kernel is not looked into until it goes on.
func TestBlockedProcesses(t *testing.T) {
	f := newFixture(t)
	p := python(20, 1, "RANK=4").in(inDocker(dockerID))
	running := p
	p.blocked = true
	f.put(systemd, p, python(30, 1), core(31, 30, 30, "abc"))
	letGo := f.hang("20", "environ") // it would not answer
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, Logger: logger})
	for range 3 {
		v := f.view(d)
		assert.Equal(t, []string{"run run-abc-30 [30]", "container container-d0d0d0d0d0d0 [20]"}, listed(v))
		assert.False(t, v.Of(20).Identity.Rank.Known)
	}
	letGo()
	f.put(running)
	assert.Equal(t, identity.Known(4), f.view(d).Of(20).Identity.Rank)

	// A wandb-core that is blocked keeps its run.
	blocked := core(31, 30, 30)
	blocked.blocked = true
	f.put(blocked)
	assert.Equal(t, "abc", f.view(d).Of(30).Identity.RunID)
	f.put(core(31, 30, 30))
	assert.Nil(t, f.view(d).Of(30))
	assert.Empty(t, logged())
}

// What a family has said of an accelerator holds for a while, and for the processes
// that were there.
func TestHolders(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), python(30, 1))
	d := f.discovery(Options{Discover: everything})
	after := func(seconds int) []string {
		f.now, f.ticks = f.now.Add(time.Duration(seconds)*time.Second), f.ticks+uint64(seconds)*100
		v, err := d.Take(t.Context())
		require.NoError(t, err)
		return listed(v)
	}
	d.SetHolders("nvidia", []int{20})
	d.SetHolders("amd", []int{30})
	both := []string{"gpu pid-20 [20]", "gpu pid-30 [30]"}
	assert.Equal(t, both, after(0))
	assert.Equal(t, both, after(290))
	d.SetHolders("amd", []int{30})
	assert.Equal(t, both, after(10))
	assert.Equal(t, both[1:], after(1), "what was said five minutes ago is forgotten")
	assert.Empty(t, after(300))

	d.SetHolders("nvidia", []int{20, 30})
	f.put(python(20, 1).at(f.ticks + 1))
	assert.Equal(t, both[1:], after(1), "another one has got the pid")
	d.SetHolders("nvidia", []int{20, 30})
	assert.Equal(t, []string{"gpu pid-30 [30]", "gpu pid-20 [20]"}, after(1), "until it holds one itself")
	d.SetHolders("nvidia", nil)
	assert.Empty(t, after(1))

	d.SetHolders("nvidia", []int{20})
	f.ticksErr = os.ErrInvalid
	d.SetHolders("nvidia", []int{20})
	f.ticksErr = nil
	assert.Empty(t, after(1), "when it was said is not known")
}

// What comes and goes is said once, and its end when it is over for a while.
func TestNotices(t *testing.T) {
	f := newFixture(t)
	logger, logged := observed()
	d := f.discovery(Options{Logger: logger})
	after := func(wait time.Duration, on bool) []string {
		f.now = f.now.Add(wait)
		d.notice("key", on, "Something")
		return logged()
	}
	assert.Empty(t, after(0, false))
	assert.Equal(t, []string{"warn Something"}, after(0, true))
	for range 20 {
		assert.Empty(t, after(time.Minute, true))
	}
	for range 10 {
		assert.Empty(t, after(9*time.Minute, false))
		assert.Empty(t, after(time.Second, true))
	}
	assert.Empty(t, after(noticeHold-1, false))
	assert.Equal(t, []string{"info No longer: Something"}, after(1, false))
	assert.Empty(t, after(time.Hour, false))
	assert.Equal(t, []string{"warn Something"}, after(0, true))
}

// observed is a logger and what it logged.
func observed() (*zap.Logger, func() []string) {
	core, logs := observer.New(zapcore.DebugLevel)
	return zap.New(core), func() []string {
		var all []string
		for _, entry := range logs.TakeAll() {
			text := entry.Level.String() + " " + entry.Message
			if cure, ok := entry.ContextMap()["cure"].(string); ok {
				text += "; " + cure
			}
			all = append(all, text)
		}
		return all
	}
}

func TestLimits(t *testing.T) {
	f := newFixture(t)
	ids := []string{dockerID, otherID, podmanID}
	put := func(n int) {
		for i, id := range ids {
			f.remove(20 + i)
			if i < n {
				f.put(named(20+i, 1, "sh").in(inDocker(id)).at(uint64(100 + i)))
			}
		}
	}
	put(2)
	f.put(systemd)
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, MaxWorkloads: 2, Logger: logger})
	take := func(n int) []string { put(n); return listed(f.view(d)) }
	both := []string{"container container-d0d0d0d0d0d0 [20]", "container container-e1e1e1e1e1e1 [21]"}
	assert.Equal(t, both, take(2))
	assert.Empty(t, logged())
	assert.Equal(t, both, take(3))
	assert.Equal(t, both, take(3))
	assert.Equal(t, []string{"warn There are more workloads than are looked into; the rest is left out; raise workloads::max_workloads (2)"}, logged())
	take(2)
	assert.Empty(t, logged(), "it may come back")
	f.now = f.now.Add(noticeHold)
	take(2)
	assert.Equal(t, []string{"info No longer: There are more workloads than are looked into; the rest is left out"}, logged())

	put(2)
	few := f.discovery(Options{Discover: everything, MaxProcesses: 3, Logger: logger})
	assert.Equal(t, both, listed(f.view(few)))
	assert.Empty(t, logged())
	put(3)
	for range 3 {
		assert.Len(t, f.view(few).Workloads, 3)
	}
	const more = "There are more processes than are looked into; of the rest only the control groups are known"
	assert.Equal(t, []string{"warn " + more + "; raise workloads::max_processes (3)"}, logged())
	put(1)
	assert.Len(t, f.view(few).Workloads, 1)
	f.now = f.now.Add(noticeHold)
	f.view(few)
	assert.Equal(t, []string{"info No longer: " + more}, logged())
}

// Steps can be invented without end: they take nobody's place.
func TestInventedSteps(t *testing.T) {
	f := newFixture(t)
	f.put(systemd)
	for i := range 600 {
		f.put(named(1000+i, 1, "sh").with("SLURM_JOB_ID=" + strconv.Itoa(1+i)).at(50))
	}
	f.put(python(20, 1), core(21, 20, 20, "abc"), named(30, 1, "sh").in(inDocker(dockerID)), named(40, 1, "jupyter"), named(50, 1, "x"))
	d := f.discovery(Options{Discover: everything, Match: []Rule{{Name: regexp.MustCompile("^jupyter$")}}})
	d.SetHolders("nvidia", []int{50})
	got := listed(f.view(d))
	require.Len(t, got, DefaultMaxWorkloads)
	assert.Equal(t, []string{"run run-abc-20 [20]", "container container-d0d0d0d0d0d0 [30]", "match pid-40 [40]", "gpu pid-50 [50]", "step slurm-1 [1000]"}, got[:5])
	f.put(named(60, 1, "sh").in(inStep)) // where Slurm has groups they are none at all
	assert.Equal(t, []string{"run run-abc-20 [20]", "step slurm-7.0 [60]", "container container-d0d0d0d0d0d0 [30]", "match pid-40 [40]", "gpu pid-50 [50]"}, listed(f.view(d)))
}

// A user whose name was not known is asked for again, but not soon.
func TestUsersWithoutAName(t *testing.T) {
	f := newFixture(t)
	l := newLooker(f.root, nil)
	passwd := func(content string) {
		require.NoError(t, os.MkdirAll(f.root+"/etc", 0o755))
		require.NoError(t, os.WriteFile(f.root+"/etc/passwd", []byte(content), 0o600))
	}
	later := func(d time.Duration) {
		u := l.users[1000]
		u.at = u.at.Add(-d)
		l.users[1000] = u
	}
	assert.Empty(t, l.findUser(1000))
	passwd("ann:x:1000:1::/:\n")
	later(userRetry / 2)
	assert.Empty(t, l.findUser(1000))
	later(userRetry / 2)
	assert.Equal(t, "ann", l.findUser(1000))
	passwd("")
	later(time.Hour)
	assert.Equal(t, "ann", l.findUser(1000), "a name that is known stays")
}

// The limit bounds who is looked into, not who is counted.
func TestLimitOfProcesses(t *testing.T) {
	f := newFixture(t)
	f.put(systemd)
	for pid := 20; pid < 30; pid++ {
		p := named(pid, 1, "sh").in(inDocker(dockerID)).with("RANK=" + strconv.Itoa(pid))
		p.exe = "/bin/sh"
		f.put(p)
	}
	o := Options{Discover: everything, Match: []Rule{{Exe: regexp.MustCompile("x")}}, MaxProcesses: 4}
	d := f.discovery(o)
	looked := map[string]bool{}
	d.WithReadlink(func(name string) (string, error) {
		looked[strings.Split(strings.TrimPrefix(name, f.path()), "/")[1]] = true
		return os.Readlink(name)
	})
	for range 3 {
		v := f.view(d)
		assert.Equal(t, []string{"container container-d0d0d0d0d0d0 [20 21 22 23 24 25 26 27 28 29]"}, listed(v))
		assert.True(t, v.Workloads[0].Whole)
		assert.LessOrEqual(t, len(v.Jobs), 5, "the first of the group is looked into in any case")
		assert.Len(t, looked, 4)
	}
	for pid := 20; pid < 30; pid++ {
		f.put(core(pid, 1, 7, "abc").nested("pid:[1]", pid).detached().at(6000))
	}
	clear(looked)
	assert.LessOrEqual(t, len(f.view(d).Runs), 4)
	delete(looked, "1") // who started them
	assert.LessOrEqual(t, len(looked), 4, "open files and namespaces are looks, too")
}

// The configured process is measured whatever the limits leave out.
func TestLimitsKeepTheConfiguredProcess(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), core(21, 20, 20, "abc"), python(30, 1), named(40, 1, "sh").in(inDocker(dockerID)))
	v := f.discover(Options{Discover: everything, MaxProcesses: 1, MaxWorkloads: 1, Target: Target{Pid: 30, Tree: true}})
	require.Equal(t, []string{"process pid-30 [30]"}, listed(v))
	assert.Equal(t, "python3", v.Workloads[0].Identity.Executable)
}

// Who a workload is does not depend on the others, nor on when we started.
func TestOrderAndIdentityStay(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1).at(150), core(21, 20, 20, "abc"), python(30, 1).at(120), core(31, 30, 30, "xyz"), named(40, 1, "sh").in(inDocker(dockerID)).at(50))
	d := f.discovery(Options{Discover: everything})
	stay := []string{"run run-xyz-30 [30]", "run run-abc-20 [20]", "container container-d0d0d0d0d0d0 [40]"}
	assert.Equal(t, stay, listed(f.view(d)))
	before := identities(f.view(d))
	f.put(python(10, 1), core(11, 10, 10, "new"), python(50, 1).in(inStep), named(5, 1, "sh").in(inDocker(otherID)))
	var rest []string
	v := f.view(d)
	assert.Equal(t, identities(v), identities(f.discover(Options{Discover: everything})))
	for _, line := range listed(v) {
		if line != "run run-new-10 [10]" && line != "step slurm-7.0 [50]" && line != "container container-e1e1e1e1e1e1 [5]" {
			rest = append(rest, line)
		}
	}
	assert.Equal(t, stay, rest)
	f.remove(10, 11, 50, 5)
	assert.Equal(t, before, identities(f.view(d)))
	// A container stays what it is when its first process ends.
	f.put(named(41, 40, "sh").in(inDocker(dockerID)))
	f.view(d)
	f.remove(40)
	assert.Equal(t, []string{"run run-xyz-30 [30]", "run run-abc-20 [20]", "container container-d0d0d0d0d0d0 [41]"}, listed(f.view(d)))
}

// What is remembered goes with the processes.
func TestNothingIsRememberedOfTheDead(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1).in(inDocker(dockerID)), python(21, 20).ended())
	d := f.discovery(Options{Discover: everything})
	f.view(d)
	assert.Len(t, d.facts, 2)
	f.put(python(20, 1).at(6000))
	f.view(d)
	assert.Len(t, d.facts, 2)
	f.remove(20, 21)
	f.view(d)
	assert.Len(t, d.facts, 1)
}

// A process that ends while it is looked into has told nothing.
func TestProcessesThatEndWhenLookedInto(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), core(21, 20, 20, "abc"))
	f.add(Process{Pid: 30, Parent: 1, Start: 100, Threads: 1, Name: coreName})
	f.add(Process{Pid: 31, Parent: 1, Start: 100, Threads: 1, Name: "python3"})
	logger, logged := observed()
	d := f.discovery(Options{Discover: everything, Match: []Rule{{Exe: regexp.MustCompile("x"), Command: regexp.MustCompile("x")}}, Logger: logger})
	d.SetHolders("nvidia", []int{31})
	assert.Equal(t, []string{"run run-abc-20 [20]", "gpu pid-31 [31]"}, listed(f.view(d)))
	assert.Empty(t, logged())
}

// Everything may be asked of it at once.
func TestAtTheSameTime(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1), core(21, 20, 20, "abc"), inPodOf(30, podUID, dockerID), python(40, 1))
	d := f.discovery(Options{Discover: everything})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			d.SetHolders("family "+strconv.Itoa(i), []int{20, 40})
			d.SetNames(&namer{})
			v, err := d.Take(t.Context())
			if assert.NoError(t, err) {
				assert.Len(t, v.Workloads, 3)
			}
			if _, err := d.Recent(t.Context(), time.Hour); err != nil {
				t.Error(err)
			}
			d.Close()
		})
	}
	group.Wait()
}
