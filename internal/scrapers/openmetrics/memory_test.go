// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/race"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/series"
)

// churn is a body whose pods are others in every scrape, and some of whose names are.
func churn(scrape int) []byte {
	var b strings.Builder
	b.WriteString("# TYPE gauge gauge\n# TYPE counter counter\n# TYPE h histogram\n# TYPE s summary\n")
	for i := range 10 {
		pod := fmt.Sprintf("pod-%d-%d-with-the-long-name-that-pods-have", scrape, i)
		fmt.Fprintf(&b, "gauge{pod=%q} %d\ncounter{pod=%q} %d\n", pod, i, pod, scrape)
		fmt.Fprintf(&b, "h_bucket{pod=%q,le=\"+Inf\"} %d\nh_count{pod=%q} %d\nh_sum{pod=%q} 1\n", pod, scrape, pod, scrape, pod)
		fmt.Fprintf(&b, "s{pod=%q,quantile=\"0.5\"} 1\ns_count{pod=%q} %d\ns_sum{pod=%q} 1\n", pod, pod, scrape, pod)
	}
	fmt.Fprintf(&b, "steady 1\nname_%d 1\nbad line %d\n", scrape, scrape)
	return []byte(b.String())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // pools are emptied by the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemoryIsFlatWhileLabelsChurn: numbers are kept for good, and so have a bound, which
// is met after a third of the scrapes.
func TestMemoryIsFlatWhileLabelsChurn(t *testing.T) {
	scrapes, indices := 10_000, 22_000
	if race.Enabled {
		scrapes, indices = 1500, 3000
	}
	e := endpointOf(t, map[string]any{
		"endpoint": "http://localhost/metrics", "stale_markers": true,
		"filters": map[string]any{".*": map[string]any{"pod": "pod"}, "steady|name_": nil},
	})
	e.writer.tracker = series.New(series.Limits{AllIndices: indices}, true)
	var at [2]uint64
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for scrape := range scrapes {
		s, err := e.parser.Parse(churn(scrape), classicType, e.filter.Keep)
		require.NoError(t, err)
		e.news.tell(e.logger, e.write(s, pcommon.NewTimestampFromTime(now)).remarks)
		e.filter.Next()
		now = now.Add(15 * time.Second)
		if scrape == scrapes/2 {
			at[0] = heap()
		}
	}
	at[1] = heap()
	t.Logf("heap after half of the scrapes %d KiB, after all of them %d KiB", at[0]>>10, at[1]>>10)
	assert.Less(t, at[1], at[0]+at[0]/10+1<<20)
	runtime.KeepAlive(e)
}

// Points that wait to be sent must not keep the bodies that they are a small part of.
func TestAFewPointsDoNotKeepALargeBody(t *testing.T) {
	const scrapes, size = 30, 1 << 20
	body := "# TYPE m counter\nm{label=\"the one that is kept\"} 1\n" + strings.Repeat("other{label=\"one that is not\"} 1\n", size/32)
	r := start(t, at(serveText(t, body).URL, "filters", []any{`\.m$`}))
	waiting := []pmetric.Metrics{r.must()}
	before := heap()
	for range scrapes {
		waiting = append(waiting, r.must())
	}
	assert.Less(t, heap(), before+scrapes*size/2)
	for _, md := range waiting {
		label, _ := metricsOf(md)["openmetrics.e.m"].Sum().DataPoints().At(0).Attributes().Get("label")
		require.Equal(t, "the one that is kept", label.Str())
	}
}
