// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	helpers["run"] = helperRun
	helpers["reaper"] = helperReaper
	helpers["stream"] = helperStream
}

// helperStream is helperRun with a program that runs for long.
func helperStream() int {
	_, err := Stream(context.Background(), Command{Path: os.Args[1]}, io.Discard)
	fmt.Println(err)
	return 1
}

// helperRun runs a program until somebody kills this process.
func helperRun() int {
	_, err := Run(context.Background(), Command{Path: os.Args[1]})
	fmt.Println(err)
	return 1
}

// helperReaper inherits orphans, as process 1 of a container does.
func helperReaper() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	res, err := Run(context.Background(), Command{Path: os.Args[1]})
	if err != nil || res.ExitCode != 0 {
		fmt.Println(res, err)
		return 1
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		fmt.Println("left:", pid, err)
		return 1
	}
	return 0
}

func helper(ctx context.Context, t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+name)
	return cmd
}

func TestProgramDiesWithTheCollector(t *testing.T) {
	for _, how := range []string{"run", "stream"} {
		t.Run(how, func(t *testing.T) {
			tool := script(t, `echo $$ > "$D/pid"
exec sleep 1000`)
			parent := helper(bounded(t), t, how, tool)
			require.NoError(t, parent.Start())
			pid := pidIn(t, tool, "pid")
			require.False(t, gone(pid))
			require.NoError(t, parent.Process.Kill())
			require.Error(t, parent.Wait())
			requireGone(t, pid)
		})
	}
}

func TestRunReapsOrphansAsProcessOne(t *testing.T) {
	tool := script(t, `sleep 1000 &
sleep 1000 &
exit 0`)
	out, err := helper(bounded(t), t, "reaper", tool).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestProgramOutlivesThreadsOfOthers(t *testing.T) {
	defer requireNoChildren(t)
	stop := make(chan struct{})
	var churn sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		churn.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var one sync.WaitGroup
				one.Go(runtime.LockOSThread) // the thread ends with the goroutine
				one.Wait()
			}
		})
	}
	var runs sync.WaitGroup
	tool := script(t, `sleep 0.05; echo alive`)
	for range 4 {
		runs.Go(func() {
			for range 3 {
				res, err := Run(bounded(t), Command{Path: tool})
				if !assert.NoError(t, err) { //nolint:testifylint // require is not for goroutines
					return
				}
				assert.Equal(t, "alive\n", string(res.Stdout))
			}
		})
	}
	runs.Wait()
	close(stop)
	churn.Wait()
}

// escape starts a grandchild that leaves the group and keeps the pipe open.
const escape = `setsid sh -c 'echo $$ > "'$D'/daemon"; exec sleep 1000' &
while ! [ -s "$D/daemon" ]; do sleep 0.01; done
echo $$ > "$D/pid"
echo done
`

func TestRunReturnsWhenADaemonHoldsThePipe(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	defer requireNoChildren(t)
	for name, tt := range map[string]struct {
		body string
		want error
	}{
		"program ended": {body: escape},
		"program hangs": {body: escape + "exec sleep 1000", want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			tool := script(t, tt.body)
			ctx := bounded(t)
			if tt.want != nil {
				ctx = cancelOnceWritten(t, tool, "pid")
			}
			start := time.Now()
			res, err := Run(ctx, Command{Path: tool})
			daemon := pidIn(t, tool, "daemon")
			defer func() { _ = unix.Kill(daemon, unix.SIGKILL) }()
			require.ErrorIs(t, err, tt.want)
			assert.Less(t, time.Since(start), tooLong)
			if tt.want == nil {
				assert.Equal(t, "done\n", string(res.Stdout))
			}
			requireGone(t, pidIn(t, tool, "pid"))
		})
	}
}

func TestStreamReturnsWhenADaemonHoldsThePipe(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	defer requireNoChildren(t)
	tool := script(t, escape+"exec sleep 1000")
	ctx, out, _ := endsWhen(t, "done\n")
	start := time.Now()
	_, err := Stream(ctx, Command{Path: tool}, out)
	daemon := pidIn(t, tool, "daemon")
	defer func() { _ = unix.Kill(daemon, unix.SIGKILL) }()
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(start), tooLong)
	requireGone(t, pidIn(t, tool, "pid"))
}

func TestRunLeavesNoDescriptors(t *testing.T) {
	hang, fine := script(t, `exec sleep 1000`), script(t, `echo fine`)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	round := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := Run(ctx, Command{Path: hang, Stdin: make([]byte, 1<<20)})
		require.Error(t, err)
		_, err = Run(bounded(t), Command{Path: fine, Stdin: []byte("in")})
		require.NoError(t, err)
		_, err = Run(bounded(t), Command{Path: "/no/such/tool"})
		require.Error(t, err)
		_, err = Stream(bounded(t), Command{Path: fine}, io.Discard)
		require.NoError(t, err)
		_, err = ReadFile("/no/such/file", 1)
		require.Error(t, err)
		_, err = ReadFile("/proc/self/stat", 1)
		require.Error(t, err)
	}
	round() // opens what the runtime keeps
	before := open()
	for range 10 {
		round()
	}
	assert.Equal(t, before, open())
}
