// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMeminfo(t *testing.T) {
	tests := []struct {
		name  string
		input string
		want  Meminfo
	}{
		{
			name:  "counts in KiB and ignores lines it does not use",
			input: "MemTotal: 8 kB\nMemFree: 1 kB\nHugePages_Total: 99\nSwapTotal: 4 kB\nSwapFree: 3 kB\n",
			want:  Meminfo{Total: 8192, Free: 1024, SwapTotal: 4096, SwapFree: 3072},
		},
		{
			name:  "takes lines in any order, without a blank, without a last newline",
			input: "MemFree:1 kB\nMemTotal:8 kB",
			want:  Meminfo{Total: 8192, Free: 1024},
		},
		{
			name:  "accepts CRLF",
			input: "MemTotal: 8 kB\r\nMemFree: 1\r\n\r\n",
			want:  Meminfo{Total: 8192, Free: 1024},
		},
		{
			name:  "does not take a name for another that begins with it",
			input: "MemTotal: 8 kB\nMemTotalHuge: 9 kB\nSwapCached: 7 kB\nCachedX: 6 kB\n",
			want:  Meminfo{Total: 8192},
		},
		{
			name:  "skips lines without a colon",
			input: "hello\nMemTotal: 8 kB\nMemFr",
			want:  Meminfo{Total: 8192},
		},
		{
			name:  "reads all that the old formula needs",
			input: "MemTotal: 99 kB\nMemFree: 1 kB\nBuffers: 2 kB\nCached: 3 kB\nSReclaimable: 4 kB\nShmem: 5 kB\n",
			want:  Meminfo{Total: 99 << 10, Free: 1 << 10, Buffers: 2 << 10, Cached: 3 << 10, SReclaimable: 4 << 10, Shmem: 5 << 10},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseMeminfo([]byte(tt.input))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseMeminfoErrors(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"empty", "", "meminfo: no MemTotal"},
		{"no total", "MemFree: 1 kB\n", "meminfo: no MemTotal"},
		{"total of 0", "MemTotal: 0 kB\nMemFree: 0 kB\n", "meminfo: no MemTotal"},
		{"cut off after the name", "MemTotal: 8 kB\nMemFree:", `meminfo: line 2 not understood: "MemFree:"`},
		{"negative", "MemTotal: 8 kB\nCached: -4 kB\n", `meminfo: line 2 not understood: "Cached: -4 kB"`},
		{"above 64 bits", "MemTotal: 18446744073709551616 kB\n", `meminfo: line 1 not understood: "MemTotal: 18446744073709551616 kB"`},
		{"in bytes above 64 bits", "MemTotal: 18014398509481984 kB\n", `meminfo: line 1 not understood: "MemTotal: 18014398509481984 kB"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseMeminfo([]byte(tt.input))
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestAvailableMemory(t *testing.T) {
	tests := []struct {
		name, input string
		want        uint64
	}{
		{"is MemAvailable", "MemTotal: 100 kB\nMemFree: 90 kB\nMemAvailable: 40 kB\n", 40 << 10},
		{"may be 0", "MemTotal: 100 kB\nMemFree: 90 kB\nMemAvailable: 0 kB\n", 0},
		{"is at most the total, as behind LXCFS", "MemTotal: 100 kB\nMemAvailable: 4000 kB\n", 100 << 10},
		{
			"is free, buffers, cache and reclaimable without shmem before Linux 3.14",
			"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 30 kB\nSReclaimable: 4 kB\nShmem: 7 kB\n", 42 << 10,
		},
		{"is never below 0 before Linux 3.14", "MemTotal: 100 kB\nMemFree: 1 kB\nShmem: 7 kB\n", 0},
		{"is at most the total before Linux 3.14", "MemTotal: 10 kB\nMemFree: 8 kB\nCached: 8 kB\n", 10 << 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := ParseMeminfo([]byte(tt.input))
			require.NoError(t, err)
			assert.Equal(t, tt.want, m.Available())
		})
	}
}

func TestSwapUsedIsNeverBelow0(t *testing.T) {
	m := Meminfo{SwapTotal: 4096, SwapFree: 1024}
	assert.Equal(t, uint64(3072), m.SwapUsed())
	m.SwapFree = 8192
	assert.Zero(t, m.SwapUsed())
}

// named is what the tables have in common, for comparing.
type named struct {
	Name string
	A, B uint64
}

func TestParseDiskstats(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		want    []named
		wantErr string
	}{
		{name: "empty"},
		{name: "blank lines", input: "\n  \n\t\r\n"},
		{
			name:  "14 columns",
			input: "   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n",
			want:  []named{{"sda", 3, 7}},
		},
		{
			name:  "18 columns with discards",
			input: " 253 0 dm-0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n",
			want:  []named{{"dm-0", 3, 7}},
		},
		{
			name:  "20 columns with flushes",
			input: " 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
			want:  []named{{"nvme0n1", 3, 7}},
		},
		{
			name:  "names with a slash",
			input: "104 1 cciss/c0d0p1 1 2 3 4 5 6 7 8 9 10 11\n",
			want:  []named{{"cciss/c0d0p1", 3, 7}},
		},
		{
			name:  "lines that are all 0 are kept",
			input: "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n",
			want:  []named{{"loop0", 0, 0}},
		},
		{
			name:  "the largest number, CRLF and no last newline",
			input: "8 0 sda 1 2 18446744073709551615 4 5 6 18446744073709551615 8 9 10 11\r\n8 16 sdb 1 2 3 4 5 6 7",
			want:  []named{{"sda", 1<<64 - 1, 1<<64 - 1}, {"sdb", 3, 7}},
		},
		{
			name:    "a number above 64 bits costs its line",
			input:   "8 0 sda 1 2 18446744073709551616 4 5 6 7 8 9 10 11\n8 16 sdb 1 2 3 4 5 6 7 8 9 10 11\n",
			want:    []named{{"sdb", 3, 7}},
			wantErr: `diskstats: line 1 not understood: "8 0 sda 1 2 18446744073709551616 4 5 6 7 8 9 10 11"`,
		},
		{
			name:    "a line that is cut off costs itself",
			input:   "8 0 sda 1 2 3 4 5 6 7\n8 16 sdb 1 2 3 4 5 6",
			want:    []named{{"sda", 3, 7}},
			wantErr: `diskstats: line 2 not understood: "8 16 sdb 1 2 3 4 5 6"`,
		},
		{
			name:    "the first of several bad lines is named",
			input:   "x\ny\n8 0 sda 1 2 3 4 5 6 7\n8\n8 0\n-8 0 sdb 1 2 3 4 5 6 7\n",
			want:    []named{{"sda", 3, 7}},
			wantErr: `diskstats: line 1 not understood: "x"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disks, err := ParseDiskstats(nil, []byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, namedDisks(disks))
		})
	}
}

func namedDisks(disks []Disk) []named {
	var list []named
	for _, d := range disks {
		list = append(list, named{string(d.Name), d.SectorsRead, d.SectorsWritten})
	}
	return list
}

func assertError(t *testing.T, want string, err error) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err)
		return
	}
	assert.EqualError(t, err, want)
}

func TestParseDiskstatsNumbersDevices(t *testing.T) {
	disks, err := ParseDiskstats(nil, []byte("259 17 nvme1n1p2 1 2 3 4 5 6 7 8 9 10 11\n"))
	require.NoError(t, err)
	require.Len(t, disks, 1)
	assert.Equal(t, uint64(259), disks[0].Major)
	assert.Equal(t, uint64(17), disks[0].Minor)
}

const netDevHeader = "Inter-|   Receive                  |  Transmit\n face |bytes    packets |bytes    packets\n"

func TestParseNetDev(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		want    []named
		wantErr string
	}{
		{name: "empty"},
		{name: "header only", input: netDevHeader},
		{
			name:  "with blanks around",
			input: netDevHeader + "  eth0:  1 2 3 4 5 6 7 8   9 10 11 12 13 14 15 16\n",
			want:  []named{{"eth0", 1, 9}},
		},
		{
			name:  "no blank after the colon",
			input: netDevHeader + "enp129s0f0np0:18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
			want:  []named{{"enp129s0f0np0", 1<<64 - 1, 9}},
		},
		{
			name:  "an alias keeps its colon",
			input: netDevHeader + "eth0:1:    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
			want:  []named{{"eth0:1", 1, 9}},
		},
		{
			name:  "no header",
			input: "eth0: 1 2 3 4 5 6 7 8 9\n",
			want:  []named{{"eth0", 1, 9}},
		},
		{
			name:  "CRLF",
			input: "a|b\r\nc|d\r\neth0: 1 2 3 4 5 6 7 8 9\r\n\r\n",
			want:  []named{{"eth0", 1, 9}},
		},
		{
			name:    "a line that is cut off costs itself",
			input:   netDevHeader + "eth0: 1 2 3 4 5 6 7 8\neth1: 1 2 3 4 5 6 7 8 9\n",
			want:    []named{{"eth1", 1, 9}},
			wantErr: `net/dev: line 3 not understood: "eth0: 1 2 3 4 5 6 7 8"`,
		},
		{
			name:    "a bar is a header's at the beginning only",
			input:   netDevHeader + "x|y\n",
			wantErr: `net/dev: line 3 not understood: "x|y"`,
		},
		{
			name:    "no colon, no name, too large, negative",
			input:   "eth0 1\n: 1 2 3 4 5 6 7 8 9\neth1: 18446744073709551616 2 3 4 5 6 7 8 9\neth2: -1 2 3 4 5 6 7 8 9\n",
			wantErr: `net/dev: line 1 not understood: "eth0 1"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			devices, err := ParseNetDev(nil, []byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, namedInterfaces(devices))
		})
	}
}

func namedInterfaces(devices []NetDev) []named {
	var list []named
	for _, d := range devices {
		list = append(list, named{string(d.Name), d.RxBytes, d.TxBytes})
	}
	return list
}

func TestParseCPUs(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		want    []CPU
		wantErr string
	}{
		{name: "empty"},
		{name: "the sum is no CPU", input: "cpu  1 2 3 4 5 6 7 8 9 10\n"},
		{name: "nothing but a name", input: "cpu"},
		{
			name:  "idle and iowait are not busy, guest time is not counted twice",
			input: "cpu0 1 2 4 8 16 32 64 128 1000 2000\n",
			want:  []CPU{{0, 1 + 2 + 4 + 32 + 64 + 128, 255}},
		},
		{
			name:  "numbers have gaps where a CPU is offline",
			input: "cpu  1 1 1 1\ncpu0 1 2 4 8 16 32 64 128\ncpu12 1 0 0 0 0 0 0 0\nintr 5 5\n",
			want:  []CPU{{0, 231, 255}, {12, 1, 1}},
		},
		{
			name:  "four columns, as before Linux 2.6",
			input: "cpu0 1 2 4 8\n",
			want:  []CPU{{0, 7, 15}},
		},
		{
			name:  "reading stops after the CPUs",
			input: "cpu0 1 2 4 8\nintr x\ncpu1 1 2 4 8\n",
			want:  []CPU{{0, 7, 15}},
		},
		{name: "CRLF", input: "cpu 1 1 1 1\r\ncpu1 1 2 4 8\r\n", want: []CPU{{1, 7, 15}}},
		{
			name:    "too few columns",
			input:   "cpu0 1 2 4 8\ncpu1 1 2 4\n",
			want:    []CPU{{0, 7, 15}},
			wantErr: `stat: line 2 not understood: "cpu1 1 2 4"`,
		},
		{name: "no number", input: "cpux 1 2 4 8\n", wantErr: `stat: line 1 not understood: "cpux 1 2 4 8"`},
		{name: "negative", input: "cpu0 1 2 4 -8 1\n", wantErr: `stat: line 1 not understood: "cpu0 1 2 4 -8 1"`},
		{
			name:    "above 64 bits",
			input:   "cpu0 18446744073709551616 2 4 8 1\n",
			wantErr: `stat: line 1 not understood: "cpu0 18446744073709551616 2 4 8 1"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseCPUs(nil, []byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestTablesAppend(t *testing.T) {
	disks, err := ParseDiskstats([]Disk{{Name: []byte("kept")}}, []byte("8 0 sda 1 2 3 4 5 6 7\n"))
	require.NoError(t, err)
	assert.Equal(t, []named{{"kept", 0, 0}, {"sda", 3, 7}}, namedDisks(disks))

	devices, err := ParseNetDev([]NetDev{{Name: []byte("kept")}}, []byte("eth0: 1 2 3 4 5 6 7 8 9\n"))
	require.NoError(t, err)
	assert.Equal(t, []named{{"kept", 0, 0}, {"eth0", 1, 9}}, namedInterfaces(devices))

	cpus, err := ParseCPUs([]CPU{{Number: 9}}, []byte("cpu0 1 2 4 8\n"))
	require.NoError(t, err)
	assert.Equal(t, []CPU{{Number: 9}, {0, 7, 15}}, cpus)

	mounts, err := ParseMountinfo([]Mount{{FSType: []byte("kept")}}, []byte("1 2 3:4 / /x rw - ext4 /dev/sda rw\n"))
	require.NoError(t, err)
	require.Len(t, mounts, 2)
	assert.Equal(t, "kept", string(mounts[0].FSType))
}

func TestErrorsQuoteOnlyTheBeginningOfALine(t *testing.T) {
	_, err := ParseDiskstats(nil, []byte(strings.Repeat("x", 10_000)))
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 200)
}
