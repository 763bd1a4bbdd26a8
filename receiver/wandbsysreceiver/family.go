// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/scraper/scrapererror"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/datapoints"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// startTimeout is how long a family's Start may take, on a node that is busy
// booting.
const startTimeout = 5 * time.Second

// settleTime is how long a call that a shutdown cut short may take to end: a
// killed program must be reaped.
const settleTime = 500 * time.Millisecond

// family runs one scraper so that it can neither block a shutdown, nor crash
// the collector, nor flood the log.
type family struct {
	name              string
	scraper           scrapers.Scraper
	maxSeries         int
	timeout           time.Duration
	detectionInterval time.Duration
	run               context.Context
	logger            *zap.Logger
	health            *familyHealth

	// slot holds the family's one call: at most one is ever left behind.
	slot      guard.Slot
	priming   sync.WaitGroup
	nextProbe time.Time
}

// start prepares the family and takes its baseline apart from the start path.
// A family that cannot start does not keep the collector from starting.
func (f *family) start(ctx context.Context, host component.Host) error {
	// Start waits for nothing; the guard is for one that does, or panics.
	wait, cancel := context.WithTimeout(ctx, max(f.timeout, startTimeout))
	defer cancel()
	_, err := guard.Call(wait, &f.slot, func(context.Context) (struct{}, error) {
		return struct{}{}, f.scraper.Start(ctx, host)
	})
	if err != nil {
		f.health.startErr = &scrapers.SourceError{Source: "start", Err: err}
		return nil
	}
	if primer, ok := f.scraper.(scrapers.Primer); ok {
		f.prime(primer) //nolint:contextcheck // it outlives the start
	}
	return nil
}

// prime takes the baseline in the background. It has the slot when it returns,
// so that a first scrape without delay comes after it. The sources get half the
// time that they have in a scrape: the first scrape may be waiting, and needs
// the rest.
func (f *family) prime(primer scrapers.Primer) {
	ctx, cancel := context.WithTimeout(f.run, f.timeout)
	baseline := guard.Go(ctx, &f.slot, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, scrapers.SourceTimeout(f.timeout)/2)
		defer cancel()
		primer.Prime(ctx)
		return struct{}{}, nil
	})
	f.priming.Go(func() {
		defer cancel()
		// That it hangs shows in the first scrape; a panic shows nowhere else.
		if _, err := baseline.Wait(); isPanic(err) {
			f.logger.Warn("Taking the baseline failed", zap.Error(err))
		}
	})
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*guard.PanicError](err)
	return ok
}

// scrape is what the controller calls. It returns an error only when something
// began to fail, since the controller logs every error it gets, every round.
func (f *family) scrape(ctx context.Context) (pmetric.Metrics, error) {
	if f.health.is(stateAbsent) && time.Now().Before(f.nextProbe) {
		return pmetric.NewMetrics(), nil
	}
	begin := time.Now()
	md, err := f.read(ctx)
	if f.run.Err() != nil {
		// The shutdown cut the scrape short; that says nothing of the sources.
		return md, nil
	}
	md, limitErr := f.limit(md)
	change := f.health.record(measurements(md), errors.Join(err, limitErr), time.Since(begin))
	if f.health.is(stateAbsent) {
		f.nextProbe = time.Now().Add(f.detectionInterval)
	}
	f.log(change)
	if len(change.began) > 0 {
		return md, scrapererror.NewPartialScrapeError(errors.Join(change.began...), len(change.began))
	}
	return md, nil
}

// read calls the scraper behind the guard. The sources get a part of the time,
// so that the family can return what did answer; to wait for the baseline counts
// as theirs.
func (f *family) read(ctx context.Context) (pmetric.Metrics, error) {
	if f.health.startErr != nil {
		return pmetric.NewMetrics(), f.health.startErr
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.run, cancel)() //nolint:contextcheck // two contexts end this one
	deadline := time.Now().Add(scrapers.SourceTimeout(f.timeout))
	md, err := guard.Call(ctx, &f.slot, func(ctx context.Context) (result, error) {
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		md, err := f.scraper.Scrape(ctx)
		return result{md, err}, nil
	})
	if err != nil {
		return pmetric.NewMetrics(), &scrapers.SourceError{Source: "scrape", Err: err}
	}
	if md.metrics == (pmetric.Metrics{}) {
		md.metrics = pmetric.NewMetrics() // the zero value panics when it is used
	}
	return md.metrics, md.err
}

// result keeps a scrape's data beside its error: both count.
type result struct {
	metrics pmetric.Metrics
	err     error
}

// limit drops what goes beyond the family's number of series.
func (f *family) limit(md pmetric.Metrics) (pmetric.Metrics, error) {
	count := md.DataPointCount()
	if count <= f.maxSeries {
		return md, nil
	}
	keepPoints(md, f.maxSeries)
	return md, &scrapers.SourceError{
		Source: "series limit",
		Err:    fmt.Errorf("%d series were dropped: raise scrapers::%s::max_series (%d)", count-f.maxSeries, f.name, f.maxSeries),
	}
}

// ownPrefix is that of the metrics by which a family tells of its sources.
const ownPrefix = "wandbsys_"

// measurements is the number of points that measure something: that a source is down
// is no sign of a family's life.
func measurements(md pmetric.Metrics) int {
	n := 0
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if !strings.HasPrefix(m.Name(), ownPrefix) {
					n += datapoints.Count(m)
				}
			}
		}
	}
	return n
}

// keepPoints keeps the first n data points.
func keepPoints(md pmetric.Metrics, n int) {
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		rm.ScopeMetrics().RemoveIf(func(sm pmetric.ScopeMetrics) bool {
			sm.Metrics().RemoveIf(func(m pmetric.Metric) bool {
				n -= keepOfMetric(m, max(n, 0))
				return datapoints.Count(m) == 0
			})
			return sm.Metrics().Len() == 0
		})
		return rm.ScopeMetrics().Len() == 0
	})
}

// keepOfMetric keeps up to n points of one metric and returns how many it kept.
func keepOfMetric(m pmetric.Metric, n int) int {
	kept := 0
	over := func() bool {
		kept++
		return kept > n
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		m.Gauge().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return over() })
	case pmetric.MetricTypeSum:
		m.Sum().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return over() })
	case pmetric.MetricTypeHistogram:
		m.Histogram().DataPoints().RemoveIf(func(pmetric.HistogramDataPoint) bool { return over() })
	case pmetric.MetricTypeExponentialHistogram:
		m.ExponentialHistogram().DataPoints().RemoveIf(func(pmetric.ExponentialHistogramDataPoint) bool { return over() })
	case pmetric.MetricTypeSummary:
		m.Summary().DataPoints().RemoveIf(func(pmetric.SummaryDataPoint) bool { return over() })
	}
	return min(kept, n)
}

// log says what changed. What began to fail is the controller's to log.
func (f *family) log(c change) {
	if c.state != "" {
		fields := []zap.Field{zap.String("state", string(c.state))}
		if c.reason != "" {
			fields = append(fields, zap.String("reason", c.reason))
		}
		if c.cure != "" {
			fields = append(fields, zap.String("cure", c.cure))
		}
		f.logger.Info("Family state", fields...)
	}
	for _, source := range c.ended {
		f.logger.Info("Source answers again", zap.String("source", source))
	}
	for _, what := range c.gone {
		f.logger.Warn("Target is gone", zap.String("what", what))
	}
}

// shutdown frees the family, unless a call of it hangs: then what it holds may
// be in use, and ends with the process.
func (f *family) shutdown(ctx context.Context) error {
	f.priming.Wait()
	if !f.settle(ctx) {
		f.logger.Warn("Left a hanging call behind", zap.Duration("hung_for", f.slot.HungFor()))
		return nil
	}
	_, err := guard.Call(ctx, &f.slot, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.scraper.Shutdown(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s: stopping: %w", f.name, err)
	}
	return nil
}

// settle gives a call that was cut short the time to clean up after itself.
func (f *family) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return f.slot.Settle(ctx)
}
