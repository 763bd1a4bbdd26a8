// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// helperKey is set for processes that are helpers.
	helperKey = "WANDBSYS_E2E_HELPER"
	// helperMemory is what an idle helper holds resident.
	helperMemory = 96 << 20
)

// runHelper is the main function of a helper. It ends with its standard input,
// that is with the test at the latest.
func runHelper(role string) {
	enterGroups()
	if run, ok := treeRoles[role]; ok {
		run()
		return
	}
	if prepare, ok := collectorRoles[role]; ok {
		becomeCollector(prepare)
		return
	}
	if ms, ok := strings.CutPrefix(role, workPrefix); ok {
		work(ms)
		return
	}
	if rest, ok := strings.CutPrefix(role, firstPrefix); ok {
		runFirst(rest)
		return
	}
	if work, ok := strings.CutPrefix(role, trainPrefix); ok {
		runTrain(work)
		return
	}
	memory := make([]byte, helperMemory)
	_, _ = rand.Read(memory)
	if role == "burn" {
		go burn()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	memory[0]++ // is in use until here
}

// burn keeps one CPU busy.
func burn() {
	for n := 1; n != 0; {
		n = n*3 | 1
	}
}

// startHelper runs the test binary as a helper: "idle" or "burn".
func startHelper(t *testing.T, role string, env ...string) *process {
	t.Helper()
	p, _ := startHelperWithInput(t, role, env...)
	return p
}

// startHelperWithInput also returns the helper's standard input.
func startHelperWithInput(t *testing.T, role string, env ...string) (*process, io.Writer) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(append(cleanEnv(), helperKey+"="+role), env...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	p := startProcess(t, cmd)
	t.Cleanup(func() { _ = stdin.Close() })
	p.waitFor("the helper is ready", func() bool { return strings.Contains(p.stdout.String(), "ready") })
	return p, stdin
}
