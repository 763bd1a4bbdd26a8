// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

func TestParseClient(t *testing.T) {
	const now = "pos:\t0\nflags:\t02100002\nmnt_id:\t27\nino:\t700\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:C1:00.0\n"
	const before = "pos:\t0\npdev:\t0000:c1:00.0\npasid:\t32770\n"
	client := func(memory int64, works bool) drmClient {
		return drmClient{pci: "0000:c1:00.0", id: "7", memory: memory, works: works}
	}
	old := func(memory int64, works bool) drmClient {
		return drmClient{pci: "0000:c1:00.0", id: "pasid 32770", memory: memory, works: works}
	}
	for name, tt := range map[string]struct {
		text string
		want drmClient
	}{
		"nothing used":         {now, client(0, false)},
		"KiB":                  {now + "drm-memory-vram:\t123 KiB\n", client(123<<10, false)},
		"MiB":                  {now + "drm-memory-vram:\t3 MiB\n", client(3<<20, false)},
		"GiB":                  {now + "drm-memory-vram:\t2 GiB\n", client(2<<30, false)},
		"bytes":                {now + "drm-memory-vram:\t4096\n", client(4096, false)},
		"resident":             {now + "drm-resident-vram:\t5 KiB\n", client(5<<10, false)},
		"both, once":           {now + "drm-resident-vram:\t5 KiB\ndrm-memory-vram:\t4 KiB\n", client(4<<10, false)},
		"other memory":         {now + "drm-memory-gtt:\t9 KiB\ndrm-total-vram:\t9 KiB\ndrm-shared-vram:\t9 KiB\n", client(0, false)},
		"nonsense memory":      {now + "drm-memory-vram:\tmuch KiB\n", client(0, false)},
		"memory below 0":       {now + "drm-memory-vram:\t-5 KiB\n", client(0, false)},
		"more than there is":   {now + "drm-memory-vram:\t9223372036854775807 GiB\n", client(0, false)},
		"an engine":            {now + "drm-engine-gfx:\t123 ns\n", client(0, true)},
		"an idle engine":       {now + "drm-engine-gfx:\t0 ns\ndrm-engine-compute:\t0 ns\n", client(0, false)},
		"one of several":       {now + "drm-engine-gfx:\t0 ns\ndrm-engine-enc:\t1 ns\ndrm-engine-dec:\t0 ns\n", client(0, true)},
		"number of engines":    {now + "drm-engine-capacity-gfx:\t4\ndrm-engine-gfx:\t0 ns\n", client(0, false)},
		"an engine in text":    {now + "drm-engine-gfx:\tbusy\n", client(0, false)},
		"no engine of today":   {now + "gfx0:\t5%\n", client(0, false)},
		"a line that is none":  {now + "drm-engine-gfx\ngarbage\n\n:\n", client(0, false)},
		"before 5.19":          {before + "vram mem:\t123 kB\ngtt mem:\t9 kB\ncpu mem:\t9 kB\n", old(123<<10, false)},
		"before 5.19, idle":    {before + "gfx0:\t0.00%\ncompute0:\t0.00%\n", old(0, false)},
		"before 5.19, at work": {before + "gfx0:\t0.00%\ndma1:\t1.20%\n", old(0, true)},
		"before 5.19, little":  {before + "enc0:\t0.01%\n", old(0, true)},
		"before 5.19, no time": {before + "gfx0:\tnone\n", old(0, false)},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseClient([]byte(tt.text))
			assert.True(t, ok)
			assert.Equal(t, tt.want, got)
		})
	}
	for name, text := range map[string]string{
		"another driver":  strings.Replace(now, "amdgpu", "i915", 1) + "drm-engine-gfx:\t1 ns\n",
		"the old radeon":  strings.Replace(now, "amdgpu", "radeon", 1),
		"no driver":       "drm-pdev:\t0000:c1:00.0\ndrm-engine-gfx:\t1 ns\n",
		"no address":      "drm-driver:\tamdgpu\ndrm-client-id:\t7\n",
		"not of the DRM":  "pos:\t0\nflags:\t02\nmnt_id:\t1\n",
		"nothing at all":  "",
		"another's pdev:": "drm-driver:\tnouveau\npdev:\t0000:c1:00.0\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, ok := parseClient([]byte(text))
			assert.False(t, ok)
		})
	}
}

// descriptor makes a descriptor of a process.
func descriptor(m scraperstest.Machine, pid, fd int, target, info string) {
	m.T.Helper()
	m.Remove(fmt.Sprintf("proc/%d/fd/%d", pid, fd))
	m.Link(fmt.Sprintf("proc/%d/fd/%d", pid, fd), target)
	m.Write(fmt.Sprintf("proc/%d/fdinfo/%d", pid, fd), info)
}

// renders makes a descriptor of a render node.
func renders(m scraperstest.Machine, pid, fd int, address, client, rest string) {
	m.T.Helper()
	descriptor(m, pid, fd, "/dev/dri/renderD128",
		fmt.Sprintf("pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t%s\ndrm-pdev:\t%s\n%s", client, address, rest))
}

func TestClientsOfAProcess(t *testing.T) {
	m := scraperstest.NewMachine(t)
	const a, b, kib = "0000:05:00.0", "0000:06:00.0", "drm-memory-vram:\t%d KiB\n"
	renders(m, 7, 3, a, "1", fmt.Sprintf(kib, 1))
	renders(m, 7, 4, a, "1", fmt.Sprintf(kib, 1)) // handed on
	renders(m, 7, 5, a, "2", fmt.Sprintf(kib, 2))
	renders(m, 7, 6, b, "1", fmt.Sprintf(kib, 4)) // the other GPU's
	descriptor(m, 7, 8, "/dev/kfd", "pos:\t0\n")
	descriptor(m, 7, 9, "socket:[7]", "drm-driver:\tamdgpu\ndrm-pdev:\t"+a+"\n")
	descriptor(m, 7, 10, "/dev/dri/card1", "drm-driver:\tnouveau\ndrm-pdev:\t"+a+"\ndrm-client-id:\t9\n")
	renders(m, 7, 11, a, "3", "")
	m.Remove("proc/7/fdinfo/11") // closed meanwhile
	got, err := clientsOf(filepath.Join(m.Root, "proc/7"))
	require.NoError(t, err)
	assert.ElementsMatch(t, []drmClient{{pci: a, id: "1", memory: 1 << 10, computes: true}, {pci: a, id: "2", memory: 2 << 10, computes: true}, {pci: b, id: "1", memory: 4 << 10, computes: true}}, got)

	_, err = clientsOf(filepath.Join(m.Root, "proc/8"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Clients without a number are not taken for one.
func TestClientsWithoutNumber(t *testing.T) {
	m := scraperstest.NewMachine(t)
	for fd := range 2 {
		descriptor(m, 7, fd, "/dev/dri/renderD128", "drm-driver:\tamdgpu\ndrm-pdev:\t0000:05:00.0\ndrm-memory-vram:\t1 KiB\n")
	}
	got, err := clientsOf(filepath.Join(m.Root, "proc/7"))
	require.NoError(t, err)
	assert.Len(t, got, 2)
}
