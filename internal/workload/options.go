// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"regexp"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/kubelet"
)

// Limits where nothing is configured.
const (
	DefaultMaxWorkloads = 500
	DefaultMaxProcesses = 20_000
)

// Kind is what makes something a workload. Of several that claim a process the
// first of these wins, the most specific one.
type Kind string

// The kinds.
const (
	// KindProcess is the configured process.
	KindProcess Kind = "process"
	// KindRun is a run of W&B: the process that called wandb.init, and its tree.
	KindRun Kind = "run"
	// KindStep is a step of a Slurm job.
	KindStep Kind = "step"
	// KindContainer is a container, in a pod or not.
	KindContainer Kind = "container"
	// KindMatch is a process that a configured rule matches, and its tree.
	KindMatch Kind = "match"
	// KindGPU is a process that holds an accelerator, and its tree.
	KindGPU Kind = "gpu"
)

// Target is the process that is measured in any case.
type Target struct {
	// Pid is the process id as seen below the root path; 0 means none.
	Pid int
	// Self asks for the collector's own process instead.
	Self bool
	// Tree includes all descendants.
	Tree bool
}

// IsSet tells whether there is a target.
func (t Target) IsSet() bool { return t.Pid > 0 || t.Self }

// Discover says what is looked for.
type Discover struct {
	Runs, Steps, Containers, GPU bool
}

// Rule matches processes. An expression that is nil matches all; one that is
// there has to match a part of the text, as in grep.
type Rule struct {
	// Name is compared with the process' name (comm), Exe with the path of its
	// program, Command with its command line, User with its user's name and id.
	Name, Exe, Command, User *regexp.Regexp
}

// Options say what workloads there are.
type Options struct {
	// RootPath is where the machine's / is seen; empty means /.
	RootPath string
	Target   Target
	Discover Discover
	Match    []Rule
	// MaxWorkloads and MaxProcesses bound what is looked into.
	MaxWorkloads, MaxProcesses int
	Logger                     *zap.Logger
}

// Names is who knows containers by name.
type Names interface {
	Containers(ctx context.Context) ([]kubelet.Container, error)
}

// IsSet tells whether there is anything to find.
func (o *Options) IsSet() bool { return o.Target.IsSet() || o.discovers() }

// discovers tells whether there is more than the target.
func (o *Options) discovers() bool { return o.Discover != Discover{} || len(o.Match) > 0 }
