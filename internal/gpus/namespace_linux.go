// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// initialNamespace is the number of the machine's own pid namespace.
const initialNamespace = "pid:[4026531836]"

// SeesMachine tells whether the pids below the root path are the machine's, as the
// drivers tell them: there pid 2 is the parent of the kernel's threads.
func SeesMachine(rootPath string) bool {
	content, err := guard.ReadFile(filepath.Join("/", rootPath, "proc/2/stat"), 4096)
	if err == nil && bytes.HasPrefix(content, []byte("2 (kthreadd) ")) {
		return true
	}
	if rootPath != "" {
		return false
	}
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == initialNamespace
}
