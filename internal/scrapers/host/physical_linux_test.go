// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const coreList = "sys/devices/system/cpu/cpu0/topology/core_cpus_list"

func TestPhysicalCPUsAreCountedOnce(t *testing.T) {
	m := aWholeMachine(t)
	m.cfg.CPUDenominator = denominatorPhysical
	src := m.source()
	for range 2 {
		r := src.read(t.Context(), want{})
		requireSources(t, r)
		assert.InDelta(t, 2, r.first().capacity, 0, "two cores with three threads")
		m.remove("sys/devices", "proc/cpuinfo")
	}
}

func TestPhysicalCPUsThatTheMachineDoesNotTellAreTheLogicalOnes(t *testing.T) {
	m := aWholeMachine(t)
	m.remove("sys/devices", "proc/cpuinfo")
	m.cfg.CPUDenominator = denominatorPhysical
	r := m.source().read(t.Context(), want{})
	requireSources(t, r)
	assert.InDelta(t, 3, r.first().capacity, 0)
}

// Of a number that is not known yet no percentage can be made.
func TestPhysicalCPUsThatHangCostOnlyThePercentage(t *testing.T) {
	t.Parallel()
	m := aWholeMachine(t)
	m.cfg.CPUDenominator = denominatorPhysical
	m.fifo(coreList)
	src := m.source()
	r := src.read(shortly(t), want{})
	requireSources(t, r, "cpuinfo")
	require.NotNil(t, r.first())
	assert.Zero(t, r.first().capacity)
	assert.NotNil(t, r.memory)

	r = src.read(t.Context(), want{})
	requireSources(t, r, "cpuinfo")
	require.ErrorIs(t, r.errs[0], guard.ErrHung)
}
