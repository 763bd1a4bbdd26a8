// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// threeGPUs is a machine with three MI300X.
func threeGPUs(t testing.TB) tree {
	t.Helper()
	tr := newTree(t)
	for i, pci := range threeAddresses {
		tr.add(gpu{
			pci: pci, card: 1 + i, render: 128 + i, node: 1 + i, id: 20000 + i, bank: 192 * gib, target: 90402,
			files: mi300x().with(fileSet{"unique_id": "001122334455660" + string(rune('0'+i))}),
		})
	}
	return tr
}

var threeAddresses = []string{"0000:05:00.0", "0000:26:00.0", "0000:46:00.0"}

// remove takes a GPU off the bus.
func (tr tree) remove(i int) {
	tr.T.Helper()
	tr.Remove("sys/devices/pci0000:00/" + threeAddresses[i])
	tr.Remove(nodesFolder + "/" + string(rune('1'+i)))
}

func TestAMachineWithoutGPUsIsNoTrouble(t *testing.T) {
	s, _ := newTree(t).scraper(false)
	tags, troubles := scrapeTags(t, s)
	assert.Empty(t, tags)
	require.Len(t, troubles, 1)
	var absent *scrapers.AbsentError
	require.ErrorAs(t, troubles[0], &absent)
	assert.Equal(t, "no AMD GPU: no GPU of the amdgpu driver in /sys", absent.Reason)
}

// A GPU that leaves does not change the numbers of the others until the GPUs are
// listed anew; nor does one that comes.
func TestGPUsKeepTheirNumbersBetweenListings(t *testing.T) {
	tr := threeGPUs(t)
	s, logs := tr.scraper(false)
	clock := stopClock(s)
	tags, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	scraperstest.CompareTags(t, "at first", joined(wantMI300X(0), wantMI300X(1), wantMI300X(2)), tags)

	tr.remove(1)
	clock.advance(detectionInterval - 1)
	tags, troubles = scrapeTags(t, s)
	scraperstest.CompareTags(t, "one left", joined(wantMI300X(0), wantMI300X(2)), tags)
	require.Len(t, troubles, 1)
	require.ErrorContains(t, troubles[0], "GPU 1 (0000:26:00.0): ")
	assert.Empty(t, changes(logs))

	clock.advance(1)
	tags, troubles = scrapeTags(t, s)
	require.Empty(t, troubles)
	scraperstest.CompareTags(t, "listed anew", joined(wantMI300X(0), wantMI300X(1)), tags)
	assert.Equal(t, []map[string]any{{"before": int64(3), "now": int64(2)}}, changes(logs))

	tr.add(gpu{pci: "0000:01:00.0", card: 7, files: mi300x()})
	tags, _ = scrapeTags(t, s)
	assert.Len(t, tags, 10)
	clock.advance(detectionInterval)
	tags, _ = scrapeTags(t, s)
	assert.Len(t, tags, 15)
	assert.Len(t, changes(logs), 1)

	clock.advance(detectionInterval)
	_, _ = scrapeTags(t, s)
	assert.Empty(t, changes(logs), "nothing changed")
}

// changes takes the log lines of changes.
func changes(logs *observer.ObservedLogs) []map[string]any {
	var all []map[string]any
	for _, e := range logs.FilterMessage("The list of GPUs changed").All() {
		all = append(all, e.ContextMap())
	}
	logs.TakeAll()
	return all
}

// A clock that was set back must not keep an old list for ever.
func TestAClockThatIsSetBackListsAnew(t *testing.T) {
	tr := threeGPUs(t)
	s, logs := tr.scraper(false)
	clock := stopClock(s)
	_, _ = scrapeTags(t, s)
	tr.remove(2)
	clock.advance(-time.Hour)
	_, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	assert.Len(t, changes(logs), 1)
}

// hang makes a file that never answers, and returns what lets it answer.
func (tr tree) hang(name string) (release func()) {
	tr.T.Helper()
	path := filepath.Join(tr.Root, name)
	require.NoError(tr.T, os.RemoveAll(path))
	require.NoError(tr.T, unix.Mkfifo(path, 0o600))
	return func() {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		require.NoError(tr.T, err, "nobody reads")
		require.NoError(tr.T, os.Remove(path))
		require.NoError(tr.T, unix.Close(fd))
	}
}

// short is how long a scrape may take that meets what hangs: enough for what does
// not, on a busy machine too.
const short = time.Second

// scrapeBriefly scrapes with little time.
func scrapeBriefly(t *testing.T, s *gpuScraper) (map[string]float64, []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	md, err := s.Scrape(ctx)
	scraperstest.RequireSane(t, md)
	return scraperstest.TagsOf(md), troublesOf(err)
}

func TestADeviceThatHangsLeavesTheOthersAlone(t *testing.T) {
	tr := threeGPUs(t)
	const name = "sys/devices/pci0000:00/0000:26:00.0/gpu_busy_percent"
	release := tr.hang(name)
	s, logs := tr.scraper(false)
	clock := stopClock(s)
	others := joined(wantMI300X(0), wantMI300X(2))

	tags, troubles := scrapeBriefly(t, s)
	scraperstest.CompareTags(t, "first", others, tags)
	require.Len(t, troubles, 1)
	require.ErrorContains(t, troubles[0], "GPU 1 (0000:26:00.0): its driver does not answer: ")

	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	assert.False(t, s.source.read(ctx, s.want).complete, "whether it is still there is not known")
	for range 5 {
		tags, troubles = scrapeBriefly(t, s)
		scraperstest.CompareTags(t, "later", others, tags)
		require.Len(t, troubles, 1)
		require.ErrorIs(t, troubles[0], guard.ErrHung)
	}
	clock.advance(detectionInterval)
	tags, troubles = scrapeBriefly(t, s)
	scraperstest.CompareTags(t, "listed anew", others, tags)
	require.Len(t, troubles, 1)
	assert.Empty(t, changes(logs))
	assert.Equal(t, 1, readsInProgress(), "one goroutine is left behind, and no more")

	release()
	tr.Write(name, "33\n")
	settle(t, s, 1)
	tags, troubles = scrapeBriefly(t, s)
	require.Empty(t, troubles)
	scraperstest.CompareTags(t, "recovered", joined(others, wantMI300X(1), map[string]float64{"gpu.1.gpu": 33}), tags)
}

// readsInProgress counts the goroutines that read a device.
func readsInProgress() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "amd.(*device).read(")
}

// settle waits until a device's read came back.
func settle(t *testing.T, s *gpuScraper, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.True(t, sysfsOf(s).devices[i].slot.Settle(ctx))
}

// A scraper ends although a device hangs.
func TestShutdownDoesNotWaitForADeviceThatHangs(t *testing.T) {
	tr := threeGPUs(t)
	release := tr.hang("sys/devices/pci0000:00/0000:26:00.0/gpu_busy_percent")
	s, _ := tr.scraper(false)
	_, _ = scrapeBriefly(t, s)
	devices := sysfsOf(s).devices
	require.NoError(t, s.Shutdown(t.Context()))
	release()
	require.True(t, devices[1].slot.Settle(t.Context()))
}

func TestAListingThatHangsIsATroubleOfTheSource(t *testing.T) {
	tr := threeGPUs(t)
	const name = nodesFolder + "/2/gpu_id"
	release := tr.hang(name)
	s, _ := tr.scraper(false)
	for _, want := range []error{context.DeadlineExceeded, guard.ErrHung} {
		tags, troubles := scrapeBriefly(t, s)
		assert.Empty(t, tags)
		require.Len(t, troubles, 1)
		require.ErrorIs(t, troubles[0], want)
		var source *scrapers.SourceError
		require.ErrorAs(t, troubles[0], &source)
		assert.Equal(t, "sysfs", source.Source)
	}
	release()
	tr.Write(name, "20001\n")
	require.True(t, sysfsOf(s).listing.Settle(t.Context()))
	tags, troubles := scrapeBriefly(t, s)
	require.Empty(t, troubles)
	assert.Len(t, tags, 15)
}

// The GPUs that are known go on, also in the scrape that finds out.
func TestAListingThatHangsLaterLeavesTheGPUsThatAreKnown(t *testing.T) {
	tr := threeGPUs(t)
	s, logs := tr.scraper(false)
	clock := stopClock(s)
	_, _ = scrapeTags(t, s)
	const name = nodesFolder + "/2/gpu_id"
	release := tr.hang(name)
	clock.advance(detectionInterval)
	for range 2 {
		tags, troubles := scrapeBriefly(t, s)
		require.Len(t, troubles, 1)
		require.ErrorContains(t, troubles[0], "sysfs: ")
		scraperstest.CompareTags(t, "known", joined(wantMI300X(0), wantMI300X(1), wantMI300X(2)), tags)
	}
	release()
	require.True(t, sysfsOf(s).listing.Settle(t.Context()))
	tr.Write(name, "20001\n")
	tr.remove(0)
	tags, troubles := scrapeBriefly(t, s)
	require.Empty(t, troubles)
	scraperstest.CompareTags(t, "listed anew", joined(wantMI300X(0), wantMI300X(1)), tags)
	assert.Len(t, changes(logs), 1)
}

func TestTheMachineIsToldItsGPUs(t *testing.T) {
	tr := threeGPUs(t)
	tr.Write("sys/module/amdgpu/version", "6.8.5\n")
	s, _ := tr.scraper(true)
	_, _ = scrapeTags(t, s)
	r := s.source.read(t.Context(), s.want)
	assert.Equal(t, identity.GPUs{Count: 3, Type: "gfx942", DriverVersion: "6.8.5"}, r.gpus)
	assert.True(t, r.complete)
}

// A counter begins anew when its GPU was away, and not when others come and go.
func TestCountersBeginAnewWhenTheirGPUReturns(t *testing.T) {
	tr := threeGPUs(t)
	s, _ := tr.scraper(true)
	clock := stopClock(s)
	startsOf := func() map[any]time.Time {
		clock.advance(detectionInterval)
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		starts := map[any]time.Time{}
		for _, p := range scraperstest.PointsOf(md) {
			if p.Metric.Name() == "gpu.pcieReplays" {
				starts[p.Attributes["gpu_uuid"]] = p.Data.StartTimestamp().AsTime()
			}
		}
		return starts
	}
	first := startsOf()
	require.Len(t, first, 3)
	tr.remove(2)
	without := startsOf()
	require.Len(t, without, 2)
	tr.add(gpu{
		pci: threeAddresses[2], card: 3, render: 130, node: 3, id: 20002, target: 90402,
		files: mi300x().with(fileSet{"unique_id": "0011223344556602"}),
	})
	again := startsOf()
	for uuid, start := range first {
		if uuid == "0011223344556602" {
			assert.True(t, again[uuid].After(start), "it was away")
			continue
		}
		assert.Equal(t, start, without[uuid])
		assert.Equal(t, start, again[uuid])
	}
}

// Descriptors count once for all processes of a workload, and of one that computes
// only those that worked: its runtime has some memory on every GPU.
func TestWhatDescriptorsOfAWorkloadCount(t *testing.T) {
	tr := threeGPUs(t)
	s, _ := tr.scraper(false)
	r := s.source.read(t.Context(), s.want)
	client := func(i int, id string, memory int64, works bool) drmClient {
		return drmClient{pci: threeAddresses[i], id: id, memory: memory, works: works}
	}
	use := &usage{
		devices: sysfsOf(s).devices,
		kfd:     []kfdProcess{{pid: 3}},
		clients: map[int][]drmClient{
			1: {client(0, "1", 100, false), client(1, "1", 0, false)},
			2: {client(0, "1", 100, false), client(0, "2", 10, false)},
			3: {client(1, "9", 5, false), client(2, "9", 7, true)},
		},
	}
	got := map[int]int64{}
	for _, g := range use.of([]int{1, 2, 3}, r) {
		got[g.card.Index] = g.memory.Value
	}
	assert.Equal(t, map[int]int64{0: 110, 2: 7}, got)
}
