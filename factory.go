// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsys

import (
	"go.opentelemetry.io/collector/receiver"

	"github.com/wandbsys/otelcol-wandbsys/receiver/wandbsysreceiver"
)

// NewFactory returns the receiver's factory. It stands here for the tests that
// mdatagen generates beside metadata.yaml.
func NewFactory() receiver.Factory { return wandbsysreceiver.NewFactory() }
