// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary act as one of the helpers instead of testing.
const helperEnv = "TRAINIUM_TEST_HELPER"

var helpers = map[string]func() int{}

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helpers[name]())
	}
	goleak.VerifyTestMain(m)
}
