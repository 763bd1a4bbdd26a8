// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// machine is the root of a machine's files.
type machine struct {
	t    testing.TB
	root string
}

func (m machine) write(name, content string) {
	m.t.Helper()
	file := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(m.t, os.WriteFile(file, []byte(content), 0o600))
}

func (m machine) process(pid, parent int, name string) {
	m.t.Helper()
	m.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s) S %d %d 1%s 1 0 %d 1000 100%s\n",
		pid, name, parent, pid, strings.Repeat(" 0", 13), 100+pid, strings.Repeat(" 0", 28)))
}

// gpu adds a GPU to the PCI bus.
func (m machine) gpu(address, status string) {
	m.t.Helper()
	folder := filepath.Join("sys/bus/pci/devices", address)
	m.write(filepath.Join(folder, "vendor"), "0x10de\n")
	m.write(filepath.Join(folder, "class"), "0x030200\n")
	m.write(filepath.Join(folder, "power/runtime_status"), status+"\n")
}
