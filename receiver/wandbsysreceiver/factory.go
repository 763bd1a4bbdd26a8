// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package wandbsysreceiver measures what Weights & Biases' SDK measures on a
// training machine, for the whole machine and without the SDK.
package wandbsysreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// NewFactory returns the factory of the receiver, type `wandbsys`.
func NewFactory() receiver.Factory {
	return receiver.NewFactory(
		metadata.Type,
		createDefaultConfig,
		receiver.WithMetrics(createMetrics, metadata.MetricsStability),
	)
}

func createDefaultConfig() component.Config {
	return newDefaultConfig(families())
}

func createMetrics(ctx context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	return newReceiver(ctx, set, cfg.(*Config), next)
}
