// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	// execKey names the collector that a helper becomes, placeKey what its
	// preparation needs.
	execKey  = "E2E_EXEC"
	placeKey = "E2E_PLACE"
	// notPermitted is the exit code of a helper that may not prepare its place.
	notPermitted = 77
	nobody       = 65534
)

// collectorRoles prepare a place, in namespaces that end with the process, and
// become the collector there.
var collectorRoles = map[string]func(place string) error{
	"dead-mount":   mountDead,
	"hidden":       mountHidden,
	"in-namespace": enterNetwork,
	"nobody":       becomeNobody,
}

func becomeCollector(prepare func(place string) error) {
	runtime.LockOSThread()
	if err := prepare(os.Getenv(placeKey)); err != nil {
		fmt.Fprintln(os.Stderr, "not permitted:", err)
		os.Exit(notPermitted)
	}
	path := os.Getenv(execKey)
	err := syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
	fmt.Fprintf(os.Stderr, "not permitted: running %s: %v\n", path, err)
	os.Exit(notPermitted)
}

// privateMounts is a mount namespace that ends with the process.
func privateMounts() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
}

// commandIn runs the collector where a role prepares it, for a place.
func commandIn(t *testing.T, role, place string, attr *syscall.SysProcAttr, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Dir = "/"
	cmd.Env = append(cleanEnv(), helperKey+"="+role, execKey+"="+binary(t), placeKey+"="+place)
	cmd.SysProcAttr = attr
	skipUnlessPermitted(t, attr)
	return startProcess(t, cmd)
}

// skipIfRefused skips when the place could not be prepared.
func (p *process) skipIfRefused() {
	p.t.Helper()
	if !p.alive() && p.exitCode() == notPermitted {
		p.t.Skip(strings.TrimSpace(p.stderr.String()))
	}
}

// startCollectorIn skips where that is not permitted.
func startCollectorIn(t *testing.T, role, place, config string, attr *syscall.SysProcAttr) *process {
	t.Helper()
	p := commandIn(t, role, place, attr, "--config="+config)
	ready := func() bool { return strings.Contains(p.stderr.String(), "Everything is ready") }
	p.waitForOrEnd("the collector is ready", ready)
	p.skipIfRefused()
	require.True(t, p.alive(), "the collector runs")
	return p
}

// skipUnlessPermitted tries the namespaces out.
func skipUnlessPermitted(t *testing.T, attr *syscall.SysProcAttr) {
	t.Helper()
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if attr != nil {
		cmd.SysProcAttr.Unshareflags = attr.Unshareflags
	}
	if err := cmd.Run(); errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("no namespaces here: %v", err)
	}
}

// publicDir is a folder that every user may enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wandbsys-e2e-") //nolint:usetesting // t.TempDir lets only its owner in
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// mountDead mounts a FUSE file system whose server never answers. It ends with
// the last process that holds the descriptor, which the collector inherits.
func mountDead(place string) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("/dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid())
	if err := unix.Mount("dead", place, "fuse.dead", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting FUSE: %w", err)
	}
	return nil
}

func TestAMountThatNeverAnswers(t *testing.T) {
	dead, s := filepath.Join(t.TempDir(), "dead"), startSink(t, nil)
	require.NoError(t, os.Mkdir(dead, 0o755))
	// Many calls hang, so that one would be on the main thread, which gets the
	// signals, if that could be.
	deadPaths := []string{dead}
	for i := range 8 {
		deadPaths = append(deadPaths, filepath.Join(dead, strconv.Itoa(i)))
	}
	config := settings{
		receivers: "wandbsys: {collection_interval: 1s, initial_delay: 0s, scrapers: {host: {disk_paths: [/, " + strings.Join(deadPaths, ", ") + ", /proc]}}}",
		exporters: s.exporter(),
	}.write(t)
	start := func() *process {
		before := len(s.points())
		p := startCollectorIn(t, "dead-mount", dead, config, privateMounts())
		p.waitFor("metrics arrive", func() bool { return len(s.points()) > before })
		return p
	}
	p := start()
	p.waitFor("many scrapes", func() bool { return len(s.points().ofMachine().named("memory_percent")) >= 8 })
	all := s.points()
	checkPace(t, all.named("disk.usageGB").with("path", "/"), treeInterval*2)
	assert.Len(t, all.named("disk.usageGB").with("path", "/"), len(all.ofMachine().named("memory_percent")), "the other path goes on")
	assert.Empty(t, all.named("disk.usageGB").with("path", dead))
	errs := hostLines(p, "error")
	require.Len(t, errs, 1)
	assert.Contains(t, errs[0].Error, "statfs "+dead)
	checkShutdown(t, hungShutdown, p, start)

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), dead, "nothing is left mounted")
}

// What is looked at before the start can hang too.
func TestValidateWhereAMountNeverAnswers(t *testing.T) {
	root := t.TempDir()
	dead := filepath.Join(root, "proc")
	require.NoError(t, os.Mkdir(dead, 0o755))
	for name, tt := range map[string]struct {
		section string
		code    int
		want    string
	}{
		"the root path":     {"root_path: " + dead, 1, `root_path: "` + dead + `": gave up after`},
		"the machine's pid": {"root_path: " + root + ", workloads: {pid: 4711}", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := commandIn(t, "dead-mount", dead, privateMounts(),
				"validate", "--config=yaml:"+oneLine, "--config=yaml:receivers::wandbsys: {"+tt.section+"}")
			code := p.exitCode()
			p.skipIfRefused()
			assert.Equal(t, tt.code, code)
			assert.Contains(t, p.stderr.String(), tt.want)
		})
	}
}

// mountHidden mounts a procfs that hides other users' processes, and becomes
// nobody. Before Linux 5.8 the option would apply to every mount of it.
func mountHidden(place string) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	if err != nil || major < 5 || major == 5 && minor < 8 {
		return fmt.Errorf("Linux %d.%d has no hidepid of its own for each mount", major, minor)
	}
	if err := unix.Mount("proc", place, "proc", 0, "hidepid=2"); err != nil {
		return fmt.Errorf("mounting proc: %w", err)
	}
	return becomeNobody("")
}

func becomeNobody(string) error {
	return errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
}

func TestAProcessThatIsHiddenIsLoggedOnce(t *testing.T) {
	target, root, s := startHelper(t, "idle"), publicDir(t), startSink(t, nil)
	proc := filepath.Join(root, "proc")
	require.NoError(t, os.Mkdir(proc, 0o755))
	config := "yaml:" + settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 200ms, initial_delay: 0s, root_path: %s, workloads: {pid: %d}}", root, target.pid()),
		exporters: s.exporter(),
	}.text(t)
	p := startCollectorIn(t, "hidden", proc, config, privateMounts())
	p.waitFor("many scrapes", func() bool { return len(s.points().ofMachine().named("memory_percent")) >= many })
	warnings := hostLines(p, "warn")
	require.Len(t, warnings, 1)
	assert.Equal(t, fmt.Sprintf("there is no process %d below %s", target.pid(), proc), warnings[0].What)
	assert.Empty(t, hostLines(p, "error"))
	for _, name := range []string{"memory_percent", "disk.usageGB", "network.recv"} {
		assert.NotEmpty(t, s.points().named(name), name)
	}
	assert.Empty(t, s.points().ofPid(target.pid()))
}

// A right that is missing is no reason to say so at every scrape, nor to leave
// anything else out.
func TestMemoryThatMayNotBeReadIsLoggedOnce(t *testing.T) {
	target, s := startHelper(t, "idle"), startSink(t, nil)
	config := "yaml:" + settings{
		receivers: fmt.Sprintf("wandbsys: {collection_interval: 200ms, initial_delay: 0s, workloads: {pid: %d}, metrics: {proc.memory.pssMB: {enabled: true}}}", target.pid()),
		exporters: s.exporter(),
	}.text(t)
	p := startCollectorIn(t, "nobody", "", config, nil)
	scrapes := func() int { return len(s.points().ofPid(target.pid()).named("proc.memory.rssMB")) }
	p.waitFor("many scrapes", func() bool { return scrapes() >= many })
	assert.Empty(t, s.points().named("proc.memory.pssMB"))
	errs := hostLines(p, "error")
	require.Len(t, errs, 1)
	assert.Contains(t, errs[0].Error, "proc.memory.pssMB needs root or CAP_SYS_PTRACE")
	assert.Empty(t, hostLines(p, "warn"))
}

// enterNetwork enters the network namespace of another process.
func enterNetwork(pid string) error {
	fd, err := unix.Open("/proc/"+pid+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// foreign is how much is sent on an interface of the collector's own namespace.
const foreign = 64 * mebi

func TestTheMachinesTrafficFromAnotherNetworkNamespace(t *testing.T) {
	attr := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET}
	skipUnlessPermitted(t, attr)
	neighbour, input := startTraffic(t, attr)
	file := filepath.Join(t.TempDir(), "metrics.json")
	config := settings{
		receivers: "wandbsys: {collection_interval: 500ms, initial_delay: 0s, root_path: /}",
		exporters: "file: {path: " + file + "}",
	}.write(t)
	before := readTruth(t, 0)
	p := startCollectorIn(t, "in-namespace", strconv.Itoa(neighbour.pid()), config, nil)
	scrapes := func() int {
		if !exists(file) {
			return 0
		}
		return len(readCompleteLines(t, file).named("network.sent"))
	}
	p.waitFor("the first scrape", func() bool { return scrapes() > 0 })
	_, err := input.Write([]byte("go\n"))
	require.NoError(t, err)
	neighbour.waitFor("the traffic", func() bool { return strings.Contains(neighbour.stdout.String(), "sent") })
	seen := scrapes()
	p.waitFor("two more scrapes", func() bool { return scrapes() >= seen+2 })
	p.stop()
	after := readTruth(t, 0)

	own := interfaceBytes(t, neighbour.pid(), trafficInterface)
	require.GreaterOrEqual(t, own, float64(foreign), "there was traffic in the namespace")
	all := readJSONLines(t, file)
	for name, machine := range map[string]float64{
		"network.sent": after.sent - before.sent,
		"network.recv": after.received - before.received,
	} {
		require.Less(t, machine, float64(foreign)/2, "the machine itself is too busy for this test")
		assert.LessOrEqual(t, all.named(name).last().value, machine, name)
	}
}

// The machine's counters are those of its pid 1, whatever namespace the collector
// is in.
func TestTheMachinesTrafficIsThatOfItsPid1(t *testing.T) {
	attr := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET}
	skipUnlessPermitted(t, attr)
	machine, input := startTraffic(t, attr)
	root, s := t.TempDir(), startSink(t, nil)
	makeMachine(t, root)
	netDev := filepath.Join(root, "proc/1/net/dev")
	require.NoError(t, os.Remove(netDev))
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/%d/net/dev", machine.pid()), netDev))
	before := interfaceBytes(t, machine.pid(), trafficInterface)
	p := startCollector(t, settings{
		receivers: "wandbsys: {collection_interval: 500ms, initial_delay: 0s, root_path: " + root + "}",
		exporters: s.exporter(),
	})
	of := func(name string) points { return s.points().named(name) }
	p.waitFor("the first scrape", func() bool { return len(of("network.sent")) > 0 })
	_, err := input.Write([]byte("go\n"))
	require.NoError(t, err)
	machine.waitFor("the traffic", func() bool { return strings.Contains(machine.stdout.String(), "sent") })
	seen := len(of("network.sent"))
	p.waitFor("two more scrapes", func() bool { return len(of("network.sent")) >= seen+2 })
	got := of("network.sent").last().value + of("network.recv").last().value
	assert.GreaterOrEqual(t, got, float64(foreign))
	assert.LessOrEqual(t, got, interfaceBytes(t, machine.pid(), trafficInterface)-before)
}

// readCompleteLines leaves out a line that is being written.
func readCompleteLines(t *testing.T, path string) points {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	end := strings.LastIndexByte(string(content), '\n') + 1
	part := filepath.Join(t.TempDir(), "part.json")
	require.NoError(t, os.WriteFile(part, content[:end], 0o600))
	return readJSONLines(t, part)
}

// interfaceBytes reads what an interface of a process' namespace has counted, in
// either direction.
func interfaceBytes(t *testing.T, pid int, name string) float64 {
	t.Helper()
	for _, f := range fieldsOf(t, fmt.Sprintf("/proc/%d/net/dev", pid)) {
		if f[0] == name+":" {
			return number(t, f[1]) + number(t, f[9])
		}
	}
	t.Fatalf("no interface %s", name)
	return 0
}
