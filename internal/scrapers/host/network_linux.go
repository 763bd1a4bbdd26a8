// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

const loopback = "lo"

// virtualPrefixes begin the names of interfaces whose traffic passes another
// one too, or never leaves the machine.
var virtualPrefixes = []string{
	"docker", "br-", "veth", "virbr", "vnet", "cni", "flannel", "cali", "cilium", "lxc", "tunl", "ip6tnl", "sit",
	"gre", "erspan", "dummy", "ifb", "kube-", "nodelocaldns", "vxlan", "wg", "tun", "tap", "bond", "team", "podman",
}

// networkSource reads net/dev of the machine's network namespace.
type networkSource struct {
	slot guard.Slot
	// tables are net/dev as pid 1 sees it and, where that is hidden, as we do:
	// <proc>/net is a link to our own namespace even in a mounted host /proc.
	tables           [2]guard.KeptFile
	class            sysClass
	include, exclude []*regexp.Regexp
	now              func() time.Time

	buf        []byte
	parsed     []procread.NetDev
	interfaces []interfaceReading
	names      names
}

func newNetworkSource(proc, sys string, include, exclude []*regexp.Regexp, now func() time.Time) *networkSource {
	return &networkSource{
		tables:  [2]guard.KeptFile{{Path: filepath.Join(proc, "1/net/dev")}, {Path: filepath.Join(proc, "net/dev")}},
		class:   sysClass{dirs: []string{filepath.Join(sys, "class/net")}},
		include: include,
		exclude: exclude,
		now:     now,
	}
}

// read returns nil without an error where the system has no net/dev.
func (s *networkSource) read(context.Context) (*networkReading, error) {
	err := s.readTable()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at := s.now()
	s.parsed, err = procread.ParseNetDev(s.parsed[:0], s.buf)
	if err != nil && len(s.parsed) == 0 {
		return nil, err
	}
	s.interfaces = s.interfaces[:0]
	for i := range s.parsed {
		p := &s.parsed[i]
		s.interfaces = append(s.interfaces, interfaceReading{name: s.names.of(p.Name), received: p.RxBytes, sent: p.TxBytes})
	}
	s.choose()
	return &networkReading{at: at, interfaces: s.interfaces}, err
}

func (s *networkSource) readTable() error {
	var err error
	for i := range s.tables {
		if s.buf, err = s.tables[i].ReadInto(s.buf, maxFile); err == nil {
			return nil
		}
	}
	return err
}

// files are those that are held open.
func (s *networkSource) files() []*guard.KeptFile {
	return []*guard.KeptFile{&s.tables[0], &s.tables[1]}
}

// choose marks the interfaces that count.
func (s *networkSource) choose() {
	switch {
	case len(s.include) > 0:
		s.mark(func(n *interfaceReading) bool { return matchAny(s.include, n.name) })
	case s.markPhysical():
		s.markContainerUplink()
	case s.mark(func(n *interfaceReading) bool { return n.name != loopback && !isVirtual(n.name) }):
	default:
		s.mark(func(n *interfaceReading) bool { return n.name != loopback })
	}
	if len(s.exclude) > 0 {
		s.mark(func(n *interfaceReading) bool { return n.counted && !matchAny(s.exclude, n.name) })
	}
}

// mark sets what counts, and tells whether anything does.
func (s *networkSource) mark(counts func(*interfaceReading) bool) bool {
	found := false
	for i := range s.interfaces {
		n := &s.interfaces[i]
		n.counted = counts(n)
		found = found || n.counted
	}
	return found
}

// markPhysical asks sysfs. Bonds, bridges, VLANs, veth and tun have no
// `device`. A virtual function below a master that has one too (Azure, Hyper-V)
// carries the bytes that its master counts already; there must be two then.
func (s *networkSource) markPhysical() bool {
	s.class.begin()
	if s.class.dir == "" {
		return false
	}
	devices := 0
	s.mark(func(n *interfaceReading) bool {
		physical := n.name != loopback && s.class.of(n.name, n.received, n.sent, hasDevice)
		if physical {
			devices++
		}
		return physical
	})
	if devices < 2 {
		return devices > 0
	}
	return s.mark(func(n *interfaceReading) bool {
		return n.counted && !exists(s.class.dir+"/"+n.name+"/master/device")
	})
}

func hasDevice(dir, name string) bool { return exists(dir + "/" + name + "/device") }

// markContainerUplink counts a container's eth0 beside its SR-IOV interfaces:
// it is one end of a veth pair and has no `device`, but is a network of its own.
func (s *networkSource) markContainerUplink() {
	for i := range s.interfaces {
		n := &s.interfaces[i]
		if n.name != "eth0" || n.counted {
			continue
		}
		entry := s.class.dir + "/eth0"
		n.counted = !exists(entry+"/device") && !exists(entry+"/master") &&
			!exists(entry+"/bridge") && !exists(entry+"/bonding")
	}
}

func isVirtual(name string) bool {
	for _, prefix := range virtualPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
