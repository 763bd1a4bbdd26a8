// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"
)

// foundation is CoreFoundation. What Create and Copy functions return is to be released;
// what Get functions return is not. 0 is NULL, which no function may be given.
type foundation struct {
	release func(object uintptr)
	typeOf  func(object uintptr) uint64

	stringCreate func(allocator uintptr, text string, encoding uint32) uintptr
	stringLength func(object uintptr) int64
	stringBytes  func(object uintptr, buffer *byte, size int64, encoding uint32) bool

	dictionaryCreate func(allocator uintptr, keys, values *uintptr, n int64, keyCallbacks, valueCallbacks uintptr) uintptr
	dictionaryCopy   func(allocator uintptr, capacity int64, object uintptr) uintptr
	dictionaryCount  func(object uintptr) int64
	dictionaryValue  func(object, key uintptr) uintptr
	dictionaryAll    func(object uintptr, keys, values *uintptr)

	arrayCount func(object uintptr) int64
	arrayValue func(object uintptr, i int64) uintptr

	numberCreate func(allocator uintptr, kind int64, value *int32) uintptr
	numberValue  func(object uintptr, kind int64, value *int64) bool

	dataLength func(object uintptr) int64
	dataBytes  func(object uintptr) unsafe.Pointer

	stringType, dictionaryType, arrayType, numberType, dataType func() uint64

	// The addresses of the callbacks for what dictionaries hold.
	keyCallbacks, valueCallbacks uintptr
}

const (
	utf8 = 0x08000100

	int32Number = 3
	int64Number = 4
)

func openFoundation() (*foundation, error) {
	f := &foundation{}
	library, err := open(foundationPath, []symbol{
		{"CFRelease", &f.release},
		{"CFGetTypeID", &f.typeOf},
		{"CFStringCreateWithCString", &f.stringCreate},
		{"CFStringGetLength", &f.stringLength},
		{"CFStringGetCString", &f.stringBytes},
		{"CFDictionaryCreate", &f.dictionaryCreate},
		{"CFDictionaryCreateMutableCopy", &f.dictionaryCopy},
		{"CFDictionaryGetCount", &f.dictionaryCount},
		{"CFDictionaryGetValue", &f.dictionaryValue},
		{"CFDictionaryGetKeysAndValues", &f.dictionaryAll},
		{"CFArrayGetCount", &f.arrayCount},
		{"CFArrayGetValueAtIndex", &f.arrayValue},
		{"CFNumberCreate", &f.numberCreate},
		{"CFNumberGetValue", &f.numberValue},
		{"CFDataGetLength", &f.dataLength},
		{"CFDataGetBytePtr", &f.dataBytes},
		{"CFStringGetTypeID", &f.stringType},
		{"CFDictionaryGetTypeID", &f.dictionaryType},
		{"CFArrayGetTypeID", &f.arrayType},
		{"CFNumberGetTypeID", &f.numberType},
		{"CFDataGetTypeID", &f.dataType},
	})
	if err != nil {
		return nil, err
	}
	var err1, err2 error
	f.keyCallbacks, err1 = find(library, foundationPath, "kCFTypeDictionaryKeyCallBacks")
	f.valueCallbacks, err2 = find(library, foundationPath, "kCFTypeDictionaryValueCallBacks")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return f, nil
}

// drop releases an object if there is one.
func (f *foundation) drop(object uintptr) {
	if object != 0 {
		f.release(object)
	}
}

// is tells whether an object is there and of a type.
func (f *foundation) is(object uintptr, kind func() uint64) bool {
	return object != 0 && f.typeOf(object) == kind()
}

// newString returns a string that is to be dropped.
func (f *foundation) newString(text string) (uintptr, error) {
	s := f.stringCreate(0, text, utf8)
	if s == 0 {
		return 0, fmt.Errorf("CFStringCreateWithCString(%q) returned NULL", text)
	}
	return s, nil
}

// maxText bounds strings, in UTF-16 units.
const maxText = 4096

// text is a string's, empty for what is none.
func (f *foundation) text(object uintptr) string {
	if !f.is(object, f.stringType) {
		return ""
	}
	length := f.stringLength(object)
	if length <= 0 || length > maxText {
		return ""
	}
	buffer := make([]byte, 4*length+1)
	if !f.stringBytes(object, &buffer[0], int64(len(buffer)), utf8) {
		return ""
	}
	text, _, _ := bytes.Cut(buffer, []byte{0})
	return string(text)
}

// whole is a number's value.
func (f *foundation) whole(object uintptr) (int64, bool) {
	if !f.is(object, f.numberType) {
		return 0, false
	}
	var n int64
	ok := f.numberValue(object, int64Number, &n)
	return n, ok
}

// maxData bounds data, in bytes.
const maxData = 1 << 20

// data copies what data hold, nil for what is none.
func (f *foundation) data(object uintptr) []byte {
	if !f.is(object, f.dataType) {
		return nil
	}
	length, start := f.dataLength(object), f.dataBytes(object)
	if start == nil || length <= 0 || length > maxData {
		return nil
	}
	return bytes.Clone(unsafe.Slice((*byte)(start), length)) //nolint:gosec // its bounds were checked
}

// value is what a dictionary has under a key; 0 when it has none. It is not to be dropped.
func (f *foundation) value(dictionary uintptr, name string) (uintptr, error) {
	key, err := f.newString(name)
	if err != nil {
		return 0, err
	}
	defer f.release(key)
	return f.dictionaryValue(dictionary, key), nil
}

// maxItems bounds arrays and dictionaries.
const maxItems = 1 << 16

// items are those of an array. They are not to be dropped, and gone with the array.
func (f *foundation) items(array uintptr) []uintptr {
	if !f.is(array, f.arrayType) {
		return nil
	}
	n := min(f.arrayCount(array), maxItems)
	items := make([]uintptr, 0, max(n, 0))
	for i := range n {
		if item := f.arrayValue(array, i); item != 0 {
			items = append(items, item)
		}
	}
	return items
}

// numbers are the whole numbers of a dictionary; nil for what is none.
func (f *foundation) numbers(dictionary uintptr) map[string]int64 {
	if !f.is(dictionary, f.dictionaryType) {
		return nil
	}
	n := f.dictionaryCount(dictionary)
	if n <= 0 || n > maxItems {
		return map[string]int64{}
	}
	keys, values := make([]uintptr, n), make([]uintptr, n)
	f.dictionaryAll(dictionary, &keys[0], &values[0])
	numbers := make(map[string]int64, n)
	for i, key := range keys {
		if v, ok := f.whole(values[i]); ok {
			numbers[f.text(key)] = v
		}
	}
	return numbers
}
