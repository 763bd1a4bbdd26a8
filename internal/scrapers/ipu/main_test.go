// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// markVariable is one that the tools get, and all that they start: by it they are found.
const markVariable = "IPUOF_TEST_RUN"

func TestMain(m *testing.M) {
	_ = os.Setenv(markVariable, strconv.Itoa(os.Getpid()))
	goleak.VerifyTestMain(m)
}
