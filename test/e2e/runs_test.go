// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// byDefault is a receiver without any key that says what is measured.
var byDefault = fmt.Sprintf("wandbsys: {collection_interval: %s, initial_delay: 0s, host_name: node}", treeInterval)

// ofRun keeps points of the resource of one run.
func (ps points) ofRun(id string) points {
	return ps.filter(func(p point) bool { return p.resource["wandb.run_id"] == id })
}

// apart leaves out of a resource what the machine of the test adds: it may be a
// container, or a node of Slurm.
func apart(resource map[string]any) map[string]any {
	resource = maps.Clone(resource)
	maps.DeleteFunc(resource, func(key string, _ any) bool {
		kind, _, _ := strings.Cut(key, ".")
		return kind == "container" || kind == "k8s" || kind == "slurm" || kind == "aws"
	})
	return resource
}

// resource is what is expected of a run's, beside what is in more.
func (tr *trainee) resource(host, run string, more map[string]any) map[string]any {
	want := map[string]any{
		"host.name": host, "os.type": "linux", "service.name": "wandbsys",
		"service.instance.id":    fmt.Sprintf("%s/run-%s-%d", host, run, tr.pid()),
		"wandbsys.workload.kind": "run", "wandb.run_id": run, "wandb.mode": "online", "wandb.project": "vision",
		"process.pid": int64(tr.pid()), "process.executable.name": comm(tr.t, tr.pid()), "process.command": tr.cmd.Path,
	}
	maps.Copy(want, more)
	return want
}

// comm is the name of a process.
func comm(t *testing.T, pid int) string {
	t.Helper()
	return fieldsOf(t, fmt.Sprintf("/proc/%d/comm", pid))[0][0]
}

// Four trainings at once, each with its own wandb-core, found by default.
func TestRunsAreFoundAndMeasured(t *testing.T) {
	all := map[string]training{
		"fork": {
			runs: []string{"run-20260102_030405-abc123/run-abc123.wandb"},
			env: []string{
				"WANDB_PROJECT=not-yet-set", "WANDB_ENTITY=team", "WANDB_RUN_GROUP=group=1", "WANDB_JOB_TYPE=train", "WANDB_SWEEP_ID=sw33p",
				"RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=8",
			},
		},
		"exec":  {runs: []string{"offline-run-20260102_030406-with-dashes/run-with-dashes.wandb"}},
		"quick": {runs: []string{"run-20260102_030408-second/run-second.wandb", "run-20260102_030407-first/run-first.wandb"}},
		"orphan": {
			runs: []string{"run-20260102_030409-or/run-or.wandb"},
			env:  []string{"SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_PROCID=5", "SLURM_LOCALID=2", "SLURM_NTASKS=16"},
		},
	}
	more := map[string]map[string]any{
		"fork": {
			"wandb.entity": "team", "wandb.group": "group=1", "wandb.job_type": "train", "wandb.sweep_id": "sw33p",
			"wandb.rank": int64(3), "wandb.local_rank": int64(1), "wandb.world_size": int64(8),
		},
		"exec":   {"wandb.mode": "offline"},
		"quick":  {"wandb.run_ids": "first,second"},
		"orphan": {"wandb.rank": int64(5), "wandb.local_rank": int64(2), "wandb.world_size": int64(16)},
	}
	ids := map[string]string{"fork": "abc123", "exec": "with-dashes", "quick": "first", "orphan": "or"}

	s, trainees := startSink(t, nil), map[string]*trainee{}
	for work, how := range all {
		how.work = work
		trainees[work] = startTraining(t, how)
	}
	p := startCollector(t, settings{receivers: byDefault, exporters: s.exporter()})
	of := func(work string) points { return s.points().ofRun(ids[work]) }
	for work, tr := range trainees {
		p.waitFor("two scrapes of "+work, func() bool { return len(of(work).named("cpu")) >= 1 })
		_, err := io.WriteString(tr.input, "go\n")
		require.NoError(t, err)
	}
	for work, tr := range trainees {
		p.waitFor("the end of the work of "+work, func() bool { _, done := tr.said("done"); return done })
	}
	p.waitFor("the end of the orphan", func() bool { _, done := trainees["orphan"].said("end of the orphan"); return done })
	for work := range trainees {
		seen := len(of(work).named("cpu"))
		p.waitFor("two more scrapes of "+work, func() bool { return len(of(work).named("cpu")) >= seen+2 })
	}

	capacity := allowedCPUs(t, p.pid())
	for work, tr := range trainees {
		t.Run(work, func(t *testing.T) {
			want := tr.resource("node", ids[work], more[work])
			for _, p := range of(work) {
				require.Equal(t, want, apart(p.resource))
			}
			counted, _ := tr.said("done")
			longest, off := pace(of(work))
			lost := time.Duration(0)
			if work == "orphan" {
				left, _ := tr.said("left")
				counted, lost = counted+left, longest
			}
			checkCPU(t, total(of(work), capacity), counted, treeSlack+off, lost)
			truth := readProcess(t, tr.pid())
			assert.InDelta(t, truth.threads, of(work).named("proc.cpu.threads").last().value, 3)
			assert.InDelta(t, truth.rss/mebi, of(work).named("proc.memory.rssMB").last().value, 8)
			assert.Less(t, truth.rss, float64(serviceMemory)/2, "what W&B's own processes hold would be seen")
			used := readProcess(t, tr.core).cpu + readProcess(t, tr.side).cpu
			assert.Greater(t, used, 3*treeSlack, "as would what they use")
			for _, pid := range []int{tr.core, tr.side} {
				assert.Empty(t, s.points().ofPid(pid), "W&B's own processes are nobody's work")
			}
		})
	}
	t.Run("the log is calm", func(t *testing.T) {
		assert.Empty(t, append(p.logLines("warn"), p.logLines("error")...))
	})
}

// checkCPU compares CPU time with the kernel's account, less what may be lost.
func checkCPU(t *testing.T, got, counted, slack, lost time.Duration) {
	t.Helper()
	t.Logf("counted %s, the kernel %s, slack %s", got, counted, slack)
	assert.LessOrEqual(t, got, counted+slack, "never above what there was")
	assert.GreaterOrEqual(t, got, counted-counted/10-slack-lost, "nothing that ends is lost")
}

// scrapesAfter counts the scrapes after a time.
func (ps points) scrapesAfter(at time.Time) int {
	times := map[time.Time]bool{}
	for _, p := range ps {
		if p.at.After(at) {
			times[p.at] = true
		}
	}
	return len(times)
}

func TestARunThatIsOverIsNotMeasured(t *testing.T) {
	start := func(runs ...string) *trainee {
		var files []string
		for i, id := range runs {
			files = append(files, fmt.Sprintf("run-20260102_03040%d-%s/run-%s.wandb", i, id, id))
		}
		return startTraining(t, training{work: "idle", runs: files})
	}
	finished, killed, both, stays := start("finished"), start("killed"), start("one", "two"), start("stays")
	s := startSink(t, nil)
	p := startCollector(t, settings{receivers: byDefault, exporters: s.exporter()})
	for _, id := range []string{"finished", "killed", "one", "stays"} {
		p.waitFor("the run "+id, func() bool { return len(s.points().ofRun(id).named("cpu")) > 0 })
	}
	assert.Empty(t, s.points().ofRun("two"), "it is one of two")

	finished.finishRun()
	both.finishRun()
	require.NoError(t, syscall.Kill(killed.core, syscall.SIGKILL))
	killed.waitFor("the end of wandb-core", func() bool { return len(killed.openRuns()) == 0 })
	over := time.Now()
	p.waitFor("more scrapes", func() bool { return s.points().ofRun("stays").scrapesAfter(over) >= 5 })
	for _, id := range []string{"finished", "killed", "one"} {
		// One may have been under way.
		assert.LessOrEqual(t, s.points().ofRun(id).scrapesAfter(over), 1, id)
	}
	assert.Equal(t, both.resource("node", "two", nil), apart(s.points().ofRun("two").last().resource))
	for _, tr := range []*trainee{finished, killed, both, stays} {
		assert.True(t, tr.alive(), "the process lives on")
	}
	assert.Empty(t, append(p.logLines("warn"), p.logLines("error")...), "the end of a run is nothing to worry about")

	stays.kill()
	ended := time.Now()
	p.waitFor("more scrapes", func() bool { return s.points().ofMachine().scrapesAfter(ended) >= 4 })
	assert.LessOrEqual(t, s.points().ofRun("stays").scrapesAfter(ended), 1, "the process ended, and with it the run")
}
