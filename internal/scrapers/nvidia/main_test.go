// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// removeAtEnd are folders that outlive a test.
var removeAtEnd []string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, folder := range removeAtEnd {
			_ = os.RemoveAll(folder)
		}
		os.Exit(code)
	}))
}
