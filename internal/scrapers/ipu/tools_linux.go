// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package ipu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/optional"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/ipu/gc"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	// maxOutput is many times what 64 IPUs are.
	maxOutput = 4 << 20
	// maxQuote bounds, in bytes, what of a tool's words an error repeats.
	maxQuote = 200
	// maxHangs is how many devices may let gc-info hang before the others are left out.
	maxHangs = 2
)

var (
	// errNotFound says that a tool is not on this machine, or not where the
	// configuration says.
	errNotFound = errors.New("not found")
	errTimeout  = errors.New("scrapers::ipu::tool_timeout is over")
)

// listing is what asking one tool gave.
type listing struct {
	devices []gc.Device
	// errs are the troubles of single devices.
	errs []error
}

// exitError says that a tool came to an end without an answer: it does so where there
// is nothing to tell of, gc-monitor by a crash.
type exitError struct{ text string }

func (e *exitError) Error() string { return e.text }

// tool is one of the programs.
type tool struct {
	name sourceName
	// ask runs the program as often as it needs.
	ask func(*tool, context.Context) (listing, error)

	// dirs returns the folders to look in.
	dirs    func() []string
	finding guard.Slot
	path    string

	environ func() []string
	timeout time.Duration
	meter   *toolrun.Meter

	// plain says that this gc-inventory does not know -2.
	plain bool
}

// read lists the devices; none without an error is a machine without any.
func (t *tool) read(ctx context.Context) (listing, error) {
	if err := t.find(ctx); err != nil {
		return listing{}, err
	}
	got, err := t.ask(t, ctx)
	got.devices = slices.DeleteFunc(got.devices, func(d gc.Device) bool { return d.Multi })
	return got, err
}

// find looks for the program once, and again after it could not be started. The SDK is
// often on a file server.
func (t *tool) find(ctx context.Context) error {
	if t.path != "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, errTimeout)
	defer cancel()
	path, err := guard.Call(ctx, &t.finding, func(context.Context) (string, error) { return t.search() })
	if err != nil {
		return fmt.Errorf("look for %s: %w", t.name, err)
	}
	t.path = path
	return nil
}

func (t *tool) search() (string, error) {
	dirs := t.dirs()
	for _, dir := range dirs {
		if path := filepath.Join(dir, string(t.name)); toolrun.IsExecutable(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w in %s", errNotFound, strings.Join(dirs, ", "))
}

// newInventory asks gc-inventory with -2, which others do in production, and without
// where it does not know that.
func newInventory() *tool {
	return &tool{name: sourceInventory, ask: func(t *tool, ctx context.Context) (listing, error) {
		if !t.plain {
			got, err := t.list(ctx, "-2")
			if _, exited := errors.AsType[*exitError](err); !exited {
				return got, err
			}
		}
		got, err := t.list(ctx)
		t.plain = err == nil && len(got.devices) > 0
		return got, err
	}}
}

func newMonitor() *tool {
	return &tool{name: sourceMonitor, ask: func(t *tool, ctx context.Context) (listing, error) { return t.list(ctx, "-j") }}
}

// newCommand returns the program of the configuration.
func newCommand(command []string) *tool {
	return &tool{name: sourceCommand, path: command[0], ask: func(t *tool, ctx context.Context) (listing, error) {
		return t.list(ctx, command[1:]...)
	}}
}

// newInfo asks gc-info for the list, and then for each device.
func newInfo() *tool { return &tool{name: sourceInfo, ask: (*tool).askEach} }

func (t *tool) askEach(ctx context.Context) (listing, error) {
	out, err := t.run(ctx, "-l")
	if err != nil {
		return listing{}, err
	}
	ids, err := gc.ParseList(out.Stdout)
	if err != nil {
		return listing{}, t.failure([]string{"-l"}, out, err)
	}
	var got listing
	hangs := 0
	for _, id := range ids {
		d, err := t.askOne(ctx, id)
		switch {
		case err == nil:
			got.devices = append(got.devices, d)
			continue
		case errors.Is(err, errTimeout):
			hangs++
		}
		got.errs = append(got.errs, err)
		if hangs == maxHangs || ctx.Err() != nil {
			break
		}
	}
	if len(got.devices) == 0 && len(got.errs) > 0 {
		return listing{}, got.errs[0]
	}
	return got, nil
}

// askOne asks for one device. Where others are told of too it is the one of that number.
func (t *tool) askOne(ctx context.Context, id int) (gc.Device, error) {
	got, err := t.list(ctx, "--device-info", "-d", strconv.Itoa(id))
	if err != nil {
		return gc.Device{}, err
	}
	if len(got.devices) == 0 {
		return gc.Device{}, fmt.Errorf("gc-info says nothing of device %d (path %s)", id, t.path)
	}
	at := slices.IndexFunc(got.devices, func(d gc.Device) bool { return d.ID == optional.Some(id) })
	d := got.devices[max(at, 0)]
	d.ID = d.ID.Or(optional.Some(id))
	return d, nil
}

// list runs the program and reads the devices that it prints.
func (t *tool) list(ctx context.Context, args ...string) (listing, error) {
	out, err := t.run(ctx, args...)
	if err != nil {
		return listing{}, err
	}
	devices, err := gc.Parse(out.Stdout)
	if err != nil {
		return listing{}, t.failure(args, out, err)
	}
	return listing{devices: devices}, nil
}

// run runs the program once. Nothing is taken of what it prints unless it ends well.
func (t *tool) run(ctx context.Context, args ...string) (guard.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, errTimeout)
	defer cancel()
	path := t.path
	res, err := guard.Run(ctx, guard.Command{Path: path, Args: args, Env: t.environ(), MaxOutput: maxOutput})
	var cost toolrun.Cost
	cost.Add(res)
	t.meter.Add(ctx, string(t.name), cost)
	if errors.Is(err, fs.ErrNotExist) && t.name != sourceCommand {
		t.path = "" // it was removed, perhaps for another version: look again
	}
	switch {
	case errors.Is(err, guard.ErrDied):
		return res, &exitError{t.failure(args, res, err).Error()}
	case err != nil:
		return res, t.failure(args, res, err)
	case res.ExitCode != 0:
		return res, &exitError{t.failure(args, res, fmt.Errorf("exited with %d (path %s)", res.ExitCode, path)).Error()}
	}
	return res, nil
}

// failure says what was run, what is wrong, and what the tool said of that.
func (t *tool) failure(args []string, res guard.Result, err error) error {
	command := strings.Join(append([]string{string(t.name)}, args...), " ")
	if said := firstLine(res.Stderr); said != "" {
		return fmt.Errorf("%s: %w; it said %q", command, err, said)
	}
	return fmt.Errorf("%s: %w", command, err)
}

// firstLine returns the first line that says something, bounded.
func firstLine(text []byte) string {
	for line := range bytes.Lines(text) {
		if said := bytes.TrimSpace(line); len(said) > 0 {
			return strings.ToValidUTF8(string(said[:min(len(said), maxQuote)]), "?")
		}
	}
	return ""
}

const optDir = "/opt"

// searchDirs returns the folders to look in: the configured one alone, else those of
// PATH, those of the SDK below /opt, the newest first, and the usual ones.
func searchDirs(configured string, getenv func(string) string, opt string) []string {
	if configured != "" {
		return []string{configured}
	}
	dirs := filepath.SplitList(getenv("PATH"))
	for _, pattern := range []string{"gc/poplar_sdk*/poplar-*/bin", "poplar_sdk*/poplar-*/bin", "gc/poplar*/bin", "poplar*/bin"} {
		dirs = append(dirs, toolrun.NewestFirst(filepath.Join(opt, pattern))...)
	}
	return toolrun.Dirs(append(dirs, filepath.SplitList(toolrun.SystemPath)...)...)
}

// handedOn are the variables that the tools get: to be found and to start, and
// to find the partition, of which the user's own is in $HOME.
var handedOn = []string{"HOME", "LD_LIBRARY_PATH", "LANG", "POPLAR_SDK_ENABLED"}

// environment is what a tool gets. Numbers have a point whatever the language is.
func environment(getenv func(string) string, all []string, added map[string]string) []string {
	env := map[string]string{"PATH": cmp.Or(getenv("PATH"), toolrun.SystemPath), "LC_NUMERIC": "C"}
	for _, name := range handedOn {
		if v := getenv(name); v != "" {
			env[name] = v
		}
	}
	for _, variable := range all {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "IPUOF_") || strings.HasPrefix(name, "GCDA_") {
			env[name] = value
		}
	}
	maps.Copy(env, added)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
