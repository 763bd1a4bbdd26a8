// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"fmt"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// marketing are the names of libdrm's list, by device and revision.
type marketing map[string]string

// marketingNames reads libdrm's list where the machine has it.
func (f folder) marketingNames() marketing {
	for _, path := range []string{"usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids"} {
		full, err := f.join(path)
		if err != nil {
			continue
		}
		if content, err := guard.ReadFile(full, maxMarketing); err == nil {
			return parseMarketing(string(content))
		}
	}
	return nil
}

// parseMarketing reads lines of `DEVICE,<tab>REVISION,<tab>name`, in hexadecimal
// without 0x. Other lines are comments and the version.
func parseMarketing(text string) marketing {
	names := marketing{}
	for line := range strings.Lines(text) {
		fields := strings.SplitN(line, ",", 3)
		if len(fields) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		names[marketingKey(fields[0], fields[1])] = strings.TrimSpace(fields[2])
	}
	return names
}

func marketingKey(device, revision string) string {
	return strings.ToUpper(strings.TrimSpace(device)) + "/" + strings.ToUpper(strings.TrimSpace(revision))
}

// modelOf returns the name of a GPU: what the board says, else the list's, else
// the target (gfx942).
func (names marketing) modelOf(p *place) string {
	if p.dir != "" {
		if name := textOf(p.dir + "/product_name"); name != "" {
			return name
		}
		device := strings.TrimPrefix(textOf(p.dir+"/device"), "0x")
		revision := strings.TrimPrefix(textOf(p.dir+"/revision"), "0x")
		if name := names[marketingKey(device, revision)]; name != "" {
			return name
		}
	}
	return targetName(p.target)
}

// targetName writes the KFD's number as compilers do: 90402 is gfx942, 90010 is
// gfx90a.
func targetName(version int) string {
	if version <= 0 {
		return ""
	}
	return fmt.Sprintf("gfx%d%x%x", version/10000, version/100%100, version%100)
}

// driverVersion is that of AMD's own driver, else the kernel's.
func (f folder) driverVersion() string {
	if v := f.text("sys/module/amdgpu/version"); v != "" {
		return v
	}
	return f.text("proc/sys/kernel/osrelease")
}
