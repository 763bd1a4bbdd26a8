// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

// sectorSize is the unit of /proc/diskstats, whatever the device's own is.
const sectorSize = 512

var (
	// notBase are names that are no base device although they may have a
	// `device` link: optical and floppy drives, the legs of an NVMe multipath
	// device, the boot and replay-protected parts of an eMMC.
	notBase = regexp.MustCompile(`^(sr\d+|fd\d+|nvme\d+c\d+n\d+|mmcblk\d+boot\d+|mmcblk\d+rpmb)$`)
	// notBaseByName is for machines that do not show /sys.
	notBaseByName = regexp.MustCompile(`^((z?ram|loop|fd|sr)\d+|(h|s|v|xv)d[a-z]+\d+|nvme\d+n\d+p\d+|nvme\d+c\d+n\d+` +
		`|mmcblk\d+(p\d+|boot\d+|rpmb)|dm-\d+|md\d+.*|(nbd|rbd|pmem)\d+p\d+|dasd[a-z]+\d+|cciss/c\d+d\d+p\d+|(bcache|drbd|zd)\d+)$`)
	// neverDisk are names that are no disk at all.
	neverDisk = regexp.MustCompile(`^(z?ram|loop|fd|sr)\d+$`)
)

// diskSource reads /proc/diskstats, what /sys says of the devices, and the
// mount table that tells which device is under a path.
type diskSource struct {
	slot      guard.Slot
	diskstats guard.KeptFile
	// class is what /sys says of block devices.
	class sysClass
	// mountTables are the machine's own and, where that is hidden, ours.
	mountTables [2]guard.KeptFile
	rootPath    string
	needMounts  bool
	now         func() time.Time

	buf, mountBuf []byte
	parsed        []procread.Disk
	mounts        []procread.Mount
	devices       []deviceReading
	names         names
	// notBase and notBaseByName are what a name alone decides.
	notBase, notBaseByName nameClass
	mapped                 mappedNames
}

// diskTable is one reading of a diskSource.
type diskTable struct {
	reading diskReading
	// parsed is parallel to the reading's devices.
	parsed []procread.Disk
	mounts []procread.Mount
	// prefix stands before every mount point.
	prefix string
	// mapped is parallel to parsed: the device-mapper name, where a mount may
	// need it.
	mapped []string
}

func newDiskSource(proc, sys, rootPath string, needMounts bool, now func() time.Time) *diskSource {
	return &diskSource{
		diskstats:   guard.KeptFile{Path: filepath.Join(proc, "diskstats")},
		class:       sysClass{dirs: []string{filepath.Join(sys, "class/block"), filepath.Join(sys, "block")}},
		mountTables: [2]guard.KeptFile{{Path: filepath.Join(proc, "1/mountinfo")}, {Path: filepath.Join(proc, "self/mountinfo")}},
		rootPath:    rootPath,
		needMounts:  needMounts,
		now:         now,

		notBase:       nameClass{re: notBase},
		notBaseByName: nameClass{re: notBaseByName},
	}
}

// read returns nil without an error where the system has no disk statistics,
// as in gVisor and Fargate.
func (s *diskSource) read(context.Context) (*diskTable, error) {
	var err error
	s.buf, err = s.diskstats.ReadInto(s.buf, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at := s.now()
	s.parsed, err = procread.ParseDiskstats(s.parsed[:0], s.buf)
	if len(s.parsed) == 0 {
		return nil, err
	}
	s.class.begin()
	t := &diskTable{parsed: s.parsed}
	s.classify()
	t.reading = diskReading{at: at, devices: s.devices, partial: err != nil}
	if s.needMounts {
		t.mounts, t.prefix = s.readMounts()
		t.mapped = s.mapped.read(&s.class, t.mounts, s.devices)
	}
	return t, err
}

// classify fills devices and finds the base devices among them: whole disks,
// so that I/O through partitions, LVM, LUKS and RAID counts once.
func (s *diskSource) classify() {
	s.devices = s.devices[:0]
	found := false
	for i := range s.parsed {
		p := &s.parsed[i]
		d := deviceReading{name: s.names.of(p.Name), read: p.SectorsRead * sectorSize, written: p.SectorsWritten * sectorSize}
		if s.class.dir != "" {
			d.base = !s.notBase.has(d.name) && s.class.of(d.name, d.read, d.written, isWholeDisk)
		} else {
			d.base = !s.notBaseByName.has(d.name)
		}
		found = found || d.base
		s.devices = append(s.devices, d)
	}
	if found {
		return
	}
	for i := range s.devices {
		s.devices[i].base = !neverDisk.MatchString(s.devices[i].name)
	}
}

// nameClass remembers which names an expression matches, since names come back
// at every scrape.
type nameClass struct {
	re    *regexp.Regexp
	known map[string]bool
}

func (c *nameClass) has(name string) bool {
	matched, known := c.known[name]
	if known {
		return matched
	}
	if c.known == nil || len(c.known) > maxNames {
		c.known = map[string]bool{}
	}
	matched = c.re.MatchString(name)
	c.known[name] = matched
	return matched
}

// isWholeDisk asks sysfs: a disk has a `device`, a partition a number.
func isWholeDisk(blockDir, name string) bool {
	entry := blockDir + "/" + strings.ReplaceAll(name, "/", "!")
	return exists(entry+"/device") && !exists(entry+"/partition")
}

// readMounts returns the mount table of pid 1, whose mount points are the
// machine's; else our own, whose mount points are below the root path. Without
// either, no device backs a path.
func (s *diskSource) readMounts() ([]procread.Mount, string) {
	prefix := ""
	for i := range s.mountTables {
		table := &s.mountTables[i]
		if !table.Changed() {
			return s.mounts, prefix
		}
		var err error
		if s.mountBuf, err = table.ReadInto(s.mountBuf, maxFile); err == nil && len(s.mountBuf) > 0 {
			s.mounts, _ = procread.ParseMountinfo(s.mounts[:0], s.mountBuf)
			return s.mounts, prefix
		}
		prefix = s.rootPath
	}
	return nil, ""
}

// files are those that are held open.
func (s *diskSource) files() []*guard.KeptFile {
	return []*guard.KeptFile{&s.diskstats, &s.mountTables[0], &s.mountTables[1]}
}

// addDisks puts the disks into the reading and marks those under a configured
// path.
func (s *linuxSource) addDisks(r *reading, t *diskTable) {
	if t == nil {
		return
	}
	for _, f := range s.filesystems {
		if d := t.backing(f.where.get()); d >= 0 {
			t.reading.devices[d].backing = true
		}
	}
	r.disks = &t.reading
}

// backing returns the index of the device under a path, or -1.
func (t *diskTable) backing(path string) int {
	m := t.mountOf([]byte(filepath.Join("/", t.prefix, path)))
	if m == nil {
		return -1
	}
	if m.Major != 0 {
		for i := range t.parsed {
			if t.parsed[i].Major == m.Major && t.parsed[i].Minor == m.Minor {
				return i
			}
		}
		return -1
	}
	// An anonymous device (btrfs, overlay, nfs) may still name its source.
	if name, isMapped := mappedSource(m); isMapped {
		return slices.Index(t.mapped, string(name))
	}
	source, found := bytes.CutPrefix(m.Source, []byte("/dev/"))
	if !found {
		return -1
	}
	for i := range t.parsed {
		if bytes.Equal(t.parsed[i].Name, source) {
			return i
		}
	}
	return -1
}

// mountOf returns the mount that holds the path: the longest mount point that
// ends at a path boundary, of two on one point the later.
func (t *diskTable) mountOf(path []byte) *procread.Mount {
	var best *procread.Mount
	for i := range t.mounts {
		m := &t.mounts[i]
		if isBelow(path, m.MountPoint) && (best == nil || len(m.MountPoint) >= len(best.MountPoint)) {
			best = m
		}
	}
	return best
}

// isBelow tells whether path is dir or below it.
func isBelow(path, dir []byte) bool {
	if len(dir) == 1 && dir[0] == '/' {
		return true
	}
	return bytes.HasPrefix(path, dir) && (len(path) == len(dir) || path[len(dir)] == '/')
}

// maxNames bounds the tables of names; more make them start over.
const maxNames = 16 << 10

// names makes strings of names that come back at every scrape, once.
type names struct {
	known map[string]string
}

func (n *names) of(b []byte) string {
	if name, ok := n.known[string(b)]; ok {
		return name
	}
	if n.known == nil || len(n.known) > maxNames {
		n.known = map[string]string{}
	}
	name := string(b)
	n.known[name] = name
	return name
}
