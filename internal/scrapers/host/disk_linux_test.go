// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// diskstatsOf gives every device some I/O; numbers are made up.
func diskstatsOf(names ...string) string {
	var b strings.Builder
	for i, name := range names {
		b.WriteString(diskLine(8, i, name, 10, 20))
	}
	return b.String()
}

func baseDevices(r *diskReading) []string {
	var names []string
	for _, d := range r.devices {
		if d.base {
			names = append(names, d.name)
		}
	}
	return names
}

func backingDevices(r *diskReading) []string {
	var names []string
	for _, d := range r.devices {
		if d.backing {
			names = append(names, d.name)
		}
	}
	return names
}

func TestBaseDevices(t *testing.T) {
	tests := []struct {
		name    string
		sys     []string
		devices []string
		want    []string
	}{
		{
			name: "are what sysfs calls a device and not a partition",
			sys: []string{
				"class/block/sda/device/", "class/block/sda1/partition", "class/block/sda2/device/", "class/block/sda2/partition",
				"class/block/dm-0/dm/name", "class/block/loop0/", "class/block/ram0/", "class/block/zram0/", "class/block/md0/md/",
				"class/block/bcache0/", "class/block/nvme0n1/device/", "class/block/nvme0n1p1/partition",
				"class/block/vdaa/device/", "class/block/cciss!c0d0/device/", "class/block/cciss!c0d0p1/partition",
			},
			devices: []string{
				"sda", "sda1", "sda2", "dm-0", "loop0", "ram0", "zram0", "md0", "bcache0", "nvme0n1", "nvme0n1p1", "vdaa", "cciss/c0d0", "cciss/c0d0p1",
			},
			want: []string{"sda", "nvme0n1", "vdaa", "cciss/c0d0"},
		},
		{
			name: "are not optical drives, floppies, NVMe legs and parts of an eMMC, although these have a device",
			sys: []string{
				"class/block/sr0/device/", "class/block/fd0/device/", "class/block/nvme0c0n1/device/", "class/block/nvme0n1/device/",
				"class/block/mmcblk0/device/", "class/block/mmcblk0boot0/device/", "class/block/mmcblk0boot1/device/", "class/block/mmcblk0rpmb/device/",
			},
			devices: []string{"sr0", "fd0", "nvme0c0n1", "nvme0n1", "mmcblk0", "mmcblk0boot0", "mmcblk0boot1", "mmcblk0rpmb"},
			want:    []string{"nvme0n1", "mmcblk0"},
		},
		{
			name:    "are found in /sys/block, which does not list partitions",
			sys:     []string{"block/sda/device/", "block/sda/sda1/partition", "block/dm-0/dm/name", "block/xvda1/device/"},
			devices: []string{"sda", "sda1", "dm-0", "xvda1"},
			want:    []string{"sda", "xvda1"},
		},
		{
			name: "are told by their name without /sys",
			devices: []string{
				"sda", "sda1", "sdaa", "sdaa1", "hda", "hda5", "vda", "vda1", "xvda", "xvdba2", "nvme0n1", "nvme0n1p1", "nvme12c3n1", "mmcblk0",
				"mmcblk0p2", "mmcblk0boot0", "mmcblk0rpmb", "dm-0", "md127", "md127p1", "md_d0", "loop0", "ram1", "zram0", "sr0", "fd0", "nbd0", "nbd0p1", "rbd1",
				"rbd1p1", "pmem0", "pmem0p1", "dasda", "dasda1", "cciss/c0d0", "cciss/c0d0p1", "bcache0", "drbd0", "zd0", "zd16",
			},
			want: []string{"sda", "sdaa", "hda", "vda", "xvda", "nvme0n1", "mmcblk0", "md_d0", "nbd0", "rbd1", "pmem0", "dasda", "cciss/c0d0"},
		},
		{
			name:    "are all but memory, loops and removable ones when sysfs shows none",
			sys:     []string{"class/block/dm-0/", "class/block/md0/", "class/block/loop0/", "class/block/sr0/device/"},
			devices: []string{"dm-0", "md0", "loop0", "ram0", "zram0", "sr0", "fd0", "nbd0"},
			want:    []string{"dm-0", "md0", "nbd0"},
		},
		{
			name:    "are all but memory, loops and removable ones when no name is left",
			devices: []string{"sda1", "dm-0", "loop0", "sr0"},
			want:    []string{"sda1", "dm-0"},
		},
		{
			name:    "may be none",
			devices: []string{"loop0", "ram0"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/diskstats": diskstatsOf(tt.devices...)})
			for _, name := range tt.sys {
				m.write(map[string]string{"sys/" + name: ""})
			}
			src := m.source()
			for range 2 { // what a name alone decides is remembered
				r := m.read(src)
				require.NotNil(t, r.disks)
				assert.Equal(t, tt.want, baseDevices(r.disks))
			}
		})
	}
}

func TestBaseDevicesFollowWhatSysfsShowsNow(t *testing.T) {
	m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/diskstats": diskstatsOf("xvda1", "xvdb")})
	src := m.source()
	assert.Equal(t, []string{"xvdb"}, baseDevices(m.read(src).disks), "by name")
	m.write(map[string]string{"sys/class/block/xvda1/device/": "", "sys/class/block/xvdb/device/": ""})
	assert.Equal(t, []string{"xvda1", "xvdb"}, baseDevices(m.read(src).disks), "a whole disk of Xen may be called so")
	m.remove("sys")
	assert.Equal(t, []string{"xvdb"}, baseDevices(m.read(src).disks), "by name")
}

func TestDiskCountersAreInBytesOfSectors(t *testing.T) {
	m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/diskstats": diskLine(8, 0, "sda", 3, 5)})
	r := m.read(m.source())
	assert.Equal(t, []deviceReading{{name: "sda", read: 3 * 512, written: 5 * 512, base: true}}, r.disks.devices)
	assert.Equal(t, testStart, r.disks.at)
}

func TestBackingDevices(t *testing.T) {
	const devices = "sda sda1 sda2 sdb dm-0 dm-1"
	tests := []struct {
		name   string
		mounts []string // of pid 1
		own    []string // of ours; no file for pid 1 then
		path   string
		sys    map[string]string
		files  map[string]string
		want   []string
	}{
		{
			name:   "the file system at /",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw"},
			path:   "/", want: []string{"sda1"},
		},
		{
			name:   "the longest mount point that holds the path",
			mounts: []string{"1 1 8:2 / /mnt/data rw - ext4 /dev/sda2 rw", "1 1 8:1 / / rw - ext4 /dev/sda1 rw"},
			path:   "/mnt/data/sets", want: []string{"sda2"},
		},
		{
			name:   "which ends at a path boundary",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw", "1 1 8:2 / /mnt/data rw - ext4 /dev/sda2 rw"},
			path:   "/mnt/data2", want: []string{"sda1"},
		},
		{
			name:   "the later of two mounts on one point",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw", "1 1 8:2 / /mnt rw - ext4 /dev/sda2 rw", "1 1 8:3 / /mnt rw - ext4 /dev/sdb rw"},
			path:   "/mnt", want: []string{"sdb"},
		},
		{
			name:   "a mount point with a blank",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw", `1 1 8:2 / /my\040data rw - ext4 /dev/sda2 rw`},
			path:   "/my data", want: []string{"sda2"},
		},
		{
			name:   "by number, whatever the source is called",
			mounts: []string{"1 1 8:4 / / rw - xfs /dev/mapper/vg-root rw"},
			path:   "/", want: []string{"dm-0"},
		},
		{
			name:   "none where diskstats does not know the number",
			mounts: []string{"1 1 9:99 / / rw - ext4 /dev/sda1 rw"},
			path:   "/",
		},
		{
			name:   "btrfs, by its source",
			mounts: []string{"1 1 0:44 /@ / rw - btrfs /dev/sda2 rw,subvol=/@"},
			path:   "/", want: []string{"sda2"},
		},
		{
			name:   "btrfs on a mapped device, by the name in sysfs",
			mounts: []string{"1 1 0:44 /@ / rw - btrfs /dev/mapper/luks-1 rw,subvol=/@"},
			sys:    map[string]string{"class/block/dm-0/dm/name": "vg-swap\n", "class/block/dm-1/dm/name": "luks-1\n"},
			path:   "/", want: []string{"dm-1"},
		},
		{
			name:   "btrfs on a mapped device, where sysfs is hidden",
			mounts: []string{"1 1 0:44 /@ / rw - btrfs /dev/mapper/luks-1 rw,subvol=/@"},
			path:   "/",
		},
		{name: "none for overlay", mounts: []string{"1 1 0:50 / / rw - overlay overlay rw"}, path: "/"},
		{name: "none for nfs", mounts: []string{"1 1 0:50 / / rw - nfs4 server:/sda1 rw"}, path: "/"},
		{name: "none for a source that is no device", mounts: []string{"1 1 0:50 / / rw - zfs /dev/tank rw"}, path: "/"},
		{
			name: "our own mounts are below the root path where pid 1's are hidden",
			own:  []string{"1 1 0:50 / / rw - overlay overlay rw", "1 1 8:1 / ROOT rw - ext4 /dev/sda1 rw", "1 1 8:2 / ROOT/mnt/data rw - ext4 /dev/sda2 rw"},
			path: "/mnt/data", want: []string{"sda2"},
		},
		{name: "none where no mount table can be read", path: "/"},
		{
			name:   "a configured path that is a symbolic link",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw", "1 1 8:2 / /mnt/big rw - ext4 /dev/sda2 rw"},
			files:  map[string]string{"mnt/big/sets/": "", "data": "-> mnt/big/sets"},
			path:   "/data", want: []string{"sda2"},
		},
		{
			name:   "an absolute symbolic link, which leads below the root path",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw", "1 1 8:2 / /mnt/big rw - ext4 /dev/sda2 rw"},
			files:  map[string]string{"mnt/big/": "", "data": "-> /mnt/big"},
			path:   "/data", want: []string{"sda2"},
		},
		{
			name:   "a symbolic link that tries to leave the root path",
			mounts: []string{"1 1 8:1 / / rw - ext4 /dev/sda1 rw", "1 1 8:2 / /etc rw - ext4 /dev/sda2 rw"},
			files:  map[string]string{"etc/": "", "data": "-> ../../../../../../../etc"},
			path:   "/data", want: []string{"sda2"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/diskstats": diskstatsOf(strings.Fields(devices)...)})
			m.write(tt.files)
			for name, content := range tt.sys {
				m.write(map[string]string{"sys/" + name: content})
			}
			if tt.mounts != nil {
				m.write(map[string]string{"proc/1/mountinfo": strings.Join(tt.mounts, "\n") + "\n"})
			}
			if tt.own != nil {
				m.write(map[string]string{"proc/self/mountinfo": strings.ReplaceAll(strings.Join(tt.own, "\n"), "ROOT", m.root) + "\n"})
			}
			m.cfg.DiskPaths = []string{tt.path}
			m.statfs = func(path string, st *unix.Statfs_t) error {
				assert.True(t, strings.HasPrefix(path+"/", m.root+"/"), "%s is not below the root path", path)
				*st = unix.Statfs_t{Blocks: 10, Bfree: 5, Bavail: 5, Frsize: 4096}
				return nil
			}
			assert.Equal(t, tt.want, backingDevices(m.read(m.source()).disks))
		})
	}
}

// aLinkToAMount is a machine whose /data leads to a mount on sda2.
func aLinkToAMount(t *testing.T) *testMachine {
	t.Helper()
	m := newTestMachine(t, map[string]string{
		"proc/meminfo":     "MemTotal: 1 kB\n",
		"proc/diskstats":   diskstatsOf("sda", "sda1", "sda2"),
		"proc/1/mountinfo": "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n1 1 8:2 / /mnt/x rw - ext4 /dev/sda2 rw\n",
		"mnt/x/sets/":      "",
		"data":             "-> /mnt/x/sets",
	})
	m.cfg.DiskPaths = []string{"/data"}
	return m
}

func TestBackingDeviceOfAFileSystemThatFails(t *testing.T) {
	m := aLinkToAMount(t)
	m.statfs = func(string, *unix.Statfs_t) error { return unix.EIO }
	src := m.source()
	for range 2 {
		r := src.read(t.Context(), want{})
		requireSources(t, r, "statfs /data")
		assert.Equal(t, []string{"sda2"}, backingDevices(r.disks))
	}
}

func TestBackingDeviceOfAFileSystemThatHangs(t *testing.T) {
	t.Parallel()
	m := aLinkToAMount(t)
	hang := make(chan struct{})
	m.statfs = func(string, *unix.Statfs_t) error {
		<-hang
		return unix.EIO
	}
	src := m.source()
	for _, ctx := range []context.Context{shortly(t), t.Context()} { // it is given up, and then left alone
		r := src.read(ctx, want{})
		requireSources(t, r, "statfs /data")
		assert.Equal(t, []string{"sda2"}, backingDevices(r.disks))
	}
	close(hang)
	require.True(t, src.filesystems[0].slot.Settle(t.Context()))
}

// On the way to where a path leads each step may hang: it was told before.
func TestResolveTellsEachStep(t *testing.T) {
	m := aLinkToAMount(t)
	for _, root := range []string{m.root, m.root + "/"} {
		var told []string
		resolved := resolveTelling(root, "/data/", func(path string) { told = append(told, path) })
		assert.Equal(t, "/mnt/x/sets", resolved)
		assert.Equal(t, []string{"/data", "/mnt", "/mnt/x", "/mnt/x/sets"}, told)
	}
}

func TestNoDiskstatsIsNoError(t *testing.T) {
	m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"})
	assert.Nil(t, m.read(m.source()).disks)
	m.write(map[string]string{"proc/diskstats": ""})
	assert.Nil(t, m.read(m.source()).disks)
}

func TestABadLineOfDiskstatsIsAFaultAndTheOthersCount(t *testing.T) {
	m := newTestMachine(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "proc/diskstats": "8 0 sda x\n" + diskLine(8, 16, "sdb", 1, 1)})
	r := m.source().read(t.Context(), want{})
	assert.Equal(t, []string{"sdb"}, baseDevices(r.disks))
	assert.True(t, r.disks.partial)
	requireSources(t, r, "diskstats")
}
