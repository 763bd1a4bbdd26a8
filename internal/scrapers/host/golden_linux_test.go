// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file anew")

// The second scrape of a machine with everything on, compared with the golden
// file in every respect: names, units, types, temporality, attributes,
// resources, values, times and start times.
func TestGolden(t *testing.T) {
	m := aWholeMachine(t)
	s := m.scraper(true)
	s.Prime(t.Context())
	m.wait(10 * time.Second)
	_, err := s.Scrape(t.Context())
	require.NoError(t, err)

	m.wait(15 * time.Second)
	m.write(map[string]string{
		"proc/meminfo":   "MemTotal: 100000 kB\nMemFree: 100 kB\nMemAvailable: 50000 kB\nSwapTotal: 80 kB\nSwapFree: 40 kB\n",
		"proc/stat":      "cpu  3 3 3 3 3 3 3 3\ncpu0 150 0 0 350 0 0 0 0\ncpu1 275 0 0 225 0 0 0 0\ncpu2 0 0 0 100 0 0 0 0\nintr 1\n",
		"proc/diskstats": diskLine(259, 0, "nvme0n1", 1<<20+2048, 1<<21+4096) + diskLine(259, 1, "nvme0n1p1", 1<<20+1024, 1<<21+2048) + diskLine(7, 0, "loop0", 99, 99),
		"proc/1/net/dev": "a|b\nc|d\n" + netLine("lo", 900, 900) + netLine("eth0", 1100, 1700),
		"proc/77/stat":   pidStat(77, "python3", "R", 1900, 500, 7, 4242),
		"proc/77/statm":  "10000 512 100 1 0 1000 0\n",
	})
	got, err := s.Scrape(t.Context())
	require.NoError(t, err)
	requireSane(t, got)

	file := filepath.Join("testdata", "golden.yaml")
	if *update {
		require.NoError(t, golden.WriteMetricsToFile(file, got, golden.SkipMetricTimestampNormalization()))
	}
	expected, err := golden.ReadMetrics(file)
	require.NoError(t, err)
	require.NoError(t, pmetrictest.CompareMetrics(expected, got,
		pmetrictest.IgnoreMetricsOrder(), pmetrictest.IgnoreMetricDataPointsOrder(), pmetrictest.IgnoreResourceMetricsOrder()))
}
