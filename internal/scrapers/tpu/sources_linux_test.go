// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/tputest"
)

func TestPlugin(t *testing.T) {
	text := `# TYPE duty_cycle gauge
duty_cycle{make="cloud-tpu",accelerator_id="1-13",pod="job",namespace="ml",container="c"} 10
duty_cycle{make="cloud-tpu",accelerator_id="1-12"} 20
duty_cycle{make="nvidia",accelerator_id="1-0"} 99
duty_cycle{make="cloud-tpu",accelerator_id="1-14"} NaN
duty_cycle{make="cloud-tpu",accelerator_id="one"} 99
duty_cycle{make="cloud-tpu"} 99
# TYPE duty_cycle_node gauge
duty_cycle_node{make="cloud-tpu",accelerator_id="1-13"} 11
duty_cycle_node{make="cloud-tpu",accelerator_id="1-8"} 5
# TYPE memory_used_node gauge
memory_used_node{make="cloud-tpu",accelerator_id="1-9"} 7
# TYPE tensorcore_utilization_node gauge
tensorcore_utilization_node{make="cloud-tpu",accelerator_id="1-2"} 3
tensorcore_utilization_node{make="cloud-tpu",accelerator_id="1-100000"} 3
# TYPE other gauge
other{make="cloud-tpu",accelerator_id="1-2"} 3
`
	md, err := newRig(t, newMachine(t), map[string]any{"device_plugin": page(t, text), "endpoints": []any{nobody(t)}}).scrape()
	require.NoError(t, err)
	scraperstest.CompareTags(t, "plugin", tags{
		// 8, 9, 12, 13
		"tpu.0.dutyCycle": 5, "tpu.1.hbmCapacityUsage": 7, "tpu.2.dutyCycle": 20, "tpu.3.dutyCycle": 10,
		"tpu.2.tensorcoreUtilization": 3,
	}, scraperstest.TagsOf(md))
	for _, p := range scraperstest.PointsOf(md) {
		switch p.Attributes["tpu_index"] {
		case int64(3):
			assert.Equal(t, map[string]any{
				"tpu_index": int64(3), "tpu.device_id": int64(13),
				"k8s.pod.name": "job", "k8s.namespace.name": "ml", "k8s.container.name": "c",
			}, p.Attributes)
		case int64(0):
			assert.Equal(t, map[string]any{"tpu_index": int64(0), "tpu.device_id": int64(8)}, p.Attributes)
		}
	}
}

func TestPluginTrouble(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "/html":
			_, _ = w.Write([]byte("<html>"))
		default:
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(5, 0)
	address, _ := runtime.serve(t)
	for path, cause := range map[string]string{"/fails": "status 500", "/html": "parse", "/hangs": "timeout"} {
		t.Run(path, func(t *testing.T) {
			r := newRig(t, newMachine(t), map[string]any{
				"endpoints":     []any{address},
				"device_plugin": map[string]any{"endpoint": server.URL + path, "timeout": hungTimeout.String()},
			})
			faults, got := r.faults()
			assert.Equal(t, cause, causeOf(t, faults["TPU device plugin"]))
			assert.Equal(t, tags{"tpu.0.dutyCycle": 5}, got)
		})
	}
}

// sdkSection is a section with the SDK on.
func sdkSection(t *testing.T, library string) map[string]any {
	t.Helper()
	values := endpoints(nobody(t))
	values["sdk"] = map[string]any{"enabled": true, "reader_path": tputest.BuildReader(t), "library_path": library, "interval": "10s"}
	return values
}

func withChips(t *testing.T) machine {
	t.Helper()
	m := newMachine(t)
	m.addChips(v6e, "", 2)
	return m
}

func TestRuntimesComeBeforeThePluginAndThatBeforeTheSDK(t *testing.T) {
	runtime := newRuntime()
	runtime.metrics[dutyName] = perDevice(1, 0, 1)
	runtime.metrics[usageName] = perDevice(1, 0)
	address, _ := runtime.serve(t)
	library := tputest.BuildLibrary(t, map[string]tputest.Metric{
		"duty_cycle_pct":     {Values: []string{"300", "301", "302"}},
		"hbm_capacity_usage": {Values: []string{"300", "301"}},
		"tensorcore_util":    {Values: []string{"300", "301"}},
		"hbm_capacity_total": {Values: []string{"300", "301"}},
	})
	values := sdkSection(t, library)
	values["endpoints"] = []any{address}
	values["device_plugin"] = page(t, `duty_cycle{make="cloud-tpu",accelerator_id="1-0"} 200
tensorcore_utilization{make="cloud-tpu",accelerator_id="1-0"} 200
tensorcore_utilization{make="cloud-tpu",accelerator_id="1-1"} 201
`)
	assert.Equal(t, tags{
		"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 101, // not asked for a third one: there are two
		"tpu.0.hbmCapacityUsage": 1, "tpu.1.hbmCapacityUsage": 301,
		"tpu.0.tensorcoreUtilization": 200, "tpu.1.tensorcoreUtilization": 201,
		"tpu.0.hbmCapacityTotal": 300, "tpu.1.hbmCapacityTotal": 301,
	}, newRig(t, withChips(t), values).tags())
}

func TestTheSDKIsNotAskedForWhatIsKnown(t *testing.T) {
	f := newFigures()
	metrics := metadata.NewDefaultMetricsBuilderConfig().Metrics
	scraperstest.SwitchAll(&metrics, true)
	all := wantOf(&metrics)
	assert.Len(t, all.missing(f, 2), 16)
	for i := range 2 {
		f.devices[dutyCycle][i] = deviceValue{}
	}
	f.devices[hbmTotal][0] = deviceValue{}
	f.queues["a"] = 1
	names := all.missing(f, 2)
	assert.Len(t, names, 14)
	assert.NotContains(t, names, []string{"duty_cycle_pct"})
	assert.Contains(t, names, []string{"hbm_capacity_total"})
}

func TestLinkHealthOfChipsWithTwoDevices(t *testing.T) {
	m := newMachine(t)
	m.addChips("0x0076", "", 4)
	library := tputest.BuildLibrary(t, map[string]tputest.Metric{
		"ici_link_health": {Values: []string{"tray1.chip0.ici0.int: 0", "tray1.chip1.ici0.int: 7"}},
	})
	assert.Equal(t, tags{
		"tpu.0.iciLinkHealth": 0, "tpu.1.iciLinkHealth": 0, "tpu.2.iciLinkHealth": 7, "tpu.3.iciLinkHealth": 7,
	}, newRig(t, m, sdkSection(t, library)).tags())
}

func TestDutyCycleOfChipsFromTheSDK(t *testing.T) {
	for name, tt := range map[string]struct {
		values []string
		want   tags
	}{
		"as many as chips":   {[]string{"1", "2"}, tags{"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 1, "tpu.2.dutyCycle": 2, "tpu.3.dutyCycle": 2}},
		"as many as devices": {[]string{"1", "2", "3", "4"}, tags{"tpu.0.dutyCycle": 1, "tpu.1.dutyCycle": 2, "tpu.2.dutyCycle": 3, "tpu.3.dutyCycle": 4}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.addChips(v3, "0x004e", 2)
			library := tputest.BuildLibrary(t, map[string]tputest.Metric{"duty_cycle_pct": {Values: tt.values}})
			assert.Equal(t, tt.want, newRig(t, m, sdkSection(t, library)).tags())
		})
	}
}

func TestTheSDKIsAskedSeldom(t *testing.T) {
	library := tputest.BuildLibrary(t, map[string]tputest.Metric{"tensorcore_util": {Values: []string{"5"}}})
	r := newRig(t, withChips(t), sdkSection(t, library))
	want := tags{"tpu.0.tensorcoreUtilization": 5}
	assert.Equal(t, want, r.tags())
	r.now = r.now.Add(9 * time.Second)
	assert.Empty(t, r.tags(), "a value is not repeated")
	r.now = r.now.Add(time.Second)
	assert.Equal(t, want, r.tags())
}

func TestAScrapeThatComesALittleTooEarlyWaitsForTheSDK(t *testing.T) {
	r := scriptRig(t, `echo '{"tensorcore_util": {"values": ["5"]}}'`)
	want := tags{"tpu.0.tensorcoreUtilization": 5}
	r.reader.clock = time.Now
	for range 2 {
		r.reader.next = time.Now().Add(readerSlack)
		earliest := r.reader.next
		assert.Equal(t, want, r.tags())
		assert.False(t, r.reader.next.Before(earliest.Add(r.reader.interval)), "reads are never closer than the interval")
	}
	r.reader.next = time.Now().Add(readerSlack)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, r.reader.await(ctx), "a shutdown does not wait")
}

func TestTheSDKIsNotLoadedWithoutTPU(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "loaded")
	library := tputest.BuildLibrary(t, nil, "ENVIRONMENT="+strconv.Quote(mark))
	assert.Empty(t, newRig(t, newMachine(t), sdkSection(t, library)).tags())
	values := sdkSection(t, library)
	delete(values, "endpoints")
	_, err := newRig(t, newMachine(t), values).scrape()
	var absent *scrapers.AbsentError
	require.ErrorAs(t, err, &absent)
	assert.NoFileExists(t, mark)
}

func TestTheReaderGetsAMinimalEnvironment(t *testing.T) {
	t.Setenv("WANDB_API_KEY", "secret")
	mark := filepath.Join(t.TempDir(), "environment")
	library := tputest.BuildLibrary(t, nil, "ENVIRONMENT="+strconv.Quote(mark))
	r := newRigWith(t, withChips(t), sdkSection(t, library), func(name string) string {
		return map[string]string{agentVariable: "unix:///agent", "OTHER": "x"}[name]
	})
	r.tags()
	content, err := os.ReadFile(mark)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{
		"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "LANG=C", agentVariable + "=unix:///agent",
	}, strings.Split(strings.TrimSpace(string(content)), "\n"))
}

func TestReaderTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		definition, cause, text string
		crash                   bool
	}{
		"another version":         {"VERSION1=2", "reader", "its SDK has version 0.2", false},
		"a missing function":      {"NULL_SLOT=0x60", "reader", "its SDK lacks GetMetricValues", false},
		"no client":               {`CLIENT_ERROR="the agent is away"`, "reader", "the agent is away", false},
		"crash in a call":         {"CRASH_IN_CALL", "crash", "libtpu-reader exited with 2: ", true},
		"crash when loaded":       {"CRASH_IN_CONSTRUCTOR", "crash", "libtpu-reader ", true},
		"exit when loaded":        {"EXIT_IN_CONSTRUCTOR=0", "crash", "libtpu-reader ended without an answer", true},
		"exit with a code":        {"EXIT_IN_CONSTRUCTOR=7", "crash", "libtpu-reader exited with 7", true},
		"hangs in a call":         {"HANG_IN_CALL", "timeout", "gave up after", false},
		"hangs while it's loaded": {"HANG_IN_CONSTRUCTOR", "timeout", "gave up after", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withChips(t), sdkSection(t, tputest.BuildLibrary(t, map[string]tputest.Metric{"tensorcore_util": {Values: []string{"5"}}}, tt.definition)))
			if tt.cause == "timeout" {
				r.reader.timeout = 2 * hungTimeout
			}
			faults, got := r.faults()
			assert.Empty(t, got)
			err := faults["libtpu"]
			require.ErrorContains(t, err, tt.text)
			assert.Equal(t, tt.cause, causeOf(t, err))
			rest := 20 * time.Second
			if tt.crash {
				rest = readerRest
			}
			assert.Equal(t, r.now.Add(rest), r.reader.next)
			again, _ := r.faults()
			assert.Equal(t, err, again["libtpu"], "it lasts until the next read")
		})
	}
}

// script is a reader that does what a shell says.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reader")
	// No fork while the file is open for writing: the child would inherit that, and
	// the start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	return path
}

func scriptRig(t *testing.T, text string) *rig {
	t.Helper()
	values := endpoints(nobody(t))
	values["sdk"] = map[string]any{"enabled": true, "reader_path": script(t, text), "library_path": script(t, ""), "interval": "10s"}
	return newRig(t, withChips(t), values)
}

func TestFailuresInARowAreGivenMoreAndMoreTime(t *testing.T) {
	r := scriptRig(t, "echo the agent is away >&2; exit 10")
	for _, rest := range []time.Duration{20 * time.Second, 40 * time.Second, readerRest, 20 * time.Second} {
		faults, _ := r.faults()
		require.ErrorContains(t, faults["libtpu"], "libtpu-reader: the agent is away")
		require.Equal(t, r.now.Add(rest), r.reader.next)
		r.now = r.reader.next
	}
	r.reader.path = script(t, `echo '{"tensorcore_util": {"values": ["5"]}}'`)
	assert.Equal(t, tags{"tpu.0.tensorcoreUtilization": 5}, r.tags())
	assert.Zero(t, r.reader.failures)
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, tt := range map[string]struct{ script, cause string }{
		"no JSON":       {"echo hello", "answer"},
		"another shape": {"echo '[1]'", "answer"},
		"half a line":   {"printf '{'", "crash"},
		"too much":      {"yes", "crash"},
	} {
		t.Run(name, func(t *testing.T) {
			faults, got := scriptRig(t, tt.script).faults()
			assert.Equal(t, tt.cause, causeOf(t, faults["libtpu"]))
			assert.Empty(t, got)
		})
	}
}

func TestTheReaderIsKilledWithItsChildren(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "child")
	r := newRig(t, withChips(t), sdkSection(t, tputest.BuildLibrary(t, nil, "HANG_IN_CALL", "CHILD="+strconv.Quote(mark))))
	r.reader.timeout = 2 * hungTimeout
	r.faults()
	content, err := os.ReadFile(mark)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(content))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return isGone(pid) }, testTimeout, 10*time.Millisecond)
}

// isGone tells whether a process ended; one that nobody waits for is still listed.
func isGone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
}

func TestShutdownEndsTheReader(t *testing.T) {
	r := scriptRig(t, "exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(hungTimeout, cancel)
	_, err := r.Scrape(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, r.reader.failures, "that says nothing of libtpu")
}

func TestWhereReaderAndLibraryAre(t *testing.T) {
	home := t.TempDir()
	library := filepath.Join(home, ".local/lib/python3.11/site-packages/libtpu/libtpu.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(library), 0o700))
	require.NoError(t, os.WriteFile(library, nil, 0o600))
	named := filepath.Join(home, "named.so")
	require.NoError(t, os.WriteFile(named, nil, 0o600))
	for name, tt := range map[string]struct {
		library string
		env     map[string]string
		want    string
		err     string
	}{
		"configured":                {named, map[string]string{"HOME": home}, named, ""},
		"configured and missing":    {"/nowhere/libtpu.so", map[string]string{"HOME": home}, "", "no file /nowhere/libtpu.so (sdk::library_path)"},
		"in the environment":        {"", map[string]string{"LIBTPU_PATH": named, "TPU_LIBRARY_PATH": "relative.so", "HOME": home}, named, ""},
		"in the home folder":        {"", map[string]string{"HOME": home}, library, ""},
		"nowhere":                   {"", map[string]string{"HOME": "relative"}, "", "no libtpu.so where it is usually installed; set sdk::library_path"},
		"a home that is no pattern": {"", map[string]string{"HOME": "/[x"}, "", "no libtpu.so where"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{library: tt.library, getenv: func(name string) string { return tt.env[name] }}
			got, err := r.findLibrary()
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	folder := t.TempDir()
	collector, program := filepath.Join(folder, "otelcol-wandbsys"), filepath.Join(folder, "libtpu-reader")
	_, err := beside(collector)
	require.EqualError(t, err, "no "+program+"; set sdk::reader_path")
	require.NoError(t, os.WriteFile(program, nil, 0o600))
	got, err := beside(collector)
	require.NoError(t, err)
	assert.Equal(t, program, got)
	_, err = (&reader{path: "/nowhere/reader"}).program()
	require.ErrorContains(t, err, "no file /nowhere/reader (sdk::reader_path)")
}
