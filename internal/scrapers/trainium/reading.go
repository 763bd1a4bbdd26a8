// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/trainium/report"
)

// source gives reports.
type source interface {
	// start is told what extensions there are. It waits for nothing.
	start(host component.Host)
	// prime begins to count, and waits for the first report while ctx lasts.
	prime(ctx context.Context)
	// read returns what is known now.
	read(ctx context.Context) *reading
	// close frees what the source holds.
	close(ctx context.Context) error
}

// reading is what a source knows.
type reading struct {
	// report is the newest, nil when there is none that is of now, and at its time.
	report *report.Report
	at     time.Time
	// counts are the events since the last reading, or since the source began to
	// count when they are absolute.
	counts counts
	// absolute says that the counts are those of a source that counts itself.
	absolute bool
	errs     []error
}

// want says what is asked for beyond the utilisation and the memory.
type want struct {
	execution, ecc bool
}

func wantOf(m *metadata.MetricsConfig) want {
	return want{
		execution: m.TrnExecutionErrors.Enabled || m.TrnExecutionStatus.Enabled || m.TrnExecutionLatency.Enabled,
		ecc: m.TrnMemEccCorrected.Enabled || m.TrnMemEccUncorrected.Enabled ||
			m.TrnSramEccCorrected.Enabled || m.TrnSramEccUncorrected.Enabled,
	}
}
