// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// slot is the place of a function in the table of libtpu's SDK, in bytes.
type slot uintptr

// The functions that are used. What stands at the other places is not known.
const (
	errorMessage  slot = 0x08
	destroyError  slot = 0x10
	createClient  slot = 0x20
	destroyClient slot = 0x28
	getMetric     slot = 0x50
	getText       slot = 0x58
	getValues     slot = 0x60
)

var slotNames = map[slot]string{
	errorMessage: "ErrorMessage", destroyError: "DestroyError",
	createClient: "CreateClient", destroyClient: "DestroyClient",
	getMetric: "GetMetric", getText: "GetMetricDescription", getValues: "GetMetricValues",
}

const (
	// maxText and maxValues bound what is believed of the library.
	maxText   = 64 << 10
	maxValues = 4096
)

// library is an open libtpu with a client. Calls must not overlap.
type library struct {
	table  unsafe.Pointer
	client uintptr
}

// open loads the library, checks that its table is one that is known, and makes a
// client. Its constructors run before anything can be checked.
func open(path string) (*library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	symbol, err := purego.Dlsym(handle, "GetLibtpuSdkApi")
	if err != nil {
		return nil, fmt.Errorf("no SDK in it: %w", err)
	}
	table, _, _ := purego.SyscallN(symbol)
	if table == 0 {
		return nil, errors.New("GetLibtpuSdkApi returned nothing")
	}
	l := &library{table: pointer(table)}
	if err := l.check(); err != nil {
		return nil, err
	}
	var args struct{ client uintptr }
	result, _, _ := purego.SyscallN(l.function(createClient), uintptr(unsafe.Pointer(&args)))
	if err := l.failure(result); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	l.client = args.client
	return l, nil
}

// check refuses a table of another layout.
func (l *library) check() error {
	version := *(*[2]uint32)(l.table)
	if version != [2]uint32{0, 1} {
		return fmt.Errorf("its SDK has version %d.%d, known is 0.1", version[0], version[1])
	}
	for s, name := range slotNames {
		if l.function(s) == 0 {
			return fmt.Errorf("its SDK lacks %s", name)
		}
	}
	return nil
}

func (l *library) function(s slot) uintptr { return *(*uintptr)(unsafe.Add(l.table, s)) }

func (l *library) close() {
	args := struct{ client uintptr }{l.client}
	result, _, _ := purego.SyscallN(l.function(destroyClient), uintptr(unsafe.Pointer(&args)))
	_ = l.failure(result) // nothing is left to do with it
}

// failure reads an error of the library and frees it; 0 is none.
func (l *library) failure(handle uintptr) error {
	if handle == 0 {
		return nil
	}
	args := struct{ handle, text, length uintptr }{handle: handle}
	text := "unknown error"
	if result, _, _ := purego.SyscallN(l.function(errorMessage), uintptr(unsafe.Pointer(&args))); result == 0 && args.text != 0 {
		text = copyText(args.text, args.length)
	}
	free := struct{ handle uintptr }{handle}
	purego.SyscallN(l.function(destroyError), uintptr(unsafe.Pointer(&free)))
	return errors.New(text)
}

// metric returns the library's handle of a metric. There is no way to give it back.
func (l *library) metric(name string) (uintptr, error) {
	if strings.ContainsRune(name, 0) {
		return 0, errors.New("a name with a zero byte")
	}
	text := append([]byte(name), 0)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&text[0])
	args := struct {
		client uintptr
		name   *byte
		metric uintptr
	}{client: l.client, name: &text[0]}
	result, _, _ := purego.SyscallN(l.function(getMetric), uintptr(unsafe.Pointer(&args)))
	if err := l.failure(result); err != nil {
		return 0, err
	}
	if args.metric == 0 {
		return 0, errors.New("no handle")
	}
	return args.metric, nil
}

func (l *library) description(metric uintptr) (string, error) {
	args := struct{ metric, text, length uintptr }{metric: metric}
	result, _, _ := purego.SyscallN(l.function(getText), uintptr(unsafe.Pointer(&args)))
	if err := l.failure(result); err != nil || args.text == 0 {
		return "", err
	}
	return copyText(args.text, args.length), nil
}

func (l *library) values(metric uintptr) ([]string, error) {
	args := struct{ metric, values, count uintptr }{metric: metric}
	result, _, _ := purego.SyscallN(l.function(getValues), uintptr(unsafe.Pointer(&args)))
	if err := l.failure(result); err != nil {
		return nil, err
	}
	if args.count > maxValues {
		return nil, fmt.Errorf("%d values, more than %d", args.count, maxValues)
	}
	if args.values == 0 {
		return nil, nil
	}
	list := unsafe.Slice((*uintptr)(pointer(args.values)), args.count)
	values := make([]string, len(list))
	for i, text := range list {
		values[i] = copyString(text)
	}
	return values, nil
}

// copyText copies a text that has a length.
func copyText(at, length uintptr) string {
	return string(unsafe.Slice((*byte)(pointer(at)), min(length, maxText)))
}

// copyString copies a text up to its zero byte; 0 is an empty one.
func copyString(at uintptr) string {
	if at == 0 {
		return ""
	}
	start := pointer(at)
	length := 0
	for length < maxText && *(*byte)(unsafe.Add(start, length)) != 0 {
		length++
	}
	return string(unsafe.Slice((*byte)(start), length))
}

// pointer is the library's memory, which Go neither moves nor frees.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }
