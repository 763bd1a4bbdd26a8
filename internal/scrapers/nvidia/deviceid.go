// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"regexp"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
)

// deviceIDs is how GPUs are named in the configuration.
var deviceIDs = gpus.IDForm{
	UUID: regexp.MustCompile(`^GPU-[0-9A-Za-z-]+$`),
	Want: "an NVML index, a UUID (GPU-...) or a PCI bus id (0000:3b:00.0)",
}
