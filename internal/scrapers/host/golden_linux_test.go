// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"flag"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/pmetrictest"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/workload"
)

var update = flag.Bool("update", false, "write the golden file anew")

// The second scrape of a machine with everything on, compared with the golden
// file in every respect: names, units, types, temporality, attributes,
// resources, values, times and start times. On it are the configured process, a
// run in a pod, and a step of Slurm.
func TestGolden(t *testing.T) {
	m := aWholeMachine(t)
	m.bootTicks = bootTicks
	m.discovery = workload.Options{Discover: workload.Discover{Runs: true, Steps: true, Containers: true}}
	pod, step := unifiedPlace(podContainer), unifiedPlace(stepGroup)
	run := person{
		pid: 100, own: 9000, threads: 12, pages: 1024, group: podContainer, command: []string{"/usr/bin/python3", "train.py"},
		environ: []string{
			"WANDB_PROJECT=vision", "WANDB_ENTITY=team", "WANDB_RUN_GROUP=sweep-7", "WANDB_JOB_TYPE=train",
			"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=2", "WANDB_API_KEY=secret",
		},
	}
	m.runs(run, core(101, 100, "abc123", podContainer))
	m.groupFiles(podGroup, map[string]string{
		"memory.max": "20971520\n", "memory.current": "12582912\n", "memory.stat": "inactive_file 2097152\n", "cpu.max": "150000 100000\n",
	})
	task := func(n, own int) person {
		return person{
			pid: 200 + n, own: own, threads: 4, pages: 512, group: stepGroup + "/user/task_" + strconv.Itoa(n),
			environ: []string{"SLURM_JOB_ID=42", "SLURM_STEP_ID=0", "SLURM_JOB_NAME=train", "SLURM_NTASKS=2", "SLURM_PROCID=" + strconv.Itoa(n)},
		}
	}
	for n := range 2 {
		m.runs(task(n, 1000))
		m.groupFiles(stepGroup+"/user/task_"+strconv.Itoa(n), map[string]string{"memory.max": "max\n"})
	}
	pod.write(m, 1)
	step.write(m, 4)
	s := m.scraper(true)
	s.Prime(t.Context())
	m.pass(10)
	_, err := s.Scrape(t.Context())
	require.NoError(t, err)

	m.pass(15)
	run.own += 1800
	m.runs(run, task(0, 1600), task(1, 1600))
	pod.write(m, 16)
	step.write(m, 12)
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
