// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !cgo

package nvidia

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/scraperstest"
)

// A build without cgo has the family, and says why it gives nothing.
func TestNotCompiledIn(t *testing.T) {
	factory := NewFactory()
	assert.Equal(t, "NVML needs Linux and a build with cgo", factory.NotCompiledIn)
	assert.False(t, factory.TellsHolders)
	set, _ := scraperstest.NewSettings(t, t.TempDir(), true)
	scraper, err := factory.New(set, factory.DefaultConfig())
	require.NoError(t, err)
	require.NoError(t, scraper.Start(t.Context(), nil))
	md, err := scraper.Scrape(t.Context())
	assert.Zero(t, md.DataPointCount())
	var absent *scrapers.AbsentError
	require.ErrorAs(t, err, &absent)
	assert.Equal(t, "not compiled in: NVML needs Linux and a build with cgo", absent.Reason)
	assert.Contains(t, absent.Cure, "CGO_ENABLED=1")
	require.NoError(t, scraper.Shutdown(t.Context()))
}
