// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package datapoints

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestCountOfEveryType(t *testing.T) {
	for name, fill := range map[string]func(pmetric.Metric){
		"gauge":                 func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty() },
		"sum":                   func(m pmetric.Metric) { m.SetEmptySum().DataPoints().AppendEmpty() },
		"histogram":             func(m pmetric.Metric) { m.SetEmptyHistogram().DataPoints().AppendEmpty() },
		"exponential histogram": func(m pmetric.Metric) { m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty() },
		"summary":               func(m pmetric.Metric) { m.SetEmptySummary().DataPoints().AppendEmpty() },
	} {
		t.Run(name, func(t *testing.T) {
			m := pmetric.NewMetric()
			assert.Zero(t, Count(m))
			fill(m)
			assert.Equal(t, 1, Count(m))
		})
	}
}
