// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// NewReader returns a reader of this Mac. What was not there is looked for again after a
// time.
func NewReader(want Want, again time.Duration) *Reader {
	return newReader(want, again, parts{
		system: system, report: report, registry: registry, tables: tables, keys: keys, sensors: sensors,
	})
}

// system asks the kernel; what it does not tell stays empty.
func system() capture.System {
	text := func(name string) string {
		s, _ := unix.Sysctl(name)
		return s
	}
	memory, _ := unix.SysctlUint64("hw.memsize")
	return capture.System{
		Chip: text("machdep.cpu.brand_string"), Model: text("hw.model"), OS: text("kern.osproductversion"),
		Arch: runtime.GOARCH, Memory: memory,
	}
}
