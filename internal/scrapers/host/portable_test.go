// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTreeTimes(t *testing.T) {
	at := func(s int64) time.Time { return time.UnixMilli(1000 * s) }
	root, worker := treeMember{pid: 1, created: 500}, treeMember{pid: 2, created: 600}
	late := treeMember{pid: 3, created: 12_000}
	joined := treeMember{pid: 4, created: 700}
	reused := treeMember{pid: 2, created: 35_000}
	const s = time.Second
	steps := []struct {
		name  string
		at    int64
		times map[treeMember]time.Duration
		want  time.Duration
	}{
		{"what was used before the first look does not count", 10, map[treeMember]time.Duration{root: 100 * s, worker: 50 * s}, 0},
		{"growth of each, and all of one that began since", 20, map[treeMember]time.Duration{root: 101 * s, worker: 52 * s, late: 4 * s}, 7 * s},
		{"an older process that joined brings nothing", 30, map[treeMember]time.Duration{root: 101 * s, worker: 52 * s, late: 4 * s, joined: 900 * s}, 7 * s},
		{"then it grows; another has the pid of one that ended", 40, map[treeMember]time.Duration{root: 101 * s, late: 4 * s, joined: 901 * s, reused: 2 * s}, 10 * s},
		{"times never fall", 50, map[treeMember]time.Duration{root: 90 * s, late: 5 * s}, 11 * s},
		{"all but the root ended", 60, map[treeMember]time.Duration{root: 91 * s}, 12 * s},
	}
	var tree treeTimes
	for _, step := range steps {
		assert.Equal(t, step.want, tree.update(at(step.at), step.times), step.name)
	}
}

func TestUntoldValues(t *testing.T) {
	notImplemented := errors.New("not implemented yet")
	for _, err := range []error{notImplemented, fmt.Errorf("threads: %w", notImplemented), fs.ErrPermission, &fs.PathError{Err: os.ErrPermission}} {
		assert.True(t, isUntold(err), "%v", err)
	}
	for _, err := range []error{nil, fs.ErrNotExist, errors.New("x")} {
		assert.False(t, isUntold(err), "%v", err)
	}
}

func TestProcessTable(t *testing.T) {
	var table processTable
	table.add(0, 0) // its own parent
	table.add(4, 0)
	table.add(8, 4)
	table.add(12, 4)
	assert.Equal(t, map[int32][]int32{0: {4}, 4: {8, 12}}, table.children)
	assert.Nil(t, table.threads)
	table.addThreads(8, 3)
	assert.Equal(t, map[int32]int{8: 3}, table.threads)
}
