// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

const (
	// tooLong catches hangs; nothing here takes near as long.
	tooLong = 60 * time.Second
	// toolHangs is a tool_timeout for tools that hang: one begins long before it ends.
	toolHangs = 3 * time.Second
	// never is a tool_timeout that no test waits for.
	never = time.Hour

	detectionInterval = 5 * time.Minute
)

// options say how a rig differs from the default.
type options struct {
	extended  bool
	workloads workload.Options
	// configure changes the section, of which tool_dir is a folder of the rig.
	configure func(*Config)
}

// rig is the family with programs in place of the tools.
type rig struct {
	*ipuScraper

	t         testing.TB
	machine   scraperstest.Machine
	bin       string
	logs      *observer.ObservedLogs
	telemetry *componenttest.Telemetry
	receiver  string
	now       *atomic.Int64
}

func newRig(t testing.TB, o options) *rig {
	t.Helper()
	r := &rig{t: t, machine: scraperstest.NewMachine(t), bin: t.TempDir(), telemetry: componenttest.NewTelemetry(), now: new(atomic.Int64)}
	r.now.Store(1_800_000_000)
	clock := func() time.Time { return time.Unix(r.now.Load(), 0) }
	// Without it the machine's resource would be made at each scrape.
	r.machine.Write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 700 kB\n")
	set, logs := scraperstest.NewSettings(t, r.machine.Root, o.extended)
	set.Receiver.MeterProvider = r.telemetry.NewTelemetrySettings().MeterProvider
	set.DetectionInterval = detectionInterval
	o.workloads.RootPath = r.machine.Root
	set.Target = o.workloads.Target
	set.Workloads = workload.NewDiscovery(o.workloads).WithClock(clock, func() (uint64, error) { return 1_000_000, nil })
	cfg := defaultConfig().(*Config)
	cfg.ToolDir, cfg.ToolTimeout, cfg.CommonConfig.Timing.CollectionInterval = r.bin, never, time.Second
	if o.configure != nil {
		o.configure(cfg)
	}
	require.NoError(t, cfg.Validate())
	s, err := newScraper(set, cfg)
	require.NoError(t, err)
	r.ipuScraper, r.logs, r.receiver = s.(*ipuScraper), logs, set.Receiver.ID.String()
	r.source().runner.Now, r.source().choice.clock = clock, clock
	t.Cleanup(func() {
		require.NoError(t, r.Shutdown(bounded(t)))
		requireNoProcess(t)
		set.Workloads.Close()
		require.NoError(t, r.telemetry.Shutdown(context.WithoutCancel(t.Context())))
	})
	return r
}

func (r *rig) source() *toolSource { return r.ipuScraper.source.(*toolSource) }

// bounded is not ended by the end of the test, so that it serves clean-ups.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), tooLong)
	t.Cleanup(cancel)
	return ctx
}

// tags is a scrape that waits for the tools.
func (r *rig) tags() (map[string]float64, error) {
	r.t.Helper()
	md, err := r.Scrape(bounded(r.t))
	scraperstest.RequireSane(r.t, md)
	return scraperstest.TagsOf(md), err
}

// hurried is a scrape that is over before the tools are.
func (r *rig) hurried() (pmetric.Metrics, error) {
	r.t.Helper()
	ctx, cancel := context.WithDeadline(r.t.Context(), time.Unix(0, 0))
	defer cancel()
	return r.Scrape(ctx)
}

// arrive waits until what runs has answered.
func (r *rig) arrive() {
	r.t.Helper()
	require.Eventually(r.t, r.source().runner.Arrived, tooLong, time.Millisecond)
}

func (r *rig) later(d time.Duration) { r.now.Add(int64(d / time.Second)) }

// program is a stand-in for a tool, and the folder that it writes to.
type program struct {
	t         testing.TB
	path, dir string
}

// install writes a program of which $D is the folder. It writes down how it was called,
// and that it was called when another one still ran.
func (r *rig) install(name, body string) program {
	r.t.Helper()
	return writeProgram(r.t, r.bin, name, body)
}

func writeProgram(t testing.TB, bin, name, body string) program {
	t.Helper()
	p := program{t, filepath.Join(bin, name), t.TempDir()}
	text := fmt.Sprintf(`#!/bin/sh
D='%s'
echo "$*" >> "$D/calls"
[ -e "$D/one" ] && kill -0 "$(cat "$D/one")" 2>/dev/null && touch "$D/two"
echo $$ > "$D/one"
%s
`, p.dir, body)
	// No fork while the file is open for writing: the child would inherit that,
	// and the start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(p.path, []byte(text), 0o700))
	return p
}

// write makes a file in the program's folder.
func (p program) write(name, content string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name+".new"), []byte(content), 0o600))
	require.NoError(p.t, os.Rename(filepath.Join(p.dir, name+".new"), filepath.Join(p.dir, name)))
}

// calls are the arguments of each call.
func (p program) calls() []string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.dir, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(p.t, err)
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
}

func (p program) requireNeverTwice() {
	p.t.Helper()
	require.NoFileExists(p.t, filepath.Join(p.dir, "two"))
}

// await waits for a file that the program writes.
func (p program) await(name string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		_, err := os.Stat(filepath.Join(p.dir, name))
		return err == nil
	}, tooLong, time.Millisecond)
}

// requireNoProcess wants that no tool runs, nor anything that one started.
func requireNoProcess(t testing.TB) {
	t.Helper()
	mark := []byte(markVariable + "=" + strconv.Itoa(os.Getpid()) + "\x00")
	require.Eventually(t, func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/environ")
		require.NoError(t, err)
		for _, file := range files {
			// One that ended has none; one of another user is not ours.
			if content, err := os.ReadFile(file); err == nil && bytes.Contains(append(content, 0), mark) {
				return false
			}
		}
		return true
	}, tooLong, time.Millisecond)
}

// sourcesOf are those that an error says are broken.
func sourcesOf(t testing.TB, err error) []string {
	t.Helper()
	var names []string
	for _, e := range errorsOf(err) {
		fault, ok := e.(*scrapers.SourceError) //nolint:errorlint // its type is what is asked for
		require.True(t, ok, "%T: %v", e, e)
		names = append(names, fault.Source)
	}
	return names
}

// requireAbsent wants that there is no IPU, and nothing wrong.
func requireAbsent(t testing.TB, err error) scrapers.AbsentError {
	t.Helper()
	var absent *scrapers.AbsentError
	require.ErrorAs(t, err, &absent)
	require.NotEmpty(t, absent.Cure)
	return *absent
}

// said lists what was logged.
func said(logs *observer.ObservedLogs) []string {
	var all []string
	for _, entry := range logs.All() {
		all = append(all, entry.Level.String()+" "+entry.Message)
	}
	return all
}
