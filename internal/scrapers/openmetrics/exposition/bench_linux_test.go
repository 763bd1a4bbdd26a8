// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// cost is what reading a body once takes.
type cost struct {
	cpu    time.Duration
	allocs float64
}

// costOf measures the whole process, the collection of garbage included.
func costOf(tb testing.TB, times int, read func()) cost {
	tb.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processorTime(tb)
	for range times {
		read()
	}
	runtime.GC()
	used := processorTime(tb) - start
	runtime.ReadMemStats(&after)
	return cost{cpu: used / time.Duration(times), allocs: float64(after.Mallocs-before.Mallocs) / float64(times)}
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAgainstExpfmt compares with what W&B reads expositions with: the parser of
// the classic format, for OpenMetrics too. x_cpu and x_allocs are our share of its
// cost.
func BenchmarkAgainstExpfmt(b *testing.B) {
	for _, contentType := range []string{classicType, openMetricsType} {
		for _, series := range []int{1000, 20_000} {
			format, err := formatOf(contentType, "")
			require.NoError(b, err)
			body := bodyOf(series, format == OpenMetrics)
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(format.String(), " ", "_"), series), func(b *testing.B) {
				compare(b, body, contentType, series)
			})
		}
	}
}

func compare(b *testing.B, body []byte, contentType string, series int) {
	b.Helper()
	p := New(Options{Limits: Limits{Series: series}})
	ours := func() {
		s, err := p.Parse(body, contentType, nil)
		if err != nil || s.Kept != series {
			b.Fatal(err, "wrong number of series")
		}
	}
	ours() // the first scrape makes the buffers
	their := func() {
		if n := readWithExpfmt(b, body); n != series {
			b.Fatal("expfmt read", n)
		}
	}
	times := 200_000 / series
	theirs := costOf(b, times, their)
	mine := costOf(b, times, ours)
	b.ReportMetric(mine.cpu.Seconds()*1e3, "ms_cpu")
	b.ReportMetric(theirs.cpu.Seconds()*1e3, "expfmt_ms_cpu")
	b.ReportMetric(float64(mine.cpu)/float64(theirs.cpu), "x_cpu")
	b.ReportMetric(mine.allocs, "allocs")
	b.ReportMetric(mine.allocs/theirs.allocs, "x_allocs")
	b.ReportMetric(0, "ns/op")
}

func readWithExpfmt(tb testing.TB, body []byte) (series int) {
	tb.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(tb, err)
	for _, f := range families {
		series += len(f.GetMetric())
	}
	return series
}

// BenchmarkPaths compares reading a body whole with reading it line by line.
func BenchmarkPaths(b *testing.B) {
	whole := bodyOf(20_000, false)
	lines := append([]byte(bom), whole...)
	for name, body := range map[string][]byte{"whole": whole, "lines": lines} {
		b.Run(name, func(b *testing.B) {
			p := New(Options{Limits: Limits{Series: 20_000}})
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Parse(body, classicType, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
