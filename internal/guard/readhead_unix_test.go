// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package guard

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadHeadReturnsTheBeginning(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	path := writeFile(t, content)
	for _, limit := range []int{0, 1, firstRead, firstRead + 1, len(content), len(content) + 1} {
		got, err := ReadHead(path, nil, limit)
		require.NoError(t, err)
		assert.Equal(t, string(content[:min(limit, len(content))]), string(got), "limit %d", limit)
	}
	got, err := ReadHead(path, make([]byte, 3, 20_000), 5)
	require.NoError(t, err)
	assert.Equal(t, "01234", string(got))
	_, err = ReadHead(filepath.Join(t.TempDir(), "none"), nil, 5)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
