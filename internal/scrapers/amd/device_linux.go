// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/gpumetrics"
)

// maxBlob bounds gpu_metrics; the driver gives a page at most.
const maxBlob = 64 << 10

// device is a GPU in sysfs. What does not change was read when it was found; the
// files that do change stay open.
type device struct {
	place
	index           int
	uniqueID, model string
	// found are the files that there were, by their paths.
	found []string
	// parent is the identity of the chip that a partition is part of.
	parent string

	slot  guard.Slot
	files files
	buf   []byte
	// err is the last of one round's reads, and answers counts the files that told
	// something.
	err     error
	answers int

	// vram and gtt are the sizes of the pools, in bytes, once they are known.
	vram, gtt optional.Of[int64]
	// maxGen and maxWidth are the most that the link can have, once they are known.
	maxGen, maxWidth card.Int
	blob             gpumetrics.Metrics
	// isAPU is known once the driver was asked.
	isAPU optional.Of[bool]
	// needless are the figures that gpu_metrics does not know either, by two readings
	// in a row, of which lacking is the last: to ask costs the driver a transfer from
	// the firmware.
	needless, lacking missing
	// spared counts the rounds since then.
	spared int
	// layout says why gpu_metrics cannot be read, and noted that it was said.
	layout error
	noted  bool
	// residency are the counters of throttling of the last round.
	residency gpumetrics.Residency
}

// files are those that are read each round; nil where the driver has none.
type files struct {
	status                             *guard.KeptFile
	busy, memoryBusy, overdrive        *guard.KeptFile
	vramUsed, vramTotal                *guard.KeptFile
	gttUsed, gttTotal                  *guard.KeptFile
	temperatures                       [card.Sensors]*guard.KeptFile
	powerAverage, powerInput, powerCap *guard.KeptFile
	graphicsClock, memoryClock         *guard.KeptFile
	metrics                            *guard.KeptFile
	errors                             *guard.KeptFile
	speed, width                       *guard.KeptFile
	maxSpeed, maxWidth                 *guard.KeptFile
	replays                            *guard.KeptFile
}

// missing are figures that the text files do not give.
type missing uint8

const (
	missingGPU missing = 1 << iota
	missingActivity
	// missingMemory is the memory's temperature, missingTemperature any,
	// missingSensor one of all.
	missingMemory
	missingTemperature
	missingSensor
	missingPower
	// missingKind is whether the GPU is an APU.
	missingKind
	// missingExtras are those that no text file gives.
	missingExtras
)

// newDevice looks for the files of a GPU.
func newDevice(p place, index int, names marketing) *device {
	d := &device{place: p, index: index, model: names.modelOf(&p), uniqueID: strings.ToLower(textOf(p.dir + "/unique_id"))}
	if p.dir == "" || p.partition {
		return d
	}
	in := listing(p.dir)
	d.found = in.paths()
	f := &d.files
	f.status = fileAt(p.dir + "/power/runtime_status")
	f.busy, f.memoryBusy, f.overdrive = in.file("gpu_busy_percent"), in.file("mem_busy_percent"), in.file("pp_mclk_od")
	f.vramUsed, f.vramTotal = in.file("mem_info_vram_used"), in.file("mem_info_vram_total")
	f.gttUsed, f.gttTotal = in.file("mem_info_gtt_used"), in.file("mem_info_gtt_total")
	f.metrics = in.file("gpu_metrics")
	f.speed, f.width = in.file("current_link_speed"), in.file("current_link_width")
	f.maxSpeed, f.maxWidth = in.file("max_link_speed"), in.file("max_link_width")
	f.replays = in.file("pcie_replay_count")
	if in.has("ras") {
		f.errors = fileAt(p.dir + "/ras/umc_err_count")
	}
	d.findSensors()
	return d
}

// names are the entries of a folder.
type names struct {
	dir     string
	entries []string
}

func listing(dir string) names {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return names{}
	}
	n := names{dir: dir}
	for _, e := range entries {
		n.entries = append(n.entries, e.Name())
	}
	return n
}

func (n names) paths() []string {
	paths := make([]string, len(n.entries))
	for i, name := range n.entries {
		paths[i] = n.dir + "/" + name
	}
	return paths
}

func (n names) has(name string) bool { return slices.Contains(n.entries, name) }

func (n names) file(name string) *guard.KeptFile {
	if !n.has(name) {
		return nil
	}
	return fileAt(n.dir + "/" + name)
}

func fileAt(path string) *guard.KeptFile { return &guard.KeptFile{Path: path} }

// sensorLabels are the driver's names of the sensors.
var sensorLabels = map[string]card.Sensor{"mem": card.Mem, "junction": card.Junction, "edge": card.Edge}

// findSensors looks for the GPU's folder of hwmon, whose number changes from boot
// to boot and beside which others may be (a network card's on the same board).
func (d *device) findSensors() {
	folders, _ := filepath.Glob(d.dir + "/hwmon/hwmon*")
	at := slices.IndexFunc(folders, func(dir string) bool { return textOf(dir+"/name") == "amdgpu" })
	if at < 0 {
		return
	}
	in, f := listing(folders[at]), &d.files
	d.found = append(d.found, in.paths()...)
	f.powerAverage, f.powerInput, f.powerCap = in.file("power1_average"), in.file("power1_input"), in.file("power1_cap")
	for _, name := range in.entries {
		d.findSensor(in, name)
	}
	if in.has("in1_label") && textOf(in.dir+"/in1_label") == "vddnb" { // only APUs have it
		d.isAPU = optional.Some(true)
	}
}

// findSensor takes a file for what its label says. The first temperature may have
// none: it is the edge's.
func (d *device) findSensor(in names, name string) {
	stem, ok := strings.CutSuffix(name, "_input")
	if !ok {
		return
	}
	label := textOf(in.dir + "/" + stem + "_label")
	switch {
	case strings.HasPrefix(stem, "temp"):
		if label == "" && stem == "temp1" {
			label = "edge"
		}
		if sensor, known := sensorLabels[label]; known {
			d.files.temperatures[sensor] = in.file(name)
		}
	case strings.HasPrefix(stem, "freq") && label == "sclk":
		d.files.graphicsClock = in.file(name)
	case strings.HasPrefix(stem, "freq") && label == "mclk":
		d.files.memoryClock = in.file(name)
	}
}

// identity names the GPU whatever its number is.
func (d *device) identity() string {
	id := d.uniqueID
	if id == "" {
		id = d.pci
	}
	if d.parent != "" {
		return d.parent + "/" + strconv.Itoa(d.number)
	}
	return id
}

// read reads what is wanted. The error says that the device tells nothing at all.
func (d *device) read(w want, use *kfdUse) (card.Reading, error) {
	r := card.Reading{Index: d.index, PCI: d.pci, UniqueID: d.identity(), Model: d.model}
	if d.dir == "" || d.partition {
		d.readKFDMemory(&r, use)
		return r, nil
	}
	asleep := d.isAsleep()
	d.err, d.answers = nil, 0
	if !asleep {
		d.readFigures(&r, w)
	}
	d.readMemory(&r)
	if d.answers == 0 && d.err != nil {
		return r, d.err
	}
	return r, nil
}

// isAsleep tells whether a read would wake the GPU. A driver that does not say
// keeps it awake.
func (d *device) isAsleep() bool {
	status := d.line(d.files.status)
	return bytes.Equal(status, []byte("suspended")) || bytes.Equal(status, []byte("suspending"))
}

// readFigures reads all but the memory.
func (d *device) readFigures(r *card.Reading, w want) {
	f := &d.files
	r.GPU = card.Percent(d.number64(f.busy))
	if w.activity {
		r.MemoryActivity = card.Percent(d.number64(f.memoryBusy))
	}
	if w.overdrive {
		r.OverDrive = card.Percent(d.number64(f.overdrive))
	}
	d.readTemperatures(r, w)
	if r.Power = card.Watts(d.number64(f.powerAverage) / micro); !r.Power.Known {
		r.Power = card.Watts(d.number64(f.powerInput) / micro)
	}
	r.Cap = card.Watts(d.number64(f.powerCap) / micro)
	if w.clocks {
		r.GraphicsClock, r.MemoryClock = d.megahertz(f.graphicsClock), d.megahertz(f.memoryClock)
	}
	if w.errors {
		r.Corrected, r.Uncorrected = parseErrors(d.line(f.errors))
	}
	if w.pcie {
		d.readPCIe(&r.PCIe)
	}
	d.readBlob(r, w)
}

// readTemperatures reads the first sensor that answers, or all.
func (d *device) readTemperatures(r *card.Reading, w want) {
	for sensor, file := range d.files.temperatures {
		t := card.Celsius(d.number64(file) / milli)
		r.Temperatures[sensor] = t
		if t.Known && !w.sensors {
			return
		}
	}
}

func (d *device) megahertz(file *guard.KeptFile) card.Int {
	v := d.number64(file)
	return optional.If(int64(v/mega), v >= 0)
}

func (d *device) readPCIe(p *card.PCIe) {
	f := &d.files
	p.Gen, p.Width = linkGeneration(d.line(f.speed)), positive(d.number64(f.width))
	if !d.maxGen.Known {
		d.maxGen = linkGeneration(d.line(f.maxSpeed))
	}
	if !d.maxWidth.Known {
		d.maxWidth = positive(d.number64(f.maxWidth))
	}
	p.MaxGen, p.MaxWidth = d.maxGen, d.maxWidth
	replays := d.number64(f.replays)
	p.Replays = optional.If(int64(replays), replays >= 0)
}

// positive drops what no link has.
func positive(v float64) card.Int { return optional.If(int64(v), v > 0) }

// maxSpared is for how many rounds gpu_metrics is not asked for what it lacked.
const maxSpared = 20

// readBlob asks gpu_metrics for what the text files do not give.
func (d *device) readBlob(r *card.Reading, w want) {
	if d.needless != 0 {
		if d.spared++; d.spared == maxSpared { // what it lacked it may have by now
			d.needless, d.lacking, d.spared = 0, 0, 0
		}
	}
	need := d.missing(r, w) &^ d.needless
	if need == 0 || d.files.metrics == nil {
		return
	}
	blob, err := d.content(d.files.metrics, maxBlob)
	if err != nil {
		return
	}
	m := &d.blob
	if err := gpumetrics.Decode(blob, m); err != nil {
		d.layout = err
		d.needless |= need // a layout of tomorrow
		if _, ok := errors.AsType[*gpumetrics.UnknownError](err); ok && m.IsAPU() {
			d.isAPU = optional.Some(true)
		}
		return
	}
	if !d.isAPU.Known {
		d.isAPU = optional.Some(m.IsAPU())
	}
	r.GPU, r.Power = r.GPU.Or(m.GFX), r.Power.Or(m.Power)
	if w.activity {
		r.MemoryActivity = r.MemoryActivity.Or(m.UMC)
	}
	for sensor := range r.Temperatures {
		r.Temperatures[sensor] = r.Temperatures[sensor].Or(m.Temperatures[sensor])
	}
	d.readExtras(r, w)
	lacking := d.missing(r, w) & need &^ missingExtras
	d.needless |= lacking & d.lacking
	d.lacking = lacking
}

func (d *device) readExtras(r *card.Reading, w want) {
	if w.energy && d.countsEnergy() {
		r.Energy = d.blob.Energy
	}
	if w.throttles {
		r.Throttles = d.blob.Throttles
		if now := d.blob.Residency; now.Cycles.Known {
			r.Throttles = gpumetrics.Throttled(&d.residency, &now)
			d.residency = now
		}
	}
}

// countsEnergy tells the chips whose energy has a known unit: those of gfx9, Vega
// and Instinct. Radeons pass on what their firmware says.
func (d *device) countsEnergy() bool { return d.target > 0 && d.target < 100000 }

// missing tells what gpu_metrics may know.
func (d *device) missing(r *card.Reading, w want) missing {
	var m missing
	if !r.GPU.Known {
		m |= missingGPU
	}
	if w.activity && !r.MemoryActivity.Known {
		m |= missingActivity
	}
	m |= missingTemperatures(r, w)
	if !r.Power.Known {
		m |= missingPower
	}
	if !d.isAPU.Known {
		m |= missingKind
	}
	if w.energy || w.throttles {
		m |= missingExtras
	}
	return m
}

func missingTemperatures(r *card.Reading, w want) missing {
	var m missing
	unknown := 0
	for _, t := range r.Temperatures {
		if !t.Known {
			unknown++
		}
	}
	if !r.Temperatures[card.Mem].Known {
		m |= missingMemory
	}
	if unknown == card.Sensors {
		m |= missingTemperature
	}
	if unknown > 0 && w.sensors {
		m |= missingSensor
	}
	return m
}

const (
	milli = 1e3
	micro = 1e6
	mega  = 1e6
)

// content reads a file into the device's buffer.
func (d *device) content(file *guard.KeptFile, limit int64) ([]byte, error) {
	content, err := file.ReadInto(d.buf, limit)
	d.buf = content
	if err != nil {
		d.err = err
		return nil, err
	}
	if len(content) > 0 {
		d.answers++
	}
	return content, nil
}

// line reads a text without the space around it; nil when there is none.
func (d *device) line(file *guard.KeptFile) []byte {
	if file == nil {
		return nil
	}
	content, err := d.content(file, maxText)
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(content)
}

// number64 reads a whole number; below 0 (no figure here is) when there is none.
func (d *device) number64(file *guard.KeptFile) float64 {
	n, ok := parseNumber(d.line(file))
	if !ok {
		return none
	}
	return float64(n)
}

// none stands for a number that there is not, even when it is divided.
const none = -1e18

// close closes the files. It must not run during a read.
func (d *device) close() {
	f := &d.files
	kept := []*guard.KeptFile{
		f.status, f.busy, f.memoryBusy, f.overdrive, f.vramUsed, f.vramTotal, f.gttUsed, f.gttTotal,
		f.powerAverage, f.powerInput, f.powerCap, f.graphicsClock, f.memoryClock, f.metrics, f.errors,
		f.speed, f.width, f.maxSpeed, f.maxWidth, f.replays,
	}
	for _, file := range append(kept, f.temperatures[:]...) {
		if file != nil {
			file.Close()
		}
	}
}
