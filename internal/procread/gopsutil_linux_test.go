// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package procread

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// procWith is a context in which gopsutil finds one file of /proc.
func procWith(t *testing.T, name string, content []byte) context.Context {
	t.Helper()
	o := oracle{proc: t.TempDir()}
	require.NoError(t, o.makeDirs())
	o.put(t, name, content)
	return context.WithValue(t.Context(), common.EnvKey, common.EnvMap{
		common.HostProcEnvKey: o.proc,
		common.HostSysEnvKey:  t.TempDir(),
		common.HostRunEnvKey:  t.TempDir(),
		common.HostDevEnvKey:  t.TempDir(),
	})
}

func eachFixture(t *testing.T, kind string, check func(t *testing.T, content []byte)) {
	t.Helper()
	for name, content := range fixtures(t, kind) {
		t.Run(kind+"/"+strings.TrimSuffix(name, ".txt"), func(t *testing.T) { check(t, content) })
	}
}

func TestGopsutilReadsTheSame(t *testing.T) {
	eachFixture(t, "meminfo", func(t *testing.T, content []byte) {
		t.Helper()
		got, err := ParseMeminfo(content)
		require.NoError(t, err)
		want, err := mem.VirtualMemoryWithContext(procWith(t, "meminfo", content))
		require.NoError(t, err)
		assert.Equal(t, want.Total, got.Total)
		assert.Equal(t, want.Free, got.Free)
		assert.Equal(t, want.Buffers, got.Buffers)
		assert.Equal(t, want.SwapTotal, got.SwapTotal)
		assert.Equal(t, want.SwapFree, got.SwapFree)
		if want.Available <= want.Total && got.hasAvailable {
			// Behind LXCFS it may be more, which gopsutil leaves so; without
			// MemAvailable gopsutil estimates as the kernel's zones would.
			assert.Equal(t, want.Available, got.Available())
		}
	})
	eachFixture(t, "diskstats", func(t *testing.T, content []byte) {
		t.Helper()
		got, err := ParseDiskstats(nil, content)
		require.NoError(t, err)
		want, err := disk.IOCountersWithContext(procWith(t, "diskstats", content))
		require.NoError(t, err)
		for _, d := range got {
			w, ok := want[string(d.Name)]
			if !ok {
				assert.Zero(t, d.SectorsRead+d.SectorsWritten, "gopsutil leaves out only what is all 0")
				continue
			}
			assert.Equal(t, w.ReadBytes, d.SectorsRead*512)
			assert.Equal(t, w.WriteBytes, d.SectorsWritten*512)
		}
	})
	eachFixture(t, "net_dev", func(t *testing.T, content []byte) {
		t.Helper()
		got, err := ParseNetDev(nil, content)
		require.NoError(t, err)
		want, err := net.IOCountersWithContext(procWith(t, "net/dev", content), true)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i, w := range want {
			assert.Equal(t, named{w.Name, w.BytesRecv, w.BytesSent}, namedInterfaces(got)[i])
		}
	})
	eachFixture(t, "stat", func(t *testing.T, content []byte) {
		t.Helper()
		got, err := ParseCPUs(nil, content)
		require.NoError(t, err)
		want, err := cpu.TimesWithContext(procWith(t, "stat", content), true)
		require.NoError(t, err)
		if len(want) == 0 {
			t.Skip("gopsutil leaves out CPUs with fewer columns than Linux 2.6 has")
		}
		require.Len(t, got, len(want))
		for i, w := range want {
			busy := w.User + w.Nice + w.System + w.Irq + w.Softirq + w.Steal
			assert.InDelta(t, busy*TicksPerSecond, float64(got[i].Busy), 1e-6)
			assert.InDelta(t, (busy+w.Idle+w.Iowait)*TicksPerSecond, float64(got[i].Total), 1e-6)
		}
	})
	eachFixture(t, "statm", func(t *testing.T, content []byte) {
		t.Helper()
		got, err := ParseResident(content)
		require.NoError(t, err)
		p := process.Process{Pid: oraclePid}
		want, err := p.MemoryInfoExWithContext(procWith(t, filepath.Join("77", "statm"), content))
		require.NoError(t, err)
		assert.Equal(t, want.RSS, got*uint64(os.Getpagesize()))
	})
}
