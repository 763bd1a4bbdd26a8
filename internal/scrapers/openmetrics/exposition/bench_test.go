// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition_test

import (
	"testing"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition/expositiontest"
)

// BenchmarkPaths compares reading a body whole with reading it line by line.
func BenchmarkPaths(b *testing.B) {
	whole := expositiontest.Body(20_000, false)
	lines := append([]byte("\ufeff"), whole...)
	for name, body := range map[string][]byte{"whole": whole, "lines": lines} {
		b.Run(name, func(b *testing.B) {
			p := exposition.New(exposition.Options{Limits: exposition.Limits{Series: 20_000}})
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Parse(body, "text/plain; version=0.0.4", nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
