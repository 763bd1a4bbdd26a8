// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/wandbsys/otelcol-wandbsys/internal/naming"
)

// forwarder stands between a family's controller and the next consumer: it
// gives the names, drops what is empty, and hands on under a deadline of its
// own, since the scrape's may be used up.
type forwarder struct {
	next    consumer.Metrics
	names   *naming.Expander
	run     context.Context
	timeout time.Duration
}

func (f *forwarder) consume(ctx context.Context, md pmetric.Metrics) error {
	f.names.Expand(md) // may drop metrics
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		return rm.ScopeMetrics().Len() == 0
	})
	if md.DataPointCount() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.timeout)
	defer cancel()
	defer context.AfterFunc(f.run, cancel)() //nolint:contextcheck // two contexts end this one
	return f.next.ConsumeMetrics(ctx, md)
}
