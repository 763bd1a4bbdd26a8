// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/smi"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	compiledIn    = true
	notCompiledIn = ""
)

// newSource returns the source that is configured, and who uses the GPUs, which
// the kernel tells whatever the source is.
func newSource(cfg *Config, set scrapers.Settings) (source, owners, error) {
	meter, err := toolrun.NewMeter(set.Receiver, familyName)
	if err != nil {
		return nil, nil, err
	}
	ids, err := deviceIDs.ParseAll(cfg.DeviceIDs)
	if err != nil {
		return nil, nil, err
	}
	sys := newSysfs(set)
	amdSMI := newTool(smi.NewAMD(smi.Options{Path: cfg.AMDSMIPath, Interval: set.DetectionInterval}),
		amdSMITimeout, set, cfg, meter, sys.root)
	rocmSMI := newTool(smi.NewROCm(smi.Options{Path: cfg.ROCmSMIPath, Interval: set.DetectionInterval}),
		rocmSMITimeout, set, cfg, meter, sys.root)
	sys.selected, amdSMI.selected, rocmSMI.selected = ids, ids, ids
	all := map[sourceName]probe{
		sourceSysfs:   {source: sys, name: sourceSysfs, none: "no GPU of the amdgpu driver in /sys"},
		sourceAMDSMI:  {source: amdSMI, name: sourceAMDSMI, none: "amd-smi lists no GPU", must: cfg.AMDSMIPath != ""},
		sourceROCmSMI: {source: rocmSMI, name: sourceROCmSMI, none: "rocm-smi lists no GPU", must: cfg.ROCmSMIPath != ""},
	}
	order := []probe{all[sourceSysfs], all[sourceAMDSMI], all[sourceROCmSMI]}
	if cfg.Source != sourceAuto {
		order = []probe{all[cfg.Source]}
	}
	first := &firstSource{order: order, logger: set.Receiver.Logger, interval: set.DetectionInterval, clock: time.Now, chosen: -1, ids: ids}
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

	// ids are the GPUs that the user named, missing those that are not here.
	ids, missing []gpus.DeviceID

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
		if r := f.better(ctx, w); r != nil {
			return r
		}
	}
	if f.chosen >= 0 {
		p := &f.order[f.chosen]
		r := p.read(ctx, w)
		if len(r.cards) > 0 || r.gpus.Count > 0 || r.pending || (len(r.errs) > 0 && !p.isMissing(r)) {
			f.noteMissing(r)
			return r
		}
		f.chosen, f.pending = -1, 0 // its GPUs are gone, or it is
	}
	return f.choose(ctx, w)
}

// better looks whether a source that comes before the chosen one has a GPU by now.
// Tools are not waited for: they are asked again with the next scrape.
func (f *firstSource) better(ctx context.Context, w want) *reading {
	now, cancel := context.WithCancel(ctx)
	cancel()
	waits := false
	for i := range f.chosen {
		in := ctx
		if f.order[i].name != sourceSysfs {
			in = now
		}
		r := f.order[i].read(in, w)
		if len(r.cards) > 0 || r.gpus.Count > 0 {
			f.take(i, "")
			return r
		}
		waits = waits || r.pending
	}
	if !waits {
		f.since = f.clock()
	}
	return nil
}

// isMissing tells whether a tool is not installed, and nobody named it.
func (p *probe) isMissing(r *reading) bool {
	return len(r.errs) > 0 && !p.must && errors.Is(r.errs[0], smi.ErrNotFound)
}

// choose asks one source after the other. One that fails, or has not answered yet,
// does not count as one without a GPU unless it is not installed.
func (f *firstSource) choose(ctx context.Context, w want) *reading {
	var failed []error
	var said []string // by those that have no GPU
	needed := false
	for i := f.pending; i < len(f.order); i++ {
		p := &f.order[i]
		r := p.read(ctx, w)
		switch {
		case len(r.cards) > 0 || r.gpus.Count > 0: // also those of which none answers
			f.take(i, strings.Join(said, ", "))
			f.noteMissing(r)
			return r
		case r.pending:
			f.pending = i
			r.errs = append(failed, r.errs...)
			return r
		case p.isMissing(r):
			said = append(said, r.errs[0].Error())
		case len(r.errs) > 0:
			failed, needed = append(failed, r.errs...), needed || p.must || i == 0
			said = append(said, r.errs[0].Error())
		default:
			said = append(said, p.none)
		}
	}
	f.pending = 0
	if !needed { // a tool that fails where the driver has no GPU is as good as none
		failed = []error{f.absent(said, failed)}
	}
	return &reading{at: f.clock(), complete: true, errs: failed}
}

// take uses a source from now on; the others said why they are not it.
func (f *firstSource) take(i int, others string) {
	f.chosen, f.since, f.pending = i, f.clock(), 0
	for k := range f.order {
		if t, isTool := f.order[k].source.(*tool); isTool && k != i {
			t.forget()
		}
	}
	if name := f.order[i].name; name != f.told {
		f.told = name
		f.logger.Info("Source of the figures of GPUs", zap.String("source", string(name)), zap.String("reason", reasonOf(len(f.order), i, others)))
	}
}

// noteMissing says once of each GPU that the user named that it is not here.
func (f *firstSource) noteMissing(r *reading) {
	if !r.complete {
		return
	}
	var missing []gpus.DeviceID
	for _, id := range f.ids {
		if slices.ContainsFunc(r.cards, func(c cardReading) bool { return isNamed(id, c.Index, c.PCI, c.UniqueID) }) {
			continue
		}
		missing = append(missing, id)
		if !slices.Contains(f.missing, id) {
			f.logger.Warn("There is no such GPU", zap.String("device_ids", nameOf(id)))
		}
	}
	f.missing = missing
}

func nameOf(id gpus.DeviceID) string {
	if id.Index >= 0 {
		return strconv.Itoa(id.Index)
	}
	return id.UUID + id.PCI
}

func reasonOf(sources, i int, others string) string {
	switch {
	case sources == 1:
		return "configured"
	case i == 0:
		return "the amdgpu driver's files are there"
	}
	return others
}

// absent says why there is no GPU, in the words of the one source, and of the tools
// that failed.
func (f *firstSource) absent(said []string, failed []error) error {
	if len(f.order) == 1 {
		return &scrapers.AbsentError{
			Reason: "no AMD GPU: " + strings.Join(said, ", "),
			Cure:   "load the amdgpu driver, install ROCm's tools, or use source: auto",
		}
	}
	reasons := []string{"no AMD GPU: " + f.order[0].none, "and no tool lists one"}
	for _, err := range failed {
		reasons = append(reasons, err.Error())
	}
	return &scrapers.AbsentError{
		Reason: strings.Join(reasons, ", "),
		Cure:   "load the amdgpu driver; in a container, let it see /sys, or mount the machine's / and set root_path",
	}
}

// close implements source.
func (f *firstSource) close(ctx context.Context) error {
	var errs []error
	for _, p := range f.order {
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}
