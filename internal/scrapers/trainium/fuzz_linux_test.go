// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// Whatever an exporter serves, there are sane points or none.
func FuzzSeries(f *testing.F) {
	f.Add(twoTags)
	f.Add("execution_errors_total{error_type=\"numerical\",runtime_tag=\"a\"} 1e300\nhardware_ecc_events_total{event_type=\"mem_ecc_corrected\",neuron_device_index=\"1\"} +Inf\n")
	f.Add("neuroncore_memory_usage_{neuroncore=\"0\"} 1\nneuroncore_memory_usage_a:b{neuroncore=\"00\"} 1\nneuroncore_utilization_ratio{neuroncore=\"0\"} -1\n")
	f.Add("# TYPE execution_latency_seconds summary\nexecution_latency_seconds{quantile=\"0.5\"} 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		scrape, err := exposition.New(exposition.Options{}).Parse([]byte(text), "text/plain", nil)
		if err != nil {
			return
		}
		c := newCollected()
		for i := range scrape.Families {
			c.addFamily(&scrape.Families[i])
		}
		m := newMapping(t, Config{RuntimePoints: true, ReportIdle: true}, true, nil)
		m.source.next = &reading{report: c.report(), at: m.now.Add(time.Second), counts: c.counts, absolute: true}
		md, err := m.Scrape(t.Context())
		require.NoError(t, err)
		scraperstest.RequireSane(t, md)
	})
}

// Whatever lines come, each scrape has sane points, and counters do not fall.
func FuzzReports(f *testing.F) {
	f.Add([]byte(line(entry(1, "x", memory(`"host":4,"usage_breakdown":{"host":{"new_part":1},"neuroncore_memory_usage":{"3":{"tensors":1,"x":2}}}`)+","+ran(5, 1)))))
	f.Add([]byte(`{"neuron_runtime_data":[{"pid":1,"report":{"execution_stats":{"execution_summary":{"completed":4e18}}}},{"pid":1,"report":{"execution_stats":{"execution_summary":{"completed":4e18}}}}]}`))
	f.Add([]byte(`{"neuron_runtime_data":null,"system_data":{"neuron_hw_counters":{"neuron_devices":[{"neuron_device_index":0,"mem_ecc_corrected":4e18}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := report.Parse(text); err != nil {
			return
		}
		m := newMapping(t, Config{RuntimePoints: true, ReportIdle: true}, true, &shares{pids: map[string][]int{"a": {1}}})
		before := map[string]float64{}
		for range 3 {
			m.arrive(string(text))
			for _, p := range scraperstest.PointsOf(m.scrape()) {
				if p.Metric.Type() == pmetric.MetricTypeSum {
					require.GreaterOrEqual(t, p.Value(), before[p.Key()])
					before[p.Key()] = p.Value()
				}
			}
		}
	})
}
