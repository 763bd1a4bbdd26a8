// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/host"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/nvidia"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium"
)

// families lists what this build can measure. A new family is one line here
// and its folder.
func families() []scrapers.Factory {
	return []scrapers.Factory{
		host.NewFactory(),
		nvidia.NewFactory(),
		amd.NewFactory(),
		ipu.NewFactory(),
		openmetrics.NewFactory(),
		tpu.NewFactory(),
		trainium.NewFactory(),
		apple.NewFactory(),
	}
}
