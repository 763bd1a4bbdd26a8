// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"golang.org/x/sys/unix"
)

// sysClass remembers what /sys says of a device. A look-up in sysfs costs as
// much as all of the device's numbers, and on a real sysfs the answer lasts as
// long as the device: it is asked again when the device was gone for a scrape
// or its counters fell, which a device that took its name may do.
type sysClass struct {
	dirs []string // where sysfs lists the class; the first that exists
	dir  string   // that one; empty: none
	real bool     // dir is on a real sysfs

	round   uint64
	entries map[string]*classEntry
}

type classEntry struct {
	answer bool
	a, b   uint64 // the device's counters
	round  uint64 // when it was last seen
}

// begin starts a scrape.
func (c *sysClass) begin() {
	c.round++
	if c.entries == nil || len(c.entries) > maxNames {
		c.entries = map[string]*classEntry{}
	}
	if c.real {
		return
	}
	c.dir = ""
	for _, dir := range c.dirs {
		if !exists(dir) {
			continue
		}
		var st unix.Statfs_t
		c.dir = dir
		c.real = unix.Statfs(dir, &st) == nil && st.Type == unix.SYSFS_MAGIC
		return
	}
}

// of returns what ask says of the device with these counters, now or before.
func (c *sysClass) of(name string, a, b uint64, ask func(dir, name string) bool) bool {
	e, known := c.entries[name]
	if !known {
		e = &classEntry{}
		c.entries[name] = e
	}
	if !c.real || !known || e.round != c.round-1 || a < e.a || b < e.b {
		e.answer = ask(c.dir, name)
	}
	e.a, e.b, e.round = a, b, c.round
	return e.answer
}

// exists is os.Stat without its allocations.
func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }
