// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap/zapcore"

	"github.com/wandbsys/otelcol-wandbsys/internal/keeper"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

func init() { helpers["collector"] = helperCollector }

// plain is what the scraper makes of aReport.
func plain(percent, bytes float64) map[string]float64 {
	return map[string]float64{
		"trn.0.neuroncore_utilization":         percent,
		"trn.host_total_memory_usage":          bytes,
		"trn.neuron_device_total_memory_usage": 0,
	}
}

// requireFault wants an error of the tool, and its cause.
func requireFault(t testing.TB, err error, cause, text string) {
	t.Helper()
	s, ok := errors.AsType[*scrapers.SourceError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, toolName, s.Source)
	var f interface{ Cause() string }
	require.ErrorAs(t, err, &f)
	require.Equal(t, cause, f.Cause())
	require.ErrorContains(t, err, text)
}

func TestToolIsToldWhatIsUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		interval time.Duration
		filter   string
		extended bool
		want     string
	}{
		"default": {15 * time.Second, "", false, `{"period":"15s","neuron_runtimes":[{"tag_filter":".*","metrics":` +
			`[{"type":"neuroncore_counters"},{"type":"memory_used"}]}],"system_metrics":[]}`},
		"below a second": {200 * time.Millisecond, "", false, `{"period":"1s","neuron_runtimes":[{"tag_filter":".*","metrics":` +
			`[{"type":"neuroncore_counters"},{"type":"memory_used"}]}],"system_metrics":[]}`},
		"everything": {90*time.Second + time.Second/2, `^job "1"$`, true, `{"period":"90s","neuron_runtimes":[{"tag_filter":"^job \"1\"$","metrics":` +
			`[{"type":"neuroncore_counters"},{"type":"memory_used"},{"type":"execution_stats"}]}],"system_metrics":[{"type":"neuron_hw_counters"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{config: Config{TagFilter: tt.filter}, extended: tt.extended}
			o.config.CommonConfig.Timing.CollectionInterval = tt.interval
			r, tool := toolRig(t, printing(aReport(1, 2)), o)
			r.tags()
			dir := filepath.Dir(tool)
			config, err := os.ReadFile(filepath.Join(dir, "config"))
			require.NoError(t, err)
			require.True(t, json.Valid(config))
			assert.Equal(t, tt.want, string(config))

			noted, err := os.ReadFile(filepath.Join(dir, "file"))
			require.NoError(t, err)
			file, modes, _ := strings.Cut(strings.TrimSpace(string(noted)), " ")
			assert.Equal(t, "600 700", modes, "the file's and the folder's")
			assert.FileExists(t, file)
			r.shutdown()
			assert.NoDirExists(t, filepath.Dir(file))
		})
	}
}

func TestNothingIsStartedWithoutHardware(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := newRig(t, t.TempDir(), options{})
	r.scraper.Prime(t.Context())
	md, err := r.scrape()
	absent, ok := errors.AsType[*scrapers.AbsentError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "no /dev/neuron*, and neuron-monitor is not installed", absent.Reason)
	assert.Contains(t, absent.Cure, "aws-neuronx-tools")
	assert.Zero(t, md.DataPointCount())
	requireNoChildren(t)
	assert.False(t, r.monitor().Running(t.Context()))
}

func TestDevicesWithoutToolAreTrouble(t *testing.T) {
	m := scraperstest.NewMachine(t)
	m.Write("dev/neuron0", "")
	m.Write("folder/neuron-monitor/x", "")
	m.Write("plain/neuron-monitor", "no program")
	t.Setenv("PATH", filepath.Join(m.Root, "folder")+":relative::"+filepath.Join(m.Root, "plain"))
	r := newRig(t, m.Root, options{})
	_, err := r.scrape()
	requireFault(t, err, "search", "install aws-neuronx-tools, or set scrapers::trainium::neuron_monitor_path; looked in "+
		filepath.Join(m.Root, "folder")+", "+filepath.Join(m.Root, "plain")+", /opt/aws/neuron/bin")

	r = newRig(t, t.TempDir(), options{config: Config{NeuronMonitorPath: "/no/such/neuron-monitor"}})
	_, err = r.scrape()
	requireFault(t, err, "search", "there is no executable /no/such/neuron-monitor")
}

func TestToolIsFoundInPATHOnceItIsInstalled(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, t.TempDir(), options{})
	_, err := r.scrape()
	require.Error(t, err)
	tool := fakeTool(t, printing(aReport(1, 2)))
	require.NoError(t, os.Symlink(tool, filepath.Join(dir, toolName)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	assert.Equal(t, plain(1, 2), r.tags())
	assert.Equal(t, []string{"/a", "/b", toolDir}, searchDirs("/a:/b:/a:"+toolDir))
}

func TestToolThatFindsNoDevicesIsStopped(t *testing.T) {
	m := scraperstest.NewMachine(t)
	tool := fakeTool(t, printing(`{"neuron_runtime_data":[],"neuron_hardware_info":{"error":"no driver"}}`))
	r := newRig(t, m.Root, options{config: Config{NeuronMonitorPath: tool}})
	_, err := r.scrape()
	absent, ok := errors.AsType[*scrapers.AbsentError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "no /dev/neuron*, and neuron-monitor finds no device: no driver", absent.Reason)
	r.requireGone(pidsOfTool(t, tool)...)

	// It is asked again with the next probe. With a device it is in trouble.
	m.Write("dev/neuron12", "")
	_, err = r.scrape()
	require.ErrorContains(t, err, "neuron-monitor's hardware: no driver")
	_, again := r.scrape()
	require.Equal(t, err.Error(), again.Error())
	assert.Len(t, pidsOfTool(t, tool), 2)
}

func TestFirstWindowIsNoMeasurement(t *testing.T) {
	short := strings.Replace(aReport(0, 4096), `"period":1.0`, `"period":0.000692`, 1)
	r, _ := toolRig(t, printing(short), options{})
	want := plain(0, 4096)
	delete(want, "trn.0.neuroncore_utilization")
	assert.Equal(t, want, r.tags())
}

// wallClock is a clock that can be set forward.
type wallClock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *wallClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *wallClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func TestReportsThatAreOldDoNotCount(t *testing.T) {
	for name, tt := range map[string]struct {
		interval, stale time.Duration
	}{
		"at least 10 s":     {time.Second, 10 * time.Second},
		"three periods":     {15 * time.Second, 45 * time.Second},
		"whole seconds":     {15*time.Second + 999*time.Millisecond, 45 * time.Second},
		"below a second":    {time.Millisecond, 10 * time.Second},
		"shorter than that": {3 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &wallClock{}
			o := options{monitor: func(m *monitor) { m.Clock = clock.now }}
			o.config.CommonConfig.Timing.CollectionInterval = tt.interval
			r, tool := toolRig(t, "while :; do\ncat <<'END'\n"+aReport(1, 2)+"\nEND\nwhile ! rm \"$D/more\" 2>/dev/null; do sleep 0.01; done\ndone", o)
			require.Equal(t, tt.stale, r.monitor().StaleAfter)
			r.tags()
			clock.advance(tt.stale - 5*time.Second)
			assert.Equal(t, plain(1, 2), r.tags(), "it is of now")
			clock.advance(6 * time.Second)
			md, err := r.scrape()
			assert.Zero(t, md.DataPointCount())
			requireFault(t, err, "stale", fmt.Sprintf("(its period is %s): nothing is emitted until there is one", o.config.period()))

			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(tool), "more"), nil, 0o600))
			r.awaitLines(2)
			assert.Equal(t, plain(1, 2), r.tags())
			assert.Len(t, pidsOfTool(t, tool), 1)
		})
	}
}

func TestToolThatNeverReportsIsTold(t *testing.T) {
	clock := &wallClock{}
	r, _ := toolRig(t, "exec sleep 1000", options{monitor: func(m *monitor) { m.Clock = clock.now }})
	require.NoError(t, r.monitor().run(t.Context()))
	clock.advance(firstReport)
	md, err := r.scrape()
	require.NoError(t, err, "it has time yet")
	assert.Zero(t, md.DataPointCount())
	clock.advance(6 * time.Second)
	_, err = r.scrape()
	requireFault(t, err, "stale", "no report for 11s (its period is 1s)")
}

func TestToolThatFallsSilentIsStartedAgain(t *testing.T) {
	var p pauses
	r, tool := toolRig(t, printing(aReport(1, 2)), options{monitor: func(m *monitor) {
		m.SilentAfter = time.Second
		p.instead(m)
	}})
	require.NoError(t, r.monitor().run(t.Context()))
	r.eventually(func() bool { return len(pidsOfTool(t, tool)) >= 3 })
	assert.Equal(t, plain(1, 2), r.tags(), "the last report counts until it is old")
	r.shutdown()
	requireNoChildren(t)
	ended := r.logs.FilterMessage("neuron-monitor ended").All()
	require.NotEmpty(t, ended)
	assert.Contains(t, ended[0].ContextMap()["error"], "no report for 1s: it was stopped")
}

func TestToolThatSaysSomethingElseIsTold(t *testing.T) {
	clock := &wallClock{}
	r, _ := toolRig(t, printing("hello", "world"), options{monitor: func(m *monitor) { m.Clock = clock.now }})
	require.NoError(t, r.monitor().run(t.Context()))
	r.awaitLines(2)
	clock.advance(time.Minute)
	_, err := r.scrape()
	requireFault(t, err, "stale", "2 of its 2 lines were no reports")
}

// pauses are short ones, in the place of those of guard.Restarts, which are kept.
type pauses struct {
	mu   sync.Mutex
	kept []time.Duration
	runs []bool
}

func (p *pauses) instead(m *monitor) {
	next := m.Pause
	m.Pause = func(worked time.Duration, atOnce bool) time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kept, p.runs = append(p.kept, next(worked, atOnce)), append(p.runs, atOnce)
		if len(p.kept) >= 6 {
			return time.Hour
		}
		return 10 * time.Millisecond
	}
}

func (p *pauses) all() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

func TestToolThatCrashesIsStartedAgain(t *testing.T) {
	p := &pauses{}
	// The first two runs crash after a report, the third goes on.
	r, tool := toolRig(t, `n=$(wc -l < "$D/pids")
cat <<END
{"neuron_runtime_data":[{"pid":7,"report":{"memory_used":{"neuron_runtime_used_bytes":{"host":$n}}}}]}
END
[ "$n" -ge 3 ] && exec sleep 1000
while ! [ -e "$D/go$n" ]; do sleep 0.01; done
echo "panic: $n" >&2
[ "$n" = 1 ] && kill -9 $$
exit 2`, options{monitor: p.instead})
	r.scraper.Prime(t.Context())
	for n := 1; n <= 3; n++ {
		r.awaitLines(n)
		assert.Equal(t, map[string]float64{"trn.host_total_memory_usage": float64(n)}, r.tags())
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(tool), fmt.Sprint("go", n)), nil, 0o600))
	}
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second}, p.all())
	ended := r.logs.FilterMessage("neuron-monitor ended").All()
	require.Len(t, ended, 2)
	assert.Equal(t, zapcore.WarnLevel, ended[0].Level)
	assert.Equal(t, zapcore.DebugLevel, ended[1].Level, "once until it works for some time")
	assert.Contains(t, ended[0].ContextMap()["error"], "signal: killed")
	assert.Contains(t, ended[1].ContextMap()["error"], "exited with 2")
	assert.Contains(t, ended[1].ContextMap()["error"], `it said: "panic: 2"`)
	pids := pidsOfTool(t, tool)
	require.Len(t, pids, 3)
	r.requireGone(pids[:2]...)
}

func TestToolThatEndsAtOnceIsOneTrouble(t *testing.T) {
	p := &pauses{}
	r, tool := toolRig(t, `echo "unknown metric type" >&2; exit 1`, options{monitor: p.instead})
	r.eventually(func() bool {
		_, err := r.scrape()
		if err != nil {
			requireFault(t, err, "ended", "exited with 1 after")
		}
		return len(p.all()) == 6
	})
	assert.Equal(t, []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 5 * time.Minute, 5 * time.Minute,
	}, p.all())
	assert.NotContains(t, p.runs, false)
	_, err := r.scrape()
	require.ErrorContains(t, err, "at once, 6 times in a row")
	require.ErrorContains(t, err, `it said: "unknown metric type"`)
	assert.Len(t, pidsOfTool(t, tool), 6)
	assert.Empty(t, r.logs.FilterMessage("neuron-monitor ended").All(), "the receiver logs trouble")
}

func TestToolThatCannotBeStartedIsTrouble(t *testing.T) {
	p := &pauses{}
	m := scraperstest.NewMachine(t)
	path := filepath.Join(m.Root, toolName)
	writeTool(t, path, "#!/no/such/interpreter\n")
	r := newRig(t, m.Root, options{config: Config{NeuronMonitorPath: path}, monitor: p.instead})
	r.scraper.Prime(t.Context())
	r.eventually(func() bool { return len(p.all()) == 6 })
	_, err := r.scrape()
	requireFault(t, err, "ended", "its interpreter")
}

func TestConfigurationThatCannotBeWrittenIsTrouble(t *testing.T) {
	p := &pauses{}
	m := scraperstest.NewMachine(t)
	t.Setenv("TMPDIR", "/no/such/folder")
	path := filepath.Join(m.Root, toolName)
	writeTool(t, path, "#!/bin/sh\n")
	r := newRig(t, m.Root, options{config: Config{NeuronMonitorPath: path}, monitor: p.instead})
	r.scraper.Prime(t.Context())
	r.eventually(func() bool { return len(p.all()) == 6 })
	_, err := r.scrape()
	requireFault(t, err, "ended", "making a folder for the tool's configuration")
}

func TestLinesThatAreNoReportsAreSkipped(t *testing.T) {
	whole := aReport(1, 2)
	r, _ := toolRig(t, printing(whole, "", "level=info msg=hello", `{"level":"info","secret":1}`, whole[:len(whole)/2], whole+whole, "[]", `"x"`, "null"), options{})
	r.scraper.Prime(t.Context())
	r.awaitLines(9)
	assert.Equal(t, plain(1, 2), r.tags(), "what was before stays")
	skipped := r.logs.FilterMessageSnippet("Skipped a line").All()
	require.Len(t, skipped, 1)
	assert.NotContains(t, fmt.Sprint(skipped[0].ContextMap()), "secret")
	_, skips := r.monitor().Reports()
	assert.Equal(t, 8, skips)
}

func TestLineThatIsTooLongIsDroppedAlone(t *testing.T) {
	long := `echo '{"neuron_runtime_data":[],"x":"'; head -c 20000000 /dev/zero | tr '\0' a; echo '"}'`
	long = strings.Replace(long, "echo '{", "printf '%s' '{", 1)
	r, _ := toolRig(t, "echo '"+aReport(1, 2)+"'\n"+long+"\n"+long+"\n"+"echo '"+aReport(3, 4)+"'\nexec sleep 1000", options{})
	r.scraper.Prime(t.Context())
	r.awaitLines(4)
	assert.Equal(t, plain(3, 4), r.tags())
	require.Len(t, r.logs.FilterMessageSnippet("too long").All(), 1)
	_, skips := r.monitor().Reports()
	assert.Zero(t, skips)
}

func TestLongLinesAreRead(t *testing.T) {
	// A job with many models makes lines of some MB. They come in pieces.
	models := strings.Repeat(`{"name":"a/private/path","uuid":"1"},`, 100_000)
	line := strings.Replace(aReport(1, 2), `"neuron_device":0}`, `"neuron_device":0},"loaded_models":[`+models+`{}]`, 1)
	m := scraperstest.NewMachine(t)
	m.Write("line", line+"\n")
	r, _ := toolRig(t, "cat '"+filepath.Join(m.Root, "line")+"'; exec sleep 1000", options{})
	r.awaitFirst()
	assert.Equal(t, plain(1, 2), r.tags())
}

// awaitFirst starts the tool and waits for its first line.
func (r *rig) awaitFirst() {
	r.t.Helper()
	r.scraper.Prime(r.t.Context())
	r.awaitLines(1)
}

func TestToolIsStoppedWhateverItDoes(t *testing.T) {
	const child = `sh -c 'trap "" TERM; echo $$ > "'"$D"'/child"; while :; do sleep 0.01; done' &
while ! [ -s "$D/child" ]; do sleep 0.01; done
`
	report := "cat <<'END'\n" + aReport(1, 2) + "\nEND\n"
	for name, body := range map[string]string{
		"it ends when asked":                  report + "exec sleep 1000",
		"it ignores that":                     "trap '' TERM\n" + report + "while :; do sleep 0.01; done",
		"it never said anything":              "exec sleep 1000",
		"it is in the middle of a line":       "printf '{\"neuron_runtime_data\":['; exec sleep 1000",
		"it has a child":                      child + report + "exec sleep 1000",
		"it has a child and ignores that":     "trap '' TERM\n" + child + report + "while :; do sleep 0.01; done",
		"it prints without end":               "exec yes '" + aReport(1, 2) + "'",
		"it ended and waits to be started":    report + "exit 0",
		"it ended and left a child behind":    child + report + "exit 0",
		"it prints one line without end":      "exec tr '\\0' a < /dev/zero",
		"it closed its output and goes on":    report + "exec > /dev/null 2>&1; exec sleep 1000",
		"it is stopped like by a debugger":    report + "kill -STOP $$",
		"it floods its stderr, which is kept": report + "exec yes error >&2",
	} {
		t.Run(name, func(t *testing.T) {
			r, tool := toolRig(t, body, options{})
			require.NoError(t, r.monitor().run(t.Context()))
			r.eventually(func() bool {
				starts := len(pidsOfTool(t, tool))
				children := pidsIn(t, filepath.Join(filepath.Dir(tool), "child"))
				return starts > 0 && (len(children) > 0 || !strings.HasPrefix(body, child) && !strings.Contains(body, child))
			})
			if strings.HasPrefix(body, report) || strings.Contains(body, "trap") {
				r.awaitLines(1)
			}
			r.shutdown()
			r.requireGone(pidsOfTool(t, tool)...)
			if children := pidsIn(t, filepath.Join(filepath.Dir(tool), "child")); len(children) > 0 {
				r.requireGone(children...)
			}
			requireNoChildren(t)
			r.shutdown() // a second time there is nothing to do
		})
	}
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	r, _ := toolRig(t, "trap '' TERM\necho '"+aReport(1, 2)+"'\nwhile :; do sleep 0.01; done", options{})
	r.awaitFirst()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, r.scraper.Shutdown(ctx), "neuron-monitor: waiting for it to end")
	// It is killed all the same, which the second one of the rig waits for.
}

func TestScrapeEndsWithItsContext(t *testing.T) {
	r, _ := toolRig(t, "exec sleep 1000", options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	md, err := r.scraper.Scrape(ctx)
	require.Error(t, err, "the search was not even begun")
	assert.Zero(t, md.DataPointCount())

	require.NoError(t, r.monitor().run(t.Context()))
	md, err = r.scraper.Scrape(ctx)
	require.NoError(t, err)
	assert.Zero(t, md.DataPointCount())
}

// helperCollector runs the family until somebody kills this process.
func helperCollector() int {
	t := &testing.T{}
	set, _ := scraperstest.NewSettings(t, "", false)
	cfg := &Config{NeuronMonitorPath: os.Args[1]}
	made, err := newScraper(set, cfg)
	if err != nil {
		return 1
	}
	_ = made.Start(context.Background(), componenttest.NewNopHost())
	made.(scrapers.Primer).Prime(context.Background())
	select {}
}

func TestToolDiesWithTheCollector(t *testing.T) {
	defer requireNoChildren(t)
	r := &rig{t: t}
	tool := fakeTool(t, "echo '"+aReport(1, 2)+"'\nexec sleep 1000")
	self, err := os.Executable()
	require.NoError(t, err)
	collector := exec.CommandContext(t.Context(), self, tool)
	// What it has no time to remove goes with the test.
	collector.Env = append(os.Environ(), helperEnv+"=collector", "TMPDIR="+t.TempDir())
	require.NoError(t, collector.Start())
	r.eventually(func() bool { return len(pidsOfTool(t, tool)) == 1 })
	pid := pidsOfTool(t, tool)[0]
	require.False(t, isGone(pid))
	require.NoError(t, collector.Process.Kill())
	require.Error(t, collector.Wait())
	r.requireGone(pid)
}

func TestToolThatRunsWildWaits(t *testing.T) {
	for name, body := range map[string]string{
		"lines":         "exec yes '" + aReport(1, 2) + "'",
		"a single line": "exec tr '\\0' a < /dev/zero",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			r, _ := toolRig(t, body, options{})
			require.NoError(t, r.monitor().run(t.Context()))
			r.awaitLines(1)
			time.Sleep(300 * time.Millisecond)
			before := scraperstest.ProcessorTime(t)
			time.Sleep(time.Second)
			t.Logf("%s of a CPU in a second", scraperstest.ProcessorTime(t)-before)
			lines, _ := r.monitor().Reports()
			assert.LessOrEqual(t, lines, int(time.Since(start)/keeper.MinPause)+1)
		})
	}
}
