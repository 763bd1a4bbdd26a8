// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/procread"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// processSource reads /proc/PID of the target.
type processSource struct {
	slot   guard.Slot
	proc   string
	target scrapers.Target
	env    environment

	bootID, stat, statm, status guard.KeptFile

	// pid and key are known from the first good reading on. Another process
	// that gets the pid later is not the target.
	pid  int
	boot string // as last read
	key  *processKey
	buf  []byte
}

func newProcessSource(proc string, target scrapers.Target, env environment) *processSource {
	return &processSource{
		proc:   proc,
		target: target,
		env:    env,
		bootID: guard.KeptFile{Path: filepath.Join(proc, "sys/kernel/random/boot_id")},
		pid:    target.Pid,
	}
}

// read returns a *scrapers.GoneError when there is no such process, or no
// longer.
func (s *processSource) read(context.Context) (*processReading, error) {
	if err := s.findSelf(); err != nil {
		return nil, err
	}
	s.openFiles()
	r, err := s.readStat()
	if err != nil {
		return nil, s.orGone(err)
	}
	if err := s.readMemory(r); err != nil {
		return nil, s.orGone(err)
	}
	return r, s.readCapacity(r)
}

// findSelf asks the mounted /proc for our pid: in another pid namespace's
// /proc it is another number.
func (s *processSource) findSelf() error {
	if !s.target.Self || s.pid > 0 {
		return nil
	}
	link, err := os.Readlink(filepath.Join(s.proc, "self"))
	if err != nil {
		return fmt.Errorf("finding the collector's own process: %w", err)
	}
	pid, err := strconv.Atoi(link)
	if err != nil {
		return fmt.Errorf("finding the collector's own process: %w", err)
	}
	s.pid = pid
	return nil
}

// openFiles names the files once the pid is known.
func (s *processSource) openFiles() {
	if s.stat.Path != "" {
		return
	}
	dir := s.proc + "/" + strconv.Itoa(s.pid)
	s.stat.Path, s.statm.Path, s.status.Path = dir+"/stat", dir+"/statm", dir+"/status"
}

// files are those that are held open.
func (s *processSource) files() []*guard.KeptFile {
	return []*guard.KeptFile{&s.bootID, &s.stat, &s.statm, &s.status}
}

func (s *processSource) readStat() (*processReading, error) {
	s.readBootID()
	if err := s.readFile(&s.stat); err != nil {
		return nil, err
	}
	at := s.env.now()
	st, err := procread.ParsePIDStat(s.buf)
	if err != nil {
		return nil, err
	}
	key := processKey{boot: s.boot, start: st.StartTime}
	if st.Gone() || (s.key != nil && !s.key.same(key)) {
		return nil, procread.ErrEnded
	}
	s.key = &key
	return &processReading{
		at:         at,
		pid:        s.pid,
		key:        key,
		executable: string(st.Comm),
		cpuTime:    time.Duration(st.UTime+st.STime) * (time.Second / procread.TicksPerSecond),
		threads:    st.Threads,
	}, nil
}

// readBootID tells one boot from another. Where it is not shown, or is not for
// once, nothing is concluded.
func (s *processSource) readBootID() {
	var err error
	if s.buf, err = s.bootID.ReadInto(s.buf, maxFile); err == nil && string(s.buf) != s.boot {
		s.boot = string(s.buf)
	}
}

func (s *processSource) readMemory(r *processReading) error {
	if err := s.readFile(&s.statm); err != nil {
		return err
	}
	pages, err := procread.ParseResident(s.buf)
	if err != nil {
		return err
	}
	r.rss = pages * s.env.pageSize
	return nil
}

// readCapacity reads the CPUs that the process may run on. A process that
// ended by now leaves the rest of the reading good.
func (s *processSource) readCapacity(r *processReading) error {
	err := s.readFile(&s.status)
	if isEnded(err) {
		return nil
	}
	if err != nil {
		return err
	}
	allowed, err := procread.ParseCPUsAllowed(s.buf)
	if errors.Is(err, procread.ErrNoCPUs) {
		return nil
	}
	if err != nil {
		return err
	}
	r.capacity = float64(allowed)
	return nil
}

func (s *processSource) readFile(file *guard.KeptFile) error {
	var err error
	s.buf, err = file.ReadInto(s.buf, maxFile)
	return err
}

// isEnded tells the errors that a process leaves that is not there.
func isEnded(err error) bool {
	return errors.Is(err, procread.ErrEnded) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func (s *processSource) orGone(err error) error {
	if !isEnded(err) {
		return err
	}
	what := []string{"process", strconv.Itoa(s.pid), "is gone"}
	if s.key == nil {
		what = []string{"there is no process", strconv.Itoa(s.pid), "below", s.proc}
	}
	return &scrapers.GoneError{What: strings.Join(what, " ")}
}

// addProcess puts the target into the reading. It can use the CPUs that it may
// run on, as far as they are online.
func (*linuxSource) addProcess(r *reading, online int, p *processReading) {
	if p == nil {
		return
	}
	switch {
	case online == 0:
		// The list of allowed CPUs names possible ones too: alone it says nothing.
		p.capacity = 0
	case p.capacity == 0 || float64(online) < p.capacity:
		p.capacity = float64(online)
	}
	r.process = p
}
