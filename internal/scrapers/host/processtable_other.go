// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !windows

package host

import (
	"context"

	"github.com/shirou/gopsutil/v4/process"
)

// readProcessTable asks each process for its parent.
func readProcessTable(ctx context.Context) (*processTable, error) {
	all, err := process.ProcessesWithContext(ctx)
	if err != nil {
		return nil, err
	}
	t := &processTable{}
	for _, p := range all {
		if parent, err := p.PpidWithContext(ctx); err == nil {
			t.add(p.Pid, parent)
		}
	}
	return t, nil
}
