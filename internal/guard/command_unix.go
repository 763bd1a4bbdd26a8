// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// defaultDir keeps programs off the collector's own directory.
const defaultDir = "/"

// Orphans of a killed group are the collector's to reap where it is process 1 of
// a container. They were killed: that takes moments.
const (
	orphanTries = 20
	orphanPause = 5 * time.Millisecond
)

// minimalEnv has system directories only, and the language that parsers know.
func minimalEnv() []string {
	return []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "LANG=C"}
}

// group is the process group of one program.
type group struct {
	mu   sync.Mutex
	over bool // the program ended: its pid, and so the group's, may be somebody else's soon
}

// newGroup gives the group the grace to end by itself when the command is cancelled.
func newGroup(cmd *exec.Cmd, grace time.Duration) *group {
	g := &group{}
	cmd.SysProcAttr = groupAttr()
	cmd.Cancel = func() error {
		if grace <= 0 {
			return g.signal(cmd.Process.Pid, unix.SIGKILL, false)
		}
		time.AfterFunc(grace, func() { _ = g.signal(cmd.Process.Pid, unix.SIGKILL, false) })
		return g.signal(cmd.Process.Pid, unix.SIGTERM, false)
	}
	return g
}

// wait waits for the program's end, kills what it left in its group, and reaps.
func (g *group) wait(cmd *exec.Cmd) error {
	pid := cmd.Process.Pid
	if awaitExit(pid) {
		_ = g.signal(pid, unix.SIGKILL, true)
	}
	err := cmd.Wait()
	_ = g.signal(pid, unix.SIGKILL, true) // where awaitExit cannot tell
	reapOrphans(pid)
	return err
}

func (g *group) signal(pid int, sig unix.Signal, last bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return os.ErrProcessDone
	}
	g.over = last
	// A member with another user id (set-user-id programs) cannot be killed; the
	// others are, and there is nothing else to do about it.
	_ = unix.Kill(-pid, sig)
	return nil
}

// reapOrphans reaps members of the group that became the collector's children
// when their parent died. Mostly there are none, which the first call says.
func reapOrphans(pgid int) {
	for range orphanTries {
		pid, err := unix.Wait4(-pgid, nil, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR || pid > 0:
		case err != nil:
			return
		default:
			time.Sleep(orphanPause)
		}
	}
}

// byItself says whether the program exited, rather than being killed.
func byItself(state *os.ProcessState, _ bool) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Exited()
}
