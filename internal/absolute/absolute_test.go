// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package absolute

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStart(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 1, 2, 3, 4, seconds, 0, time.UTC) }
	var c Counters
	assert.Equal(t, at(1), c.Start("a", "ecc", 5, at(1)), "the first reading")
	assert.Equal(t, at(1), c.Start("a", "ecc", 5, at(2)))
	assert.Equal(t, at(1), c.Start("a", "ecc", 9, at(3)), "it grew")
	assert.Equal(t, at(3), c.Start("a", "ecc", 2, at(4)), "it fell: it began after the last reading")
	assert.Equal(t, at(3), c.Start("a", "ecc", 2, at(5)))
	assert.Equal(t, at(5), c.Start("b", "ecc", 1, at(5)), "another device")
	assert.Equal(t, at(5), c.Start("a", "energy", 1, at(5)), "another counter")

	c.Keep(func(device string) bool { return device == "b" })
	assert.Equal(t, at(5), c.Start("b", "ecc", 1, at(6)))
	assert.Equal(t, at(6), c.Start("a", "ecc", 2, at(6)), "a device that returned")

	c.Restart()
	assert.Equal(t, at(7), c.Start("b", "ecc", 3, at(7)), "the driver was opened anew")
	assert.Equal(t, at(2), c.Start("b", "ecc", 3, at(2)), "the clock was set back")
	assert.Equal(t, at(2), c.Start("b", "ecc", 3, at(8)))
}
