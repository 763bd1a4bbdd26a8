// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile"
)

const (
	// lookEvery bounds how often the directory is looked through, but for new runs.
	lookEvery = time.Minute
	// lookShare: what has grown by this part of the limit is a reason to look, too.
	lookShare = 16
	maxKnown  = 1 << 16
	// abandoned is how long nobody leaves a log that he writes.
	abandoned = 24 * time.Hour
)

// limit is what is known of the room that our runs take.
type limit struct {
	// grown is what was written since the last look.
	grown  int64
	looked time.Time
	look   bool
	// failing: the last look could not keep the limit, which was logged.
	failing bool
	// ours remembers by folder whether the log in it is ours.
	ours map[string]bool
	// ended has the logs that this Store has ended: nobody writes them any more, which
	// no lock need tell.
	ended map[string]bool
}

func newLimit() limit { return limit{ours: map[string]bool{}, ended: map[string]bool{}} }

// end remembers a log that was ended.
func (l *limit) end(path string) {
	if len(l.ended) >= maxKnown {
		clear(l.ended)
	}
	l.ended[path] = true
}

// finished is a run of ours that nobody writes.
type finished struct {
	folder, path string
	size         int64
	changed      time.Time
}

// enforce looks, if it is time, whether runs of ours take more room than they may.
func (s *Store) enforce(ctx context.Context) {
	if s.MaxTotal <= 0 {
		return
	}
	now := s.Now()
	if !s.limit.look && s.limit.grown < s.MaxTotal/lookShare && now.Sub(s.limit.looked) < lookEvery {
		return
	}
	s.limit.look, s.limit.grown, s.limit.looked = false, 0, now
	err := errors.Join(s.removeOldest(ctx), s.retireLargest(ctx))
	if err != nil && !s.limit.failing {
		s.Logger.Warn("Cannot keep W&B runs below max_disk_megabytes", zap.String("directory", s.Directory), zap.Error(err))
	}
	s.limit.failing = err != nil
}

// removeOldest removes the oldest finished runs while all together take more room
// than they may. One that cannot be removed is an error only if others do not do.
func (s *Store) removeOldest(ctx context.Context) error {
	done, total, err := s.finished()
	if err != nil {
		return fmt.Errorf("looking for finished runs: %w", err)
	}
	total += s.open()
	slices.SortFunc(done, func(a, b finished) int {
		return cmp.Or(a.changed.Compare(b.changed), strings.Compare(a.folder, b.folder))
	})
	var errs []error
	for _, f := range done {
		if total <= s.MaxTotal || s.over(ctx) {
			return nil
		}
		removed, err := s.remove(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("removing a finished run: %w", err))
		}
		if removed {
			total -= f.size
		}
	}
	if total <= s.MaxTotal {
		return nil
	}
	return errors.Join(errs...)
}

// retireLargest ends and removes the largest open runs while these alone take more
// room than all may. The next record of their subjects goes into new ones. Those that
// another collector writes do not count: it would be the end of all of ours.
func (s *Store) retireLargest(ctx context.Context) error {
	for s.open() > s.MaxTotal && !s.over(ctx) {
		key, r := s.largest()
		if r == nil {
			return nil
		}
		if err := s.finish(key); err != nil {
			return err
		}
		f := finished{folder: filepath.Dir(r.path), path: r.path, size: r.log.Size()}
		if _, err := s.remove(f); err != nil {
			return fmt.Errorf("removing the largest run: %w", err)
		}
	}
	return nil
}

// over tells whether there is no more time; the next call goes on then.
func (s *Store) over(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	s.limit.look = true
	return true
}

// open returns the room that the open runs take.
func (s *Store) open() (size int64) {
	for _, r := range s.runs {
		size += r.log.Size()
	}
	return size
}

// largest returns the largest open run, but none that a record is being written into.
func (s *Store) largest() (key string, largest *run) {
	for k, r := range s.runs {
		if r.appended == nil && (largest == nil || r.log.Size() > largest.log.Size()) {
			key, largest = k, r
		}
	}
	return key, largest
}

// finished lists the runs of ours that are not open here, and the room that they take.
func (s *Store) finished() (done []finished, total int64, err error) {
	entries, err := os.ReadDir(s.Directory)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil // it is made with the first run
	}
	if err != nil {
		return nil, 0, err
	}
	open := make(map[string]bool, len(s.runs))
	for _, r := range s.runs {
		open[r.path] = true
	}
	for _, entry := range entries {
		path, isRun := s.logOf(entry.Name())
		if !entry.IsDir() || !isRun || open[path] || !s.isOurs(entry.Name()) {
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		total += info.Size()
		done = append(done, finished{folder: filepath.Dir(path), path: path, size: info.Size(), changed: info.ModTime()})
	}
	return done, total, nil
}

// isOurs tells whether the log in a folder was written by us.
func (s *Store) isOurs(folder string) bool {
	path, isRun := s.logOf(folder)
	if !isRun {
		return false
	}
	ours, known := s.limit.ours[folder]
	if known {
		return ours
	}
	producer, err := producerOf(path)
	if err != nil || producer == "" {
		return false // perhaps it can be told the next time: it may be just begun
	}
	if len(s.limit.ours) >= maxKnown {
		clear(s.limit.ours)
	}
	ours = s.isProducer(producer)
	s.limit.ours[folder] = ours
	return ours
}

func (s *Store) isProducer(text string) bool { return strings.HasPrefix(text, s.Producer.Name+" ") }

// producerOf reads who began a log; empty for what is no log.
func producerOf(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return producerIn(f)
}

func producerIn(f *os.File) (string, error) {
	head := make([]byte, wandbfile.HeaderSize)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	producer, _ := wandbfile.Producer(head[:n])
	return producer, nil
}

// remove removes a run of ours, unless another collector writes it. Of its folder
// only what we wrote goes; what others have put there stays, and the folder with it.
func (s *Store) remove(f finished) (removed bool, err error) {
	log, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	producer, err := producerIn(log) // what was remembered may be of another file
	free := s.limit.ended[f.path] || unused(log, s.Now().Sub(f.changed))
	if err := errors.Join(err, log.Close()); err != nil || !free || !s.isProducer(producer) {
		return false, err
	}
	if err := os.Remove(f.path); err != nil {
		return false, err
	}
	delete(s.limit.ended, f.path)
	_ = os.Remove(f.folder) // fails if it is not empty
	s.Logger.Info("Removed the oldest W&B run, to stay below max_disk_megabytes", zap.String("path", f.path), zap.Int64("bytes", f.size))
	s.Did(Work{Removed: 1})
	return true, nil
}
