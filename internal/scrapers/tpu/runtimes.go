// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"errors"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// runtimes are the metric services of the training processes.
type runtimes struct {
	endpoints []*endpoint
	// names are the metrics that are wanted.
	names    []string
	patience patience
}

// read asks all runtimes at the same time. Where nobody listens no job runs, which is
// no error. Complete says that every runtime answered.
func (r *runtimes) read(ctx context.Context) (all []*answers, complete bool, errs []error) {
	if len(r.names) == 0 {
		return nil, false, nil
	}
	end := time.Now().Add(r.patience.all)
	connected := r.each(ctx, end, r.endpoints, func(ctx context.Context, e *endpoint) (*answers, error) {
		return nil, e.connect(ctx)
	})
	var there []*endpoint
	for i, e := range r.endpoints {
		if err := connected[i].err; err == nil {
			there = append(there, e)
		} else if !errors.Is(err, errNoJob) {
			errs = append(errs, e.sourceError(err))
		}
	}
	// What a runtime is asked depends on whether there are others.
	alone := len(there) > 1
	asked := r.each(ctx, end, there, func(ctx context.Context, e *endpoint) (*answers, error) {
		return e.ask(ctx, r.names, alone)
	})
	for i, e := range there {
		if err := asked[i].err; err == nil {
			all = append(all, asked[i].answers)
		} else if !errors.Is(err, errNoJob) {
			errs = append(errs, e.sourceError(err))
		}
	}
	return all, len(all) == len(r.endpoints), errs
}

func (e *endpoint) sourceError(err error) error {
	return &scrapers.SourceError{Source: "TPU runtime " + e.name(), Err: err}
}

type result struct {
	answers *answers
	err     error
}

// each does something for endpoints at the same time, until an end.
func (*runtimes) each(ctx context.Context, end time.Time, endpoints []*endpoint, do func(context.Context, *endpoint) (*answers, error)) []result {
	pending := make([]*guard.Pending[*answers], len(endpoints))
	for i, e := range endpoints {
		pending[i] = guard.Go(ctx, &e.slot, func(ctx context.Context) (*answers, error) {
			ctx, cancel := context.WithDeadline(ctx, end)
			defer cancel()
			return do(ctx, e)
		})
	}
	results := make([]result, len(endpoints))
	for i, p := range pending {
		results[i].answers, results[i].err = p.Wait()
	}
	return results
}

// close closes the connections, but for those that are still asked.
func (r *runtimes) close(ctx context.Context) {
	for _, e := range r.endpoints {
		if e.slot.Settle(ctx) {
			e.close()
		}
	}
}
