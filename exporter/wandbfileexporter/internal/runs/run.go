// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbpb"
)

const (
	// folderPrefix marks runs that are to be uploaded.
	folderPrefix = "offline-run-"
	folderTime   = "20060102_150405"
	logPrefix    = "run-"
	logSuffix    = ".wandb"
	latestRun    = "latest-run"
	// As W&B does, less the umask: whoever uploads a run need not be who wrote it.
	folderMode, fileMode = 0o777, 0o666
)

// run is a run that is being written.
type run struct {
	path string
	file *os.File
	info os.FileInfo
	log  *wandbfile.Writer
	// start is the run's start_time, last the time of its last record.
	start, last time.Time
	// opened is when it began by the clock here.
	opened   time.Time
	counters map[string]*counter
	// appended is a record that is in the log, but perhaps not in the file.
	appended *Record
	// filled: a record is in the log. exited: the exit record is.
	filled, exited bool
	// broken: the log will not take another byte, whatever becomes of the disk.
	broken bool
	// dirty: the file has what may not survive a crash of the machine.
	dirty  bool
	synced time.Time
	did    func(Work)
}

// create makes the folder and the log of a run. What it made is removed again when
// it cannot be finished.
func (s *Store) create(subject *Subject, id string, start time.Time) (_ *run, err error) {
	if err := os.MkdirAll(s.Directory, folderMode); err != nil {
		return nil, fmt.Errorf("making the directory: %w", err)
	}
	folder := filepath.Join(s.Directory, folderPrefix+s.Now().Local().Format(folderTime)+"-"+id)
	if err := os.Mkdir(folder, folderMode); err != nil {
		return nil, fmt.Errorf("making the folder of a run: %w", err)
	}
	path := filepath.Join(folder, logPrefix+id+logSuffix)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the log of a run: %w", err), os.Remove(folder))
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("beginning a run: %w", err), file.Close(), os.Remove(path), os.Remove(folder))
		}
	}()
	r := &run{path: path, file: file, start: start, last: start, opened: s.Now(), did: s.Did}
	r.log = wandbfile.NewWriter(r)
	if r.info, err = file.Stat(); err != nil {
		return nil, err
	}
	lock(file)
	attrs := subject.texts()
	for _, record := range []*wandbpb.Record{
		{RecordType: &wandbpb.Record_Header{Header: &wandbpb.HeaderRecord{VersionInfo: &wandbpb.VersionInfo{
			Producer: s.Producer.Name + " " + s.Producer.Version,
		}}}},
		{RecordType: &wandbpb.Record_Run{Run: s.runRecord(subject, attrs, id, start)}},
		{RecordType: &wandbpb.Record_Environment{Environment: environment(attrs, subject.GPUs, start)}},
	} {
		if err = r.log.Append(record); err != nil {
			return nil, err
		}
	}
	if err = r.log.Flush(); err != nil {
		return nil, err
	}
	if s.Sync != SyncNever {
		if err = r.syncAll(s.Now(), folder, s.Directory); err != nil {
			return nil, err
		}
	}
	if !subject.Workload {
		s.link(folder)
	}
	return r, nil
}

// Write counts what the file takes.
func (r *run) Write(b []byte) (int, error) {
	n, err := r.file.Write(b)
	r.dirty = r.dirty || n > 0
	r.check(err)
	r.did(Work{Bytes: int64(n)})
	return n, err
}

// check finds a log broken. After a sync that fails it may have a hole, of which the
// next sync says nothing.
func (r *run) check(err error) {
	r.broken = r.broken || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.EIO)
}

// sync makes what was written survive a crash of the machine.
func (r *run) sync(now time.Time) error {
	if !r.dirty {
		return nil
	}
	if err := r.file.Sync(); err != nil {
		r.check(err)
		return fmt.Errorf("making a run safe: %w", err)
	}
	r.dirty, r.synced = false, now
	return nil
}

// syncAll is sync with the folders that the log's name is in.
func (r *run) syncAll(now time.Time, folders ...string) error {
	if err := r.sync(now); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := syncFolder(folder); err != nil {
			return fmt.Errorf("making a folder safe: %w", err)
		}
	}
	return nil
}

// gone tells whether the log is no longer what its path names: removed, or replaced.
func (r *run) gone() bool {
	info, err := os.Lstat(r.path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	}
	return !os.SameFile(info, r.info)
}

// exit ends the log. After an error it can be called again.
func (r *run) exit() error {
	if !r.exited {
		runtime := max(r.last.Sub(r.start), 0)
		if err := r.log.Append(&wandbpb.Record{RecordType: &wandbpb.Record_Exit{Exit: &wandbpb.RunExitRecord{
			Runtime: int32(min(runtime/time.Second, 1<<31-1)),
		}}}); err != nil {
			return err
		}
		r.exited = true
	}
	return r.log.Flush()
}

// link points `latest-run` to a folder, as W&B does for its own runs: unless it
// points to one of those that is still there. It is a convenience, and no reason to
// fail.
func (s *Store) link(folder string) {
	link := filepath.Join(s.Directory, latestRun)
	switch target, err := os.Readlink(link); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil, !s.isOurs(filepath.Base(target)) && !s.wasRun(target):
		return
	}
	next := filepath.Join(s.Directory, "."+latestRun+"-"+filepath.Base(folder))
	if err := os.Symlink(filepath.Base(folder), next); err != nil {
		s.Logger.Debug("No link to the latest run", zap.Error(err))
		return
	}
	if err := os.Rename(next, link); err != nil {
		_ = os.Remove(next)
	}
}

// wasRun tells whether the target of a link was a run's folder that is no more.
func (s *Store) wasRun(target string) bool {
	if _, isRun := s.logOf(filepath.Base(target)); !isRun {
		return false
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(s.Directory, target)
	}
	_, err := os.Lstat(target)
	return errors.Is(err, os.ErrNotExist)
}

// logOf returns the path of the log in a folder, if the folder has the name of a run
// that is to be uploaded.
func (s *Store) logOf(folder string) (path string, ok bool) {
	rest, ok := strings.CutPrefix(folder, folderPrefix)
	if !ok || len(rest) <= len(folderTime)+1 || rest[len(folderTime)] != '-' {
		return "", false
	}
	if _, err := time.Parse(folderTime, rest[:len(folderTime)]); err != nil {
		return "", false
	}
	id := rest[len(folderTime)+1:]
	return filepath.Join(s.Directory, folder, logPrefix+id+logSuffix), true
}
