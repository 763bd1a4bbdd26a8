// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/chips"
	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

const (
	knowsHolders = true
	// idleRecheck is how long a process that had no TPU open is left alone: to look
	// costs a system call for each of its descriptors.
	idleRecheck = 30 * time.Second
)

// openFiles finds the processes that have a TPU's device file open. There are no
// metrics of a process' own TPUs, but its process is a workload by that.
type openFiles struct {
	workloads *workload.Discovery
	rootPath  string
	interval  time.Duration
	logger    *zap.Logger
	clock     func() time.Time

	// idle are the processes that had no TPU open, by when they were looked at; held
	// are the pids of the others.
	idle    map[workload.Key]time.Time
	held    []int
	looking guard.Slot
	denied  bool
}

func newHolders(set scrapers.Settings, cfg *Config) holders {
	if !set.Workloads.IsSet() || !set.Workloads.WantsHolders() {
		return nil
	}
	return &openFiles{
		workloads: set.Workloads, rootPath: set.RootPath, logger: set.Receiver.Logger,
		interval: cfg.CommonConfig.Timing.CollectionInterval, clock: time.Now, idle: map[workload.Key]time.Time{},
	}
}

// tell implements holders.
func (o *openFiles) tell(ctx context.Context, found *chips.Found) error {
	view, err := o.workloads.Recent(ctx, o.interval)
	if err != nil {
		return err
	}
	now := o.clock()
	maps.DeleteFunc(o.idle, func(_ workload.Key, at time.Time) bool { return now.Sub(at) >= idleRecheck || now.Before(at) })
	var look []workload.Key
	var blocked []int // they may not answer, and have what they had
	for i := range view.Snapshot.Processes {
		p := &view.Snapshot.Processes[i]
		if _, idle := o.idle[p.Key()]; idle || p.Zombie {
			continue
		}
		if !p.Blocked {
			look = append(look, p.Key())
		} else if slices.Contains(o.held, p.Pid) {
			blocked = append(blocked, p.Pid)
		}
	}
	seen, err := guard.Call(ctx, &o.looking, func(context.Context) (looked, error) { return lookAt(o.rootPath, look, found.Groups), nil })
	if err != nil {
		return err
	}
	for _, key := range look {
		if !slices.Contains(seen.pids, key.Pid) {
			o.idle[key] = now
		}
	}
	if seen.denied && !o.denied {
		o.denied = true
		o.logger.Warn("Some processes cannot be looked into, so that it is not known whether they have TPUs",
			zap.String("cure", "run the collector as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"))
	}
	o.held = slices.Concat(seen.pids, blocked)
	o.workloads.SetHolders(familyName, o.held)
	return nil
}

// looked is what looks into processes found.
type looked struct {
	pids   []int
	denied bool
}

func lookAt(rootPath string, processes []workload.Key, groups []string) looked {
	var all looked
	for _, key := range processes {
		holds, err := holdsTPU(filepath.Join("/", rootPath, "proc", strconv.Itoa(key.Pid), "fd"), groups)
		all.denied = all.denied || errors.Is(err, fs.ErrPermission)
		if holds {
			all.pids = append(all.pids, key.Pid)
		}
	}
	return all
}

// deviceFile is the file of a chip. Where chips are given to processes by VFIO it has
// the number of their group, as those of other kinds of devices have.
var deviceFile = regexp.MustCompile(`^/dev/(?:accel\d+|vfio/(\d+))$`)

// holdsTPU tells whether a process has the file of a chip open.
func holdsTPU(folder string, groups []string) (bool, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(folder, e.Name()))
		if err == nil && isDeviceFile(target, groups) {
			return true, nil
		}
	}
	return false, nil
}

func isDeviceFile(path string, groups []string) bool {
	part := deviceFile.FindStringSubmatch(path)
	if part == nil {
		return false
	}
	return part[1] == "" || len(groups) == 0 || slices.Contains(groups, part[1])
}
