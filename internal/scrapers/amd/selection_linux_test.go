// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// The others are not touched, and the numbers stay.
func TestSelectedGPUs(t *testing.T) {
	for name, ids := range map[string][]any{
		"by number":        {1},
		"by unique id":     {"0011223344556601"},
		"by address":       {"0000:26:00.0"},
		"by short address": {"26:00"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := threeGPUs(t)
			s, logs := scraperBelow(t, tr.Root, false, &Config{Source: sourceAuto, DeviceIDs: ids})
			_, _ = scrapeTags(t, s)
			opens := tr.watchOpensBelow("sys/devices/pci0000:00/0000:05:00.0")
			tags, troubles := scrapeTags(t, s)
			require.Empty(t, troubles)
			scraperstest.CompareTags(t, "tags", wantMI300X(1), tags)
			assert.Empty(t, opens.take(), "of the first one")
			assert.Empty(t, logs.FilterMessage("There is no such GPU").All())
		})
	}
}

// A partition is selected by its number, or with its chip.
func TestSelectedPartitions(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []any
		want int
	}{
		"one": {[]any{3}, 1}, "a chip's": {[]any{"0000:05:00.0"}, 8}, "all": {nil, 16},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := scraperBelow(t, cpx(t).Root, false, &Config{Source: sourceSysfs, DeviceIDs: c.ids})
			r := s.source.read(t.Context(), s.want)
			require.Empty(t, r.errs)
			assert.Len(t, r.cards, c.want)
			assert.Equal(t, 16, r.gpus.Count, "the machine has all")
		})
	}
}

// What is named and not there is told once, and is no trouble.
func TestSelectedGPUThatIsNotThere(t *testing.T) {
	tr := threeGPUs(t)
	s, logs := scraperBelow(t, tr.Root, false, &Config{Source: sourceAuto, DeviceIDs: []any{7, "00:1f.0", "ffffffffffffffff"}})
	for range 2 {
		tags, troubles := scrapeTags(t, s)
		assert.Empty(t, tags)
		assert.Empty(t, troubles)
	}
	var named []any
	for _, e := range logs.FilterMessage("There is no such GPU").All() {
		named = append(named, e.ContextMap()["device_ids"])
	}
	assert.Equal(t, []any{"7", "0000:00:1f.0", "ffffffffffffffff"}, named)
}

func TestSelectedGPUsOfATool(t *testing.T) {
	m := scraperstest.NewMachine(t)
	tool := newProgram(t, t.TempDir(), "rocm-smi",
		`echo '{"card0": {"GPU use (%)": "5", "PCI Bus": "0000:C1:00.0"}, "card1": {"GPU use (%)": "6", "PCI Bus": "0000:C6:00.0"}}'`)
	s, _ := scraperBelow(t, m.Root, false, &Config{Source: sourceROCmSMI, ROCmSMIPath: tool.path, DeviceIDs: []any{"c6:00.0"}})
	tags, troubles := scrapeTags(t, s)
	require.Empty(t, troubles)
	scraperstest.CompareTags(t, "tags", map[string]float64{"gpu.1.gpu": 6}, tags)
}
