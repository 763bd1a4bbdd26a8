// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package toolrun

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// SystemPath is where programs are when the collector has no PATH.
const SystemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// IsExecutable tells whether there is a program.
func IsExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Dirs are folders to look in: the absolute ones, each once. An empty entry of PATH
// would be the present folder, and package guard refuses that.
func Dirs(dirs ...string) []string {
	var all []string
	for _, dir := range dirs {
		if filepath.IsAbs(dir) && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}

// NewestFirst returns the folders that match a pattern, by the versions in their names.
func NewestFirst(pattern string) []string {
	dirs, _ := filepath.Glob(pattern) // an error is a bad pattern, which it is not
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
