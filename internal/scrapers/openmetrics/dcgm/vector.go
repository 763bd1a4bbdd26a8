// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/openmetrics/exposition"
)

// Vector is what an instant query found.
type Vector struct {
	Rows []Row
	// Warnings are the server's, as when a part of the data could not be had.
	Warnings []string
}

// Row is one series of a [Vector], as [Mapper.Add] takes it.
type Row struct {
	// Field is the name of the metric; a query that calculates leaves none.
	Field string
	// Labels are sorted by name, without the metric's name.
	Labels exposition.Labels
	Value  float64
}

// answer is what /api/v1/query gives.
type answer struct {
	Status    string   `json:"status"`
	ErrorType string   `json:"errorType"`
	Error     string   `json:"error"`
	Warnings  []string `json:"warnings"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// series has a value or a histogram. Prometheus' own type takes a missing value for
// 0.
type series struct {
	Metric    map[string]string `json:"metric"`
	Value     []json.RawMessage `json:"value"`
	Histogram json.RawMessage   `json:"histogram"`
}

// ParseVector reads the answer of a Prometheus server to an instant query
// (/api/v1/query) that gives a vector. Native histograms in it are left out.
func ParseVector(body []byte) (Vector, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Vector{}, fmt.Errorf("not the answer of a Prometheus API: %w", err)
	}
	if err := a.fault(); err != nil {
		return Vector{}, err
	}
	var found []series
	if err := json.Unmarshal(a.Data.Result, &found); err != nil {
		return Vector{}, fmt.Errorf("data.result is no vector: %w", err)
	}
	v := Vector{Rows: make([]Row, 0, len(found)), Warnings: a.Warnings}
	for i := range found {
		if found[i].Value == nil && found[i].Histogram != nil {
			continue
		}
		row, err := found[i].row()
		if err != nil {
			return Vector{}, fmt.Errorf("data.result[%d]: %w", i, err)
		}
		v.Rows = append(v.Rows, row)
	}
	return v, nil
}

func (a *answer) fault() error {
	switch {
	case a.Status == "error":
		return fmt.Errorf("the server refused the query: %s: %s", cmp.Or(a.ErrorType, "no type"), cmp.Or(a.Error, "no reason"))
	case a.Status != "success":
		return fmt.Errorf("not the answer of a Prometheus API: status is %q", a.Status)
	case a.Data.ResultType != model.ValVector.String():
		return fmt.Errorf("the query gives a %s, not a vector", cmp.Or(a.Data.ResultType, "result without a type"))
	case len(a.Data.Result) == 0:
		return errors.New("data.result is missing")
	}
	return nil
}

func (s *series) row() (Row, error) {
	var (
		at    model.Time
		value model.SampleValue
	)
	if len(s.Value) != 2 {
		return Row{}, fmt.Errorf("value has %d parts, not a time and a number", len(s.Value))
	}
	if err := at.UnmarshalJSON(s.Value[0]); err != nil {
		return Row{}, fmt.Errorf("time: %w", err)
	}
	if err := value.UnmarshalJSON(s.Value[1]); err != nil {
		return Row{}, fmt.Errorf("value: %w", err)
	}
	row := Row{Field: s.Metric[model.MetricNameLabel], Value: float64(value)}
	row.Labels = make(exposition.Labels, 0, len(s.Metric))
	for name, text := range s.Metric {
		if name != model.MetricNameLabel {
			row.Labels = append(row.Labels, exposition.Label{Name: name, Value: text})
		}
	}
	slices.SortFunc(row.Labels, func(a, b exposition.Label) int { return strings.Compare(a.Name, b.Name) })
	return row, nil
}
