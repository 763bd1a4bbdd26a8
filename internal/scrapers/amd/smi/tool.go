// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/amd/card"
	"github.com/wandbsys/otelcol-wandbsys/internal/toolrun"
)

const (
	maxStdout = 8 << 20
	maxStderr = 4 << 10
	// usageExit is how Python's programs end when they do not know an argument. Until
	// ROCm 5.2 rocm-smi also ends so when it could not get one of the figures.
	usageExit = 2
	// memUse is the flag that ROCm 7.0 may fail with, in the function memUseCode.
	memUse     = "--showmemuse"
	memUseCode = "showMemUse"
)

// Options say how a tool is used. The zero value is ready.
type Options struct {
	// Path is the absolute path of the executable; when it is empty it is looked for.
	Path string
	// Dirs returns the folders to look in; nil is [SystemDirs].
	Dirs func() []string
	// Interval is how long what amd-smi tells in static counts; 0 is for one reading only.
	Interval time.Duration
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// dialect is how a tool is spoken to.
type dialect struct {
	name  string
	parse func(stdout []byte) ([]card.Reading, error)
	// command comes first; base asks for what every reading needs, extended for what
	// the extended figures need. Without either the tool tells all it knows, with full.
	command, base, extended, full []string
	// static asks for what hardly changes; nil when there is no such command.
	static []string
	// refused tells whether a run that gave no JSON failed because of its flags.
	refused func(guard.Result) bool
}

var rocmSMI = dialect{
	name:  "rocm-smi",
	parse: ParseROCm,
	// Not -a: it walks firmware, clocks, voltages and pages, and runs one ps for each
	// process on a GPU.
	base: []string{
		"--showuse", memUse, "--showmeminfo", "vram", "--showtemp", "--showpower", "--showmaxpower", "--showmemoverdrive", "--showbus",
	},
	extended: []string{"--showclocks", "--showreplaycount", "--showenergycounter"},
	full:     []string{"-a"},
	refused:  func(res guard.Result) bool { return res.ExitCode == usageExit && showsUsage(res) },
}

var amdSMI = dialect{
	name:     "amd-smi",
	parse:    ParseAMD,
	command:  []string{"metric"},
	base:     []string{"--usage", "--power", "--temperature", "--mem-usage"},
	extended: []string{"--clock", "--ecc-blocks", "--energy", "--pcie"},
	static:   []string{"static", "--limit", "--asic", "--bus", "--json"},
	refused:  func(res guard.Result) bool { return res.ExitCode == usageExit || showsUsage(res) || saysInvalid(res) },
}

// showsUsage tells whether a program said how it is to be called.
func showsUsage(res guard.Result) bool {
	for _, said := range [][]byte{res.Stdout, res.Stderr} {
		for line := range bytes.Lines(said) {
			if strings.HasPrefix(strings.ToLower(plain(line)), "usage") {
				return true
			}
		}
	}
	return false
}

// saysInvalid tells whether amd-smi refused a flag in words of its own: in guests it
// has fewer of them, and it answers in JSON.
func saysInvalid(res guard.Result) bool {
	for _, said := range [][]byte{res.Stdout, res.Stderr} {
		said = bytes.ToLower(said)
		if bytes.Contains(said, []byte("is invalid")) || bytes.Contains(said, []byte("unrecognized argument")) {
			return true
		}
	}
	return false
}

// Tool reads GPUs through one of AMD's tools. It is for one reading at a time.
type Tool struct {
	dialect
	options Options
	finding guard.Slot
	path    string

	// everything says that this version refused flags, and withoutMemUse that it fails
	// with that one. Neither is tried again.
	everything, withoutMemUse bool

	// fixed is what hardly changes, by index, as it was told at fixedAt.
	fixed    map[int]Static
	fixedAt  time.Time
	fixedErr error
}

// NewROCm returns a Tool that uses rocm-smi.
func NewROCm(o Options) *Tool { return newTool(rocmSMI, o) }

// NewAMD returns a Tool that uses amd-smi.
func NewAMD(o Options) *Tool { return newTool(amdSMI, o) }

func newTool(d dialect, o Options) *Tool {
	if o.Dirs == nil {
		o.Dirs = SystemDirs
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Tool{dialect: d, options: o}
}

// Name returns the name of the tool.
func (t *Tool) Name() string { return t.name }

// StaticError returns why what hardly changes (caps, addresses, names) could not be
// read the last time it was asked for; readings come without it then.
func (t *Tool) StaticError() error { return t.fixedErr }

// Read returns the GPUs by their index, and the cost, which a failed reading has
// too. With extended it asks for the extended figures, which cost more. No GPUs and
// no error is a machine without any that the tool can see, be it for want of the
// driver. ctx bounds it: tools that run then are killed, and the error wraps its
// cause. Without an executable the error wraps [ErrNotFound]; what the tool said
// in place of figures is a [TextError].
func (t *Tool) Read(ctx context.Context, extended bool) ([]card.Reading, toolrun.Cost, error) {
	var cost toolrun.Cost
	path, err := t.Find(ctx)
	if err != nil {
		return nil, cost, err
	}
	cards, err := t.ask(ctx, path, extended, &cost)
	if err != nil || len(cards) == 0 {
		return nil, cost, err
	}
	if t.static != nil {
		t.refresh(ctx, path, &cost)
		for i := range cards {
			t.fixed[cards[i].Index].complete(&cards[i])
		}
	}
	return cards, cost, nil
}

// ask runs the tool until it gives figures or fails in a way that nothing can be
// done about. How the tool exits counts only when there are no figures: rocm-smi has
// exited with 2 because of one figure of many.
func (t *Tool) ask(ctx context.Context, path string, extended bool, cost *toolrun.Cost) ([]card.Reading, error) {
	for {
		res, err := t.run(ctx, path, t.arguments(extended), cost)
		if err != nil {
			return nil, err
		}
		cards, err := t.parse(res.Stdout)
		silent := len(afterLead(res.Stdout)) == 0
		switch {
		case err == nil && (!silent || res.ExitCode == 0):
			return cards, nil
		case silent || isText(err):
			if t.learn(res) {
				continue
			}
		}
		return nil, t.failure(path, res, err)
	}
}

func isText(err error) bool {
	_, ok := errors.AsType[*TextError](err)
	return ok
}

// arguments are those of the form that this version knows.
func (t *Tool) arguments(extended bool) []string {
	args := slices.Clone(t.command)
	if t.everything {
		return append(append(args, t.full...), "--json")
	}
	args = append(args, t.base...)
	if extended {
		args = append(args, t.extended...)
	}
	if t.withoutMemUse {
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == memUse })
	}
	return append(args, "--json")
}

// learn finds out from a run without figures whether there is another form to try.
func (t *Tool) learn(res guard.Result) bool {
	switch {
	case t.everything:
		return false
	case t.refused(res):
		t.everything = true
	case !t.withoutMemUse && bytes.Contains(res.Stderr, []byte(memUseCode)):
		// Without /dev/kfd it takes the "N/A" of a partition for a number.
		t.withoutMemUse = true
	default:
		return false
	}
	return true
}

// run runs the tool once.
func (t *Tool) run(ctx context.Context, path string, args []string, cost *toolrun.Cost) (guard.Result, error) {
	res, err := guard.Run(ctx, guard.Command{
		Path: path, Args: args, Env: environment(os.Getenv), MaxOutput: maxStdout, MaxStderr: maxStderr,
	})
	cost.Add(res)
	if errors.Is(err, fs.ErrNotExist) {
		t.path = "" // it was removed, perhaps for another version: look again
	}
	return res, err
}

// absent is what the tools say, with one or another status, where there is no GPU
// for them.
var absent = []string{
	"Driver not initialized",
	"No AMD GPUs specified",
	"No JSON data to report",
	"Unable to detect any GPU devices",
}

// failure says why a run gave no figures; err is what is wrong with its output. It
// is nil when the tool says that there is no GPU.
func (t *Tool) failure(path string, res guard.Result, err error) error {
	said, isText := errors.AsType[*TextError](err)
	if err != nil && !isText {
		return fmt.Errorf("%s exited with %d: %w (path %s)", t.name, res.ExitCode, err, path)
	}
	if said == nil || said.Cause == nil {
		said = &TextError{Text: complaint(res, said)}
	}
	if slices.ContainsFunc(absent, func(phrase string) bool { return strings.Contains(said.Text, phrase) }) {
		return nil
	}
	return &exitError{tool: t.name, path: path, code: res.ExitCode, said: said}
}

// complaint returns the line that says best what went wrong: the last one of a
// Python exception, else what was said in place of figures.
func complaint(res guard.Result, said *TextError) string {
	last := lastLine(res.Stderr)
	if said == nil || bytes.Contains(res.Stderr, []byte("Traceback")) {
		return cmp.Or(last, "(it printed nothing)")
	}
	return said.Text
}

// exitError is what a tool said in place of figures.
type exitError struct {
	tool, path string
	code       int
	said       *TextError
}

func (e *exitError) Error() string {
	text := fmt.Sprintf("%s exited with %d: %q", e.tool, e.code, e.said.Text)
	if e.said.Cause != nil {
		text += fmt.Sprintf(": %v", e.said.Cause)
	}
	return fmt.Sprintf("%s (path %s)", text, e.path)
}

// Unwrap returns what was said.
func (e *exitError) Unwrap() error { return e.said }

// refresh reads what hardly changes when it is due. A failure fails nothing else:
// there are no caps then until the next time.
func (t *Tool) refresh(ctx context.Context, path string, cost *toolrun.Cost) {
	now := t.options.Now()
	if !t.fixedAt.IsZero() && now.Sub(t.fixedAt) < t.options.Interval {
		return
	}
	t.fixedAt = now
	fixed, err := t.readStatic(ctx, path, cost)
	if t.fixedErr = err; err == nil {
		t.fixed = fixed
		return
	}
	for index, s := range t.fixed {
		t.fixed[index] = s.withoutCap()
	}
}

func (t *Tool) readStatic(ctx context.Context, path string, cost *toolrun.Cost) (map[int]Static, error) {
	res, err := t.run(ctx, path, t.static, cost)
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	fixed, err := ParseStatic(res.Stdout)
	if err == nil && (len(fixed) > 0 || res.ExitCode == 0) {
		return fixed, nil
	}
	if err = t.failure(path, res, err); err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	return nil, nil
}
