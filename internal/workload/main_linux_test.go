// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary play a part instead of testing.
const helperEnv = "WORKLOAD_TEST_PART"

func TestMain(m *testing.M) {
	if part := os.Getenv(helperEnv); part != "" {
		os.Exit(play(part))
	}
	goleak.VerifyTestMain(m)
}
