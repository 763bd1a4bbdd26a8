// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"fmt"
	"sync"

	"github.com/ebitengine/purego"
)

// Where the libraries are for the loader: they are in its cache, not on the disk.
const (
	foundationPath = "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"
	kitPath        = "/System/Library/Frameworks/IOKit.framework/IOKit"
	reportPath     = "/usr/lib/libIOReport.dylib"
	systemPath     = "/usr/lib/libSystem.B.dylib"
)

// Each library is opened once per process, when it is needed first, and never closed.
var (
	loadFoundation = sync.OnceValues(openFoundation)
	loadKit        = sync.OnceValues(openKit)
	loadReport     = sync.OnceValues(openReport)
	loadHID        = sync.OnceValues(openHID)
)

// symbol is a function of a library and a pointer to the Go function that calls it.
type symbol struct {
	name string
	fn   any
}

// open opens a library and binds its functions.
func open(path string, symbols []symbol) (uintptr, error) {
	library, err := purego.Dlopen(path, purego.RTLD_LAZY|purego.RTLD_GLOBAL)
	if err != nil {
		return 0, fmt.Errorf("opening %s: %w", path, err)
	}
	for _, s := range symbols {
		address, err := find(library, path, s.name)
		if err != nil {
			return 0, err
		}
		purego.RegisterFunc(s.fn, address)
	}
	return library, nil
}

// find looks for a symbol: purego.RegisterLibFunc would panic where it is missing.
func find(library uintptr, path, name string) (uintptr, error) {
	address, err := purego.Dlsym(library, name)
	switch {
	case err != nil:
		return 0, fmt.Errorf("looking for %s in %s: %w", name, path, err)
	case address == 0:
		return 0, fmt.Errorf("looking for %s in %s: it is not there", name, path)
	}
	return address, nil
}
