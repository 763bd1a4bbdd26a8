// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writerFunc is a function that is a writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// endsWhen returns a writer that ends the context once it got the text, and what it
// got. That may be looked at when the stream ended.
func endsWhen(t *testing.T, text string) (context.Context, io.Writer, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	t.Cleanup(cancel)
	got := &bytes.Buffer{}
	return ctx, writerFunc(func(p []byte) (int, error) {
		got.Write(p)
		if bytes.Contains(got.Bytes(), []byte(text)) {
			cancel()
		}
		return len(p), nil
	}), got
}

func TestStreamHandsOnWhatComesAndAsksTheProgramToEnd(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `trap 'echo asked; echo x > "$D/asked"; exit 0' TERM
echo begun
while :; do sleep 0.01; done`)
	ctx, out, got := endsWhen(t, "begun\n")
	res, err := Stream(ctx, Command{Path: tool}, out)
	require.NoError(t, err, "it came to its end by itself")
	assert.Zero(t, res.ExitCode)
	assert.Equal(t, "begun\nasked\n", got.String())
	assert.FileExists(t, filepath.Join(filepath.Dir(tool), "asked"))
}

func TestStreamEndsWithTheProgram(t *testing.T) {
	defer requireNoChildren(t)
	for name, tt := range map[string]struct {
		body string
		exit int
		err  string
	}{
		"exits":    {`echo out; exit 3`, 3, ""},
		"is ended": {`echo out; kill -9 $$`, -1, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := Stream(bounded(t), Command{Path: script(t, tt.body)}, &out)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			assert.Equal(t, tt.exit, res.ExitCode)
			assert.Equal(t, "out\n", out.String())
		})
	}
	_, err := Stream(bounded(t), Command{Path: "/no/such/tool"}, io.Discard)
	require.ErrorContains(t, err, "run /no/such/tool: cannot start")
	_, err = Stream(bounded(t), Command{Path: "tool"}, io.Discard)
	require.ErrorContains(t, err, "not absolute")
}

func TestStreamKeepsTheEndOfStderr(t *testing.T) {
	tool := script(t, `i=0; while [ $i -lt 3000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`)
	res, err := Stream(bounded(t), Command{Path: tool}, io.Discard)
	require.NoError(t, err)
	assert.Len(t, res.Stderr, defaultTail)
	assert.True(t, strings.HasSuffix(string(res.Stderr), "line 2998\nline 2999\n"))

	res, err = Stream(bounded(t), Command{Path: script(t, `echo "bad config" >&2; exit 1`), MaxStderr: 7}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "config\n", string(res.Stderr))
}

func TestTailKeepsTheLastBytes(t *testing.T) {
	var all []byte
	kept := &tail{max: 10}
	for i := range 100 {
		p := bytes.Repeat([]byte{byte('a' + i%26)}, i%25)
		all = append(all, p...)
		n, err := kept.Write(p)
		require.NoError(t, err)
		require.Equal(t, len(p), n)
		require.Equal(t, string(all[max(0, len(all)-10):]), string(kept.bytes()))
		require.LessOrEqual(t, len(kept.buf), 30)
	}
}

func TestStreamKillsTheWholeGroup(t *testing.T) {
	const children = `sh -c 'trap "" TERM; echo $$ > "'$D'/child"; while :; do sleep 0.01; done' &
while ! [ -s "$D/child" ]; do sleep 0.01; done
echo $$ > "$D/pid"
echo begun
`
	for name, body := range map[string]string{
		"it ignores the request":       `trap '' TERM` + "\n" + children + `while :; do sleep 0.01; done`,
		"it ends, its child does not":  children + `while :; do sleep 0.01; done`,
		"it ended, its child does not": children + `exit 0`,
	} {
		t.Run(name, func(t *testing.T) {
			defer requireNoChildren(t)
			tool := script(t, body)
			ctx, out, _ := endsWhen(t, "begun\n")
			start := time.Now()
			_, _ = Stream(ctx, Command{Path: tool}, out)
			assert.Less(t, time.Since(start), tooLong)
			requireGone(t, pidIn(t, tool, "pid"))
			requireGone(t, pidIn(t, tool, "child"))
		})
	}
}

func TestStreamEndsWithItsReader(t *testing.T) {
	cause := errors.New("no more")
	for name, tt := range map[string]struct {
		out  writerFunc
		want string
	}{
		"error": {func([]byte) (int, error) { return 0, cause }, "taking its output: no more"},
		"panic": {func([]byte) (int, error) { panic("boom") }, "taking its output: panic: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			defer requireNoChildren(t)
			tool := script(t, `echo $$ > "$D/pid"; echo out; exec sleep 1000`)
			_, err := Stream(bounded(t), Command{Path: tool}, tt.out)
			require.ErrorContains(t, err, tt.want)
			requireGone(t, pidIn(t, tool, "pid"))
		})
	}
}

func TestStreamsRunBesideEachOther(t *testing.T) {
	defer requireNoChildren(t)
	tool := script(t, `echo begun; exec sleep 1000`)
	var all sync.WaitGroup
	for range 3 {
		ctx, out, got := endsWhen(t, "begun\n")
		all.Go(func() {
			_, err := Stream(ctx, Command{Path: tool}, out)
			assert.ErrorIs(t, err, context.Canceled) //nolint:testifylint // require is not for goroutines
			assert.Equal(t, "begun\n", got.String())
		})
	}
	all.Wait()
	_, err := os.Stat(tool)
	require.NoError(t, err)
}
