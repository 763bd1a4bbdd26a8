// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"maps"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"
)

// maxDrained bounds the events that are taken in one scrape.
const maxDrained = 1000

// eventSet is where the driver puts XID errors.
type eventSet struct {
	set nvml.EventSet
	// keys name the GPUs that are registered, by handle.
	keys map[nvml.Device]string
	// broken sets could not be made, or did not work.
	broken bool
}

// drainEvents takes the events that came since the last scrape. It does not
// wait for any.
func (p *pass) drainEvents() {
	e := p.events
	if e == nil || e.broken {
		return
	}
	for range maxDrained {
		event, c := call(p.driver, symEventWait, func() (nvml.EventData, nvml.Return) { return e.set.Wait(0) })
		switch c {
		case codeSuccess:
		case codeTimeout, codeOver: // there is none
			return
		default: // a GPU of the set is lost: the others are registered anew
			p.freeEvents(p.driver)
			for _, st := range p.devices {
				st.registered = false
			}
			return
		}
		if st := p.devices[e.keys[event.Device]]; st != nil && event.EventType == nvml.EventTypeXidCriticalError {
			p.countXID(st, event.EventData)
		}
	}
}

// countXID counts an error, and logs the first of each kind: the GPU may be lost
// with it, and its points too.
func (p *pass) countXID(st *deviceState, xid uint64) {
	if st.xids == nil {
		st.xids, st.xidsSince = map[uint64]uint64{}, p.now()
	}
	if st.xids[xid] == 0 {
		p.logger.Warn("A GPU has an error", zap.Int("gpu_index", st.index), zap.String("gpu_model", st.name), zap.Uint64("xid", xid))
	}
	st.xids[xid]++
	st.lastXID = xid
}

// readXIDs registers a GPU when it is seen first, and tells what came since.
func (p *pass) readXIDs(g *gpu, r *deviceReading) {
	if !p.want.xids || g.dead != codeSuccess {
		return
	}
	if !g.state.registered {
		g.state.registered = p.register(g, r.key())
	}
	r.health.xids, r.health.xidsSince = maps.Clone(g.state.xids), g.state.xidsSince
}

// register tells whether that is settled, for good or bad. An error of the moment
// is not: the next scrape tries again.
func (p *pass) register(g *gpu, key string) (settled bool) {
	if !g.offers(symEventRegister) || !g.offers(symEventWait) || !g.offers(symEventFree) {
		return true
	}
	types, c := try(g, symEventSupported, g.handle.GetSupportedEventTypes)
	if c != codeSuccess || types&nvml.EventTypeXidCriticalError == 0 {
		return isSettled(c)
	}
	if p.events == nil {
		set, c := try(g, symEventCreate, g.nvml.EventSetCreate)
		if c != codeSuccess && !isSettled(c) {
			return false
		}
		p.events = &eventSet{set: set, keys: map[nvml.Device]string{}, broken: c != codeSuccess}
	}
	if p.events.broken {
		return true
	}
	_, c = try(g, symEventRegister, func() (struct{}, nvml.Return) {
		return struct{}{}, g.handle.RegisterEvents(nvml.EventTypeXidCriticalError, p.events.set)
	})
	switch c {
	case codeSuccess:
		p.events.keys[g.handle] = key
		if g.state.xids == nil {
			g.state.xids, g.state.xidsSince = map[uint64]uint64{}, p.now()
		}
	case codeUnknown:
		p.renewEvents(g)
		return true
	}
	return isSettled(c)
}

// isSettled tells an answer from an error of the moment.
func isSettled(c code) bool { return c == codeSuccess || (c.isAbsent() && c != codeOver) }

// renewEvents frees a set with which nothing more can be done. The other GPUs
// are registered with a new one.
func (p *pass) renewEvents(g *gpu) {
	p.freeEvents(g.driver)
	for _, st := range p.devices {
		st.registered = st.registered && (st == g.state || st.xids == nil)
	}
}

func (s *nvmlSource) freeEvents(d *driver) {
	if e := s.events; e != nil && !e.broken {
		_, _ = call(d, symEventFree, func() (struct{}, nvml.Return) { return struct{}{}, e.set.Free() })
	}
	s.events = nil
}
