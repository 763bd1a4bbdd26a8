// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package trainium

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	toolName = "neuron-monitor"
	// toolDir is where AWS's package puts the tools.
	toolDir = "/opt/aws/neuron/bin"
)

// errNotFound says that the tool is not on this machine, or not where the
// configuration says.
var errNotFound = errors.New("not found")

// finder looks for the tool and for devices.
type finder struct {
	// path is the configured one, root where the machine's / is seen.
	path, root string
	slot       guard.Slot
}

// found is what there is.
type found struct {
	// tool is empty when err says why there is none.
	tool string
	err  error
	// devices tells that the machine has some.
	devices bool
}

// find looks once. Folders in PATH may be on a file server: ctx bounds it.
func (f *finder) find(ctx context.Context) (found, error) {
	got, err := guard.Call(ctx, &f.slot, func(context.Context) (found, error) {
		got := found{devices: f.hasDevices()}
		got.tool, got.err = f.search()
		return got, nil
	})
	if err != nil {
		return got, fmt.Errorf("look for %s: %w", toolName, err)
	}
	return got, nil
}

func (f *finder) search() (string, error) {
	if f.path != "" {
		if toolrun.IsExecutable(f.path) {
			return f.path, nil
		}
		return "", fmt.Errorf("%w: there is no executable %s (scrapers::trainium::neuron_monitor_path)", errNotFound, f.path)
	}
	dirs := searchDirs(os.Getenv("PATH"))
	for _, dir := range dirs {
		if path := filepath.Join(dir, toolName); toolrun.IsExecutable(path) {
			return path, nil
		}
	}
	// The cure comes first: states are cut short, and PATH may be long.
	return "", fmt.Errorf("%w: install aws-neuronx-tools, or set scrapers::trainium::neuron_monitor_path; looked in %s",
		errNotFound, strings.Join(dirs, ", "))
}

func searchDirs(path string) []string {
	return toolrun.Dirs(append(filepath.SplitList(path), toolDir)...)
}

var deviceForm = regexp.MustCompile(`^neuron[0-9]+$`)

// hasDevices looks for /dev/neuron0 and so on.
func (f *finder) hasDevices() bool {
	entries, _ := os.ReadDir(filepath.Join("/", f.root, "dev")) // there is none that can be used
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return deviceForm.MatchString(e.Name()) })
}
