// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRestarts(t *testing.T) {
	type run struct {
		worked time.Duration
		atOnce bool
		want   time.Duration
	}
	worked := func(for_, want time.Duration) run { return run{for_, false, want} }
	atOnce := func(want time.Duration) run { return run{0, true, want} }
	const s, m = time.Second, time.Minute
	for name, runs := range map[string][]run{
		"the pause doubles up to a minute": {
			worked(s, s), worked(s, 2*s), worked(s, 4*s), worked(s, 8*s), worked(s, 16*s), worked(s, 32*s), worked(s, m), worked(s, m),
		},
		"five minutes of work are a new beginning": {worked(s, s), worked(4*m+59*s, 2*s), worked(5*m, s), worked(0, 2*s)},
		"five ends at once leave little hope": {
			atOnce(s), atOnce(2 * s), atOnce(4 * s), atOnce(8 * s), atOnce(5 * m), atOnce(5 * m),
			worked(s, m), atOnce(m),
		},
		"only in a row": {atOnce(s), atOnce(2 * s), worked(0, 4*s), atOnce(8 * s), atOnce(16 * s), atOnce(32 * s)},
	} {
		t.Run(name, func(t *testing.T) {
			var r Restarts
			for i, run := range runs {
				assert.Equal(t, run.want, r.Next(run.worked, run.atOnce), i)
				assert.Equal(t, run.want == 5*m, r.Hopeless(), i)
			}
		})
	}
}
