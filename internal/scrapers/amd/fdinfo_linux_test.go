// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatADescriptorTellsOfAGPU(t *testing.T) {
	const head = "pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t31\ndrm-pdev:\t0000:C1:00.0\n"
	client := func(memory int64, works bool) *drmClient {
		return &drmClient{pci: "0000:c1:00.0", id: "31", memory: memory, works: works}
	}
	for name, c := range map[string]struct {
		text string
		want *drmClient
	}{
		"opened":                              {head, client(0, false)},
		"its memory":                          {head + "drm-memory-vram:\t412 KiB\n", client(412<<10, false)},
		"its memory in MiB":                   {head + "drm-memory-vram:\t3 MiB\n", client(3<<20, false)},
		"its memory in bytes":                 {head + "drm-memory-vram:\t4096\n", client(4096, false)},
		"what is resident":                    {head + "drm-resident-vram:\t7 KiB\n", client(7<<10, false)},
		"its memory goes before the resident": {head + "drm-resident-vram:\t7 KiB\ndrm-memory-vram:\t9 KiB\n", client(9<<10, false)},
		"the machine's memory does not count": {head + "drm-memory-gtt:\t412 KiB\ndrm-resident-gtt:\t1 KiB\n", client(0, false)},
		"an engine that worked":               {head + "drm-engine-gfx:\t1 ns\n", client(0, true)},
		"engines that did not":                {head + "drm-engine-gfx:\t0 ns\ndrm-engine-compute:\t0 ns\n", client(0, false)},
		"how many engines there are is no work": {
			head + "drm-engine-capacity-gfx:\t4\ndrm-engine-capacity-compute:\t8\ndrm-engine-gfx:\t0 ns\n", client(0, false),
		},
		"an engine in text":  {head + "drm-engine-gfx:\tbusy\n", client(0, false)},
		"memory beyond any":  {head + "drm-memory-vram:\t9223372036854775807 GiB\n", client(0, false)},
		"memory below 0":     {head + "drm-memory-vram:\t-5 KiB\n", client(0, false)},
		"another driver":     {"drm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\ndrm-engine-render:\t5 ns\n", nil},
		"no address":         {"drm-driver:\tamdgpu\ndrm-client-id:\t31\n", nil},
		"no GPU":             {"pos:\t0\nflags:\t02\n", nil},
		"nothing":            {"", nil},
		"before 5.19":        {"pdev:\t0000:C1:00.0\npasid:\t5\nvram mem:\t123 kB\ngtt mem:\t1 kB\ngfx0:\t1.2%\n", &drmClient{pci: "0000:c1:00.0", id: "pasid 5", memory: 123 << 10, works: true}},
		"before 5.19, idle":  {"pdev:\t0000:c1:00.0\npasid:\t5\nvram mem:\t0 kB\ngfx0:\t0.0%\nenc0:\t0%\n", &drmClient{pci: "0000:c1:00.0", id: "pasid 5"}},
		"an engine of today": {head + "gfx0:\t5%\n", client(0, false)},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseClient([]byte(c.text))
			require.Equal(t, c.want != nil, ok)
			if ok {
				assert.Equal(t, *c.want, got)
			}
		})
	}
}

// Descriptors that were handed on are one client; those of other devices none.
func TestClientsAreCountedOnce(t *testing.T) {
	tr := newTree(t)
	open := func(fd int, target, pci, id string) {
		tr.Link(fmt.Sprintf("proc/7/fd/%d", fd), target)
		tr.Write(fmt.Sprintf("proc/7/fdinfo/%d", fd), "drm-driver:\tamdgpu\ndrm-pdev:\t"+pci+"\ndrm-client-id:\t"+id+"\ndrm-memory-vram:\t1 KiB\n")
	}
	open(3, "/dev/dri/renderD128", "0000:05:00.0", "1")
	open(4, "/dev/dri/renderD128", "0000:05:00.0", "1")
	open(5, "/dev/dri/renderD129", "0000:26:00.0", "1")
	open(6, "/dev/kfd", "0000:05:00.0", "9")
	tr.Link("proc/7/fd/8", "/dev/dri/renderD128") // closed meanwhile
	got, err := clientsOf(filepath.Join(tr.Root, "proc/7"))
	require.NoError(t, err)
	assert.Equal(t, []drmClient{
		{pci: "0000:05:00.0", id: "1", memory: 1024},
		{pci: "0000:26:00.0", id: "1", memory: 1024},
	}, got)
	_, err = clientsOf(filepath.Join(tr.Root, "proc/8"))
	require.Error(t, err)
}
