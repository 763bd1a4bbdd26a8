// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package expositiontest has bodies for benchmarks.
package expositiontest

import (
	"fmt"
	"strings"
)

// Body returns a body as an exporter of GPUs writes it: gauges and counters of 20
// labelled series each.
func Body(series int, openMetrics bool) []byte {
	var b strings.Builder
	for family := range series / 20 {
		name, suffix, of := fmt.Sprintf("DCGM_FI_DEV_FIELD_%d", family), "", "gauge"
		if family%4 == 0 {
			suffix, of = "_total", "counter"
		}
		declared := name + suffix
		if openMetrics {
			declared = name
		}
		fmt.Fprintf(&b, "# HELP %s A field of the device (in units).\n# TYPE %s %s\n", declared, declared, of)
		for gpu := range 20 {
			fmt.Fprintf(&b, "%s%s{gpu=\"%d\",UUID=\"GPU-00000000-0000-4000-8000-%012d\",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"node-a\",container=\"\"} %d.25\n",
				name, suffix, gpu, gpu, gpu, family*gpu)
		}
	}
	if openMetrics {
		b.WriteString("# EOF\n")
	}
	return []byte(b.String())
}
