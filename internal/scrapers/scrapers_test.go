// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package scrapers

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTargetIsSet(t *testing.T) {
	assert.False(t, Target{}.IsSet())
	assert.False(t, Target{Pid: -1}.IsSet())
	assert.True(t, Target{Pid: 1}.IsSet())
	assert.True(t, Target{Self: true}.IsSet())
}

func TestErrorsSpeakToAnOperator(t *testing.T) {
	require.EqualError(t, &AbsentError{Reason: "no amdgpu driver"}, "no amdgpu driver")
	require.EqualError(t, &AbsentError{Reason: "no amdgpu driver", Cure: "load it"}, "no amdgpu driver; load it")
	require.EqualError(t, &SourceError{Source: "GPU 3", Err: errors.New("lost")}, "GPU 3: lost")
	require.EqualError(t, &GoneError{What: "process 7 is gone"}, "process 7 is gone")
}

func TestASourceErrorLeadsToItsCause(t *testing.T) {
	err := errors.Join(&GoneError{What: "x"}, &SourceError{Source: "meminfo", Err: fmt.Errorf("open: %w", fs.ErrPermission)})
	require.ErrorIs(t, err, fs.ErrPermission)
	source, ok := errors.AsType[*SourceError](err)
	require.True(t, ok)
	assert.Equal(t, "meminfo", source.Source)
}

func TestSourcesGiveUpBeforeTheScrape(t *testing.T) {
	assert.Equal(t, 8*time.Second, SourceTimeout(10*time.Second))
	assert.Zero(t, SourceTimeout(0))
}
