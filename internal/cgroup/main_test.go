// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary wait for the end of its standard input
// instead of testing.
const helperEnv = "CGROUP_TEST_WAIT"

// burnEnv makes it burn CPU time meanwhile.
const burnEnv = "CGROUP_TEST_BURN"

func TestMain(m *testing.M) {
	if os.Getenv(burnEnv) != "" {
		go func() {
			for { //nolint:staticcheck // burning is the purpose
			}
		}()
	}
	if os.Getenv(helperEnv) != "" || os.Getenv(burnEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
