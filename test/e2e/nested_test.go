// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"errors"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// firstPrefix begins the role of a process that is pid 1 and has another one run
// the rest: "first:train:idle".
const firstPrefix = "first:"

func init() { treeRoles["reuse"] = runReuse }

// runFirst is the first process of a container that has an init.
func runFirst(role string) {
	// So that the training process has a pid that differs from one to the next.
	for range os.Getppid()%7 + 3 {
		_ = exec.Command("true").Run()
	}
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), helperKey+"="+role)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Run(); err != nil {
		panic(err)
	}
}

// inContainer has a process start in namespaces of its own, and skips where that
// is not permitted.
func inContainer(t *testing.T, flags uintptr) *syscall.SysProcAttr {
	t.Helper()
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if err := probe.Run(); errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("no namespaces here: %v", err)
	}
	return &syscall.SysProcAttr{Cloneflags: flags}
}

// childrenOf lists the children of all threads of a process.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var pids []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // the thread ended
		}
		for field := range strings.FieldsSeq(string(content)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}

// innerPid is a process' pid in its innermost namespace.
func innerPid(t *testing.T, pid int) int {
	t.Helper()
	for _, f := range fieldsOf(t, fmt.Sprintf("/proc/%d/status", pid)) {
		if f[0] == "NSpid:" {
			return int(number(t, f[len(f)-1]))
		}
	}
	t.Fatalf("process %d has no NSpid", pid)
	return 0
}

// wandb-core knows its training process by the pid that it has in their own
// namespace, which is that of somebody else on the machine, and in the container
// beside it.
func TestRunsInPidNamespaces(t *testing.T) {
	attr := func() *syscall.SysProcAttr { return inContainer(t, unix.CLONE_NEWPID|unix.CLONE_NEWNET) }
	start := func(id, first, work string) *trainee {
		return startTraining(t, training{
			work: work, first: first, attr: attr(), runs: []string{"run-20260102_030405-" + id + "/run-" + id + ".wandb"},
		})
	}
	a, b := start("a", "", "idle"), start("b", "", "fork") // pid 1, both of them
	c := start("c", firstPrefix, "idle")
	outside := startTraining(t, training{work: "idle", runs: []string{"run-20260102_030405-out/run-out.wandb"}})
	pids := map[string]int{"a": a.pid(), "b": b.pid(), "out": outside.pid()}
	for _, pid := range childrenOf(t, c.pid()) {
		if len(childrenOf(t, pid)) > 0 { // wandb-core
			pids["c"] = pid
		}
	}
	require.Contains(t, pids, "c")
	require.Equal(t, 1, innerPid(t, pids["a"]))
	require.Equal(t, 1, innerPid(t, pids["b"]))
	require.Greater(t, innerPid(t, pids["c"]), 1)

	s := startSink(t, nil)
	p := startCollector(t, settings{receivers: byDefault, exporters: s.exporter()})
	for id := range pids {
		p.waitFor("the run "+id, func() bool { return len(s.points().ofRun(id).named("cpu")) > 0 })
	}
	_, err := io.WriteString(b.input, "go\n")
	require.NoError(t, err)
	p.waitFor("the end of the work", func() bool { _, done := b.said("done"); return done })
	seen := len(s.points().ofRun("b").named("cpu"))
	p.waitFor("two more scrapes", func() bool { return len(s.points().ofRun("b").named("cpu")) >= seen+2 })
	for id, pid := range pids {
		for _, point := range s.points().ofRun(id) {
			require.Equal(t, int64(pid), point.resource["process.pid"], id)
			require.Equal(t, fmt.Sprintf("node/run-%s-%d", id, pid), point.resource["service.instance.id"])
		}
	}
	counted, _ := b.said("done")
	_, off := pace(s.points().ofRun("b"))
	checkCPU(t, total(s.points().ofRun("b"), allowedCPUs(t, p.pid())), counted, treeSlack+off, 0)
}

// runReuse is the first process of a small pid namespace: it runs a training, and
// the collector beside it; when it is told (SIGUSR1) the training process ends, and
// another one gets its pid.
func runReuse() {
	refuse := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "not permitted: %s: %v\n", what, err)
			os.Exit(notPermitted)
		}
	}
	refuse("mounts of its own", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	refuse("mounting proc", unix.Mount("proc", "/proc", "proc", 0, ""))
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	trainee := exec.Command("/proc/self/exe")
	trainee.Env = append(os.Environ(), helperKey+"="+trainPrefix+"idle", lastingKey+"=1")
	trainee.Stdin, trainee.Stdout, trainee.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := trainee.Start(); err != nil {
		panic(err)
	}
	pid := trainee.Process.Pid
	collector := exec.Command(os.Getenv(execKey), os.Args[1:]...)
	collector.Env = append(os.Environ(), "E2E_TARGET="+strconv.Itoa(pid))
	collector.Stdout, collector.Stderr = os.Stdout, os.Stderr
	if err := collector.Start(); err != nil {
		panic(err)
	}
	fmt.Println("trainee", pid)
	<-told
	_ = trainee.Process.Kill()
	_ = trainee.Wait()
	for range 50 {
		refuse("choosing a pid", os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0o600))
		other := exec.Command("/proc/self/exe")
		other.Env = append(os.Environ(), helperKey+"=child-idle")
		other.Stdin = os.Stdin
		if err := other.Start(); err != nil {
			panic(err)
		}
		if other.Process.Pid == pid {
			fmt.Println("reused", pid)
			break
		}
		_ = other.Process.Kill()
		_ = other.Wait()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A pid is not a process: another one that gets it is neither the run, which its
// wandb-core has still open, nor the process that was configured.
func TestAPidThatIsUsedAgain(t *testing.T) {
	attr := inContainer(t, unix.CLONE_NEWPID|unix.CLONE_NEWNS)
	s, dir := startSink(t, nil), publicDir(t)
	self, err := os.Executable()
	require.NoError(t, err)
	config := settings{
		receivers: `
wandbsys/runs: {collection_interval: 300ms, initial_delay: 0s, host_name: runs}
wandbsys/pid: {collection_interval: 300ms, initial_delay: 0s, host_name: pid, workloads: {pid: "${env:E2E_TARGET}", discover: []}}
wandbsys/match: {collection_interval: 300ms, initial_delay: 0s, host_name: match, workloads: {discover: [], match: [{name: ^exe$}]}}
`,
		exporters: s.exporter(),
	}.write(t)
	cmd := exec.Command(self, "--config="+config)
	cmd.Dir = dir
	cmd.Env = append(plainEnv(), helperKey+"=reuse", execKey+"="+binary(t), coreKey+"="+makeSite(t, dir, self),
		runsKey+"="+filepath.Join(dir, "wandb/run-20260102_030405-abc/run-abc.wandb"), "E2E_PROJECT=vision")
	cmd.SysProcAttr = attr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	p := startProcess(t, cmd)
	t.Cleanup(func() { _ = stdin.Close() })
	p.waitForOrEnd("the training runs", func() bool { return strings.Contains(p.stdout.String(), "ready") })
	p.skipIfRefused()
	p.waitFor("the training process", func() bool { return strings.Contains(p.stdout.String(), "trainee ") })
	pid, err := strconv.Atoi(regexp.MustCompile(`trainee (\d+)`).FindStringSubmatch(p.stdout.String())[1])
	require.NoError(t, err)
	of := func(host string) points { return s.points().from(host).ofPid(pid) }
	for _, host := range []string{"runs", "pid", "match"} {
		p.waitFor("the process of "+host, func() bool { return len(of(host).named("cpu")) > 1 })
	}
	require.Equal(t, "abc", of("runs").last().resource["wandb.run_id"])
	require.Equal(t, "abc", of("runs")[0].resource["wandb.run_id"])

	require.NoError(t, syscall.Kill(p.pid(), syscall.SIGUSR1))
	p.waitForOrEnd("another process with the pid", func() bool { return strings.Contains(p.stdout.String(), "reused ") })
	p.skipIfRefused()
	reused := time.Now()
	p.waitFor("more scrapes", func() bool {
		return s.points().from("runs").ofMachine().scrapesAfter(reused) >= 5 && s.points().from("pid").ofMachine().scrapesAfter(reused) >= 5 &&
			of("match").scrapesAfter(reused) >= 5
	})
	for _, host := range []string{"runs", "pid"} {
		assert.LessOrEqual(t, of(host).scrapesAfter(reused), 1, host)
	}
	assert.Contains(t, p.stderr.String(), fmt.Sprintf("process %d is gone", pid))
	t.Run("by its kind the new one is known, as another process", func(t *testing.T) {
		for _, point := range of("match").named("cpu") {
			assert.GreaterOrEqual(t, point.value, 0.0)
			assert.Less(t, point.value, 110.0)
		}
	})
}
