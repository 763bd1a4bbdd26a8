// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadatatest"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	twoIPUs  = `echo '{"devices": [{"id": "0", "clock": "1300MHz"}, {"id": "1", "clock": "20MHz"}]}'`
	noIPU    = `echo '{"devices": []}'`
	monitors = `echo '{"cards": [{"ipus": [{"ID": "0", "IPU utilisation": "5%"}]}]}'`
	// oneInfo is a gc-info with one device.
	oneInfo = `case "$1" in
-l) echo '-+- Id: [3], target: [PCIe]';;
*) printf 'Device Info:\n  clock: 7MHz\n';;
esac`
	// family makes a program hang that has a child and a grandchild and ignores SIGTERM.
	family = `trap '' TERM
(trap '' TERM; sleep 600 & sleep 600) &
touch "$D/hangs"; wait; sleep 600`
	crash = `kill -SEGV $$`
)

var (
	twoClocks   = map[string]float64{"ipu.0.clock (MHz)": 1300, "ipu.1.clock (MHz)": 20}
	oneUtilised = map[string]float64{"ipu.0.ipu utilisation (%)": 5}
	infoClock   = map[string]float64{"ipu.3.clock (MHz)": 7}
)

func TestInventoryIsAskedFirst(t *testing.T) {
	r := newRig(t, options{})
	inventory, monitor := r.install("gc-inventory", `echo 'a warning' >&2; `+twoIPUs), r.install("gc-monitor", monitors)
	for range 2 {
		tags, err := r.tags()
		require.NoError(t, err)
		assert.Equal(t, twoClocks, tags)
	}
	assert.Equal(t, []string{"-2", "-2"}, inventory.calls())
	assert.Empty(t, monitor.calls())
	assert.Equal(t, []string{"info Source of the figures of IPUs"}, said(r.logs))
}

// -2 is not documented: the plain form is tried, and kept when it gives devices.
func TestInventoryThatDoesNotKnowTheOption(t *testing.T) {
	r := newRig(t, options{})
	inventory := r.install("gc-inventory", `[ "$1" = -2 ] && { echo 'unknown option' >&2; exit 2; }; `+twoIPUs)
	for range 2 {
		tags, err := r.tags()
		require.NoError(t, err)
		assert.Equal(t, twoClocks, tags)
	}
	assert.Equal(t, []string{"-2", "", ""}, inventory.calls())
}

// What a tool prints counts only when it ends well; another one is asked then.
func TestLaterToolsServe(t *testing.T) {
	for name, tt := range map[string]struct {
		inventory, monitor, info string
		want                     map[string]float64
	}{
		"exit with devices":     {twoIPUs + "; exit 1", monitors, "", oneUtilised},
		"crash with devices":    {twoIPUs + "; " + crash, monitors, "", oneUtilised},
		"none listed":           {noIPU, monitors, "", oneUtilised},
		"made of others":        {`echo '[{"id": "0", "target": "Multi IPU", "clock": "5MHz"}]'`, monitors, "", oneUtilised},
		"the second crashes":    {"exit 1", crash, oneInfo, infoClock},
		"none but the last":     {"", "", oneInfo, infoClock},
		"the second lists none": {"", `echo '{"cards": []}'`, oneInfo, infoClock},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{})
			for tool, body := range map[string]string{"gc-inventory": tt.inventory, "gc-monitor": tt.monitor, "gc-info": tt.info} {
				if body != "" {
					r.install(tool, body)
				}
			}
			for range 2 {
				tags, err := r.tags()
				require.NoError(t, err)
				assert.Equal(t, tt.want, tags)
			}
		})
	}
}

func TestNoToolIsNoTrouble(t *testing.T) {
	r := newRig(t, options{})
	_, err := r.tags()
	absent := requireAbsent(t, err)
	assert.Equal(t, "no tool of Graphcore's: look for gc-info: not found in "+r.bin, absent.Reason)
	assert.Contains(t, absent.Cure, "scrapers::ipu::tool_dir")
	assert.Empty(t, said(r.logs))
}

func TestNoDeviceIsNoTrouble(t *testing.T) {
	for name, tools := range map[string][3]string{
		"none listed":        {noIPU, `echo '{"cards": []}'`, `echo 'no devices'`},
		"all end badly":      {"exit 1", crash, "exit 3"},
		"one and none there": {"", crash, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{})
			for i, tool := range []string{"gc-inventory", "gc-monitor", "gc-info"} {
				if tools[i] != "" {
					r.install(tool, tools[i])
				}
			}
			_, err := r.tags()
			absent := requireAbsent(t, err)
			assert.Contains(t, absent.Reason, "no IPU: ")
			assert.Contains(t, absent.Cure, "IPUOF_CONFIG_PATH")
			// A partition is made.
			r.install("gc-inventory", twoIPUs)
			tags, err := r.tags()
			require.NoError(t, err)
			assert.Equal(t, twoClocks, tags)
		})
	}
}

// Partitions come and go; that the tools fail after there was one is a trouble.
func TestAfterTheFirstSuccess(t *testing.T) {
	r := newRig(t, options{})
	r.install("gc-inventory", twoIPUs)
	_, err := r.tags()
	require.NoError(t, err)

	r.install("gc-inventory", noIPU)
	_, err = r.tags()
	requireAbsent(t, err)

	r.install("gc-inventory", `echo "  server unreachable" >&2; echo more >&2; exit 4`)
	for range 2 {
		tags, err := r.tags()
		assert.Empty(t, tags)
		assert.Equal(t, []string{"gc-inventory"}, sourcesOf(t, err))
		require.ErrorContains(t, err, `gc-inventory: exited with 4 (path `+filepath.Join(r.bin, "gc-inventory")+`); it said "server unreachable"`)
	}
	r.install("gc-inventory", twoIPUs)
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, twoClocks, tags)
}

// A tool that fails once is asked again at once, and serves on.
func TestOneFailureDoesNotChangeTheTool(t *testing.T) {
	r := newRig(t, options{})
	p := r.install("gc-inventory", `[ -e "$D/bad" ] && { rm "$D/bad"; exit 1; }; `+twoIPUs)
	r.install("gc-monitor", monitors)
	_, err := r.tags()
	require.NoError(t, err)
	p.write("bad", "")
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, twoClocks, tags)
}

// Half an answer is none, and says so before there was a device too.
func TestBrokenOutputIsATrouble(t *testing.T) {
	for name, tt := range map[string]struct{ body, want string }{
		"half":        {`printf '{"devices": [{"id": "0", "clock": "1300MHz"}, {"id"'; echo 'gone' >&2`, `the output ends within the JSON (51 bytes): unexpected end of JSON input; it said "gone"`},
		"text":        {`echo 'no such partition'`, "neither JSON nor"},
		"nothing":     {`:`, "it printed nothing"},
		"stderr only": {twoIPUs + ` >&2`, "it printed nothing"},
		"endless":     {`exec yes '{"devices": []}'`, "larger than the limit of 4194304 bytes"},
		"no program":  {`exec /none`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{configure: func(c *Config) { c.Source = sourceInventory }})
			r.install("gc-inventory", tt.body)
			tags, err := r.tags()
			assert.Empty(t, tags)
			if tt.want == "" { // the shell says that by its status
				requireAbsent(t, err)
				return
			}
			assert.Equal(t, []string{"gc-inventory"}, sourcesOf(t, err))
			require.ErrorContains(t, err, "gc-inventory -2: ")
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// A tool that hangs is killed with all that it started, and what it printed is not
// taken.
func TestHungToolIsKilledWithItsFamily(t *testing.T) {
	r := newRig(t, options{configure: func(c *Config) { c.ToolTimeout, c.Source = toolHangs, sourceInventory }})
	p := r.install("gc-inventory", `[ -e "$D/well" ] || { `+twoIPUs+`; echo stuck >&2; `+family+`; }; `+twoIPUs)
	tags, err := r.tags()
	assert.Empty(t, tags)
	p.await("hangs")
	requireNoProcess(t)
	assert.Equal(t, []string{"gc-inventory"}, sourcesOf(t, err))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "scrapers::ipu::tool_timeout is over")
	require.ErrorContains(t, err, `it said "stuck"`)
	assert.Equal(t, []string{"-2"}, p.calls(), "no other form is tried")
	p.write("well", "")
	r.source().choice.tools[0].timeout = never
	tags, err = r.tags()
	require.NoError(t, err)
	assert.Equal(t, twoClocks, tags)
	p.requireNeverTwice()
}

// What a tool that ended left behind is killed as well.
func TestGrandchildrenDoNotStay(t *testing.T) {
	r := newRig(t, options{})
	r.install("gc-inventory", `(sleep 600 & sleep 600) > /dev/null 2>&1 &
`+twoIPUs)
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, twoClocks, tags)
	requireNoProcess(t)
}

// While another tool serves, the better one's trouble lasts; it is tried again now and
// then.
func TestTroubleOfABetterToolLasts(t *testing.T) {
	r := newRig(t, options{})
	inventory := r.install("gc-inventory", `[ -e "$D/well" ] || { echo '{"devices'; exit 0; }; `+twoIPUs)
	r.install("gc-monitor", monitors)
	for range 2 {
		tags, err := r.tags()
		assert.Equal(t, oneUtilised, tags)
		assert.Equal(t, []string{"gc-inventory"}, sourcesOf(t, err))
	}
	assert.Len(t, inventory.calls(), 1)
	inventory.write("well", "")
	r.later(detectionInterval)
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, twoClocks, tags)
	assert.Len(t, r.logs.FilterMessage("Source of the figures of IPUs").All(), 2)
}

func TestInfoAsksForEachDevice(t *testing.T) {
	r := newRig(t, options{configure: func(c *Config) { c.Source = sourceInfo }})
	info := r.install("gc-info", `case "$*" in
-l) echo '-+- Id: [0], target: [PCIe]
-+- Id: [1], type: [PCIe]
-+- Id: [2], target: [Multi IPU]
 |--- Id: [0]
-+- Id: [5], target: [PCIe]';;
'--device-info -d 0') printf 'Device Info:\n  id: 0\n  user executable: a: b\n  ipu power:\n  clock: 1MHz\n\n';;
'--device-info -d 1') echo 'reset in progress' >&2; exit 1;;
'--device-info -d 5') printf 'Device Info:\n  clock: 5MHz\n';;
esac`)
	tags, err := r.tags()
	assert.Equal(t, map[string]float64{"ipu.0.clock (MHz)": 1, "ipu.5.clock (MHz)": 5}, tags, "one device costs itself")
	assert.Equal(t, []string{"gc-info"}, sourcesOf(t, err))
	require.ErrorContains(t, err, "gc-info --device-info -d 1: exited with 1")
	require.ErrorContains(t, err, "reset in progress")
	assert.Equal(t, []string{"-l", "--device-info -d 0", "--device-info -d 1", "--device-info -d 5"}, info.calls())
}

// One device that hangs costs its own time; more of them do not hold up the others for
// ever.
func TestInfoWithDevicesThatHang(t *testing.T) {
	r := newRig(t, options{configure: func(c *Config) { c.ToolTimeout, c.Source = toolHangs, sourceInfo }})
	info := r.install("gc-info", `case "$*" in
-l) for i in 0 1 2 3 4; do echo "-+- Id: [$i], target: [PCIe]"; done;;
*" 0" | *" 2") printf 'Device Info:\n  clock: 1MHz\n';;
*) exec sleep 600;;
esac`)
	tags, err := r.tags()
	assert.Equal(t, map[string]float64{"ipu.0.clock (MHz)": 1, "ipu.2.clock (MHz)": 1}, tags)
	assert.Equal(t, []string{"gc-info", "gc-info"}, sourcesOf(t, err))
	assert.Len(t, info.calls(), 5, "the list, and devices 0 to 3")
}

func TestInfoWithoutAnAnswer(t *testing.T) {
	for name, tt := range map[string]struct{ one, want string }{
		"garbage": {`echo garbage`, "neither JSON nor"},
		"empty":   {`echo '[]'`, "gc-info says nothing of device 0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{configure: func(c *Config) { c.Source = sourceInfo }})
			r.install("gc-info", `[ "$1" = -l ] && { echo '-+- Id: [0], target: [PCIe]'; exit; }; `+tt.one)
			_, err := r.tags()
			assert.Equal(t, []string{"gc-info"}, sourcesOf(t, err))
			require.ErrorContains(t, err, tt.want)
		})
	}
	r := newRig(t, options{configure: func(c *Config) { c.Source = sourceInfo }})
	r.install("gc-info", `i=0; while [ $i -lt 1025 ]; do echo "-+- Id: [$i], target: [PCIe]"; i=$((i+1)); done`)
	_, err := r.tags()
	require.ErrorContains(t, err, "gc-info -l: there are more than 1024 devices")
}

func TestCommandInPlaceOfTheTools(t *testing.T) {
	dir := t.TempDir()
	wrapper := writeProgram(t, dir, "wrapper", `[ "$1" = --json ] && echo '{"4": {"clock": "9MHz"}}'`)
	r := newRig(t, options{configure: func(c *Config) { c.ToolDir, c.Command = "", []string{wrapper.path, "--json", "a b"} }})
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"ipu.4.clock (MHz)": 9}, tags)
	assert.Equal(t, []string{"--json a b"}, wrapper.calls())

	require.NoError(t, os.Remove(wrapper.path))
	for range 2 {
		_, err = r.tags()
		assert.Equal(t, []string{"command"}, sourcesOf(t, err), "who names a program wants it")
	}
	writeProgram(t, dir, "wrapper", noIPU)
	_, err = r.tags()
	requireAbsent(t, err)
}

// A new version in the place of the old one is found.
func TestToolThatMoved(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	r := newRig(t, options{})
	inventory := r.source().choice.tools[0]
	inventory.dirs = func() []string { return []string{first, second} }
	old := writeProgram(t, first, "gc-inventory", twoIPUs)
	_, err := r.tags()
	require.NoError(t, err)
	require.NoError(t, os.Remove(old.path))
	writeProgram(t, second, "gc-inventory", twoIPUs)
	_, err = r.tags()
	require.Error(t, err)
	tags, err := r.tags()
	require.NoError(t, err)
	assert.Equal(t, twoClocks, tags)
}

// What takes longer than a scrape comes with a later one, and nothing is started
// meanwhile.
func TestToolSlowerThanAScrape(t *testing.T) {
	r := newRig(t, options{})
	p := r.install("gc-inventory", `while ! [ -e "$D/go" ]; do sleep 0.01; done; `+twoIPUs)
	for range 3 {
		md, err := r.hurried()
		require.NoError(t, err, "that is no trouble")
		assert.Zero(t, md.DataPointCount())
	}
	p.write("go", "")
	r.arrive()
	began := time.Unix(r.now.Load(), 0)
	r.later(time.Second)
	md, err := r.hurried()
	require.NoError(t, err)
	require.Equal(t, 2, md.DataPointCount())
	m := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	assert.Equal(t, began.UnixNano(), m.Gauge().DataPoints().At(0).Timestamp().AsTime().UnixNano())
	assert.Len(t, p.calls(), 1)
	p.requireNeverTwice()
	assert.Equal(t, []string{
		"warn A tool takes longer than a scrape may; what it tells comes with a later one", "info Source of the figures of IPUs",
	}, said(r.logs))
}

// The trouble of the last run lasts while the next one goes on; that there was no device
// does not, since nobody would wait for the answer then.
func TestTroubleLastsUntilTheNextAnswer(t *testing.T) {
	r := newRig(t, options{})
	p := r.install("gc-inventory", `[ -e "$D/slow" ] && sleep 600; echo broken`)
	_, err := r.tags()
	require.Error(t, err)
	p.write("slow", "")
	_, again := r.hurried()
	assert.Equal(t, err, again)
	require.NoError(t, r.Shutdown(bounded(t)))

	r = newRig(t, options{})
	p = r.install("gc-inventory", `[ -e "$D/slow" ] && sleep 600; `+noIPU)
	_, err = r.tags()
	requireAbsent(t, err)
	p.write("slow", "")
	_, err = r.hurried()
	require.NoError(t, err)
}

// The end of the family is the end of what runs.
func TestShutdownWhileAToolRuns(t *testing.T) {
	r := newRig(t, options{})
	p := r.install("gc-inventory", family)
	_, err := r.hurried()
	require.NoError(t, err)
	p.await("hangs")
	require.NoError(t, r.Shutdown(bounded(t)))
	requireNoProcess(t)
	require.NoError(t, r.Shutdown(bounded(t)), "once more")
}

// A panic is an error of the run, not the end of the collector.
func TestPanicIsATrouble(t *testing.T) {
	r := newRig(t, options{})
	r.source().choice.tools[0].dirs = func() []string { panic("no folder") }
	r.source().choice.clock = func() time.Time { panic("no clock") }
	r.install("gc-monitor", monitors)
	_, err := r.tags()
	assert.Equal(t, []string{"tools"}, sourcesOf(t, err))
	require.ErrorContains(t, err, "panic: no clock")
}

func TestCostsOfTools(t *testing.T) {
	r := newRig(t, options{})
	r.install("gc-inventory", `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 1`)
	r.install("gc-info", oneInfo)
	_, err := r.tags()
	require.NoError(t, err)
	of := func(tool string) attribute.Set {
		return attribute.NewSet(attribute.String("receiver", r.receiver), attribute.String("family", familyName), attribute.String("tool", tool))
	}
	times, values := metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreValue()
	metadatatest.AssertEqualWandbsysFamilyToolRuns(t, r.telemetry, []metricdata.DataPoint[int64]{
		{Value: 2, Attributes: of("gc-inventory")}, {Value: 2, Attributes: of("gc-info")},
	}, times)
	spent := []metricdata.DataPoint[float64]{{Attributes: of("gc-inventory")}, {Attributes: of("gc-info")}}
	metadatatest.AssertEqualWandbsysFamilyToolTime(t, r.telemetry, spent, times, values)
	metadatatest.AssertEqualWandbsysFamilyToolCPUTime(t, r.telemetry, spent, times, values)
}

func TestToolsGetAMinimalEnvironment(t *testing.T) {
	t.Setenv("IPU_TEST_SECRET", "leaked")
	t.Setenv("IPUOF_CONFIG_PATH", "/etc/other.conf")
	r := newRig(t, options{configure: func(c *Config) { c.Env = map[string]string{"IPUOF_CONFIG_PATH": "/etc/p.conf", "EXTRA": "a b"} }})
	p := r.install("gc-inventory", `env > "$D/env"; `+twoIPUs)
	_, err := r.tags()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(p.dir, "env"))
	require.NoError(t, err)
	lines := strings.Split(string(content), "\n")
	for _, want := range []string{"IPUOF_CONFIG_PATH=/etc/p.conf", "EXTRA=a b", "PATH=" + os.Getenv("PATH"), "LC_NUMERIC=C"} {
		assert.Contains(t, lines, want)
	}
	assert.NotContains(t, string(content), "leaked")
	assert.NotContains(t, string(content), "other.conf")
}

func TestEnvironment(t *testing.T) {
	getenv := func(env map[string]string) func(string) string { return func(name string) string { return env[name] } }
	assert.Equal(t, []string{"LC_NUMERIC=C", "PATH=" + toolrun.SystemPath}, environment(getenv(nil), []string{"SECRET=x", "IPU=1", "broken"}, nil))
	assert.Equal(t,
		[]string{"GCDA_MONITOR=1", "HOME=/h", "IPUOF_A=b=c", "LANG=de_DE.UTF-8", "LC_NUMERIC=C", "LD_LIBRARY_PATH=/l", "PATH=/bin", "POPLAR_SDK_ENABLED=/p"},
		environment(
			getenv(map[string]string{"HOME": "/h", "LANG": "de_DE.UTF-8", "LD_LIBRARY_PATH": "/l", "PATH": "/bin", "POPLAR_SDK_ENABLED": "/p", "LC_ALL": "x"}),
			[]string{"IPUOF_A=b=c", "GCDA_MONITOR=0"}, map[string]string{"GCDA_MONITOR": "1"}))
}

func TestWhereToolsAreLookedFor(t *testing.T) {
	opt := t.TempDir()
	for _, dir := range []string{
		"gc/poplar_sdk-ubuntu_20_04-3.2.0+1277/poplar-ubuntu_20_04-3.2.0+6580/bin", "gc/poplar_sdk-ubuntu_20_04-3.10.0+1/poplar-ubuntu_20_04-3.10.0+2/bin",
		"poplar_sdk/poplar-ubuntu/bin", "gc/other/bin",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(opt, dir), 0o700))
	}
	getenv := func(string) string { return "/a::relative:/usr/bin" }
	dirs := searchDirs("", getenv, opt)
	assert.Equal(t, []string{"/a", "/usr/bin"}, dirs[:2])
	assert.Contains(t, dirs, filepath.Join(opt, "poplar_sdk/poplar-ubuntu/bin"))
	assert.NotContains(t, dirs, filepath.Join(opt, "gc/other/bin"))
	place := func(version string) int {
		return slices.IndexFunc(dirs, func(dir string) bool { return strings.Contains(dir, "poplar_sdk-ubuntu_20_04-"+version) })
	}
	assert.Positive(t, place("3.10.0"))
	assert.Less(t, place("3.10.0"), place("3.2.0"), "the newest first")
	assert.Equal(t, []string{"/x"}, searchDirs("/x", getenv, opt), "the configured one alone")
}
