// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMountinfo(t *testing.T) {
	mountWith := func(options string, major, minor uint64, root, point, fsType, source string) Mount {
		return Mount{major, minor, []byte(root), []byte(point), []byte(fsType), []byte(source), []byte(options)}
	}
	mount := func(major, minor uint64, root, point, fsType, source string) Mount {
		return mountWith("rw", major, minor, root, point, fsType, source)
	}
	tests := []struct {
		name    string
		input   string
		want    []Mount
		wantErr string
	}{
		{name: "empty"},
		{name: "blank lines", input: "\n \n\r\n"},
		{
			name:  "no tags",
			input: "27 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw\n",
			want:  []Mount{mount(259, 2, "/", "/", "ext4", "/dev/nvme0n1p2")},
		},
		{
			name:  "several tags",
			input: "33 27 0:44 /@home /home rw shared:20 master:3 propagate_from:2 unbindable - btrfs /dev/sdb1 rw,subvol=/@home",
			want:  []Mount{mountWith("rw,subvol=/@home", 0, 44, "/@home", "/home", "btrfs", "/dev/sdb1")},
		},
		{
			name:  "octal escapes, resolved once",
			input: `31 27 8:1 /a\040b /mnt/my\011data\134040 rw - xfs /dev/mapper/vg\012x rw` + "\n",
			want:  []Mount{mount(8, 1, "/a b", "/mnt/my\tdata\\040", "xfs", "/dev/mapper/vg\nx")},
		},
		{
			name:  "what only looks like an escape stays",
			input: `31 27 8:1 / /a\04 rw - xfs \400\08\ rw` + "\n",
			want:  []Mount{mount(8, 1, "/", `/a\04`, "xfs", `\400\08\`)},
		},
		{
			name:  "an empty source",
			input: "35 27 0:53 / /run/x rw - tmpfs  rw\n",
			want:  []Mount{mount(0, 53, "/", "/run/x", "tmpfs", "")},
		},
		{
			name:  "carriage returns are part of a name",
			input: "35 27 8:1 / /mnt/a\rb rw - ext4 /dev/sda1 rw\r\n",
			want:  []Mount{mountWith("rw\r", 8, 1, "/", "/mnt/a\rb", "ext4", "/dev/sda1")},
		},
		{
			name: "bad lines cost themselves",
			input: "1 2 8:1 / /a rw - ext4 /dev/sda1 rw\n" +
				"1 2 8-1 / /b rw - ext4 /dev/sda1 rw\n" +
				"1 2 x:1 / /b rw - ext4 /dev/sda1 rw\n" +
				"1 2 8:18446744073709551616 / /b rw - ext4 /dev/sda1 rw\n" +
				"1 2 8:1 / /b rw ext4 /dev/sda1 rw\n" +
				"1 2 8:1 / - ext4\n" +
				"1 2 8:1 /\n1 2\n" +
				"1 2 8:2 / /c rw - ext4 /dev/sda2 rw\n" +
				"1 2 8:3 / /cut rw",
			want: []Mount{
				mount(8, 1, "/", "/a", "ext4", "/dev/sda1"),
				mount(8, 2, "/", "/c", "ext4", "/dev/sda2"),
			},
			wantErr: `mountinfo: line 2 not understood: "1 2 8-1 / /b rw - ext4 /dev/sda1 rw"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseMountinfo(nil, []byte(tt.input))
			assertError(t, tt.wantErr, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseMountinfoLeavesItsInputAlone(t *testing.T) {
	input := []byte(`31 27 8:1 /a\040b /mnt/my\040data rw - xfs /dev/x\040y rw` + "\n")
	before := string(input)
	_, err := ParseMountinfo(nil, input)
	require.NoError(t, err)
	assert.Equal(t, before, string(input))
}
