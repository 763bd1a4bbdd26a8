// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
)

// A name is fit for a label, and a good one stays as it is.
func FuzzClean(f *testing.F) {
	for _, name := range []string{"", "NVIDIA H100 80GB HBM3", "a\x00b", "\xff\xfe", "t\tn\n\x7f", "K\u00fcche", "1g.10gb+me"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := clean(name)
		require.True(t, utf8.ValidString(got))
		require.Equal(t, -1, strings.IndexFunc(got, isControl))
		require.Equal(t, got, clean(got))
		if utf8.ValidString(name) && strings.IndexFunc(name, isControl) < 0 {
			require.Equal(t, name, got)
		}
		_ = isIntegrated(got)
	})
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Whatever sysfs says, only awake GPUs of NVIDIA are opened, and never one that
// device_ids leaves out.
func FuzzSysfs(f *testing.F) {
	f.Add("0000:3b:00.0", "0x10de\n", "0x030200\n", "active\n", "0000:3b:00.0")
	f.Add("0000:3b:00.0", "0x10de", "0x030000", "suspended\n", "3b:00")
	f.Add("0000:3b:00.0", "0x10de\n", "0x040300\n", "unsupported\n", "0000:3c:00.0")
	f.Add("10000:01:00.0", "0x8086\n", "0x030000\n", "", "0")
	f.Add("odd", "\x00", "", "suspending", "GPU-1")
	f.Add("odd", "0x10de\n", "0x030000\n", "active\n", "0000:3b:00.0")
	f.Fuzz(func(t *testing.T, address, vendor, class, status, named string) {
		if address == "" || len(address) > 200 || strings.ContainsAny(address, "/\x00") || address == "." || address == ".." {
			t.Skip("no name of a file")
		}
		root := t.TempDir()
		device := filepath.Join(root, address)
		require.NoError(t, os.MkdirAll(filepath.Join(device, "power"), 0o700))
		for name, content := range map[string]string{"vendor": vendor, "class": class, "power/runtime_status": status} {
			require.NoError(t, os.WriteFile(filepath.Join(device, name), []byte(content), 0o600))
		}
		p := &pass{nvmlSource: &nvmlSource{pci: root, cfg: &Config{SkipSuspended: true}, logger: zap.NewNop(), warned: map[string]bool{}}, sink: &sink{}}
		id, err := deviceIDs.Parse(named)
		if err == nil {
			p.ids = []gpus.DeviceID{id}
		}
		found := p.awake()
		require.Empty(t, p.sink.reading.errs)
		asleep := strings.TrimSpace(status) == "suspended" || strings.TrimSpace(status) == "suspending"
		want := strings.TrimSpace(vendor) == "0x10de" && strings.HasPrefix(strings.TrimSpace(class), "0x03") && !asleep
		if len(vendor) > 4096 || len(class) > 4096 || len(status) > 4096 {
			return
		}
		if id.PCI != "" && id.PCI != gpus.CanonicalPCI(address) {
			want = false
		}
		if !want {
			require.Empty(t, found)
			return
		}
		require.Equal(t, []candidate{{index: -1, address: address}}, found)
	})
}

// Whatever a driver lists, each process is there once, with a pid and a figure
// that a point can hold.
func FuzzProcesses(f *testing.F) {
	f.Add(uint32(1000), uint64(1), uint32(allOnes32), uint32(1001), uint64(1)<<63, uint32(3))
	f.Add(uint32(1000), uint64(1), uint32(15), uint32(1000), uint64(2), uint32(16))
	f.Add(uint32(0), uint64(0), uint32(0), uint32(maxPid+1), ^uint64(0), uint32(0))
	f.Fuzz(func(t *testing.T, pid1 uint32, memory1 uint64, instance1, pid2 uint32, memory2 uint64, instance2 uint32) {
		infos := []nvml.ProcessInfo{
			{Pid: pid1, UsedGpuMemory: memory1, GpuInstanceId: instance1, ComputeInstanceId: instance2},
			{Pid: pid2, UsedGpuMemory: memory2, GpuInstanceId: instance2, ComputeInstanceId: instance1},
		}
		if !areSane(infos) {
			return
		}
		one, other := newProcess(&infos[0]), newProcess(&infos[1])
		merged := merge([]processReading{one}, []processReading{other})
		require.Equal(t, pid1 == pid2, len(merged) == 1)
		for _, p := range merged {
			require.Positive(t, p.pid)
			require.LessOrEqual(t, p.pid, maxPid)
			require.GreaterOrEqual(t, int64(p.memory.Value), int64(0))
			require.GreaterOrEqual(t, p.gi, -1)
			require.Less(t, p.gi, maxInstance)
			require.GreaterOrEqual(t, p.ci, -1)
			require.Less(t, p.ci, maxInstance)
			if !p.memory.Known {
				require.Zero(t, p.memory.Value)
			}
		}
		back := merge([]processReading{other}, []processReading{one})
		if len(merged) == 1 {
			require.Equal(t, merged[0].memory, back[0].memory, "the order of lists means nothing")
		}
	})
}
