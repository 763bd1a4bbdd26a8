// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// filesystemSource asks the file system at one configured path.
type filesystemSource struct {
	slot     guard.Slot
	path     string
	rootPath string
	statfs   func(path string, st *unix.Statfs_t) error
}

func (s *filesystemSource) read(context.Context) (*filesystemReading, error) {
	resolved := resolve(s.rootPath, s.path)
	var st unix.Statfs_t
	if err := s.stat(filepath.Join("/", s.rootPath, resolved), &st); err != nil {
		return nil, err
	}
	// Block counts are in fragments. On virtiofs f_bsize is 256 times larger.
	unit := uint64(max(st.Frsize, 0))
	if unit == 0 {
		unit = uint64(max(st.Bsize, 0))
	}
	return &filesystemReading{
		path:      s.path,
		resolved:  resolved,
		blocks:    st.Blocks > 0,
		used:      (st.Blocks - min(st.Blocks, st.Bfree)) * unit,
		available: st.Bavail * unit,
	}, nil
}

func (s *filesystemSource) stat(path string, st *unix.Statfs_t) error {
	for {
		err := s.statfs(path, st)
		if err == nil {
			return nil
		}
		if err != unix.EINTR { //nolint:errorlint // a bare errno
			return fmt.Errorf("statfs: %w", err)
		}
	}
}

// resolve returns the path without symbolic links, which below a root path
// must not lead out of it. What cannot be resolved stays as it is: statfs says
// what is wrong with it.
func resolve(rootPath, path string) string {
	if path == "/" {
		return path
	}
	if rootPath == "" || rootPath == "/" {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			return resolved
		}
		return path
	}
	resolved, err := securejoin.SecureJoin(rootPath, path)
	if err != nil {
		return path
	}
	inside, err := filepath.Rel(rootPath, resolved)
	if err != nil {
		return path
	}
	return filepath.Join("/", inside)
}

// askFilesystems puts a question for each path into the batch.
func (s *linuxSource) askFilesystems(b *guard.Batch) []*guard.Pending[*filesystemReading] {
	pending := make([]*guard.Pending[*filesystemReading], 0, len(s.filesystems))
	for _, f := range s.filesystems {
		pending = append(pending, guard.Add(b, &f.slot, f.read))
	}
	return pending
}

// addFilesystems takes the answers. The device under a path stays known while
// its file system does not answer.
func (s *linuxSource) addFilesystems(r *reading, pending []*guard.Pending[*filesystemReading]) {
	r.filesystems = make([]filesystemReading, 0, len(pending))
	for i, p := range pending {
		if f := collect(r, p, s.filesystems[i].path); f != nil {
			r.filesystems = append(r.filesystems, *f)
			s.resolved[i] = f.resolved
		}
	}
}
