// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package scraperstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Machine is the root of a machine's files.
type Machine struct {
	T    testing.TB
	Root string
}

// NewMachine returns one without files, which goes with the test.
func NewMachine(t testing.TB) Machine {
	t.Helper()
	return Machine{T: t, Root: t.TempDir()}
}

// Write makes a file, and the folders that it is in.
func (m Machine) Write(name, content string) {
	m.T.Helper()
	file := filepath.Join(m.Root, name)
	require.NoError(m.T, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(m.T, os.WriteFile(file, []byte(content), 0o600))
}

// Process makes the stat of a process.
func (m Machine) Process(pid, parent int, name string) {
	m.T.Helper()
	m.Write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s) S %d %d 1%s 1 0 %d 1000 100%s\n",
		pid, name, parent, pid, strings.Repeat(" 0", 13), 100+pid, strings.Repeat(" 0", 28)))
}

// Link makes a symbolic link, and the folders that it is in.
func (m Machine) Link(name, target string) {
	m.T.Helper()
	file := filepath.Join(m.Root, name)
	require.NoError(m.T, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(m.T, os.Symlink(target, file))
}

// Unreadable makes a file that exists and cannot be read: a folder.
func (m Machine) Unreadable(name string) {
	m.T.Helper()
	file := filepath.Join(m.Root, name)
	require.NoError(m.T, os.RemoveAll(file))
	require.NoError(m.T, os.MkdirAll(file, 0o700))
}

// Remove removes a file, or a folder with what is in it.
func (m Machine) Remove(name string) {
	m.T.Helper()
	require.NoError(m.T, os.RemoveAll(filepath.Join(m.Root, name)))
}
