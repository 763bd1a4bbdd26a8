// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASearchInVainIsMadeAgainLater(t *testing.T) {
	mount := t.TempDir()
	f := finder{found: map[string]string{}, missed: map[string]int{}}
	_, ok := f.at(mount, "/pod/c", false)
	require.False(t, ok)

	dir := filepath.Join(mount, "a/b/pod/c")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "memory.max"), []byte("max\n"), 0o600))
	for range missesKept {
		_, ok = f.at(mount, "/pod/c", false)
		require.False(t, ok, "the costly search is not made at every scrape")
	}
	found, ok := f.at(mount, "/pod/c", false)
	require.True(t, ok)
	assert.Equal(t, "/a/b/pod/c", found)
}
