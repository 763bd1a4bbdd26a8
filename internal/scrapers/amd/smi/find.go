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
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
)

// ErrNotFound says that a tool is not on this machine, or not where the
// configuration says.
var ErrNotFound = errors.New("not found")

const (
	optDir   = "/opt"
	rocmPath = "ROCM_PATH"
	// systemPath is where programs are when the collector has no PATH.
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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
		if isExecutable(t.options.Path) {
			return t.options.Path, nil
		}
		return "", fmt.Errorf("%w: there is no executable %s", ErrNotFound, t.options.Path)
	}
	dirs := t.options.Dirs()
	for _, dir := range dirs {
		if path := filepath.Join(dir, t.name); isExecutable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w in %s", ErrNotFound, strings.Join(dirs, ", "))
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// SystemDirs returns the folders in which AMD's tools are looked for, the first
// one first: that of $ROCM_PATH, those of ROCm below /opt, the newest of several
// versions first, those of PATH, and /usr/bin.
func SystemDirs() []string { return searchDirs(os.Getenv, optDir) }

func searchDirs(getenv func(string) string, opt string) []string {
	var dirs []string
	add := func(dir string) {
		// An empty entry of PATH would be the present folder, and guard refuses it.
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if rocm := getenv(rocmPath); rocm != "" {
		add(filepath.Join(rocm, "bin"))
	}
	add(filepath.Join(opt, "rocm", "bin"))
	for _, rocm := range newestFirst(opt) {
		add(filepath.Join(rocm, "bin"))
	}
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		add(dir)
	}
	add("/usr/bin")
	return dirs
}

// newestFirst returns the folders rocm-VERSION below opt.
func newestFirst(opt string) []string {
	dirs, _ := filepath.Glob(filepath.Join(opt, "rocm-*")) // an error is a bad pattern, which it is not
	slices.SortStableFunc(dirs, func(a, b string) int { return slices.Compare(version(b), version(a)) })
	return dirs
}

var digits = regexp.MustCompile(`\d+`)

// version returns the numbers in the name of a folder, so that 7.10 is newer than 7.2.
func version(dir string) []int {
	var numbers []int
	for _, n := range digits.FindAllString(filepath.Base(dir), -1) {
		v, _ := strconv.Atoi(n) // too large a number counts as the largest
		numbers = append(numbers, v)
	}
	return numbers
}

// environment is what a tool gets: what it needs to find its interpreter and its
// libraries, if the operator set that, and the language that parsers know. A
// warning of Python is no line of output.
func environment(getenv func(string) string) []string {
	env := []string{
		"PATH=" + cmp.Or(getenv("PATH"), systemPath),
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
