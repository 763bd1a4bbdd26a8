// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryUseIsValidated(t *testing.T) {
	for _, use := range []MemoryUse{WorkingSet, Usage, Anon} {
		require.NoError(t, use.Validate())
	}
	require.EqualError(t, MemoryUse("rss").Validate(), `unknown value "rss"; use working_set, usage or anon`)
	require.Error(t, MemoryUse("").Validate())
}
