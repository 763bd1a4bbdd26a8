// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	// patience is how long anything may take on a machine that is busy with
	// other work. What waits this long has failed.
	patience = 30 * time.Second
	// pollInterval is how often a condition is looked at.
	pollInterval = 50 * time.Millisecond
)

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// settled is how old a process is before it gets a signal.
const settled = 500 * time.Millisecond

// process is a program that the test runs in a process group of its own.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	started        time.Time
	exited         chan struct{}
	err            error // of Wait, once exited is closed
}

// startProcess runs a program until the test ends.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	require.NoError(t, cmd.Start())
	p.started = time.Now()
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s\nstdout: %s\nstderr: %s", cmd, tail(p.stdout.String()), tail(p.stderr.String()))
		}
	})
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) kill() {
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.exited
}

// stop asks the process to end and returns how long it took.
func (p *process) stop() time.Duration {
	p.t.Helper()
	return p.signal(p.pid(), syscall.SIGTERM)
}

// interrupt is what Ctrl-C does: the whole group gets the signal.
func (p *process) interrupt() {
	p.t.Helper()
	p.signal(-p.pid(), syscall.SIGINT)
}

func (p *process) signal(to int, sig syscall.Signal) time.Duration {
	p.t.Helper()
	require.True(p.t, p.alive(), "ended before it was asked to")
	// The collector listens for signals a moment after it says that it is ready;
	// before that a signal ends it at once.
	time.Sleep(settled - time.Since(p.started))
	begin := time.Now()
	require.NoError(p.t, syscall.Kill(to, sig))
	select {
	case <-p.exited:
		return time.Since(begin)
	case <-time.After(patience):
		p.t.Fatalf("still runs %s after signal %s", patience, sig)
		return 0
	}
}

// exitCode waits for the end.
func (p *process) exitCode() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("still runs after %s", patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitFor waits for a condition while the process runs.
func (p *process) waitFor(what string, condition func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		require.True(p.t, p.alive(), "the process ended (%v) before: %s", p.err, what)
		require.True(p.t, time.Now().Before(deadline), "waited %s in vain for: %s", patience, what)
		time.Sleep(pollInterval)
	}
}

// waitForOrEnd waits for a condition, or for the end of the process.
func (p *process) waitForOrEnd(what string, condition func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for p.alive() && !condition() {
		require.True(p.t, time.Now().Before(deadline), "waited %s in vain for: %s", patience, what)
		time.Sleep(pollInterval)
	}
}

// collector prepares a run of the collector with these arguments and additional
// variables, in an environment without variables that would change it.
func collector(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cleanEnv(), env...)
	return cmd
}

func cleanEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case strings.HasPrefix(name, "OTEL_"), strings.HasPrefix(name, "OTLP_"), strings.HasPrefix(name, "WANDBSYS_"):
		case name == "NODE_NAME", name == "MAKEFLAGS", name == "MAKELEVEL", name == "MFLAGS", name == "PID":
		default:
			env = append(env, entry)
		}
	}
	return env
}

// startCollector runs the collector with a configuration.
func startCollector(t *testing.T, cfg settings) *process {
	t.Helper()
	return startProcess(t, collector(t, nil, "--config", cfg.write(t)))
}

// run runs the collector to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := startProcess(t, collector(t, env, args...))
	code = p.exitCode()
	return p.stdout.String(), p.stderr.String(), code
}

// settings is a configuration with one pipeline: every receiver feeds every
// exporter. The sections are YAML.
type settings struct {
	receivers, exporters string
	// extensions are all in use.
	extensions string
	// metrics is the section service::telemetry::metrics; empty means none, so
	// that no port is used.
	metrics string
	// logs are further keys of the section service::telemetry::logs.
	logs string
}

func (s settings) write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(s.text(t)), 0o600))
	return path
}

func (s settings) text(t *testing.T) string {
	t.Helper()
	if s.metrics == "" {
		s.metrics = "level: none"
	}
	receivers, exporters, extensions := parseYAML(t, s.receivers), parseYAML(t, s.exporters), parseYAML(t, s.extensions)
	logs := map[string]any{"encoding": "json"}
	maps.Copy(logs, parseYAML(t, s.logs))
	text, err := yaml.Marshal(map[string]any{
		"receivers":  receivers,
		"exporters":  exporters,
		"extensions": extensions,
		"service": map[string]any{
			"extensions": keys(extensions),
			"pipelines":  map[string]any{"metrics": map[string]any{"receivers": keys(receivers), "exporters": keys(exporters)}},
			"telemetry":  map[string]any{"metrics": parseYAML(t, s.metrics), "logs": logs},
		},
	})
	require.NoError(t, err)
	return string(text)
}

func parseYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	var section map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &section), text)
	return section
}

func keys(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

// pullReader is a telemetry section that serves the collector's own metrics.
func pullReader(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return "level: normal\nreaders: [{pull: {exporter: {prometheus: {host: '" + host + "', port: " + port + "}}}}]"
}

// freeAddress returns a local address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// logLine is one line of the collector's own log.
type logLine struct {
	Level, Msg, Family, State, Reason, Cure, Source, What, Error string
	Component                                                    string `json:"otelcol.component.id"`
}

// logLines returns the lines of a level: info, warn, error.
func (p *process) logLines(level string) []logLine {
	var lines []logLine
	for text := range strings.Lines(p.stderr.String()) {
		var line logLine
		var syntax *json.SyntaxError
		if err := json.Unmarshal([]byte(text), &line); errors.As(err, &syntax) {
			continue // not a log line, or not yet complete
		}
		if line.Level == level {
			lines = append(lines, line)
		}
	}
	return lines
}

// tail keeps what a person can read.
func tail(s string) string {
	const most = 4000
	if len(s) > most {
		return "..." + s[len(s)-most:]
	}
	return s
}
