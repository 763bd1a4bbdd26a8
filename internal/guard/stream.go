// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"io"
	"time"
)

const (
	// stopGrace is how long a program that is asked to end may take to do so.
	stopGrace = 2 * time.Second

	// defaultTail is what is kept of a long-running program's stderr.
	defaultTail = 4 << 10
)

// Stream is [Run] for a program that is to run for long: out gets what it prints as
// it comes, without a limit, from one goroutine, and of its stderr the end is kept
// (MaxStderr, 0 for 4 KiB); MaxOutput and LimitKey do not count.
//
// When ctx ends, and when out returns an error or panics, which is then the error,
// the whole group is asked to end (SIGTERM; on Windows the program is killed), and
// killed 2 s later. As with [Run], what is left of the group when the program ends is
// killed, a program that cannot be killed is left behind, and the program dies with
// the collector. An exit code other than zero is no error by itself.
func Stream(ctx context.Context, c Command, out io.Writer) (Result, error) {
	return runWith(ctx, c, stopGrace+killGrace, func(ctx context.Context, c Command) (Result, error) {
		return superviseStream(ctx, c, out)
	})
}

func superviseStream(parent context.Context, c Command, out io.Writer) (Result, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stderr := &tail{max: int(orDefault(c.MaxStderr, defaultTail))}
	p := &program{
		Command: c, parent: parent, ctx: ctx, grace: stopGrace,
		stdout: &careful{to: out, failed: func(err error) { cancel(&outputError{err}) }}, stderr: stderr,
	}
	res, err := p.run()
	res.Stderr = stderr.bytes()
	return res, err
}

// outputError is why nothing more is taken of a program's output.
type outputError struct{ error }

func (e *outputError) Unwrap() error { return e.error }

// careful makes an error of a panic: it would be in a goroutine of os/exec.
type careful struct {
	to     io.Writer
	failed func(error)
}

func (c *careful) Write(p []byte) (n int, err error) {
	returned := false
	defer func() {
		if !returned {
			n, err = 0, newPanicError(recover())
		}
		if err != nil {
			c.failed(err)
		}
	}()
	n, err = c.to.Write(p)
	returned = true
	return n, err
}

// tail keeps the last max bytes written to it.
type tail struct {
	buf []byte
	max int
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[max(0, len(p)-t.max):]...)
	if len(t.buf) > 2*t.max { // cut seldom
		t.buf = append(t.buf[:0], t.bytes()...)
	}
	return len(p), nil
}

func (t *tail) bytes() []byte { return t.buf[max(0, len(t.buf)-t.max):] }
