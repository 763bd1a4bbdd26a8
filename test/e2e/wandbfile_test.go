// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/wandbfile/wandbfiletest"
)

// readRuns reads the transaction logs of a W&B directory, by folder. Anything irregular
// fails the test; a log that ends within a record does not.
func readRuns(t *testing.T, directory string) []*wandbfiletest.File {
	t.Helper()
	paths, err := wandbfiletest.Runs(directory)
	require.NoError(t, err)
	var files []*wandbfiletest.File
	for _, path := range paths {
		require.NoError(t, wandbfiletest.CheckFolder(path))
		f, err := wandbfiletest.ReadFile(path)
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}

func TestNoRunsInAnEmptyDirectory(t *testing.T) {
	assert.Empty(t, readRuns(t, t.TempDir()))
}
