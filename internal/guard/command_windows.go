// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

const defaultDir = ""

// killedCode is the exit code that os.Process.Kill gives a process; programs use
// it too, so it only tells something once there was a kill.
const killedCode = 1

// minimalEnv has system directories only; os/exec adds SYSTEMROOT.
func minimalEnv() []string {
	root := os.Getenv("SystemRoot")
	return []string{"PATH=" + root + `\System32;` + root, "LC_ALL=C", "LANG=C"}
}

// group is the program alone: a group of processes would be a job object.
type group struct{}

// newGroup has no grace to give: programs cannot be asked to end.
func newGroup(cmd *exec.Cmd, _ time.Duration) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true}
	return &group{}
}

func (*group) wait(cmd *exec.Cmd) error { return cmd.Wait() }

// byItself says whether the program exited, rather than being killed.
func byItself(state *os.ProcessState, killed bool) bool {
	return !killed || state.ExitCode() != killedCode
}
