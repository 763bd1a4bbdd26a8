// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary burn a core instead of testing, until its
// standard input ends.
const helperEnv = "HOST_TEST_BURN"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		burn()
	}
	goleak.VerifyTestMain(m)
}

func burn() {
	for x := uint64(1); ; x = x*6364136223846793005 + 1 {
		if x == 0 {
			panic("not reached")
		}
	}
}
