// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"errors"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// reports is libIOReport, which Apple does not document.
type reports struct {
	cf *foundation

	copyGroup func(group, subgroup uintptr, a, b, c uint64) uintptr
	merge     func(into, from, none uintptr)
	subscribe func(none, channels uintptr, subscribed *uintptr, a uint64, b uintptr) uintptr
	samples   func(subscription, channels, none uintptr) uintptr

	groupOf, subgroupOf, nameOf, unitOf func(channel uintptr) uintptr

	value      func(channel uintptr, none int32) int64
	stateCount func(channel uintptr) int32
	stateName  func(channel uintptr, i int32) uintptr
	residency  func(channel uintptr, i int32) int64
}

func openReport() (*reports, error) {
	cf, err := loadFoundation()
	if err != nil {
		return nil, err
	}
	r := &reports{cf: cf}
	_, err = open(reportPath, []symbol{
		{"IOReportCopyChannelsInGroup", &r.copyGroup},
		{"IOReportMergeChannels", &r.merge},
		{"IOReportCreateSubscription", &r.subscribe},
		{"IOReportCreateSamples", &r.samples},
		{"IOReportChannelGetGroup", &r.groupOf},
		{"IOReportChannelGetSubGroup", &r.subgroupOf},
		{"IOReportChannelGetChannelName", &r.nameOf},
		{"IOReportChannelGetUnitLabel", &r.unitOf},
		{"IOReportSimpleGetIntegerValue", &r.value},
		{"IOReportStateGetCount", &r.stateCount},
		{"IOReportStateGetNameForIndex", &r.stateName},
		{"IOReportStateGetResidency", &r.residency},
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// report samples the channels of some groups. The subscription lasts no longer: the
// values are since boot.
func report(groups []group) (*sample, error) {
	r, err := loadReport()
	if err != nil {
		return nil, err
	}
	channels, err := r.channels(groups)
	if err != nil {
		return nil, err
	}
	defer r.cf.release(channels)
	wanted := r.cf.dictionaryCopy(0, r.cf.dictionaryCount(channels), channels)
	if wanted == 0 {
		return nil, errors.New("CFDictionaryCreateMutableCopy returned NULL")
	}
	defer r.cf.release(wanted)
	var subscribed uintptr
	subscription := r.subscribe(0, wanted, &subscribed, 0, 0)
	defer r.cf.drop(subscribed)
	if subscription == 0 {
		return nil, errors.New("IOReportCreateSubscription returned NULL: it is refused")
	}
	defer r.cf.release(subscription)
	return r.sample(subscription, wanted)
}

// channels returns the channels of all groups that there are, which are to be released.
func (r *reports) channels(groups []group) (uintptr, error) {
	var all uintptr
	for _, g := range groups {
		channels, err := r.group(g)
		switch {
		case err != nil:
			r.cf.drop(all)
			return 0, err
		case channels == 0:
			// Others may be there.
		case all == 0:
			all = channels
		default:
			r.merge(all, channels, 0)
			r.cf.release(channels)
		}
	}
	if all == 0 {
		return 0, errors.New("IOReportCopyChannelsInGroup returned NULL for every group")
	}
	return all, nil
}

func (r *reports) group(g group) (uintptr, error) {
	name, err := r.cf.newString(g.name)
	if err != nil {
		return 0, err
	}
	defer r.cf.release(name)
	var subgroup uintptr
	if g.subgroup != "" {
		if subgroup, err = r.cf.newString(g.subgroup); err != nil {
			return 0, err
		}
	}
	defer r.cf.drop(subgroup)
	return r.copyGroup(name, subgroup, 0, 0, 0), nil
}

func (r *reports) sample(subscription, channels uintptr) (*sample, error) {
	before := time.Now()
	taken := r.samples(subscription, channels, 0)
	after := time.Now()
	if taken == 0 {
		return nil, errors.New("IOReportCreateSamples returned NULL")
	}
	defer r.cf.release(taken)
	if !r.cf.is(taken, r.cf.dictionaryType) {
		return nil, errors.New("IOReportCreateSamples returned no dictionary")
	}
	list, err := r.cf.value(taken, "IOReportChannels")
	if err != nil {
		return nil, err
	}
	s := &sample{at: before.Add(after.Sub(before) / 2)}
	for _, channel := range r.cf.items(list) {
		if r.cf.is(channel, r.cf.dictionaryType) {
			s.channels = append(s.channels, r.channel(channel))
		}
	}
	return s, nil
}

// maxStates is above the number of states of any channel that is known.
const maxStates = 256

// channel reads a channel. Those of the energy are counters, the others have states.
func (r *reports) channel(channel uintptr) capture.Channel {
	c := capture.Channel{
		Group: r.cf.text(r.groupOf(channel)), Subgroup: r.cf.text(r.subgroupOf(channel)),
		Name: r.cf.text(r.nameOf(channel)), Unit: r.cf.text(r.unitOf(channel)), Kind: capture.Simple,
	}
	if c.Group == energyGroup {
		c.Value = r.value(channel, 0)
		return c
	}
	c.Kind = capture.State
	for i := range min(r.stateCount(channel), maxStates) {
		c.States = append(c.States, capture.Residency{Name: r.cf.text(r.stateName(channel, i)), Ticks: r.residency(channel, i)})
	}
	return c
}
