// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sleepers is how many processes are workloads, and maxFiles how many files the
// collector may have open with them.
const (
	sleepers    = 300
	maxFiles    = 100
	maxSleepers = 100
)

func init() { treeRoles["sleepers"] = runSleepers }

// runSleepers starts processes that do nothing, and ends them at the end.
func runSleepers() {
	var all []*exec.Cmd
	for range sleepers {
		cmd := exec.Command("sleep", os.Getenv("E2E_SLEEP"))
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		all = append(all, cmd)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, cmd := range all {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func TestHundredsOfWorkloads(t *testing.T) {
	seconds := strconv.Itoa(1_000_000 + os.Getpid()) // as nobody else's
	crowd, input := startHelperWithInput(t, "sleepers", "E2E_SLEEP="+seconds)
	t.Cleanup(func() {
		_ = input.(io.Closer).Close()
		crowd.exitCode()
	})
	s, health := startSink(t, nil), freeAddress(t)
	receiver := `{collection_interval: 1s, initial_delay: 0s, host_name: %s, workloads: {discover: [], match: [{name: ^sleep$, command: " %s"}]%s}}` + "\n"
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys/all: "+receiver, "all", seconds, "") +
			fmt.Sprintf("wandbsys/some: "+receiver, "some", seconds, fmt.Sprintf(", max_workloads: %d", maxSleepers)),
		exporters: s.exporter(),
		metrics:   pullReader(health),
	})
	for _, host := range []string{"all", "some"} {
		p.waitFor("scrapes of "+host, func() bool { return s.points().from(host).ofProcess().scrapesAfter(p.started) >= 3 })
	}
	before := openFiles(t, p.pid())
	seen := s.points().from("all").ofMachine().scrapesAfter(p.started)
	p.waitFor("more scrapes", func() bool { return s.points().from("all").ofMachine().scrapesAfter(p.started) >= seen+5 })
	files := openFiles(t, p.pid())
	t.Logf("%d files are open", files)
	assert.Less(t, files, maxFiles)
	assert.InDelta(t, before, files, 20, "no more with every scrape")

	for host, count := range map[string]int{"all": sleepers, "some": maxSleepers} {
		all := s.points().from(host).ofProcess()
		assert.Len(t, all.resources(t), count, host)
		for _, name := range []string{"proc.memory.rssMB", "proc.cpu.threads", "proc.memory.percent"} {
			scrapes := all.scrapesAfter(p.started)
			assert.InDelta(t, count*scrapes, len(all.named(name)), float64(count), name)
		}
		assert.GreaterOrEqual(t, len(all.named("cpu")), count*(all.scrapesAfter(p.started)-2))
		checkPace(t, s.points().from(host).ofMachine().named("memory_percent"), treeInterval*2)
	}
	warnings := p.logLines("warn")
	require.Len(t, warnings, 1)
	assert.Equal(t, "wandbsys/some", warnings[0].Component)
	assert.Equal(t, "There are more workloads than are looked into; the rest is left out", warnings[0].Msg)
	assert.Contains(t, p.stderr.String(), fmt.Sprintf(`"left_out":%d,"cure":"raise workloads::max_workloads (%d)"`, sleepers-maxSleepers, maxSleepers))
	assert.Empty(t, p.logLines("error"))
	own := awaitSamples(t, p, health, "the health", func(all samples) bool { return len(all.find("otelcol_wandbsys_family_last_good_age")) == 2 })
	for _, receiver := range []string{"wandbsys/all", "wandbsys/some"} {
		assert.Len(t, own.find("otelcol_wandbsys_family_state", "receiver", receiver, "state", "detected", "reason", ""), 1)
		success := own.find("otelcol_wandbsys_family_scrape_success", "receiver", receiver)
		require.Len(t, success, 1)
		assert.InDelta(t, 1, success[0].value, 0)
	}
	assert.Less(t, p.stop(), hungShutdown)
	assert.Zero(t, p.exitCode())
}

// Two runs are two series of everything, and labels tell which is which.
func TestTwoRunsOnThePrometheusEndpoint(t *testing.T) {
	start := func(id string, env ...string) *trainee {
		return startTraining(t, training{work: "idle", runs: []string{"run-20260102_030405-" + id + "/run-" + id + ".wandb"}, env: env})
	}
	runs := map[string]*trainee{"one": start("one", "WANDB_ENTITY=team", "RANK=0"), "two": start("two", "WANDB_ENTITY=other", "RANK=7")}
	address := freeAddress(t)
	p := startCollector(t, settings{receivers: byDefault, exporters: "prometheus: {endpoint: '" + address + "'}"})
	instance := func(id string) string { return fmt.Sprintf("node/run-%s-%d", id, runs[id].pid()) }
	all := awaitSamples(t, p, address, "cpu of both", func(all samples) bool {
		return len(all.find("cpu_percent", "instance", instance("one"))) == 1 && len(all.find("cpu_percent", "instance", instance("two"))) == 1
	})
	for id, tr := range runs {
		for _, name := range []string{"cpu_percent", "proc_cpu_threads", "proc_memory_percent", "proc_memory_rssMB_mebibytes"} {
			assert.Len(t, all.find(name, "instance", instance(id), "job", "wandbsys"), 1, name)
		}
		rss := all.find("proc_memory_rssMB_mebibytes", "instance", instance(id))[0].value
		assert.InDelta(t, readProcess(t, tr.pid()).rss/mebi, rss, 8)
		entity := map[string]string{"one": "team", "two": "other"}[id]
		rank := map[string]string{"one": "0", "two": "7"}[id]
		assert.Len(t, all.find("target_info", "instance", instance(id), "job", "wandbsys", "wandb_run_id", id, "wandb_entity", entity,
			"wandb_rank", rank, "wandb_project", "vision", "wandbsys_workload_kind", "run", "process_pid", strconv.Itoa(tr.pid())), 1)
	}
	assert.Len(t, all.find("memory_percent", "instance", "node"), 1)
}

// copyBinary makes a copy of the test binary that every user may run.
func copyBinary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	content, err := os.ReadFile(self)
	require.NoError(t, err)
	path := filepath.Join(publicDir(t), "e2e.test")
	require.NoError(t, os.WriteFile(path, content, 0o755))
	return path
}

// Without rights to other users' processes their runs are not found. It is said
// once, and how to get them; one's own and everything else goes on.
func TestAnUnprivilegedCollector(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start processes of several users")
	}
	program := copyBinary(t)
	own := startTraining(t, training{
		work: "idle", program: program, runs: []string{"run-20260102_030405-own/run-own.wandb"},
		attr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
	})
	foreign := startTraining(t, training{work: "idle", runs: []string{"run-20260102_030405-foreign/run-foreign.wandb"}, env: []string{"WANDB_ENTITY=team"}})
	idle := startHelper(t, "idle")
	s := startSink(t, nil)
	config := "yaml:" + settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 300ms, initial_delay: 0s, host_name: node, workloads: {pid: %d, match: [{name: wandb-xpu, user: ^root$}]}}", idle.pid()),
		exporters: s.exporter(),
	}.text(t)
	p := startCollectorIn(t, "nobody", "", config, nil)
	scrapes := func() int { return s.points().ofMachine().scrapesAfter(p.started) }
	p.waitFor("many scrapes", func() bool { return scrapes() >= many })

	assert.Equal(t, own.resource("node", "own", nil), apart(s.points().ofRun("own").last().resource))
	assert.Empty(t, s.points().ofRun("foreign"))
	for what, pid := range map[string]int{"the own run": own.pid(), "the configured process": idle.pid(), "what a rule matches": foreign.side} {
		all := s.points().ofPid(pid)
		for _, name := range []string{"cpu", "proc.memory.rssMB", "proc.cpu.threads"} {
			assert.InDelta(t, scrapes(), len(all.named(name)), 3, "%s of %s", name, what)
		}
	}
	for _, name := range []string{"memory_percent", "network.recv", "disk.usageGB"} {
		assert.InDelta(t, scrapes(), len(s.points().ofMachine().named(name)), 2, name)
	}
	var warnings []logLine
	for _, line := range p.logLines("warn") {
		if line.Component == "wandbsys" {
			warnings = append(warnings, line)
		}
	}
	require.Len(t, warnings, 1)
	assert.True(t, strings.HasPrefix(warnings[0].Msg, "Processes of other users cannot be looked into"), warnings[0].Msg)
	assert.Contains(t, p.stderr.String(), "run as root, or with the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
	assert.Empty(t, hostLines(p, "error"))
}
