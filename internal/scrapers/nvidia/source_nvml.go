// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/gpus"
	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/identity"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// compiledIn says that NVML can be used by this build.
const (
	compiledIn    = true
	notCompiledIn = ""
)

// maxBackoff is how long a driver that does not work is left alone at most, where
// nothing is configured.
const maxBackoff = 5 * time.Minute

// closeTimeout is how long closing the library may hold a shutdown up. The
// receiver as a whole has more, and must not fail: a reload would end the collector.
const closeTimeout = 2 * time.Second

// nvmlSource asks NVML. Everything but the logger and the counters of what was
// published is used in the library's slot only.
type nvmlSource struct {
	cfg      *Config
	ids      []gpus.DeviceID
	interval time.Duration
	proc     string
	pci      string
	logger   *zap.Logger
	now      func() time.Time

	// published is the generation of the last reading.
	published int

	open       bool
	generation int
	// failures is how often in a row opening led to nothing.
	failures int
	nextOpen time.Time
	// failure is why nothing is tried until then.
	failure []error
	// readings counts those that were begun.
	readings int
	devices  map[string]*deviceState
	events   *eventSet
	warned   map[string]bool
	// versions are those of the open driver, said those that were logged.
	versions, said identity.GPUs
	// patience is how long a driver that does not work is left alone at most.
	patience time.Duration
}

func newSource(cfg *Config, set scrapers.Settings) (source, error) {
	root := filepath.Join("/", set.RootPath)
	s := &nvmlSource{
		cfg:      cfg,
		interval: cfg.CommonConfig.Timing.CollectionInterval,
		proc:     filepath.Join(root, "proc"),
		pci:      filepath.Join(root, "sys/bus/pci/devices"),
		logger:   set.Receiver.Logger,
		now:      time.Now,
		devices:  map[string]*deviceState{},
		warned:   map[string]bool{},
		patience: cmp.Or(set.DetectionInterval, maxBackoff),
	}
	var err error
	s.ids, err = deviceIDs.ParseAll(cfg.DeviceIDs)
	return s, err
}

// sink takes what a reading found until its time is over.
type sink struct {
	mu      sync.Mutex
	reading reading
	over    bool
}

func (k *sink) put(fn func(r *reading)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		fn(&k.reading)
	}
}

func (k *sink) fail(source string, err error) {
	k.put(func(r *reading) { r.errs = append(r.errs, &scrapers.SourceError{Source: source, Err: err}) })
}

func (k *sink) take() *reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	return &k.reading
}

// read implements source. A call that hangs costs the GPUs that were not read
// yet.
func (s *nvmlSource) read(ctx context.Context, w want) *reading {
	k := &sink{reading: reading{generation: s.published}}
	_, err := guard.Call(ctx, &process.slot, func(ctx context.Context) (struct{}, error) {
		s.collect(&driver{library: &process, ctx: ctx}, w, k)
		return struct{}{}, nil
	})
	r := k.take()
	if err != nil {
		r.errs = append(r.errs, &scrapers.SourceError{Source: nvmlName, Err: describeEnd(err)})
	}
	s.published = r.generation
	return r
}

func describeEnd(err error) error {
	if _, ok := errors.AsType[*guard.PanicError](err); ok {
		return fmt.Errorf("reading the GPUs: %w", err)
	}
	return fmt.Errorf("a call of the driver does not return: %w", err)
}

// nvmlName is how faults are called that concern all GPUs.
const nvmlName = "NVML"

// close implements source. While a call hangs, or closing takes too long, the
// library stays open: who opens it next closes it for us.
func (s *nvmlSource) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	shut := func() { s.shut(&driver{library: &process, ctx: context.Background()}) }
	_, err := guard.Call(ctx, &process.slot, func(context.Context) (struct{}, error) {
		shut()
		return struct{}{}, nil
	})
	if err != nil {
		process.leave(shut)
		s.logger.Warn("The NVIDIA driver does not let go; the library stays open until it does", zap.Error(err))
	}
	return nil
}

func (s *nvmlSource) collect(d *driver, w want, k *sink) {
	if !s.ensureOpen(d, k) {
		return
	}
	if s.cfg.ReleaseDriverBetweenScrapes {
		w.profiling, w.migProfiling, w.xids = false, false, false
		defer s.release(d)
	}
	k.put(func(r *reading) { r.generation = s.generation })
	s.readings++
	p := &pass{nvmlSource: s, driver: d, want: w, sink: k}
	p.readAll()
	s.settle(p)
}

// release closes the library after a scrape.
func (s *nvmlSource) release(d *driver) {
	if s.shut(d); s.open {
		s.warnOnce("release", "The NVIDIA driver was not released between scrapes, since the scrape took all of its time",
			zap.String("cure", "raise scrapers::nvidia::timeout, or turn the driver's persistence mode on"))
	}
}

// ensureOpen opens the library unless that failed just now.
func (s *nvmlSource) ensureOpen(d *driver, k *sink) bool {
	if s.open {
		return true
	}
	if s.now().Before(s.nextOpen) {
		k.put(func(r *reading) { r.errs = slices.Clone(s.failure) })
		return false
	}
	c, reason := d.open(s.cfg.LibraryPath)
	if c != codeSuccess {
		failure := []error{s.describe(c, reason)}
		s.back(failure)
		k.put(func(r *reading) { r.errs = slices.Clone(failure) })
		return false
	}
	s.open = true
	if !s.cfg.ReleaseDriverBetweenScrapes || s.generation == 0 {
		s.generation++
		s.versions = identity.GPUs{}
	}
	return true
}

// readVersions asks which driver was opened, and says so when it is another one.
func (s *nvmlSource) readVersions(d *driver) {
	version, c := call(d, symDriverVersion, d.nvml.SystemGetDriverVersion)
	if c == codeOver {
		return
	}
	s.versions = identity.GPUs{DriverVersion: cmp.Or(clean(version), "unknown")}
	if cuda, c := call(d, symCUDAVersion, d.nvml.SystemGetCudaDriverVersion); c == codeSuccess {
		s.versions.CUDAVersion = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	}
	if s.versions == s.said {
		return
	}
	s.said = s.versions
	s.logger.Info("NVML is open", zap.String("driver", s.versions.DriverVersion), zap.String("cuda", s.versions.CUDAVersion))
}

// back leaves the driver alone for a while: the longer, the more often it did not
// work. The first time it is tried again at once.
func (s *nvmlSource) back(failure []error) {
	s.failure = failure
	wait := time.Duration(0)
	if _, absent := errors.AsType[*scrapers.AbsentError](errors.Join(failure...)); s.failures > 0 && !absent { // of what is absent others take care
		wait = min(s.interval<<min(s.failures-1, 10), s.patience)
	}
	s.nextOpen = s.now().Add(wait)
	s.failures++
}

// describe says why there is no NVML, and what would change that. What was never
// there is absent; what was is a fault.
func (s *nvmlSource) describe(c code, reason error) error {
	text, cure := "the driver does not work: "+c.Error(), ""
	switch c {
	case codeLibraryNotFound:
		text = "no NVML library"
		cure = "install the NVIDIA driver; in a container use NVIDIA's runtime with NVIDIA_DRIVER_CAPABILITIES=utility; or name it in scrapers::nvidia::library_path"
	case codeDriverNotLoaded:
		text, cure = "the NVIDIA driver is not loaded", "load the kernel module nvidia"
	case codeVersionMismatch:
		text = "library and driver are of different versions"
		cure = "the driver was upgraded underneath: reload it, then restart the collector"
	case codeNoPermission:
		cure = "give the collector access to /dev/nvidia*"
	}
	if errors.Is(reason, errOtherLibrary) {
		cure = "restart the collector, or give all receivers the same scrapers::nvidia::library_path"
	}
	if reason != nil {
		text += ": " + reason.Error()
	}
	absent := c == codeLibraryNotFound || c == codeDriverNotLoaded
	if absent && s.generation == 0 {
		return &scrapers.AbsentError{Reason: text, Cure: cure}
	}
	if cure != "" {
		text += "; " + cure
	}
	return &scrapers.SourceError{Source: nvmlName, Err: &brokenError{text, c}}
}

// brokenError says why the driver does not work.
type brokenError struct {
	text string
	code code
}

// Error implements error.
func (e *brokenError) Error() string { return e.text }

// Cause tells one trouble from the next, which needs another cure.
func (e *brokenError) Cause() string { return e.code.Error() }

// settle decides, after a scrape, whether the library has to be opened anew.
func (s *nvmlSource) settle(p *pass) {
	switch {
	case p.driver.ctx.Err() != nil: // the next scrape will find the same
	case p.global != codeSuccess:
		failure := []error{s.describe(p.global, nil)}
		s.shut(p.driver)
		s.back(failure)
		p.sink.put(func(r *reading) { r.errs = slices.Clone(failure) })
	case p.lost > 0 && p.lost == p.asked:
		s.shut(p.driver)
		// What is the matter stays the same while nothing is tried.
		p.sink.put(func(r *reading) { s.back(slices.Clone(r.errs)) })
	case p.read > 0 || p.asked == 0:
		s.failures = 0
	}
}

// shut closes the library and forgets what belongs to it. What is known of GPUs
// outlives that only when the library is opened for each scrape. After the time
// for calls it stays open.
func (s *nvmlSource) shut(d *driver) {
	if !s.open || d.ctx.Err() != nil {
		return
	}
	d = &driver{library: d.library, ctx: context.WithoutCancel(d.ctx)} // all of it, or nothing
	s.freeEvents(d)
	for _, st := range s.devices {
		st.gpm.free(d)
	}
	d.close()
	s.open = false
	if !s.cfg.ReleaseDriverBetweenScrapes {
		clear(s.devices)
	}
}

// forget drops what is known of GPUs and instances that are not there any more:
// one that comes back begins anew.
func (p *pass) forget() {
	for key, st := range p.devices {
		if st.seen != p.readings && st.gpm.free(p.driver) {
			delete(p.devices, key)
			if p.events != nil {
				maps.DeleteFunc(p.events.keys, func(_ nvml.Device, k string) bool { return k == key })
			}
		}
	}
}

// warnOnce logs what is said once.
func (s *nvmlSource) warnOnce(key, message string, fields ...zap.Field) {
	if !s.warned[key] {
		s.warned[key] = true
		s.logger.Warn(message, fields...)
	}
}

// pass is one reading of all GPUs.
type pass struct {
	*nvmlSource
	driver *driver
	want   want
	sink   *sink

	// asked, lost and read count GPUs; global is a code that concerns all.
	asked, lost, read int
	global            code
	// partial says that not all GPUs could be looked for.
	partial bool
	// indices are the numbers of the GPUs that were read.
	indices []int
}

// candidate is a GPU that may be there, by one of its names.
type candidate struct {
	// index is below 0 where it has to be asked for.
	index int
	// uuid and address (on the PCI bus) are empty where the GPU is named otherwise.
	uuid, address string
}

// name is for messages.
func (c *candidate) name() string {
	if c.index >= 0 {
		return "GPU " + strconv.Itoa(c.index)
	}
	return "GPU " + c.uuid + c.address
}

func (p *pass) readAll() {
	d := p.driver
	count, c := call(d, symCount, func() (int, nvml.Return) { return d.nvml.DeviceGetCount() })
	if c != codeSuccess {
		p.countFailed(c)
		return
	}
	if p.versions == (identity.GPUs{}) {
		p.readVersions(d)
	}
	p.sink.put(func(r *reading) {
		r.gpus = p.versions
		r.gpus.Count = count
	})
	if p.want.xids {
		p.drainEvents()
	}
	all := p.candidates(count)
	p.indices = make([]int, 0, len(all))
	p.sink.put(func(r *reading) { r.devices = make([]deviceReading, 0, len(all)) })
	for _, g := range all {
		handle, c := p.handleOf(&g)
		if c == codeOver {
			break
		}
		p.asked++
		if c != codeSuccess {
			p.handleFailed(&g, c)
			continue
		}
		p.readOne(g, handle)
	}
	if err := d.ctx.Err(); err != nil {
		p.sink.fail(nvmlName, fmt.Errorf("not all GPUs were read in time: %w", err))
		return
	}
	if p.partial {
		return
	}
	p.forget()
	p.sink.put(func(r *reading) { r.complete = true })
}

func (p *pass) countFailed(c code) {
	if c.isGlobal() {
		p.global = c
		return
	}
	if c != codeOver {
		p.sink.fail(nvmlName, fmt.Errorf("nvmlDeviceGetCount: %w", c))
	}
}

// handleFailed says what is the matter with a GPU that cannot be opened.
func (p *pass) handleFailed(g *candidate, c code) {
	name := g.name()
	if c.isAbsent() { // it is none of ours, or not there
		p.asked--
	}
	switch {
	case c == codeNoPermission:
		p.warnOnce("permission "+name, "No right to see a GPU; it is left out", zap.String("gpu", name),
			zap.String("cure", "let the collector's control group use its device file"))
	case c.isLost():
		p.lost++
		p.sink.fail(name, p.lostError(g.index, c))
	case c.isGlobal():
		p.global = c
	case c.isAbsent():
	default:
		p.sink.fail(name, fmt.Errorf("nvmlDeviceGetHandle: %w", c))
	}
}

// lostError says why a GPU is lost, with the last XID that it gave: its points are
// gone with it.
func (p *pass) lostError(index int, c code) error {
	what, cure := "is lost (fell off the bus)", "reset it, or the machine"
	if c == codeResetRequired {
		what, cure = "needs a reset before it can be used", "reset it with nvidia-smi --gpu-reset"
	}
	for _, st := range p.devices {
		if st.lastXID != 0 && st.index == index {
			return fmt.Errorf("%s, after XID %d: %w; %s", what, st.lastXID, c, cure)
		}
	}
	return fmt.Errorf("%s: %w; %s", what, c, cure)
}

// candidates lists the GPUs that are wanted.
func (p *pass) candidates(count int) []candidate {
	if p.cfg.SkipSuspended {
		return p.awake()
	}
	if len(p.ids) > 0 {
		return p.selected(count)
	}
	all := make([]candidate, count)
	for i := range all {
		all[i].index = i
	}
	return all
}

// handleOf opens a GPU.
func (p *pass) handleOf(g *candidate) (nvml.Device, code) {
	d := p.driver
	switch {
	case g.uuid != "":
		h, c := call(d, symHandleByUUID, func() (nvml.Device, nvml.Return) { return d.nvml.DeviceGetHandleByUUID(g.uuid) })
		return h, p.known(g.uuid, c)
	case g.address != "":
		h, c := call(d, symHandleByPCI, func() (nvml.Device, nvml.Return) { return d.nvml.DeviceGetHandleByPciBusId(g.address) })
		return h, p.known(g.address, c)
	}
	return call(d, symHandleByIndex, func() (nvml.Device, nvml.Return) { return d.nvml.DeviceGetHandleByIndex(g.index) })
}

// known warns of an entry of device_ids that there is no GPU for.
func (p *pass) known(id string, c code) code {
	if !p.cfg.SkipSuspended && (c == codeNotFound || c == codeInvalidArgument) {
		p.unmatched(id)
	}
	return c
}

func (p *pass) unmatched(id string) {
	if len(p.ids) > 0 {
		p.warnOnce("device "+id, "There is no such GPU", zap.String("device_ids", id))
	}
}

// selected are the GPUs that device_ids names. Others are not touched.
func (p *pass) selected(count int) []candidate {
	all := make([]candidate, 0, len(p.ids))
	for _, id := range p.ids {
		if id.Index >= count {
			p.unmatched(strconv.Itoa(id.Index))
			continue
		}
		all = append(all, candidate{index: id.Index, uuid: id.UUID, address: id.PCI})
	}
	return all
}

// isSelected tells whether a GPU that was found otherwise is wanted.
func (p *pass) isSelected(index int, uuid, address string) bool {
	if len(p.ids) == 0 {
		return true
	}
	for _, id := range p.ids {
		if (id.Index >= 0 && id.Index == index) || (id.UUID != "" && id.UUID == uuid) || (id.PCI != "" && id.PCI == address) {
			return true
		}
	}
	return false
}
