// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamings runs one receiver per naming side by side on the same machine. The
// host name tells them apart.
func TestNamings(t *testing.T) {
	target := startHelper(t, "idle")
	s := startSink(t, nil)
	var receivers strings.Builder
	for host, extra := range map[string]string{
		"template":         "naming: template",
		"template-labeled": "naming: template, label: rank-3",
		"tag":              "naming: tag",
		"tag-labeled":      "naming: tag, label: rank-3",
		"sdk":              "naming: sdk",
		"sdk-labeled":      "naming: sdk, label: rank-3",
	} {
		fmt.Fprintf(&receivers, "wandbsys/%s: {host_name: %s, %s, extended: true, collection_interval: 1s, initial_delay: 0s, "+
			"workloads: {pid: %d, discover: []}, scrapers: {host: {disk_paths: [/, /proc/.., /tmp]}}}\n", host, host, extra, target.pid())
	}
	p := startCollector(t, settings{receivers: receivers.String(), exporters: s.exporter()})
	for _, host := range []string{"template", "template-labeled", "tag", "tag-labeled", "sdk", "sdk-labeled"} {
		p.waitFor(host+" has had two scrapes", func() bool {
			return len(s.points().from(host).named("memory_percent"))+
				len(s.points().from(host).named("memory_percent/l:rank-3")) >= 2
		})
	}
	p.stop()
	all := s.points()
	template := all.from("template")
	require.Contains(t, template.names(), "cpu.cpu_percent", "extended is on")

	for host, tt := range map[string]struct {
		rename func(point) string
		label  any
	}{
		"template-labeled": {func(p point) string { return p.name }, "rank-3"},
		"tag":              {fullTag, nil},
		"tag-labeled":      {fullTag, "rank-3"},
		"sdk":              {fullTag, nil},
		"sdk-labeled":      {func(p point) string { return fullTag(p) + "/l:rank-3" }, "rank-3"},
	} {
		t.Run(host, func(t *testing.T) {
			got := all.from(host)
			compareNaming(t, template, got, tt.rename)
			for _, p := range got {
				assert.Equal(t, tt.label, p.resource["wandb.label"], p.name)
			}
		})
	}
	t.Run("examples", func(t *testing.T) {
		names := all.from("sdk-labeled").names()
		for _, name := range []string{"cpu", "cpu.0.cpu_percent", "disk./.usagePercent", "disk./proc/...usageGB", "disk./tmp.usageGB", "disk.in", "network.sent"} {
			assert.Contains(t, names, name+"/l:rank-3")
		}
	})
}

// fullTag puts the attributes where W&B's tags have them.
func fullTag(p point) string {
	family, rest, _ := strings.Cut(p.name, ".")
	for _, key := range []string{"path", "core"} {
		if value, ok := p.attrs[key]; ok {
			return fmt.Sprintf("%s.%v.%s", family, value, rest)
		}
	}
	if device, ok := p.attrs["device"]; ok {
		return fmt.Sprintf("disk.%v.%s", device, strings.TrimPrefix(p.name, "disk.device."))
	}
	return p.name
}

// compareNaming: the same series, with the same attributes and shapes, under
// other names; and the same values where a machine's change slowly.
func compareNaming(t *testing.T, template, got points, rename func(point) string) {
	t.Helper()
	assert.Equal(t, seriesOf(template, rename), seriesOf(got, func(p point) string { return p.name }))
	for name, slack := range map[string]float64{
		"memory_percent": 5, "proc.memory.availableMB": slackMemory / mebi, "disk.usagePercent": 1,
		"proc.memory.rssMB": 4, "proc.cpu.threads": 2,
	} {
		want := template.named(name).last()
		same := got.named(rename(want)).with("path", want.attrs["path"])
		require.NotEmpty(t, same, rename(want))
		assert.InDelta(t, want.value, same.last().value, slack, name)
	}
}

func seriesOf(ps points, name func(point) string) []string {
	var all []string
	for _, p := range ps {
		all = append(all, fmt.Sprintf("%s %v %+v", name(p), p.attrs, p.shape))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
