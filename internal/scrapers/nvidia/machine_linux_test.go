// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"path/filepath"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// gpuOnBus adds a GPU to the PCI bus of a machine.
func gpuOnBus(m scraperstest.Machine, address, status string) {
	m.T.Helper()
	folder := filepath.Join("sys/bus/pci/devices", address)
	m.Write(filepath.Join(folder, "vendor"), "0x10de\n")
	m.Write(filepath.Join(folder, "class"), "0x030200\n")
	m.Write(filepath.Join(folder, "power/runtime_status"), status+"\n")
}
