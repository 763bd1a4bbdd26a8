// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import "time"

const (
	firstPause = time.Second
	// longestPause is that of a program that ends again and again.
	longestPause = time.Minute
	// hopelessPause is that of one which does nothing else than to end.
	hopelessPause = 5 * time.Minute
	hopelessAfter = 5
	// provenAfter is how long one has to work for its earlier ends to be forgotten.
	provenAfter = 5 * time.Minute
)

// Restarts says when a program that should not end is started again. The zero value
// is ready.
type Restarts struct {
	pause time.Duration
	// atOnce counts the ends at once in a row.
	atOnce int
}

// Next returns the time to wait after a run that did its work for so long; atOnce says
// that it ended at once instead. That is 1 s, doubled each time up to 60 s, until one
// worked for 5 minutes; and 5 minutes once five in a row ended at once.
func (r *Restarts) Next(worked time.Duration, atOnce bool) time.Duration {
	r.atOnce++
	if !atOnce {
		r.atOnce = 0
	}
	if worked >= provenAfter {
		r.pause = 0
	}
	r.pause = min(max(2*r.pause, firstPause), longestPause)
	if r.Hopeless() {
		return hopelessPause
	}
	return r.pause
}

// Hopeless says that the program ends at once again and again.
func (r *Restarts) Hopeless() bool { return r.atOnce >= hopelessAfter }

// AtOnce is how often in a row it ended at once.
func (r *Restarts) AtOnce() int { return r.atOnce }
