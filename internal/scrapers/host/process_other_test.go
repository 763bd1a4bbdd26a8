// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

func TestProcessTableHasOurOwnProcess(t *testing.T) {
	table, err := readProcessTable(t.Context())
	require.NoError(t, err)
	pid := int32(os.Getpid())
	assert.Contains(t, table.children[int32(os.Getppid())], pid)
	if table.threads != nil {
		assert.Positive(t, table.threads[pid])
	}
}

func TestOurOwnTree(t *testing.T) {
	src, err := newSource(defaultConfig().(*Config), scrapers.Settings{Target: scrapers.Target{Self: true, Tree: true}})
	require.NoError(t, err)
	defer src.close()
	p := src.read(t.Context(), want{}).workloads[0]
	require.NotNil(t, p)
	assert.Equal(t, os.Getpid(), p.who.Pid)
	assert.Equal(t, p.threads == 0, p.noThreads)
	assert.Equal(t, p.rss == 0, p.noRSS)
}
