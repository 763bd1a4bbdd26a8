// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// namespaces gives a child its own mounts, where the system lets it.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

// inMount runs the test in a child with its own mounts, and returns an empty
// directory there. It is empty in the parent, whose work is done then.
func inMount(t *testing.T, options string) (directory string) {
	t.Helper()
	directory = os.Getenv(childVariable)
	if directory == "" {
		c := child(t, t.TempDir())
		c.SysProcAttr = namespaces()
		runChild(t, c)
		return ""
	}
	if err := unix.Mount("wandbsys", directory, "tmpfs", 0, options); err != nil {
		t.Skipf("a file system cannot be mounted: %v", err)
	}
	return directory
}

// fill takes all room but so many bytes.
func fill(t *testing.T, directory string, but int64) (free func()) {
	t.Helper()
	var room unix.Statfs_t
	require.NoError(t, unix.Statfs(directory, &room))
	path := filepath.Join(directory, "filler")
	if size := int64(room.Bavail)*room.Bsize - but; size > 0 {
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
	}
	return func() { require.NoError(t, os.RemoveAll(path)) }
}

func TestAFullDisk(t *testing.T) {
	directory := inMount(t, "size=1m")
	if directory == "" {
		return
	}
	p := newPlace(t, in(filepath.Join(directory, "wandb")))
	var free func()
	exhausted(t, p, func() { free = fill(t, directory, 20_000) }, func() { free() })

	free = fill(t, directory, 0)
	what := tree(t, p.Directory)
	r := at(99, value("n", 99))
	for range 3 {
		require.ErrorIs(t, p.Write(host("b"), r), unix.ENOSPC)
	}
	assert.Equal(t, what, tree(t, p.Directory), "nothing is left behind")
	free()
	p.write(host("b"), r)
	assert.Equal(t, []string{"99"}, wandbfiletest.Texts("n", readLog(t, p.runs["host b"].path)))
	require.NoError(t, p.Close())
}

func TestADiskWithoutRoomForNames(t *testing.T) {
	directory := inMount(t, "size=1m,nr_inodes=4")
	if directory == "" {
		return
	}
	wandb := filepath.Join(directory, "wandb")
	require.NoError(t, os.Mkdir(wandb, 0o750))
	put(t, "", directory, "filler") // one is left, for the folder
	p := newPlace(t, in(wandb))
	r := at(0, value("n", 1))
	for range 3 {
		require.ErrorIs(t, p.Write(host("a"), r), unix.ENOSPC)
	}
	assert.Empty(t, tree(t, wandb))
	require.NoError(t, os.Remove(filepath.Join(directory, "filler")))
	p.write(host("a"), r)
	assert.Equal(t, []string{"1"}, wandbfiletest.Texts("n", p.read()...))
	assert.Equal(t, 1, p.logged("No link to the latest run"))
	require.NoError(t, p.Close())
}

func TestAReadOnlyDisk(t *testing.T) {
	directory := inMount(t, "size=1m")
	if directory == "" {
		return
	}
	wandb := filepath.Join(directory, "wandb")
	require.NoError(t, os.Mkdir(wandb, 0o750))
	p := newPlace(t, in(wandb), limited(10_000))
	finished := p.finishedRun("a", 0, 20_000)
	before := tree(t, directory)
	require.NoError(t, unix.Mount("", directory, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	r := at(0, value("n", 1))
	for range 3 {
		require.ErrorIs(t, p.Write(host("b"), r), unix.EROFS)
		p.tend()
	}
	assert.Equal(t, before, tree(t, directory))
	assert.Equal(t, 1, p.logged("Cannot keep W&B runs below"))
	require.NoError(t, unix.Mount("", directory, "", unix.MS_REMOUNT, ""))
	p.write(host("b"), r)
	p.tend()
	assertMissing(t, finished)
	require.NoError(t, p.Close())
}

func TestARunThatCannotBeRemovedDoesNotKeepTheOthers(t *testing.T) {
	directory := inMount(t, "size=1m")
	if directory == "" {
		return
	}
	p := newPlace(t, in(filepath.Join(directory, "wandb")), limited(30_000))
	oldest := p.finishedRun("a", 0, 20_000)
	next := p.finishedRun("b", 1, 20_000)
	require.NoError(t, unix.Mount(oldest, oldest, "", unix.MS_BIND, ""), "what is mounted on cannot be removed")
	p.tend()
	assertExists(t, oldest)
	assertMissing(t, next)
	assert.Zero(t, p.logged("Cannot keep"), "the limit is kept")

	last := p.finishedRun("c", 2, 5_000)
	p.write(host("d"), padded(3, 20_000))
	p.tend()
	p.tend()
	assertMissing(t, last)
	assert.Equal(t, 1, p.logged("Cannot keep"))
	require.NoError(t, unix.Unmount(oldest, unix.MNT_DETACH))
	p.tend()
	assertMissing(t, oldest)
	assertExists(t, p.runs["host d"].path)
	require.NoError(t, p.Close())
}

// breakLog gives a run a file that the system refuses to write into.
func (p *place) breakLog(key string) {
	p.t.Helper()
	file, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	require.NoError(p.t, err)
	if _, err := file.Write([]byte{0}); !errors.Is(err, unix.EIO) { // address 0 is nobody's
		p.t.Skipf("the file can be written, or fails otherwise: %v", err)
	}
	require.NoError(p.t, p.runs[key].file.Close())
	p.runs[key].file = file
}

func TestABrokenLogIsLeft(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, value("n", 0)))
	p.breakLog("host a")
	r := at(1, value("n", 1))
	require.ErrorIs(t, p.Write(host("a"), r), unix.EIO)
	p.write(host("a"), r)
	p.write(host("a"), at(2, value("n", 2)))
	require.NoError(t, p.Close())
	files := p.read()
	require.Len(t, files, 2)
	assert.Equal(t, []string{"0"}, wandbfiletest.Texts("n", files[0]))
	assert.Nil(t, exitOf(files[0]))
	assert.Equal(t, []string{"1", "2"}, wandbfiletest.Texts("n", files[1]))
	assert.NotNil(t, exitOf(files[1]))
	assert.Equal(t, 1, p.logged("is broken"))
	assert.Zero(t, p.work.Opened)
}

func TestABrokenLogHasNoEnd(t *testing.T) {
	p := newPlace(t)
	p.write(host("a"), at(0, value("n", 0)))
	p.breakLog("host a")
	require.NoError(t, p.Finish("host a"))
	assert.Empty(t, p.runs)
	assert.Equal(t, 1, p.logged("is broken"))
	p.write(host("a"), at(1, value("n", 1)))
	assert.Equal(t, []string{"0", "1"}, wandbfiletest.Texts("n", p.read()...))
}
