// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
)

const (
	// maxEnviron is how much of an environment is read.
	maxEnviron = 128 << 10
	// maxValue bounds each value that is kept, in bytes.
	maxValue = 256
	// maxLine bounds of what a value is made.
	maxLine = 1024
)

// Names of the environment. Nothing but these is ever kept: the rest holds
// secrets.
const (
	envWandbProject = "WANDB_PROJECT"
	envWandbEntity  = "WANDB_ENTITY"
	envWandbGroup   = "WANDB_RUN_GROUP"
	envWandbJobType = "WANDB_JOB_TYPE"
	envWandbSweepID = "WANDB_SWEEP_ID"

	envSlurmJobID   = "SLURM_JOB_ID"
	envSlurmJobName = "SLURM_JOB_NAME"
	envSlurmStepID  = "SLURM_STEP_ID"

	// envHostname is the pod's name, in Kubernetes.
	envHostname = "HOSTNAME"
	// envNVIDIADevices are the devices of a container, by uuid.
	envNVIDIADevices = "NVIDIA_VISIBLE_DEVICES"
)

// launcher is where one kind of launcher puts the place of a process.
type launcher struct {
	rank, localRank, worldSize string
}

// launchers are in the order in which they win: what starts processes within a
// Slurm step knows better than Slurm.
var launchers = []launcher{
	{"RANK", "LOCAL_RANK", "WORLD_SIZE"}, // torchrun
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"}, // MPICH, Intel MPI
	{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
}

// allowed are the names that are kept, each with a bit of its own.
var allowed = allowedNames()

func allowedNames() map[string]uint32 {
	all := []string{
		envWandbProject, envWandbEntity, envWandbGroup, envWandbJobType, envWandbSweepID,
		envSlurmJobID, envSlurmJobName, envSlurmStepID, envHostname, envNVIDIADevices,
	}
	for _, l := range launchers {
		all = append(all, l.rank, l.localRank, l.worldSize)
	}
	names := make(map[string]uint32, len(all))
	for i, name := range all {
		names[name] = 1 << i
	}
	return names
}

// Job is the place of a process in a distributed job, as launchers tell it in
// the environment.
type Job struct {
	Rank, LocalRank, WorldSize identity.Number
	SlurmJob, SlurmStep        string
	// slurmRank says that the numbers are Slurm's.
	slurmRank bool
}

// isRank tells whether the place in the job is known.
func (j *Job) isRank() bool { return j.Rank.Known || j.LocalRank.Known }

// environment is what is kept of the environment that a process was started
// with. Processes with the same share one.
type environment struct {
	values map[string]string
	job    Job
}

// get returns a value; a missing environment has none.
func (e *environment) get(name string) string {
	if e == nil {
		return ""
	}
	return e.values[name]
}

func (e *environment) place() Job {
	if e == nil {
		return Job{}
	}
	return e.job
}

// environments makes one environment of equal ones.
type environments struct {
	known map[string]*environment
	// size is that of the keys of known.
	size int
	// kept collects the lines that count, as the key.
	kept []byte
}

// maxEnvironments bounds, in bytes, what is remembered of processes that may be
// gone.
const maxEnvironments = 4 << 20

// parse keeps what is allowed of an environment: NAME=value, each ended by a
// NUL. The last one is dropped when it is cut off. It returns nil when there is
// nothing to keep.
func (e *environments) parse(content []byte) *environment {
	e.kept = e.kept[:0]
	seen := uint32(0)
	for len(content) > 0 {
		line, rest, whole := bytes.Cut(content, []byte{0})
		content = rest
		name, value, ok := bytes.Cut(line, []byte{'='})
		bit := allowed[string(name)]
		if !whole || !ok || bit&^seen == 0 { // of two getenv finds the first
			continue
		}
		seen |= bit
		e.kept = append(append(e.kept, name...), '=')
		e.kept = append(append(e.kept, clean(string(value[:min(len(value), maxLine)]))...), 0)
	}
	if len(e.kept) == 0 {
		return nil
	}
	if known, ok := e.known[string(e.kept)]; ok {
		return known
	}
	if e.size > maxEnvironments || e.known == nil {
		e.known, e.size = map[string]*environment{}, 0
	}
	e.size += len(e.kept)
	parsed := newEnvironment(e.kept)
	e.known[string(e.kept)] = parsed
	return parsed
}

func newEnvironment(lines []byte) *environment {
	e := &environment{values: map[string]string{}}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(lines), "\x00"), "\x00") {
		name, value, _ := strings.Cut(line, "=")
		e.values[name] = value
	}
	e.job = e.findJob()
	return e
}

func (e *environment) findJob() Job {
	j := Job{SlurmJob: slurmNumber(e.values[envSlurmJobID])}
	if j.SlurmJob != "" {
		j.SlurmStep = slurmStepName(e.values[envSlurmStepID])
	}
	for i, l := range launchers {
		j.Rank, j.LocalRank, j.WorldSize = e.number(l.rank), e.number(l.localRank), e.number(l.worldSize)
		if j.Rank.Known || j.LocalRank.Known {
			j.slurmRank = i == len(launchers)-1
			return j
		}
	}
	j.WorldSize = identity.Number{} // of nobody
	return j
}

// slurmNumber keeps what can be the number of a job or a step: anybody can write
// anything into an environment.
func slurmNumber(text string) string {
	if n, err := strconv.ParseUint(text, 10, 32); err != nil || strconv.FormatUint(n, 10) != text {
		return ""
	}
	return text
}

// slurmStepName is the step as control groups name it: Slurm has numbers for
// those that are none.
func slurmStepName(text string) string {
	switch number := slurmNumber(text); number {
	case "4294967290":
		return "interactive"
	case "4294967291":
		return "batch"
	case "4294967292":
		return "extern"
	default:
		return number
	}
}

// number reads a number that is not negative.
func (e *environment) number(name string) identity.Number {
	n, err := strconv.ParseUint(e.values[name], 10, 31)
	if err != nil {
		return identity.Number{}
	}
	return identity.Known(int(n))
}

// clean makes a text of a stranger fit for a label: without control characters,
// valid, and not too long.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return cut(s, maxValue)
}

// cut cuts a text where a character ends.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
