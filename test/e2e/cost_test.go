// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A monitor must not be a load itself: it starts no program, keeps open what it
// has open, and uses a small part of a CPU even at ten scrapes a second.
func TestManyScrapesCostLittle(t *testing.T) {
	root, s := startRoot(t, "family"), startSink(t, nil)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 100ms, initial_delay: 0s, extended: true, workloads: {pid: %d}}", root.pid()),
		exporters: s.exporter(),
	})
	scrapes := func() int { return len(s.points().ofMachine().named("memory_percent")) }
	p.waitFor("the first scrapes", func() bool { return scrapes() >= many })
	before, files, began := readProcess(t, p.pid()), openFiles(t, p.pid()), time.Now()
	seen := scrapes()
	p.waitFor("many more", func() bool { return scrapes() >= seen+3*many })
	used := readProcess(t, p.pid()).cpu - before.cpu

	t.Logf("%s of CPU time in %s, %d open files", used, time.Since(began), files)
	assert.Less(t, used, time.Since(began)/2)
	assert.InDelta(t, files, openFiles(t, p.pid()), 3)
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.pid()))
	require.NoError(t, err)
	for _, file := range children {
		if content, err := os.ReadFile(file); err == nil {
			assert.Empty(t, string(content), "no programs are run")
		}
	}
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	return len(entries)
}
