// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"slices"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

// mappedNames remembers the names of device-mapper devices. On a real sysfs one
// lasts as long as the device, see sysClass, unless it is renamed: then the
// mount table has a name that none is known by.
type mappedNames struct {
	known map[string]mappedName
	names []string
}

type mappedName struct {
	name          string
	read, written uint64 // the device's counters
}

// mappedSource returns the device-mapper name that a mount without a device
// number has for its source, as btrfs on LUKS or LVM.
func mappedSource(m *procread.Mount) ([]byte, bool) {
	if m.Major != 0 {
		return nil, false
	}
	name, found := bytes.CutPrefix(m.Source, []byte("/dev/mapper/"))
	return name, found && len(name) > 0
}

// read returns the names, parallel to devices; nil when no mount needs one, or
// sysfs is not there.
func (n *mappedNames) read(class *sysClass, mounts []procread.Mount, devices []deviceReading) []string {
	needed := func(m procread.Mount) bool { _, is := mappedSource(&m); return is }
	if class.dir == "" || !slices.ContainsFunc(mounts, needed) {
		n.known = nil
		return nil
	}
	if !class.real {
		n.known = nil
	}
	remembered := n.fill(class.dir, devices)
	unknown := func(m procread.Mount) bool {
		name, is := mappedSource(&m)
		return is && !slices.Contains(n.names, string(name))
	}
	if remembered && slices.ContainsFunc(mounts, unknown) {
		n.known = nil
		n.fill(class.dir, devices)
	}
	return n.names
}

// fill brings the names up to date, and tells whether any was known before.
// Devices that are gone are forgotten.
func (n *mappedNames) fill(dir string, devices []deviceReading) bool {
	before, remembered := n.known, false
	n.known = make(map[string]mappedName, len(before))
	n.names = n.names[:0]
	for i := range devices {
		d := &devices[i]
		name := ""
		if strings.HasPrefix(d.name, "dm-") {
			e, ok := before[d.name]
			if ok = ok && d.read >= e.read && d.written >= e.written; ok {
				name, remembered = e.name, true
			} else {
				name, ok = readMappedName(dir, d.name)
			}
			if ok {
				n.known[d.name] = mappedName{name, d.read, d.written}
			}
		}
		n.names = append(n.names, name)
	}
	return remembered
}

func readMappedName(dir, device string) (string, bool) {
	content, err := guard.ReadFile(dir+"/"+device+"/dm/name", maxFile)
	name := strings.TrimSpace(string(content))
	return name, err == nil && name != ""
}
