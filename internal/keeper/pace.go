// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"io"
	"time"
)

// A tool that runs wild waits for the collector, which would else be as busy as it.
// One that does as it is told prints a report each second at most.
const (
	// MinPause is the time from one report to the next.
	MinPause = 10 * time.Millisecond
	// maxRate is in bytes per second.
	maxRate = 16 << 20
)

// paced takes reports at a pace that costs little, until its context ends.
type paced struct {
	ctx context.Context
	to  io.Writer
	// last is when the last report came.
	last time.Time
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return len(b), nil // nobody waits for what is left
	}
	n, err := p.to.Write(b)
	p.wait(time.Duration(n) * time.Second / maxRate)
	return n, err
}

// awaitTurn waits until it is time for a report.
func (p *paced) awaitTurn() {
	p.wait(MinPause - time.Since(p.last))
	p.last = time.Now()
}

func (p *paced) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}
