// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// macCapture is what a Mac told, as `capture_file` records it: half of 16 GiB in use, and
// a GPU that was busy for three quarters of a second.
const macCapture = `{
 "format": "apple-capture/1",
 "system": {"chip": "Apple M1", "model": "MacBookAir10,1", "os": "26.1", "arch": "arm64", "memsize": 17179869184},
 "ioreg": [{"class": "AGXAcceleratorG13G", "properties": {
  "IOClass": "AGXAcceleratorG13G", "model": "Apple M1", "gpu-core-count": 8,
  "PerformanceStatistics": {"In use system memory": 8589934592, "Alloc system memory": 9663676416, "Device Utilization %": 70, "recoveryCount": 0}
 }}],
 "ioreport": {"samples": [
  {"t_ns": 0, "channels": [
   {"group": "GPU Stats", "subgroup": "GPU Performance States", "channel": "GPUPH", "unit": "24Mticks", "kind": "state",
    "states": [["OFF", 0], ["P1", 0]]}
  ]},
  {"t_ns": 1000000000, "channels": [
   {"group": "GPU Stats", "subgroup": "GPU Performance States", "channel": "GPUPH", "unit": "24Mticks", "kind": "state",
    "states": [["OFF", 6000000], ["P1", 18000000]]}
  ]}
 ]}
}`

// replays are captures and the tags that they give: one of our own, and the recorded ones
// where those are.
func replays(t *testing.T) map[string]map[string]float64 {
	t.Helper()
	own := filepath.Join(t.TempDir(), "own.json")
	require.NoError(t, os.WriteFile(own, []byte(macCapture), 0o600))
	all := map[string]map[string]float64{own: {"gpu.0.gpu": 75, "gpu.0.memoryAllocated": 50}}
	files, err := filepath.Glob(filepath.Join(os.Getenv("WANDBSYS_SAMPLES"), "apple", "*.capture.expected.json"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var want struct {
			Tags   map[string]float64
			Config map[string]any
		}
		require.NoError(t, json.Unmarshal(text, &want), file)
		if len(want.Config) == 0 && len(want.Tags) > 0 {
			all[strings.Replace(file, ".expected.json", ".json", 1)] = want.Tags
		}
	}
	return all
}

// A Mac's capture is replayed by the shipped collector, on this machine too.
func TestCapturesOfMacs(t *testing.T) {
	s := startSink(t, nil)
	var receivers strings.Builder
	want := map[string]map[string]float64{}
	for file, tags := range replays(t) {
		host := fmt.Sprint("mac-", len(want))
		want[host] = tags
		fmt.Fprintf(&receivers, "wandbsys/%s: {host_name: %[1]s, naming: tag, collection_interval: %s, initial_delay: 0s, scrapers: {apple: {replay_file: %q}}}\n",
			host, deviceInterval, file)
	}
	p := startCollector(t, settings{receivers: receivers.String(), exporters: s.exporter()})
	for host, tags := range want {
		p.waitFor(fmt.Sprint(host, " is replayed"), func() bool { return len(s.points().from(host).names()) >= len(tags) })
		got := map[string]float64{}
		for _, point := range s.points().from(host) {
			assert.Equal(t, "apple", point.attrs["gpu_vendor"], point.name)
			got[point.name] = point.value
		}
		assert.Len(t, got, len(tags), "%s: %v", host, got)
		for tag, value := range tags {
			assert.InDelta(t, value, got[tag], 1e-6*max(1, value), "%s: %s", host, tag)
		}
	}
}
