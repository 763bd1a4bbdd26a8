// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroup finds the control group of a process, version 1, 2 or both, the
// limits that it and its ancestors set, and what they have used. Everything is
// read anew at each call, since limits change while a process runs (in-place
// resize of a pod). The path of a group tells whose it is: a container's, a
// pod's, a Slurm job's.
package cgroup

import "fmt"

// MemoryUse says what counts as used memory of a group.
type MemoryUse string

const (
	// WorkingSet is usage without inactive file pages, as kubelet, cAdvisor and
	// docker stats count it.
	WorkingSet MemoryUse = "working_set"
	// Usage is all that is charged, page cache included, as W&B counts it.
	Usage MemoryUse = "usage"
	// Anon is usage without file pages, shared memory included.
	Anon MemoryUse = "anon"
)

// Validate tells whether the value is known.
func (u MemoryUse) Validate() error {
	switch u {
	case WorkingSet, Usage, Anon:
		return nil
	}
	return fmt.Errorf("unknown value %q; use working_set, usage or anon", string(u))
}
