// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// source fetches readings. It is used by one goroutine at a time.
type source interface {
	// read reads every GPU once. What is not read in time is missing, and the
	// reading says so.
	read(ctx context.Context, w want) *reading
	// close ends what the source runs and holds.
	close(ctx context.Context) error
}

// reading is what one scrape found.
type reading struct {
	// at is when the GPUs were read.
	at    time.Time
	cards []cardReading
	// gpus describes the machine's GPUs.
	gpus identity.GPUs
	// complete says that every GPU was asked, pending that the source has not
	// answered yet.
	complete, pending bool
	// processes are those of the KFD, where the source asked for them.
	processes optional.Of[[]kfdProcess]
	// ownIndices says that the GPUs have the numbers that they have in sysfs: of
	// partitions that share an address one may be missing.
	ownIndices bool
	// errs holds *scrapers.AbsentError alone, or *scrapers.SourceError.
	errs []error
}

// cardReading is a GPU, or a partition of one.
type cardReading struct {
	card.Reading
	// parent is the identity of the chip that a partition is part of.
	parent     string
	attributes *attributes
}

// kfdProcess is a process that computes, as the KFD lists it.
type kfdProcess struct {
	pid  int
	gpus []kfdGPU
}

// kfdGPU is what a process has of a GPU.
type kfdGPU struct {
	id uint64
	// memory is in bytes.
	memory int64
	// queue says that it has a queue there.
	queue bool
}

// key names the device whatever its number is.
func (c *cardReading) key() string { return c.UniqueID + " " + c.PCI }

// has tells whether a device was there.
func (r *reading) has(key string) bool {
	for i := range r.cards {
		if r.cards[i].key() == key {
			return true
		}
	}
	return false
}

// selection are the GPUs that device_ids names; all when it names none.
type selection []gpus.DeviceID

// has tells whether a GPU is selected: a partition is by its own number, and by what
// names its chip.
func (s selection) has(index int, pci, uniqueID string) bool {
	if len(s) == 0 {
		return true
	}
	return slices.ContainsFunc(s, func(id gpus.DeviceID) bool { return isNamed(id, index, pci, uniqueID) })
}

func isNamed(id gpus.DeviceID, index int, pci, uniqueID string) bool {
	chip, _, _ := strings.Cut(uniqueID, "/")
	return id.Index == index || (id.PCI != "" && id.PCI == pci) || (id.UUID != "" && strings.EqualFold(id.UUID, chip))
}

// want says which figures are needed beyond those of the published tags.
type want struct {
	activity, overdrive, sensors, clocks, errors, energy, pcie, throttles bool
	// processes asks who uses the GPUs.
	processes bool
}

// extras tells whether any is wanted that takes the tools more than their usual
// question.
func (w want) extras() bool { return w.clocks || w.errors || w.energy || w.pcie }

// wantOf tells what the metrics that are on need. Clocks and errors are on by
// default for NVIDIA's GPUs only: here they come with `extended`.
func wantOf(m *metadata.MetricsConfig, extended, withOwners bool) want {
	return want{
		activity:  m.GpuMemoryReadWriteActivity.Enabled || m.GpuProcessMemoryReadWriteActivity.Enabled,
		overdrive: m.GpuMemoryOverDrive.Enabled || m.GpuProcessMemoryOverDrive.Enabled,
		sensors:   m.GpuSensorTemp.Enabled,
		clocks: extended && (m.GpuGraphicsClock.Enabled || m.GpuMemoryClock.Enabled ||
			m.GpuProcessGraphicsClock.Enabled || m.GpuProcessMemoryClock.Enabled),
		errors: extended && (m.GpuCorrectedMemoryErrors.Enabled || m.GpuUnCorrectedMemoryErrors.Enabled ||
			m.GpuProcessCorrectedMemoryErrors.Enabled || m.GpuProcessUnCorrectedMemoryErrors.Enabled),
		energy: m.GpuEnergy.Enabled,
		pcie: m.GpuPcieLinkGen.Enabled || m.GpuPcieLinkWidth.Enabled || m.GpuMaxPcieLinkGen.Enabled ||
			m.GpuMaxPcieLinkWidth.Enabled || m.GpuPcieReplays.Enabled,
		throttles: m.GpuClockEventActive.Enabled,
		processes: withOwners,
	}
}
