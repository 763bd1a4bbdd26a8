// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path"
	"strings"
)

const (
	// maxDepth is how deep below the root our own group may lie: a pod in a
	// slice in a slice.
	maxDepth = 3
	// maxFolders bounds a search on a node with thousands of groups.
	maxFolders = 8192
	// maxFound bounds the remembered places; more make them start over.
	maxFound = 4096
	// missesKept is for how many calls a search that found nothing is not made
	// again: it may have looked at thousands of folders.
	missesKept = 20
)

// finder remembers where groups were found whose paths lead out of ours.
type finder struct {
	found  map[string]string
	missed map[string]int // calls until the next search
}

// search finds a group whose path is relative to our own group, which is what
// a reader in a cgroup namespace of its own sees: "/../../pod-x/c". How far up
// the dots lead is not known, so the rest is looked for below the root,
// breadth first.
func (r *Reader) search(mounts []string, groupPath string, v1 bool) (group, bool) {
	rest := groupPath
	for isBelow(rest, "/..") {
		rest = rest[len("/.."):]
	}
	if rest = path.Join("/", rest); rest == "/" {
		return group{}, false
	}
	for _, mount := range mounts {
		if !exists(mount) {
			continue
		}
		if found, ok := r.finder.at(mount, rest, v1); ok {
			return group{v1: v1, mount: mount, path: found}, true
		}
	}
	return group{}, false
}

// at returns the path below the mount that ends with rest.
func (f *finder) at(mount, rest string, v1 bool) (string, bool) {
	key := mount + "\x00" + rest
	if known, ok := f.found[key]; ok && isGroup(path.Join(mount, known), v1) {
		return known, true
	}
	for _, parent := range append(sliceParents(rest), "/") {
		if isGroup(path.Join(mount, parent, rest), v1) {
			return f.keep(key, path.Join(parent, rest)), true
		}
	}
	if f.missed[key] > 0 {
		f.missed[key]--
		return "", false
	}
	if parent, ok := deepSearch(mount, rest, v1); ok {
		return f.keep(key, path.Join(parent, rest)), true
	}
	if len(f.missed) > maxFound {
		clear(f.missed)
	}
	f.missed[key] = missesKept
	return "", false
}

// deepSearch returns the folder below the mount that holds rest.
func deepSearch(mount, rest string, v1 bool) (string, bool) {
	level, seen := []string{"/"}, 0
	for range maxDepth {
		level = subfolders(mount, level)
		if seen += len(level); seen > maxFolders {
			return "", false
		}
		for _, parent := range level {
			if isGroup(path.Join(mount, parent, rest), v1) {
				return parent, true
			}
		}
	}
	return "", false
}

func (f *finder) keep(key, found string) string {
	if len(f.found) > maxFound {
		clear(f.found)
	}
	f.found[key] = found
	return found
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
