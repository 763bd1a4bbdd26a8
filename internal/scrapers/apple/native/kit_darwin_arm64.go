// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// kit is IOKit. Its objects are numbers; 0 is none.
type kit struct {
	cf *foundation

	// matching returns a dictionary, which services consumes.
	matching func(class string) uintptr
	services func(port uint32, matching uintptr, iterator *uint32) int32
	next     func(iterator uint32) uint32
	release  func(object uint32) int32

	nameOf         func(entry uint32, name *[128]byte) int32
	classOf        func(object uint32, name *[128]byte) int32
	createProperty func(entry uint32, key, allocator uintptr, options uint32) uintptr

	taskSelf func() uint32
	open     func(service, task, kind uint32, connection *uint32) int32
	close    func(connection uint32) int32
	call     func(connection, selector uint32, in *message, inSize uint64, out *message, outSize *uint64) int32
}

func openKit() (*kit, error) {
	cf, err := loadFoundation()
	if err != nil {
		return nil, err
	}
	k := &kit{cf: cf}
	if _, err := open(systemPath, []symbol{{"mach_task_self", &k.taskSelf}}); err != nil {
		return nil, err
	}
	_, err = open(kitPath, []symbol{
		{"IOServiceMatching", &k.matching},
		{"IOServiceGetMatchingServices", &k.services},
		{"IOIteratorNext", &k.next},
		{"IOObjectRelease", &k.release},
		{"IORegistryEntryGetName", &k.nameOf},
		{"IOObjectGetClass", &k.classOf},
		{"IORegistryEntryCreateCFProperty", &k.createProperty},
		{"IOServiceOpen", &k.open},
		{"IOServiceClose", &k.close},
		{"IOConnectCallStructMethod", &k.call},
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// maxEntries bounds a walk through the entries of a class.
const maxEntries = 4096

// each calls visit with the entries of a class until it returns false.
func (k *kit) each(class string, visit func(entry uint32) bool) error {
	matching := k.matching(class)
	if matching == 0 {
		return fmt.Errorf("IOServiceMatching(%s) returned NULL", class)
	}
	var iterator uint32
	if code := k.services(0, matching, &iterator); code != 0 {
		return fmt.Errorf("IOServiceGetMatchingServices(%s) returned %#x", class, uint32(code))
	}
	if iterator == 0 {
		return nil
	}
	defer k.release(iterator)
	for range maxEntries {
		entry := k.next(iterator)
		if entry == 0 || !k.visit(entry, visit) {
			return nil
		}
	}
	return nil
}

// visit releases the entry.
func (k *kit) visit(entry uint32, visit func(entry uint32) bool) bool {
	defer k.release(entry)
	return visit(entry)
}

func (k *kit) name(entry uint32) string { return short(entry, k.nameOf) }

func (k *kit) class(entry uint32) string { return short(entry, k.classOf) }

func short(object uint32, get func(uint32, *[128]byte) int32) string {
	var name [128]byte
	if get(object, &name) != 0 {
		return ""
	}
	text, _, _ := bytes.Cut(name[:], []byte{0})
	return string(text)
}

// property hands a property of an entry to use, 0 when there is none, and releases it.
func (k *kit) property(entry uint32, name string, use func(object uintptr)) error {
	key, err := k.cf.newString(name)
	if err != nil {
		return err
	}
	defer k.cf.release(key)
	object := k.createProperty(entry, key, 0, 0)
	defer k.cf.drop(object)
	use(object)
	return nil
}

// registry reads the entries of Apple's GPU.
func registry() ([]capture.Entry, error) {
	k, err := loadKit()
	if err != nil {
		return nil, err
	}
	var entries []capture.Entry
	var failed error
	err = k.each("AGXAccelerator", func(entry uint32) bool {
		var e capture.Entry
		e, failed = k.accelerator(entry)
		entries = append(entries, e)
		return failed == nil
	})
	if err != nil {
		return nil, err
	}
	return entries, failed
}

func (k *kit) accelerator(entry uint32) (capture.Entry, error) {
	e := capture.Entry{Class: k.class(entry)}
	p := &e.Properties
	for name, use := range map[string]func(object uintptr){
		"model": func(object uintptr) {
			p.Model = k.cf.text(object)
			if data := k.cf.data(object); data != nil {
				p.Model = string(bytes.TrimRight(data, "\x00"))
			}
		},
		"gpu-core-count":        func(object uintptr) { p.Cores, _ = k.cf.whole(object) },
		"PerformanceStatistics": func(object uintptr) { p.Statistics = k.cf.numbers(object) },
	} {
		if err := k.property(entry, name, use); err != nil {
			return e, err
		}
	}
	return e, nil
}

// maxTables is above the numbers of the clock tables.
const maxTables = 32

// tables reads the clock tables.
func tables() (map[string][]byte, error) {
	k, err := loadKit()
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	found := false
	var failed error
	err = k.each("AppleARMIODevice", func(entry uint32) bool {
		if k.name(entry) != "pmgr" {
			return true
		}
		found = true
		failed = k.readTables(entry, all)
		return false
	})
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, failed
	case !found:
		return nil, errors.New("there is no entry pmgr of the class AppleARMIODevice")
	}
	return all, nil
}

func (k *kit) readTables(entry uint32, all map[string][]byte) error {
	for i := range maxTables {
		for _, name := range []string{fmt.Sprintf("voltage-states%d", i), fmt.Sprintf("voltage-states%d-sram", i)} {
			err := k.property(entry, name, func(object uintptr) {
				if data := k.cf.data(object); data != nil {
					all[name] = data
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
