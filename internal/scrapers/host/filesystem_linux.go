// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

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

	// where is the path without symbolic links as far as it is known: a call
	// that hangs has said what it hangs on.
	where place
}

func newFilesystemSource(path, rootPath string, statfs func(string, *unix.Statfs_t) error) *filesystemSource {
	s := &filesystemSource{path: path, rootPath: rootPath, statfs: statfs}
	s.where.set(path)
	return s
}

// place hands a path over from a call that may never come back.
type place struct {
	mu   sync.Mutex
	path string
}

func (p *place) set(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

func (p *place) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.path
}

func (s *filesystemSource) read(context.Context) (*filesystemReading, error) {
	if resolved := resolveTelling(s.rootPath, s.path, s.where.set); resolved != s.resolved || s.seen == "" {
		s.resolved, s.seen = resolved, filepath.Join("/", s.rootPath, resolved)
	}
	s.where.set(s.resolved)
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
	return resolveTelling(rootPath, path, func(string) {})
}

// resolveTelling is resolve, which tells each path that it is about to look at:
// that may hang, and is then on the mount that is dead.
func resolveTelling(rootPath, path string, tell func(string)) string {
	if path == "/" {
		return path
	}
	root := filepath.Join("/", rootPath)
	resolved, err := securejoin.SecureJoinVFS(root, path, telling{root, tell})
	if err != nil {
		return path
	}
	return below(root, resolved)
}

// below returns the path on the machine of one that we see below its root.
func below(root, path string) string {
	if root == "/" {
		return filepath.Clean(path)
	}
	return filepath.Join("/", strings.TrimPrefix(filepath.Clean(path), root))
}

// telling looks at files, and tells which one before.
type telling struct {
	root string
	tell func(string)
}

// Lstat implements securejoin.VFS.
func (v telling) Lstat(name string) (fs.FileInfo, error) {
	v.tell(below(v.root, name))
	return os.Lstat(name)
}

// Readlink implements securejoin.VFS.
func (telling) Readlink(name string) (string, error) { return os.Readlink(name) }

// askFilesystems puts a question for each path into the batch.
func (s *linuxSource) askFilesystems(b *guard.Batch) []*guard.Pending[*filesystemReading] {
	s.asked = s.asked[:0]
	for _, f := range s.filesystems {
		s.asked = append(s.asked, guard.Add(b, &f.slot, f.read))
	}
	return s.asked
}

// addFilesystems takes the answers. Where a path leads is known also when the
// file system there fails or hangs.
func (s *linuxSource) addFilesystems(r *reading, pending []*guard.Pending[*filesystemReading]) {
	r.filesystems = make([]filesystemReading, 0, len(pending))
	for i, p := range pending {
		if f := collect(r, p, "statfs "+s.filesystems[i].path); f != nil {
			r.filesystems = append(r.filesystems, *f)
		}
	}
}
