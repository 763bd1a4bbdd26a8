// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"bytes"
	"errors"
	"math"
)

// Meminfo holds the lines of /proc/meminfo that are used, in bytes.
type Meminfo struct {
	Total, Free, Buffers, Cached, SReclaimable, Shmem uint64
	SwapTotal, SwapFree                               uint64
	memAvailable                                      uint64
	hasAvailable                                      bool
}

// Available is MemAvailable; on kernels before 3.14 MemFree + Buffers + Cached
// + SReclaimable - Shmem. It is held between 0 and Total, since LXCFS rewrites
// one of the two and not the other.
func (m *Meminfo) Available() uint64 {
	available := m.memAvailable
	if !m.hasAvailable {
		available = m.Free + m.Buffers + m.Cached + m.SReclaimable
		available -= min(available, m.Shmem)
	}
	return min(available, m.Total)
}

// SwapUsed is SwapTotal - SwapFree, never below 0.
func (m *Meminfo) SwapUsed() uint64 { return m.SwapTotal - min(m.SwapTotal, m.SwapFree) }

// field returns where the value of a line of meminfo goes, or nil.
func (m *Meminfo) field(key []byte) *uint64 {
	switch string(key) {
	case "MemTotal":
		return &m.Total
	case "MemFree":
		return &m.Free
	case "MemAvailable":
		m.hasAvailable = true
		return &m.memAvailable
	case "Buffers":
		return &m.Buffers
	case "Cached":
		return &m.Cached
	case "SReclaimable":
		return &m.SReclaimable
	case "Shmem":
		return &m.Shmem
	case "SwapTotal":
		return &m.SwapTotal
	case "SwapFree":
		return &m.SwapFree
	}
	return nil
}

// ParseMeminfo reads /proc/meminfo. MemTotal must be there and above 0.
func ParseMeminfo(b []byte) (Meminfo, error) {
	var m Meminfo
	for number := 1; len(b) > 0; number++ {
		var line []byte
		line, b = nextLine(b)
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		dst := m.field(line[:colon])
		if dst == nil {
			continue
		}
		kib, _, ok := uintField(line[colon+1:])
		if !ok || kib > math.MaxUint64>>14 {
			return Meminfo{}, badLine("meminfo", number, line)
		}
		*dst = kib << 10
	}
	if m.Total == 0 {
		return Meminfo{}, errors.New("meminfo: no MemTotal")
	}
	return m, nil
}

// Disk is one line of /proc/diskstats.
type Disk struct {
	Major, Minor uint64
	// Name is the kernel's name; it may contain a slash (cciss/c0d0).
	Name []byte
	// SectorsRead and SectorsWritten count units of 512 bytes, whatever the
	// device's own sector size is.
	SectorsRead, SectorsWritten uint64
}

// ParseDiskstats appends the lines of /proc/diskstats to dst.
func ParseDiskstats(dst []Disk, b []byte) ([]Disk, error) {
	return parseTable("diskstats", dst, b, 0, parseDisk)
}

// parseDisk reads columns 1 major, 2 minor, 3 name, 6 sectors read, 10 sectors
// written. Newer kernels append columns.
func parseDisk(line []byte) (d Disk, ok bool) {
	if d.Major, line, ok = uintField(line); !ok {
		return d, false
	}
	if d.Minor, line, ok = uintField(line); !ok {
		return d, false
	}
	if d.Name, line = nextField(line); len(d.Name) == 0 {
		return d, false
	}
	if d.SectorsRead, line, ok = uintField(skipFields(line, 2)); !ok {
		return d, false
	}
	d.SectorsWritten, _, ok = uintField(skipFields(line, 3))
	return d, ok
}

// NetDev is one interface of /proc/net/dev.
type NetDev struct {
	Name []byte
	// RxBytes and TxBytes count since the interface was made.
	RxBytes, TxBytes uint64
}

// ParseNetDev appends the interfaces of /proc/net/dev to dst.
func ParseNetDev(dst []NetDev, b []byte) ([]NetDev, error) {
	headers := 0
	for headers < 2 {
		line, rest := nextLine(b)
		if bytes.IndexByte(line, '|') < 0 { // only the two header lines have one
			break
		}
		headers, b = headers+1, rest
	}
	return parseTable("net/dev", dst, b, headers, parseNetDev)
}

// parseNetDev splits at the last colon: an alias has one in its name
// ("eth0:1:"), and a blank after the colon is not guaranteed. Received bytes
// are the first number, sent bytes the ninth.
func parseNetDev(line []byte) (d NetDev, ok bool) {
	colon := bytes.LastIndexByte(line, ':')
	if colon < 0 {
		return d, false
	}
	if d.Name = bytes.TrimSpace(line[:colon]); len(d.Name) == 0 {
		return d, false
	}
	if d.RxBytes, line, ok = uintField(line[colon+1:]); !ok {
		return d, false
	}
	d.TxBytes, _, ok = uintField(skipFields(line, 7))
	return d, ok
}

// CPU is one line cpuN of /proc/stat, in clock ticks since boot.
type CPU struct {
	Number int
	// Busy is all time but idle and iowait, Total all time. Guest time is part
	// of user time and not added again.
	Busy, Total uint64
}

// ParseCPUs appends the lines cpuN of /proc/stat to dst: the online logical
// CPUs. It stops at the first line after them, since what follows (intr) is
// long.
func ParseCPUs(dst []CPU, b []byte) ([]CPU, error) {
	for number := 1; len(b) > 0; number++ {
		var line []byte
		line, b = nextLine(b)
		rest, isCPU := bytes.CutPrefix(line, []byte("cpu"))
		if !isCPU {
			break
		}
		if len(rest) == 0 || isSpace(rest[0]) {
			continue // the sum over all CPUs
		}
		c, ok := parseCPU(rest)
		if !ok {
			return dst, badLine("stat", number, line)
		}
		dst = append(dst, c)
	}
	return dst, nil
}

// parseCPU reads "N user nice system idle iowait irq softirq steal ...".
// Kernels before 2.6 end earlier; missing columns are 0.
func parseCPU(b []byte) (c CPU, ok bool) {
	field, b := nextField(b)
	if c.Number, ok = parseInt(field); !ok {
		return c, false
	}
	for column := range 8 {
		if field, b = nextField(b); len(field) == 0 {
			return c, column >= 4
		}
		ticks, ok := parseUint(field)
		if !ok {
			return c, false
		}
		c.Total += ticks
		if column != 3 && column != 4 {
			c.Busy += ticks
		}
	}
	return c, true
}
