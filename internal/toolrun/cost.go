// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package toolrun

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// Cost is what runs took.
type Cost struct {
	// Runs is how many programs were run.
	Runs int
	// Wall is how long they ran, CPU the processor time that they and their children used.
	Wall, CPU time.Duration
}

// Add counts a run more.
func (c *Cost) Add(res guard.Result) {
	c.Runs++
	c.Wall += res.Duration
	c.CPU += res.CPU
}

// Meter counts in the receiver's own metrics what the tools of a family take. It is
// safe for concurrent use.
type Meter struct {
	telemetry *metadata.TelemetryBuilder
	of        []attribute.KeyValue
}

// NewMeter returns the Meter of a family.
func NewMeter(set receiver.Settings, family string) (*Meter, error) {
	telemetry, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("own metrics: %w", err)
	}
	return &Meter{telemetry, []attribute.KeyValue{attribute.String("receiver", set.ID.String()), attribute.String("family", family)}}, nil
}

// Add counts what a tool took.
func (m *Meter) Add(ctx context.Context, tool string, cost Cost) {
	of := metric.WithAttributes(append(slices.Clip(m.of), attribute.String("tool", tool))...)
	m.telemetry.WandbsysFamilyToolRuns.Add(ctx, int64(cost.Runs), of)
	m.telemetry.WandbsysFamilyToolTime.Add(ctx, cost.Wall.Seconds(), of)
	m.telemetry.WandbsysFamilyToolCPUTime.Add(ctx, cost.CPU.Seconds(), of)
}
