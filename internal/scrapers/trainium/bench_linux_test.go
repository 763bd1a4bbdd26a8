// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// longLine is a line of about 100 KB: a runtime with 32 cores and many models on a
// machine with 128 CPUs, asked for everything.
func longLine() []byte {
	var cores, parts, cpus, models []string
	for i := range 32 {
		cores = append(cores, fmt.Sprintf(`"%d":{"neuroncore_utilization":%v,"flops":420100000000}`, i, 90+float64(i)/10))
		parts = append(parts, fmt.Sprintf(`"%d":{"constants":%d,"model_code":176285056,"model_shared_scratchpad":0,"runtime_memory":0,"tensors":20971520}`, i, 193986816+i))
	}
	for i := range 128 {
		cpus = append(cpus, fmt.Sprintf(`"%d":{"user":24.18,"nice":0,"system":4.64,"idle":70.53,"io_wait":0,"irq":0,"soft_irq":0}`, i))
	}
	for i := range 330 {
		models = append(models, fmt.Sprintf(`{"name":"/home/user/models/neuron-compile-cache/MODULE_%020d/model.neff","uuid":"%032x","model_id":%d,"is_running":true,`+
			`"subgraphs":{"sg_00":{"memory_used_bytes":{"host":20971520,"neuron_device":176285056},"neuroncore_index":%d,"neuron_device_index":0}}}`, i, i, i, i%32))
	}
	return fmt.Appendf(nil, `{"neuron_runtime_data":[{"pid":1337,"neuron_runtime_tag":"job","error":"","report":{`+
		`"neuroncore_counters":{"period":1.0006,"neuroncores_in_use":{%s},"error":""},`+
		`"memory_used":{"period":1.0007,"neuron_runtime_used_bytes":{"host":60033554432,"neuron_device":12519789040,"usage_breakdown":{`+
		`"host":{"application_memory":60000000000,"constants":0,"dma_buffers":33554432,"tensors":0},"neuroncore_memory_usage":{%s}}},"loaded_models":[%s],"error":""}}}],`+
		`"system_data":{"vcpu_usage":{"period":1.03,"usage_data":{%s},"error":""}},"neuron_hardware_info":{"neuron_device_count":16,"neuroncore_per_device_count":2,"error":""}}`,
		strings.Join(cores, ","), strings.Join(parts, ","), strings.Join(models, ","), strings.Join(cpus, ","))
}

// BenchmarkLine compares the reading of a line with that into a map, which is what
// W&B's SDK does.
func BenchmarkLine(b *testing.B) {
	line := longLine()
	parse := func() {
		_, err := report.Parse(line)
		require.NoError(b, err)
	}
	generic := func() {
		var all map[string]any
		require.NoError(b, json.Unmarshal(line, &all))
	}
	const times = 200
	var ours, other scraperstest.Cost
	for b.Loop() {
		ours, other = scraperstest.CostOf(b, times, parse), scraperstest.CostOf(b, times, generic)
	}
	b.ReportMetric(float64(len(line)), "bytes")
	b.ReportMetric(float64(ours.CPU.Microseconds()), "parse-us")
	b.ReportMetric(float64(other.CPU.Microseconds()), "map-us")
	b.ReportMetric(float64(ours.CPU)/float64(other.CPU), "cpu-ratio")
	b.ReportMetric(ours.Allocs/other.Allocs, "alloc-ratio")
}

// BenchmarkRun prints what the collector's side of a tool with a period of 1 s uses of
// one CPU, each second a scrape. The lines are of 100 KB, and of 1 MB.
func BenchmarkRun(b *testing.B) {
	short := append(longLine(), '\n')
	long := append(bytes.Replace(longLine(), []byte(`"loaded_models":[`), append([]byte(`"loaded_models":[`),
		bytes.Repeat([]byte(`{"name":"/home/user/models/neuron-compile-cache/model.neff","uuid":"0"},`), 12_500)...), 1), '\n')
	for name, line := range map[string][]byte{"100KB": short, "1MB": long} {
		b.Run(name, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "line")
			require.NoError(b, os.WriteFile(file, line, 0o600))
			r, _ := toolRig(b, "while :; do cat '"+file+"'; sleep 1; done", options{})
			r.scraper.Prime(b.Context())
			r.awaitLines(1)
			const seconds = 5
			var used time.Duration
			for b.Loop() {
				start := scraperstest.ProcessorTime(b)
				for range seconds {
					time.Sleep(time.Second)
					md, err := r.scraper.Scrape(b.Context())
					require.NoError(b, err)
					require.NotZero(b, md.DataPointCount())
				}
				used = scraperstest.ProcessorTime(b) - start
			}
			b.ReportMetric(100*used.Seconds()/seconds, "cpu-percent")
			b.ReportMetric(float64(len(line)), "bytes")
		})
	}
}
