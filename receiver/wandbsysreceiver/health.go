// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbsysreceiver

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

// state says whether a family's hardware is here and answers.
type state string

const (
	// stateStarting: not scraped yet.
	stateStarting state = "starting"
	// stateDetected: here and answering, though perhaps not every source.
	stateDetected state = "detected"
	// stateAbsent: not here.
	stateAbsent state = "absent"
	// stateLost: nothing answers.
	stateLost state = "lost"
	// stateOff: not listed under scrapers.
	stateOff state = "off"
)

// maxReason keeps the reason fit for an attribute.
const maxReason = 200

// health is the state of all families of one receiver. It feeds the receiver's
// own metrics and its component status.
type health struct {
	receiver attribute.KeyValue

	mu       sync.Mutex
	families []*familyHealth
	host     component.Host
	status   string // the reason that was last reported; empty is OK
}

// familyHealth is the state of one family.
type familyHealth struct {
	board *health
	name  string
	// startErr is set before the first scrape, or never.
	startErr error

	// Below here: guarded by board.mu.
	state    state
	reason   string
	scraped  bool
	success  bool
	duration time.Duration
	lastGood time.Time
	faults   map[string]error
	gone     map[string]bool
}

// change is what a scrape changed in a family's health.
type change struct {
	state        state // empty: as before
	reason, cure string
	began        []error  // sources that began to fail
	ended        []string // sources that answer again
	gone         []string
}

func newHealth(receiver string) *health {
	return &health{receiver: attribute.String("receiver", receiver)}
}

// add registers a family that is on.
func (h *health) add(name string) *familyHealth {
	f := &familyHealth{board: h, name: name, state: stateStarting}
	h.families = append(h.families, f)
	return f
}

// addOff registers a family that is off.
func (h *health) addOff(name string) {
	f := h.add(name)
	f.state, f.reason = stateOff, "not listed under scrapers"
}

func (f *familyHealth) is(s state) bool {
	f.board.mu.Lock()
	defer f.board.mu.Unlock()
	return f.state == s
}

// record takes the outcome of one scrape: how many points it gave, what went
// wrong (as scrapers.Scraper describes it), how long it took.
func (f *familyHealth) record(points int, err error, duration time.Duration) change {
	absent, faults, gone := sortErrors(err)
	f.board.mu.Lock()
	defer f.board.mu.Unlock()
	before, beforeReason := f.state, f.reason
	var c change
	f.scraped, f.duration = true, duration
	f.success = absent == nil && len(faults) == 0
	c.began, c.ended = f.updateFaults(faults)
	c.gone = f.updateGone(gone)
	f.state, f.reason = stateDetected, firstReason(faults)
	switch {
	case absent != nil:
		f.state, f.reason, c.cure = stateAbsent, shorten(absent.Reason), absent.Cure
		c.ended = nil // what is not here does not answer again
	case points == 0 && len(faults) > 0:
		f.state = stateLost
	case points > 0:
		f.lastGood = time.Now()
	}
	if f.state == before && f.state != stateAbsent && len(c.began)+len(c.ended) == 0 {
		f.reason = beforeReason // texts with durations in them are no news
	}
	if f.state != before || (f.state == stateAbsent && f.reason != beforeReason) {
		c.state, c.reason = f.state, f.reason
	}
	f.board.reportStatus()
	return c
}

// causeTimeout is what sources themselves call it, too.
const causeTimeout = "timeout"

// causeOf returns what tells one trouble of a source from the next, where an error
// knows that: a text alone may change while the trouble stays. What does not answer in
// time has one cause, be it the source or the scrape whose time is over first.
func causeOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Cause() string
	}](err); ok {
		return e.Cause()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, guard.ErrHung) {
		return causeTimeout
	}
	return ""
}

// updateFaults remembers which sources fail, and returns the difference. One that
// has another trouble than before begins to fail anew.
func (f *familyHealth) updateFaults(faults map[string]error) (began []error, ended []string) {
	for _, source := range sortedKeys(faults) {
		if before, known := f.faults[source]; !known || causeOf(before) != causeOf(faults[source]) {
			began = append(began, faults[source])
		}
	}
	for _, source := range sortedKeys(f.faults) {
		if _, still := faults[source]; !still {
			ended = append(ended, source)
		}
	}
	f.faults = faults
	return began, ended
}

// updateGone remembers what is gone, and returns what is new.
func (f *familyHealth) updateGone(gone map[string]bool) []string {
	var added []string
	for _, what := range sortedKeys(gone) {
		if !f.gone[what] {
			added = append(added, what)
		}
	}
	f.gone = gone
	return added
}

// sortErrors takes a scrape's error apart. An error of no known kind counts as
// the fault of the scrape itself.
func sortErrors(err error) (*scrapers.AbsentError, map[string]error, map[string]bool) {
	if absent, ok := errors.AsType[*scrapers.AbsentError](err); ok {
		return absent, nil, nil
	}
	faults, gone := map[string]error{}, map[string]bool{}
	for _, e := range split(err) {
		if g, ok := errors.AsType[*scrapers.GoneError](e); ok {
			gone[g.What] = true
			continue
		}
		if s, ok := errors.AsType[*scrapers.SourceError](e); ok {
			faults[s.Source] = both(faults[s.Source], e)
			continue
		}
		faults["scrape"] = both(faults["scrape"], e)
	}
	return nil, faults, gone
}

// both keeps two errors of one source.
func both(first, second error) error {
	if first == nil {
		return second
	}
	return errors.Join(first, second)
}

// joined is the type of what errors.Join returns. fmt.Errorf's errors may wrap
// several too, but have a text of their own and are not taken apart.
var joined = reflect.TypeOf(errors.Join(errors.ErrUnsupported))

// split returns the errors that errors.Join put together.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if reflect.TypeOf(err) != joined {
		return []error{err}
	}
	var all []error
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}

func firstReason(faults map[string]error) string {
	sources := sortedKeys(faults)
	if len(sources) == 0 {
		return ""
	}
	return shorten(faults[sources[0]].Error())
}

// shorten makes one short line of a text.
func shorten(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "..."
	}
	return s
}

// start registers the receiver's own metrics and allows status reports.
func (h *health) start(telemetry *metadata.TelemetryBuilder, host component.Host) error {
	h.mu.Lock()
	h.host = host
	h.mu.Unlock()
	return errors.Join(
		telemetry.RegisterWandbsysFamilyStateCallback(h.observeState),
		telemetry.RegisterWandbsysFamilyScrapeSuccessCallback(h.observeSuccess),
		telemetry.RegisterWandbsysFamilyScrapeDurationCallback(h.observeDuration),
		telemetry.RegisterWandbsysFamilyLastGoodAgeCallback(h.observeAge),
	)
}

// stop ends status reports: after Shutdown began they are the service's.
func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.host = nil
}

// reportStatus reports the worst of all families when that changed. It is
// never a permanent error: the receiver goes on trying. h.mu is held.
func (h *health) reportStatus() {
	if h.host == nil {
		return
	}
	worst := h.worst()
	if worst == h.status {
		return
	}
	h.status = worst
	event := componentstatus.NewEvent(componentstatus.StatusOK)
	if worst != "" {
		event = componentstatus.NewRecoverableErrorEvent(errors.New(worst))
	}
	componentstatus.ReportStatus(h.host, event)
}

// worst returns the reason of the family that does worst: lost before failing
// in part; empty when all is well.
func (h *health) worst() string {
	reason := ""
	for _, f := range h.families {
		if f.state == stateLost {
			return f.name + ": " + f.reason
		}
		if reason == "" && len(f.faults) > 0 {
			reason = f.name + ": " + f.reason
		}
	}
	return reason
}

// each calls fn for every family with the attributes that all points carry.
func (h *health) each(fn func(f *familyHealth, attrs ...attribute.KeyValue)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.families {
		fn(f, h.receiver, attribute.String("family", f.name))
	}
}

func (h *health) observeState(_ context.Context, o metric.Int64Observer) error {
	h.each(func(f *familyHealth, attrs ...attribute.KeyValue) {
		attrs = append(attrs, attribute.String("state", string(f.state)), attribute.String("reason", f.reason))
		o.Observe(1, metric.WithAttributes(attrs...))
	})
	return nil
}

func (h *health) observeSuccess(_ context.Context, o metric.Int64Observer) error {
	h.each(func(f *familyHealth, attrs ...attribute.KeyValue) {
		if !f.scraped || f.state == stateAbsent {
			return
		}
		value := int64(0)
		if f.success {
			value = 1
		}
		o.Observe(value, metric.WithAttributes(attrs...))
	})
	return nil
}

func (h *health) observeDuration(_ context.Context, o metric.Float64Observer) error {
	h.each(func(f *familyHealth, attrs ...attribute.KeyValue) {
		if f.scraped {
			o.Observe(f.duration.Seconds(), metric.WithAttributes(attrs...))
		}
	})
	return nil
}

func (h *health) observeAge(_ context.Context, o metric.Float64Observer) error {
	h.each(func(f *familyHealth, attrs ...attribute.KeyValue) {
		if !f.lastGood.IsZero() {
			o.Observe(time.Since(f.lastGood).Seconds(), metric.WithAttributes(attrs...))
		}
	})
	return nil
}
