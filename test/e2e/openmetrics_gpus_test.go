// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Of two GPUs that an exporter tells of, NVML measures one: that is NVML's, the other
// DCGM's, and none comes twice.
func TestAGPUIsNotMeasuredTwice(t *testing.T) {
	gpus := fullGPUs(1)
	d, s := startDriver(t, gpus...), startSink(t, nil)
	ours, other := fmt.Sprint(gpus[0]["uuid.value"]), "GPU-0e2e0000-0000-4000-8000-0000000000ff"
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", plainText)
		for i, uuid := range []string{ours, other} {
			_, _ = fmt.Fprintf(w, "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu=\"%d\",UUID=%q,Hostname=\"node-7\"} 2%[1]d\n", i, uuid)
		}
	}))
	defer exporter.Close()
	p := d.start(settings{
		receivers: fmt.Sprintf("wandbsys: {host_name: node-7, collection_interval: 1s, initial_delay: 0s, scrapers: {%s, openmetrics: {endpoints: {dcgm: {endpoint: '%s', map: dcgm}}}}}",
			d.section(""), exporter.URL),
		exporters: s.exporter(),
	})
	temperatures := func(uuid string) points { return s.points().named("gpu.temp").with("gpu_uuid", uuid) }
	p.waitFor("both GPUs", func() bool { return len(temperatures(ours)) > 2 && len(temperatures(other)) > 2 })
	for _, temp := range temperatures(ours) {
		assert.Equal(t, "wandbsys", temp.resource["service.name"])
		assert.InDelta(t, gpus[0].value("temperature"), temp.value, 0)
	}
	for _, temp := range temperatures(other) {
		assert.Equal(t, "dcgm", temp.resource["service.name"])
		assert.InDelta(t, 21, temp.value, 0)
	}
	kept := s.points().named("openmetrics.dcgm.DCGM_FI_DEV_GPU_TEMP")
	assert.NotEmpty(t, kept.with("UUID", ours), "the exporter's figure keeps its own name")
	assert.InDelta(t, 20, kept.with("UUID", ours).last().value, 0)
}
