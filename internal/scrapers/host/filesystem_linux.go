// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
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

	// resolved and seen are the path without symbolic links, on the machine
	// and as we see it, when it was last asked for.
	resolved, seen string
}

func (s *filesystemSource) read(context.Context) (*filesystemReading, error) {
	if resolved := resolve(s.rootPath, s.path); resolved != s.resolved || s.seen == "" {
		s.resolved, s.seen = resolved, filepath.Join("/", s.rootPath, resolved)
	}
	var st unix.Statfs_t
	if err := s.stat(s.seen, &st); err != nil {
		return nil, err
	}
	// Block counts are in fragments. On virtiofs f_bsize is 256 times larger.
	unit := uint64(max(st.Frsize, 0))
	if unit == 0 {
		unit = uint64(max(st.Bsize, 0))
	}
	return &filesystemReading{
		path:      s.path,
		resolved:  s.resolved,
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
			return err
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
	s.asked = s.asked[:0]
	for _, f := range s.filesystems {
		s.asked = append(s.asked, guard.Add(b, &f.slot, f.read))
	}
	return s.asked
}

// addFilesystems takes the answers. The device under a path stays known while
// its file system does not answer.
func (s *linuxSource) addFilesystems(r *reading, pending []*guard.Pending[*filesystemReading]) {
	r.filesystems = make([]filesystemReading, 0, len(pending))
	for i, p := range pending {
		if f := collect(r, p, "statfs "+s.filesystems[i].path); f != nil {
			r.filesystems = append(r.filesystems, *f)
			s.resolved[i] = f.resolved
		}
	}
}
