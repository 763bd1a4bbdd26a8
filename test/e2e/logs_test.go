// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// many scrapes, in which what lasts must not be said again.
const many = 15

// hostLines leaves out what other components say, such as an exporter that comes
// too late on a busy machine.
func hostLines(p *process, level string) []logLine { return familyLines(p, "host", level) }

func familyLines(p *process, family, level string) []logLine {
	var lines []logLine
	for _, line := range p.logLines(level) {
		if line.Family == family {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestAMissingDiskPathIsLoggedOnce(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "mnt")
	s := startSink(t, nil)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 200ms, initial_delay: 0s, scrapers: {host: {disk_paths: [/, " + missing + "]}}}",
		exporters: s.exporter(),
	})
	scrapes := func() int { return len(s.points().ofMachine().named("memory_percent")) }
	p.waitFor("many scrapes", func() bool { return scrapes() >= many })

	errs := hostLines(p, "error")
	require.Len(t, errs, 1)
	assert.Equal(t, "statfs "+missing+": no such file or directory", errs[0].Error)
	assert.Empty(t, hostLines(p, "warn"))
	assert.Len(t, s.points().named("disk.usageGB").with("path", "/"), scrapes(), "the other path goes on")
	assert.Empty(t, s.points().named("disk.usageGB").with("path", missing))

	require.NoError(t, os.Mkdir(missing, 0o700))
	p.waitFor("the path that is there now", func() bool {
		return len(s.points().named("disk.usageGB").with("path", missing)) > 0
	})
	assert.Len(t, hostLines(p, "error"), 1)
}

func TestAProcessThatEndsIsLoggedOnce(t *testing.T) {
	target := startHelper(t, "idle")
	s := startSink(t, nil)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 200ms, initial_delay: 0s, workloads: {pid: %d}}", target.pid()),
		exporters: s.exporter(),
	})
	p.waitFor("metrics of the process", func() bool { return len(s.points().ofPid(target.pid()).named("cpu")) > 0 })
	target.kill()
	p.waitFor("the warning", func() bool { return len(hostLines(p, "warn")) > 0 })
	last, scrapes := len(s.points().ofPid(target.pid())), len(s.points().ofMachine().named("memory_percent"))
	p.waitFor("many scrapes of the machine", func() bool {
		return len(s.points().ofMachine().named("memory_percent")) >= scrapes+many
	})

	warnings := hostLines(p, "warn")
	require.Len(t, warnings, 1)
	assert.Equal(t, "Target is gone", warnings[0].Msg)
	assert.Equal(t, fmt.Sprintf("process %d is gone", target.pid()), warnings[0].What)
	assert.Empty(t, hostLines(p, "error"))
	assert.Len(t, s.points().ofPid(target.pid()), last, "no stale repeats")
}

// A process that ended before the start is a mistake of the configuration.
func TestAProcessThatNeverWasIsRefused(t *testing.T) {
	target := startHelper(t, "idle")
	target.kill()
	section := fmt.Sprintf("receivers::wandbsys::workloads::pid: %d", target.pid())
	_, stderr, code := run(t, nil, "--config=yaml:"+oneLine, "--config=yaml:"+section)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, fmt.Sprintf("workloads: pid: there is no process %d below /proc; name one that runs", target.pid()))
}
