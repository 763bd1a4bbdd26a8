// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"context"
	"errors"
	"sync"

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
	ctx, cancel := context.WithTimeout(ctx, r.patience.all)
	defer cancel()
	results := make([]result, len(r.endpoints))
	r.each(func(i int, e *endpoint) { results[i].err = e.connect(ctx) })
	// What a runtime is asked depends on whether there are others.
	connected := 0
	for i := range results {
		if results[i].err == nil {
			connected++
		}
	}
	r.each(func(i int, e *endpoint) {
		if results[i].err == nil {
			results[i].answers, results[i].err = e.ask(ctx, r.names, connected > 1)
		}
	})
	complete = true
	for i := range results {
		switch err := results[i].err; {
		case err == nil:
			all = append(all, results[i].answers)
			continue
		case !errors.Is(err, errNoJob):
			errs = append(errs, &scrapers.SourceError{Source: "TPU runtime " + r.endpoints[i].name(), Err: err})
		}
		complete = false
	}
	return all, complete, errs
}

type result struct {
	answers *answers
	err     error
}

// each does something for all endpoints at the same time.
func (r *runtimes) each(do func(int, *endpoint)) {
	if len(r.endpoints) == 1 {
		do(0, r.endpoints[0])
		return
	}
	var all sync.WaitGroup
	for i, e := range r.endpoints {
		all.Go(func() { do(i, e) })
	}
	all.Wait()
}

func (r *runtimes) close() {
	for _, e := range r.endpoints {
		e.close()
	}
}
