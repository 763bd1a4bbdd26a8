// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package amd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
)

// sysfs reads the amdgpu driver's files. It starts no program and opens no device
// node: those wake GPUs, and keep the driver from being unloaded.
type sysfs struct {
	root     folder
	interval time.Duration
	logger   *zap.Logger
	clock    func() time.Time
	// selected are those that are read; others are not touched.
	selected selection

	// listing finds the GPUs, and processes reads the KFD's: both may hang with the
	// driver.
	listing, processes guard.Slot
	devices            []*device
	gpus               identity.GPUs
	listed             time.Time
}

// inventory is what a listing found.
type inventory struct {
	devices []*device
	gpus    identity.GPUs
}

// list looks for the GPUs, unless that was done lately: a GPU that leaves must not
// change the numbers of the others from one scrape to the next. When it fails, those
// that are known stay.
func (s *sysfs) list(ctx context.Context) error {
	now := s.clock()
	if len(s.devices) > 0 && now.Sub(s.listed) < s.interval && !now.Before(s.listed) {
		return nil
	}
	if len(s.devices) > 0 { // a listing that hangs leaves them time
		var cancel context.CancelFunc
		ctx, cancel = halfOf(ctx, time.Now())
		defer cancel()
	}
	found, err := guard.Call(ctx, &s.listing, func(context.Context) (inventory, error) { return s.root.inventory() })
	if err != nil {
		return err
	}
	s.replace(found)
	s.listed = now
	return nil
}

// halfOf ends after half of the time that is left.
func halfOf(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, now.Add(deadline.Sub(now)/2))
}

// inventory finds the GPUs and what does not change of them.
func (f folder) inventory() (inventory, error) {
	places, err := f.places()
	if err != nil || len(places) == 0 {
		return inventory{}, err
	}
	names := f.marketingNames()
	found := inventory{gpus: identity.GPUs{Count: len(places), DriverVersion: f.driverVersion()}}
	chips := map[string]string{}
	for i, p := range places {
		d := newDevice(p, i, names)
		if p.partition || p.number > 0 {
			d.parent = cmp.Or(chips[p.pci], f.chip(p.pci))
		} else {
			chips[p.pci] = d.identity()
		}
		found.devices = append(found.devices, d)
	}
	found.gpus.Type = found.devices[0].model
	return found, nil
}

// chip returns the identity of a chip, whether or not it is listed itself: its own
// number, else its address.
func (f folder) chip(pci string) string {
	return cmp.Or(strings.ToLower(f.text("sys/bus/pci/devices/"+pci+"/unique_id")), pci)
}

// replace takes the new list. A device that is what it was stays, and with it what
// it knows; so does one that hangs, since what it holds is in use.
func (s *sysfs) replace(found inventory) {
	if len(s.devices) > 0 && !slices.EqualFunc(s.devices, found.devices, sameDevice) {
		s.logger.Info("The list of GPUs changed", zap.Int("before", len(s.devices)), zap.Int("now", len(found.devices)))
	}
	for _, old := range s.devices {
		hangs := old.slot.Hung()
		at := slices.IndexFunc(found.devices, func(d *device) bool {
			return sameDevice(d, old) && (hangs || slices.Equal(d.found, old.found))
		})
		switch {
		case at >= 0:
			found.devices[at] = old
			if !hangs {
				old.needless, old.lacking = 0, 0
			}
		case !hangs:
			old.close()
		}
	}
	s.devices, s.gpus = found.devices, found.gpus
}

func sameDevice(a, b *device) bool {
	return a.index == b.index && a.dir == b.dir && a.gpuID == b.gpuID && a.uniqueID == b.uniqueID && a.parent == b.parent
}

// read implements source.
func (s *sysfs) read(ctx context.Context, w want) *reading {
	r := &reading{at: s.clock(), ownIndices: true}
	if err := s.list(ctx); err != nil {
		r.errs = append(r.errs, &scrapers.SourceError{Source: "sysfs", Err: err})
	}
	if len(s.devices) == 0 {
		r.complete = len(r.errs) == 0
		return r
	}
	r.gpus, r.complete = s.gpus, true
	use := s.use(ctx, r, w)
	batch := guard.NewBatch(ctx)
	devices := s.chosen()
	pending := make([]*guard.Pending[card.Reading], len(devices))
	for i, d := range devices {
		pending[i] = guard.Add(batch, &d.slot, func(context.Context) (card.Reading, error) { return d.read(w, use) })
	}
	batch.Run()
	r.cards = make([]cardReading, 0, len(devices))
	for i, p := range pending {
		got, err := p.Wait()
		if err != nil {
			r.errs = append(r.errs, s.trouble(devices[i], err))
			r.complete = false
			continue
		}
		s.noteLayout(devices[i])
		r.cards = append(r.cards, cardReading{Reading: got, parent: devices[i].parent})
	}
	return r
}

// chosen are the GPUs that are selected.
func (s *sysfs) chosen() []*device {
	if len(s.selected) == 0 {
		return s.devices
	}
	var chosen []*device
	for _, d := range s.devices {
		if s.selected.has(d.index, d.pci, d.identity()) {
			chosen = append(chosen, d)
		}
	}
	return chosen
}

func (s *sysfs) trouble(d *device, err error) error {
	if errors.Is(err, guard.ErrHung) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("its driver does not answer: %w", err)
	}
	return &scrapers.SourceError{Source: fmt.Sprintf("GPU %d (%s)", d.index, d.pci), Err: err}
}

// use tells what the processes have of each GPU: only so is a partition's memory
// known. The processes are kept in the reading, for who asks whose they are.
func (s *sysfs) use(ctx context.Context, r *reading, w want) *kfdUse {
	partitioned := slices.ContainsFunc(s.devices, func(d *device) bool { return d.dir == "" || d.partition })
	if !partitioned && !w.processes {
		return &kfdUse{}
	}
	ctx, cancel := halfOf(ctx, time.Now()) // the rest is the GPUs'
	defer cancel()
	all, err := s.kfdProcesses(ctx)
	if err != nil {
		r.errs = append(r.errs, &scrapers.SourceError{Source: "processes of the KFD", Err: err})
		return &kfdUse{}
	}
	r.processes = optional.Some(all)
	return useOf(all)
}

// noteLayout says once that a GPU's gpu_metrics cannot be read by this version.
func (s *sysfs) noteLayout(d *device) {
	if d.layout != nil && !d.noted {
		d.noted = true
		s.logger.Debug("gpu_metrics is left out", zap.Int("gpu", d.index), zap.Error(d.layout))
	}
}

func (s *sysfs) kfdProcesses(ctx context.Context) ([]kfdProcess, error) {
	dir, err := s.root.join(kfdProcesses)
	if err != nil {
		return nil, err
	}
	return guard.Call(ctx, &s.processes, func(context.Context) ([]kfdProcess, error) {
		return (&kfdReader{dir: dir}).read()
	})
}

// close implements source.
func (s *sysfs) close(context.Context) error {
	for _, d := range s.devices {
		if !d.slot.Hung() {
			d.close()
		}
	}
	s.devices = nil
	return nil
}
