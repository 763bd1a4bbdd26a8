// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixtures returns the contents of testdata/KIND by name.
func fixtures(tb testing.TB, kind string) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", kind, "*.txt"))
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	contents := map[string][]byte{}
	for _, file := range files {
		contents[filepath.Base(file)], err = os.ReadFile(file)
		require.NoError(tb, err)
	}
	return contents
}

// parsers runs each parser on an input as a caller with reused buffers does.
func parsers() map[string]func([]byte) error {
	var (
		disks   []Disk
		devices []NetDev
		cpus    []CPU
		mounts  []Mount
		err     error
	)
	return map[string]func([]byte) error{
		"meminfo":   func(b []byte) error { _, err := ParseMeminfo(b); return err },
		"diskstats": func(b []byte) error { disks, err = ParseDiskstats(disks[:0], b); return err },
		"net_dev":   func(b []byte) error { devices, err = ParseNetDev(devices[:0], b); return err },
		"stat":      func(b []byte) error { cpus, err = ParseCPUs(cpus[:0], b); return err },
		"pid_stat":  func(b []byte) error { _, err := ParsePIDStat(b); return err },
		"statm":     func(b []byte) error { _, err := ParseResident(b); return err },
		"status":    func(b []byte) error { _, err := ParseCPUsAllowed(b); return err },
		"mountinfo": func(b []byte) error { mounts, err = ParseMountinfo(mounts[:0], b); return err },
	}
}

func TestFixturesAreUnderstood(t *testing.T) {
	for kind, parse := range parsers() {
		for name, content := range fixtures(t, kind) {
			assert.NoError(t, parse(content), "%s/%s", kind, name)
		}
	}
}

func TestParsersWithReusedBuffersDoNotAllocate(t *testing.T) {
	for kind, parse := range parsers() {
		t.Run(kind, func(t *testing.T) {
			for name, content := range fixtures(t, kind) {
				if kind == "mountinfo" { // escapes are copied
					content = []byte("27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n")
				}
				require.NoError(t, parse(content)) // the buffers grow
				allocs := testing.AllocsPerRun(100, func() { _ = parse(content) })
				assert.Zero(t, allocs, name)
			}
		})
	}
}
