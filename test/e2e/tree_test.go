// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// treeInterval is short, so that much happens between two scrapes and over many.
const treeInterval = 500 * time.Millisecond

// treeRoot is a helper with descendants.
type treeRoot struct {
	*process
	input io.Writer
}

func startRoot(t *testing.T, role string) treeRoot {
	t.Helper()
	p, input := startHelperWithInput(t, role)
	return treeRoot{p, input}
}

// said returns the duration that a helper printed behind a word.
func (r treeRoot) said(word string) (time.Duration, bool) {
	m := regexp.MustCompile(`(?m)^` + word + ` (\d+)$`).FindStringSubmatch(r.stdout.String())
	if m == nil {
		return 0, false
	}
	us, err := strconv.Atoi(m[1])
	require.NoError(r.t, err)
	return time.Duration(us) * time.Microsecond, true
}

// of keeps the points of one receiver's process.
func (ps points) of(host string, pid int) points {
	return ps.from(host).ofPid(pid)
}

// total adds up cpu over the scrapes: CPU time again.
func total(ps points, capacity float64) time.Duration {
	scrapes, sum := ps.named("proc.cpu.threads"), 0.0
	for _, p := range ps.named("cpu") {
		for i := 1; i < len(scrapes); i++ {
			if scrapes[i].at.Equal(p.at) {
				sum += p.value / 100 * float64(p.at.Sub(scrapes[i-1].at)) * capacity
			}
		}
	}
	return time.Duration(sum)
}

// treeSlack is what ticks, which are whole, and the time between the reading and
// its points may make on a machine that is calm.
const treeSlack = 100 * time.Millisecond

// pace returns the longest time between two scrapes, and by how much one came too
// early or late: by as much may a point's time be off that of its reading.
func pace(ps points) (longest, off time.Duration) {
	scrapes := ps.named("proc.cpu.threads")
	for i := 1; i < len(scrapes); i++ {
		gap := scrapes[i].at.Sub(scrapes[i-1].at)
		longest, off = max(longest, gap), max(off, (gap-treeInterval).Abs())
	}
	return longest, off
}

// cpuRoots are the trees; without is a receiver that looks at one of their roots
// alone.
var cpuRoots = []string{"fork", "exec", "quick", "torchrun", "late", "orphan"}

const without = "fork"

func TestCPUOfTreesIsWhatTheKernelCounted(t *testing.T) {
	s, roots := startSink(t, nil), map[string]treeRoot{}
	var receivers strings.Builder
	add := func(host string, pid int, tree bool) {
		fmt.Fprintf(&receivers, "wandbsys/%s: {collection_interval: %s, initial_delay: 0s, host_name: %s, workloads: {pid: %d, track_process_tree: %t}}\n",
			host, treeInterval, host, pid, tree)
	}
	for _, role := range cpuRoots {
		roots[role] = startRoot(t, role)
		add(role, roots[role].pid(), true)
	}
	add("alone", roots[without].pid(), false)
	p := startCollector(t, settings{receivers: receivers.String(), exporters: s.exporter()})

	of := func(host, role string) points { return s.points().of(host, roots[role].pid()) }
	for role, root := range roots {
		p.waitFor("two scrapes of "+role, func() bool { return len(of(role, role).named("cpu")) >= 1 })
		_, err := io.WriteString(root.input, "go\n")
		require.NoError(t, err)
	}
	for role, root := range roots {
		p.waitFor("the end of the work of "+role, func() bool { _, done := root.said("done"); return done })
	}
	p.waitFor("the end of the orphan", func() bool { _, done := roots["orphan"].said("end of the orphan"); return done })
	for role := range roots {
		seen := len(of(role, role).named("cpu"))
		p.waitFor("two more scrapes of "+role, func() bool { return len(of(role, role).named("cpu")) >= seen+2 })
	}

	capacity := allowedCPUs(t, p.pid())
	for role, root := range roots {
		t.Run(role, func(t *testing.T) {
			counted, _ := root.said("done")
			longest, off := pace(of(role, role))
			slack, lost := treeSlack+off, time.Duration(0)
			if role == "orphan" {
				// What the child did while it was in the tree, but for the interval in
				// which it left.
				left, _ := root.said("left")
				counted += left
				lost = longest
			}
			got := total(of(role, role), capacity)
			t.Logf("%s: counted %s, the kernel %s, scrapes off by %s", role, got, counted, off)
			assert.LessOrEqual(t, got, counted+slack, "never above what there was")
			assert.GreaterOrEqual(t, got, counted-counted/10-slack-lost, "nothing that ends is lost")
		})
	}
	t.Run("the root alone", func(t *testing.T) {
		tree, alone := total(of(without, without), capacity), total(of("alone", without), capacity)
		assert.Less(t, alone, tree/2)
		assert.Greater(t, alone, 200*time.Millisecond, "its own work")
	})
}

func TestMemoryAndThreadsOfATree(t *testing.T) {
	root, s := startRoot(t, "family"), startSink(t, nil)
	pids := []int{root.pid()}
	_, line, _ := strings.Cut(root.stdout.String(), "children ")
	line, _, _ = strings.Cut(line, "\n")
	for field := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	require.Len(t, pids, 4)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf(`
wandbsys/tree: {collection_interval: 1s, initial_delay: 0s, host_name: tree, workloads: {pid: %d}, metrics: {proc.memory.pssMB: {enabled: true}}}
wandbsys/alone: {collection_interval: 1s, initial_delay: 0s, host_name: alone, workloads: {pid: %[1]d, track_process_tree: false}}
`, root.pid()),
		exporters: s.exporter(),
	})
	of := func(host, name string) points { return s.points().of(host, root.pid()).named(name) }
	p.waitFor("scrapes of both", func() bool {
		return len(of("tree", "proc.memory.rssMB")) >= 2 && len(of("alone", "proc.memory.rssMB")) >= 2
	})
	own := readProcess(t, root.pid())
	var threads, rss float64
	for _, pid := range pids {
		one := readProcess(t, pid)
		threads, rss = threads+one.threads, rss+one.rss
	}
	assert.InDelta(t, threads, of("tree", "proc.cpu.threads").last().value, 4)
	assert.InDelta(t, rss/mebi, of("tree", "proc.memory.rssMB").last().value, 8)
	assert.InDelta(t, own.threads, of("alone", "proc.cpu.threads").last().value, 2)
	assert.InDelta(t, own.rss/mebi, of("alone", "proc.memory.rssMB").last().value, 4)
	t.Run("what the processes share counts once in PSS", func(t *testing.T) {
		pss := of("tree", "proc.memory.pssMB")
		require.NotEmpty(t, pss)
		assert.Greater(t, pss.last().value, float64(3*childMemory)/mebi)
		assert.Less(t, pss.last().value, of("tree", "proc.memory.rssMB").last().value)
	})
}
