// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"testing"
)

// BenchmarkMapping is the mapping alone, of eight GPUs that have everything.
func BenchmarkMapping(b *testing.B) {
	for _, extended := range []bool{false, true} {
		b.Run(fmt.Sprintf("extended=%t", extended), func(b *testing.B) {
			r := reading{generation: 1, complete: true}
			for i := range 8 {
				d := fullReading().devices[0]
				d.index, d.uuid = i, fmt.Sprintf("GPU-%d", i)
				r.devices = append(r.devices, d)
			}
			s := newFake(b, extended, r)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Scrape(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
