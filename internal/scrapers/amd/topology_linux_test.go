// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// TestTheOrderOfGPUs lists the places of a tree by address, folder and number of
// the partition.
func TestTheOrderOfGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		build func(tr tree)
		want  []string
	}{
		"nothing": {func(tree) {}, nil},
		"by address, not by node or card": {func(tr tree) {
			tr.add(gpu{pci: "0000:c1:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:05:00.0", card: 9, render: 137, node: 2, id: 2})
			tr.add(gpu{pci: "0000:05:01.0", card: 7, render: 135, node: 4, id: 4})
			tr.add(gpu{pci: "0000:05:00.1", card: 8, render: 136, node: 3, id: 3})
		}, []string{"0000:05:00.0", "0000:05:00.1", "0000:05:01.0", "0000:c1:00.0"}},
		"by domain before bus": {func(tr tree) {
			tr.add(gpu{pci: "0001:01:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:ff:00.0", card: 1, render: 129, node: 2, id: 2})
		}, []string{"0000:ff:00.0", "0001:01:00.0"}},
		"cards without a node come last, by address": {func(tr tree) {
			tr.add(gpu{pci: "0000:46:00.0", card: 1, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:c1:00.0", card: 2})
			tr.add(gpu{pci: "0000:05:00.0", card: 10})
			tr.add(gpu{pci: "0001:01:00.0", card: 0})
		}, []string{"0000:46:00.0", "0000:05:00.0", "0000:c1:00.0", "0001:01:00.0"}},
		"connectors are no cards": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128})
			tr.Link(drmFolder+"/card0-DP-1", "../../devices/pci0000:00/0000:05:00.0/drm/card0")
			tr.Link(drmFolder+"/card0-HDMI-A-1", "../../devices/pci0000:00/0000:05:00.0/drm/card0")
			tr.Write(drmFolder+"/version", "drm 1.1.0 20060810\n")
			tr.Write(drmFolder+"/card/device/vendor", "0x1002\n")
		}, []string{"0000:05:00.0"}},
		"other makers and other drivers": {func(tr tree) {
			for i, other := range []struct{ vendor, driver string }{
				{"0x10de", "nvidia"},
				{"0x8086", "i915"},
				{"0x1002", "radeon"},
				{"0x1002", "vfio-pci"},
				{"0x1002", ""},
				{"0x1a03", "amdgpu"},
			} {
				pci := fmt.Sprintf("0000:0%d:00.0", i+1)
				tr.add(gpu{pci: pci, card: i})
				tr.Write("sys/devices/pci0000:00/"+pci+"/vendor", other.vendor+"\n")
				tr.Write("sys/devices/pci0000:00/"+pci+"/uevent", "DRIVER="+other.driver+"\nPCI_SLOT_NAME="+pci+"\n")
			}
		}, nil},
		"two cards of one folder": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0})
			tr.add(gpu{pci: "0000:05:00.0", card: 1})
		}, []string{"0000:05:00.0"}},
		"a node that a container may not see": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:46:00.0", card: 1, render: 129, node: 2, id: 2})
			tr.Unreadable(nodesFolder + "/1/gpu_id")
		}, []string{"0000:46:00.0", "0000:05:00.0"}},
		"a node without properties": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:46:00.0", card: 1, render: 129, node: 2, id: 2})
			tr.Unreadable(nodesFolder + "/1/properties")
		}, []string{"0000:46:00.0", "0000:05:00.0"}},
		"a node of another name": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.Write(nodesFolder+"/x1/gpu_id", "7\n")
			tr.Write(nodesFolder+"/-1/gpu_id", "7\n")
		}, []string{"0000:05:00.0"}},
		"a node whose render folder is missing keeps its place": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:46:00.0", card: 1, render: 129, node: 2, id: 2})
			tr.Remove(drmFolder + "/renderD128")
		}, []string{"0000:05:00.0 without a folder", "0000:46:00.0"}},
		"a node without a render node": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, node: 1, id: 1})
		}, []string{"0000:05:00.0 without a folder"}},
		"a link that leads out of the machine's root": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128})
			tr.Link(drmFolder+"/card1", "../../../../../../../../../../../../../tmp")
			tr.Link(drmFolder+"/card2", "/sys/devices/pci0000:00/0000:05:00.0/drm/card0")
			tr.Link(drmFolder+"/card3", "card3")
		}, []string{"0000:05:00.0"}},
		"a card that does not tell its address is known by its folder": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1})
			tr.Write("sys/devices/pci0000:00/0000:05:00.0/uevent", "DRIVER=amdgpu\n")
		}, []string{"0000:05:00.0"}},
		"a partition": {func(tr tree) {
			tr.add(gpu{pci: "0000:05:00.0", card: 1, render: 128, node: 1, id: 1})
			tr.add(gpu{pci: "0000:05:00.0", card: 2, render: 129, node: 2, id: 2, partition: 1, platform: "amdgpu_xcp_0"})
		}, []string{"0000:05:00.0", "0000:05:00.0 partition 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			c.build(tr)
			places, err := folder(tr.Root).places()
			require.NoError(t, err)
			var got []string
			for _, p := range places {
				text := p.pci
				if p.partition {
					text += fmt.Sprintf(" partition %d", p.number)
				}
				if p.dir == "" {
					text += " without a folder"
				}
				got = append(got, text)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestMoreGPUsThanAMachineCanHave(t *testing.T) {
	tr := newTree(t)
	for i := range maxDevices + 1 {
		node := fmt.Sprintf("%s/%d/", nodesFolder, i+1)
		tr.Write(node+"gpu_id", "7\n")
		tr.Write(node+"properties", fmt.Sprintf("location_id %d\n", i<<8))
	}
	_, err := folder(tr.Root).places()
	require.EqualError(t, err, "257 GPUs are more than the limit of 256")
	tr.Remove(nodesFolder + "/1")
	places, err := folder(tr.Root).places()
	require.NoError(t, err)
	assert.Len(t, places, maxDevices)
}

// cpx is a machine with two MI300X of eight partitions each. The numbers of its
// nodes go beyond 9: as text they would be out of order.
func cpx(t *testing.T) tree {
	t.Helper()
	tr := newTree(t)
	for chip, pci := range []string{"0000:05:00.0", "0000:46:00.0"} {
		for partition := range 8 {
			n := 8*chip + partition
			g := gpu{
				pci: pci, card: 1 + n, render: 128 + n, node: 1 + n, id: 20000 + n,
				partition: partition, bank: 24 * gib, target: 90402,
			}
			if partition == 0 {
				g.files = mi300x().with(fileSet{"unique_id": fmt.Sprintf("00112233445566%02X", 0xa0+chip)})
			} else {
				g.platform = fmt.Sprintf("amdgpu_xcp_%d", n-1-chip)
			}
			tr.add(g)
		}
	}
	return tr
}

func TestTwoChipsInPartitions(t *testing.T) {
	tr := cpx(t)
	// Processes are on every partition of both chips, the first ones too.
	first, second := map[int]int64{}, map[int]int64{}
	for n := range 16 {
		first[20000+n] = int64(n) * gib
		second[20000+n] = gib
	}
	tr.computes(1000, first)
	tr.computes(1001, second)
	want := joined(wantMI300X(0), wantMI300X(8))
	for n := range 16 {
		if n != 0 && n != 8 {
			want[fmt.Sprintf("gpu.%d.memoryAllocated", n)] = 100 * float64(n+1) / 24
		}
	}
	scraperstest.CompareTags(t, "tags", want, tr.tags())
}

// A partition names the chip that it is part of, and only a partition does.
func TestPartitionsNameTheirChip(t *testing.T) {
	tr := cpx(t)
	tr.computes(1000, map[int]int64{20009: gib})
	s, _ := tr.scraper(true)
	md, err := s.Scrape(t.Context())
	require.NoError(t, err)
	scraperstest.RequireSane(t, md)
	parents := map[int64]any{}
	uuids := map[any]int64{}
	for _, p := range scraperstest.PointsOf(md) {
		i := p.Attributes["gpu_index"].(int64)
		if p.Metric.Name() == "gpu.memoryAllocated" {
			parents[i] = p.Attributes["gpu_parent"]
			uuids[p.Attributes["gpu_uuid"]] = i
			continue
		}
		if i%8 != 0 {
			assert.Contains(t, []string{"gpu.memoryUsed", "gpu.memoryTotal"}, p.Metric.Name(), "GPU %d", i)
			assert.Equal(t, parents[i], p.Attributes["gpu_parent"])
		}
	}
	want := map[int64]any{0: nil, 8: nil}
	for i := range int64(7) {
		want[1+i], want[9+i] = "00112233445566a0", "00112233445566a1"
	}
	assert.Equal(t, want, parents)
	assert.Len(t, uuids, 16, "each has an identity of its own")
}

// Without a process there is no memory in use; without the list of processes it
// is not known.
func TestMemoryOfPartitionsIsThatOfTheProcesses(t *testing.T) {
	tr := cpx(t)
	assert.InDelta(t, 0.0, tr.tags()["gpu.1.memoryAllocated"], 0)
	tr.Write(kfdProcesses, "not a folder")
	s, _ := tr.scraper(false)
	tags, troubles := scrapeTags(t, s)
	require.Len(t, troubles, 1)
	require.ErrorContains(t, troubles[0], "listing the processes of the KFD")
	scraperstest.CompareTags(t, "tags", joined(wantMI300X(0), wantMI300X(8)), tags)
}

// A process that names a GPU in another form, or that ends, counts for nothing.
func TestWhatTheKFDTellsOfProcesses(t *testing.T) {
	tr := newTree(t)
	tr.computes(1000, map[int]int64{7: 100, 8: 0, 9: -5})
	tr.Write(kfdProcesses+"/1000/vram_", "1\n")
	tr.Write(kfdProcesses+"/1000/vram_x", "1\n")
	tr.Write(kfdProcesses+"/1000/sdma_8", "1\n")
	tr.Write(kfdProcesses+"/1000/stats_8/cu_occupancy", "1\n")
	tr.Unreadable(kfdProcesses + "/1000/vram_10")
	tr.Write(kfdProcesses+"/1000/queues/0/gpuid", "11\n")
	tr.Write(kfdProcesses+"/1000/queues/1/gpuid", "0\n")
	tr.Write(kfdProcesses+"/1000/queues/2/size", "4096\n")
	tr.Write(kfdProcesses+"/1000/queues/3/gpuid", "7\n")
	tr.Write(kfdProcesses+"/1001", "ended\n")
	tr.Write(kfdProcesses+"/self/vram_7", "1\n")
	all, err := (&kfdReader{dir: filepath.Join(tr.Root, kfdProcesses)}).read()
	require.NoError(t, err)
	assert.Equal(t, []kfdProcess{
		{pid: 1000, gpus: []kfdGPU{{id: 7, memory: 100, queue: true}, {id: 11, queue: true}}},
		{pid: 1001},
	}, all)
	assert.Equal(t, map[uint64]int64{7: 100, 11: 0}, useOf(all).byGPU)
}

// Its folder is not there, but its number is: those after it keep theirs.
func TestANodeWithoutAFolderHasTheMemoryOfTheKFD(t *testing.T) {
	tr := newTree(t)
	tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1, bank: 4 * gib, files: mi300x()})
	tr.add(gpu{pci: "0000:46:00.0", card: 1, render: 129, node: 2, id: 2, bank: 4 * gib, files: mi300x()})
	tr.Remove(drmFolder + "/renderD128")
	tr.computes(1000, map[int]int64{1: gib})
	want := wantMI300X(1)
	maps.Copy(want, numbered(0, map[string]float64{"memoryAllocated": 25}))
	scraperstest.CompareTags(t, "tags", want, tr.tags())
}

func TestModels(t *testing.T) {
	const ids = "# comment\n1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n"
	for name, c := range map[string]struct {
		files  fileSet
		ids    string
		target int
		want   string
	}{
		"the board's own":        {fileSet{"product_name": "Board", "device": "0x74a1", "revision": "0x00"}, ids, 90402, "Board"},
		"the list's":             {fileSet{"device": "0x74a1", "revision": "0x00"}, ids, 90402, "AMD Instinct MI300X"},
		"the list's, in letters": {fileSet{"device": "0x744c", "revision": "0xc8"}, ids, 0, "AMD Radeon RX 7900 XTX"},
		"another revision":       {fileSet{"device": "0x744c", "revision": "0xc9"}, ids, 110000, "gfx1100"},
		"an empty name":          {fileSet{"product_name": ""}, ids, 90010, "gfx90a"},
		"no list":                {fileSet{"device": "0x74a1", "revision": "0x00"}, "", 90402, "gfx942"},
		"nothing":                {fileSet{}, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			if c.ids != "" {
				tr.Write("opt/amdgpu/share/libdrm/amdgpu.ids", c.ids)
			}
			tr.add(gpu{pci: "0000:05:00.0", card: 0, render: 128, node: 1, id: 1, target: c.target, files: c.files})
			found, err := folder(tr.Root).inventory()
			require.NoError(t, err)
			assert.Equal(t, c.want, found.gpus.Type)
			assert.Equal(t, 1, found.gpus.Count)
		})
	}
}

func TestTheDriversVersionIsItsOwnElseTheKernels(t *testing.T) {
	tr := newTree(t)
	assert.Empty(t, folder(tr.Root).driverVersion())
	tr.Write("proc/sys/kernel/osrelease", "6.8.0\n")
	assert.Equal(t, "6.8.0", folder(tr.Root).driverVersion())
	tr.Write("sys/module/amdgpu/version", "6.8.5\n")
	assert.Equal(t, "6.8.5", folder(tr.Root).driverVersion())
}

func TestTheTopologyIsBoundedByItsNumbers(t *testing.T) {
	assert.Equal(t, properties{location: 5 << 8, domain: 1, renderMinor: 128, target: 90402},
		parseProperties([]byte("simd_count 320\nlocation_id 1280\ndomain 1\ndrm_render_minor 128\ngfx_target_version 90402\nlocation_id_x 7\n")))
	assert.Equal(t, properties{}, parseProperties([]byte("location_id\ndomain -1\ndrm_render_minor 4294967296\ngfx_target_version x\n\n \n")))
}
