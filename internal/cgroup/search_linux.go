// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

const (
	// maxDepth is how deep below the root our own group may lie where nothing
	// tells: a pod in a slice in a slice.
	maxDepth = 3
	// maxFolders bounds a search on a node with thousands of groups.
	maxFolders = 8192
	// maxFound bounds the remembered places; more make them start over.
	maxFound = 4096
)

// finder remembers where groups were found whose paths lead out of ours.
type finder struct {
	proc  string
	found map[string]string
}

func newFinder(rootPath string) finder {
	return finder{proc: filepath.Join("/", rootPath, "proc"), found: map[string]string{}}
}

// wanted is a group that is looked for below a mount.
type wanted struct {
	// rest is what follows the dots of its path.
	rest string
	// level is how deep below the root the group lies that rest starts from; -1
	// is unknown.
	level int
	v1    bool
	// pid tells the group from another one of that name.
	pid int
}

// search finds a group whose path is relative to our own group, which is what
// a reader in a cgroup namespace of its own sees: "/../../pod-x/c".
func (f *finder) search(mounts []string, groupPath, controller string, pid int) (group, bool) {
	up, rest := splitDots(groupPath)
	if rest == "/" {
		return group{}, false // one of our own ancestors, whose name we do not see
	}
	w := wanted{rest: rest, level: -1, v1: controller != "", pid: pid}
	if depth, known := f.ownDepth(controller); known && depth >= up {
		w.level = depth - up
	}
	for _, mount := range mounts {
		if !exists(mount) {
			continue
		}
		if found, ok := f.at(mount, w); ok {
			return group{v1: w.v1, mount: mount, path: found}, true
		}
	}
	return group{}, false
}

// splitDots returns how often a path leads up, and what follows.
func splitDots(groupPath string) (up int, rest string) {
	rest = groupPath
	for isBelow(rest, "/..") {
		rest = rest[len("/.."):]
		up++
	}
	return up, path.Join("/", rest)
}

// ownDepth tells how deep our own group lies: the machine's pid 1 is in the
// root, or in init.scope below it, so that its path leads up as often.
func (f *finder) ownDepth(controller string) (int, bool) {
	content, err := guard.ReadFile(f.proc+"/1/cgroup", maxFile)
	if err != nil {
		return 0, false
	}
	m := parseMembership(content)
	groupPath := m.v2
	if l, ok := m.v1[controller]; ok {
		groupPath = l.path
	}
	up, rest := splitDots(groupPath)
	return up, up > 0 && (rest == "/" || rest == "/init.scope")
}

// at returns the path below the mount that ends with what is wanted: where
// systemd puts such a slice, else at the level that is known, else breadth
// first.
func (f *finder) at(mount string, w wanted) (string, bool) {
	key := mount + "\x00" + strconv.Itoa(w.level) + "\x00" + w.rest
	if known, ok := f.found[key]; ok && isGroup(mount, known, w.v1) {
		return known, true
	}
	parent, ok := "", false
	if parents := sliceParents(w.rest); len(parents) > 0 {
		parent, ok = w.choose(mount, parents)
	}
	if !ok && w.level >= 0 {
		parent, ok = w.choose(mount, level(mount, w.level))
	}
	if !ok {
		parent, ok = w.choose(mount, upTo(mount, maxDepth))
	}
	if !ok {
		return "", false
	}
	return f.keep(key, path.Join(parent, w.rest)), true
}

func (f *finder) keep(key, found string) string {
	if len(f.found) > maxFound {
		clear(f.found)
	}
	f.found[key] = found
	return found
}

// choose returns the parent that holds what is wanted: of several the one whose
// group has the process, else the first.
func (w *wanted) choose(mount string, parents []string) (string, bool) {
	first, found := "", false
	for _, parent := range parents {
		groupPath := path.Join(parent, w.rest)
		if !isGroup(mount, groupPath, w.v1) {
			continue
		}
		if hasProcess(path.Join(mount, groupPath), w.pid) {
			return parent, true
		}
		if !found {
			first, found = parent, true
		}
	}
	return first, found
}

// hasProcess asks the group's list of processes.
func hasProcess(dir string, pid int) bool {
	content, err := guard.ReadFile(dir+"/cgroup.procs", maxFile)
	if err != nil {
		return false
	}
	want := strconv.Itoa(pid)
	for line := range bytes.Lines(content) {
		if string(bytes.TrimSpace(line)) == want {
			return true
		}
	}
	return false
}

// sliceParents returns where systemd puts a slice: a-b-c.slice lies in
// a.slice/a-b.slice.
func sliceParents(rest string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	name, isSlice := strings.CutSuffix(first, ".slice")
	if !isSlice || !strings.Contains(name, "-") {
		return nil
	}
	parent, prefix := "/", ""
	parts := strings.Split(name, "-")
	for _, part := range parts[:len(parts)-1] {
		prefix += part
		parent = path.Join(parent, prefix+".slice")
		prefix += "-"
	}
	return []string{parent}
}

// level lists the folders that lie so deep below the mount.
func level(mount string, depth int) []string {
	folders := []string{"/"}
	for range depth {
		folders = subfolders(mount, folders)
	}
	return folders
}

// upTo lists the root and the folders that lie up to so deep, the nearest to
// the root first.
func upTo(mount string, depth int) []string {
	all, last := []string{"/"}, []string{"/"}
	for range depth {
		last = subfolders(mount, last)
		all = append(all, last...)
		if len(all) > maxFolders {
			break
		}
	}
	return all
}

// subfolders lists the folders one level deeper.
func subfolders(mount string, parents []string) []string {
	var all []string
	for _, parent := range parents {
		entries, err := os.ReadDir(path.Join(mount, parent))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				all = append(all, path.Join(parent, e.Name()))
			}
		}
		if len(all) > maxFolders {
			return all
		}
	}
	return all
}
