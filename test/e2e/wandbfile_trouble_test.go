// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	collectorRoles["small-disk"] = func(place string) error { return mountDisk(place, 0) }
	collectorRoles["read-only-disk"] = func(place string) error { return mountDisk(place, unix.MS_RDONLY) }
}

// mountDisk mounts a disk of 256 KiB.
func mountDisk(place string, flags uintptr) error {
	if err := unix.Mount("small", place, "tmpfs", flags|unix.MS_NOSUID|unix.MS_NODEV, "size=256k"); err != nil {
		return fmt.Errorf("mounting a disk: %w", err)
	}
	return nil
}

// in calls f in the mount namespace of the process.
func (p *process) in(f func() error) error {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.pid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		result <- func() error {
			// A thread has a mount namespace of its own only without others on its root.
			if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(fd, unix.CLONE_NEWNS)); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-result
}

// disk opens a folder as the process sees it. What is in it can be read below the
// returned path also when the process has ended.
func (p *process) disk(place string) string {
	p.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/root%s", p.pid(), place))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = f.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
}

// fileSays tells whether the exporter has logged a message.
func fileSays(p *process, level, message string) bool {
	return slices.ContainsFunc(p.logLines(level), func(line logLine) bool {
		return line.Component == "wandb_file" && strings.HasPrefix(line.Msg, message)
	})
}

const (
	cannotWrite = "Cannot write W&B runs; trying again"
	writesAgain = "Writing W&B runs again"
)

// fastRuns sends what is measured to the sink and writes it into runs, and into a file: of
// a scrape that the end cuts short the sink does not get all.
func fastRuns(s *sink, file, directory string) settings {
	return settings{receivers: fastHost, exporters: s.exporter() + "file: {path: " + file + "}\n" + wandbFile(directory, "")}
}

// checkTrouble: while runs cannot be written, the other exporter goes on, and the log
// tells why. After the cure all is in the runs, what was measured meanwhile too.
func checkTrouble(t *testing.T, p *process, s *sink, file, directory, why string, cure func()) {
	t.Helper()
	p.waitFor("the error", func() bool { return fileSays(p, "error", cannotWrite) })
	p.moreScrapes(s, 5)
	for _, line := range fileErrors(p) {
		if line.Msg == cannotWrite {
			assert.Contains(t, line.Error, why)
		}
	}
	assert.False(t, fileSays(p, "info", writesAgain))
	cure()
	p.waitFor("the end of the trouble", func() bool { return fileSays(p, "info", writesAgain) })
	p.moreScrapes(s, 2)
	p.caughtUp(s, directory)
	p.stop()
	assert.Zero(t, p.exitCode())
	files := readRuns(t, directory)
	require.Len(t, files, 1)
	checkSeries(t, readJSONLines(t, file), sdkTag, files, apartInRecord)
	checkEnd(t, files[0])
}

func jsonFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "metrics.json")
}

func TestWandbFileWhereNoDirectoryCanBe(t *testing.T) {
	s, file, obstacle := startSink(t, nil), jsonFile(t), filepath.Join(t.TempDir(), "obstacle")
	writeFile(t, obstacle, "is in the way")
	directory := filepath.Join(obstacle, "wandb")
	p := startCollector(t, fastRuns(s, file, directory))
	checkTrouble(t, p, s, file, directory, "making the directory: mkdir "+obstacle+": not a directory", func() {
		require.NoError(t, os.Remove(obstacle))
	})
}

func TestWandbFileOnAFullDisk(t *testing.T) {
	s, file, place := startSink(t, nil), jsonFile(t), t.TempDir()
	p := startCollectorIn(t, "small-disk", place, fastRuns(s, file, filepath.Join(place, "wandb")).write(t), privateMounts())
	disk := p.disk(place)
	directory, filler := filepath.Join(disk, "wandb"), filepath.Join(disk, "filler")
	p.waitFor("the first records", func() bool { return exists(directory) && runScrapes(t, directory) > 0 })
	f, err := os.Create(filler)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, f.Close())
	checkTrouble(t, p, s, file, directory, "no space left on device", func() { require.NoError(t, os.Remove(filler)) })
}

func TestWandbFileOnAReadOnlyDisk(t *testing.T) {
	s, file, place := startSink(t, nil), jsonFile(t), t.TempDir()
	p := startCollectorIn(t, "read-only-disk", place, fastRuns(s, file, filepath.Join(place, "wandb")).write(t), privateMounts())
	directory := filepath.Join(p.disk(place), "wandb")
	checkTrouble(t, p, s, file, directory, "read-only file system", func() {
		require.NoError(t, p.in(func() error {
			return unix.Mount("", place, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, "size=256k")
		}))
	})
}

// A file system that does not answer holds up neither the other exporter nor the end.
func TestWandbFileOnADiskThatNeverAnswers(t *testing.T) {
	s, dead := startSink(t, nil), filepath.Join(t.TempDir(), "dead")
	require.NoError(t, os.Mkdir(dead, 0o755))
	config := settings{
		receivers: fastHost, exporters: s.exporter() + wandbFile(filepath.Join(dead, "wandb"), "timeout: 500ms"),
	}.write(t)
	p := startCollectorIn(t, "dead-mount", dead, config, privateMounts())
	p.waitFor("the error", func() bool { return fileSays(p, "error", cannotWrite) })
	p.moreScrapes(s, 10)
	for _, line := range fileErrors(p) {
		if line.Msg == cannotWrite {
			assert.Contains(t, line.Error, "gave up after")
		}
	}
	p.stop()
}

// What was in the directory is lost, and nothing else.
func TestWandbFileWhereTheDirectoryIsRemoved(t *testing.T) {
	s, file, directory := startSink(t, nil), jsonFile(t), filepath.Join(t.TempDir(), "wandb")
	p := startCollector(t, fastRuns(s, file, directory))
	p.waitFor("the first records", func() bool { return exists(directory) && runScrapes(t, directory) > 0 })
	removed := time.Now()
	p.waitFor("the directory is gone", func() bool { return os.RemoveAll(directory) == nil })
	p.waitFor("the error", func() bool { return fileSays(p, "error", "A run was removed while it was written") })
	p.waitFor("a new run", func() bool { return exists(directory) && runScrapes(t, directory) > 2 })
	p.stop()
	assert.Zero(t, p.exitCode())
	runs := byInstance(t, readRuns(t, directory))["node"]
	require.Len(t, runs, 1)
	checkEnd(t, runs[0])

	// The first values of the new run may be of a scrape before it was removed.
	got := samplesOf(runs)["memory_percent"]
	all := readJSONLines(t, file).named("memory_percent")
	require.GreaterOrEqual(t, len(all), len(got))
	for i, p := range all[len(all)-len(got):] {
		assert.InDelta(t, p.value, got[i].Value, 0)
	}
	late := all.filter(func(p point) bool { return p.at.After(removed.Add(apartInRecord)) })
	assert.GreaterOrEqual(t, len(got), len(late), "nothing is lost afterwards")
	assert.Len(t, fileErrors(p), 1)
}
