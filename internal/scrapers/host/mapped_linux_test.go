// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	mappedMount   = "1 1 0:44 /@ / rw - btrfs /dev/mapper/luks-1 rw\n"
	renamedMount  = "1 1 0:44 /@ / rw - btrfs /dev/mapper/luks-2 rw\n"
	numberedMount = "1 1 254:0 / / rw - ext4 /dev/mapper/luks-1 rw\n"
	namelessMount = "1 1 0:44 /@ / rw - btrfs /dev/mapper/ rw\n"
)

func aMappedMachine(t *testing.T, mount string) *testMachine {
	t.Helper()
	m := newTestMachine(t, map[string]string{
		"proc/meminfo":                 "MemTotal: 1 kB\n",
		"proc/diskstats":               diskLine(8, 0, "sda", 9, 9) + diskLine(254, 0, "dm-0", 9, 9) + diskLine(254, 1, "dm-1", 9, 9),
		"proc/1/mountinfo":             mount,
		"sys/class/block/sda/device/":  "",
		"sys/class/block/dm-0/dm/name": "swap\n",
		"sys/class/block/dm-1/dm/name": "luks-1\n",
	})
	m.cfg.DiskPaths = []string{"/"}
	m.filesystems["/"] = unix.Statfs_t{Bsize: 1, Blocks: 2, Bfree: 1, Bavail: 1}
	return m
}

func TestMappedNamesLastAsLongAsTheDevice(t *testing.T) {
	m := aMappedMachine(t, mappedMount)
	src := m.source()
	backing := func() []string { return backingDevices(m.read(src).disks) }
	require.Equal(t, []string{"dm-1"}, backing())
	require.True(t, src.disks.class.dir != "" && !src.disks.class.real)

	src.disks.class.real = true // as if it were a sysfs
	require.Equal(t, []string{"dm-1"}, backing())
	m.write(map[string]string{"sys/class/block/dm-0/dm/name": "luks-1\n", "sys/class/block/dm-1/dm/name": "luks-2\n"})
	assert.Equal(t, []string{"dm-1"}, backing(), "remembered")

	m.write(map[string]string{"proc/1/mountinfo": renamedMount})
	assert.Equal(t, []string{"dm-1"}, backing(), "renamed")
	m.write(map[string]string{"proc/1/mountinfo": mappedMount})
	assert.Equal(t, []string{"dm-0"}, backing(), "read anew with it")

	m.write(map[string]string{"sys/class/block/dm-0/dm/name": "swap\n", "sys/class/block/dm-1/dm/name": "luks-1\n"})
	m.write(map[string]string{"proc/diskstats": diskLine(8, 0, "sda", 9, 9) + diskLine(254, 0, "dm-0", 1, 9) + diskLine(254, 1, "dm-1", 9, 1)})
	assert.Equal(t, []string{"dm-1"}, backing(), "counters fell: other devices")

	m.write(map[string]string{"proc/diskstats": diskLine(8, 0, "sda", 9, 9)})
	assert.Empty(t, backing(), "gone")
	m.write(map[string]string{"sys/class/block/dm-0/dm/name": "luks-1\n", "sys/class/block/dm-1/dm/name": "swap\n"})
	m.write(map[string]string{"proc/diskstats": diskLine(254, 0, "dm-0", 9, 9) + diskLine(254, 1, "dm-1", 9, 9)})
	assert.Equal(t, []string{"dm-0"}, backing(), "back, and another")
}

func TestMappedNamesAreReadOnlyForMountsThatNeedThem(t *testing.T) {
	m := aMappedMachine(t, numberedMount)
	m.fifo("sys/class/block/dm-0/dm/name")
	assert.Equal(t, []string{"dm-0"}, backingDevices(m.read(m.source()).disks), "the number says it")

	m.write(map[string]string{"proc/1/mountinfo": namelessMount})
	assert.Empty(t, backingDevices(m.read(m.source()).disks))

	m.write(map[string]string{"proc/1/mountinfo": mappedMount})
	m.cfg.DiskPaths = nil
	m.read(m.source())
}

func TestAMappedNameThatHangsCostsOnlyTheDisks(t *testing.T) {
	t.Parallel()
	m := aMappedMachine(t, mappedMount)
	m.fifo("sys/class/block/dm-0/dm/name")
	r := m.source().read(shortly(t), want{})
	requireSources(t, r, "diskstats")
	assert.Nil(t, r.disks)
	assert.NotNil(t, r.memory)
	assert.Len(t, r.filesystems, 1)
}
