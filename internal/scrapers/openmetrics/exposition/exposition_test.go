// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition/expositiontest"
)

const (
	classicType     = "text/plain; version=0.0.4; charset=utf-8"
	openMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	protobufType    = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)

// rule is a body and what is to be read from it, in the form of dump.
type rule struct {
	name string
	body string
	want []string
}

// checkRules reads each body twice: as it is, and after a byte order mark, which makes
// it be read line by line. The result must be the same.
func checkRules(t *testing.T, contentType string, rules []rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, before := range []string{"", bom} {
				s, err := New(Options{}).Parse([]byte(before+r.body), contentType, nil)
				require.NoError(t, err)
				assert.Equal(t, r.want, dump(s), "%q before it", before)
			}
		})
	}
}

func TestLinesOfTheClassicFormat(t *testing.T) {
	checkRules(t, classicType, []rule{
		{"a sample without a type is unknown", "a 1\n", []string{"unknown a 1"}},
		{"labels are sorted", "a{z=\"1\",b=\"2\"} 1\n", []string{`unknown a{b="2",z="1"} 1`}},
		{"an empty value is kept, and no value is another series", "a{x=\"\"} 1\na{} 2\na 3\n", []string{`unknown a{x=""} 1`, "unknown a 3", "duplicates 1"}},
		{"a timestamp is in milliseconds", "a 1 1700000000123\n", []string{"unknown a 1 at=1700000000123"}},
		{"trailing comma and blanks", "a { x = \"1\" , y=\"2\", } 1 \n", []string{`unknown a{x="1",y="2"} 1`}},
		{"labels without commas", "a{x=\"1\" y=\"2\"} 1\n", []string{`unknown a{x="1",y="2"} 1`}},
		{"escapes, and backslashes that are none", `a{x="\\ \" \n \q"} 1` + "\n", []string{`unknown a{x="\\ \" \n \\q"} 1`}},
		{"quoted names", "# TYPE \"a.b\" gauge\n{\"a.b\",\"x y\"=\"1\"} 1\n{x=\"2\",\"a.b\"} 2\n", []string{`gauge a.b{x y="1"} 1`, `gauge a.b{x="2"} 2`}},
		{"no final newline", "a 1\nb 2", []string{"unknown a 1", "unknown b 2"}},
		{"carriage returns", "# TYPE a gauge\r\na 1\r\n\r\n", []string{"gauge a 1"}},
		{"blanks before a name or a comment", " a 1\n\t# TYPE a gauge\n  \n", []string{"gauge a 1"}},
		{"comments", "#\n# free\n#TYPE a gauge\n# TYPE\n# TYPEa gauge\na 1\n", []string{"unknown a 1"}},
		{"spellings of numbers", "a 5.3e+011\na{n=\"1\"} +Inf\na{n=\"2\"} inf\na{n=\"3\"} Nan\na{n=\"4\"} 12.0\na{n=\"5\"} .5\n", []string{
			"unknown a 5.3e+11", `unknown a{n="1"} +Inf`, `unknown a{n="2"} +Inf`, `unknown a{n="3"} NaN`, `unknown a{n="4"} 12`, `unknown a{n="5"} 0.5`, "non-finite 3",
		}},
		{"numbers that are none", "ok 1\na 0x10\na 1_0\na abc\na 1e999\na 0x1p3\na\na{x=\"1\"}\n", []string{
			"unknown ok 1",
			"line 2: the value is no number", "line 3: the value is no number", "line 4: the value is no number", "line 5: the value is no number",
			"line 6: the value is no number", "line 7: the value is missing", "line 8: the value is missing",
		}},
		{"malformed labels", "ok 1\na{x=\"b\"c\"} 1\na{x=\"1\n{x=\"1\"} 1\na{,} 1\na{x} 1\na{x=1} 1\na{\"b\"} 1\n{\"\"} 1\na{x=\"1\"", []string{
			"unknown ok 1",
			"line 2: = is expected after a label's name", "line 3: a quoted text has no end", "line 4: it does not begin with a metric's name",
			"line 5: a label's name is expected", "line 6: = is expected after a label's name", "line 7: a label's value is not quoted",
			"line 8: it has two metric names", "line 9: a name is empty or not UTF-8", "line 10: the labels have no end",
		}},
		{"texts that end within an escape", "ok 1\na{x=\"\\\"} 1\n{\"a} 1\n", []string{"unknown ok 1", "line 2: a quoted text has no end", "line 3: a quoted text has no end"}},
		{"a repeated label", "ok 1\na{x=\"1\",y=\"\",x=\"2\"} 1\na{__name__=\"b\"} 1\n", []string{"unknown ok 1", "line 2: a label occurs twice", "line 3: a label occurs twice"}},
		{"text after a sample", "ok 1\na 1 2 3\na 1 x\na 1 # why\n", []string{
			"unknown ok 1", "line 2: there is text after the sample", "line 3: the timestamp is no number", "line 4: there is text after the sample",
		}},
		{"an exemplar is cut off", "# TYPE a_total counter\na_total 1 # {trace_id=\"x\"} 0.5\n", []string{"counter a_total 1"}},
		{"a value that is a part of a bad name", "ok 1\ngpu-0 45\ndisk.5 1\n", []string{
			"unknown ok 1", "line 2: there is no blank between the name and the value", "line 3: there is no blank between the name and the value",
		}},
		{"invalid UTF-8", "# HELP a \xff\na{x=\"\xff\xfe.\"} 1\n", []string{"unknown a{x=\"\uFFFD.\"} 1", "replaced 2"}},
		{"a NUL", "a 1\n\x00\nb{x=\"\x00\"} 2\n", []string{"unknown a 1", `unknown b{x="\x00"} 2`, "line 2: it does not begin with a metric's name"}},
		{"what follows # EOF is data", "a 1\n# EOF\nb 2\n", []string{"unknown a 1", "unknown b 2"}},
	})
}

func TestLinesOfOpenMetrics(t *testing.T) {
	checkRules(t, openMetricsType, []rule{
		{"an exposition without metrics", "# EOF\n", nil},
		{"blanks after the end", "a 1\n# EOF \n", []string{"unknown a 1"}},
		{"no newline after the end", "a 1\n# EOF", []string{"unknown a 1"}},
		{"a timestamp is in seconds", "a 1 1700000000.25\n# EOF\n", []string{"unknown a 1 at=1700000000250"}},
		{"a counter's exemplar", "# TYPE a counter\na_total 1 # {t=\"\\\"\",b=\"x\"} 0.5 1.5\n# EOF\n", []string{`counter a_total 1 #{b="x",t="\""} 0.5 at=1500`}},
		{"a counter's exemplar without a time", "# TYPE a counter\na_total 1 2 # {} 0.5\n# EOF\n", []string{"counter a_total 1 at=2000 # 0.5"}},
		{"exemplars elsewhere are left out", "# TYPE a gauge\na 1 # {x=\"1\"} 0.5\n# EOF\n", []string{"gauge a 1"}},
		{"malformed exemplars", "ok 1\na 1 # {x} 0.5\na 1 # {x=\"1\"}\na 1 # {x=\"1\"} 1 NaN\na 1 # {\"x\"} 1\n# EOF\n", []string{
			"unknown ok 1", "line 2: the exemplar is malformed", "line 3: the exemplar is malformed", "line 4: the exemplar is malformed", "line 5: the exemplar is malformed",
		}},
		{"timestamps that are none", "ok 1\na 1 NaN\na 1 Inf\n# EOF\n", []string{"unknown ok 1", "line 2: the timestamp is no number", "line 3: the timestamp is no number"}},
		{"labels need commas", "ok 1\na{x=\"1\" y=\"2\"} 1\n# EOF\n", []string{"unknown ok 1", "line 2: a comma or a brace is expected after a label's value"}},
		{"blanks, empty lines and comments", "a  1\n\n# free\n#x\n b{ x=\"1\" } 2\n# EOF\n", []string{"unknown a 1", `unknown b{x="1"} 2`}},
		{"data after the end", "a 1\n# EOF\nb 2\n\n# TYPE a gauge\n", []string{"unknown a 1", "line 3: it comes after # EOF", "line 5: it comes after # EOF"}},
		{"no end", "a 1\nb 2\n", []string{"unknown a 1", "unknown b 2", "no EOF"}},
		{"cut in a line", "a 1\nb 2", []string{"unknown a 1", "line 2: the body ends within this line", "no EOF"}},
		{"cut in metadata", "a 1\n# TYPE a gau", []string{"unknown a 1", "line 2: the body ends within this line", "no EOF"}},
		{"carriage returns", "# TYPE a gauge\r\na 1\r\n# EOF\r\n", []string{"gauge a 1"}},
	})
}

func TestMetadata(t *testing.T) {
	checkRules(t, classicType, []rule{
		{"a type after the samples", "a 1\n# TYPE a gauge\n", []string{"gauge a 1"}},
		{"repeated metadata", "# HELP a x\n# TYPE a counter\na{i=\"1\"} 1\n# HELP a x\n# TYPE a counter\na{i=\"2\"} 2\n", []string{`counter a{i="1"} 1`, `counter a{i="2"} 2`}},
		{"all metadata first", "# TYPE a gauge\n# TYPE b counter\n# TYPE c summary\nb 1\na 2\n", []string{"counter b 1", "gauge a 2"}},
		{"the first of two types", "# TYPE a gauge\n# TYPE a counter\na 1\n", []string{"gauge a 1"}},
		{"two types whose samples have other names", "# TYPE a gauge\n# TYPE a histogram\na 1\na_bucket{le=\"+Inf\"} 2\n", []string{"gauge a 1", "histogram a 2 - [] [2]"}},
		{"an unknown type", "# TYPE a teapot\na 1\n# TYPE b\tcounter\nb 2\n# TYPE c \nc 3\n", []string{
			"unknown a 1", "counter b 2", "unknown c 3", "line 1: the type is unknown", "line 5: the type is unknown",
		}},
		{"a type without a name", "a 1\n# TYPE \n# TYPE 5 gauge\n# HELP \"\" x\n# UNIT\n# UNIT 5\n", []string{
			"unknown a 1", "line 2: a metric's name is expected", "line 3: a metric's name is expected", "line 4: a name is empty or not UTF-8",
		}},
		{"the types of OpenMetrics in classic text", "# TYPE a info\na 1\n# TYPE b stateset\nb{b=\"x\"} 0\n# TYPE c unknown\nc 2\n# TYPE d untyped\nd 3\n", []string{
			"info a 1", `stateset b{b="x"} 0`, "unknown c 2", "unknown d 3",
		}},
		{"families without samples", "# TYPE a histogram\n# TYPE b counter\n# HELP c x\n", nil},
	})
}

func TestFamilyDescribesItsSeries(t *testing.T) {
	for name, c := range map[string]struct{ body, contentType, help, unit string }{
		"help and unit":                        {"# HELP a_seconds A \\\\ b\\n\\\".\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1\n", classicType, "A \\ b\n\\\".", "seconds"},
		"a counter's family":                   {"# HELP a_seconds A\\\".\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n# EOF\n", openMetricsType, "A\".", "seconds"},
		"a counter's own":                      {"# TYPE a_bytes_total counter\n# UNIT a_bytes_total bytes\na_bytes_total 1\n", classicType, "", "bytes"},
		"a unit that the name does not end in": {"# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n", openMetricsType, "", ""},
		"a unit that is a part of a word":      {"# TYPE aseconds gauge\n# UNIT aseconds seconds\naseconds 1\n", classicType, "", ""},
		"help of the samples' name":            {"# HELP a_total x\n# TYPE a counter\na_total 1\n", classicType, "x", ""},
		"the first of two":                     {"# HELP a x\n# HELP a y\na 1\n", classicType, "x", ""},
		"an empty unit":                        {"# UNIT a \na 1\n# EOF\n", openMetricsType, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Strict: true}).Parse([]byte(c.body), c.contentType, nil)
			require.NoError(t, err)
			require.Len(t, s.Families, 1)
			assert.Equal(t, c.help, s.Families[0].Help)
			assert.Equal(t, c.unit, s.Families[0].Unit)
		})
	}
}

func TestSampleNamesOfFamilies(t *testing.T) {
	checkRules(t, openMetricsType, []rule{
		{"a counter, with and without _total", "# TYPE a counter\na_total 1\n# TYPE b counter\nb 2\n# EOF\n", []string{"counter a_total 1", "counter b 2"}},
		{"a gauge and a counter of one name", "# TYPE a gauge\na 1\n# TYPE a counter\na_total 2\n# EOF\n", []string{"gauge a 1", "counter a_total 2"}},
		{"a gauge and a counter of one name, the counter first", "# TYPE a counter\na_total 2\n# TYPE a gauge\na 1\n# EOF\n", []string{"counter a_total 2", "gauge a 1"}},
		{"an info", "# TYPE a info\na_info{v=\"1\"} 1\n# EOF\n", []string{`info a_info{v="1"} 1`}},
		{"a gaugehistogram is counted", "# TYPE a gaugehistogram\na_bucket{le=\"1\"} 1\na_gcount 1\na_gsum 1\n# EOF\n", []string{"gaugehistograms 1"}},
		{"suffixes without a type", "a_count 1\na_sum 2\na_bucket{le=\"1\"} 3\na_total 4\na_info 5\na_created 6\n# EOF\n", []string{
			"unknown a_count 1", "unknown a_sum 2", `unknown a_bucket{le="1"} 3`, "unknown a_total 4", "unknown a_info 5", "unknown a_created 6",
		}},
		{"suffixes of other types", "# TYPE a gauge\na_count 1\na_total 2\na_created 3\na_bucket 4\n# EOF\n", []string{
			"unknown a_count 1", "unknown a_total 2", "unknown a_created 3", "unknown a_bucket 4",
		}},
		{"a name of its own wins", "# TYPE a histogram\n# TYPE a_count gauge\na_count 7\na_bucket{le=\"+Inf\"} 2\n# EOF\n", []string{"gauge a_count 7", "histogram a 2 - [] [2]"}},
		{"a name that a histogram's samples cannot have", "# TYPE a histogram\na 1\na_count 2\n# TYPE b gaugehistogram\nb 1\n# EOF\n", []string{
			"histogram a 2 - [] [2]", "line 2: a family of this type has no sample of this name", "line 5: a family of this type has no sample of this name",
		}},
		{"the endpoint's description", "# TYPE target info\ntarget_info{service=\"x\"} 1\na 1\n# EOF\n", []string{"unknown a 1", `target{service="x"}`}},
		{"the endpoint's description twice", "target_info{service=\"x\"} 1\ntarget_info{service=\"x\"} 1\n# EOF\n", []string{`target{service="x"}`}},
		{"descriptions of others", "target_info{instance=\"x\"} 1\na 1\ntarget_info{instance=\"y\"} 1\n# EOF\n", []string{"unknown a 1", "targets 2"}},
		{"the endpoint's description as a gauge", "# TYPE target_info gauge\ntarget_info{service=\"x\"} 1\n# EOF\n", []string{`target{service="x"}`}},
	})
	checkRules(t, classicType, []rule{
		{"OpenMetrics names in classic text", "# TYPE a counter\na_total 1\n# TYPE b info\nb_info 1\n", []string{"counter a_total 1", "info b_info 1"}},
		{"the first of two types of one name", "# TYPE a counter\na 1\n# TYPE a gauge\n", []string{"counter a 1"}},
		{"a gauge and a counter that differ by _total", "# TYPE a gauge\na 1\n# TYPE a_total counter\na_total 2\n", []string{"gauge a 1", "counter a_total 2"}},
	})
}

func TestStartTimes(t *testing.T) {
	checkRules(t, openMetricsType, []rule{
		{"after its series", "# TYPE a counter\na_total 1\na_created 1.5\n# EOF\n", []string{"counter a_total 1 start=1500", "created a"}},
		{"before all series, labels in another order", "# TYPE a counter\na_created{x=\"1\",y=\"2\"} 1\na_created{x=\"2\",y=\"2\"} 2\na_total{y=\"2\",x=\"2\"} 1\na_total{y=\"2\",x=\"1\"} 1\n# EOF\n", []string{
			`counter a_total{x="2",y="2"} 1 start=2000`, `counter a_total{x="1",y="2"} 1 start=1000`, "created a",
		}},
		{"of another series", "# TYPE a counter\na_total{x=\"1\"} 1\na_created{x=\"\"} 1\n# EOF\n", []string{`counter a_total{x="1"} 1`, "created a"}},
		{"of a histogram and a summary", "# TYPE h histogram\nh_bucket{le=\"+Inf\",x=\"1\"} 1\nh_created{x=\"1\"} 1\n# TYPE s summary\ns_count 1\ns_created 2\n# EOF\n", []string{
			`histogram h{x="1"} 1 - [] [1] start=1000`, "summary s 1 - [] start=2000", "created h", "created s",
		}},
		{"none if it is not positive or no number", "# TYPE a counter\na_total{x=\"0\"} 1\na_created{x=\"0\"} 0\na_total{x=\"1\"} 1\na_created{x=\"1\"} -5\na_total{x=\"2\"} 1\na_created{x=\"2\"} NaN\na_total{x=\"3\"} 1\na_created{x=\"3\"} 1e30\n# EOF\n", []string{
			`counter a_total{x="0"} 1`, `counter a_total{x="1"} 1`, `counter a_total{x="2"} 1`, `counter a_total{x="3"} 1`, "created a",
		}},
	})
	checkRules(t, classicType, []rule{
		{"of the Python client", "# TYPE a_total counter\na_total 1\n# TYPE a_created gauge\na_created 1\n# TYPE h histogram\nh_count 2\n# TYPE h_created gauge\nh_created 2\n", []string{
			"counter a_total 1 start=1000", "histogram h 2 - [] [2] start=2000", "created a_total", "created h",
		}},
		{"of OpenMetrics served as classic text", "# TYPE a counter\na_total 1\na_created 1\n", []string{"counter a_total 1 start=1000", "created a"}},
		{"not a counter of that name", "# TYPE a counter\na 1\n# TYPE a_created counter\na_created 5\n", []string{"counter a 1", "counter a_created 5"}},
	})
}

func TestStartTimesArePairedBeforeTheFilter(t *testing.T) {
	body := "# TYPE a counter\na_total 1\na_created 1\n# TYPE b counter\nb_total 1\nb_created 2\n# EOF\n"
	s, err := New(Options{}).Parse([]byte(body), openMetricsType, func(name string, _ Labels) bool { return name == "a_total" })
	require.NoError(t, err)
	assert.Equal(t, []string{"counter a_total 1 start=1000", "created a", "created b"}, dump(s))
	assert.Equal(t, [2]int{4, 1}, [2]int{s.Samples, s.Kept})
}

func TestHistograms(t *testing.T) {
	const head = "# TYPE h histogram\n"
	checkRules(t, openMetricsType, []rule{
		{"cumulative counts become those of each bucket", head + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"2.5\"} 3\nh_bucket{le=\"+Inf\"} 6\nh_sum 12.5\nh_count 6\n# EOF\n", []string{"histogram h 6 12.5 [1 2.5] [1 2 3]"}},
		{"buckets in any order, series mixed", head + "h_bucket{le=\"+Inf\"} 6\nh_bucket{le=\"2\",x=\"1\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{x=\"1\",le=\"+Inf\"} 1\n# EOF\n", []string{"histogram h 6 - [1] [1 5]", `histogram h{x="1"} 1 - [2] [1 0]`}},
		{"no +Inf: the count", head + "h_bucket{le=\"1\"} 1\nh_count 6\n# EOF\n", []string{"histogram h 6 - [1] [1 5]"}},
		{"+Inf and the count disagree: +Inf", head + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_count 6\n# EOF\n", []string{"histogram h 2 - [1] [1 1]"}},
		{"neither", head + "h_bucket{le=\"1\",x=\"1\"} 1\nh_sum{x=\"1\"} 6\n# EOF\n", []string{"malformed h{x=1}: it has no count"}},
		{"counts are rounded before the difference", head + "h_bucket{le=\"1\"} 2.5\nh_bucket{le=\"+Inf\"} 4\n# EOF\n", []string{"histogram h 4 - [1] [3 1]"}},
		{"a bucket above the count", head + "h_bucket{le=\"1\"} 3\nh_count 2\n# EOF\n", []string{"malformed h: a bucket count is above the count"}},
		{"buckets that do not ascend", head + "h_bucket{le=\"1\"} 3\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"+Inf\"} 4\n# EOF\n", []string{"malformed h: its bucket counts do not ascend"}},
		{"counts that are none", head + "h_count{x=\"1\"} -1\nh_count{x=\"2\"} NaN\nh_bucket{le=\"1\",x=\"3\"} NaN\nh_count{x=\"3\"} 1\nh_count{x=\"4\"} 1e30\n# EOF\n", []string{
			"malformed h{x=1}: a count is negative or no number", "malformed h{x=2}: a count is negative or no number",
			"malformed h{x=3}: a count is negative or no number", "malformed h{x=4}: a count is negative or no number",
		}},
		{"a malformed one among others", head + "h_count{x=\"1\"} 1\nh_bucket{le=\"1\",x=\"2\"} 1\nh_bucket{le=\"2\",x=\"2\"} 0\nh_count{x=\"2\"} 1\nh_bucket{le=\"5\",x=\"3\"} 1\nh_count{x=\"3\"} 3\n# EOF\n", []string{
			`histogram h{x="1"} 1 - [] [1]`, `histogram h{x="3"} 3 - [5] [1 2]`, "malformed h{x=2}: its bucket counts do not ascend",
		}},
		{"bounds that are none", head + "h_bucket 1\nh_bucket{le=\"x\"} 1\nh_bucket{le=\"NaN\"} 1\nh_bucket{le=\"-Inf\"} 1\nh_count 1\n# EOF\n", []string{
			"histogram h 1 - [] [1]", "line 2: a bucket without an upper bound (le)", "line 3: a bucket without an upper bound (le)",
			"line 4: a bucket without an upper bound (le)", "line 5: a bucket without an upper bound (le)",
		}},
		{"a bucket twice, in two spellings", head + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"1.0\"} 2\nh_count 5\nh_count 6\n# EOF\n", []string{"histogram h 6 - [1] [2 4]", "duplicates 2"}},
		{"a sum that is no number", head + "h_sum NaN\nh_count 6\n# EOF\n", []string{"histogram h 6 NaN [] [6]"}},
		{"negative observations: no sum in the family", head + "h_bucket{le=\"-1\"} 1\nh_count 2\nh_sum 5\nh_count{x=\"1\"} 1\nh_sum{x=\"1\"} 1\n# EOF\n", []string{"histogram h 2 - [-1] [1 1]", `histogram h{x="1"} 1 - [] [1]`}},
		{"negative bounds without observations", head + "h_bucket{le=\"-1\"} 0\nh_count 2\nh_sum 5\n# EOF\n", []string{"histogram h 2 5 [-1] [0 2]"}},
		{"exemplars of buckets", head + "h_bucket{le=\"1\"} 1 # {t=\"1\"} 0.5\nh_bucket{le=\"+Inf\"} 2 # {t=\"2\"} 5 6\nh_count 2 # {t=\"3\"} 1\n# EOF\n", []string{`histogram h 2 - [1] [1 1] #{t="1"} 0.5 #{t="2"} 5 at=6000`}},
		{"a timestamp", head + "h_bucket{le=\"+Inf\"} 2 5\nh_count 2 5\n# EOF\n", []string{"histogram h 2 - [] [2] at=5000"}},
	})
}

func TestSummaries(t *testing.T) {
	const head = "# TYPE s summary\n"
	checkRules(t, classicType, []rule{
		{"quantiles ascend", head + "s_sum 5\ns_count 2\ns{quantile=\"1\"} 3\ns{quantile=\"0\"} 1\ns{x=\"1\",quantile=\"0.5\"} 2\ns_count{x=\"1\"} 1\n", []string{"summary s 2 5 [{0 1} {1 3}]", `summary s{x="1"} 1 - [{0.5 2}]`}},
		{"quantiles without a value are left out", head + "s{quantile=\"0.5\"} NaN\ns_sum NaN\ns_count 0\n", []string{"summary s 0 NaN []"}},
		{"no count", head + "s{quantile=\"0.5\"} 1\ns_sum 5\n", []string{"malformed s: it has no count"}},
		{"a count that is none", head + "s_count -2\n", []string{"malformed s: a count is negative or no number"}},
		{"no quantile", head + "s 1\ns_count 2\n", []string{"summary s 2 - []", "line 2: a summary's sample without a quantile"}},
		{"a quantile twice", head + "s{quantile=\"0.5\"} 1\ns{quantile=\"0.50\"} NaN\ns_count 2\n", []string{"summary s 2 - []", "duplicates 1"}},
	})
}

func TestDuplicates(t *testing.T) {
	checkRules(t, classicType, []rule{
		{"the last wins, in the place of the first", "a{x=\"1\",y=\"2\"} 1\na{x=\"3\"} 2\na{y=\"2\",x=\"1\"} 3 4\n", []string{`unknown a{x="1",y="2"} 3 at=4`, `unknown a{x="3"} 2`, "duplicates 1"}},
		{"also if it is no number", "a 1\na NaN\n", []string{"unknown a NaN", "non-finite 1", "duplicates 1"}},
		{"a number after none", "a NaN\na 1\n", []string{"unknown a 1", "duplicates 1"}},
		{"labels that look the same when joined", "a{a=\"1;b=2\"} 1\na{a=\"1\",b=\"2\"} 2\n", []string{`unknown a{a="1;b=2"} 1`, `unknown a{a="1",b="2"} 2`}},
		{"the same labels under another name", "a{x=\"1\"} 1\nb{x=\"1\"} 2\n", []string{`unknown a{x="1"} 1`, `unknown b{x="1"} 2`}},
	})
}

func TestSeriesWithTheSameHashStayApart(t *testing.T) {
	p := New(Options{})
	_, err := p.Parse([]byte("a{x=\"1\"} 1\na{x=\"1\",y=\"2\"} 1\n"), classicType, nil)
	require.NoError(t, err)
	for at := range int32(2) {
		_, key, _ := p.find(0, Labels{{"x", "3"}})
		p.places[key] = place{family: 0, at: at}
		_, other, found := p.find(0, Labels{{"x", "3"}})
		assert.False(t, found)
		assert.Equal(t, key+1, other)
	}
}

func TestFilterIsAskedByFamilyAndLabels(t *testing.T) {
	body := "# TYPE a gauge\na{x=\"1\"} 1\na{x=\"2\"} NaN\n# TYPE h histogram\nh_bucket{le=\"1\",x=\"1\"} 1\nh_bucket{le=\"+Inf\",x=\"2\"} 1\n" +
		"# TYPE s summary\ns{quantile=\"0.5\",x=\"1\"} 1\ns_count{x=\"1\"} 1\n# TYPE g gaugehistogram\ng_gcount{x=\"2\"} 1\ntarget_info{x=\"1\"} 1\n"
	asked := map[string]bool{}
	keep := func(name string, labels Labels) bool {
		asked[name+dumpLabels(labels)] = true
		x, ok := labels.Get("x")
		_, no := labels.Get("y")
		return ok && !no && x == "1"
	}
	s, err := New(Options{}).Parse([]byte(body), classicType, keep)
	require.NoError(t, err)
	assert.Equal(t, []string{
		`gauge a{x="1"} 1`, `summary s{x="1"} 1 - [{0.5 1}]`, `target{x="1"}`, "malformed h{x=1}: it has no count",
	}, dump(s))
	assert.Equal(t, map[string]bool{
		`a{x="1"}`: true, `a{x="2"}`: true, `h{x="1"}`: true, `h{x="2"}`: true, `s{x="1"}`: true, `g{x="2"}`: true,
	}, asked)
	assert.Equal(t, [2]int{8, 4}, [2]int{s.Samples, s.Kept})
}

func TestLimits(t *testing.T) {
	limits := Limits{BodySize: 1000, Series: 3, Labels: 2, LabelValue: 4, Name: 5}
	for name, c := range map[string]struct {
		body string
		want []string
		err  string
	}{
		"body":                     {strings.Repeat("a 1\n", 251), nil, "the body is too large (max_body_size: 1000)"},
		"series":                   {"a{x=\"1\"} 1\na{x=\"2\"} 1\na{x=\"3\"} 1\na{x=\"4\"} 1\n", nil, "the endpoint has too many series after filtering (max_series: 3)"},
		"series, line by line":     {"  a{x=\"1\"} 1\na{x=\"2\"} 1\na{x=\"3\"} 1\na{x=\"4\"} 1\n", nil, "the endpoint has too many series after filtering (max_series: 3)"},
		"quantiles are series":     {"# TYPE s summary\ns{quantile=\"0\"} 1\ns{quantile=\"0.5\"} 1\ns{quantile=\"1\"} 1\ns_sum 1\n", nil, "the endpoint has too many series after filtering (max_series: 3)"},
		"as many as are allowed":   {"a{x=\"1\"} 1\na{x=\"2\"} 1\na{x=\"3\"} 1\na{x=\"3\"} 2\n", []string{`unknown a{x="1"} 1`, `unknown a{x="2"} 1`, `unknown a{x="3"} 2`, "duplicates 1"}, ""},
		"what is filtered is free": {"no{x=\"1\"} 1\nno{x=\"2\"} 1\nno{x=\"3\"} 1\nno{x=\"4\"} 1\na 1\n", []string{"unknown a 1"}, ""},
		"labels":                   {"a{x=\"1\",y=\"2\"} 1\na{x=\"1\",y=\"2\",z=\"3\"} 1\n", []string{`unknown a{x="1",y="2"} 1`, "line 2: it has too many labels"}, ""},
		"name":                     {"abcde 1\nabcdef 1\n# TYPE abcdef gauge\n", []string{"unknown abcde 1", "line 2: the metric's name is too long", "line 3: the metric's name is too long"}, ""},
		"names":                    {manyNames("no%d 1\n", 31), nil, "the endpoint has too many names of metrics (max_series: 3)"},
		"described names":          {manyNames("# TYPE a%d gauge\n", 31), nil, "the endpoint has too many names of metrics (max_series: 3)"},
		"as many names as allowed": {manyNames("# TYPE a%d gauge\n", 30), nil, ""},
		"long values tell series from each other": {"a{x=\"12345\"} 1\na{x=\"12346\"} 1\n", []string{`unknown a{x="12345"} 1`, `unknown a{x="12346"} 1`, "long 2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Limits: limits}).Parse([]byte(c.body), classicType, func(name string, _ Labels) bool { return !strings.HasPrefix(name, "no") })
			if c.err != "" {
				require.EqualError(t, err, c.err)
				var limit *LimitError
				assert.ErrorAs(t, err, &limit)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, dump(s))
		})
	}
}

func manyNames(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestExemplarsWithTooManyLabels(t *testing.T) {
	body := "ok 1\na 1 # {a=\"1\",b=\"2\",c=\"3\"} 1\n# EOF\n"
	s, err := New(Options{Limits: Limits{Labels: 2}}).Parse([]byte(body), openMetricsType, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"unknown ok 1", "line 2: the exemplar is malformed"}, dump(s))
}

func TestRawNewlineInAValueIsKeptByTextparseAlone(t *testing.T) {
	body := "a{x=\"1\n2\"} 1\n"
	s, err := New(Options{}).Parse([]byte(body), classicType, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{`unknown a{x="1\n2"} 1`}, dump(s))
	s, err = New(Options{}).Parse([]byte("ok 1\n"+body+"bad\n"), classicType, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"unknown ok 1", "line 2: a quoted text has no end", "line 3: it does not begin with a metric's name", "line 4: the value is missing",
	}, dump(s))
}

func TestShownValueIsWholeCharacters(t *testing.T) {
	limits := Limits{LabelValue: 4}
	assert.Equal(t, "abcd", limits.Shown("abcd"))
	assert.Equal(t, "abcd", limits.Shown("abcde"))
	assert.Equal(t, "abc", limits.Shown("abcé"))
	assert.Equal(t, DefaultLimits(), New(Options{}).Limits())
	assert.Equal(t, 7, New(Options{Limits: Limits{Series: 7}}).Limits().Series)
}

func TestStrictFailsForAnythingWrong(t *testing.T) {
	for name, c := range map[string]struct{ body, contentType, err string }{
		"a bad line":             {"a 1\nb x\nc y\n", classicType, "line 2: the value is no number"},
		"an unknown type":        {"# TYPE a teapot\na 1\n", classicType, "line 1: the type is unknown"},
		"no end":                 {"a 1\n", openMetricsType, "the OpenMetrics body does not end with # EOF, it may be cut off"},
		"a malformed histogram":  {"# TYPE h histogram\nh_sum 1\n", classicType, "malformed series h: it has no count"},
		"invalid UTF-8":          {"a{x=\"\xff\"} 1\n", classicType, "the body has invalid UTF-8"},
		"data after the end":     {"a 1\n# EOF\nb 1\n", openMetricsType, "line 3: it comes after # EOF"},
		"what is not wrong":      {"a NaN\r\na 1\n# UNIT a seconds\n", classicType, ""},
		"a unit of another name": {"# UNIT a seconds\na 1\n# EOF\n", openMetricsType, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Strict: true}).Parse([]byte(c.body), c.contentType, nil)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
			assert.Nil(t, s)
		})
	}
}

func TestFormatIsThatOfTheContentTypeElseOfTheBody(t *testing.T) {
	const openMetrics, classic = "a 1\n# EOF\n", "a 1\n"
	for _, c := range []struct {
		contentType, body string
		want              Format
		err               string
	}{
		{"application/openmetrics-text", classic, OpenMetrics, ""},
		{"application/openmetrics-text; version=0.0.1", classic, OpenMetrics, ""},
		{"Application/OpenMetrics-Text;version=1.0.0;charset=utf-8", classic, OpenMetrics, ""},
		{"text/plain; version=0.0.4", openMetrics, Classic, ""},
		{"text/plain; version=1.0.0; escaping=allow-utf-8", openMetrics, Classic, ""},
		{"text/plain; charset=utf-8", openMetrics, OpenMetrics, ""},
		{"text/plain", classic, Classic, ""},
		{"text/plain; version=9", "a 1\n# EOF\r\n \n", OpenMetrics, ""},
		{"", openMetrics, OpenMetrics, ""},
		{"", bom + "a 1\n# EOF", OpenMetrics, ""},
		{"", "# EOF\na 1\n", Classic, ""},
		{"", "a 1 # EOF\n", Classic, ""},
		{"", "", Classic, ""},
		{"a/b/c", classic, Classic, ""},
		{"application/json", classic, Classic, ""},
		{"application/openmetrics-text; =", classic, OpenMetrics, ""},
		{"text/html; charset=utf-8", classic, 0, errHTML.Error()},
		{"", bom + "\n <!doctype html>", 0, errHTML.Error()},
		{"text/plain; charset=utf-8", "<html>", 0, errHTML.Error()},
		{protobufType, "", Protobuf, ""},
		{"application/vnd.google.protobuf", "", Protobuf, ""},
		{"application/vnd.google.protobuf; proto=a.B; encoding=delimited", "", 0, `the endpoint answered with messages of type "a.B"`},
		{"application/vnd.google.protobuf; encoding=text", "", 0, `the endpoint answered with protobuf in encoding "text", only delimited is supported`},
	} {
		t.Run(fmt.Sprintf("%s %q", c.contentType, c.body), func(t *testing.T) {
			got, err := formatOf(c.contentType, c.body)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want.String(), got.String())
		})
	}
}

func TestBodyWithoutMetricsIsAFailedScrape(t *testing.T) {
	for body, want := range map[string]string{
		"":                        "",
		"\n \n":                   "",
		"# TYPE a gauge\n":        "",
		"# EOF\n":                 "",
		`{"error":"no such job"}`: `the body has no metrics, it begins with "{\"error\":\"no such job\"}"`,
		"# only a comment\n":      `the body has no metrics, it begins with "# only a comment\n"`,
		strings.Repeat("é", 50):   `the body has no metrics, it begins with "` + strings.Repeat("é", 30) + `..."`,
		"<html></html>":           errHTML.Error(),
	} {
		s, err := New(Options{}).Parse([]byte(body), "", nil)
		if want == "" {
			require.NoError(t, err, body)
			assert.Empty(t, s.Families)
			continue
		}
		require.EqualError(t, err, want)
	}
	// A filter that wants nothing is not a body without anything.
	_, err := New(Options{}).Parse([]byte("a 1\n"), "", func(string, Labels) bool { return false })
	require.NoError(t, err)
}

func TestFirstSkippedLinesAreTold(t *testing.T) {
	body := strings.Repeat("bad\n", 8) + "# TYPE a teapot\n# TYPE b teapot\na 1\n" + strings.Repeat("# TYPE b teapot\n", 20) + "bad\n"
	s, err := New(Options{}).Parse([]byte(body), classicType, nil)
	require.NoError(t, err)
	assert.Equal(t, 31, s.Skipped)
	require.Len(t, s.SkippedLines, shownLines)
	for i, l := range s.SkippedLines {
		assert.Equal(t, i+1, l.Line)
	}
	var malformed strings.Builder
	malformed.WriteString("# TYPE h histogram\n")
	for i := range 15 {
		fmt.Fprintf(&malformed, "h_sum{x=\"%d\",y=\"\"} 1\n", i)
	}
	s, err = New(Options{}).Parse([]byte(malformed.String()), classicType, nil)
	require.NoError(t, err)
	assert.Equal(t, 15, s.Malformed)
	require.Len(t, s.MalformedSeries, shownSeries)
	assert.Equal(t, "h{x=0,y=}: it has no count", s.MalformedSeries[0])
}

func TestParserForgetsTheLastScrape(t *testing.T) {
	p := New(Options{})
	first := "# TYPE a counter\n# HELP a old\n# UNIT a_seconds seconds\na{x=\"1\"} 1\na_created{x=\"1\"} 5\nbad\ntarget_info{x=\"1\"} 1\n# TYPE g gaugehistogram\ng_gcount 1\n# TYPE h histogram\nh_sum 1\n"
	s, err := p.Parse([]byte(first), classicType, nil)
	require.NoError(t, err)
	require.NotEmpty(t, s.Families[0].Help)
	s, err = p.Parse([]byte("a{x=\"1\"} 2\na_created{x=\"1\"} 6\nh_sum 2\n"), classicType, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{`unknown a{x="1"} 2`, `unknown a_created{x="1"} 6`, "unknown h_sum 2"}, dump(s))
	assert.Empty(t, s.Families[0].Help)
	_, err = p.Parse([]byte("<html>"), "", nil)
	require.Error(t, err)
	s, err = p.Parse([]byte(first), classicType, nil)
	require.NoError(t, err)
	assert.Contains(t, dump(s), `counter a{x="1"} 1 start=5000`)
}

func TestNamesOfEarlierScrapesDoNotAccumulate(t *testing.T) {
	p := New(Options{})
	for scrape := range 10 {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, "a_%d_%d 1\n", scrape, i)
		}
		_, err := p.Parse([]byte(b.String()), classicType, nil)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(p.names.byName), 3*1000+staleNames)
	}
}

func TestStringsOutliveTheNextScrapeAndTheBody(t *testing.T) {
	p := New(Options{})
	body := []byte("a{x=\"one\"} 1\n")
	s, err := p.Parse(body, classicType, nil)
	require.NoError(t, err)
	name, label := s.Families[0].Name, s.Families[0].Samples[0].Labels[0]
	copy(body, "b{y=\"two\"} 2\n")
	_, err = p.Parse(body, classicType, nil)
	require.NoError(t, err)
	assert.Equal(t, "a", name)
	assert.Equal(t, Label{"x", "one"}, label)
}

func TestWellFormedBodyIsReadWhole(t *testing.T) {
	for contentType, body := range map[string]string{
		classicType:     "# HELP a x\n# TYPE a counter\na{x=\"1\"} 1 5\n\n# a comment\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\n",
		openMetricsType: "# TYPE a counter\n# UNIT a_seconds seconds\na_total{x=\"1\"} 1 5 # {a=\"b\"} 1\n# EOF\n",
	} {
		p := New(Options{})
		p.keep, p.text = func(string, Labels) bool { return true }, body
		format, err := formatOf(contentType, body)
		require.NoError(t, err)
		p.begin(format)
		require.True(t, p.survey())
		ok, err := p.readWhole([]byte(body))
		require.NoError(t, err)
		assert.True(t, ok)
	}
}

func TestOneScrapeMakesTheMemoryOfTheNext(t *testing.T) {
	for format, contentType := range map[Format]string{Classic: classicType, OpenMetrics: openMetricsType} {
		p := New(Options{})
		body := expositiontest.Body(1000, format == OpenMetrics)
		parse := func() {
			if _, err := p.Parse(body, contentType, nil); err != nil {
				t.Fatal(err)
			}
		}
		parse()
		assert.Less(t, testing.AllocsPerRun(10, parse), 30.0, format)
	}
}
