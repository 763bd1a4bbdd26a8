// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

func rules(t *testing.T, value any) []Rule {
	t.Helper()
	parsed, err := Parse("filters", value)
	require.NoError(t, err)
	return parsed
}

func labels(pairs ...string) exposition.Labels {
	var ls exposition.Labels
	for pair := range slices.Chunk(pairs, 2) {
		ls = append(ls, exposition.Label{Name: pair[0], Value: pair[1]})
	}
	return ls
}

func TestSeriesAreChosenAsWandBDoes(t *testing.T) {
	temp := "DCGM_FI_DEV_GPU_TEMP"
	for name, tt := range map[string]struct {
		include, exclude any
		metric           string
		labels           exposition.Labels
		want             bool
	}{
		"no rule keeps everything":                  {metric: temp, want: true},
		"an empty list is no rule":                  {include: []any{}, metric: temp, want: true},
		"an empty map is no rule":                   {include: map[string]any{}, metric: temp, want: true},
		"an expression is searched for":             {include: []any{"GPU_T"}, metric: temp, want: true},
		"the endpoint is part of the subject":       {include: []any{`^dcgm\.DCGM`}, metric: temp, want: true},
		"the metric alone is not the subject":       {include: []any{"^DCGM"}, metric: temp, want: false},
		"a dot is any character":                    {include: []any{"dcgm.DCGM.FI"}, metric: temp, want: true},
		"case counts":                               {include: []any{"gpu_temp"}, metric: temp, want: false},
		"one of several is enough":                  {include: []any{"nothing", "TEMP$"}, metric: temp, want: true},
		"none of several":                           {include: []any{"nothing", "^TEMP$"}, metric: temp, want: false},
		"an expression may be a number":             {include: []any{64}, metric: "up64", want: true},
		"map without labels":                        {include: map[string]any{"TEMP": nil}, metric: temp, want: true},
		"map with an empty map of labels":           {include: map[string]any{"TEMP": map[string]any{}}, metric: temp, want: true},
		"empty map of labels, other name":           {include: map[string]any{"TEMP": map[string]any{}}, metric: "up", want: false},
		"a label must be there":                     {include: map[string]any{"TEMP": map[string]any{"gpu": ""}}, metric: temp, want: false},
		"a label's value is searched":               {include: map[string]any{"TEMP": map[string]any{"gpu": "[0-3]"}}, metric: temp, labels: labels("gpu", "12"), want: true},
		"a label's value without it":                {include: map[string]any{"TEMP": map[string]any{"gpu": "^[0-3]$"}}, metric: temp, labels: labels("gpu", "12"), want: false},
		"a label's expression may be a number":      {include: map[string]any{"TEMP": map[string]any{"gpu": 0}}, metric: temp, labels: labels("gpu", "0"), want: true},
		"all labels must match":                     {include: map[string]any{"TEMP": map[string]any{"gpu": "0", "pod": "x"}}, metric: temp, labels: labels("gpu", "0", "pod", "y"), want: false},
		"all labels match":                          {include: map[string]any{"TEMP": map[string]any{"gpu": "0", "pod": "x"}}, metric: temp, labels: labels("gpu", "0", "pod", "x"), want: true},
		"several entries are alternatives":          {include: map[string]any{"TEMP": map[string]any{"gpu": "9"}, "GPU": map[string]any{"gpu": "0"}}, metric: temp, labels: labels("gpu", "0"), want: true},
		"a name alone goes before labels":           {include: map[string]any{"TEMP": map[string]any{"gpu": "9"}, "GPU": nil}, metric: temp, want: true},
		"excluded by name":                          {exclude: []any{"TEMP"}, metric: temp, want: false},
		"not excluded":                              {exclude: []any{"POWER"}, metric: temp, want: true},
		"exclusion goes before inclusion":           {include: []any{"TEMP"}, exclude: []any{"GPU"}, metric: temp, want: false},
		"excluded by label":                         {exclude: map[string]any{".*": map[string]any{"pod": "^$"}}, metric: temp, labels: labels("pod", ""), want: false},
		"not excluded by label":                     {exclude: map[string]any{".*": map[string]any{"pod": "^$"}}, metric: temp, labels: labels("pod", "p"), want: true},
		"included and excluded by label":            {include: map[string]any{"T": map[string]any{"a": "1"}}, exclude: map[string]any{"T": map[string]any{"b": "2"}}, metric: temp, labels: labels("a", "1", "b", "2"), want: false},
		"excluding one label leaves the other rows": {include: map[string]any{"T": map[string]any{"a": "1"}}, exclude: map[string]any{"T": map[string]any{"b": "2"}}, metric: temp, labels: labels("a", "1", "b", "3"), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := New("dcgm", rules(t, tt.include), rules(t, tt.exclude))
			for range 2 { // decided, and remembered
				assert.Equal(t, tt.want, f.Keep(tt.metric, tt.labels))
			}
			f.Next()
			assert.Equal(t, tt.want, f.Keep(tt.metric, tt.labels))
		})
	}
}

func TestWrongRulesAreRefusedByName(t *testing.T) {
	for name, tt := range map[string]struct {
		value any
		want  []string
	}{
		"list":            {[]any{"ok", "a(", "b["}, []string{"filters::1: error parsing regexp: missing closing ): `a(`", "filters::2: error parsing regexp: missing closing ]: `[`"}},
		"map":             {map[string]any{"a(": nil, "ok": nil}, []string{"filters: error parsing regexp: missing closing ): `a(`"}},
		"label":           {map[string]any{"ok": map[string]any{"gpu": "*"}}, []string{"filters::ok::gpu: error parsing regexp: missing argument to repetition operator: `*`"}},
		"list in a list":  {[]any{[]any{"a"}}, []string{"filters::0: must be a regular expression"}},
		"null in a list":  {[]any{nil}, []string{"filters::0: must be a regular expression"}},
		"text for labels": {map[string]any{"a": "b"}, []string{`filters::a: must be followed by a map of labels`}},
		"map for a label": {map[string]any{"a": map[string]any{"l": map[string]any{}}}, []string{`filters::a::l: must be a regular expression`}},
		"plain text":      {"dcgm.*", []string{`filters: "dcgm.*": must be a list of regular expressions`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("filters", tt.value)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestDecisionsAreRememberedWhileSeriesAreThere(t *testing.T) {
	f := New("e", rules(t, map[string]any{"m": map[string]any{"l": "1"}}), nil)
	const series = 5000
	for scrape := range 20 {
		for i := range series {
			f.Keep(fmt.Sprintf("m%d", i), labels("l", fmt.Sprintf("%d-%d", i, scrape)))
		}
		f.Next()
	}
	assert.Len(t, f.names.known, series, "the names stay")
	for _, values := range f.values {
		assert.LessOrEqual(t, len(values.known), 3*series+spare, "values that are gone do not")
	}
}

func BenchmarkFilter(b *testing.B) {
	parsed, err := Parse("filters", map[string]any{"DCGM_FI_.*": map[string]any{"gpu": "[0-3]"}, ".*_total": nil})
	require.NoError(b, err)
	f := New("dcgm", parsed, nil)
	var all []exposition.Labels
	for i := range 16 {
		all = append(all, labels("Hostname", "node-1", "UUID", fmt.Sprintf("GPU-%d", i), "gpu", strconv.Itoa(i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, ls := range all {
			f.Keep("DCGM_FI_DEV_GPU_TEMP", ls)
		}
		f.Next()
	}
}
