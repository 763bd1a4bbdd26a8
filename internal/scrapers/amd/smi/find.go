// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

// ErrNotFound says that a tool is not on this machine, or not where the
// configuration says.
var ErrNotFound = errors.New("not found")

const (
	optDir   = "/opt"
	rocmPath = "ROCM_PATH"
)

// Find returns the path of the executable; it looks for it once, and again after
// a failure. ROCm is often on a file server: ctx bounds the search. Without an
// executable the error wraps [ErrNotFound] and names where was looked.
func (t *Tool) Find(ctx context.Context) (string, error) {
	if t.path != "" {
		return t.path, nil
	}
	path, err := guard.Call(ctx, &t.finding, func(context.Context) (string, error) { return t.search() })
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", t.name, err)
	}
	t.path = path
	return path, nil
}

func (t *Tool) search() (string, error) {
	if t.options.Path != "" {
		if toolrun.IsExecutable(t.options.Path) {
			return t.options.Path, nil
		}
		return "", fmt.Errorf("%w: there is no executable %s", ErrNotFound, t.options.Path)
	}
	dirs := t.options.Dirs()
	for _, dir := range dirs {
		if path := filepath.Join(dir, t.name); toolrun.IsExecutable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w in %s", ErrNotFound, strings.Join(dirs, ", "))
}

// SystemDirs returns the folders in which AMD's tools are looked for, the first
// one first: that of $ROCM_PATH, those of ROCm below /opt, the newest of several
// versions first, those of PATH, and /usr/bin.
func SystemDirs() []string { return searchDirs(os.Getenv, optDir) }

func searchDirs(getenv func(string) string, opt string) []string {
	var dirs []string
	if rocm := getenv(rocmPath); rocm != "" {
		dirs = append(dirs, filepath.Join(rocm, "bin"))
	}
	dirs = append(dirs, filepath.Join(opt, "rocm", "bin"))
	for _, rocm := range toolrun.NewestFirst(filepath.Join(opt, "rocm-*")) {
		dirs = append(dirs, filepath.Join(rocm, "bin"))
	}
	dirs = append(dirs, filepath.SplitList(getenv("PATH"))...)
	return toolrun.Dirs(append(dirs, "/usr/bin")...)
}

// environment is what a tool gets: what it needs to find its interpreter and its
// libraries, if the operator set that, and the language that parsers know. A
// warning of Python is no line of output.
func environment(getenv func(string) string) []string {
	env := []string{
		"PATH=" + cmp.Or(getenv("PATH"), toolrun.SystemPath),
		"LC_ALL=C",
		"PYTHONWARNINGS=ignore",
	}
	for _, key := range []string{rocmPath, "LD_LIBRARY_PATH"} {
		if v := getenv(key); v != "" {
			env = append(env, key+"="+v)
		}
	}
	return env
}
