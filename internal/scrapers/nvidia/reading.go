// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"slices"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// source fetches raw readings. It is used by one goroutine at a time.
type source interface {
	// read reads every GPU once. What is not read in time is missing, and the
	// reading says so.
	read(ctx context.Context, w want) *reading
	// close frees the driver, unless a call of it hangs.
	close(ctx context.Context) error
}

// want says which figures are needed beyond those of the published tags. Each
// costs a call per GPU.
type want struct {
	fan, pcieLink, pcieSpeed, energy, replays, remapped, retired, retiredPending, reasons, xids bool
	// profiling asks for GPM, mig for MIG instances, migProfiling for GPM of them.
	profiling, mig, migProfiling bool
	// processes asks who uses the GPUs.
	processes bool
}

// reading is what one scrape found.
type reading struct {
	devices []deviceReading
	// generation grows each time that the library is opened.
	generation int
	// gpus describes the machine's GPUs; their number is 0 where they were not
	// counted.
	gpus identity.GPUs
	// complete says that every GPU was asked.
	complete bool
	// errs holds *scrapers.AbsentError alone, or *scrapers.SourceError.
	errs []error
}

// deviceReading is one GPU. Units are NVML's.
type deviceReading struct {
	at    time.Time
	index int
	// uuid and name are empty where they are not told.
	uuid, name string
	// attributes are made of these.
	attributes *attributes

	// gpu and memory are in percent of the time; encoder in percent.
	gpu, memory, encoder optional.Of[uint32]
	usage                optional.Of[memoryReading]
	temperature          optional.Of[uint32] // degrees Celsius
	power, powerLimit    optional.Of[uint32] // milliwatts
	clocks               clocksReading
	// corrected and uncorrected count since the driver was loaded.
	corrected, uncorrected optional.Of[uint64]

	health    healthReading
	profile   profileReading
	instances []instanceReading
	processes []processReading
}

// memoryReading is in bytes.
type memoryReading struct {
	used, total uint64
	// unified memory is the machine's; used is what the processes have of it.
	unified bool
}

// clocksReading is in MHz.
type clocksReading struct {
	graphics, sm, memory optional.Of[uint32]
}

// healthReading is what operators ask for.
type healthReading struct {
	fan                                  optional.Of[uint32] // percent
	linkGen, linkWidth, maxGen, maxWidth optional.Of[uint32]
	linkSpeed                            optional.Of[uint32] // Mbit/s
	energy                               optional.Of[uint64] // millijoules since the driver was loaded
	replays                              optional.Of[uint32]
	remapped                             optional.Of[remappedReading]
	retiredSingle, retiredDouble         optional.Of[int]
	retiredPending                       optional.Of[bool]
	reasons, supportedReasons            optional.Of[uint64] // bit masks
	// xids counts the errors since the GPU was first seen, by number.
	xids      map[uint64]uint64
	xidsSince time.Time
}

// remappedReading is the remapping of memory rows.
type remappedReading struct {
	corrected, uncorrected int
	pending, failed        bool
}

// profileReading holds GPM metrics, a dozen at most.
type profileReading []gpmFigure

// gpmFigure is a GPM metric as NVML gives it: percent, MiB/s.
type gpmFigure struct {
	id    uint32
	value float64
}

func (r profileReading) of(id uint32) (float64, bool) {
	for i := range r {
		if r[i].id == id {
			return r[i].value, true
		}
	}
	return 0, false
}

// instanceReading is one MIG instance.
type instanceReading struct {
	slot, gi, ci  int
	uuid, profile string
	usage         optional.Of[memoryReading]
	metrics       profileReading
}

// processReading is one process that uses a GPU.
type processReading struct {
	// pid is the machine's.
	pid int
	// memory is in bytes.
	memory optional.Of[uint64]
	// gi and ci are the MIG instance; below 0 for none.
	gi, ci int
}

// has tells whether a device was there.
func (r *reading) has(key string) bool {
	for i := range r.devices {
		if r.devices[i].key() == key {
			return true
		}
	}
	return false
}

// sort puts the devices in the order of their numbers, in which they are mostly:
// to compare them as values would copy each of them many times.
func (r *reading) sort() {
	for i := 1; i < len(r.devices); i++ {
		if r.devices[i-1].index > r.devices[i].index {
			slices.SortFunc(r.devices, func(a, b deviceReading) int { return a.index - b.index })
			return
		}
	}
}
