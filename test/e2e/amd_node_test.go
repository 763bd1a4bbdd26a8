// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	endian "encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	manyAMD  = 8
	amdModel = "AMD Instinct MI300X"
	// amdMemory is that of one, in bytes.
	amdMemory = 206141652992
)

// amdGPU is an MI300X of a node of files, by its number in rocm-smi's order.
type amdGPU int

const (
	// busyless has no files of its use, and sensorless none of its sensors: both
	// are in gpu_metrics.
	busyless   = amdGPU(6)
	sensorless = amdGPU(7)
)

// makeAMDNode makes a machine with some MI300X beside a display's card.
func makeAMDNode(t *testing.T, gpus int) *node {
	t.Helper()
	n := makeNode(t)
	n.run(nodeProcess{pid: 2, name: "kthreadd", start: 1, threads: 1, group: "/"}) // its pids are the machine's
	n.write("sys/module/amdgpu/version", "6.10.5\n")
	n.write("usr/share/libdrm/amdgpu.ids", "# names\n1.0.0\n74A0,\t00,\tAMD Instinct MI300A\n74A1,\t00,\t"+amdModel+"\n")
	n.write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n")
	n.link("sys/class/drm/card0", "../../devices/pci0000:00/0000:02:00.0/drm/card0")
	n.link("sys/devices/pci0000:00/0000:02:00.0/drm/card0/device", "../../../0000:02:00.0")
	n.write("sys/devices/pci0000:00/0000:02:00.0/vendor", "0x1a03\n")
	n.write("sys/devices/pci0000:00/0000:02:00.0/uevent", "DRIVER=ast\nPCI_SLOT_NAME=0000:02:00.0\n")
	for i := range gpus {
		n.addAMD(amdGPU(i))
	}
	return n
}

func (n *node) link(path, target string) {
	n.t.Helper()
	path = filepath.Join(n.root, path)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(n.t, os.Symlink(target, path))
}

func (g amdGPU) pci() string { return fmt.Sprintf("0000:%02x:00.0", g.bus()) }
func (g amdGPU) bus() int    { return 0x05 + 0x20*int(g) }

// dir is the device's folder.
func (g amdGPU) dir() string { return "sys/devices/pci0000:00/" + g.pci() }

func (g amdGPU) file(name string) string { return filepath.Join(g.dir(), name) }

// render is the number of the render node, which grows against the addresses.
func (g amdGPU) render() int { return 128 + 8*(manyAMD-int(g)) }

// kfd is the KFD's number of the GPU.
func (g amdGPU) kfd() int { return 20000 + 7*int(g) }

func (g amdGPU) uuid() string { return fmt.Sprintf("a0e2e0000000000%d", int(g)) }

// What the GPU tells, each with figures of its own.
func (g amdGPU) busy() int     { return 97 - 9*int(g) }
func (g amdGPU) activity() int { return 62 - 5*int(g) }
func (g amdGPU) used() int     { return (int(g)+1)*20*gibi + 4096*int(g) }
func (g amdGPU) mem() int      { return 64 + int(g) }
func (g amdGPU) junction() int { return 78 + int(g) }
func (g amdGPU) watts() int    { return 612 + 17*int(g) }
func (g amdGPU) limit() int    { return 750 - 100*(int(g)%2) }
func (g amdGPU) clock() int    { return 2100 - int(g) }

// energy is in units of 2^-16 J.
func (g amdGPU) energy() int { return 1_000_000_000 + 65_536*int(g) }

// addAMD puts a GPU there.
func (n *node) addAMD(g amdGPU) {
	n.t.Helper()
	card, render := fmt.Sprintf("drm/card%d", g.render()-127), fmt.Sprintf("drm/renderD%d", g.render())
	for _, name := range []string{card, render} {
		n.link("sys/class/"+name, "../../devices/pci0000:00/"+g.pci()+"/"+name)
		n.link(g.file(name+"/device"), "../../../"+g.pci())
	}
	kfd := fmt.Sprintf("sys/class/kfd/kfd/topology/nodes/%d/", 1+g.render()/8)
	n.write(kfd+"gpu_id", fmt.Sprintf("%d\n", g.kfd()))
	n.write(kfd+"properties", fmt.Sprintf("simd_count 1216\nlocation_id %d\ndomain 0\ndrm_render_minor %d\ngfx_target_version 90402\n", g.bus()<<8, g.render()))
	n.write(kfd+"mem_banks/0/properties", fmt.Sprintf("heap_type 1\nsize_in_bytes %d\n", amdMemory))
	for name, content := range g.files() {
		n.write(g.file(name), content)
	}
}

// files are those of the device's folder.
func (g amdGPU) files() map[string]string {
	all := map[string]string{
		"vendor": "0x1002\n", "device": "0x74a1\n", "revision": "0x00\n", "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=" + g.pci() + "\n",
		"unique_id": g.uuid() + "\n", "power/runtime_status": "active\n",
		"mem_info_vram_total": fmt.Sprintln(amdMemory), "mem_info_vram_used": fmt.Sprintln(g.used()),
		"mem_info_gtt_total": fmt.Sprintln(4 * amdMemory), "mem_info_gtt_used": fmt.Sprintln(mebi),
		"gpu_metrics":        string(g.metrics()),
		"current_link_speed": "32.0 GT/s PCIe\n", "current_link_width": "16\n", "max_link_speed": "32.0 GT/s PCIe\n", "max_link_width": "16\n",
		"pcie_replay_count": fmt.Sprintln(int(g)), "ras/umc_err_count": fmt.Sprintf("ue: %d\nce: %d\n", int(g), 10+int(g)),
	}
	if g != busyless {
		maps.Copy(all, map[string]string{"gpu_busy_percent": fmt.Sprintln(g.busy()), "mem_busy_percent": fmt.Sprintln(g.activity())})
	}
	if g == sensorless {
		return all
	}
	hwmon := fmt.Sprintf("hwmon/hwmon%d/", 4+int(g))
	for name, content := range map[string]string{
		"name": "amdgpu", "power1_label": "PPT", "power1_input": fmt.Sprintf("%d500000", g.watts()), "power1_cap": fmt.Sprintf("%d000000", g.limit()),
		"temp2_label": "junction", "temp2_input": fmt.Sprintf("%d000", g.junction()), "temp3_label": "mem", "temp3_input": fmt.Sprintf("%d000", g.mem()),
		"freq1_label": "sclk", "freq1_input": fmt.Sprintf("%d000000", g.clock()),
	} {
		all[hwmon+name] = content + "\n"
	}
	return all
}

// metrics is gpu_metrics, of v1.6 and v1.8 by turns. What also has a file tells
// something else here, for the file goes first.
func (g amdGPU) metrics() []byte {
	revision, size, energy := byte(6), 1664, 16
	if g%2 == 1 {
		revision, size, energy = 8, 3872, 24
	}
	blob := []byte(strings.Repeat("\xff", size))
	put := func(at, value int) { endian.LittleEndian.PutUint16(blob[at:], uint16(value)) }
	put(0, size)
	blob[2], blob[3] = 1, revision
	put(4, 33)
	put(6, 34)
	put(10, 35)
	put(12, 36)
	put(14, 37)
	switch g {
	case busyless:
		put(12, g.busy())
		put(14, g.activity())
	case sensorless:
		put(4, g.junction())
		put(6, g.mem())
		put(10, g.watts())
	}
	endian.LittleEndian.PutUint64(blob[energy:], uint64(g.energy()))
	return blob
}

// series names a series of the GPU.
func (g amdGPU) series(name string, more ...any) string {
	attrs := map[string]any{"gpu_index": int64(g), "gpu_vendor": "amd", "gpu_uuid": g.uuid(), "gpu_model": amdModel}
	for i := 0; i < len(more); i += 2 {
		attrs[more[i].(string)] = more[i+1]
	}
	return fmt.Sprint(name, " ", attrs)
}

// figures are the values of the metrics that are on by default, below `gpu.` or
// `gpu.process.`.
func (g amdGPU) figures(below string) map[string]float64 {
	watts := float64(g.watts())
	all := map[string]float64{
		g.series(below + "gpu"):                 float64(g.busy()),
		g.series(below + "memoryAllocated"):     100 * float64(g.used()) / amdMemory,
		g.series(below+"temp", "sensor", "mem"): float64(g.mem()),
	}
	if g != sensorless {
		watts += 0.5
		all[g.series(below+"powerPercent")] = 100 * watts / float64(g.limit())
	}
	all[g.series(below+"powerWatts")] = watts
	return all
}

// extended are those that are on with extended only, and that workloads have too.
func (g amdGPU) extended(below string) map[string]float64 {
	all := map[string]float64{
		g.series(below + "memoryReadWriteActivity"): float64(g.activity()),
		g.series(below + "correctedMemoryErrors"):   float64(10 + g),
		g.series(below + "unCorrectedMemoryErrors"): float64(g),
	}
	if g != sensorless {
		all[g.series(below+"graphicsClock")] = float64(g.clock())
	}
	return all
}

// extendedOfMachine are those that only the machine has.
func (g amdGPU) extendedOfMachine() map[string]float64 {
	all := map[string]float64{
		g.series("gpu.memoryUsed"):                       float64(g.used()),
		g.series("gpu.memoryTotal"):                      amdMemory,
		g.series("gpu.energy"):                           float64(g.energy()) / 65_536,
		g.series("gpu.pcieReplays"):                      float64(g),
		g.series("gpu.sensorTemp", "sensor", "mem"):      float64(g.mem()),
		g.series("gpu.sensorTemp", "sensor", "junction"): float64(g.junction()),
	}
	for name, value := range map[string]float64{"pcieLinkGen": 5, "maxPcieLinkGen": 5, "pcieLinkWidth": 16, "maxPcieLinkWidth": 16} {
		all[g.series("gpu."+name)] = value
	}
	return all
}

// compute makes a process one that computes, with this much memory on GPUs and
// queues on others. The runtime opens all GPUs.
func (n *node) compute(pid int, memory map[amdGPU]int, queues ...amdGPU) {
	n.t.Helper()
	dir := fmt.Sprintf("sys/class/kfd/kfd/proc/%d/", pid)
	n.write(dir+"pasid", "32770\n")
	for g := range amdGPU(manyAMD) {
		n.write(fmt.Sprintf("%svram_%d", dir, g.kfd()), fmt.Sprintln(memory[g]))
	}
	for i, g := range queues {
		n.write(fmt.Sprintf("%squeues/%d/gpuid", dir, i), fmt.Sprintln(g.kfd()))
	}
}

// render makes a process one that has a GPU open without computing.
func (n *node) render(pid, descriptor int, g amdGPU, lines ...string) {
	n.t.Helper()
	proc := fmt.Sprintf("proc/%d/", pid)
	n.link(fmt.Sprintf("%sfd/%d", proc, descriptor), fmt.Sprintf("/dev/dri/renderD%d", g.render()))
	n.write(fmt.Sprintf("%sfdinfo/%d", proc, descriptor), "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t"+g.pci()+"\n"+strings.Join(lines, "\n")+"\n")
}

// amdReceiver is a section that measures the machine of files and its GPUs. It
// looks for processes anew at each scrape.
func (n *node) amdReceiver(name, section, more string) string {
	return fmt.Sprintf("wandbsys/%s: {host_name: %s, root_path: %s, collection_interval: %s, detection_interval: %[4]s, initial_delay: 0s, scrapers: {host: , %s}, %s}\n",
		name, name, n.root, gpuInterval, section, more)
}
