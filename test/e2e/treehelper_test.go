// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// workPrefix begins the role of a worker: "work:300" uses 300 ms of CPU time and
// ends.
const workPrefix = "work:"

// treeRoles are the roots of trees. Each says "ready", waits for a line on its
// standard input, does its work, says what the kernel counted for it and for the
// children that it waited for, and stays until its standard input ends.
var treeRoles = map[string]func(){
	"fork":     func() { asRoot(runForks) },
	"exec":     func() { asRoot(runExec) },
	"quick":    func() { asRoot(runQuick) },
	"torchrun": func() { asRoot(runTorchrun) },
	"late":     func() { asRoot(runLate) },
	"orphan":   func() { asRoot(runOrphan) },
	"family":   runFamily,

	"launcher":   runLauncher,
	"deserter":   runDeserter,
	"left":       runLeft,
	"before":     runBeforeExec,
	"child-idle": runChild,
}

func asRoot(do func()) {
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	do()
	fmt.Println("done", (used(unix.RUSAGE_SELF) + used(unix.RUSAGE_CHILDREN)).Microseconds())
	_, _ = io.Copy(io.Discard, in)
}

// used is the CPU time that the kernel counted.
func used(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// burnFor uses that much CPU time, however long it takes.
func burnFor(d time.Duration) {
	for end := used(unix.RUSAGE_SELF) + d; used(unix.RUSAGE_SELF) < end; {
		for i, n := 0, 1; i < 100_000; i++ {
			n = n*3 | 1
		}
	}
}

func work(milliseconds string) {
	ms, err := strconv.Atoi(milliseconds)
	if err != nil {
		panic(err)
	}
	burnFor(time.Duration(ms) * time.Millisecond)
}

// spawn starts the test binary in another role.
func spawn(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperKey+"="+role)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return cmd
}

func reap(workers ...*exec.Cmd) {
	for _, w := range workers {
		if err := w.Wait(); err != nil {
			panic(err)
		}
	}
}

// runForks: workers side by side, and a shell whose work is done by a process that
// was forked and never calls exec.
func runForks() {
	shell := exec.Command("sh", "-c", "(i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done); :")
	if err := shell.Start(); err != nil {
		panic(err)
	}
	workers := []*exec.Cmd{spawn("work:900"), spawn("work:700"), shell}
	burnFor(300 * time.Millisecond)
	reap(workers...)
}

// runExec: a worker that becomes another program while it runs.
func runExec() { reap(spawn("before")) }

func runBeforeExec() {
	burnFor(700 * time.Millisecond)
	if err := os.Setenv(helperKey, "work:700"); err != nil {
		panic(err)
	}
	panic(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// runQuick: workers that end within an interval.
func runQuick() {
	for range 30 {
		reap(spawn("work:30"))
	}
}

// runTorchrun: a launcher that waits for its worker and ends at once.
func runTorchrun() {
	for range 2 {
		reap(spawn("launcher"))
	}
}

func runLauncher() { reap(spawn("work:1100")) }

// runLate: a worker that is waited for long after its end.
func runLate() {
	w := spawn("work:900")
	time.Sleep(2500 * time.Millisecond)
	reap(w)
}

// runOrphan: a child that ends and leaves its own child to whoever takes it.
func runOrphan() { reap(spawn("deserter")) }

// orphanWork is what the child uses while it has its parent, and again after.
const orphanWork = 1500 * time.Millisecond

// runDeserter leaves its child when that has done half its work.
func runDeserter() {
	read, write, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	left := exec.Command("/proc/self/exe")
	left.Env = append(os.Environ(), helperKey+"=left")
	left.Stdout, left.ExtraFiles = os.Stdout, []*os.File{write}
	// The child's standard input ends with this process.
	if _, err = left.StdinPipe(); err == nil {
		err = left.Start()
	}
	if err != nil {
		panic(err)
	}
	if _, err := read.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
}

// runLeft says how much it had worked when its parent ended, and works on.
func runLeft() {
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Println("left", used(unix.RUSAGE_SELF).Microseconds())
		close(gone)
	}()
	burnFor(orphanWork)
	if _, err := os.NewFile(3, "parent").Write([]byte{1}); err != nil {
		panic(err)
	}
	<-gone
	burnFor(orphanWork)
	fmt.Println("end of the orphan", used(unix.RUSAGE_SELF).Microseconds())
}

// childMemory is what each child of a family holds resident.
const childMemory = 24 << 20

// runFamily: a root and idle children, whose pids it says.
func runFamily() {
	var pids []string
	for range 3 {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), helperKey+"=child-idle")
		child.Stdin = os.Stdin
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			panic(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			panic(err)
		}
		pids = append(pids, strconv.Itoa(child.Process.Pid))
	}
	fmt.Println("children", strings.Join(pids, " "))
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func runChild() {
	memory := make([]byte, childMemory)
	for i := range memory {
		memory[i] = byte(i | 1)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	memory[0]++
}
