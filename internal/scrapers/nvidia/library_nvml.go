// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
)

// defaultLibrary is what the dynamic linker is asked for.
const defaultLibrary = "libnvidia-ml.so.1"

// library is NVML in this process, of which there can be one only: what is bound
// once stays bound. All that use it take turns. While a call hangs nobody calls
// anything, opening and closing included, which would not be safe.
type library struct {
	slot guard.Slot
	// mu guards orphans, who have not closed it.
	mu      sync.Mutex
	orphans []func()

	// The rest belongs to the slot.
	nvml nvml.Interface
	path string
	// loaded says that the library has been opened: it cannot be another one then.
	loaded bool
	// has says which symbols the open library has, by their numbers, as far as was
	// looked.
	has []optional.Of[bool]
	// question is for GPM; it is large, and used again.
	question nvml.GpmMetricsGetType
}

// process is the library of this process.
var process library

// open opens NVML and counts one more user. reason says more than the code where
// there is more to say.
func (l *library) open(path string) (c code, reason error) {
	path = cmp.Or(path, defaultLibrary)
	if l.loaded && path != l.path {
		return codeLibraryNotFound, fmt.Errorf("%w: %s is loaded, and %s cannot be beside it", errOtherLibrary, l.path, path)
	}
	l.closeOrphans()
	if !l.loaded {
		if err := probe(path); err != nil {
			return codeLibraryNotFound, err
		}
		l.nvml, l.path = nvml.New(nvml.WithLibraryPath(path)), path
	}
	c = code(l.nvml.Init())
	l.has = make([]optional.Of[bool], len(symbols))
	// What cannot be loaded has no symbols, whatever its first call answers.
	l.loaded = l.loaded || offers(l.nvml.Extensions().LookupSymbol, symInit)
	return c, nil
}

// errOtherLibrary says that a process cannot change its library.
var errOtherLibrary = errors.New("this process has another one")

// leave has the library closed for one who could not wait for it.
func (l *library) leave(shut func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = append(l.orphans, shut)
}

func (l *library) closeOrphans() {
	l.mu.Lock()
	orphans := l.orphans
	l.orphans = nil
	l.mu.Unlock()
	for _, shut := range orphans {
		shut()
	}
}

// probe looks whether a library can be opened and is NVML. Without its first
// function the process would end.
func probe(path string) (err error) {
	lib := dl.New(path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		return err
	}
	defer func() { _ = lib.Close() }()
	for _, s := range []symbol{symInit, symShutdown} {
		if !offers(lib.Lookup, s) {
			return fmt.Errorf("%s is not NVML: it has no %s", path, s.names[0])
		}
	}
	return nil
}

func offers(lookup func(string) error, s symbol) bool {
	for _, name := range s.names {
		if lookup(name) == nil {
			return true
		}
	}
	return false
}

// close counts one user less.
func (l *library) close() { _ = l.nvml.Shutdown() }

// offers tells whether the open library has a function.
func (l *library) offers(s symbol) bool {
	has := &l.has[s.number]
	if !has.Known {
		*has = optional.Some(offers(l.nvml.Extensions().LookupSymbol, s))
	}
	return has.Value
}

// driver makes the calls of one scrape.
type driver struct {
	*library
	ctx context.Context
}

// call makes one call, if the library has the function and there is time. A
// panic (go-nvml's, on lists that the driver gets wrong) is an unknown error.
func call[T any](d *driver, s symbol, fn func() (T, nvml.Return)) (value T, c code) {
	if d.ctx.Err() != nil {
		return value, codeOver
	}
	if !d.offers(s) {
		return value, codeFunctionNotFound
	}
	defer func() {
		if recover() != nil {
			c = codeUnknown
		}
	}()
	v, ret := fn()
	if ret != nvml.SUCCESS {
		return value, code(ret)
	}
	return v, codeSuccess
}
