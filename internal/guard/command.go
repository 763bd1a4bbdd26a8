// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	defaultMaxOutput = 4 << 20
	defaultMaxStderr = 16 << 10

	// pipeDelay is how long the output of a program that ended is waited for when
	// a process that left its group keeps the pipe open. The program's own output
	// is in the pipe by then.
	pipeDelay = 500 * time.Millisecond

	// killGrace is how long the end of a killed program is waited for. One that
	// is stuck in the kernel (a hung driver) outlives it, SIGKILL or not.
	killGrace = 2 * time.Second
)

// ErrDied says that a program was killed by a signal that is not ours.
var ErrDied = errors.New("died")

// Command is a program to run. No shell is involved.
type Command struct {
	Path      string   // absolute; refused otherwise
	Args      []string // without the program's name; fixed by the caller, nothing from data
	Env       []string // the complete environment; nil is a minimal one; never inherited
	Dir       string   // where it runs; empty is the root directory (on Windows the collector's)
	MaxOutput int64    // bytes of stdout kept, 0 for 4 MiB; more is a LimitError
	LimitKey  string   // config key named in that error, optional
	MaxStderr int64    // bytes of stderr kept, 0 for 16 KiB; the rest is dropped silently
	Stdin     []byte   // nil is an empty input
}

// Result is what a program left. Next to an error it holds what there was until then.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int // -1 when the program did not exit by itself
	Duration       time.Duration
	// CPU is what the program used, user and system, with those children that it
	// waited for; 0 when it did not start or was left behind.
	CPU time.Duration
}

// unreaped holds, by path, the Slot of a run whose program outlived its kill.
var unreaped sync.Map

// Run starts the program in a process group of its own, waits for it and reaps
// it. When ctx ends or the output limit is passed it kills the whole group, and
// what a program that ended left in its group is killed too. An exit code other
// than zero is no error by itself; a program that cannot be started, is killed
// by a signal, prints too much or is given up is one.
//
// It returns soon after ctx ends, whatever the program or its children do, so it
// needs no [Call] around it, which would not wait for the kill. A program that
// cannot be killed at once, or a start that hangs (a path on a dead mount), is
// left behind to be reaped later; until then further runs of the same path fail
// with [ErrHung]. A process that left the group (a daemon) is out of reach: it
// only loses the pipe.
func Run(ctx context.Context, c Command) (Result, error) {
	return runWith(ctx, c, killGrace, supervise)
}

// runWith gives the program the grace to end once ctx has.
func runWith(ctx context.Context, c Command, grace time.Duration, supervise func(context.Context, Command) (Result, error)) (Result, error) {
	if !filepath.IsAbs(c.Path) {
		return noResult(), fmt.Errorf("run %q: the path is not absolute", c.Path)
	}
	if earlier, ok := unreaped.Load(c.Path); ok {
		if d := earlier.(*Slot).HungFor(); d > 0 {
			return noResult(), fmt.Errorf("run %s: %w (given up %s ago)", c.Path, ErrHung, short(d))
		}
		unreaped.CompareAndDelete(c.Path, earlier)
	}
	slot := new(Slot)
	res, err := Go(ctx, slot, func(ctx context.Context) (*Result, error) {
		res, err := supervise(ctx, c)
		return &res, err
	}).wait(grace)
	if slot.Hung() {
		unreaped.Store(c.Path, slot)
		err = fmt.Errorf("left behind, it cannot be killed: %w", err)
	}
	if res == nil { // not started, given up, or a panic
		none := noResult()
		res = &none
	}
	if err != nil {
		err = fmt.Errorf("run %s: %w", c.Path, err)
	}
	return *res, err
}

func noResult() Result { return Result{ExitCode: -1} }

// supervise starts the program, waits for its end and reaps it.
func supervise(parent context.Context, c Command) (Result, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	over := &LimitError{What: "its output", Max: orDefault(c.MaxOutput, defaultMaxOutput), Key: c.LimitKey}
	stdout := &capture{max: over.Max, full: func() error { cancel(over); return over }}
	stderr := &capture{max: orDefault(c.MaxStderr, defaultMaxStderr)}
	p := &program{Command: c, parent: parent, ctx: ctx, stdout: stdout, stderr: stderr}
	res, err := p.run()
	res.Stdout, res.Stderr = stdout.buf, stderr.buf
	return res, err
}

// program is one start of a Command.
type program struct {
	Command
	// parent ends when the caller gives up, ctx for further reasons: its cause is one
	// of them.
	parent, ctx    context.Context
	stdout, stderr io.Writer
	// grace is the time between SIGTERM and SIGKILL; 0 is SIGKILL at once.
	grace time.Duration
}

// run starts the program, waits for its end and reaps it. The result lacks the output.
func (p *program) run() (Result, error) {
	// Pdeathsig kills the child when the thread that forked it exits, and the
	// runtime ends the thread of a goroutine that exits while locked to it. Being
	// locked here, from the fork to the reaping, keeps others off this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	start := time.Now()
	cmd := exec.CommandContext(p.ctx, p.Path, p.Args...) //nolint:gosec // the caller's path and arguments are fixed in code
	cmd.Env, cmd.Dir = p.Env, p.Dir
	if cmd.Env == nil {
		cmd.Env = minimalEnv()
	}
	if cmd.Dir == "" {
		cmd.Dir = defaultDir
	}
	if p.Stdin != nil {
		cmd.Stdin = bytes.NewReader(p.Stdin)
	}
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	// From when ctx ended this is also how long the program itself may live.
	cmd.WaitDelay = p.grace + pipeDelay
	group := newGroup(cmd, p.grace)
	if err := cmd.Start(); err != nil {
		res := noResult()
		res.Duration = time.Since(start)
		return res, startError(cmd, err)
	}
	err := group.wait(cmd)
	res := Result{ExitCode: -1, Duration: time.Since(start)}
	if cmd.ProcessState != nil {
		res.ExitCode = cmd.ProcessState.ExitCode()
		res.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return res, endError(p.parent, p.ctx, start, cmd, err)
}

// endError tells an answer from a failure, given what Wait returned.
func endError(parent, ctx context.Context, start time.Time, cmd *exec.Cmd, err error) error {
	cause := context.Cause(ctx)
	if over, ok := errors.AsType[*LimitError](cause); ok {
		return over
	}
	if failed, ok := errors.AsType[*outputError](cause); ok {
		return fmt.Errorf("taking its output: %w", failed.error)
	}
	_, exitErr := errors.AsType[*exec.ExitError](err)
	switch state := cmd.ProcessState; {
	case state == nil:
		return err
	case byItself(state, ctx.Err() != nil):
		// It came to its end, perhaps in the instant in which ctx did, perhaps
		// with a descendant still holding the pipe: the answer is there.
		if err == nil || exitErr || errors.Is(err, exec.ErrWaitDelay) || ctx.Err() != nil {
			return nil
		}
		return err // the pipes failed
	case parent.Err() != nil:
		return gaveUp(parent, start)
	default:
		return fmt.Errorf("%w after %s: %s", ErrDied, short(time.Since(start)), state)
	}
}

// startError says the path once, and the cause where the system is misleading.
func startError(cmd *exec.Cmd, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	info, statErr := os.Stat(cmd.Path)
	switch {
	case statErr == nil && info.IsDir():
		return fmt.Errorf("cannot start: %w", syscall.EISDIR) // the system says: permission denied
	case statErr == nil && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot start: its interpreter, or the directory %q to run in, is missing: %w", cmd.Dir, err)
	default:
		return fmt.Errorf("cannot start: %w", err)
	}
}

func orDefault(n, def int64) int64 {
	if n <= 0 {
		return def
	}
	return n
}

// capture keeps the first max bytes written to it. With full set, more is the
// error that full returns; else more is dropped.
type capture struct {
	buf  []byte
	max  int64
	full func() error
}

func (c *capture) Write(p []byte) (int, error) {
	keep := min(int64(len(p)), c.max-int64(len(c.buf)))
	c.buf = append(c.buf, p[:keep]...)
	if keep < int64(len(p)) && c.full != nil {
		return int(keep), c.full()
	}
	return len(p), nil
}
