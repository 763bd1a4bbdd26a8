// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Prometheus knows no resources: what tells two of them apart must be labels, or
// one silently replaces the other.
func TestPrometheusKeepsResourcesApart(t *testing.T) {
	a, b := startHelper(t, "idle"), startHelper(t, "burn")
	address := freeAddress(t)
	p := startCollector(t, settings{
		receivers: fmt.Sprintf(`
wandbsys: {collection_interval: 1s, initial_delay: 0s, host_name: one, workloads: {pid: %d, discover: []}}
wandbsys/b: {collection_interval: 1s, initial_delay: 0s, host_name: one, workloads: {pid: %d, discover: []}}
wandbsys/other: {collection_interval: 1s, initial_delay: 0s, host_name: two, workloads: {discover: []}}
`, a.pid(), b.pid()),
		exporters: "prometheus: {endpoint: '" + address + "'}",
	})
	instances := map[string]*process{
		fmt.Sprintf("one/pid-%d", a.pid()): a,
		fmt.Sprintf("one/pid-%d", b.pid()): b,
	}
	all := awaitSamples(t, p, address, "cpu of both processes and two machines", func(all samples) bool {
		return len(all.find("cpu_percent")) == 2 && len(all.find("memory_percent")) == 2
	})

	t.Run("a series per process", func(t *testing.T) {
		for _, name := range []string{"cpu_percent", "proc_cpu_threads", "proc_memory_percent", "proc_memory_rssMB_mebibytes"} {
			assert.Len(t, all.find(name), len(instances), name)
			for instance := range instances {
				assert.Len(t, all.find(name, "instance", instance, "job", "wandbsys"), 1, name)
			}
		}
	})
	t.Run("with its own value", func(t *testing.T) {
		for instance, helper := range instances {
			rss := all.find("proc_memory_rssMB_mebibytes", "instance", instance)
			require.Len(t, rss, 1)
			assert.InDelta(t, readProcess(t, helper.pid()).rss/mebi, rss[0].value, 4, instance)
		}
		busy := all.find("cpu_percent", "instance", fmt.Sprintf("one/pid-%d", b.pid()))[0].value
		idle := all.find("cpu_percent", "instance", fmt.Sprintf("one/pid-%d", a.pid()))[0].value
		assert.Greater(t, busy, idle)
	})
	t.Run("a series per machine", func(t *testing.T) {
		for _, name := range []string{"memory_percent", "network_recv_bytes_total", "disk_in_mebibytes_total", "disk_usagePercent_percent"} {
			assert.Len(t, all.find(name, "instance", "one", "job", "wandbsys"), 1, name)
			assert.Len(t, all.find(name, "instance", "two", "job", "wandbsys"), 1, name)
		}
	})
	t.Run("target_info per resource", func(t *testing.T) {
		assert.Len(t, all.find("target_info"), 4)
		for instance, helper := range instances {
			assert.Len(t, all.find("target_info", "instance", instance, "job", "wandbsys", "host_name", "one",
				"process_pid", strconv.Itoa(helper.pid())), 1)
		}
		assert.Len(t, all.find("target_info", "instance", "one", "host_name", "one", "os_type", "linux"), 1)
		assert.Len(t, all.find("target_info", "instance", "two", "host_name", "two"), 1)
	})
	t.Run("every series says whose it is", func(t *testing.T) {
		for _, s := range all {
			assert.Equal(t, "wandbsys", s.labels["job"], s.name)
			assert.NotEmpty(t, s.labels["instance"], s.name)
		}
	})
}
