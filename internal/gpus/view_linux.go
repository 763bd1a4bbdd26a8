// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"slices"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

// View returns the latest view of the workloads that is younger than the age, or
// a new one where that does not know one of the processes.
func View(ctx context.Context, workloads *workload.Discovery, age time.Duration, pids []int) (*workload.View, error) {
	view, err := workloads.Recent(ctx, age)
	if err != nil || !slices.ContainsFunc(pids, func(pid int) bool { return view.Snapshot.Find(pid) == nil }) {
		return view, err
	}
	return workloads.Take(ctx)
}
