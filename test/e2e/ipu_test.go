// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inventoryAnswers is what gc-inventory's double does, as a shell runs it.
const inventoryAnswers = "cat answer; echo 'warning: no monitoring' >&2"

// An ipu is one, with figures of its own, to which a process is attached.
type ipu struct {
	id, pid int
}

// attributes are those that gc-inventory gives; the power of every second one cannot
// be read.
func (u ipu) attributes() map[string]string {
	all := map[string]string{
		"id": strconv.Itoa(u.id), "target": "Fabric", "user process id": strconv.Itoa(u.pid), "serial number": "0031.0002.8203321",
		"average board temp": fmt.Sprintf("%d.5 C", 20+u.id), "average die temp": fmt.Sprintf("%d.25 C", 30+u.id),
		"clock": fmt.Sprintf("%dMHz", 1300+u.id), "link speed": "16.0 GT/s", "total board power": fmt.Sprintf("%dW", 120+u.id),
		"ipu power": "N/A", "ipu utilisation": fmt.Sprintf("%d.75%%", 60+u.id), "ipu utilisation (session)": fmt.Sprintf("%d.5%%", 70+u.id),
	}
	if u.id%2 == 0 {
		all["ipu power"] = fmt.Sprintf("%d.25 W", 90+u.id)
	}
	if u.pid == 0 {
		delete(all, "user process id")
	}
	return all
}

// session is the one that also counts for the attached process.
func (u ipu) session() float64 { return 70.5 + float64(u.id) }

// figures are its values, all metrics on, by the names of their tags.
func (u ipu) figures() map[string]float64 {
	id := float64(u.id)
	all := map[string]float64{
		"average board temp (C)": 20.5 + id, "average die temp (C)": 30.25 + id, "clock (MHz)": 1300 + id, "speed (GT/s)": 16,
		"total board power (W)": 120 + id, "ipu utilisation (%)": 60.75 + id, "ipu utilisation (session) (%)": u.session(),
	}
	if u.id%2 == 0 {
		all["ipu power (W)"] = 90.25 + id
	}
	return all
}

// ipuNames are the names in template and sdk naming, by the tags.
var ipuNames = map[string]struct {
	template, sdk string
	unit          string
}{
	"average board temp (C)":        {"averageBoardTemp", "average board temp", "Cel"},
	"average die temp (C)":          {"averageDieTemp", "average die temp", "Cel"},
	"clock (MHz)":                   {"clock", "clock", "MHz"},
	"speed (GT/s)":                  {"linkSpeed", "speed (GT/s)", "{GT}/s"},
	"ipu power (W)":                 {"power", "ipu power", "W"},
	"total board power (W)":         {"totalBoardPower", "total board power (W)", "W"},
	"ipu utilisation (%)":           {"utilisation", "ipu utilisation (%)", "%"},
	"ipu utilisation (session) (%)": {"sessionUtilisation", "ipu utilisation (session)", "%"},
}

// ipuName is the name of a metric in a naming.
func ipuName(naming, tag string, id int) string {
	switch naming {
	case "tag":
		return fmt.Sprintf("ipu.%d.%s", id, tag)
	case "sdk":
		return fmt.Sprintf("ipu.%d.%s", id, ipuNames[tag].sdk)
	}
	return "ipu." + ipuNames[tag].template
}

// ipuSeries is the name of a series, as points.figures gives it.
func ipuSeries(naming, tag string, id int) string {
	return fmt.Sprint(ipuName(naming, tag, id), " ", map[string]any{"device_id": int64(id)})
}

// ipuFigures are those of several IPUs in a naming.
func ipuFigures(naming string, all ...ipu) map[string]float64 {
	figures := map[string]float64{}
	for _, u := range all {
		for tag, value := range u.figures() {
			figures[ipuSeries(naming, tag, u.id)] = value
		}
	}
	return figures
}

// sessionFigures are what a workload has of its IPUs.
func sessionFigures(all ...ipu) map[string]float64 {
	figures := map[string]float64{}
	for _, u := range all {
		figures[ipuSeries("template", "ipu utilisation (session) (%)", u.id)] = u.session()
	}
	return figures
}

// makeInventory makes a double of gc-inventory that tells of IPUs, and of a device that
// is made of them.
func makeInventory(t *testing.T, all ...ipu) *fakeTool {
	t.Helper()
	devices := []map[string]string{{"id": "99", "target": "Multi IPU", "clock": "1300MHz"}}
	for _, u := range all {
		devices = append(devices, u.attributes())
	}
	text, err := json.Marshal(map[string]any{"devices": devices})
	require.NoError(t, err)
	f := makeTool(t, "gc-inventory")
	f.tells("answer", string(text))
	f.does(inventoryAnswers)
	return f
}

// ipuReceiver is a section that measures the machine and its IPUs.
func (f *fakeTool) ipuReceiver(name, section, more string) string {
	return neuronReceiver(name, fmt.Sprintf("ipu: {tool_dir: %s, %s}", filepath.Dir(f.path), section), "extended: true, "+more)
}

func (ps points) ofIPUs() points {
	return ps.filter(func(p point) bool { return strings.HasPrefix(p.name, "ipu.") })
}

// ipus are the points of IPUs of an instance: a machine or a workload.
func (x *troubled) ipus(instance string) func() points {
	return func() points { return x.sink.points().ofInstance(instance).ofIPUs() }
}

func TestIPUsUnderEveryName(t *testing.T) {
	units := []ipu{{id: 0}, {id: 1}, {id: 12}}
	f := makeInventory(t, units...)
	namings := []string{"template", "tag", "sdk"}
	var receivers strings.Builder
	for _, naming := range namings {
		receivers.WriteString(f.ipuReceiver(naming, "", "workloads: {discover: []}, naming: "+naming))
	}
	x := startFamilyInTrouble(t, "ipu", nil, receivers.String())
	for _, naming := range namings {
		x.waitForFigures("all figures", ipuFigures(naming, units...), x.ipus(naming))
		x.waitForHealth(naming, "detected", 1, "")
		assert.Contains(t, x.sink.points().ofInstance(naming).names(), "memory_percent")
		for tag, names := range ipuNames {
			for _, p := range x.ipus(naming)().named(ipuName(naming, tag, 0)) {
				require.Equal(t, gauge.in(names.unit), p.shape, p.name)
			}
		}
	}
	assert.Empty(t, append(x.logLines("warn"), x.logLines("error")...))
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
	assert.Zero(t, f.copies())
}

// How busy a session keeps an IPU counts for the workload whose process is attached, be
// it a child; with a process configured, only its IPUs count.
func TestIPUsOfWorkloads(t *testing.T) {
	skipUnlessMachine(t)
	root, children := startFamily(t)
	stranger := startHelper(t, "idle")
	const ended = 4_194_000 // above what pids here reach
	own, child, other := ipu{0, root.pid()}, ipu{1, children[0]}, ipu{2, stranger.pid()}
	gone, free := ipu{3, ended}, ipu{id: 4}
	f := makeInventory(t, own, child, other, gone, free)
	x := startFamilyInTrouble(t, "ipu", nil,
		f.ipuReceiver("target", "", fmt.Sprintf("workloads: {pid: %d, discover: []}", root.pid()))+
			f.ipuReceiver("holders", "", "workloads: {discover: [gpu]}"))
	of := func(host string, pid int) func() points {
		return func() points { return x.sink.points().of(host, pid).ofIPUs() }
	}
	x.waitForFigures("those of the process", ipuFigures("template", own, child), x.ipus("target"))
	for _, p := range x.waitForFigures("its sessions", sessionFigures(own, child), of("target", root.pid())) {
		require.Equal(t, "process", p.resource["wandbsys.workload.kind"])
	}
	x.waitForFigures("all", ipuFigures("template", own, child, other, gone, free), x.ipus("holders"))
	for _, p := range x.waitForFigures("who else is attached", sessionFigures(other), of("holders", stranger.pid())) {
		require.Equal(t, "gpu", p.resource["wandbsys.workload.kind"])
	}
	x.waitFor("the workload's own figures", func() bool { return len(x.sink.points().of("holders", stranger.pid()).named("proc.memory.rssMB")) > 0 })
	assert.Empty(t, of("target", stranger.pid())())
}

// A tool that hangs costs the machine's figures nothing, is not started twice, and leaves
// nothing behind.
func TestAnIPUToolThatHangs(t *testing.T) {
	u := ipu{id: 0}
	f := makeInventory(t, u)
	x := startFamilyInTrouble(t, "ipu", nil, f.ipuReceiver("node", "source: gc-inventory, tool_timeout: 1500ms", "workloads: {discover: []}"))
	x.waitForFigures("all figures", ipuFigures("template", u), x.ipus("node"))
	seen := x.lines()

	f.does(toolHangs)
	x.waitForHealth("node", "lost", 0, "tool_timeout is over")
	began := time.Now()
	memory := func() points { return x.sink.points().named("memory_percent").after(began) }
	x.never(f, "many scrapes of the machine", func() bool { return len(memory()) >= several })
	checkPace(t, memory(), deviceInterval)
	assert.Empty(t, x.ipus("node")().after(began), "no stale repeats")
	bad := x.news(&seen)
	assert.Equal(t, 1, said(bad, "Error scraping metrics"), "%q", bad)

	f.does(inventoryAnswers)
	x.waitForHealth("node", "detected", 1, "")
	again := time.Now()
	x.waitFor("its figures", func() bool { return len(x.ipus("node")().after(again)) > 0 })
	good := x.news(&seen)
	assert.Equal(t, 1, said(good, "answers again"), "%q", good)

	runs := len(f.runs())
	f.does(toolHangs)
	x.waitFor("a run that hangs", func() bool { return len(f.runs()) > runs+1 && f.copies() == 1 })
	checkShutdown(t, hungShutdown, x.process, func() *process { t.Fatal("too slow"); return nil })
	assert.Zero(t, f.copies(), "the run ends with the collector")
}
