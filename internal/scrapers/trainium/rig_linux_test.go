// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// tooLong catches hangs; nothing here takes near as long.
const tooLong = 20 * time.Second

// fakeTool writes a neuron-monitor. In its body $D is its directory, where it notes its
// pids (one per start), its last configuration, and the mode of that.
func fakeTool(t testing.TB, body string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, toolName)
	writeTool(t, path, fmt.Sprintf(`#!/bin/sh
D='%s'
[ "$1" = -c ] || exit 9
cp "$2" "$D/config"
echo "$2 $(stat -c %%a "$2") $(stat -c %%a "$(dirname "$2")")" > "$D/file"
echo $$ >> "$D/pids"
%s
`, dir, body))
	return path
}

func writeTool(t testing.TB, path, text string) {
	t.Helper()
	// No fork while the file is open for writing: the child would inherit that,
	// and the start of the script would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
}

// pidsOfTool are those of the starts until now.
func pidsOfTool(t testing.TB, tool string) []int {
	t.Helper()
	return pidsIn(t, filepath.Join(filepath.Dir(tool), "pids"))
}

func pidsIn(t testing.TB, file string) []int {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var pids []int
	for line := range strings.Lines(string(text)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && strings.HasSuffix(line, "\n") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// printing is a body that prints lines and goes on without a word.
func printing(lines ...string) string {
	return "cat <<'END'\n" + strings.Join(lines, "\n") + "\nEND\nexec sleep 1000"
}

// aReport is one with a runtime that uses a core.
func aReport(percent float64, bytes int) string {
	return fmt.Sprintf(`{"neuron_runtime_data":[{"pid":7,"neuron_runtime_tag":"7","error":"","report":{`+
		`"neuroncore_counters":{"period":1.0,"neuroncores_in_use":{"0":{"neuroncore_utilization":%v}},"error":""},`+
		`"memory_used":{"period":1.0,"neuron_runtime_used_bytes":{"host":%d,"neuron_device":0},"error":""}}}]}`, percent, bytes)
}

// rig is the family with a tool that is a script.
type rig struct {
	t       testing.TB
	scraper *neuronScraper
	logs    *observer.ObservedLogs
}

// options change what a rig is made of.
type options struct {
	config   Config
	extended bool
	set      func(*scrapers.Settings)
	monitor  func(*monitor)
}

// newRig starts the family below a root. It is stopped with the test, and nothing may
// be left then.
func newRig(t testing.TB, root string, o options) *rig {
	t.Helper()
	set, logs := scraperstest.NewSettings(t, root, o.extended)
	if o.set != nil {
		o.set(&set)
	}
	if o.config.CommonConfig.Timing.CollectionInterval == 0 {
		o.config.CommonConfig.Timing.CollectionInterval = time.Second
	}
	made, err := newScraper(set, &o.config)
	require.NoError(t, err)
	r := &rig{t, made.(*neuronScraper), logs}
	if o.monitor != nil {
		o.monitor(r.monitor())
	}
	require.NoError(t, r.scraper.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		r.shutdown()
		requireNoChildren(t)
	})
	return r
}

// toolRig has a tool with this body, on a machine with a device.
func toolRig(t testing.TB, body string, o options) (r *rig, tool string) {
	t.Helper()
	m := scraperstest.NewMachine(t)
	m.Write("dev/neuron0", "")
	tool = fakeTool(t, body)
	o.config.NeuronMonitorPath = tool
	return newRig(t, m.Root, o), tool
}

func (r *rig) monitor() *monitor { return r.scraper.source.(*monitor) }

func (r *rig) shutdown() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), tooLong)
	defer cancel()
	require.NoError(r.t, r.scraper.Shutdown(ctx))
}

func (r *rig) scrape() (pmetric.Metrics, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), tooLong)
	defer cancel()
	md, err := r.scraper.Scrape(ctx)
	scraperstest.RequireSane(r.t, md)
	return md, err
}

// tags are those of a scrape that has nothing to complain of.
func (r *rig) tags() map[string]float64 {
	r.t.Helper()
	md, err := r.scrape()
	require.NoError(r.t, err)
	return scraperstest.TagsOf(md)
}

// awaitLines waits until so many lines were taken.
func (r *rig) awaitLines(n int) {
	r.t.Helper()
	r.eventually(func() bool {
		lines, _ := r.monitor().Reports()
		return lines >= n
	})
}

func (r *rig) eventually(is func() bool) {
	r.t.Helper()
	require.Eventually(r.t, is, tooLong, 5*time.Millisecond)
}

// requireNoChildren looks for processes whose parent is this one.
func requireNoChildren(t testing.TB) {
	t.Helper()
	assert.Empty(t, childrenOf(t, os.Getpid()))
}

func childrenOf(t testing.TB, parent int) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var children []string
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			children = append(children, string(text))
		}
	}
	return children
}

// isGone tells whether a process is not there, or dead and not reaped by its parent.
func isGone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err != nil || slices.Contains([]string{"Z", "X"}, rest[:1])
}

func (r *rig) requireGone(pids ...int) {
	r.t.Helper()
	require.NotEmpty(r.t, pids)
	for _, pid := range pids {
		require.Eventually(r.t, func() bool { return isGone(pid) }, tooLong, 5*time.Millisecond, "process %d", pid)
	}
}
