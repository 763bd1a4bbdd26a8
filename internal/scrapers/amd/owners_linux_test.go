// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// ownersRig is the family on a machine with workloads.
type ownersRig struct {
	*gpuScraper
	tree

	logs *observer.ObservedLogs
	now  time.Time
}

const (
	first, second = "0000:05:00.0", "0000:06:00.0"

	engine = "drm-engine-gfx:\t5 ns\n"
)

// twoGPUs is a machine with two GPUs, a process 1000 with a child 1001, and a
// stranger 3000.
func twoGPUs(t testing.TB) tree {
	t.Helper()
	tr := newTree(t)
	tr.add(gpu{pci: first, card: 1, render: 128, node: 1, id: 20000, files: mi300x()})
	tr.add(gpu{pci: second, card: 9, render: 136, node: 2, id: 20001, files: mi300x().with(fileSet{"unique_id": "0011223344556601"})})
	tr.Process(2, 0, "kthreadd")
	tr.Process(1000, 1, "train")
	tr.Process(1001, 1000, "worker")
	tr.Process(3000, 1, "serve")
	return tr
}

// theTree is the target with what it started.
var theTree = workload.Options{Target: scrapers.Target{Pid: 1000, Tree: true}}

// byName makes workloads of processes by their names.
var byName = workload.Options{Match: []workload.Rule{{Name: regexp.MustCompile("^(train|serve)$")}}}

func newOwnersRig(tr tree, o workload.Options, cfg *Config) *ownersRig {
	tr.T.Helper()
	r := &ownersRig{tree: tr, now: time.Unix(1_800_000_000, 0)}
	set, logs := scraperstest.NewSettings(tr.T, tr.Root, true)
	set.DetectionInterval = time.Hour
	o.RootPath = tr.Root
	clock := func() time.Time { return r.now }
	set.Workloads = workload.NewDiscovery(o).WithClock(clock, func() (uint64, error) { return 1_000_000, nil })
	tr.T.Cleanup(set.Workloads.Close)
	made, err := newScraper(set, cfg)
	require.NoError(tr.T, err)
	r.gpuScraper, r.logs = made.(*gpuScraper), logs
	r.kernel().clock = clock
	tr.T.Cleanup(func() { require.NoError(tr.T, r.Shutdown(bounded(tr.T))) })
	return r
}

func (r *ownersRig) kernel() *kernelOwners { return r.owners.(*kernelOwners) }

func (r *ownersRig) scrape() pmetric.Metrics {
	r.T.Helper()
	md, err := r.Scrape(r.T.Context())
	require.NoError(r.T, err)
	scraperstest.RequireSane(r.T, md)
	r.now = r.now.Add(time.Second)
	return md
}

// uses scrapes, and tells who uses which GPU, with how much of its memory.
func (r *ownersRig) uses() map[string]float64 {
	r.T.Helper()
	return usesIn(r.scrape())
}

func usesIn(md pmetric.Metrics) map[string]float64 {
	uses := map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "gpu.process.memoryUsedBytes" {
			uses[fmt.Sprintf("%s on %v", p.Workload, p.Attributes["gpu_index"])] = p.Value()
		}
	}
	return uses
}

func (r *ownersRig) said(message string) int { return r.logs.FilterMessageSnippet(message).Len() }

type usedBytes = map[string]float64

// queue gives a process of the KFD a queue on a GPU.
func (tr tree) queue(pid, number, id int) {
	tr.T.Helper()
	tr.Write(fmt.Sprintf("%s/%d/queues/%d/gpuid", kfdProcesses, pid, number), fmt.Sprintln(id))
}

// listedAlone makes a process of the KFD that has nothing.
func (tr tree) listedAlone(pid int) {
	tr.T.Helper()
	tr.Write(fmt.Sprintf("%s/%d/pasid", kfdProcesses, pid), "32770\n")
}

func TestWhoUsesAGPU(t *testing.T) {
	const kib = "drm-memory-vram:\t%d KiB\n"
	for name, tt := range map[string]struct {
		make func(tr tree)
		want usedBytes
	}{
		"nobody":    {func(tree) {}, usedBytes{}},
		"itself":    {func(tr tree) { tr.computes(1000, map[int]int64{20001: 4096}) }, usedBytes{"pid-1000 on 1": 4096}},
		"a child":   {func(tr tree) { tr.computes(1001, map[int]int64{20000: 8192}) }, usedBytes{"pid-1000 on 0": 8192}},
		"on both":   {func(tr tree) { tr.computes(1001, map[int]int64{20000: 1, 20001: 2}) }, usedBytes{"pid-1000 on 0": 1, "pid-1000 on 1": 2}},
		"a sum":     {func(tr tree) { tr.computes(1000, map[int]int64{20000: 1}); tr.computes(1001, map[int]int64{20000: 2}) }, usedBytes{"pid-1000 on 0": 3}},
		"strangers": {func(tr tree) { tr.computes(3000, map[int]int64{20000: 1}) }, usedBytes{}},
		"a queue":   {func(tr tree) { tr.queue(1001, 0, 20001); tr.queue(1001, 1, 20001) }, usedBytes{"pid-1000 on 1": 0}},
		"no memory": {func(tr tree) { tr.computes(1001, map[int]int64{20000: 0, 20001: 0}) }, usedBytes{}},
		"memory and a queue elsewhere": {
			func(tr tree) { tr.computes(1001, map[int]int64{20000: 0, 20001: 5}); tr.queue(1001, 3, 20000) },
			usedBytes{"pid-1000 on 0": 0, "pid-1000 on 1": 5},
		},
		"a GPU that is not here": {func(tr tree) { tr.computes(1001, map[int]int64{7: 4096}) }, usedBytes{}},
		"nonsense in the KFD's files": {func(tr tree) {
			tr.Write(kfdProcesses+"/1001/vram_20000", "many\n")
			tr.Write(kfdProcesses+"/1001/vram_x", "5\n")
		}, usedBytes{}},
		"a KFD's process that opened all": {func(tr tree) {
			tr.computes(1001, map[int]int64{20000: 4096})
			renders(tr.Machine, 1001, 4, second, "1", fmt.Sprintf(kib, 300)+engine)
		}, usedBytes{"pid-1000 on 0": 4096}},
		"a client's memory": {func(tr tree) { renders(tr.Machine, 1001, 4, second, "1", fmt.Sprintf(kib, 3)) }, usedBytes{"pid-1000 on 1": 3 << 10}},
		"a client's engine": {func(tr tree) { renders(tr.Machine, 1001, 4, strings.ToUpper(second), "1", engine) }, usedBytes{"pid-1000 on 1": 0}},
		"an idle client":    {func(tr tree) { renders(tr.Machine, 1001, 4, second, "1", "drm-memory-gtt:\t9 KiB\n") }, usedBytes{}},
		"an old kernel": {func(tr tree) {
			descriptor(tr.Machine, 1001, 4, "/dev/dri/renderD136", "pdev:\t"+second+"\npasid:\t1\nvram mem:\t4 kB\ngfx0:\t1.2%\n")
		}, usedBytes{"pid-1000 on 1": 4 << 10}},
		"another driver": {func(tr tree) {
			descriptor(tr.Machine, 1001, 4, "/dev/dri/renderD136", "drm-driver:\txe\ndrm-pdev:\t"+second+"\ndrm-client-id:\t1\n"+engine)
		}, usedBytes{}},
		"a client that is shared": {func(tr tree) {
			renders(tr.Machine, 1000, 4, first, "1", fmt.Sprintf(kib, 3))
			renders(tr.Machine, 1000, 5, first, "1", fmt.Sprintf(kib, 3))
			renders(tr.Machine, 1001, 4, first, "1", fmt.Sprintf(kib, 3))
			renders(tr.Machine, 1001, 5, first, "2", fmt.Sprintf(kib, 5))
			renders(tr.Machine, 1001, 6, second, "1", fmt.Sprintf(kib, 7))
		}, usedBytes{"pid-1000 on 0": 8 << 10, "pid-1000 on 1": 7 << 10}},
		"compute and graphics": {func(tr tree) {
			tr.computes(1000, map[int]int64{20000: 4096})
			renders(tr.Machine, 1001, 4, first, "1", fmt.Sprintf(kib, 4))
		}, usedBytes{"pid-1000 on 0": 8192}},
		"listed without a GPU, with memory": {func(tr tree) {
			tr.listedAlone(1001)
			renders(tr.Machine, 1001, 4, second, "1", fmt.Sprintf(kib, 300))
		}, usedBytes{}},
		"listed without a GPU, at work": {func(tr tree) {
			tr.listedAlone(1001)
			renders(tr.Machine, 1001, 4, first, "1", fmt.Sprintf(kib, 300))
			renders(tr.Machine, 1001, 5, second, "2", fmt.Sprintf(kib, 3)+engine)
		}, usedBytes{"pid-1000 on 1": 3 << 10}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := twoGPUs(t)
			tt.make(tr)
			r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
			assert.Equal(t, tt.want, r.uses())
			assert.Equal(t, tt.want, r.uses(), "once more")
		})
	}
}

// Each workload gets the whole figures of the GPUs that it uses.
func TestTwoWorkloadsOnOneGPU(t *testing.T) {
	tr := twoGPUs(t)
	tr.computes(1001, map[int]int64{20000: 4096})
	tr.computes(3000, map[int]int64{20000: 100, 20001: 200})
	r := newOwnersRig(tr, byName, &Config{Source: sourceSysfs})
	md := r.scrape()
	uses := usesIn(md)
	require.Len(t, uses, 3, "%v", uses)
	figures := map[string]map[string]float64{}
	for _, p := range scraperstest.PointsOf(md) {
		if p.Attributes["gpu_index"] != int64(0) {
			continue
		}
		if figures[p.Workload] == nil {
			figures[p.Workload] = map[string]float64{}
		}
		name := p.Metric.Name()
		if p.Workload != "" {
			require.True(t, strings.HasPrefix(name, "gpu.process."), name)
			name = "gpu." + strings.TrimPrefix(name, "gpu.process.")
		}
		if _, isSensor := p.Attributes["sensor"]; !isSensor || strings.HasSuffix(name, ".temp") {
			figures[p.Workload][name] = p.Value()
		}
	}
	require.Len(t, figures, 3)
	for who, f := range figures {
		if who == "" {
			continue
		}
		assert.Contains(t, f, "gpu.memoryUsedBytes")
		delete(f, "gpu.memoryUsedBytes")
		for name, v := range f {
			assert.InDelta(t, figures[""][name], v, 0, name)
		}
		for _, name := range []string{"gpu", "memoryAllocated", "temp", "powerWatts", "powerPercent", "memoryReadWriteActivity", "graphicsClock"} {
			assert.Contains(t, f, "gpu."+name)
		}
	}
}

// The KFD tells partitions apart; descriptors do not.
func TestWhoUsesAPartition(t *testing.T) {
	tr := newTree(t)
	for i := range 3 {
		g := gpu{pci: first, card: i, render: 128 + i, node: 1 + i, id: 20000 + i, partition: i, bank: gib, files: mi300x()}
		if i > 0 {
			g.platform, g.files = fmt.Sprintf("amdgpu_xcp_%d", i-1), nil
		}
		tr.add(g)
	}
	tr.Process(2, 0, "kthreadd")
	tr.Process(1000, 1, "train")
	tr.Process(1001, 1000, "render")
	tr.computes(1000, map[int]int64{20002: gib / 4})
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	assert.Equal(t, usedBytes{"pid-1000 on 2": float64(gib / 4)}, r.uses())
	renders(tr.Machine, 1001, 4, first, "1", engine)
	r.now = r.now.Add(idleRecheck)
	md := r.scrape()
	assert.Equal(t, usedBytes{"pid-1000 on 2": float64(gib / 4), "pid-1000 on 0": 0}, usesIn(md))
	parents := map[any]any{}
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "gpu.process.memoryAllocated" {
			parents[p.Attributes["gpu_index"]] = p.Attributes["gpu_parent"]
		}
	}
	assert.Equal(t, map[any]any{int64(0): nil, int64(2): "0011223344556600"}, parents)
}

// A partition that is not read does not shift those after it.
func TestDeviceOfAReading(t *testing.T) {
	u := &usage{}
	for i, pci := range []string{first, first, first, second} {
		u.devices = append(u.devices, &device{place: place{pci: pci}, index: i})
	}
	of := func(own bool, cards ...card.Reading) []int {
		r := &reading{ownIndices: own}
		for i := range cards {
			r.cards = append(r.cards, cardReading{Reading: cards[i]})
		}
		var all []int
		for i := range r.cards {
			all = append(all, u.deviceOf(r, i))
		}
		return all
	}
	assert.Equal(t, []int{1, 3}, of(true, card.Reading{Index: 1, PCI: first}, card.Reading{Index: 3, PCI: second}))
	assert.Equal(t, []int{3, 0, 1, -1, -1}, of(false, card.Reading{Index: 0, PCI: second}, card.Reading{Index: 1, PCI: first},
		card.Reading{Index: 2, PCI: first}, card.Reading{Index: 3, PCI: "0000:07:00.0"}, card.Reading{Index: 4}))
}

// The KFD's pids are the machine's. Where some are unknown twice they are not
// ours, and descriptors have to do.
func TestForeignNamespace(t *testing.T) {
	tr := twoGPUs(t)
	tr.Remove("proc/2")
	tr.computes(1000, map[int]int64{20000: 4096})
	tr.computes(777777, map[int]int64{20001: 4096})
	renders(tr.Machine, 1001, 4, second, "1", engine)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	assert.Equal(t, usedBytes{"pid-1000 on 0": 4096, "pid-1000 on 1": 0}, r.uses(), "processes come and go")
	assert.Zero(t, r.said("by their descriptors only"))
	for range 3 {
		assert.Equal(t, usedBytes{"pid-1000 on 1": 0}, r.uses())
	}
	assert.Equal(t, 1, r.said("by their descriptors only"))
	tr.Remove(kfdProcesses + "/777777")
	assert.Equal(t, usedBytes{"pid-1000 on 0": 4096, "pid-1000 on 1": 0}, r.uses(), "all are known")
}

func TestUnknownPidsWhereTheMachineIsSeen(t *testing.T) {
	tr := twoGPUs(t)
	tr.computes(1000, map[int]int64{20000: 4096})
	tr.computes(777777, map[int]int64{20001: 4096})
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	for range 4 {
		assert.Equal(t, usedBytes{"pid-1000 on 0": 4096}, r.uses())
	}
	assert.Zero(t, r.said("by their descriptors only"))
}

// Without a root path our own namespace tells at once whether it is the machine's.
func TestOwnNamespace(t *testing.T) {
	r := newOwnersRig(twoGPUs(t), theTree, &Config{Source: sourceSysfs})
	o := r.kernel()
	o.rootPath = ""
	known := func(int) bool { return true }
	want := gpus.SeesMachine("")
	for range 2 {
		assert.Equal(t, want, o.sees(known, []int{1}))
	}
	assert.Equal(t, want, r.said("by their descriptors only") == 0)
}

// Processes that hold a GPU are workloads of their own, as soon as they do.
func TestHoldersAreTold(t *testing.T) {
	tr := twoGPUs(t)
	r := newOwnersRig(tr, workload.Options{Discover: workload.Discover{GPU: true}}, &Config{Source: sourceSysfs})
	assert.Empty(t, r.uses())
	tr.computes(3000, map[int]int64{20001: 4096})
	tr.listedAlone(1000)
	uses := r.uses()
	require.Len(t, uses, 1)
	for who, bytes := range uses {
		assert.Contains(t, who, "3000")
		assert.InDelta(t, 4096, bytes, 0)
	}
	tr.Remove(kfdProcesses + "/3000")
	assert.Empty(t, r.uses())
}

// Who holds GPUs is what the list of processes says, whatever the GPUs answer.
// Without the list those that were told are still the ones.
func TestHoldersOfACutReading(t *testing.T) {
	tr := twoGPUs(t)
	tr.computes(3000, map[int]int64{20001: 4096})
	r := newOwnersRig(tr, workload.Options{Discover: workload.Discover{GPU: true}}, &Config{Source: sourceSysfs})
	require.Len(t, r.uses(), 1)
	cut := &reading{cards: []cardReading{{Reading: card.Reading{Index: 0, PCI: first}}}, ownIndices: true}
	_, err := r.owners.of(t.Context(), cut)
	require.NoError(t, err)
	workloads := func() int {
		view, err := r.kernel().workloads.Take(t.Context())
		require.NoError(t, err)
		return len(view.Workloads)
	}
	assert.Equal(t, 1, workloads())
	cut.processes = optional.Some([]kfdProcess(nil))
	_, err = r.owners.of(t.Context(), cut)
	require.NoError(t, err)
	assert.Zero(t, workloads())
}

// A process without a GPU is left alone for a while.
func TestIdleProcesses(t *testing.T) {
	tr := twoGPUs(t)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	assert.Empty(t, r.uses())
	begun := r.now
	renders(tr.Machine, 1001, 4, first, "1", engine)
	r.now = begun.Add(idleRecheck - 2*time.Second)
	assert.Empty(t, r.uses())
	r.now = begun.Add(idleRecheck)
	want := usedBytes{"pid-1000 on 0": 0}
	assert.Equal(t, want, r.uses())
	assert.Equal(t, want, r.uses(), "it is looked at each time now")
	tr.Remove("proc/1001/fd")
	assert.Empty(t, r.uses())

	renders(tr.Machine, 1001, 4, first, "1", engine)
	r.now = r.now.Add(-time.Minute)
	assert.Equal(t, want, r.uses(), "the clock was set back")
}

// Compute counts at once, idle or not.
func TestIdleProcessComputes(t *testing.T) {
	tr := twoGPUs(t)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	assert.Empty(t, r.uses())
	tr.computes(1001, map[int]int64{20000: 7})
	assert.Equal(t, usedBytes{"pid-1000 on 0": 7}, r.uses())
}

// asNobody gives up the right to look into others' processes until the end of the
// test.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	require.NoError(t, syscall.Seteuid(65534))
	t.Cleanup(func() { require.NoError(t, syscall.Seteuid(0)) })
}

func TestNoRightToLookIsSaidOnce(t *testing.T) {
	tr := twoGPUs(t)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	renders(tr.Machine, 1000, 4, first, "1", engine)
	require.NoError(t, os.Chmod(filepath.Join(tr.Root, "proc/1000/fd"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(tr.Root, "proc/1000/fd"), 0o700) })
	asNobody(t)
	for range 2 {
		clients, err := r.kernel().clients(t.Context(), []*workload.Process{{Pid: 1000, Start: 1}}, &usage{})
		require.NoError(t, err)
		assert.Empty(t, clients)
		r.now = r.now.Add(idleRecheck)
	}
	assert.Equal(t, 1, r.said("cannot be looked into"))
}

// A process that is stuck in the kernel is not looked into: that could hang.
func TestStuckProcessesAreNotLookedInto(t *testing.T) {
	tr := twoGPUs(t)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	renders(tr.Machine, 1000, 4, first, "1", engine)
	clients, err := r.kernel().clients(t.Context(), []*workload.Process{{Pid: 1000, Blocked: true}}, &usage{})
	require.NoError(t, err)
	assert.Empty(t, clients)
	assert.Empty(t, r.kernel().idle)
}

// A look that hangs is an error of the attribution; the GPUs' own figures are there.
func TestLookThatHangs(t *testing.T) {
	tr := twoGPUs(t)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	hang, cancel := context.WithCancel(t.Context())
	ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	_, err := guard.Call(ctx, &r.kernel().looking, func(context.Context) (looked, error) { <-hang.Done(); return looked{}, nil })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	tags, errs := scrapeTags(t, r)
	require.Len(t, errs, 1)
	requireFault(t, "attribution of processes", "", errs[0])
	require.ErrorIs(t, errs[0], guard.ErrHung)
	assert.Contains(t, tags, "gpu.1.gpu")
	cancel()
	require.True(t, r.kernel().looking.Settle(bounded(t)))
	_, errs = scrapeTags(t, r)
	assert.Empty(t, errs)
}

// Without the list it is not known who computes: the memory of a descriptor may be
// the page tables that the runtime has on each GPU.
func TestKFDProcessesCannotBeListed(t *testing.T) {
	tr := twoGPUs(t)
	renders(tr.Machine, 3000, 4, first, "1", "drm-memory-vram:\t300 KiB\n")
	tr.Write(kfdProcesses, "not a folder")
	r := newOwnersRig(tr, theTree, &Config{Source: sourceSysfs})
	tags, errs := scrapeTags(t, r)
	require.Len(t, errs, 1)
	requireFault(t, "processes of the KFD", "listing the processes of the KFD", errs[0])
	assert.Contains(t, tags, "gpu.1.gpu")
	assert.NotContains(t, tags, "gpu.process.0.gpu")
}

// The kernel tells who uses what whatever the source is; the address joins them.
func TestWhoUsesTheGPUsOfATool(t *testing.T) {
	tr := twoGPUs(t)
	tr.computes(1001, map[int]int64{20001: 4096})
	tool := newProgram(t, t.TempDir(), "rocm-smi",
		`echo '{"card0": {"GPU use (%)": "80", "PCI Bus": "0000:06:00.0"}, "card1": {"GPU use (%)": "10", "PCI Bus": "0000:05:00.0"}, "card2": {"GPU use (%)": "1"}}'`)
	r := newOwnersRig(tr, theTree, &Config{Source: sourceROCmSMI, ROCmSMIPath: tool.path})
	md := r.scrape()
	assert.Equal(t, usedBytes{"pid-1000 on 0": 4096}, usesIn(md))
	for _, p := range scraperstest.PointsOf(md) {
		if p.Metric.Name() == "gpu.process.gpu" {
			assert.InDelta(t, 80, p.Value(), 0)
		}
	}
}

// Nobody is asked for where there is no workload, or nothing to tell it.
func TestOwnersAreOffUnlessNeeded(t *testing.T) {
	of := func(change func(set *scrapers.Settings)) owners {
		set, _ := scraperstest.NewSettings(t, t.TempDir(), false)
		set.Workloads = workload.NewDiscovery(theTree)
		change(&set)
		return newOwners(set, &Config{}, newSysfs(set))
	}
	off := func(set *scrapers.Settings) { scraperstest.SwitchAll(&set.Metrics.Metrics, false) }
	assert.NotNil(t, of(func(*scrapers.Settings) {}))
	assert.Nil(t, of(off))
	assert.Nil(t, of(func(set *scrapers.Settings) { set.Workloads = nil }))
	assert.Nil(t, of(func(set *scrapers.Settings) { set.Workloads = workload.NewDiscovery(workload.Options{}) }))
	assert.NotNil(t, of(func(set *scrapers.Settings) {
		off(set)
		set.Workloads = workload.NewDiscovery(workload.Options{Discover: workload.Discover{GPU: true}})
	}), "others want to know the holders")
}

// The memory of a workload's processes has no part in what is on by default.
func TestMemoryOfProcessesIsExtended(t *testing.T) {
	m := metadata.NewDefaultMetricsBuilderConfig().Metrics
	assert.False(t, m.GpuProcessMemoryUsedBytes.Enabled)
	u := &usage{
		devices: []*device{{place: place{pci: first, gpuID: 5}}},
		kfd:     []kfdProcess{{pid: 1, gpus: []kfdGPU{{id: 5, memory: 3}, {id: 6, memory: 9}}}},
	}
	r := &reading{cards: []cardReading{{Reading: card.Reading{PCI: first}}}}
	assert.Equal(t, []usedGPU{{card: &r.cards[0], memory: optional.Some[int64](3)}}, u.of([]int{1, 2}, r))
}
