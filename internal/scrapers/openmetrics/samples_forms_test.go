// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package openmetrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Forms of recorded cases that any folder of them may have.
func TestFormsOfSamples(t *testing.T) {
	const om = `"content_type": "application/openmetrics-text; version=1.0.0",`
	for name, tt := range map[string]struct {
		files    map[string]string
		expected string
	}{
		"compressed": {
			map[string]string{"case.prom.gz": "# TYPE a gauge\na 1\nbad\n"},
			`"tags": {"openmetrics.e.a.0": 1}, "types": {"gauge": 1, "counter": 0}, "skipped_lines": [3]`,
		},
		"files of other cases": {
			map[string]string{"case.prom": "a 1\n", "case.static.txt": "", "case.other.prom": "b 1\n", "case2.prom": "c 1\n"},
			`"tags": {"openmetrics.e.a.0": 1}, "types": {"untyped": 1}, "skipped_lines": []`,
		},
		"more lines than are told": {
			map[string]string{"case.prom": "a 1\n" + strings.Repeat("bad\n", 14)},
			`"tags": {"openmetrics.e.a.0": 1}, "skipped_lines": [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]`,
		},
		"three scrapes": {
			map[string]string{
				"case.1.prom": "# TYPE c counter\nc{h=\"a\"} 10\nc{h=\"b\"} 5\n",
				"case.2.prom": "# TYPE c counter\nc{h=\"b\"} 6\n",
				"case.3.prom": "# TYPE c counter\nc{h=\"c\"} 1\nc{h=\"a\"} 3\nc{h=\"b\"} 7\n",
			},
			`"tags": {"openmetrics.e.c.0": 3, "openmetrics.e.c.1": 7, "openmetrics.e.c.2": 1}, "types": {"counter": 3}, "resets": ["openmetrics.e.c.0"],
			"previous_tags": [{"openmetrics.e.c.0": 10, "openmetrics.e.c.1": 5}, {"openmetrics.e.c.1": 6}]`,
		},
		"the last of two scrapes fails": {
			map[string]string{"case.1.prom": "a 1\n", "case.2.prom": "<html>"},
			`"tags": {}, "scrape_failed": true, "previous_tags": [{"openmetrics.e.a.0": 1}]`,
		},
		"a counter below zero": {
			map[string]string{"case.prom": "# TYPE c counter\nc{x=\"1\"} -1\nc{x=\"2\"} 3\n"},
			`"tags": {"openmetrics.e.c.0": -1, "openmetrics.e.c.1": 3}, "types": {"counter": 2}`,
		},
		"a histogram of fractions, without the last bucket, and with a sum that is no number": {
			map[string]string{"case.prom": "# TYPE h histogram\nh_bucket{le=\"1\"} 2.5\nh_sum NaN\nh_count 4\n"},
			`"tags": {}, "histograms": [{"metric": "openmetrics.e.h", "count": 4.0, "sum": null, "buckets": {"1.0": 2.5}}]`,
		},
		"a histogram that contradicts itself": {
			map[string]string{"case.prom": "a 1\n# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"2\"} 1\nh_count 3\n"},
			`"tags": {"openmetrics.e.a.0": 1}`,
		},
		"a fraction of a second, and the start of a summary": {
			map[string]string{"case.om": "# TYPE c counter\nc_created 1700000000.5\nc_total 4\n# TYPE s summary\ns_created 1700000001\ns_count 1\ns_sum 2\n# EOF\n"},
			om + `"tags": {"openmetrics.e.c_total.0": 4}, "created_families": ["s", "c"], "summaries": [{"metric": "openmetrics.e.s", "labels": {}, "count": 1, "sum": 2}],
			"start_time_unix": {"openmetrics.e.c_total.0": 1700000000.5, "openmetrics.e.s": 1700000001}`,
		},
		"a body that is cut within a line": {
			map[string]string{"case.om": "# TYPE a gauge\na 1\na{x=\"2"},
			om + `"tags": {"openmetrics.e.a.0": 1}, "strict": {"tags": {}, "error": true}`,
		},
		"GPUs of two machines": {
			map[string]string{"case.prom": "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",Hostname=\"a\"} 40\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\",Hostname=\"b\"} 41\n"},
			`"mode": "dcgm_map", "tags": {"gpu.0.temp/l:a": 40, "gpu.0.temp/l:b": 41}`,
		},
		"GPUs of two machines without their names": {
			map[string]string{"case.prom": "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",Hostname=\"a\"} 40\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\",Hostname=\"b\"} 41\n"},
			`"mode": "dcgm_map", "tags": {"gpu.0.temp": 41}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, body := range tt.files {
				if strings.HasSuffix(file, ".gz") {
					body = zipped(body)
				}
				require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(body), 0o600))
			}
			var want expected
			require.NoError(t, json.Unmarshal([]byte(`{"endpoint": "e", `+tt.expected+`}`), &want))
			checkSample(t, filepath.Join(folder, "case"), &want)
		})
	}
}
