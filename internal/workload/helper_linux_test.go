// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// play is the other side of the tests with real processes. A root does what it
// is told, line by line on its standard input, and answers each line when it is
// done; it ends with its input, as does everything below it.
func play(part string) int {
	name, argument, _ := strings.Cut(part, ":")
	switch name {
	case "root":
		return playRoot()
	case "burn":
		burnFor(argument)
	case "torchrun": // has a rank, waits for it, and ends
		if err := startPart("burn:" + argument).wait(); err != nil {
			return 1
		}
	case "held": // burns, then waits for the end of the input
		burnFor(argument)
		fmt.Println("burnt")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "launcher": // has a rank; ends when told, after the rank
		rank := startHeld(argument)
		fmt.Println("burnt")
		_, _ = io.Copy(io.Discard, os.Stdin)
		rank.release()
	case "orphaner": // leaves a child behind that still waits for the end of the input
		cmd := command("held:" + argument)
		cmd.Stdin = os.Stdin
		out, err := cmd.StdoutPipe()
		if err != nil || cmd.Start() != nil {
			return 1
		}
		_, _ = bufio.NewReader(out).ReadString('\n')
		fmt.Println(cmd.Process.Pid)
	case "executor": // becomes another program, which ends with its input
		path, err := exec.LookPath(argument)
		if err != nil {
			return 1
		}
		fmt.Println("soon")
		fmt.Println(unix.Exec(path, []string{path}, os.Environ()))
		return 1
	case "namespace":
		return playNamespace()
	case "rights":
		return playRights(argument)
	}
	return 0
}

// playRights says what of a process may be read by one that has given up being
// root, but for some capabilities.
func playRights(argument string) int {
	runtime.LockOSThread() // whose rights these are
	pid, list, _ := strings.Cut(argument, ":")
	if err := keepCapabilities(list); err != nil {
		fmt.Println("skip:", err)
		return 0
	}
	number, _ := strconv.Atoi(pid)
	var said []string
	for _, what := range []string{"environ", "fd", "exe"} {
		l := newLooker("/", []Rule{{Exe: regexp.MustCompile("x")}})
		k := look{pid: number, name: coreName}
		switch what {
		case "environ":
			l.lookEnviron(&k)
		case "fd":
			l.lookOpen(&k)
		case "exe":
			l.findRule(&k)
		}
		answer := " good"
		if k.denied {
			answer = " denied"
		}
		said = append(said, what+answer)
	}
	fmt.Println(strings.Join(said, ", "))
	return 0
}

func keepCapabilities(list string) error {
	const nobody = 65534
	var effective uint32
	for number := range strings.SplitSeq(list, ",") {
		if n, err := strconv.Atoi(number); err == nil {
			effective |= 1 << n
		}
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
		return errno // of this thread alone
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: effective, Permitted: effective}}
	return unix.Capset(&header, &data[0])
}

type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

func command(part string) *exec.Cmd {
	cmd := exec.Command(os.Args[0]) // ends with its input
	// The race detector would have each of them sleep for a second at its end.
	cmd.Env = append(os.Environ(), helperEnv+"="+part, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

func startPart(part string) *child { return startCommand(command(part)) }

func startCommand(cmd *exec.Cmd) *child {
	// A pipe of our own stays open when the child was waited for.
	in, stdin, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	c.cmd.Stdin = in
	out, _ := c.cmd.StdoutPipe()
	c.lines = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		panic(err)
	}
	_ = in.Close()
	return c
}

// startCore starts a script as W&B starts its wandb-core.
func startCore(script, run string) *child {
	cmd := exec.Command(script, "--port-filename", "/nowhere", "--pid", strconv.Itoa(os.Getpid()), run) // ends with its input
	cmd.Env = append(os.Environ(), "WANDB_PROJECT=real", "WANDB_API_KEY=secret")
	return startCommand(cmd)
}

// startHeld starts one that has burnt its time already when this returns.
func startHeld(milliseconds string) *child {
	c := startPart("held:" + milliseconds)
	_, _ = c.lines.ReadString('\n')
	return c
}

func (c *child) wait() error {
	_ = c.stdin.Close()
	return c.cmd.Wait()
}

func (c *child) release() { _ = c.wait() }

// burnFor uses CPU time, not time of the clock.
func burnFor(milliseconds string) {
	d, err := time.ParseDuration(milliseconds + "ms")
	if err != nil {
		panic(err)
	}
	for x := uint64(1); cpuTimeOf(unix.RUSAGE_SELF) < d; {
		for range 1 << 16 {
			x = x*6364136223846793005 + 1
		}
	}
}

func cpuTimeOf(who int) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(who, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func playRoot() int {
	held := map[string]*child{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		answer := "done"
		switch words[0] {
		case "run": // part: and wait for it
			if err := startPart(words[1]).wait(); err != nil {
				answer = err.Error()
			}
		case "hold", "core": // name part, name script file
			var c *child
			if words[0] == "hold" {
				c = startPart(words[2])
			} else {
				c = startCore(words[2], words[3])
			}
			if answer, _ = c.lines.ReadString('\n'); answer == "" {
				answer = "nothing\n"
			}
			answer = strings.TrimSpace(answer)
			held[words[1]] = c
		case "tell": // name
			_, _ = fmt.Fprintln(held[words[1]].stdin, "go on")
			answer, _ = held[words[1]].lines.ReadString('\n')
			answer = strings.TrimSpace(answer)
		case "release": // name
			held[words[1]].release()
			delete(held, words[1])
		case "reap": // name: it ended, and its input stays open
			_ = held[words[1]].cmd.Wait()
		case "account":
			answer = fmt.Sprintf("%d %d", cpuTimeOf(unix.RUSAGE_SELF), cpuTimeOf(unix.RUSAGE_CHILDREN))
		}
		fmt.Println(answer)
	}
	for _, c := range held {
		c.release()
	}
	return 0
}

// playNamespace makes the same pid come back in a pid namespace of its own,
// whose first process this is, and measures itself.
func playNamespace() int {
	if err := measureReuse(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("good")
	return 0
}

func measureReuse() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("not the first process but %d", os.Getpid())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("skip: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("skip: %w", err)
	}
	snapshots := NewSnapshots("/")
	defer snapshots.Close()
	var u TreeUsage
	measure := func() (uint64, *Snapshot, error) {
		s, err := snapshots.Take(nil) //nolint:staticcheck // it is not used
		if err != nil {
			return 0, nil, err
		}
		ticks, _ := u.Update(s, s.Tree(1))
		return ticks, s, nil
	}

	first := startHeld("150")
	if _, _, err := measure(); err != nil {
		return err
	}
	pid := first.cmd.Process.Pid
	first.release()
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0o600); err != nil {
		return fmt.Errorf("skip: %w", err)
	}
	second := startHeld("60")
	defer second.release()
	if second.cmd.Process.Pid != pid {
		return fmt.Errorf("skip: the pid was %d, not %d", second.cmd.Process.Pid, pid)
	}
	before := cpuTimeOf(unix.RUSAGE_SELF)
	ticks, s, err := measure()
	if err != nil {
		return err
	}
	// The second's own, and what ours took to start it.
	if used := uint64(before.Milliseconds()/10) + 12; ticks < 5 || ticks > used+6 {
		return fmt.Errorf("%d ticks are not those of the second alone", ticks)
	}
	if p := s.Find(pid); p == nil || p.Parent != 1 {
		return fmt.Errorf("the process is %+v", p)
	}
	return nil
}
