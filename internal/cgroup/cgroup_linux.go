// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

const (
	// maxFile is far above what a cgroup's file or a process' list can be.
	maxFile = 1 << 20
	// maxMountinfo bounds the mount table of a node with thousands of pods.
	maxMountinfo = 8 << 20
)

// Limits is what a process' groups allow it.
type Limits struct {
	// Groups are those with a memory limit, the nearest to the process first.
	Groups []Group
	// CPUs is the smallest quota in CPUs; 0 when there is none.
	CPUs float64
	// Path is the group below the root of the hierarchy, as it was found.
	Path string
}

// Group is one group with a memory limit, in bytes.
type Group struct {
	Limit, Used uint64
}

// Memory is the limit in force, in bytes.
type Memory struct {
	// Limit is the smallest limit, Used what its own group uses.
	Limit, Used uint64
	// Headroom is the least that any limited group has left.
	Headroom uint64
}

// Memory returns the limit in force on a machine with this much memory: the
// smallest, of equal ones the nearest to the process, for limit and use must
// come from one group. It is nil when no group has a limit below the machine's
// memory.
func (l *Limits) Memory(total uint64) *Memory {
	var m *Memory
	for _, g := range l.Groups {
		if g.Limit == 0 || g.Limit >= total {
			continue
		}
		headroom := g.Limit - min(g.Limit, g.Used)
		if m == nil {
			m = &Memory{Limit: g.Limit, Used: g.Used, Headroom: headroom}
			continue
		}
		if g.Limit < m.Limit {
			m.Limit, m.Used = g.Limit, g.Used
		}
		m.Headroom = min(m.Headroom, headroom)
	}
	return m
}

// Reader reads limits below a root. It is not safe for concurrent use.
type Reader struct {
	proc, root string
	use        MemoryUse
	finder     finder
	buf        []byte
}

// NewReader returns a Reader of the machine whose / is at rootPath.
func NewReader(rootPath string, use MemoryUse) *Reader {
	return &Reader{
		proc:   filepath.Join("/", rootPath, "proc"),
		root:   filepath.Join("/", rootPath),
		use:    use,
		finder: finder{found: map[string]string{}, missed: map[string]int{}},
	}
}

// Limits reads the limits of a process. A process without groups, and groups
// that cannot be seen, set no limits.
func (r *Reader) Limits(pid int) (Limits, error) {
	content, err := guard.ReadInto(r.proc+"/"+strconv.Itoa(pid)+"/cgroup", r.buf, maxFile)
	r.buf = content
	if err != nil {
		return Limits{}, fmt.Errorf("reading the groups: %w", err)
	}
	m := parseMembership(content)
	var l Limits
	if g, ok := r.group(m, "memory"); ok {
		l.Groups = r.groups(g)
		l.Path = g.path
	}
	if g, ok := r.group(m, "cpu"); ok {
		l.CPUs = quota(g)
		if l.Path == "" {
			l.Path = g.path
		}
	}
	return l, nil
}

// membership is /proc/PID/cgroup.
type membership struct {
	// v1 has the line of each controller of version 1.
	v1 map[string]line
	// v2 is the path of the unified hierarchy; empty when there is none.
	v2 string
}

type line struct {
	// controllers is the list as the line has it: the usual name of the mount.
	controllers, path string
}

// parseMembership reads lines "N:controllers:path". "name=systemd" is no
// controller. The path may hold colons.
func parseMembership(content []byte) membership {
	m := membership{v1: map[string]line{}}
	for text := range bytes.Lines(content) {
		fields := strings.SplitN(strings.TrimSuffix(string(text), "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		if fields[0] == "0" && fields[1] == "" {
			m.v2 = fields[2]
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			if controller != "" && !strings.HasPrefix(controller, "name=") {
				m.v1[controller] = line{controllers: fields[1], path: fields[2]}
			}
		}
	}
	return m
}

// group is one group in one hierarchy.
type group struct {
	v1 bool
	// mount is where the hierarchy is mounted, path the group below it.
	mount, path string
}

// each calls fn for the group's folder and that of each ancestor, nearest
// first.
func (g group) each(fn func(dir string)) {
	for p := g.path; ; p = path.Dir(p) {
		fn(path.Join(g.mount, p))
		if p == "/" || p == "." {
			return
		}
	}
}

// group finds the group that controls something for the process. On hybrid
// systems a controller that has a line of its own is not in the unified
// hierarchy.
func (r *Reader) group(m membership, controller string) (group, bool) {
	if l, ok := m.v1[controller]; ok {
		return r.find(v1Mounts(r.root, l.controllers, controller), l.path, controller)
	}
	if m.v2 == "" {
		return group{}, false
	}
	dir := filepath.Join(r.root, "sys/fs/cgroup")
	return r.find([]string{dir, filepath.Join(dir, "unified")}, m.v2, "")
}

// v1Mounts lists where a hierarchy of version 1 is mounted as a rule: under the
// list of its controllers, in either order, or under the one's name.
func v1Mounts(root, controllers, controller string) []string {
	names := []string{controllers}
	if parts := strings.Split(controllers, ","); len(parts) == 2 {
		names = append(names, parts[1]+","+parts[0])
	}
	names = append(names, controller)
	mounts := make([]string, 0, len(names))
	for _, name := range names {
		mounts = append(mounts, filepath.Join(root, "sys/fs/cgroup", name))
	}
	return mounts
}

// find looks for the group at the usual mounts, then where the mount table says
// (a container that sees only its own part), then, for paths that lead out of
// our own group, by search.
func (r *Reader) find(mounts []string, groupPath, controller string) (group, bool) {
	v1 := controller != ""
	outside := isBelow(groupPath, "/..")
	for _, mount := range mounts {
		if !outside && isGroup(path.Join(mount, groupPath), v1) {
			return group{v1: v1, mount: mount, path: path.Clean(groupPath)}, true
		}
	}
	if outside {
		return r.search(mounts, groupPath, v1)
	}
	return r.findMounted(groupPath, controller)
}

// isGroup tells a group's folder from any other: tmpfs of hybrid systems has
// folders named as controllers.
func isGroup(dir string, v1 bool) bool {
	if v1 {
		return exists(dir)
	}
	for _, file := range []string{"/cgroup.controllers", "/memory.max", "/cpu.max"} {
		if exists(dir + file) {
			return true
		}
	}
	return false
}

// findMounted asks the mount tables, ours and that of pid 1 (which still has
// the mount when a pod shares its process namespace). A mount that shows a part
// of the hierarchy has that part's path as root.
func (r *Reader) findMounted(groupPath, controller string) (group, bool) {
	for _, owner := range []string{"self", "1"} {
		content, err := guard.ReadFile(r.proc+"/"+owner+"/mountinfo", maxMountinfo)
		if err != nil {
			continue
		}
		mounts, _ := procread.ParseMountinfo(nil, content)
		for i := range mounts {
			if g, ok := r.inMount(&mounts[i], owner, groupPath, controller); ok {
				return g, true
			}
		}
	}
	return group{}, false
}

func (r *Reader) inMount(m *procread.Mount, owner, groupPath, controller string) (group, bool) {
	if !holds(m, controller) {
		return group{}, false
	}
	root := string(m.Root)
	if !isBelow(groupPath, root) {
		return group{}, false
	}
	rest := path.Join("/", strings.TrimPrefix(groupPath, root))
	mount := string(m.MountPoint)
	if owner != "self" || !isBelow(mount, r.root) {
		mount = path.Join(r.root, mount)
	}
	if !exists(path.Join(mount, rest)) {
		return group{}, false
	}
	return group{v1: controller != "", mount: mount, path: rest}, true
}

// isBelow tells whether a path is another one or lies below it.
func isBelow(name, parent string) bool {
	rest, ok := strings.CutPrefix(name, parent)
	return ok && (rest == "" || rest[0] == '/' || parent == "/")
}

// holds tells whether a mount is the unified hierarchy (no controller) or that
// of a controller.
func holds(m *procread.Mount, controller string) bool {
	if controller == "" {
		return string(m.FSType) == "cgroup2"
	}
	if string(m.FSType) != "cgroup" {
		return false
	}
	for name := range strings.SplitSeq(string(m.SuperOptions), ",") {
		if name == controller {
			return true
		}
	}
	return false
}

func exists(file string) bool { return unix.Access(file, unix.F_OK) == nil }

// readUint reads a file that holds one number; ok is false for "max", for a
// missing file, and for anything else.
func readUint(file string) (uint64, bool) {
	content, err := guard.ReadFile(file, maxFile)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(content)), 10, 64)
	return n, err == nil
}
