// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxKnown bounds the remembered identities; more make them start over.
const maxKnown = 4096

// Identifier tells the identity of processes from /proc/PID/cgroup. It
// remembers what it was told; not safe for concurrent use.
type Identifier struct {
	root   string
	finder finder
	// known are the identities by content, for what tells the same forever.
	known map[string]Identity
	// found are those of contents that lead out of our own group.
	found map[string]*finding
}

// finding is an identity that depends on where groups were found.
type finding struct {
	id Identity
	// dirs are those groups: it holds as long as they exist. Without any it
	// holds for retry calls.
	dirs  []string
	retry int
}

func (f *finding) holds() bool {
	if len(f.dirs) == 0 {
		f.retry--
		return f.retry >= 0
	}
	return !slices.ContainsFunc(f.dirs, func(dir string) bool { return !exists(dir) })
}

// NewIdentifier returns an Identifier for the machine whose / is at rootPath.
func NewIdentifier(rootPath string) *Identifier {
	return &Identifier{
		root:   filepath.Join("/", rootPath),
		finder: newFinder(rootPath),
		known:  map[string]Identity{},
		found:  map[string]*finding{},
	}
}

// Identify takes the content of /proc/PID/cgroup. What is known costs no
// allocation.
func (i *Identifier) Identify(pid int, content []byte) Identity {
	if id, ok := i.known[string(content)]; ok {
		return id
	}
	if f, ok := i.found[string(content)]; ok && f.holds() {
		return f.id
	}
	f, lasts := i.resolve(pid, content)
	if lasts {
		keep(i.known, string(content), f.id)
	} else {
		keep(i.found, string(content), &f)
	}
	return f.id
}

// resolve tells the identity, and whether it is the last word: no path leads
// out of our own group.
func (i *Identifier) resolve(pid int, content []byte) (f finding, lasts bool) {
	var all identities
	var found, hidden []string
	f.retry, lasts = retryAfter, true
	for l := range lines(content) {
		if !isBelow(l.path, "/..") {
			all.add(l.path)
			continue
		}
		lasts = false
		if slices.Contains(found, l.path) {
			continue // in the next hierarchy it is the same group
		}
		g, ok := i.search(l, pid)
		if !ok {
			hidden = append(hidden, l.path)
			continue
		}
		all.add(g.path)
		found = append(found, l.path)
		f.dirs = append(f.dirs, path.Join(g.mount, g.path))
	}
	for _, groupPath := range hidden {
		all.add(groupPath)
	}
	f.id = all.sum()
	return f, lasts
}

func keep[T any](m map[string]T, content string, value T) {
	if len(m) >= maxKnown {
		clear(m)
	}
	m[content] = value
}

// search looks for a group whose path leads out of ours.
func (i *Identifier) search(l line, pid int) (group, bool) {
	if l.controllers == "" {
		return i.finder.search(unifiedMounts(i.root), l.path, "", pid)
	}
	controllers := strings.TrimPrefix(l.controllers, "name=")
	controller, _, _ := strings.Cut(controllers, ",")
	return i.finder.search(v1Mounts(i.root, controllers, controller), l.path, controller, pid)
}

// identities are what the lines of a process tell. The container and the job
// may be told by different ones: Slurm uses some controllers only, and puts the
// process deeper in some than in others.
type identities struct {
	container, slurm Identity
}

// add takes what a path tells better than those before it. The kernel lists the
// hierarchies of version 1 before the unified one.
func (all *identities) add(groupPath string) {
	id := Identify(groupPath)
	if containerRank(&id) > containerRank(&all.container) {
		all.container = id
	}
	if slurmRank(&id) > slurmRank(&all.slurm) {
		all.slurm = id
	}
}

func (all *identities) sum() Identity {
	id := all.container
	id.takeSlurm(&all.slurm)
	id.Helper = all.container.Helper || all.slurm.Helper
	return id
}

// containerRank tells how much is known of the container. A pod without a
// container and with a helper is the container's monitor.
func containerRank(id *Identity) int {
	pod := id.PodUID != "" || id.ECSTask != ""
	switch {
	case id.ContainerID != "":
		return 4
	case pod && id.Helper:
		return 3
	case pod:
		return 2
	case id.Helper:
		return 1
	}
	return 0
}

// slurmRank tells how much is known of the job.
func slurmRank(id *Identity) int {
	switch {
	case id.SlurmTask != "":
		return 4
	case id.SlurmStep != "" && id.Helper:
		return 3
	case id.SlurmStep != "":
		return 2
	case id.SlurmJob != "" || id.SlurmSLUID != "":
		return 1
	}
	return 0
}
