// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
	"github.com/stretchr/testify/require"
)

// Every fuzz test holds the parser to its contract on any input, and then to
// an oracle on the part of the input that has the kernel's format: there both
// must understand everything, and the same. What the patterns below leave out
// is what the oracle reads otherwise and the kernel does not write: numbers in
// base 8, 16 or with underscores, meminfo values without a unit (bytes to the
// oracle), lines of other lengths, white space beyond ASCII, and numbers
// beyond the oracle's 32 bit fields.

// addFixtures seeds a fuzz test.
func addFixtures(f *testing.F, kind string) {
	f.Helper()
	for _, content := range fixtures(f, kind) {
		f.Add(content)
		f.Add(bytes.ReplaceAll(content, []byte("\n"), []byte("\r\n")))
		f.Add(content[:len(content)*2/3])
	}
	f.Add([]byte{})
	f.Add([]byte("\n\n \t\n"))
	f.Add([]byte("18446744073709551616 -1 0x10 : ) ( \\040 -"))
}

// oracle is a /proc of one process in which the oracle finds what it is given.
type oracle struct {
	proc string
}

const oraclePid = 77

func newOracle(f *testing.F) oracle {
	f.Helper()
	o := oracle{proc: f.TempDir()}
	require.NoError(f, o.makeDirs())
	return o
}

func (o oracle) makeDirs() error {
	return errors.Join(
		os.MkdirAll(filepath.Join(o.proc, strconv.Itoa(oraclePid)), 0o755),
		os.MkdirAll(filepath.Join(o.proc, "net"), 0o755),
	)
}

// put makes content the file with this name.
func (o oracle) put(t *testing.T, name string, content []byte) procfs.FS {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(o.proc, name), content, 0o600))
	fs, err := procfs.NewFS(o.proc)
	require.NoError(t, err)
	return fs
}

// putPid does the same in the process' folder.
func (o oracle) putPid(t *testing.T, name string, content []byte) procfs.Proc {
	t.Helper()
	p, err := o.put(t, filepath.Join(strconv.Itoa(oraclePid), name), content).Proc(oraclePid)
	require.NoError(t, err)
	return p
}

// kernelLines keeps the lines that match.
func kernelLines(b []byte, pattern *regexp.Regexp) []byte {
	var kept []byte
	for line := range bytes.Lines(b) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if pattern.Match(line) {
			kept = append(append(kept, line...), '\n')
		}
	}
	return kept
}

func filledLines(b []byte) int {
	count := 0
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) > 0 {
			count++
		}
	}
	return count
}

// requireShortError wants nil or an error for a log line.
func requireShortError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.Less(t, len(err.Error()), 500)
		require.NotContains(t, err.Error(), "\n")
	}
}

var meminfoLine = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_()]*: {0,20} (0|[1-9][0-9]{0,14}) kB|HugePages_[A-Z][a-z]+: +[1-9]?[0-9])$`)

func FuzzParseMeminfo(f *testing.F) {
	addFixtures(f, "meminfo")
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMeminfo(b)
		requireShortError(t, err)
		if err != nil {
			require.Equal(t, Meminfo{}, m)
		} else {
			require.Positive(t, m.Total)
			require.LessOrEqual(t, m.Available(), m.Total)
			require.LessOrEqual(t, m.SwapUsed(), m.SwapTotal)
		}

		b = kernelLines(b, meminfoLine)
		m, err = ParseMeminfo(b)
		want, oracleErr := o.put(t, "meminfo", b).Meminfo()
		require.NoError(t, oracleErr)
		if want.MemTotal == nil || *want.MemTotal == 0 {
			require.Error(t, err) // a machine without memory is none
			return
		}
		require.NoError(t, err)
		for _, pair := range []struct {
			got  uint64
			want *uint64
		}{
			{m.Total, want.MemTotalBytes},
			{m.Free, want.MemFreeBytes},
			{m.memAvailable, want.MemAvailableBytes},
			{m.Buffers, want.BuffersBytes},
			{m.Cached, want.CachedBytes},
			{m.SReclaimable, want.SReclaimableBytes},
			{m.Shmem, want.ShmemBytes},
			{m.SwapTotal, want.SwapTotalBytes},
			{m.SwapFree, want.SwapFreeBytes},
		} {
			if pair.want == nil {
				require.Zero(t, pair.got)
				continue
			}
			require.Equal(t, *pair.want, pair.got)
		}
		require.Equal(t, want.MemAvailable != nil, m.hasAvailable)
	})
}

var diskstatsLine = regexp.MustCompile(`^ *[0-9]{1,9} +[0-9]{1,9} [!-~]{1,32}( [0-9]{1,19}){11}(( [0-9]{1,19}){4}(( [0-9]{1,19}){2})?)?$`)

func FuzzParseDiskstats(f *testing.F) {
	addFixtures(f, "diskstats")
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		disks, err := ParseDiskstats(nil, b)
		requireShortError(t, err)
		require.Equal(t, err == nil, len(disks) == filledLines(b), "every line is understood or an error")
		for _, d := range disks {
			require.NotEmpty(t, d.Name)
			require.NotContains(t, string(d.Name), " ")
		}
		// Bad lines do not hide others.
		more, _ := ParseDiskstats(nil, append(append(bytes.Clone(b), "\n8 0 \n9 9 last 1 1 5 1 1 1 6"...), '\n'))
		require.Equal(t, named{"last", 5, 6}, namedDisks(more)[len(more)-1])
		require.Len(t, more, len(disks)+1)

		b = kernelLines(b, diskstatsLine)
		disks, err = ParseDiskstats(nil, b)
		o.put(t, "diskstats", b)
		fs, oracleErr := blockdevice.NewFS(o.proc, o.proc)
		require.NoError(t, oracleErr)
		want, oracleErr := fs.ProcDiskstats()
		require.NoError(t, oracleErr)
		require.NoError(t, err)
		require.Len(t, disks, len(want))
		for i, w := range want {
			require.Equal(t, w.DeviceName, string(disks[i].Name))
			require.Equal(t, uint64(w.MajorNumber), disks[i].Major)
			require.Equal(t, uint64(w.MinorNumber), disks[i].Minor)
			require.Equal(t, w.ReadSectors, disks[i].SectorsRead)
			require.Equal(t, w.WriteSectors, disks[i].SectorsWritten)
		}
	})
}

var netDevLine = regexp.MustCompile(`^ *[!-~]{1,20}: *[0-9]{1,19}( +[0-9]{1,19}){15}$`)

func FuzzParseNetDev(f *testing.F) {
	addFixtures(f, "net_dev")
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		devices, err := ParseNetDev(nil, b)
		requireShortError(t, err)
		for _, d := range devices {
			require.NotEmpty(t, d.Name)
			require.Equal(t, string(bytes.TrimSpace(d.Name)), string(d.Name))
		}
		more, _ := ParseNetDev(nil, append(bytes.Clone(b), "\nx: y\nlast:5 2 3 4 5 6 7 8 6"...))
		require.Equal(t, named{"last", 5, 6}, namedInterfaces(more)[len(more)-1])
		require.Len(t, more, len(devices)+1)

		b = append([]byte(netDevHeader), kernelLines(b, netDevLine)...)
		devices, err = ParseNetDev(nil, b)
		require.NoError(t, err)
		want, oracleErr := o.put(t, "net/dev", b).NetDev()
		require.NoError(t, oracleErr)
		got := map[string]named{}
		for _, d := range namedInterfaces(devices) {
			got[d.Name] = d // of two with one name the oracle keeps the later
		}
		require.Len(t, got, len(want))
		for name, w := range want {
			require.Equal(t, named{name, w.RxBytes, w.TxBytes}, got[name])
		}
	})
}

var cpuLine = regexp.MustCompile(`^cpu[0-9]{0,4}( +[0-9]{1,12}){4,10}$`)

func FuzzParseCPUs(f *testing.F) {
	addFixtures(f, "stat")
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		cpus, err := ParseCPUs(nil, b)
		requireShortError(t, err)
		require.LessOrEqual(t, len(cpus), filledLines(b))
		for _, c := range cpus {
			require.GreaterOrEqual(t, c.Number, 0)
		}
		more, err2 := ParseCPUs(nil, append([]byte("cpu7 1 2 3 4\n"), b...))
		require.Equal(t, CPU{7, 6, 10}, more[0])
		require.Len(t, more, len(cpus)+1)
		require.Equal(t, err == nil, err2 == nil)

		b = append(kernelLines(b, cpuLine), "intr 1 2 3\nbtime 1\n"...)
		cpus, err = ParseCPUs(nil, b)
		require.NoError(t, err)
		want, oracleErr := o.put(t, "stat", b).Stat()
		require.NoError(t, oracleErr)
		got := map[int64]CPU{}
		for _, c := range cpus {
			require.LessOrEqual(t, c.Busy, c.Total)
			got[int64(c.Number)] = c
		}
		require.Len(t, got, len(want.CPU))
		for number, w := range want.CPU {
			busy := w.User + w.Nice + w.System + w.IRQ + w.SoftIRQ + w.Steal // in seconds
			require.InEpsilon(t, 1+busy*TicksPerSecond, 1+float64(got[number].Busy), 1e-9)
			require.InEpsilon(t, 1+(busy+w.Idle+w.Iowait)*TicksPerSecond, 1+float64(got[number].Total), 1e-9)
		}
	})
}

// The kernel writes no leading zeros, which procfs takes for octal numbers.
var pidStatFile = regexp.MustCompile(`(?s)^[0-9]+ \(.*\) [A-Za-z]( -?(0|[1-9][0-9]*)){41,60}\n$`)

func FuzzParsePIDStat(f *testing.F) {
	addFixtures(f, "pid_stat")
	f.Add([]byte(statLine("a) (b", nil)))
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParsePIDStat(b)
		requireShortError(t, err)
		if err == nil {
			require.True(t, bytes.Contains(b, append(append([]byte("("), got.Comm...), ')')))
			require.GreaterOrEqual(t, got.PPid, 0)
			require.GreaterOrEqual(t, got.Threads, 0)
		}

		if !pidStatFile.Match(b) {
			return
		}
		want, oracleErr := o.putPid(t, "stat", b).Stat()
		if oracleErr != nil {
			return // negative where the kernel has no sign, or too large a number in a field that is not used
		}
		if want.PPID < 0 || want.NumThreads < 0 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, PIDStat{
			Comm:      []byte(want.Comm),
			State:     want.State[0],
			PPid:      want.PPID,
			UTime:     uint64(want.UTime),
			STime:     uint64(want.STime),
			CUTime:    uint64(max(want.CUTime, 0)),
			CSTime:    uint64(max(want.CSTime, 0)),
			Threads:   want.NumThreads,
			StartTime: want.Starttime,
			// procfs does not tell it.
			StackStart: got.StackStart,
		}, got)
	})
}

var statmFile = regexp.MustCompile(`^[0-9]{1,19}( [0-9]{1,19}){6}\n$`)

func FuzzParseResident(f *testing.F) {
	addFixtures(f, "statm")
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseResident(b)
		requireShortError(t, err)
		if !statmFile.Match(b) {
			return
		}
		want, oracleErr := o.putPid(t, "statm", b).Statm()
		if oracleErr != nil {
			return
		}
		require.NoError(t, err)
		require.Equal(t, want.Resident, got)
	})
}

// The oracle lists every CPU, so that the numbers are kept small.
var cpuList = regexp.MustCompile(`(?m)^Cpus_allowed_list:\t([0-9]{1,3}(-[0-9]{1,3})?)(,[0-9]{1,3}(-[0-9]{1,3})?){0,20}$`)

func FuzzParseCPUsAllowed(f *testing.F) {
	addFixtures(f, "status")
	f.Add([]byte("Cpus_allowed_list:\t0,2-3,64-67\n"))
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseCPUsAllowed(b)
		requireShortError(t, err)
		require.Equal(t, err == nil, got > 0, "a process can run somewhere")

		b = cpuList.Find(b)
		got, err = ParseCPUsAllowed(b)
		if b == nil || err != nil {
			return // none, or a range backwards, which the oracle takes as empty
		}
		want, oracleErr := o.putPid(t, "status", b).NewStatus()
		require.NoError(t, oracleErr)
		require.Len(t, want.CpusAllowedList, got)
	})
}

var (
	mountinfoLine = regexp.MustCompile(`^[0-9]{1,9} [0-9]{1,9} [0-9]{1,9}:[0-9]{1,9} [!-~]+ [!-~]+ [!-~]+( [!-~]+)* - [!-~]+ [!-~]* [!-~]+$`)
	octalEscape   = regexp.MustCompile(`\\[0-3][0-7][0-7]`)
)

// unescaped is the oracle for what procfs leaves as it is.
func unescaped(s string) string {
	return octalEscape.ReplaceAllStringFunc(s, func(escape string) string {
		n, err := strconv.ParseUint(strings.TrimPrefix(escape, `\`), 8, 8)
		if err != nil {
			panic(err)
		}
		return string([]byte{byte(n)})
	})
}

func FuzzParseMountinfo(f *testing.F) {
	addFixtures(f, "mountinfo")
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		mounts, err := ParseMountinfo(nil, b)
		require.Equal(t, before, b)
		requireShortError(t, err)
		require.Equal(t, err == nil, len(mounts) == filledLines(b), "every line is understood or an error")
		for _, m := range mounts {
			require.NotEmpty(t, m.MountPoint)
		}
		more, _ := ParseMountinfo(nil, append(bytes.Clone(b), "\n1 2\n1 2 8:1 / /last rw - ext4 /dev/x rw"...))
		require.Equal(t, "/last", string(more[len(more)-1].MountPoint))
		require.Len(t, more, len(mounts)+1)

		b = kernelLines(b, mountinfoLine)
		if len(b) > 32<<10 {
			return // lines longer than the oracle's
		}
		mounts, err = ParseMountinfo(nil, b)
		fs := o.put(t, filepath.Join(strconv.Itoa(oraclePid), "mountinfo"), b)
		want, oracleErr := fs.GetProcMounts(oraclePid)
		if oracleErr != nil {
			return // a second separator
		}
		require.NoError(t, err)
		require.Len(t, mounts, len(want))
		for i, w := range want {
			m := mounts[i]
			major, minor, _ := strings.Cut(w.MajorMinorVer, ":")
			require.Equal(t, atoi(t, major), m.Major)
			require.Equal(t, atoi(t, minor), m.Minor)
			require.Equal(t, unescaped(w.Root), string(m.Root))
			require.Equal(t, unescaped(w.MountPoint), string(m.MountPoint))
			require.Equal(t, w.FSType, string(m.FSType))
			require.Equal(t, unescaped(w.Source), string(m.Source))
		}
	})
}

func atoi(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err)
	return n
}
