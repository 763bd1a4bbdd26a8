// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfileexporter

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/wandbsys/otelcol-wandbsys/exporter/wandbfileexporter/internal/metadata"
)

// NewFactory creates the exporter's factory.
func NewFactory() exporter.Factory {
	return exporter.NewFactory(metadata.Type, createDefaultConfig, exporter.WithMetrics(createMetrics, metadata.MetricsStability))
}

func createMetrics(ctx context.Context, set exporter.Settings, config component.Config) (exporter.Metrics, error) {
	cfg := config.(*Config)
	e, err := newExporter(set, cfg)
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewMetrics(ctx, set, cfg, e.consume,
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithStart(e.start),
		exporterhelper.WithShutdown(e.shutdown),
		exporterhelper.WithTimeout(cfg.Timeout),
		exporterhelper.WithRetry(cfg.Retry),
		exporterhelper.WithQueue(cfg.Queue),
	)
}
