// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package report reads what neuron-monitor tells: a JSON object per line.
package report

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// ErrNoReport says that a line is no report: it is torn, or a message.
var ErrNoReport = errors.New("not a report of neuron-monitor")

// minWindow is what a utilisation must be measured over to count, in seconds. The
// tool's first report comes at once, with a window below a millisecond and zeros.
const minWindow = 0.1

// Report is one line. What the tool does not tell, or tells as null, is absent.
type Report struct {
	// Runtimes are the processes that have NeuronCores open.
	Runtimes []Runtime
	// Troubles say what of the report could not be read by the tool.
	Troubles []string
	// Devices are the hardware counters by the number of the device.
	Devices map[int]ECC
	// HardwareError is why the tool knows no hardware; empty when it does.
	HardwareError string
	// Cores is how many NeuronCores the machine has; 0 when that is not told.
	Cores int
}

// Key tells runtimes apart: a tag may be that of several.
type Key struct {
	// Pid is 0 when it is not known.
	Pid int
	Tag string
}

// Runtime is what one process uses. Bytes and counts are float64, as JSON has them:
// exact to 2^53.
type Runtime struct {
	Key Key
	// Unread says that figures of it that were asked for could not be read, so that
	// what it uses is not all known.
	Unread bool
	// Utilisation is in percent by core, 0 to 100.
	Utilisation map[int]float64
	// Host and Device are all its memory in bytes, HostParts and CoreParts what is
	// in which part.
	Host, Device optional.Of[float64]
	HostParts    map[string]float64
	CoreParts    map[int]map[string]float64
	// Execution is nil when there is none.
	Execution *Execution
}

// Execution is what the process ran in the last period.
type Execution struct {
	// Errors and Outcomes are counts by kind.
	Errors, Outcomes map[string]float64
	// Total and Device are seconds by percentile, with and without the host's part.
	Total, Device map[string]float64
}

// ECC are the errors of a device's memories in the last period, by counter.
type ECC map[string]float64

// Parse reads a line.
func Parse(line []byte) (*Report, error) {
	doc, err := decode(line)
	if err != nil {
		return nil, err
	}
	r := &Report{HardwareError: string(doc.hardware.err), Cores: doc.hardware.cores()}
	for i := range doc.runtimes {
		r.addRuntime(&doc.runtimes[i])
	}
	if doc.left > 0 {
		r.Troubles = append(r.Troubles, fmt.Sprintf("%d runtimes more than the %d that are read", doc.left, maxRuntimes))
	}
	if err := doc.counters.err; err != "" {
		r.Troubles = append(r.Troubles, "neuron_hw_counters: "+string(err))
		return r, nil
	}
	r.Devices = devicesOf(doc.counters.devices)
	return r, nil
}

func (r *Report) addRuntime(e *entry) {
	pid, _ := e.pid.whole()
	made := Runtime{Key: Key{Pid: pid, Tag: string(e.tag)}}
	switch {
	case e.err != "":
		made.Unread = true
		r.Troubles = append(r.Troubles, made.Key.String()+": "+string(e.err))
	case e.report == nil:
		made.Unread = true
	default:
		r.Troubles = append(r.Troubles, made.take(e.report)...)
	}
	r.Runtimes = append(r.Runtimes, made)
}

// String names the process as an operator would.
func (k Key) String() string {
	pid := strconv.Itoa(k.Pid)
	if k.Tag == "" || k.Tag == pid {
		return "pid " + pid
	}
	return fmt.Sprintf("pid %s (%s)", pid, k.Tag)
}

// take takes the groups that the tool could read, and says what was wrong with the
// others.
func (r *Runtime) take(all *groups) (troubles []string) {
	trouble := func(group string, err text) {
		troubles = append(troubles, fmt.Sprintf("%s: %s: %s", r.Key, group, err))
	}
	r.Unread = true
	switch g := all.cores; {
	case g == nil:
	case g.err != "":
		trouble("neuroncore_counters", g.err)
	case g.isLongEnough():
		r.Unread, r.Utilisation = false, utilisationOf(g.inUse)
	}
	switch g := all.memory; {
	case g == nil:
	case g.err != "":
		trouble("memory_used", g.err)
	default:
		r.takeMemory(g)
	}
	switch g := all.execution; {
	case g == nil:
	case g.err != "":
		trouble("execution_stats", g.err)
	default:
		r.Execution = &Execution{Errors: known(g.errs), Outcomes: known(g.summary), Total: known(g.total), Device: known(g.device)}
	}
	return troubles
}

func (r *Runtime) takeMemory(g *memoryGroup) {
	r.Host, r.Device = g.host.optional(), g.device.optional()
	r.HostParts = parts(g.hostParts)
	for name, all := range g.coreParts {
		core, ok := index(name)
		if !ok {
			continue
		}
		if r.CoreParts == nil {
			r.CoreParts = make(map[int]map[string]float64, len(g.coreParts))
		}
		r.CoreParts[core] = parts(all)
	}
}

func utilisationOf(cores map[string]number) map[int]float64 {
	all := make(map[int]float64, len(cores))
	for name, percent := range cores {
		if n, ok := index(name); ok && percent.known {
			all[n] = min(percent.value, 100)
		}
	}
	return all
}

func devicesOf(list []device) map[int]ECC {
	all := make(map[int]ECC, len(list))
	for i := range list {
		d := &list[i]
		place, ok := d.index.whole()
		if !ok || place >= maxIndex {
			continue
		}
		all[place] = known(map[string]number{
			MemCorrected: d.memCorrected, MemUncorrected: d.memUncorrected,
			SRAMCorrected: d.sramCorrected, SRAMUncorrected: d.sramUncorrected,
		})
	}
	return all
}

// The names of the hardware counters.
const (
	MemCorrected    = "mem_ecc_corrected"
	MemUncorrected  = "mem_ecc_uncorrected"
	SRAMCorrected   = "sram_ecc_corrected"
	SRAMUncorrected = "sram_ecc_uncorrected"
)

// known leaves out what is no number.
func known(all map[string]number) map[string]float64 {
	left := make(map[string]float64, len(all))
	for name, n := range all {
		if n.known {
			left[name] = n.value
		}
	}
	return left
}

// parts leaves out what cannot be a part: one that the driver invents becomes a part
// of a metric's name.
func parts(all map[string]number) map[string]float64 {
	left := known(all)
	for name := range left {
		if !IsPart(name) {
			delete(left, name)
		}
	}
	return left
}

// maxPart is how long the name of a part may be.
const maxPart = 64

// IsPart tells whether this can be the name of a part of the memory: with dots it would
// be several parts of a metric's name.
func IsPart(name string) bool {
	return name != "" && len(name) <= maxPart && strings.Trim(name, partLetters) == ""
}

const partLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
