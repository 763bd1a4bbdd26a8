// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/smi"
)

const (
	compiledIn    = true
	notCompiledIn = ""
)

// newSource returns the source that is configured, and who uses the GPUs, which
// the kernel tells whatever the source is.
func newSource(cfg *Config, set scrapers.Settings) (source, owners, error) {
	cost, err := newCosts(set)
	if err != nil {
		return nil, nil, fmt.Errorf("own metrics: %w", err)
	}
	sys := newSysfs(set)
	driver := sys.root.driverVersion
	amdSMI := newTool(smi.NewAMD(smi.Options{Path: cfg.AMDSMIPath, Interval: set.DetectionInterval}),
		amdSMITimeout, cfg.ToolTimeout, set, cost, driver)
	rocmSMI := newTool(smi.NewROCm(smi.Options{Path: cfg.ROCmSMIPath, Interval: set.DetectionInterval}),
		rocmSMITimeout, cfg.ToolTimeout, set, cost, driver)
	all := map[sourceName]probe{
		sourceSysfs:   {source: sys, name: sourceSysfs, none: "no GPU of the amdgpu driver in /sys"},
		sourceAMDSMI:  {source: amdSMI, name: sourceAMDSMI, none: "amd-smi lists no GPU", must: cfg.AMDSMIPath != ""},
		sourceROCmSMI: {source: rocmSMI, name: sourceROCmSMI, none: "rocm-smi lists no GPU", must: cfg.ROCmSMIPath != ""},
	}
	order := []probe{all[sourceSysfs], all[sourceAMDSMI], all[sourceROCmSMI]}
	if cfg.Source != sourceAuto {
		order = []probe{all[cfg.Source]}
	}
	first := &firstSource{order: order, logger: set.Receiver.Logger, interval: set.DetectionInterval, clock: time.Now, chosen: -1}
	return first, newOwners(set, cfg, sys), nil
}

func newSysfs(set scrapers.Settings) *sysfs {
	return &sysfs{
		root:     folder(filepath.Join("/", set.RootPath)),
		interval: set.DetectionInterval, logger: set.Receiver.Logger, clock: time.Now,
	}
}

// probe is a source that may have no GPU.
type probe struct {
	source
	name sourceName
	// none says that it has none.
	none string
	// must says that the user named the tool: it is an error when it is not there.
	must bool
}

// firstSource takes the first of some sources that has a GPU, for all figures:
// those of two sources are never mixed.
type firstSource struct {
	order    []probe
	logger   *zap.Logger
	interval time.Duration
	clock    func() time.Time

	// chosen is the source in use, below 0 for none; since is when it was chosen.
	chosen int
	since  time.Time
	// told is the one that was logged.
	told sourceName
	// pending is the one that has not answered yet.
	pending int
}

// read implements source.
func (f *firstSource) read(ctx context.Context, w want) *reading {
	if f.chosen > 0 && f.clock().Sub(f.since) >= f.interval {
		f.chosen, f.pending = -1, 0 // a better one may have come
	}
	if f.chosen >= 0 {
		r := f.order[f.chosen].read(ctx, w)
		if len(r.cards) > 0 || len(r.errs) > 0 || r.pending {
			return r
		}
		f.chosen, f.pending = -1, 0 // its GPUs are gone
	}
	return f.choose(ctx, w)
}

// choose asks one source after the other. One that fails, or has not answered yet,
// does not count as one without a GPU unless it is not installed.
func (f *firstSource) choose(ctx context.Context, w want) *reading {
	var failed []error
	none := ""
	for i := f.pending; i < len(f.order); i++ {
		p := &f.order[i]
		r := p.read(ctx, w)
		switch {
		case len(r.cards) > 0:
			f.take(i)
			return r
		case r.pending:
			f.pending = i
			r.errs = append(failed, r.errs...)
			return r
		case len(r.errs) > 0 && !p.must && errors.Is(r.errs[0], smi.ErrNotFound):
			none = r.errs[0].Error()
		case len(r.errs) > 0:
			failed = append(failed, r.errs...)
		default:
			none = p.none
		}
	}
	f.pending = 0
	if len(failed) == 0 {
		failed = []error{f.absent(none)}
	}
	return &reading{at: f.clock(), complete: true, errs: failed}
}

func (f *firstSource) take(i int) {
	f.chosen, f.since, f.pending = i, f.clock(), 0
	for k := range f.order {
		if t, isTool := f.order[k].source.(*tool); isTool && k != i {
			t.forget()
		}
	}
	if name := f.order[i].name; name != f.told {
		f.told = name
		f.logger.Info("Source of the figures of GPUs", zap.String("source", string(name)))
	}
}

// absent says why there is no GPU, by what the last source said.
func (f *firstSource) absent(none string) error {
	if len(f.order) > 1 {
		return &scrapers.AbsentError{
			Reason: "no AMD GPU: " + f.order[0].none + ", and no tool lists one",
			Cure:   "load the amdgpu driver; in a container, let it see /sys, or mount the machine's / and set root_path",
		}
	}
	return &scrapers.AbsentError{Reason: "no AMD GPU: " + none, Cure: "load the amdgpu driver, install ROCm's tools, or use source: auto"}
}

// close implements source.
func (f *firstSource) close(ctx context.Context) error {
	var errs []error
	for _, p := range f.order {
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}
