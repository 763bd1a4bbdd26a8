// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/cgroup"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
)

// looks says what is wanted of a process.
type looks uint8

const (
	// lookEnviron reads the environment, and the arguments where the name is one
	// of W&B's.
	lookEnviron looks = 1 << iota
	// lookRules compares the process with the rules.
	lookRules
	// lookOpen lists the open files.
	lookOpen
	// lookPids reads the pids of nested namespaces.
	lookPids
	// lookRoot reads what is told of the root of a workload: its command, and its
	// container where the control group does not tell.
	lookRoot
)

const (
	// maxCommand is how much of a command line is read: rules may look for a word
	// far behind.
	maxCommand = 32 << 10
	// maxOpen bounds the open files of a wandb-core that are looked at.
	maxOpen = 4096
	// maxStatus and maxMounts are far above what these files can be.
	maxStatus = 1 << 20
	maxMounts = 8 << 20
	// lookTimeout is how long the looks of one kind may take in one pass; one
	// process may take half of that.
	lookTimeout = 2 * time.Second
	// maxStuck bounds the processes that do not answer and are left alone. With one
	// more, nothing is looked into any longer.
	maxStuck = 8
)

// look is one look into a process, and what it found.
type look struct {
	pid  int
	key  Key
	name string
	want looks

	denied  bool
	env     *environment
	core    coreArguments
	inWandb bool
	rule    int
	// onlyRead are the logs of runs that are open, but not for writing.
	open, onlyRead []string
	pids           []int
	namespace      string
	command        string
	mounts         cgroup.Identity
}

// looker looks into processes: it reads files for which the kernel has to take
// a lock of the process, which one that hangs in the kernel may hold for ever,
// and those that need the right to trace it. All that it has belongs to its slot.
type looker struct {
	slot guard.Slot
	// mu guards at, which process is looked into, and since when.
	mu    sync.Mutex
	at    look
	since time.Time

	rootPath, proc string
	rules          []Rule
	// readlink and timeout are what tests replace.
	readlink func(name string) (string, error)
	timeout  time.Duration

	envs  environments
	users map[int]userName
	buf   []byte
}

// userName is the name of a user, empty when it was not known at a time.
type userName struct {
	name string
	at   time.Time
}

// userRetry is how long a user whose name was not known is not asked for again.
const userRetry = time.Minute

func newLooker(rootPath string, rules []Rule) *looker {
	return &looker{
		rootPath: rootPath,
		proc:     filepath.Join("/", rootPath, "proc"),
		rules:    rules,
		readlink: os.Readlink,
		timeout:  lookTimeout,
		users:    map[int]userName{},
	}
}

// another returns a looker for what this one would look into, if it did not hang.
func (l *looker) another() *looker {
	other := newLooker(l.rootPath, l.rules)
	other.readlink, other.timeout = l.readlink, l.timeout
	return other
}

// hung returns the process that does not answer. That the time for many was over
// is nobody's fault.
func (l *looker) hung() (look, bool) {
	if !l.slot.Hung() {
		return look{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, time.Since(l.since) >= l.timeout/2
}

func (l *looker) goOnWith(k *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.since = *k, time.Now()
}

// lookInto looks into processes and returns the looks that were made in time; err
// says why there are not all.
func (l *looker) lookInto(ctx context.Context, wanted []look) (made []look, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, share(ctx, l.timeout))
	defer cancel()
	var mu sync.Mutex
	over := false // what comes later is nobody's
	_, err = guard.Call(ctx, &l.slot, func(ctx context.Context) (struct{}, error) {
		for i := range wanted {
			if ctx.Err() != nil {
				return struct{}{}, context.Cause(ctx)
			}
			found := wanted[i]
			l.goOnWith(&found)
			l.look(&found)
			mu.Lock()
			if !over {
				made = append(made, found)
			}
			mu.Unlock()
		}
		return struct{}{}, nil
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	return made, err
}

// share is how long what may hang can take of the time that is left: half of it
// at most, so that the rest of the scrape is not lost with it.
func share(ctx context.Context, limit time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(limit, time.Until(deadline)/2)
	}
	return limit
}

func (l *looker) look(k *look) {
	k.rule = -1
	if k.want&lookEnviron != 0 {
		l.lookEnviron(k)
	}
	if k.want&lookRules != 0 {
		k.rule = l.findRule(k)
	}
	if k.want&lookOpen != 0 {
		l.lookOpen(k)
	}
	if k.want&lookPids != 0 {
		l.lookPids(k)
	}
	if k.want&lookRoot != 0 {
		l.lookRoot(k)
	}
}

// read reads the beginning of a file of the process; nothing when it may not be
// read, or the process ended.
func (l *looker) read(k *look, name string, limit int) []byte {
	var err error
	l.buf, err = guard.ReadHead(l.file(k, name), l.buf, limit)
	l.note(k, err)
	return l.buf
}

func (l *looker) file(k *look, name string) string {
	return l.proc + "/" + strconv.Itoa(k.pid) + "/" + name
}

// note remembers that something may not be read.
func (*looker) note(k *look, err error) {
	k.denied = k.denied || errors.Is(err, fs.ErrPermission)
}

func (l *looker) lookEnviron(k *look) {
	k.env = l.envs.parse(l.read(k, "environ", maxEnviron))
	sure, isSide := sideNames[k.name]
	switch {
	case k.name == coreName:
		k.inWandb = true
		k.core = parseCoreArguments(l.read(k, "cmdline", maxCommand))
	case isSide:
		k.inWandb = sure || bytes.Contains(l.read(k, "cmdline", maxCommand), []byte(wandbBin))
	}
}

// lookOpen lists what the process has open.
func (l *looker) lookOpen(k *look) {
	dir, err := os.Open(l.file(k, "fd"))
	l.note(k, err)
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(maxOpen) // those that were read before an error count
	for _, name := range names {
		target, err := l.readlink(path.Join(dir.Name(), name))
		l.note(k, err)
		switch {
		case err != nil:
		case isLog(target) && !l.isWritten(k, name):
			k.onlyRead = append(k.onlyRead, target)
		default:
			k.open = append(k.open, target)
		}
	}
}

// isLog tells the transaction logs of runs.
func isLog(target string) bool {
	return strings.HasSuffix(strings.TrimSuffix(target, deletedSuffix), ".wandb")
}

// isWritten tells whether a file is open for writing: who only reads a log, as to
// upload it later, is not the run. What is not told counts as written.
func (l *looker) isWritten(k *look, descriptor string) bool {
	for line := range bytes.Lines(l.read(k, "fdinfo/"+descriptor, maxStatus)) {
		value, ok := bytes.CutPrefix(line, []byte("flags:"))
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 8, 64)
		return err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY
	}
	return true
}

func (l *looker) lookPids(k *look) {
	k.pids, _ = procread.ParseNSpid(nil, l.read(k, "status", maxStatus))
	// It needs the right to trace the process; there are other ways without.
	k.namespace, _ = l.readlink(l.file(k, "ns/pid"))
}

func (l *looker) lookRoot(k *look) {
	k.command = program(l.read(k, "cmdline", maxCommand))
	content, err := guard.ReadFile(l.file(k, "mountinfo"), maxMounts)
	if err != nil {
		return
	}
	mounts, _ := procread.ParseMountinfo(nil, content)
	k.mounts = cgroup.ContainerOfMounts(mounts)
}

// program is the first word of a command line. A process may have written a title
// over it, with blanks between what were its arguments.
func program(cmdline []byte) string {
	argument, _, _ := bytes.Cut(cmdline, []byte{0})
	word, _, _ := strings.Cut(strings.TrimLeft(string(argument), " "), " ")
	return clean(word)
}

// findRule returns the number of the first rule that matches, else -1.
func (l *looker) findRule(k *look) int {
	m := matcher{looker: l, look: k}
	for i := range l.rules {
		if m.matches(&l.rules[i]) {
			return i
		}
	}
	return -1
}

// matcher compares one process with rules, and reads what they ask for once. The
// command line is not kept: it may hold secrets.
type matcher struct {
	*looker
	look      *look
	exe       *string
	command   *string
	user, uid *string
}

func (m *matcher) matches(r *Rule) bool {
	return (r.Name == nil || r.Name.MatchString(m.look.name)) &&
		(r.User == nil || m.matchesUser(r)) &&
		(r.Command == nil || r.Command.MatchString(m.readCommand())) &&
		(r.Exe == nil || r.Exe.MatchString(m.readExe()))
}

func (m *matcher) matchesUser(r *Rule) bool {
	if m.user == nil {
		uid, ok := procread.ParseUID(m.read(m.look, "status", maxStatus))
		if !ok {
			return false
		}
		name, number := m.findUser(uid), strconv.Itoa(uid)
		m.user, m.uid = &name, &number
	}
	return (*m.user != "" && r.User.MatchString(*m.user)) || r.User.MatchString(*m.uid)
}

func (m *matcher) readCommand() string {
	if m.command == nil {
		words := bytes.TrimRight(m.read(m.look, "cmdline", maxCommand), "\x00")
		command := strings.ReplaceAll(string(words), "\x00", " ")
		m.command = &command
	}
	return *m.command
}

func (m *matcher) readExe() string {
	if m.exe == nil {
		exe, err := m.readlink(m.file(m.look, "exe"))
		m.note(m.look, err)
		exe = strings.TrimSuffix(exe, deletedSuffix)
		m.exe = &exe
	}
	return *m.exe
}

// findUser asks for the name of a user: the system's directories, LDAP included,
// for our own machine, else the file of the machine that is mounted.
func (l *looker) findUser(uid int) string {
	if known := l.users[uid]; known.name != "" || time.Since(known.at) < userRetry {
		return known.name
	}
	id, name := strconv.Itoa(uid), ""
	if l.rootPath == "" || l.rootPath == "/" {
		if u, err := user.LookupId(id); err == nil {
			name = u.Username
		}
	} else if content, err := guard.ReadFile(filepath.Join(l.rootPath, "etc/passwd"), maxMounts); err == nil {
		name = passwdName(content, id)
	}
	l.users[uid] = userName{name, time.Now()}
	return name
}

// passwdName returns the name of a user of passwd(5).
func passwdName(content []byte, id string) string {
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(line, ":", 4)
		if len(fields) == 4 && fields[2] == id {
			return fields[0]
		}
	}
	return ""
}
