// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNothingIsMeasuredWhereNoFamilyIsOn(t *testing.T) {
	for name, m := range map[string]*Measured{"nil": nil, "zero": {}} {
		assert.True(t, m.Known(), name)
		assert.False(t, m.Any(), name)
		assert.False(t, m.Has("GPU-1"), name)
	}
	var none *Measured
	none.Expect("nvidia")
	none.Set("nvidia", []string{"GPU-1"})
	assert.True(t, none.Known())
	assert.False(t, none.Any())
}

func TestWhatIsMeasuredIsUnknownUntilEveryFamilyHasTold(t *testing.T) {
	var m Measured
	m.Expect("a")
	m.Expect("b")
	assert.False(t, m.Known())
	m.Set("a", []string{"GPU-1"})
	assert.False(t, m.Known())
	assert.True(t, m.Has("GPU-1"), "what one told holds before the other has")
	m.Set("b", nil)
	assert.True(t, m.Known(), "none is an answer too")
}

func TestTheLastThatAFamilyToldHolds(t *testing.T) {
	var m Measured
	m.Set("a", []string{"GPU-1", "GPU-2"})
	m.Set("b", []string{"GPU-3"})
	m.Set("a", []string{"GPU-2"})
	assert.False(t, m.Has("GPU-1"))
	assert.True(t, m.Has("GPU-2"))
	assert.True(t, m.Has("GPU-3"))
	assert.False(t, m.Has("gpu-2"), "a UUID is compared as it is")
	m.Set("a", nil)
	m.Set("b", nil)
	assert.False(t, m.Any())
}

func TestAGPUWithoutUUIDCountsButIsNoOnesName(t *testing.T) {
	var m Measured
	m.Set("a", []string{""})
	assert.True(t, m.Any())
	assert.False(t, m.Has(""))
}

func TestMeasuredIsSafeForConcurrentUse(t *testing.T) {
	var m Measured
	var all sync.WaitGroup
	for i := range 4 {
		family := fmt.Sprint("family ", i)
		all.Go(func() {
			m.Expect(family)
			for range 100 {
				m.Set(family, []string{family})
				assert.True(t, m.Has(family))
				m.Any()
				m.Known()
			}
		})
	}
	all.Wait()
	assert.True(t, m.Known())
}
