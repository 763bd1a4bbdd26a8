// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Run is a live run of W&B: one whose transaction log wandb-core has open.
type Run struct {
	ID string
	// Mode is online or offline; empty when the folder's name does not tell.
	Mode string
	// Started is the stamp in the name of the run's folder, YYYYMMDD_HHMMSS.
	Started string
	// CorePid is wandb-core's pid, TargetPid that of the training process as it is
	// seen here; 0 when that is gone or cannot be found.
	CorePid, TargetPid int
	// started is the place in a distributed job that wandb-core's environment tells:
	// scripts may set it after their start.
	started                                  Job
	Project, Entity, Group, JobType, SweepID string
}

// coreName is the name (comm) of W&B's service process.
const coreName = "wandb-core"

// sideNames are the processes that wandb-core starts to read accelerators, as
// far as their names (15 characters) go. All but the first could be anybody's.
var sideNames = map[string]bool{
	"wandb-xpu":       true,
	"gpu_stats":       false,
	"nvidia_gpu_stat": false,
	"apple_gpu_stats": false,
}

// wandbBin is where W&B's Python package has its programs.
const wandbBin = "/wandb/bin/"

// coreArguments is what wandb-core's command line tells.
type coreArguments struct {
	// pid is the training process', in wandb-core's own pid namespace; 0 when it
	// is not told.
	pid int
	// detached cores live on without the process that started them.
	detached bool
}

func parseCoreArguments(cmdline []byte) coreArguments {
	var a coreArguments
	awaitsPid := false
	if len(cmdline) >= maxCommand { // the last one is cut off
		cmdline = cmdline[:bytes.LastIndexByte(cmdline, 0)+1]
	}
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		text := string(arg)
		if awaitsPid {
			a.setPid(text)
			awaitsPid = false
			continue
		}
		// One dash or two, as in all programs written in Go.
		flag, isFlag := strings.CutPrefix(text, "-")
		if !isFlag {
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(flag, "-"), "=")
		switch name {
		case "pid":
			a.setPid(value)
			awaitsPid = !hasValue
		case "detached":
			on, err := strconv.ParseBool(value)
			a.detached = !hasValue || (on && err == nil)
		}
	}
	return a
}

func (a *coreArguments) setPid(text string) {
	if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
		a.pid = pid
	}
}

// runFolder is the name of a run's folder.
var runFolder = regexp.MustCompile(`^(run|offline-run)-(\d{8}_\d{6})-(.+)$`)

const (
	deletedSuffix = " (deleted)"
	internalLog   = "debug-internal.log"
)

// liveRuns finds the runs of the files that a wandb-core has open: those of
// which it writes the transaction log. A run without one (it can be turned off)
// is known by its log of messages. A file that was deleted belongs to a run that
// is over; so is one of which the transaction log is only read. The one that
// started first comes first.
func liveRuns(open []string, onlyRead ...string) []Run {
	runs, logged := map[string]Run{}, map[string]bool{}
	for _, name := range onlyRead {
		logged[path.Dir(name)] = true
	}
	for _, name := range open {
		file, deleted := strings.CutSuffix(name, deletedSuffix)
		id, ok := transactionLog(path.Base(file))
		if !ok {
			continue
		}
		folder := path.Dir(file)
		logged[folder] = true
		if !deleted {
			runs[folder+"/"+id] = newRun(id, path.Base(folder))
		}
	}
	for _, name := range open {
		logs := path.Dir(name)
		folder := path.Dir(logs)
		if path.Base(name) != internalLog || path.Base(logs) != "logs" || logged[folder] {
			continue
		}
		if m := runFolder.FindStringSubmatch(path.Base(folder)); m != nil && clean(m[3]) != "" {
			runs[folder] = newRun(m[3], path.Base(folder))
		}
	}
	sorted := slices.SortedFunc(maps.Values(runs), byStart)
	return slices.Compact(sorted)
}

// byStart puts the run that started first first.
func byStart(a, b Run) int {
	return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Mode, b.Mode))
}

// transactionLog returns the run of a file run-ID.wandb.
func transactionLog(base string) (id string, ok bool) {
	id, ok = strings.CutSuffix(base, ".wandb")
	if !ok {
		return "", false
	}
	id, ok = strings.CutPrefix(id, "run-")
	return id, ok && clean(id) != ""
}

func newRun(id, folder string) Run {
	r := Run{ID: clean(id)}
	m := runFolder.FindStringSubmatch(folder)
	if m == nil {
		return r
	}
	r.Mode, r.Started = "online", m[2]
	if m[1] == "offline-run" {
		r.Mode = "offline"
	}
	return r
}

// describe takes what the environment tells of a run. wandb-core's was made when
// it was started, after the script had set what it wanted; but a detached core's
// is that of whoever started it, which with several runs may not be theirs.
func (r *Run) describe(core, target *environment) {
	of := func(name string) string { return cmp.Or(core.get(name), target.get(name)) }
	r.Project, r.Entity = of(envWandbProject), of(envWandbEntity)
	r.Group, r.JobType, r.SweepID = of(envWandbGroup), of(envWandbJobType), of(envWandbSweepID)
}
