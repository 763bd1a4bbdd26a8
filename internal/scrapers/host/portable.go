// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"strings"
	"time"
)

// This file has what the systems other than Linux share and what needs none of
// them: it is tested everywhere.

// isNotImplemented knows gopsutil's error by its text: the value is internal.
func isNotImplemented(err error) bool {
	return strings.Contains(err.Error(), "not implemented yet")
}

// isUntold tells the errors of a value that a system does not tell, or not to
// us: it is absent, which is no fault.
func isUntold(err error) bool {
	return err != nil && (isNotImplemented(err) || errors.Is(err, fs.ErrPermission))
}

// processTable is what one look at all processes tells.
type processTable struct {
	children map[int32][]int32 // by the parent's pid
	// threads is by pid; nil where the look does not tell.
	threads map[int32]int
}

func (t *processTable) add(pid, parent int32) {
	if t.children == nil {
		t.children = map[int32][]int32{}
	}
	if pid != parent { // as the idle process of Windows
		t.children[parent] = append(t.children[parent], pid)
	}
}

func (t *processTable) addThreads(pid int32, threads int) {
	if t.threads == nil {
		t.threads = map[int32]int{}
	}
	t.threads[pid] = threads
}

// treeTimes follows the CPU time of a tree. Unlike on Linux nothing tells what
// a process that ended used since it was last read: that is lost.
type treeTimes struct {
	times map[treeMember]time.Duration
	at    time.Time
	total time.Duration
}

// treeMember identifies a process of the tree; created is in milliseconds.
type treeMember struct {
	pid     int32
	created uint64
}

// update takes the times of all members now, and returns the time that the tree
// used since the first update. A member that is older than the last update and
// was not in it joined the tree, and brings nothing.
func (t *treeTimes) update(at time.Time, times map[treeMember]time.Duration) time.Duration {
	for m, now := range times {
		before, was := t.times[m]
		switch {
		case was:
			t.total += max(0, now-before)
		case !t.at.IsZero() && m.created >= uint64(t.at.UnixMilli()):
			t.total += now
		}
	}
	t.times, t.at = times, at
	return t.total
}
