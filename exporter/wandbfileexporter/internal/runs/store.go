// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package runs writes W&B runs into a directory: a folder and a log for each, one
// after the other for the same machine or workload.
package runs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/template"
)

// Sync says when what was written is made to survive a crash of the machine.
type Sync string

const (
	// SyncNever leaves it to the system.
	SyncNever Sync = "never"
	// SyncInterval does it for each run once per Options.Interval, if it has news.
	SyncInterval Sync = "interval"
	// SyncRecord does it after each record.
	SyncRecord Sync = "record"
)

// maxHistories bounds the remembered subjects that have no open run.
const maxHistories = 1 << 14

// Names are templates of what a run is called, filled with the attributes of its resource.
type Names struct {
	Entity, Project, Group, JobType, DisplayName, Notes template.Template
	Tags                                                []template.Template
}

// Options say how runs are written.
type Options struct {
	Directory string
	Names     Names

	// MaxSize in bytes and MaxAge end a run and begin the next one of its subject;
	// 0 is no limit.
	MaxSize int64
	MaxAge  time.Duration
	// MaxTotal is how many bytes all runs of ours in the directory may have, 0 for
	// any number.
	MaxTotal int64
	Sync     Sync
	Interval time.Duration

	// Producer is named in the logs, and tells ours from others: Name, a blank, the version.
	Producer Producer
	Logger   *zap.Logger
	// Now is the clock.
	Now func() time.Time
	// Did is told what was done.
	Did func(Work)
}

// Producer is who writes.
type Producer struct{ Name, Version string }

// Work is what was done.
type Work struct {
	// Opened is the change in the number of open runs.
	Opened, Removed, Records int64
	// Bytes counts those written.
	Bytes int64
}

// Store holds the runs of a directory. It is not for concurrent use, and all of
// its methods may block as long as the file system does.
type Store struct {
	Options
	runs      map[string]*run
	histories map[string]*history
	limit     limit
	scratch   scratch
}

// history is what the next run of a subject continues.
type history struct {
	// id is that of its first run, number how many it has had.
	id     string
	number int
	// until and counters are those of the last run, where the next one follows at once.
	until    time.Time
	counters map[string]*counter
}

// New returns a Store. It touches nothing yet.
func New(o Options) *Store {
	return &Store{Options: o, runs: map[string]*run{}, histories: map[string]*history{}, limit: newLimit()}
}

// Write appends a record to the run of its subject, and begins one if need be. After
// an error the same record is to be written again; it will be in the log once.
func (s *Store) Write(subject *Subject, r *Record) error {
	current, err := s.runFor(subject, r)
	if err != nil {
		return err
	}
	before := current.log.Size()
	if current.appended != r {
		s.Did(Work{Records: current.append(r, &s.scratch)})
		current.appended = r
	}
	s.limit.grown += current.log.Size() - before
	if err := current.log.Flush(); err != nil {
		return fmt.Errorf("writing into a run: %w", err)
	}
	if s.Sync == SyncRecord {
		if err := current.sync(s.Now()); err != nil {
			return err
		}
	}
	current.appended = nil
	return nil
}

// runFor returns the run that the record goes into.
func (s *Store) runFor(subject *Subject, r *Record) (*run, error) {
	current, open := s.runs[subject.Key]
	if open && current.gone() {
		s.Logger.Error("A run was removed while it was written; going on in a new one", zap.String("path", current.path))
		s.leave(subject.Key)
		open = false
	}
	if open && current.broken {
		s.abandon(subject.Key)
		open = false
	}
	if open && (current.appended == r || !s.due(current, r)) {
		return current, nil
	}
	if open {
		if err := s.finish(subject.Key); err != nil {
			return nil, err
		}
	}
	return s.begin(subject, r)
}

// due tells whether a run has to end, that the next one may begin with a record.
func (s *Store) due(r *run, next *Record) bool {
	return r.exited ||
		(s.MaxSize > 0 && r.filled && r.log.Size()+mostBytes(next) > s.MaxSize) ||
		(s.MaxAge > 0 && s.Now().Sub(r.opened) >= s.MaxAge)
}

// begin begins the next run of a subject.
func (s *Store) begin(subject *Subject, first *Record) (*run, error) {
	h, known := s.histories[subject.Key]
	if !known {
		if len(s.histories) >= maxHistories {
			maps.DeleteFunc(s.histories, func(key string, _ *history) bool { return s.runs[key] == nil })
		}
		h = &history{id: newID()}
		s.histories[subject.Key] = h
	}
	id := h.id
	if h.number > 0 {
		id += "-" + strconv.Itoa(h.number+1)
	}
	start := first.Begin
	if !h.until.IsZero() && !h.until.After(first.Time) { // or the clock was set back
		start = h.until
	}
	r, err := s.create(subject, id, start)
	if err != nil {
		return nil, err
	}
	r.counters = h.counters
	if r.counters == nil {
		r.counters = map[string]*counter{}
	}
	h.number++
	h.until, h.counters = time.Time{}, nil
	s.runs[subject.Key] = r
	s.Did(Work{Opened: 1})
	s.limit.grown += r.log.Size()
	s.limit.look = true
	s.Logger.Info("Writing a W&B run", zap.String("of", subject.Key), zap.String("path", r.path))
	return r, nil
}

// newID returns a run's id as W&B makes them, of lower case letters and digits. It is
// longer, since thousands of machines make some, and never one of a user's run.
func newID() string {
	const letters, length = "abcdefghijklmnopqrstuvwxyz0123456789", 12
	id := make([]byte, length)
	for i := range id {
		id[i] = letters[randomByte(len(letters))]
	}
	return string(id)
}

// randomByte returns a number below n, each as likely as the others.
func randomByte(n int) int {
	var b [1]byte
	for {
		_, _ = rand.Read(b[:]) // does not fail
		if int(b[0]) < 256/n*n {
			return int(b[0]) % n
		}
	}
}

// Finish ends the run of a subject that has no more records, if there is one. After
// an error it can be called again.
func (s *Store) Finish(key string) error {
	if s.runs[key] != nil {
		if err := s.finish(key); err != nil {
			return err
		}
	}
	if h := s.histories[key]; h != nil {
		h.until, h.counters = time.Time{}, nil // it is not known what was between
	}
	return nil
}

// finish ends a run, and remembers what the next one goes on from.
func (s *Store) finish(key string) error {
	r := s.runs[key]
	before := r.log.Size()
	switch err := r.exit(); {
	case err != nil && r.broken:
		s.abandon(key)
		return nil
	case err != nil:
		return fmt.Errorf("ending a run: %w", err)
	}
	s.limit.grown += r.log.Size() - before
	if s.Sync != SyncNever {
		if err := r.sync(s.Now()); err != nil {
			return err
		}
	}
	s.leave(key)
	return nil
}

// abandon leaves a run whose log is broken: to try again would keep what comes after
// from being written, for ever.
func (s *Store) abandon(key string) {
	s.Logger.Error("The log of a run is broken, and has no end; going on in a new one", zap.String("path", s.runs[key].path))
	s.leave(key)
}

// leave closes an open run, and remembers where the next one goes on.
func (s *Store) leave(key string) {
	r := s.runs[key]
	delete(s.runs, key)
	if h := s.histories[key]; h != nil {
		h.until, h.counters = r.last, rebased(r.counters)
	}
	s.limit.end(r.path)
	if err := r.file.Close(); err != nil { // NFS says only now that the server's disk is full
		s.Logger.Error("The end of a W&B run may be missing", zap.String("path", r.path), zap.Error(err))
	}
	s.Did(Work{Opened: -1})
}

// Tend does what is due from time to time: it makes runs safe, and removes the
// oldest ones. That they cannot be removed is logged, and no error: it keeps nothing
// from being written. When ctx ends it stops, without an error; the next call goes on.
func (s *Store) Tend(ctx context.Context) error {
	s.enforce(ctx)
	if s.Sync != SyncInterval {
		return nil
	}
	var errs []error
	for _, r := range s.runs {
		if ctx.Err() != nil {
			break
		}
		if r.dirty && s.Now().Sub(r.synced) >= s.Interval {
			errs = append(errs, r.sync(s.Now()))
		}
	}
	return errors.Join(errs...)
}

// Close ends all runs. One that cannot be ended is closed as it is, and returned as
// an error.
func (s *Store) Close() error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.runs)) {
		if err := s.Finish(key); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
			s.leave(key)
		}
	}
	return errors.Join(errs...)
}
