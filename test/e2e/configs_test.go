// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quickstartAddress is where config/quickstart.yaml serves.
const quickstartAddress = "localhost:9464"

func TestAgentSendsMetricsAndItsOwnHealth(t *testing.T) {
	s, health := startSink(t, nil), freeAddress(t)
	p := startProcess(t, collector(t, agentEnv("http://"+s.address), "--config", repo(t, "config", "agent.yaml"),
		"--set=extensions.health_check.endpoint="+health, "--set=receivers.wandbsys.initial_delay=0s"))

	p.waitFor("the machine's metrics", func() bool { return len(s.points().ofMachine().named("memory_percent")) > 0 })
	host := s.points().ofMachine().named("memory_percent").last()
	assert.Equal(t, "node-7", host.resource["host.name"])
	assert.Equal(t, "rank-3", host.resource["wandb.label"])
	assert.Equal(t, []string{"Bearer e2e: a #token"}, s.headerOf("memory_percent", "authorization"))

	const state = "otelcol_wandbsys_family_state"
	p.waitFor("the health of the family", func() bool { return len(s.points().named(state).with("state", "detected")) > 0 })
	own := s.points().named(state).with("state", "detected").last()
	assert.Equal(t, map[string]any{"receiver": "wandbsys", "family": "host", "state": "detected", "reason": ""}, own.attrs)
	assert.Equal(t, "otelcol-wandbsys", own.resource["service.name"])
	assert.Equal(t, []string{"Bearer e2e: a #token"}, s.headerOf(state, "authorization"))
	for _, name := range []string{"scrape_success", "scrape_duration", "last_good_age"} {
		assert.NotEmpty(t, s.points().named("otelcol_wandbsys_family_"+name).with("family", "host"), name)
	}

	_, status, err := get("http://" + health)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
}

// Without a backend there is more to do at the end, such as a last report.
func TestAgentEndsWhileTheBackendIsDown(t *testing.T) {
	start := func() *process {
		p := startProcess(t, collector(t, agentEnv("http://"+freeAddress(t)), "--config", repo(t, "config", "agent.yaml"),
			"--set=extensions.health_check.endpoint="+freeAddress(t), "--set=receivers.wandbsys.initial_delay=0s",
			"--set=processors.batch.timeout=0s"))
		p.waitFor("an export fails", func() bool { return strings.Contains(p.stderr.String(), "Exporting failed. Will retry") })
		return p
	}
	for try := 1; ; try++ {
		took := start().stop() // with an error: the last report is lost
		t.Logf("ended after %s", took)
		if took < hungShutdown {
			return
		}
		require.Less(t, try, shutdownTries, "took %s, %s are allowed", took, hungShutdown)
	}
}

// https:// means TLS: nothing must go to a server without it.
func TestAgentHoldsToTLS(t *testing.T) {
	s := startSink(t, nil)
	p := startProcess(t, collector(t, agentEnv("https://"+s.address), "--config", repo(t, "config", "agent.yaml"),
		"--set=extensions.health_check.endpoint="+freeAddress(t), "--set=receivers.wandbsys.initial_delay=0s"))
	p.waitFor("the handshake fails", func() bool {
		return regexp.MustCompile(`(?i)tls.*handshake`).MatchString(p.stderr.String())
	})
	assert.Empty(t, s.points())
}

func TestQuickstartShowsReadableLines(t *testing.T) {
	target, address := startHelper(t, "idle"), freeAddress(t)
	for name, env := range map[string][]string{
		"of the collector itself": nil,
		"of another process":      {fmt.Sprintf("WANDBSYS_PID=%d", target.pid())},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, collector(t, env, "--config", repo(t, "config", "quickstart.yaml"),
				"--set=exporters.prometheus.endpoint="+address))
			pid := p.pid()
			if env != nil {
				pid = target.pid()
			}
			checkQuickstart(t, p, address, pid)
		})
	}
}

// checkQuickstart: lines on the terminal, the same on the endpoint.
func checkQuickstart(t *testing.T, p *process, address string, pid int) {
	t.Helper()
	for _, line := range []string{`cpu{} [0-9.]+`, `proc\.memory\.rssMB{} [0-9.]+`, `memory_percent{} [0-9.]+`, `disk\.usagePercent{path=/} [0-9.]+`} {
		p.waitFor("the line "+line, func() bool { return regexp.MustCompile(`(?m)^` + line + `$`).MatchString(p.stdout.String()) })
	}
	instance := fmt.Sprintf("%s/pid-%d", firstLine(t, "/etc/hostname"), pid)
	all := awaitSamples(t, p, address, "the endpoint", func(all samples) bool {
		return len(all.find("cpu_percent", "instance", instance)) > 0
	})
	rss := all.find("proc_memory_rssMB_mebibytes", "instance", instance)
	require.Len(t, rss, 1)
	assert.InDelta(t, readProcess(t, pid).rss/mebi, rss[0].value, 16)
}

func TestMakeRun(t *testing.T) {
	p, target := makeRun(t, "--config config/quickstart.yaml")
	if p == nil {
		return
	}
	checkQuickstart(t, p, quickstartAddress, target.pid())
	p.interrupt()
	listener, err := net.Listen("tcp", quickstartAddress)
	require.NoError(t, err, "Ctrl-C ends the collector")
	require.NoError(t, listener.Close())
}

func TestMakeRunWritesRuns(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "wandb")
	p, target := makeRun(t, "config/quickstart-wandb.yaml", "WANDBSYS_WANDB_DIR="+directory)
	if p == nil {
		return
	}
	p.waitFor("the directory", func() bool { return strings.Contains(p.stdout.String(), "W&B runs: "+directory) })
	checkQuickstartRuns(t, p, directory, target.pid())
}

// makeRun starts `make run` for another process. Where its address is in use, it only
// compares the commands with what they must have, and returns nil.
func makeRun(t *testing.T, command string, env ...string) (p, target *process) {
	t.Helper()
	const says = "Prometheus endpoint: http://" + quickstartAddress + "/metrics"
	binary(t) // skips without
	listener, err := net.Listen("tcp", quickstartAddress)
	if err != nil {
		t.Logf("only shown, not run: %v", err)
		cmd := exec.Command("make", "-C", repo(t), "-n", "run", "PID=4711")
		cmd.Env = append(cleanEnv(), env...)
		commands, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", commands)
		assert.Contains(t, string(commands), says)
		assert.Contains(t, string(commands), command)
		return nil, nil
	}
	require.NoError(t, listener.Close())
	target = startHelper(t, "idle")
	cmd := exec.Command("make", "-C", repo(t), "run", fmt.Sprintf("PID=%d", target.pid()))
	cmd.Env = append(cleanEnv(), env...)
	p = startProcess(t, cmd)
	p.waitFor("the address", func() bool { return strings.Contains(p.stdout.String(), says) })
	return p, target
}
