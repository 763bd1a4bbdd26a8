// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadatatest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/smi"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	// tooLong catches hangs; nothing here takes near as long.
	tooLong = 30 * time.Second
	// toolHangs is a tool_timeout for tools that hang: one begins long before it ends.
	toolHangs = 2 * time.Second
	// never is a tool_timeout that no test waits for.
	never = time.Hour

	rocmOut = `{"card0": {"GPU use (%)": "5", "PCI Bus": "0000:C1:00.0", "Card Series": "Card"}}`
)

// program is a stand-in for one of AMD's tools, and the folder that it writes to.
type program struct {
	t         testing.TB
	path, dir string
}

// newProgram writes an executable of which $D is the folder. It writes down how it
// was called, and that it was called when another one still ran.
func newProgram(t testing.TB, dir, name, body string) program {
	t.Helper()
	p := program{t, filepath.Join(dir, name), t.TempDir()}
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

// untilLetGo makes a program wait.
const untilLetGo = `while ! [ -e "$D/go" ]; do sleep 0.01; done
`

// forever makes a program hang that has a child.
const forever = `sleep 600 & echo $! > "$D/child"; echo $$ > "$D/self"; wait`

func (p program) letGo() {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600))
}

func (p program) calls() []string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(p.t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// untilCalled is the context of a scrape that ends when the program has begun.
func (p program) untilCalled() context.Context {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), tooLong)
	p.t.Cleanup(cancel)
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(p.dir, "one")); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return ctx
}

func (p program) requireNeverTwice() {
	p.t.Helper()
	require.NoFileExists(p.t, filepath.Join(p.dir, "two"))
}

// pid waits for a number that the program writes.
func (p program) pid(name string) int {
	p.t.Helper()
	pid := 0
	require.Eventually(p.t, func() bool {
		text, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	}, tooLong, time.Millisecond)
	return pid
}

func requireGone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			// A zombie is dead; its new parent is slow to reap it.
			return err != nil && unix.Kill(pid, 0) == unix.ESRCH || strings.Contains(string(stat), ") Z ")
		}, tooLong, time.Millisecond, "process %d", pid)
	}
}

// toolRig is a tool on a program.
type toolRig struct {
	*tool
	t         testing.TB
	program   program
	logs      *observer.ObservedLogs
	telemetry *componenttest.Telemetry
	now       *atomic.Int64
	receiver  string
}

func newToolRig(t testing.TB, name, body string, timeout time.Duration) *toolRig {
	t.Helper()
	r := &toolRig{t: t, program: newProgram(t, t.TempDir(), name, body), now: new(atomic.Int64), telemetry: componenttest.NewTelemetry()}
	set, logs := scraperstest.NewSettings(t, t.TempDir(), false)
	set.Receiver.MeterProvider = r.telemetry.NewTelemetrySettings().MeterProvider
	meter, err := toolrun.NewMeter(set.Receiver, familyName)
	require.NoError(t, err)
	// Without an interval amd-smi's static is asked for each time.
	reader := map[string]func(smi.Options) *smi.Tool{"rocm-smi": smi.NewROCm, "amd-smi": smi.NewAMD}[name](smi.Options{Path: r.program.path})
	scraperstest.Machine{T: t, Root: set.RootPath}.Write("sys/module/amdgpu/version", "6.8.5\n")
	cfg := defaultConfig().(*Config)
	cfg.ToolTimeout, cfg.CommonConfig.Timing.CollectionInterval = timeout, never
	r.tool = newTool(reader, never, set, cfg, meter, folder(set.RootPath))
	r.logs, r.receiver = logs, set.Receiver.ID.String()
	r.clock = func() time.Time { return time.Unix(r.now.Load(), 0) }
	r.runner.Now = r.clock
	t.Cleanup(func() {
		require.NoError(t, r.close(bounded(t)))
		require.NoError(t, r.telemetry.Shutdown(context.WithoutCancel(t.Context())))
	})
	return r
}

// bounded is not ended by the end of the test, so that it serves clean-ups.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), tooLong)
	t.Cleanup(cancel)
	return ctx
}

// patiently is a scrape that waits for the tool.
func (r *toolRig) patiently() *reading { return r.read(bounded(r.t), want{}) }

// hurried is a scrape that is over before the tool is.
func (r *toolRig) hurried() *reading {
	ctx, cancel := context.WithDeadline(r.t.Context(), time.Unix(0, 0))
	defer cancel()
	return r.read(ctx, want{})
}

// arrive waits until the run in progress has answered.
func (r *toolRig) arrive() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.runner.Arrived() }, tooLong, time.Millisecond)
}

// said lists what was logged.
func said(logs *observer.ObservedLogs) []string {
	var all []string
	for _, entry := range logs.All() {
		all = append(all, entry.Level.String()+" "+entry.Message)
	}
	return all
}

func TestToolAnswersWithinAScrape(t *testing.T) {
	r := newToolRig(t, "rocm-smi", `echo '`+rocmOut+`'`, 0)
	r.now.Store(100)
	got := r.patiently()
	assert.Empty(t, got.errs)
	assert.True(t, got.complete)
	require.Len(t, got.cards, 1)
	assert.Equal(t, "0000:c1:00.0", got.cards[0].PCI)
	assert.InDelta(t, 5, got.cards[0].GPU.Value, 0)
	assert.Equal(t, identity.GPUs{Count: 1, Type: "Card", DriverVersion: "6.8.5"}, got.gpus)
	assert.Equal(t, int64(100), got.at.Unix())
	assert.Empty(t, said(r.logs))
}

func TestToolWithoutGPUs(t *testing.T) {
	r := newToolRig(t, "rocm-smi", `echo '{"system": {"Driver version": "6.3.6"}}'`, 0)
	got := r.patiently()
	assert.Empty(t, got.errs)
	assert.Empty(t, got.cards)
	assert.Zero(t, got.gpus)
	assert.True(t, got.complete)
}

// What takes longer than a scrape comes with a later one, with the time at which
// it came, and nothing is started meanwhile.
func TestToolSlowerThanAScrape(t *testing.T) {
	r := newToolRig(t, "rocm-smi", untilLetGo+`echo '`+rocmOut+`'`, 0)
	for range 3 {
		got := r.hurried()
		assert.Empty(t, got.cards)
		assert.Empty(t, got.errs, "that is no trouble")
		assert.False(t, got.complete)
	}
	r.now.Store(1000)
	r.program.letGo()
	r.arrive()
	r.now.Store(2000)
	got := r.patiently()
	require.Len(t, got.cards, 1)
	assert.Empty(t, got.errs)
	assert.Equal(t, int64(1000), got.at.Unix())
	assert.Len(t, r.program.calls(), 1)
	require.Len(t, r.patiently().cards, 1)
	assert.Len(t, r.program.calls(), 2)
	r.program.requireNeverTwice()
	assert.Equal(t, []string{"warn A tool takes longer than a scrape may; what it tells comes with a later one"}, said(r.logs))
}

// A tool that hangs is killed with what it started. The trouble stays the same
// until a run ends otherwise.
func TestToolThatHangs(t *testing.T) {
	r := newToolRig(t, "rocm-smi", `[ -e "$D/go" ] && { echo '`+rocmOut+`'; exit; }
`+forever, toolHangs)
	_ = r.hurried()
	self, child := r.program.pid("self"), r.program.pid("child")
	got := r.patiently()
	requireGone(t, self, child)
	assert.Empty(t, got.cards)
	require.Len(t, got.errs, 1)
	var fault *scrapers.SourceError
	require.ErrorAs(t, got.errs[0], &fault)
	assert.Equal(t, "rocm-smi", fault.Source)
	require.ErrorIs(t, fault, context.DeadlineExceeded)

	r.program.letGo()
	r.runner.Timeout = never
	got = r.hurried()
	assert.Empty(t, got.cards)
	assert.Equal(t, []error{fault}, got.errs, "as long as the next run goes on")
	r.arrive()
	got = r.patiently()
	assert.Len(t, got.cards, 1)
	assert.Empty(t, got.errs)
	r.program.requireNeverTwice()
}

func TestToolThatFails(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"crash":     {`kill -SEGV $$`, "died after "},
		"endless":   {`exec yes '{"card0": {}}'`, "its output is larger than the limit of 8388608 bytes"},
		"gigabyte":  {`yes | head -c 1000000000`, "its output is larger than the limit of 8388608 bytes"},
		"cut off":   {`printf '{"card0": {"GPU u'`, "the output is truncated"},
		"exception": {`printf 'Traceback:\nKeyError: 7\n' >&2; exit 1`, `rocm-smi exited with 1: "KeyError: 7"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newToolRig(t, "rocm-smi", tt.body, 0)
			got := r.patiently()
			assert.Empty(t, got.cards)
			assert.False(t, got.complete)
			require.Len(t, got.errs, 1)
			require.ErrorContains(t, got.errs[0], tt.want)
			require.ErrorContains(t, got.errs[0], r.program.path)
			assert.Equal(t, "rocm-smi", got.errs[0].(*scrapers.SourceError).Source) //nolint:errorlint // its type is what is asked for
		})
	}
}

// The end of the family is the end of the run.
func TestToolIsClosedWhileItRuns(t *testing.T) {
	r := newToolRig(t, "rocm-smi", forever, never)
	_ = r.hurried()
	self, child := r.program.pid("self"), r.program.pid("child")
	require.NoError(t, r.close(bounded(t)))
	requireGone(t, self, child)
	require.NoError(t, r.close(bounded(t)), "once more")
}

func TestCostsOfTools(t *testing.T) {
	r := newToolRig(t, "amd-smi", `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo '[{"gpu": 0}]'`, 0)
	require.Len(t, r.patiently().cards, 1)
	_ = r.patiently()
	attributes := attribute.NewSet(
		attribute.String("receiver", r.receiver), attribute.String("family", "amd"), attribute.String("tool", "amd-smi"))
	times, values := metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreValue()
	metadatatest.AssertEqualWandbsysFamilyToolRuns(t, r.telemetry, []metricdata.DataPoint[int64]{{Value: 4, Attributes: attributes}}, times)
	spent := []metricdata.DataPoint[float64]{{Attributes: attributes}}
	metadatatest.AssertEqualWandbsysFamilyToolTime(t, r.telemetry, spent, times, values)
	metadatatest.AssertEqualWandbsysFamilyToolCPUTime(t, r.telemetry, spent, times, values)
	for _, name := range []string{"otelcol_wandbsys_family_tool_time", "otelcol_wandbsys_family_tool_cpu_time"} {
		m, err := r.telemetry.GetMetric(name)
		require.NoError(t, err)
		assert.Positive(t, m.Data.(metricdata.Sum[float64]).DataPoints[0].Value, name)
	}
}

// A run that fails costs as well.
func TestCostsOfAFailure(t *testing.T) {
	r := newToolRig(t, "rocm-smi", `exit 1`, 0)
	_ = r.patiently()
	m, err := r.telemetry.GetMetric("otelcol_wandbsys_family_tool_runs")
	require.NoError(t, err)
	assert.Equal(t, int64(1), m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
}

// Without limits there is no share of them; that is said when it begins.
func TestToolWithoutPowerLimits(t *testing.T) {
	r := newToolRig(t, "amd-smi", `case "$1" in
static) [ -e "$D/go" ] || { echo 'no limits' >&2; exit 1; }; echo '[{"gpu": 0, "limit": {"socket_power": 300}}]';;
*) echo '[{"gpu": 0, "power": {"socket_power": 150}}]';;
esac`, 0)
	for range 2 {
		got := r.patiently()
		assert.Empty(t, got.errs)
		require.Len(t, got.cards, 1)
		assert.True(t, got.cards[0].Power.Known)
		assert.False(t, got.cards[0].PowerPercent().Known)
	}
	assert.Equal(t, []string{"warn The power limits are not known"}, said(r.logs))
	r.program.letGo()
	assert.InDelta(t, 50, r.patiently().cards[0].PowerPercent().Value, 0)
	require.NoError(t, os.Remove(filepath.Join(r.program.dir, "go")))
	_ = r.patiently()
	assert.Len(t, said(r.logs), 2, "it began anew")
}

// What came while another source was used is not of now.
func TestAnswerThatNobodyTook(t *testing.T) {
	r := newToolRig(t, "rocm-smi", `echo '`+rocmOut+`'`, 0)
	r.now.Store(100)
	_ = r.hurried()
	r.arrive()
	r.forget()
	r.now.Store(5000)
	assert.Equal(t, int64(5000), r.patiently().at.Unix())
	assert.Len(t, r.program.calls(), 2)
	r.program.requireNeverTwice()

	r.forget()
	assert.Len(t, r.patiently().cards, 1, "there is nothing to drop")
}

// A run that still goes on when its source is asked again is waited for.
func TestRunOutlivesOtherSource(t *testing.T) {
	r := newToolRig(t, "rocm-smi", untilLetGo+`echo '`+rocmOut+`'`, 0)
	_ = r.hurried()
	r.forget()
	_ = r.hurried()
	r.program.letGo()
	assert.Len(t, r.patiently().cards, 1)
	assert.Len(t, r.program.calls(), 1)
}

// The tools give the partitions of a chip one address and one number; sysfs does
// not, and neither do we.
func TestPartitionsOfToolsAreNamed(t *testing.T) {
	cards := []cardReading{
		{Reading: card.Reading{PCI: "0000:05:00.0", UniqueID: "aa"}},
		{Reading: card.Reading{PCI: "0000:05:00.0", UniqueID: "aa"}},
		{Reading: card.Reading{PCI: "0000:05:00.0", UniqueID: "aa"}},
		{Reading: card.Reading{PCI: "0000:06:00.0"}},
		{Reading: card.Reading{PCI: "0000:06:00.0"}},
		{Reading: card.Reading{}},
		{Reading: card.Reading{}},
	}
	namePartitions(cards)
	var got []string
	for i := range cards {
		got = append(got, cards[i].uuid()+" of "+cards[i].parent)
	}
	assert.Equal(t, []string{"aa of ", "aa/1 of aa", "aa/2 of aa", "0000:06:00.0 of ", "0000:06:00.0/1 of 0000:06:00.0", " of ", " of "}, got)
}
