// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// tree is a machine with the files of the amdgpu driver.
type tree struct{ scraperstest.Machine }

// fileSet are files by their path below a device's folder; their last line feed is
// left out. "!" is a file that cannot be read.
type fileSet map[string]string

// gpu is a GPU of a tree, or a partition of one.
type gpu struct {
	// pci is the chip's address; platform is the folder of a further partition.
	pci, platform string
	// card and render are the numbers of its nodes; render below 1 is none.
	card, render int
	// node is the KFD's number of it, below 1 when the KFD does not know it.
	node, id  int
	partition int
	bank      int64
	target    int
	files     fileSet
}

func newTree(t testing.TB) tree {
	t.Helper()
	tr := tree{scraperstest.NewMachine(t)}
	tr.cpuNode(0)
	return tr
}

func (tr tree) cpuNode(number int) {
	tr.T.Helper()
	node := fmt.Sprintf("%s/%d/", nodesFolder, number)
	tr.Write(node+"gpu_id", "0\n")
	tr.Write(node+"properties", "cpu_cores_count 64\nlocation_id 0\ndomain 0\ndrm_render_minor 0\n")
}

// folder is the device's.
func (g *gpu) folder() string {
	if g.platform != "" {
		return "sys/devices/platform/" + g.platform
	}
	return "sys/devices/pci0000:00/" + g.pci
}

func (tr tree) add(g gpu) {
	tr.T.Helper()
	folder := g.folder()
	if g.platform == "" {
		tr.Write(folder+"/vendor", "0x1002\n")
		tr.Write(folder+"/uevent", "DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME="+g.pci+"\n")
	}
	for name, content := range g.files {
		tr.file(filepath.Join(folder, name), content)
	}
	tr.drm(&g, fmt.Sprintf("card%d", g.card))
	if g.render > 0 {
		tr.drm(&g, fmt.Sprintf("renderD%d", g.render))
	}
	if g.node > 0 {
		tr.node(&g)
	}
}

func (tr tree) file(path, content string) {
	tr.T.Helper()
	if content == "!" {
		tr.Unreadable(path)
		return
	}
	tr.Write(path, content+"\n")
}

// drm makes a node of the DRM, without what an earlier GPU left there.
func (tr tree) drm(g *gpu, name string) {
	tr.T.Helper()
	place := filepath.Join(g.folder(), "drm", name)
	tr.Remove(place)
	tr.Remove(filepath.Join(drmFolder, name))
	tr.Link(filepath.Join(place, "device"), "../../../"+filepath.Base(g.folder()))
	tr.Link(filepath.Join(drmFolder, name), "../../../"+place)
}

func (tr tree) node(g *gpu) {
	tr.T.Helper()
	var domain, bus, device, function int
	_, err := fmt.Sscanf(g.pci, "%x:%x:%x.%x", &domain, &bus, &device, &function)
	require.NoError(tr.T, err)
	node := fmt.Sprintf("%s/%d/", nodesFolder, g.node)
	tr.Write(node+"gpu_id", strconv.Itoa(g.id)+"\n")
	tr.Write(node+"properties", fmt.Sprintf("cpu_cores_count 0\nsimd_count 320\nlocation_id %d\ndomain %d\ndrm_render_minor %d\ngfx_target_version %d\n",
		uint32(g.partition)<<28|uint32(bus<<8|device<<3|function), domain, max(g.render, 0), g.target))
	if g.bank > 0 {
		tr.Write(node+"mem_banks/0/properties", fmt.Sprintf("heap_type 1\nsize_in_bytes %d\nflags 0\n", g.bank))
		// The driver's own figure is the whole chip's in every partition.
		tr.Write(node+"mem_banks/0/used_memory", "1234567890\n")
	}
}

// computes makes a process of the KFD, with bytes by GPU.
func (tr tree) computes(pid int, bytes map[int]int64) {
	tr.T.Helper()
	for id, n := range bytes {
		tr.Write(fmt.Sprintf("%s/%d/vram_%d", kfdProcesses, pid, id), fmt.Sprintln(n))
	}
}

// scraper reads the tree through sysfs.
func (tr tree) scraper(extended bool) (*gpuScraper, *observer.ObservedLogs) {
	tr.T.Helper()
	return scraperBelow(tr.T, tr.Root, extended, &Config{Source: sourceSysfs})
}

// tags scrapes once, and wants no trouble.
func (tr tree) tags() map[string]float64 {
	tr.T.Helper()
	s, _ := tr.scraper(false)
	tags, troubles := scrapeTags(tr.T, s)
	require.Empty(tr.T, troubles)
	return tags
}

// sysfsOf is the source that a scraper with source sysfs has.
func sysfsOf(s *gpuScraper) *sysfs { return s.source.(*firstSource).order[0].source.(*sysfs) }

const gib = int64(1) << 30

// mi300x are the files of an accelerator at work: half of its memory in use, and
// no sensor at its edge.
func mi300x() fileSet {
	return fileSet{
		"power/runtime_status": "active", "unique_id": "0011223344556600",
		"gpu_busy_percent": "97", "mem_busy_percent": "62",
		"mem_info_vram_total": "206158430208", "mem_info_vram_used": "103079215104",
		"mem_info_gtt_total": "811748818944", "mem_info_gtt_used": "29212672",
		"mem_info_vis_vram_total": "206158430208", "mem_info_vis_vram_used": "1",
		"hwmon/hwmon6/name": "amdgpu", "hwmon/hwmon6/power1_input": "612000000", "hwmon/hwmon6/power1_cap": "750000000",
		"hwmon/hwmon6/power1_label": "PPT", "hwmon/hwmon6/freq1_input": "132000000", "hwmon/hwmon6/freq1_label": "sclk",
		"hwmon/hwmon6/temp2_input": "78000", "hwmon/hwmon6/temp2_label": "junction",
		"hwmon/hwmon6/temp3_input": "64000", "hwmon/hwmon6/temp3_label": "mem",
		"gpu_metrics":        string(accelerator(nil)),
		"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
		"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "pcie_replay_count": "3",
	}
}

// with returns the files with others laid over them; a value of "-" takes one away.
func (f fileSet) with(changes fileSet) fileSet {
	all := maps.Clone(f)
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_, content string) bool { return content == "-" })
	return all
}

// wantMI300X are the tags of these files.
func wantMI300X(index int) map[string]float64 {
	return numbered(index, map[string]float64{"gpu": 97, "memoryAllocated": 50, "temp": 64, "powerWatts": 612, "powerPercent": 81.6})
}

// numbered makes tags of figures.
func numbered(index int, figures map[string]float64) map[string]float64 {
	tags := map[string]float64{}
	for name, v := range figures {
		tags[fmt.Sprintf("gpu.%d.%s", index, name)] = v
	}
	return tags
}

// singleGPU is a tree with one MI300X that has other files in places.
func singleGPU(t testing.TB, changes fileSet) tree {
	t.Helper()
	tr := newTree(t)
	tr.add(gpu{
		pci: "0000:05:00.0", card: 1, render: 128, node: 1, id: 20000, bank: 192 * gib, target: 90402,
		files: mi300x().with(changes),
	})
	return tr
}

// singleFolder is where its files are.
const singleFolder = "sys/devices/pci0000:00/0000:05:00.0/"

// field is a number in a blob.
type field struct {
	offset, width int
	value         uint64
}

// blobOf makes gpu_metrics of a size: what is not told has all bits set.
func blobOf(format, content byte, size int, fields ...field) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 0xff
	}
	binary.LittleEndian.PutUint16(b, uint16(size))
	b[2], b[3] = format, content
	for _, f := range fields {
		for i := range f.width {
			b[f.offset+i] = byte(f.value >> (8 * i))
		}
	}
	return b
}

// accelerator is gpu_metrics v1.4 of the same MI300X a moment earlier, so that each
// figure tells where it is from; fields may be changed by their offsets.
func accelerator(changes map[int]uint64) []byte {
	fields := map[int]uint64{4: 77, 6: 63, 10: 611, 12: 96, 14: 61}
	maps.Copy(fields, changes)
	var list []field
	for offset, value := range fields {
		list = append(list, field{offset, 2, value})
	}
	return blobOf(1, 4, 288, append(list, field{24, 8, 65536 * 1000})...)
}

// opened counts how often files are opened.
type opened struct {
	t     testing.TB
	fd    int
	names map[int32]string
}

// watchOpens counts from now on, for files of the single GPU.
func (tr tree) watchOpens(names ...string) *opened {
	tr.T.Helper()
	return tr.watch(singleFolder, names)
}

// watchOpensBelow counts for all files of a folder.
func (tr tree) watchOpensBelow(folder string) *opened {
	tr.T.Helper()
	var names []string
	root := filepath.Join(tr.Root, folder)
	require.NoError(tr.T, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	return tr.watch(folder, names)
}

func (tr tree) watch(folder string, names []string) *opened {
	tr.T.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(tr.T, err)
	tr.T.Cleanup(func() { _ = unix.Close(fd) })
	o := &opened{tr.T, fd, map[int32]string{}}
	for _, name := range names {
		watch, err := unix.InotifyAddWatch(fd, filepath.Join(tr.Root, folder, name), unix.IN_OPEN)
		require.NoError(tr.T, err, name)
		o.names[int32(watch)] = name
	}
	return o
}

// take returns how often each was opened since the last call.
func (o *opened) take() map[string]int {
	o.t.Helper()
	counts := map[string]int{}
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(o.fd, buf)
		if err == unix.EAGAIN {
			return counts
		}
		require.NoError(o.t, err)
		for at := 0; at < n; {
			watch := int32(binary.LittleEndian.Uint32(buf[at:]))
			length := int(binary.LittleEndian.Uint32(buf[at+12:]))
			counts[o.names[watch]]++
			at += unix.SizeofInotifyEvent + length
		}
	}
}

// fakeClock is a time that stands still.
type fakeClock struct{ now time.Time }

func (c *fakeClock) advance(d time.Duration) { c.now = c.now.Add(d) }

// stopClock lets a scraper with source sysfs go by a time that stands still.
func stopClock(s *gpuScraper) *fakeClock {
	c := &fakeClock{time.Now()}
	now := func() time.Time { return c.now }
	sysfsOf(s).clock, s.source.(*firstSource).clock = now, now
	return c
}
