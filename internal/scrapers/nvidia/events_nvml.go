// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"maps"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
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
		if c != codeSuccess {
			return // mostly a timeout: there is none
		}
		if st := p.devices[e.keys[event.Device]]; st != nil && event.EventType == nvml.EventTypeXidCriticalError {
			st.xids[event.EventData]++
		}
	}
}

// readXIDs registers a GPU when it is seen first, and tells what came since.
func (p *pass) readXIDs(g *gpu, r *deviceReading) {
	if !p.want.xids || g.dead != codeSuccess {
		return
	}
	if !g.state.registered {
		g.state.registered = true
		if p.register(g, r.key()) && g.state.xids == nil {
			g.state.xids, g.state.xidsSince = map[uint64]uint64{}, p.now()
		}
	}
	r.health.xids, r.health.xidsSince = maps.Clone(g.state.xids), g.state.xidsSince
}

func (p *pass) register(g *gpu, key string) bool {
	if !g.offers(symEventRegister) || !g.offers(symEventWait) || !g.offers(symEventFree) {
		return false
	}
	types := ask(g, symEventSupported, g.handle.GetSupportedEventTypes)
	if !types.known || types.value&nvml.EventTypeXidCriticalError == 0 {
		return false
	}
	if p.events == nil {
		set := ask(g, symEventCreate, g.nvml.EventSetCreate)
		p.events = &eventSet{set: set.value, keys: map[nvml.Device]string{}, broken: !set.known}
	}
	if p.events.broken {
		return false
	}
	_, c := try(g, symEventRegister, func() (struct{}, nvml.Return) {
		return struct{}{}, g.handle.RegisterEvents(nvml.EventTypeXidCriticalError, p.events.set)
	})
	if c == codeUnknown {
		p.renewEvents(g)
	}
	if c != codeSuccess {
		return false
	}
	p.events.keys[g.handle] = key
	return true
}

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
