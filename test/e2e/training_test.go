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
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// trainPrefix begins the role of a training process: "train:fork" starts its
	// wandb-core and is the root "fork" of a tree; "train:idle" does nothing.
	trainPrefix = "train:"
	// coreKey names the wandb-core of a training process, runsKey the files of
	// the runs that it writes, separated by colons.
	coreKey = "E2E_CORE"
	runsKey = "E2E_RUNS"
	// lasting is set where wandb-core outlives its training process.
	lastingKey = "E2E_LASTING"

	// What W&B's own processes hold resident, each.
	serviceMemory = 48 << 20
)

func init() {
	treeRoles["core"] = runCore
	treeRoles["side"] = runSide
}

// trainingWork is what a training process may do.
var trainingWork = map[string]func(){"fork": runForks, "exec": runExec, "quick": runQuick, "orphan": runOrphan}

// coreInput keeps wandb-core alive: it ends with it.
var coreInput io.WriteCloser

func runTrain(work string) {
	// As a script does. Only what it starts later has it in its environment.
	if err := os.Setenv("WANDB_PROJECT", os.Getenv("E2E_PROJECT")); err != nil {
		panic(err)
	}
	core := exec.Command(os.Getenv(coreKey), "--port-filename", "/tmp/port-1.txt", "--pid", strconv.Itoa(os.Getpid()))
	core.Env = append(os.Environ(), helperKey+"=core")
	core.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	core.Stderr = os.Stderr
	out, err := core.StdoutPipe()
	if os.Getenv(lastingKey) != "" {
		core.Stdin = os.Stdin
	} else if err == nil {
		coreInput, err = core.StdinPipe()
	}
	if err == nil {
		err = core.Start()
	}
	if err != nil {
		panic(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		panic(err)
	}
	fmt.Print(line)
	if do, ok := trainingWork[work]; ok {
		asRoot(do)
		return
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// runCore is wandb-core: it has the files of its runs open, runs a side process,
// and is a load of its own. At SIGUSR1 its first run is over.
func runCore() {
	var files []*os.File
	for path := range strings.SplitSeq(os.Getenv(runsKey), ":") {
		if path == "" {
			continue
		}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err != nil {
			panic(err)
		}
		f, err := os.Create(path)
		if err != nil {
			panic(err)
		}
		files = append(files, f)
	}
	side := exec.Command(filepath.Join(filepath.Dir(os.Args[0]), "wandb-xpu"))
	side.Env = append(os.Environ(), helperKey+"=side")
	side.Stdin, side.Stderr = os.Stdin, os.Stderr
	if err := side.Start(); err != nil {
		panic(err)
	}
	finish := make(chan os.Signal, 1)
	signal.Notify(finish, syscall.SIGUSR1)
	go func() {
		for range finish {
			_ = files[0].Close()
			files = files[1:]
		}
	}()
	fmt.Println("core", os.Getpid(), "side", side.Process.Pid)
	runSide()
}

// runSide burns a tenth of a CPU, until its standard input ends.
func runSide() {
	memory := make([]byte, serviceMemory)
	for i := range memory {
		memory[i] = byte(i | 1)
	}
	go func() {
		for {
			burnFor(10 * time.Millisecond)
			time.Sleep(90 * time.Millisecond)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	memory[0]++
}

// trainee is a training process with its wandb-core.
type trainee struct {
	treeRoot
	// core and side are the pids of W&B's processes, as they see them themselves.
	core, side int
	dir        string
}

// training says what a training process is like.
type training struct {
	// work is "idle", or one of trainingWork.
	work string
	// runs are files below the folder wandb.
	runs []string
	env  []string
	// arguments are those of its command line.
	arguments []string
	attr      *syscall.SysProcAttr
	// program is the binary to run; empty is the test's own.
	program string
	// first is the role of the process before it, where there is one.
	first string
}

// makeSite gives W&B's programs, which are the test binary, their names.
func makeSite(t *testing.T, dir, program string) (core string) {
	t.Helper()
	bin := filepath.Join(dir, "site-packages/wandb/bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	for _, name := range []string{"wandb-core", "wandb-xpu"} {
		require.NoError(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	return filepath.Join(bin, "wandb-core")
}

func startTraining(t *testing.T, how training) *trainee {
	t.Helper()
	dir := publicDir(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	if how.program == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		how.program = self
	}
	var files []string
	for _, run := range how.runs {
		files = append(files, filepath.Join(dir, "wandb", run))
	}
	cmd := exec.Command(how.program, how.arguments...)
	cmd.Dir = dir
	cmd.Env = append(plainEnv(), helperKey+"="+how.first+trainPrefix+how.work,
		coreKey+"="+makeSite(t, dir, how.program), runsKey+"="+strings.Join(files, ":"), "E2E_PROJECT=vision")
	cmd.Env = append(cmd.Env, how.env...)
	cmd.SysProcAttr = how.attr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	tr := &trainee{treeRoot: treeRoot{startProcess(t, cmd), stdin}, dir: dir}
	t.Cleanup(func() { _ = stdin.Close() })
	tr.waitForOrEnd("the training runs", func() bool { return strings.Contains(tr.stdout.String(), "ready") })
	tr.skipIfRefused()
	m := regexp.MustCompile(`core (\d+) side (\d+)`).FindStringSubmatch(tr.stdout.String())
	require.NotNil(t, m, "%s%s", tr.stdout.String(), tr.stderr.String())
	tr.core, err = strconv.Atoi(m[1])
	require.NoError(t, err)
	tr.side, err = strconv.Atoi(m[2])
	require.NoError(t, err)
	return tr
}

// plainEnv has nothing of what launchers and W&B put into an environment.
func plainEnv() []string {
	var env []string
	for _, entry := range cleanEnv() {
		name, _, _ := strings.Cut(entry, "=")
		if !regexp.MustCompile(`^(WANDB_|SLURM_|OMPI_|PMI_|MPI_)|^(RANK|LOCAL_RANK|WORLD_SIZE)$`).MatchString(name) {
			env = append(env, entry)
		}
	}
	return env
}

// finishRun ends the first run, and waits until its file is closed.
func (tr *trainee) finishRun() {
	tr.t.Helper()
	before := len(tr.openRuns())
	require.NoError(tr.t, syscall.Kill(tr.core, syscall.SIGUSR1))
	tr.waitFor("the end of the run", func() bool { return len(tr.openRuns()) < before })
}

// openRuns lists the files of runs that wandb-core has open.
func (tr *trainee) openRuns() []string {
	tr.t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", tr.core))
	require.NoError(tr.t, err)
	var files []string
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && strings.HasSuffix(file, ".wandb") {
			files = append(files, file)
		}
	}
	return files
}
