// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/tputest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		tputest.Remove()
		os.Exit(code)
	}))
}
