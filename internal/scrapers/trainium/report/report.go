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
	r := &Report{HardwareError: string(doc.Hardware.Error), Cores: doc.Hardware.cores()}
	if doc.Runtimes != nil {
		for i := range *doc.Runtimes {
			r.addRuntime(&(*doc.Runtimes)[i])
		}
	}
	counters := &doc.System.Counters
	if counters.Error != "" {
		r.Troubles = append(r.Troubles, "neuron_hw_counters: "+string(counters.Error))
		return r, nil
	}
	r.Devices = devicesOf(counters.Devices)
	return r, nil
}

func (r *Report) addRuntime(e *entry) {
	made := Runtime{Key: Key{Pid: e.Pid.whole(), Tag: string(e.Tag)}}
	switch {
	case e.Error != "":
		made.Unread = true
		r.Troubles = append(r.Troubles, made.Key.String()+": "+string(e.Error))
	case e.Report == nil:
		made.Unread = true
	default:
		r.Troubles = append(r.Troubles, made.take(e.Report)...)
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
func (r *Runtime) take(groups *groups) (troubles []string) {
	usable := func(name string, there bool, err text) bool {
		if err != "" {
			troubles = append(troubles, fmt.Sprintf("%s: %s: %s", r.Key, name, err))
		}
		return there && err == ""
	}
	if g := groups.Cores; usable("neuroncore_counters", g != nil, g.err()) {
		r.Unread = !g.isLongEnough()
		if !r.Unread {
			r.Utilisation = utilisationOf(g.InUse)
		}
	} else {
		r.Unread = true
	}
	if g := groups.Memory; usable("memory_used", g != nil, g.err()) {
		r.takeMemory(&g.Used)
	}
	if g := groups.Execution; usable("execution_stats", g != nil, g.err()) {
		r.Execution = &Execution{
			Errors: known(g.Errors), Outcomes: known(g.Summary),
			Total: known(g.Latency.Total), Device: known(g.Latency.Device),
		}
	}
	return troubles
}

func (r *Runtime) takeMemory(used *usedBytes) {
	r.Host, r.Device = used.Host.optional(), used.Device.optional()
	r.HostParts = parts(used.Breakdown.Host)
	for name, all := range used.Breakdown.Cores {
		core, ok := index(name)
		if !ok {
			continue
		}
		if r.CoreParts == nil {
			r.CoreParts = make(map[int]map[string]float64, len(used.Breakdown.Cores))
		}
		r.CoreParts[core] = parts(all)
	}
}

func utilisationOf(cores map[string]core) map[int]float64 {
	all := make(map[int]float64, len(cores))
	for name, c := range cores {
		if n, ok := index(name); ok && c.Utilisation.known {
			all[n] = min(c.Utilisation.value, 100)
		}
	}
	return all
}

func devicesOf(list []device) map[int]ECC {
	all := make(map[int]ECC, len(list))
	for i := range list {
		d := &list[i]
		if !d.Index.known {
			continue
		}
		ecc := ECC{}
		for name, n := range map[string]number{
			MemCorrected: d.MemCorrected, MemUncorrected: d.MemUncorrected,
			SRAMCorrected: d.SRAMCorrected, SRAMUncorrected: d.SRAMUncorrected,
		} {
			if n.known {
				ecc[name] = n.value
			}
		}
		all[d.Index.whole()] = ecc
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

// IsPart tells whether this can be the name of a part of the memory.
func IsPart(name string) bool {
	return name != "" && len(name) <= maxPart && strings.Trim(name, partLetters) == ""
}

const partLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
