// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"errors"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// hid is the part of IOKit that has temperature sensors.
type hid struct {
	cf *foundation

	clientCreate func(allocator uintptr) uintptr
	setMatching  func(client, matching uintptr)
	copyServices func(client uintptr) uintptr
	copyProperty func(service, key uintptr) uintptr
	copyEvent    func(service uintptr, kind int64, options int32, timestamp int64) uintptr
	floatValue   func(event uintptr, field int32) float64
}

// The sensors and their events.
const (
	sensorPage       = 0xff00
	sensorUsage      = 5
	temperatureEvent = 15
)

func openHID() (*hid, error) {
	cf, err := loadFoundation()
	if err != nil {
		return nil, err
	}
	h := &hid{cf: cf}
	_, err = open(kitPath, []symbol{
		{"IOHIDEventSystemClientCreate", &h.clientCreate},
		{"IOHIDEventSystemClientSetMatching", &h.setMatching},
		{"IOHIDEventSystemClientCopyServices", &h.copyServices},
		{"IOHIDServiceClientCopyProperty", &h.copyProperty},
		{"IOHIDServiceClientCopyEvent", &h.copyEvent},
		{"IOHIDEventGetFloatValue", &h.floatValue},
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// sensors reads the temperature sensors.
func sensors() ([]capture.Sensor, error) {
	h, err := loadHID()
	if err != nil {
		return nil, err
	}
	matching, err := h.matching()
	if err != nil {
		return nil, err
	}
	defer h.cf.release(matching)
	product, err := h.cf.newString("Product")
	if err != nil {
		return nil, err
	}
	defer h.cf.release(product)
	client := h.clientCreate(0)
	if client == 0 {
		return nil, errors.New("IOHIDEventSystemClientCreate returned NULL")
	}
	defer h.cf.release(client)
	h.setMatching(client, matching)
	services := h.copyServices(client)
	if services == 0 {
		return nil, errors.New("IOHIDEventSystemClientCopyServices returned NULL")
	}
	defer h.cf.release(services)
	var all []capture.Sensor
	for _, service := range h.cf.items(services) {
		if s, ok := h.sensor(service, product); ok {
			all = append(all, s)
		}
	}
	return all, nil
}

func (h *hid) sensor(service, product uintptr) (capture.Sensor, bool) {
	name := h.copyProperty(service, product)
	defer h.cf.drop(name)
	s := capture.Sensor{Product: h.cf.text(name)}
	if s.Product == "" {
		return s, false
	}
	event := h.copyEvent(service, temperatureEvent, 0, 0)
	if event == 0 {
		return s, false
	}
	defer h.cf.release(event)
	s.Celsius = h.floatValue(event, temperatureEvent<<16)
	return s, true
}

// matching is the dictionary that says which services are wanted.
func (h *hid) matching() (uintptr, error) {
	var keys, values [2]uintptr
	defer func() {
		for i := range keys {
			h.cf.drop(keys[i])
			h.cf.drop(values[i])
		}
	}()
	for i, pair := range []struct {
		name  string
		value int32
	}{{"PrimaryUsagePage", sensorPage}, {"PrimaryUsage", sensorUsage}} {
		var err error
		if keys[i], err = h.cf.newString(pair.name); err != nil {
			return 0, err
		}
		if values[i] = h.cf.numberCreate(0, int32Number, &pair.value); values[i] == 0 {
			return 0, errors.New("CFNumberCreate returned NULL")
		}
	}
	d := h.cf.dictionaryCreate(0, &keys[0], &values[0], int64(len(keys)), h.cf.keyCallbacks, h.cf.valueCallbacks)
	if d == 0 {
		return 0, errors.New("CFDictionaryCreate returned NULL")
	}
	return d, nil
}
