// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu/gc"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

func TestFactory(t *testing.T) {
	f := NewFactory()
	assert.Equal(t, "ipu", f.Name)
	assert.True(t, f.TellsHolders)
	assert.Empty(t, f.NotCompiledIn)
}

// Of devices with the same number the first counts, and that is said once. One that is
// made of others is not among them.
func TestDevicesWithTheSameNumber(t *testing.T) {
	r := newRig(t, options{})
	r.install("gc-inventory", `echo '[{"id": "1", "target": "Multi IPU", "clock": "1MHz"}, {"id": "1", "clock": "2MHz"}, {"id": "1", "clock": "3MHz"}, {"clock": "4MHz"}]'`)
	for range 2 {
		tags, err := r.tags()
		require.NoError(t, err)
		assert.Equal(t, map[string]float64{"ipu.1.clock (MHz)": 2, "ipu.3.clock (MHz)": 4}, tags)
	}
	assert.Len(t, r.logs.FilterMessageSnippet("same number").All(), 1)
}

func TestAllFigures(t *testing.T) {
	const all = `echo '[{"id": "2", "average board temp": "26 C", "average die temp": "27.5 C", "clock": "1850MHz", "ipu power": "101 W",
		"total board power": "300 W", "ipu utilisation": "12.50%", "ipu utilisation (session)": "12.75%", "link speed": "16 GT/s", "ipu error state": "memory"}]'`
	want := map[string]float64{
		"ipu.2.average board temp (C)": 26, "ipu.2.average die temp (C)": 27.5, "ipu.2.clock (MHz)": 1850, "ipu.2.ipu power (W)": 101,
		"ipu.2.ipu utilisation (%)": 12.5, "ipu.2.ipu utilisation (session) (%)": 12.75, "ipu.2.speed (GT/s)": 16,
	}
	for _, extended := range []bool{false, true} {
		r := newRig(t, options{extended: extended})
		r.install("gc-inventory", all)
		if extended {
			want["ipu.2.total board power (W)"] = 300
		}
		for range 2 { // also those that do not vary, each time
			tags, err := r.tags()
			require.NoError(t, err)
			assert.Equal(t, want, tags)
		}
	}
}

// fixed is a source of readings that are given.
type fixed struct{ reading }

// read implements source.
func (f *fixed) read(context.Context) *reading {
	r := f.reading
	return &r
}

// close implements source.
func (*fixed) close(context.Context) error { return nil }

// Whatever a tool prints, there are sane points, or none.
func FuzzScrape(f *testing.F) {
	f.Add([]byte(`[{"id": "0", "clock": "1300MHz"}, {"id": "0", "ipu power": "5 W"}, {"id": 2147483647, "user process id": "1"}]`))
	f.Add([]byte("Device Info:\n  ipu utilisation (session): 5%\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		devices, err := gc.Parse(out)
		if err != nil {
			return
		}
		for i := range devices { // these may be below 0
			devices[i].BoardTemp.Known, devices[i].DieTemp.Known, devices[i].Clock.Known, devices[i].LinkSpeed.Known = false, false, false, false
		}
		set, _ := scraperstest.NewSettings(t, t.TempDir(), true)
		s := newScraperFor(set, &fixed{reading{at: time.Unix(1, 0), devices: devices}}, nil)
		md, err := s.Scrape(t.Context())
		require.NoError(t, err)
		scraperstest.RequireSane(t, md)
	})
}
