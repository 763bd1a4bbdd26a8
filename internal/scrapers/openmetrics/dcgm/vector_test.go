// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

func vectorOf(rows string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + rows + `]}}`
}

func TestVector(t *testing.T) {
	got, err := ParseVector([]byte(vectorOf(`
		{"metric":{"gpu":"0","__name__":"DCGM_FI_DEV_GPU_TEMP","UUID":"GPU-0","empty":""},"value":[1738025769,"33"]},
		{"metric":{},"value":[1738025769.781,"0.75"]},
		{"metric":{"__name__":"h"},"histogram":[1738025769,{"count":"1","sum":"2","buckets":[]}]},
		{"metric":{"__name__":"i"},"value":[1738025769,"-Inf"]}`)))
	require.NoError(t, err)
	assert.Equal(t, Vector{Rows: []Row{
		{"DCGM_FI_DEV_GPU_TEMP", exposition.Labels{{Name: "UUID", Value: "GPU-0"}, {Name: "empty"}, {Name: "gpu", Value: "0"}}, 33},
		{"", exposition.Labels{}, 0.75},
		{"i", exposition.Labels{}, math.Inf(-1)},
	}}, got)
}

func TestVectorOfNothing(t *testing.T) {
	got, err := ParseVector([]byte(`{"status":"success","warnings":["a store did not answer"],"data":{"resultType":"vector","result":[]}}`))
	require.NoError(t, err)
	assert.Equal(t, Vector{Rows: []Row{}, Warnings: []string{"a store did not answer"}}, got)
}

func TestAnswersThatAreNoVector(t *testing.T) {
	for body, want := range map[string]string{
		``:                     "not the answer of a Prometheus API: unexpected end of JSON input",
		`<html>`:               "not the answer of a Prometheus API: invalid character '<' looking for beginning of value",
		`{}`:                   `not the answer of a Prometheus API: status is ""`,
		`{"status":"success"}`: "the query gives a result without a type, not a vector",
		`{"status":"error","errorType":"bad_data","error":"parse error: no expression"}`: "the server refused the query: bad_data: parse error: no expression",
		`{"status":"error"}`: "the server refused the query: no type: no reason",
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:      "the query gives a matrix, not a vector",
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`: "the query gives a scalar, not a vector",
		`{"status":"success","data":{"resultType":"vector"}}`:                  "data.result is missing",
		`{"status":"success","data":{"resultType":"vector","result":{}}}`:      "data.result is no vector: json: cannot unmarshal object into Go value of type []dcgm.series",
		vectorOf(`{"metric":{},"value":[1,"2"]},{"metric":{"__name__":"m"}}`):  "data.result[1]: value has 0 parts, not a time and a number",
		vectorOf(`null`):                           "data.result[0]: value has 0 parts, not a time and a number",
		vectorOf(`{"metric":{},"value":[1]}`):      "data.result[0]: value has 1 parts, not a time and a number",
		vectorOf(`{"metric":{},"value":[1,2]}`):    "data.result[0]: value: sample value must be a quoted string",
		vectorOf(`{"metric":{},"value":[1,null]}`): "data.result[0]: value: sample value must be a quoted string",
		vectorOf(`{"metric":{},"value":[1,"x"]}`):  `data.result[0]: value: strconv.ParseFloat: parsing "x": invalid syntax`,
		vectorOf(`{"metric":{},"value":["","1"]}`): "data.result[0]: time: strconv.ParseInt: parsing \"\\\"\\\"\": invalid syntax",
	} {
		_, err := ParseVector([]byte(body))
		assert.EqualError(t, err, want, body)
	}
}

// Where both read an answer, Prometheus' own type finds the same in it.
func FuzzParseVector(f *testing.F) {
	f.Add(vectorOf(`{"metric":{"gpu":"0","__name__":"DCGM_FI_DEV_GPU_TEMP"},"value":[1738025769.7,"33"]}`))
	f.Add(vectorOf(`{"metric":{"__name__":"h"},"histogram":[1,{"count":"1","sum":"2","buckets":[[1,"0","1","1"]]}]},null`))
	f.Add(vectorOf(`{"metric":{"a":"\ud800"},"value":[1.,"NaN"]},{"value":[null,"1"]},{"value":[1,"2",3]}`))
	f.Add(`{"status":"error","errorType":"timeout","error":"x","warnings":["y"]}`)
	f.Add(`{"status":"success","data":{"resultType":"vector","result":null}}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := ParseVector([]byte(body))
		if err != nil {
			require.Empty(t, got)
			return
		}
		for _, row := range got.Rows {
			require.True(t, slices.IsSortedFunc(row.Labels, func(a, b exposition.Label) int {
				require.NotEqual(t, a.Name, b.Name)
				if a.Name < b.Name {
					return -1
				}
				return 1
			}))
		}
		var oracle struct {
			Data struct {
				Result model.Vector `json:"result"`
			} `json:"data"`
		}
		if json.Unmarshal([]byte(body), &oracle) != nil {
			return
		}
		rows := got.Rows
		for _, s := range oracle.Data.Result {
			if s.Histogram != nil {
				continue
			}
			require.NotEmpty(t, rows)
			require.True(t, s.Value.Equal(model.SampleValue(rows[0].Value)))
			require.Equal(t, string(s.Metric[model.MetricNameLabel]), rows[0].Field)
			delete(s.Metric, model.MetricNameLabel)
			require.Len(t, rows[0].Labels, len(s.Metric))
			for _, l := range rows[0].Labels {
				require.Equal(t, string(s.Metric[model.LabelName(l.Name)]), l.Value)
			}
			rows = rows[1:]
		}
		require.Empty(t, rows)
	})
}
