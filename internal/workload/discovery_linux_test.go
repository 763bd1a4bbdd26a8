// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

// in puts a process into a group.
func (p stranger) in(group string) stranger {
	p.group = group
	return p
}

func (p stranger) at(start uint64) stranger {
	p.start = start
	return p
}

func (p stranger) with(env ...string) stranger {
	p.env = append(p.env, env...)
	return p
}

func (p stranger) ended() stranger {
	p.zombie = true
	return p
}

// nested gives a process pids in a namespace that is not told by its link when
// it has no name.
func (p stranger) nested(namespace string, inner ...int) stranger {
	p.namespace, p.inner = namespace, inner
	return p
}

func (p stranger) detached() stranger {
	p.args = append(p.args, "--detached")
	return p
}

func named(pid, parent int, name string) stranger {
	return stranger{pid: pid, parent: parent, name: name, args: []string{"/bin/" + name}}
}

var systemd = named(1, 0, "systemd")

// Every kind, alone and within others.
func TestWhoOwnsWhat(t *testing.T) {
	python3 := []Rule{{Name: regexp.MustCompile("^python3$")}}
	tests := []struct {
		name      string
		options   Options
		processes []stranger
		holders   []int
		want      []string
	}{
		{"nothing to find", Options{Discover: everything}, []stranger{named(20, 1, "bash"), named(21, 20, "sleep")}, nil, nil},
		{"nothing is looked for", Options{}, []stranger{python(20, 1), core(21, 20, 20, "abc")}, []int{20}, nil},
		{
			"a run and its workers, without W&B's own processes",
			Options{Discover: everything},
			[]stranger{named(19, 1, "bash"), python(20, 19), core(21, 20, 20, "abc"), named(22, 21, "wandb-xpu"), named(23, 20, "pt_data_worker"), named(24, 23, "ffmpeg")},
			nil,
			[]string{"run run-abc-20 [20 23 24]"},
		},
		{
			"what a helper starts is none of the run",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 20, 20, "abc"), named(22, 21, "gpu_stats"), named(23, 22, "nvidia-smi")},
			nil,
			[]string{"run run-abc-20 [20]"},
		},
		{
			"runs are not looked for",
			Options{Discover: Discover{Steps: true, Containers: true}},
			[]stranger{python(20, 1), core(21, 20, 20, "abc")},
			nil, nil,
		},
		{
			"a step, without what Slurm runs in it",
			Options{Discover: everything},
			[]stranger{
				named(19, 1, "slurmstepd").in("/system.slice/slurmstepd.scope/job_7/step_0/slurm"),
				python(20, 19).in(inStep), python(21, 20).in(inStep), python(22, 19).in("/system.slice/slurmstepd.scope/job_7/step_0/user/task_1"),
			},
			nil,
			[]string{"step slurm-7.0 [20 21 22]"},
		},
		{
			"a step of version 1",
			Options{Discover: everything},
			[]stranger{
				named(19, 1, "slurmstepd").in("4:memory:/slurm/uid_1000/job_7/step_batch\n0::/system.slice/slurmd.service\n"),
				named(20, 19, "bash").in("4:memory:/slurm/uid_1000/job_7/step_batch/task_0\n0::/system.slice/slurmd.service\n"),
			},
			nil,
			[]string{"step slurm-7.batch [20]"},
		},
		{
			"a step of one of several nodes on a machine",
			Options{Discover: everything},
			[]stranger{python(20, 1).in("/system.slice/n1_slurmstepd.scope/job_7/step_3/user/task_0"), python(21, 1).in("4:cpuset:/slurm_n1/uid_1/job_8/step_0/task_1\n")},
			nil,
			[]string{"step slurm-7.3 [20]", "step slurm-8.0 [21]"},
		},
		{
			"a step by its lasting id",
			Options{Discover: everything},
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0").in("/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_0")},
			nil,
			[]string{"step slurm-s0123456789ABC.0 [20]"},
		},
		{
			"a step that the environment alone tells",
			Options{Discover: everything},
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0"), python(21, 20, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0"), named(22, 1, "bash").with("SLURM_JOB_ID=7")},
			nil,
			[]string{"step slurm-7.0 [20 21]", "step slurm-7 [22]"},
		},
		{
			"where Slurm has groups, who is outside of them is in no step",
			Options{Discover: everything},
			[]stranger{
				python(20, 1).in(inStep), named(21, 20, "sh").with("SLURM_JOB_ID=7", "SLURM_STEP_ID=0"),
				python(22, 1, "SLURM_JOB_ID=6", "SLURM_STEP_ID=0").in(inDocker(dockerID)),
			},
			nil,
			[]string{"step slurm-7.0 [20]", "container container-d0d0d0d0d0d0 [22]"},
		},
		{
			"a group of Slurm in which nobody works is one",
			Options{Discover: everything},
			[]stranger{named(19, 1, "slurmstepd").in("/system.slice/slurmstepd.scope/job_7/step_0/slurm"), python(20, 1, "SLURM_JOB_ID=6", "SLURM_STEP_ID=0")},
			nil, nil,
		},
		{
			"environments that tell no number, and the numbers of steps that have a name",
			Options{Discover: everything},
			[]stranger{
				python(20, 1, "SLURM_JOB_ID=7x", "SLURM_STEP_ID=0"), python(21, 1, "SLURM_JOB_ID=", "SLURM_STEP_ID=0"), python(22, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=a b"),
				python(23, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967290"), python(24, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967291"),
				python(25, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967292"),
			},
			nil,
			[]string{"step slurm-7 [22]", "step slurm-7.interactive [23]", "step slurm-7.batch [24]", "step slurm-7.extern [25]"},
		},
		{
			"steps that only environments tell come last",
			Options{Discover: everything, Match: python3},
			[]stranger{
				named(20, 1, "a").with("SLURM_JOB_ID=7"), named(30, 1, "b").in(inDocker(dockerID)), python(40, 1), named(50, 1, "c"),
				python(60, 1), core(61, 60, 60, "abc"),
			},
			[]int{50},
			[]string{"run run-abc-60 [60]", "container container-d0d0d0d0d0d0 [30]", "match pid-40 [40]", "gpu pid-50 [50]", "step slurm-7 [20]"},
		},
		{
			"the sleep of an extern step alone",
			Options{Discover: everything},
			[]stranger{
				named(19, 1, "slurmstepd").in("/system.slice/slurmstepd.scope/job_7/step_extern/slurm"),
				named(20, 19, "sleep").in("/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special"),
			},
			nil, nil,
		},
		{
			"somebody in an extern step",
			Options{Discover: everything},
			[]stranger{
				named(19, 1, "slurmstepd").in("/system.slice/slurmstepd.scope/job_7/step_extern/slurm"),
				named(20, 19, "sleep").in("/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special"),
				named(21, 1, "bash").in("/system.slice/slurmstepd.scope/job_7/step_extern/user/task_0"),
				named(22, 21, "sleep").in("/system.slice/slurmstepd.scope/job_7/step_extern/user/task_0"),
			},
			nil,
			[]string{"step slurm-7.extern [21 22]"},
		},
		{
			"containers",
			Options{Discover: everything},
			[]stranger{
				named(19, 1, "containerd-shim"), named(20, 19, "bash").in(inDocker(dockerID)), python(21, 20).in(inDocker(dockerID)),
				named(25, 1, "conmon").in("/machine.slice/libpod-conmon-" + podmanID + ".scope"), named(26, 25, "nginx").in("/machine.slice/libpod-" + podmanID + ".scope/container"),
				named(30, 19, "sh").in(inDocker(dockerID)), // docker exec
			},
			nil,
			[]string{"container container-d0d0d0d0d0d0 [20 21 30]", "container container-f2f2f2f2f2f2 [26]"},
		},
		{
			"conmon of CRI-O",
			Options{Discover: everything},
			[]stranger{named(20, 1, "conmon").in("/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/crio-conmon-" + dockerID + ".scope")},
			nil, nil,
		},
		{
			"the sandbox of a pod is nobody's work, one that is called so is",
			Options{Discover: everything},
			[]stranger{named(20, 1, "pause").in(inPod(dockerID)), named(21, 1, "pause").in(inPod(otherID)), named(22, 21, "sh").in(inPod(otherID))},
			nil,
			[]string{"container container-e1e1e1e1e1e1 [21 22]"},
		},
		{
			"a run takes the container, and what is left are helpers",
			Options{Discover: everything},
			[]stranger{python(20, 1).in(inDocker(dockerID)), core(21, 20, 20, "abc").in(inDocker(dockerID)), named(22, 21, "wandb-xpu").in(inDocker(dockerID))},
			nil,
			[]string{"run run-abc-20 [20]"},
		},
		{
			"a run in a container with others: helpers stay with them",
			Options{Discover: everything},
			[]stranger{named(19, 1, "tini").in(inDocker(dockerID)), python(20, 19).in(inDocker(dockerID)), core(21, 20, 20, "abc").in(inDocker(dockerID))},
			nil,
			[]string{"run run-abc-20 [20]", "container container-d0d0d0d0d0d0 [19 21]"},
		},
		{
			"all in one: the most specific has it",
			Options{Discover: everything, Match: python3, Target: Target{Pid: 60, Tree: true}},
			[]stranger{
				python(20, 1).in(inStep), core(21, 20, 20, "abc").in(inStep), python(22, 20).in(inStep + inDocker(dockerID)),
				python(30, 1).in(inStep + inDocker(dockerID)),
				python(40, 1).in(inDocker(dockerID)),
				python(50, 1), named(51, 50, "sh"),
				named(55, 1, "ollama"), named(56, 55, "runner"),
				python(60, 1).in(inDocker(otherID)), core(61, 60, 60, "xyz"),
			},
			[]int{20, 40, 50, 55, 56, 60},
			[]string{
				"process pid-60 [60 61]", "run run-abc-20 [20 22]", "step slurm-7.0 [30 21]", "container container-d0d0d0d0d0d0 [40]",
				"match pid-50 [50 51]", "gpu pid-55 [55 56]",
			},
		},
		{
			"nested runs of a parent and its child",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 20, 20, "outer"), python(22, 20), core(23, 22, 22, "inner"), python(24, 22), python(25, 20)},
			nil,
			[]string{"run run-outer-20 [20 25]", "run run-inner-22 [22 24]"},
		},
		{
			"several runs under one core are one workload",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 20, 20, "zz", "offline/aa")},
			nil,
			[]string{"run run-zz-20 [20]"},
		},
		{
			"two cores of one process are one workload",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 20, 20, "zz"), core(22, 20, 20, "aa")},
			nil,
			[]string{"run run-aa-20 [20]"},
		},
		{
			"a detached core, whose parent is init",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 1, 20, "abc").detached()},
			nil,
			[]string{"run run-abc-20 [20]"},
		},
		{
			"the process of a run is gone",
			Options{Discover: everything},
			[]stranger{core(21, 1, 20, "abc").detached()},
			nil, nil,
		},
		{
			"the process of a run has ended and is not waited for",
			Options{Discover: everything},
			[]stranger{python(20, 1).ended(), core(21, 1, 20, "abc").detached()},
			nil, nil,
		},
		{
			"a younger process has got the pid",
			Options{Discover: everything},
			[]stranger{python(20, 1).at(300), core(21, 1, 20, "abc").detached()},
			nil, nil,
		},
		{
			"the core has ended and is not waited for: the run is over",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 20, 20, "abc").ended()},
			nil, nil,
		},
		{
			"a core without a run",
			Options{Discover: everything},
			[]stranger{python(20, 1), core(21, 20, 20)},
			nil, nil,
		},
		{
			"a single process leaves its children to others, but no run without its root",
			Options{Discover: everything, Match: python3, Target: Target{Pid: 20}},
			[]stranger{python(20, 1), core(21, 20, 20, "abc"), python(22, 20), named(23, 22, "sh")},
			nil,
			[]string{"process pid-20 [20]", "match pid-22 [22 23]"},
		},
		{
			"a run below the configured process is the process'",
			Options{Discover: everything, Target: Target{Pid: 19, Tree: true}},
			[]stranger{named(19, 1, "torchrun"), python(20, 19), core(21, 20, 20, "abc")},
			nil,
			[]string{"process pid-19 [19 20 21]"},
		},
		{
			"zombies are members of nothing",
			Options{Discover: everything},
			[]stranger{python(20, 1).in(inDocker(dockerID)), python(21, 20).in(inDocker(dockerID)).ended(), python(22, 1).ended().in(inDocker(otherID))},
			nil,
			[]string{"container container-d0d0d0d0d0d0 [20]"},
		},
		{
			"kernel threads are nobody's work",
			Options{Match: []Rule{{Name: regexp.MustCompile("k")}}},
			[]stranger{named(2, 0, "kthreadd"), named(30, 2, "kworker/0:1"), named(31, 2, "nv_kthread_q"), named(40, 1, "mykthread")},
			nil,
			[]string{"match pid-40 [40]"},
		},
		{
			"in a container any process may have the pid of the first kernel thread",
			Options{Match: []Rule{{Name: regexp.MustCompile("k")}}},
			[]stranger{named(2, 1, "make"), named(30, 2, "kk")},
			nil,
			[]string{"match pid-2 [2 30]"},
		},
		{
			"the topmost of a rule, a rule within another, and a rule again below that",
			Options{Match: []Rule{{Name: regexp.MustCompile("^a$")}, {Name: regexp.MustCompile("^b$")}}},
			[]stranger{named(20, 1, "a"), named(21, 20, "a"), named(22, 21, "b"), named(23, 22, "a"), named(24, 23, "b"), named(30, 1, "b"), named(31, 30, "x")},
			nil,
			[]string{"match pid-20 [20 21]", "match pid-22 [22 23 24]", "match pid-30 [30 31]"},
		},
		{
			"a match takes what a run has left",
			Options{Discover: everything, Match: []Rule{{Name: regexp.MustCompile("bash")}}},
			[]stranger{named(19, 1, "bash"), python(20, 19), core(21, 20, 20, "abc")},
			nil,
			[]string{"run run-abc-20 [20]", "match pid-19 [19 21]"},
		},
		{
			"those that hold an accelerator: the topmost, if free and there",
			Options{Discover: everything},
			[]stranger{python(20, 1), python(21, 20), python(22, 21), python(30, 1).in(inDocker(dockerID)), python(40, 1).ended()},
			[]int{20, 22, 30, 40, 999, -3},
			[]string{"container container-d0d0d0d0d0d0 [30]", "gpu pid-20 [20 21 22]"},
		},
		{
			"holders are not looked for",
			Options{Discover: Discover{Runs: true}},
			[]stranger{python(20, 1)},
			[]int{20},
			nil,
		},
		{
			"parents in a ring",
			Options{Discover: everything, Match: python3},
			[]stranger{
				python(20, 21), python(21, 22), named(22, 20, "sh"), core(23, 20, 20, "abc"), python(30, 30),
				python(40, 41).in(inDocker(dockerID)), python(41, 40).in(inDocker(dockerID)),
				named(50, 51, "a").at(100), named(51, 50, "b").at(300), named(60, 61, "x"), named(61, 61, "y"),
			},
			[]int{50, 51, 60},
			[]string{"run run-abc-20 [20 21 22]", "container container-d0d0d0d0d0d0 [40 41]", "match pid-30 [30]", "gpu pid-50 [50 51]", "gpu pid-60 [60]"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.put(systemd)
			f.put(tt.processes...)
			d := f.discovery(tt.options)
			d.SetHolders("nvidia", tt.holders)
			v := f.view(d)
			assert.Equal(t, tt.want, listed(v))
			again := f.view(d)
			assert.Equal(t, tt.want, listed(again), "and so in the next pass")
			assert.Equal(t, identities(v), identities(again))
			assert.Equal(t, identities(v), identities(f.discoverWith(tt.options, tt.holders)), "and after a restart")
		})
	}
}

func (f *fixture) discoverWith(o Options, holders []int) *View {
	f.t.Helper()
	d := f.discovery(o)
	d.SetHolders("nvidia", holders)
	return f.view(d)
}

func identities(v *View) []identity.Workload {
	var all []identity.Workload
	for _, w := range v.Workloads {
		all = append(all, w.Identity)
	}
	return all
}

func TestIdentities(t *testing.T) {
	known := identity.Known
	tests := []struct {
		name      string
		processes []stranger
		want      []identity.Workload
	}{
		{
			"a run in a pod in a Slurm job carries all three",
			[]stranger{
				python(20, 1, "WANDB_PROJECT=of the script", "SLURM_JOB_ID=7", "SLURM_JOB_NAME=train", "SLURM_STEP_ID=0", "RANK=1", "LOCAL_RANK=0", "WORLD_SIZE=2").in(inStep + inPod(dockerID)),
				core(21, 20, 20, "abc").with("WANDB_PROJECT=p", "WANDB_ENTITY=e", "WANDB_RUN_GROUP=g", "WANDB_JOB_TYPE=j", "WANDB_SWEEP_ID=s").in(inStep + inPod(dockerID)),
			},
			[]identity.Workload{{
				ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3",
				RunID: "abc", Mode: "online", Project: "p", Entity: "e", Group: "g", JobType: "j", SweepID: "s",
				Rank: known(1), LocalRank: known(0), WorldSize: known(2),
				SlurmJob: "7", SlurmJobName: "train", SlurmStep: "0", SlurmTask: "0",
				ContainerID: dockerID, PodUID: podUID, QoS: "burstable",
			}},
		},
		{
			"several runs: the first, and all of them",
			[]stranger{python(20, 1), core(21, 20, 20, "zz", "offline/aa", "mm")},
			[]identity.Workload{{
				ID: "run-zz-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "zz", RunIDs: "zz,aa,mm", Mode: "online",
			}},
		},
		{
			"a run that was resumed is one",
			[]stranger{python(20, 1), core(21, 20, 20, "zz", "aa", "zz")},
			[]identity.Workload{{
				ID: "run-zz-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "zz", RunIDs: "zz,aa", Mode: "online",
			}},
		},
		{
			"a detached core tells of its one run",
			[]stranger{python(20, 1, "WANDB_PROJECT=script"), core(21, 1, 20, "abc").detached().with("WANDB_PROJECT=core")},
			[]identity.Workload{{
				ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", Mode: "online", Project: "core",
			}},
		},
		{
			"of several runs a detached core does not tell, but their process does",
			[]stranger{python(20, 1, "WANDB_PROJECT=script"), core(21, 1, 20, "abc", "xyz").detached().with("WANDB_PROJECT=core", "WANDB_ENTITY=core")},
			[]identity.Workload{{
				ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", RunIDs: "abc,xyz", Mode: "online", Project: "script",
			}},
		},
		{
			"a step with one rank has it",
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_JOB_NAME=n", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS=8").in(inStep)},
			[]identity.Workload{{
				ID: "slurm-7.0", Kind: "step",
				SlurmJob: "7", SlurmStep: "0", SlurmJobName: "n", Rank: known(3), LocalRank: known(1), WorldSize: known(8),
			}},
		},
		{
			"a step with several ranks has none",
			[]stranger{
				python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=2").in(inStep),
				python(21, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=2").in(inStep),
			},
			[]identity.Workload{{
				ID: "slurm-7.0", Kind: "step",
				SlurmJob: "7", SlurmStep: "0", WorldSize: known(2),
			}},
		},
		{
			"ranks that do not agree have not even a size",
			[]stranger{python(20, 1, "RANK=0", "WORLD_SIZE=2").in(inStep), python(21, 1, "RANK=0", "WORLD_SIZE=4").in(inStep)},
			[]identity.Workload{{
				ID: "slurm-7.0", Kind: "step", SlurmJob: "7", SlurmStep: "0",
			}},
		},
		{
			"the script of a batch job is no rank",
			[]stranger{named(20, 1, "bash").with("SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=4").in("/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0")},
			[]identity.Workload{{
				ID: "slurm-7.batch", Kind: "step", SlurmJob: "7", SlurmStep: "batch",
			}},
		},
		{
			"nor is it with the step of the shell that submitted it",
			[]stranger{named(20, 1, "bash").with("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0").in("/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0")},
			[]identity.Workload{{ID: "slurm-7.batch", Kind: "step", SlurmJob: "7", SlurmStep: "batch"}},
		},
		{
			"the script of a batch job without control groups is no rank",
			[]stranger{named(20, 1, "bash").with("SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967291", "SLURM_PROCID=0", "SLURM_NTASKS=4"), named(30, 1, "bash").with("SLURM_JOB_ID=8", "SLURM_PROCID=0")},
			[]identity.Workload{{ID: "slurm-7.batch", Kind: "step", SlurmJob: "7", SlurmStep: "batch"}, {ID: "slurm-8", Kind: "step", SlurmJob: "8"}},
		},
		{
			"the script of a batch job does not take the rank of what it starts",
			[]stranger{
				named(20, 1, "bash").with("SLURM_JOB_ID=7", "SLURM_PROCID=0").in("/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0"),
				python(21, 20, "SLURM_JOB_ID=7", "SLURM_PROCID=0", "RANK=2", "WORLD_SIZE=4").in("/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0"),
			},
			[]identity.Workload{{ID: "slurm-7.batch", Kind: "step", SlurmJob: "7", SlurmStep: "batch", Rank: known(2), WorldSize: known(4)}},
		},
		{
			"a run in a batch job is no rank of Slurm's",
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_LOCALID=0"), core(21, 20, 20, "abc").with("SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_LOCALID=0")},
			[]identity.Workload{{ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", Mode: "online", SlurmJob: "7"}},
		},
		{
			"a run in a step is",
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_PROCID=3").in("/system.slice/slurmstepd.scope/job_7/step_1/user/task_3"), core(21, 20, 20, "abc")},
			[]identity.Workload{{
				ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", Mode: "online",
				SlurmJob: "7", SlurmStep: "1", SlurmTask: "3", Rank: known(3),
			}},
		},
		{
			"whoever has left Slurm's groups carries no job, nor a rank of it",
			[]stranger{
				python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_JOB_NAME=n", "SLURM_PROCID=3"), core(21, 20, 20, "abc"),
				named(30, 1, "sh").with("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_JOB_NAME=n", "SLURM_PROCID=3").in(inDocker(dockerID)),
				named(40, 1, "sh").in(inStep),
			},
			[]identity.Workload{
				{ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", Mode: "online"},
				{ID: "slurm-7.0", Kind: "step", SlurmJob: "7", SlurmStep: "0"},
				{ID: "container-d0d0d0d0d0d0", Kind: "container", ContainerID: dockerID, ContainerRuntime: "docker"},
			},
		},
		{
			"a rank that is not Slurm's has it anywhere",
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "RANK=5"), core(21, 20, 20, "abc"), named(40, 1, "sh").in(inStep)},
			[]identity.Workload{
				{ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", Mode: "online", Rank: known(5)},
				{ID: "slurm-7.0", Kind: "step", SlurmJob: "7", SlurmStep: "0"},
			},
		},
		{
			"the name of a job without its number is nobody's",
			[]stranger{named(20, 1, "sh").with("SLURM_JOB_ID=x", "SLURM_JOB_NAME=n").in(inDocker(dockerID))},
			[]identity.Workload{{ID: "container-d0d0d0d0d0d0", Kind: "container", ContainerID: dockerID, ContainerRuntime: "docker"}},
		},
		{
			"the rank that a script set before its run began",
			[]stranger{python(20, 1, "RANK=9", "LOCAL_RANK=9"), core(21, 20, 20, "abc", "xyz").with("RANK=1", "WORLD_SIZE=2")},
			[]identity.Workload{{
				ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", RunIDs: "abc,xyz", Mode: "online",
				Rank: known(1), WorldSize: known(2),
			}},
		},
		{
			"a detached core tells the rank of its one run",
			[]stranger{python(20, 1, "RANK=9"), core(21, 1, 20, "abc").detached().with("RANK=1")},
			[]identity.Workload{{ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", Mode: "online", Rank: known(1)}},
		},
		{
			"of several runs a detached core tells no rank, nor does one that has none",
			[]stranger{
				python(20, 1, "RANK=9"), core(21, 1, 20, "abc", "xyz").detached().with("RANK=1"),
				python(30, 1, "RANK=8"), core(31, 30, 30, "def").with("WORLD_SIZE=2"),
			},
			[]identity.Workload{
				{ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "python3", Command: "python3", RunID: "abc", RunIDs: "abc,xyz", Mode: "online", Rank: known(9)},
				{ID: "run-def-30", Kind: "run", Pid: 30, Executable: "python3", Command: "python3", RunID: "def", Mode: "online", Rank: known(8)},
			},
		},
		{
			"the job of a lasting id is told by the environment",
			[]stranger{python(20, 1, "SLURM_JOB_ID=7", "SLURM_STEP_ID=0").in("/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_0")},
			[]identity.Workload{{
				ID: "slurm-s0123456789ABC.0", Kind: "step",
				SlurmJob: "7", SlurmStep: "0", SlurmSLUID: "s0123456789ABC",
			}},
		},
		{
			"another job's environment tells nothing of the job",
			[]stranger{python(20, 1, "SLURM_JOB_ID=8", "SLURM_STEP_ID=5", "SLURM_JOB_NAME=other").in("/system.slice/slurmstepd.scope/job_7")},
			[]identity.Workload{{
				ID: "slurm-7", Kind: "step", SlurmJob: "7",
			}},
		},
		{
			"a container that the mounts tell",
			[]stranger{{
				pid: 20, parent: 1, name: "python3", env: []string{"SLURM_JOB_ID=7"}, args: []string{"/usr/bin/python3"},
				mounts: "1 2 8:1 /var/lib/docker/containers/" + dockerID + "/hostname /etc/hostname rw - ext4 /dev/sda rw\n",
			}},
			[]identity.Workload{{
				ID: "slurm-7", Kind: "step", SlurmJob: "7",
				ContainerID: dockerID, ContainerRuntime: "docker",
			}},
		},
		{
			"names that nobody can print",
			[]stranger{{pid: 20, parent: 1, name: "a\x1b[31mb\xff", args: []string{"/x\ny"}}, core(21, 20, 20, "abc")},
			[]identity.Workload{{
				ID: "run-abc-20", Kind: "run", Pid: 20, Executable: "a[31mb\uFFFD", Command: "/xy", RunID: "abc", Mode: "online",
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.put(systemd)
			f.put(tt.processes...)
			assert.Equal(t, tt.want, identities(f.discover(Options{Discover: everything})))
		})
	}
}

// The runs of the configured process are told with it.
func TestRunsOfTheConfiguredProcess(t *testing.T) {
	f := newFixture(t)
	f.put(systemd, python(20, 1, "WANDB_PROJECT=p", "RANK=1"), core(21, 20, 20, "zz"), core(22, 20, 20, "aa"))
	w := f.discover(Options{Discover: everything, Target: Target{Pid: 20, Tree: true}}).Workloads[0]
	assert.Equal(t, identity.Workload{
		ID: "pid-20", Kind: "process", Pid: 20, Executable: "python3", Command: "python3",
		RunID: "aa", RunIDs: "aa,zz", Mode: "online", Project: "p", Rank: identity.Known(1),
	}, w.Identity)
	// So are those further down in its tree, but not the ranks.
	f.put(named(19, 1, "torchrun"), python(20, 19, "WANDB_PROJECT=p", "RANK=1"), python(30, 20, "RANK=2"), core(31, 30, 30, "mm").at(300), python(40, 1), core(41, 40, 40, "no"))
	w = f.discover(Options{Discover: everything, Target: Target{Pid: 19, Tree: true}}).Workloads[0]
	assert.Equal(t, identity.Workload{
		ID: "pid-19", Kind: "process", Pid: 19, Executable: "torchrun", Command: "/bin/torchrun",
		RunID: "aa", RunIDs: "aa,mm,zz", Mode: "online", Project: "p",
	}, w.Identity)
	// Without its tree it has its own alone.
	v := f.discover(Options{Discover: everything, Target: Target{Pid: 30}})
	assert.Equal(t, "mm", v.Of(30).Identity.RunID)
	assert.Equal(t, "aa,zz", v.Of(20).Identity.RunIDs)
	v = f.discover(Options{Discover: everything, Target: Target{Pid: 19}})
	assert.Empty(t, v.Of(19).Identity.RunID)
	assert.Equal(t, []string{"process pid-19 [19]", "run run-aa-20 [20]", "run run-mm-30 [30]", "run run-no-40 [40]"}, listed(v))
	// Nothing is discovered: nothing of W&B is known, but the rest is.
	w = f.discover(Options{Target: Target{Pid: 20, Tree: true}}).Workloads[0]
	assert.Equal(t, identity.Workload{ID: "pid-20", Kind: "process", Pid: 20, Executable: "python3", Command: "python3", Rank: identity.Known(1)}, w.Identity)
}

// The view tells of all runs, of those without a process too, of all ranks, and
// of W&B's own processes.
func TestView(t *testing.T) {
	f := newFixture(t)
	f.put(
		systemd, python(20, 1, "RANK=0", "WORLD_SIZE=2"), python(21, 20, "RANK=0", "WORLD_SIZE=2"), python(22, 20, "RANK=1", "WORLD_SIZE=2"),
		core(30, 20, 20, "abc").with("RANK=0"), named(31, 30, "gpu_stats"), named(32, 1, "gpu_stats"), core(33, 1, 999, "offline/xyz").detached(),
	)
	f.put(stranger{pid: 34, parent: 1, name: "nvidia_gpu_stat", args: []string{"/venv/wandb/bin/nvidia_gpu_stats"}})
	v := f.discover(Options{Discover: everything})
	assert.ElementsMatch(t, []Run{
		{ID: "abc", Mode: "online", Started: "20260102_030400", CorePid: 30, TargetPid: 20, started: Job{Rank: identity.Known(0)}},
		{ID: "xyz", Mode: "offline", Started: "20260102_030400", CorePid: 33},
	}, v.Runs)
	assert.Equal(t, []int{30, 31, 33, 34}, v.Helpers)
	assert.Equal(t, map[int]Job{
		20: {Rank: identity.Known(0), WorldSize: identity.Known(2)},
		22: {Rank: identity.Known(1), WorldSize: identity.Known(2)},
	}, v.Jobs, "but not who inherited it")
}

// What a workload has its group for, and whether that is all its own.
func TestGroups(t *testing.T) {
	f := newFixture(t)
	step := "/system.slice/slurmstepd.scope/job_7/step_0"
	inner := inDocker(otherID) + "/kubepods/burstable/pod" + podUID + "/" + podmanID
	f.put(
		systemd,
		python(20, 1).in(inDocker(dockerID)), core(21, 20, 20, "abc").in(inDocker(dockerID)), named(22, 20, "sh").in(inDocker(dockerID)), named(23, 1, "sh").in(inDocker(dockerID)),
		named(40, 1, "bash").in(inDocker(otherID)), named(41, 40, "sh").in(inDocker(otherID)), named(45, 40, "x").ended(),
		named(50, 40, "server").in(inner), named(51, 50, "x").in(inner),
		python(60, 1).in(inStep), python(61, 60).in(inStep).ended(), named(62, 60, "setsid-ed"),
	)
	v := f.discover(Options{Discover: everything})
	type group struct {
		path  string
		whole bool
	}
	got := map[string]group{}
	for _, w := range v.Workloads {
		got[w.Identity.ID] = group{w.Group, w.Whole}
	}
	assert.Equal(t, map[string]group{
		"run-abc-20":             {inDocker(dockerID), false},
		"container-d0d0d0d0d0d0": {inDocker(dockerID), false},
		"container-e1e1e1e1e1e1": {inDocker(otherID), false}, // it holds another one
		"container-f2f2f2f2f2f2": {inner, true},
		"slurm-7.0":              {step, true},
	}, got)
	require.Equal(t, []int{60, 61, 62}, pidsOf(v.Of(60).around), "whose time comes to it")
	assert.Equal(t, map[int]bool{62: true}, v.Of(60).foreign)
	assert.Equal(t, map[int]bool{50: true, 51: true}, v.Of(40).foreign)

	limited := f.discover(Options{Discover: Discover{Steps: true, Containers: true}, MaxProcesses: 1})
	all := f.discover(Options{Discover: Discover{Steps: true, Containers: true}})
	assert.Equal(t, listed(all), listed(limited), "whoever is not looked into is in its group all the same")
	for i, w := range limited.Workloads {
		assert.Equal(t, all.Workloads[i].Whole, w.Whole)
	}
}

// Of a list of runs as many are told as there is room for.
func TestListsOfRuns(t *testing.T) {
	long := strings.Repeat("x", 120)
	tests := []struct {
		name string
		ids  []string
		want string
	}{
		{"two", []string{"a", "b"}, "a,b"},
		{"all, to the last byte", []string{long, long, "1234567890123-"}, long + "," + long + ",1234567890123-"},
		{"one byte too many", []string{long, long, "1234567890123--"}, long + "," + long + ",+1"},
		{"many more", []string{"a", long, long, long, "b", long}, "a," + long + "," + long + ",+3"},
		{"the second has no room", []string{strings.Repeat("y", maxValue), "b", "c"}, strings.Repeat("y", 247) + ",+2"},
		{"the first is cut where a character ends", []string{strings.Repeat("é", 128), "b"}, strings.Repeat("é", 123) + ",+1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, join(tt.ids))
			requireClean(t, join(tt.ids))
		})
	}
	f := newFixture(t)
	ids := []string{}
	for i := range 300 {
		ids = append(ids, "run"+strconv.Itoa(1000+i))
	}
	f.put(systemd, python(20, 1), core(21, 20, 20, ids...))
	id := f.discover(Options{Discover: everything}).Workloads[0].Identity
	assert.Regexp(t, `^run1\d+,.*,\+269$`, id.RunIDs)
	requireClean(t, id.RunIDs)
}
