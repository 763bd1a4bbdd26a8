// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"fmt"
	"iter"
	"path"
	"path/filepath"
	"slices"
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

// Reader reads the limits of one process, and what its groups have used, again
// and again. It is not safe for concurrent use.
type Reader struct {
	proc, root string
	use        MemoryUse
	finder     finder
	round      *Round
	member     guard.KeptFile
	places     places
	buf        []byte
}

// places is where the groups of a process are.
type places struct {
	// pid and membership are what they belong to.
	pid        int
	membership []byte
	// lasting places stay as long as the process says that it is there: its
	// groups cannot be removed. Those below a recorded root are no such.
	lasting bool
	// retry is for how many calls what was not found is not looked for again,
	// which takes mount tables and thousands of folders on a large node.
	retry int
	path  string
	// memory and cpu are the group and its ancestors, the nearest first.
	memory []memoryLevel
	cpu    []cpuLevel
	// memoryGroup and cpuGroup are where the nearest are.
	memoryGroup, cpuGroup group
	// accounts are where statistics are; nil until they are asked for, since
	// limits need no search for them.
	accounts *accounts
	// hidden is true where ancestors may limit that are not shown.
	hidden bool
}

// NewReader returns a Reader for the machine whose / is at rootPath.
func NewReader(rootPath string, use MemoryUse) *Reader {
	return &Reader{
		proc:   filepath.Join("/", rootPath, "proc"),
		root:   filepath.Join("/", rootPath),
		use:    use,
		finder: newFinder(rootPath),
	}
}

// Round is one reading of many processes. What a group tells is read for the
// first of them, and is the same for all that lie in it. The zero value is ready.
type Round struct {
	limited map[string]Group
	cpus    map[string]float64
}

// Begin begins a reading.
func (r *Round) Begin() {
	clear(r.limited)
	clear(r.cpus)
}

func (r *Round) groups() map[string]Group {
	if r == nil {
		return nil
	}
	if r.limited == nil {
		r.limited = map[string]Group{}
	}
	return r.limited
}

func (r *Round) quotas() map[string]float64 {
	if r == nil {
		return nil
	}
	if r.cpus == nil {
		r.cpus = map[string]float64{}
	}
	return r.cpus
}

// shared returns what is known under a path, else what is read now. Without a
// map nothing is known.
func shared[T any](known map[string]T, path string, read func() T) T {
	if known == nil {
		return read()
	}
	value, ok := known[path]
	if !ok {
		value = read()
		known[path] = value
	}
	return value
}

// In makes the Reader one of those of a reading. It returns the Reader.
func (r *Reader) In(round *Round) *Reader {
	r.round = round
	return r
}

// Close frees what is held open and forgets where it was; a later call finds
// and opens it again.
func (r *Reader) Close() {
	r.Release()
	r.places = places{}
}

// Release frees what is held open and remembers where it was: for those who
// follow more processes than they can hold files open. While nothing is held,
// another process that gets the pid is not noticed.
func (r *Reader) Release() {
	r.member.Close()
	for i := range r.places.memory {
		l := &r.places.memory[i]
		l.limit.Close()
		l.usage.Close()
		l.stat.Close()
	}
	for i := range r.places.cpu {
		l := &r.places.cpu[i]
		l.quota.Close()
		l.period.Close()
	}
	r.places.accounts.close()
}

// Limits reads the limits of a process. A process without groups, and groups
// that cannot be seen, set no limits.
func (r *Reader) Limits(pid int) (Limits, error) { return r.LimitsFrom(pid, "") }

// LimitsFrom is Limits for all that is in one of the groups that the process is
// in: what is set further down is for a part of it only.
func (r *Reader) LimitsFrom(pid int, groupPath string) (Limits, error) {
	if pid != r.places.pid {
		r.Close()
		r.member.Path = r.proc + "/" + strconv.Itoa(pid) + "/cgroup"
	}
	var err error
	if r.buf, err = r.member.ReadInto(r.buf, maxFile); err != nil {
		return Limits{}, fmt.Errorf("reading the groups: %w", err)
	}
	if !r.isPlaced(pid, r.buf) {
		r.place(pid, bytes.Clone(r.buf))
	}
	return Limits{Groups: r.groups(groupPath), CPUs: r.quota(groupPath), Path: r.places.path}, nil
}

// isPlaced tells whether the places are still good.
func (r *Reader) isPlaced(pid int, membership []byte) bool {
	if pid != r.places.pid || !bytes.Equal(membership, r.places.membership) {
		return false
	}
	r.places.retry--
	return r.places.lasting || r.places.retry >= 0
}

// retryAfter is how many calls pass before a group that was not found is looked
// for again.
const retryAfter = 20

// place finds the groups that a process says it is in.
func (r *Reader) place(pid int, content []byte) {
	membershipFile := r.member.Path
	r.Close()
	r.member.Path = membershipFile
	r.places = places{pid: pid, membership: content}
	m := parseMembership(content)
	memory, memoryLasts := r.settle(m, "memory")
	cpu, cpuLasts := r.settle(m, "cpu")
	r.places.memoryGroup, r.places.cpuGroup = memory, cpu
	memory.each(func(dir string) { r.places.memory = append(r.places.memory, newMemoryLevel(dir, memory.v1)) })
	cpu.each(func(dir string) { r.places.cpu = append(r.places.cpu, newCPULevel(dir, cpu.v1)) })
	r.places.hidden = memory.v1 && !isRootV1(memory.mount)
	r.places.lasting = memoryLasts && cpuLasts
	if isOn(r.proc, unix.PROC_SUPER_MAGIC) {
		r.places.retry = retryAfter
	}
}

// settle finds the group of one controller, and tells whether that is the last
// word: the process names none, or it is on a real hierarchy.
func (r *Reader) settle(m membership, controller string) (group, bool) {
	_, named := m.v1[controller]
	g, found := r.group(m, controller)
	if !found {
		return g, !named && m.v2 == ""
	}
	if r.places.path == "" {
		r.places.path = g.path
	}
	return g, isOn(g.mount, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC)
}

// isOn tells whether a folder is on a file system of one of these types.
func isOn(dir string, types ...int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && slices.Contains(types, int64(st.Type)) //nolint:unconvert // 32 bits on some systems
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
	// It is empty for the unified hierarchy.
	controllers, path string
}

// parseMembership reads which groups a process is in. "name=systemd" is no
// controller.
func parseMembership(content []byte) membership {
	m := membership{v1: map[string]line{}}
	for l := range lines(content) {
		if l.controllers == "" {
			m.v2 = l.path
			continue
		}
		for controller := range strings.SplitSeq(l.controllers, ",") {
			if controller != "" && !strings.HasPrefix(controller, "name=") {
				m.v1[controller] = l
			}
		}
	}
	return m
}

// lines yields the lines "N:controllers:path" of /proc/PID/cgroup. The path may
// hold colons. The unified hierarchy has the number 0 and no controllers.
func lines(content []byte) iter.Seq[line] {
	return func(yield func(line) bool) {
		for text := range bytes.Lines(content) {
			fields := strings.SplitN(strings.TrimSuffix(string(text), "\n"), ":", 3)
			if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") || (fields[1] == "" && fields[0] != "0") {
				continue
			}
			if !yield(line{controllers: fields[1], path: fields[2]}) {
				return
			}
		}
	}
}

// group is one group in one hierarchy.
type group struct {
	v1 bool
	// mount is where the hierarchy is mounted, path the group below it.
	mount, path string
	// root is the path of what is mounted, where that is a part.
	root string
	// ancestor is true where the group itself is not shown.
	ancestor bool
}

// dir returns the folder of the group's ancestor, or of the group itself, that
// has this path in the whole hierarchy.
func (g group) dir(groupPath string) (string, bool) {
	if g.mount == "" || !isBelow(groupPath, g.root) || path.Clean(groupPath) != groupPath {
		return "", false // not clean: it leads out of our own group
	}
	below := path.Join("/", strings.TrimPrefix(groupPath, g.root))
	return path.Join(g.mount, below), isBelow(g.path, below)
}

// own returns the folder of the group itself.
func (g group) own() (string, bool) {
	return path.Join(g.mount, g.path), g.mount != "" && !g.ancestor
}

// each calls fn for the group's folder and that of each ancestor, nearest
// first. The zero group has none.
func (g group) each(fn func(dir string)) {
	if g.mount == "" {
		return
	}
	for p := g.path; ; p = path.Dir(p) {
		fn(path.Join(g.mount, p))
		if p == "/" || p == "." {
			return
		}
	}
}

// isRootV1 tells whether a folder is the true root of a hierarchy of version 1,
// which alone has this file.
func isRootV1(dir string) bool { return exists(dir + "/release_agent") }

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
	return r.find(unifiedMounts(r.root), m.v2, "")
}

// unifiedMounts lists where the unified hierarchy is mounted as a rule: the
// second place is that of hybrid systems.
func unifiedMounts(root string) []string {
	dir := filepath.Join(root, "sys/fs/cgroup")
	return []string{dir, filepath.Join(dir, "unified")}
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

// find looks for the group at the usual mounts, then where a mount table says
// (a container that sees only its own part), then, for paths that lead out of
// our own group, by search. Of a group that is not shown an ancestor will do.
func (r *Reader) find(mounts []string, groupPath, controller string) (group, bool) {
	if isBelow(groupPath, "/..") {
		return r.finder.search(mounts, groupPath, controller, r.places.pid)
	}
	groupPath = path.Clean(groupPath)
	v1 := controller != ""
	if mount, ok := holder(mounts, groupPath, v1); ok {
		return group{v1: v1, mount: mount, path: groupPath}, true
	}
	if g, ok := r.findMounted(groupPath, controller); ok {
		return g, true
	}
	for p := path.Dir(groupPath); p != "/"; p = path.Dir(p) {
		if mount, ok := holder(mounts, p, v1); ok {
			return group{v1: v1, mount: mount, path: p, ancestor: true}, true
		}
	}
	return group{}, false
}

// holder returns the first mount that has the group.
func holder(mounts []string, groupPath string, v1 bool) (string, bool) {
	for _, mount := range mounts {
		if isGroup(mount, groupPath, v1) {
			return mount, true
		}
	}
	return "", false
}

// isGroup tells whether a mount has the group. The tmpfs that hybrid systems
// have at the usual place of version 2 is no root group.
func isGroup(mount, groupPath string, v1 bool) bool {
	dir := path.Join(mount, groupPath)
	if v1 || groupPath != "/" {
		return exists(dir)
	}
	return exists(dir+"/cgroup.controllers") || hasLimits(dir)
}

// hasLimits tells a group of version 2 from the true root, which has none.
func hasLimits(dir string) bool { return exists(dir+"/memory.max") || exists(dir+"/cpu.max") }

// findMounted asks the mount tables: ours, that of pid 1 (which still has the
// mount when a pod shares its process namespace), and the process' own. A mount
// that shows a part of the hierarchy has that part's path as root.
func (r *Reader) findMounted(groupPath, controller string) (group, bool) {
	for _, owner := range []string{"self", "1", strconv.Itoa(r.places.pid)} {
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
	if !exists(path.Join(mount, rest)) || (root != "/" && rest == "/" && isTrueRoot(mount, controller != "")) {
		return group{}, false // another mount namespace's: that place is something else here
	}
	return group{v1: controller != "", mount: mount, path: rest, root: strings.TrimSuffix(root, "/")}, true
}

// isTrueRoot tells whether a mount shows a hierarchy from its root.
func isTrueRoot(mount string, v1 bool) bool {
	if v1 {
		return isRootV1(mount)
	}
	return !hasLimits(mount) && exists(mount+"/cgroup.controllers")
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
