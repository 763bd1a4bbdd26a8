// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package tpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers"
)

const (
	readerName    = "libtpu-reader"
	readerTimeout = 5 * time.Second
	// readerMaxOutput bounds an answer, in bytes.
	readerMaxOutput = 4 << 20
	// readerRest is how long the reader is left alone after a crash, or after
	// readerMaxFailures in a row: libtpu talks to the agent that controls the chips.
	readerRest        = 10 * time.Minute
	readerMaxFailures = 3
	// readerFailed is the reader's exit code when it says itself what is wrong.
	readerFailed = 10
	// readerSlack is how much too early a scrape may come and still be answered, after a
	// wait: where scrapes are as far apart as reads, some would have nothing else.
	readerSlack = 500 * time.Millisecond
	// shownText is how much of what the reader says goes into an error, in bytes.
	shownText = 300
)

// agentVariable tells libtpu where the agent is that controls the chips.
const agentVariable = "VBAR_CONTROL_SERVICE_URL"

// reader asks libtpu in a process of its own, which ends with each answer: libtpu may
// crash, hang or end its process, and what it hands out it never takes back.
type reader struct {
	path, library string
	interval      time.Duration
	timeout       time.Duration
	clock         func() time.Time
	getenv        func(string) string

	// next is when it may be asked again; failures are those in a row, and last is why
	// the last one was.
	next     time.Time
	failures int
	last     error
	looking  guard.Slot
}

// sdkAnswer is what libtpu says of one metric.
type sdkAnswer struct {
	Description string   `json:"description"`
	Values      []string `json:"values"`
	Error       string   `json:"error"`
}

// sdkRequest asks for metrics: of each list the first that has values.
type sdkRequest struct {
	Metrics [][]string `json:"metrics"`
}

// read asks libtpu, unless it is too early: then it returns nothing, and the error of
// the last time where that failed.
func (r *reader) read(ctx context.Context, metrics [][]string) (map[string]sdkAnswer, error) {
	if len(metrics) == 0 || !r.await(ctx) {
		return nil, r.last
	}
	now := r.clock()
	answers, err := r.run(ctx, metrics)
	if errors.Is(err, context.Canceled) {
		return nil, err // the collector ends
	}
	r.next, r.last = now.Add(r.interval), err
	if err == nil {
		r.failures = 0
		return answers, nil
	}
	r.failures++
	crash := &crashError{}
	if errors.As(err, &crash) || r.failures >= readerMaxFailures {
		r.failures = 0
		r.next = now.Add(max(readerRest, r.interval))
	} else {
		r.next = now.Add(r.interval << r.failures)
	}
	return nil, err
}

// await tells whether it may be asked, now or after a short wait.
func (r *reader) await(ctx context.Context) bool {
	early := r.next.Sub(r.clock())
	if early <= 0 {
		return true
	}
	if early > readerSlack {
		return false
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// crashError says that the reader did not end by itself, or ended without an answer.
type crashError struct{ text string }

func (e *crashError) Error() string { return e.text }

func (r *reader) run(ctx context.Context, metrics [][]string) (map[string]sdkAnswer, error) {
	path, library, err := r.files(ctx)
	if err != nil {
		return nil, err
	}
	request, err := json.Marshal(sdkRequest{metrics})
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	result, err := guard.Run(ctx, guard.Command{
		Path: path, Args: []string{library}, Env: r.environment(),
		Stdin: append(request, '\n'), MaxOutput: readerMaxOutput,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, scrapers.NewFault("timeout", err)
	case err != nil:
		return nil, scrapers.NewFault("crash", &crashError{err.Error()})
	case result.ExitCode == readerFailed:
		return nil, scrapers.NewFault("reader", fmt.Errorf("%s: %s", readerName, shown(result.Stderr)))
	case result.ExitCode != 0:
		return nil, scrapers.NewFault("crash", &crashError{fmt.Sprintf("%s exited with %d: %s", readerName, result.ExitCode, shown(result.Stderr))})
	}
	return parseSDK(result.Stdout)
}

// parseSDK reads the reader's answer: one line of JSON.
func parseSDK(output []byte) (map[string]sdkAnswer, error) {
	line, _, whole := bytes.Cut(output, []byte("\n"))
	if !whole {
		return nil, scrapers.NewFault("crash", &crashError{readerName + " ended without an answer"})
	}
	var answers map[string]sdkAnswer
	if err := json.Unmarshal(line, &answers); err != nil {
		return nil, scrapers.NewFault("answer", fmt.Errorf("%s: reading its answer: %w", readerName, err))
	}
	return answers, nil
}

// shown is the first line of a text, or a part of it.
func shown(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return strings.ToValidUTF8(string(line[:min(len(line), shownText)]), "")
}

func (r *reader) environment() []string {
	env := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "LANG=C"}
	if url := r.getenv(agentVariable); url != "" {
		env = append(env, agentVariable+"="+url)
	}
	return env
}

// files finds the program and the library. Folders may be on a file system that hangs.
func (r *reader) files(ctx context.Context) (path, library string, err error) {
	type found struct{ path, library string }
	f, err := guard.Call(ctx, &r.looking, func(context.Context) (found, error) {
		path, err := r.program()
		if err != nil {
			return found{}, err
		}
		library, err := r.findLibrary()
		return found{path, library}, err
	})
	return f.path, f.library, err
}

// program is the configured reader, else the one beside the collector.
func (r *reader) program() (string, error) {
	if r.path != "" {
		return configured(r.path, "sdk::reader_path")
	}
	self, err := os.Executable()
	if err != nil {
		return "", scrapers.NewFault("reader path", fmt.Errorf("finding %s: %w; set sdk::reader_path", readerName, err))
	}
	return beside(self)
}

// beside returns the reader in the folder of a program.
func beside(program string) (string, error) {
	path := filepath.Join(filepath.Dir(program), readerName)
	if !isFile(path) {
		return "", scrapers.NewFault("reader path", fmt.Errorf("no %s; set sdk::reader_path", path))
	}
	return path, nil
}

// configured returns a path if there is a file.
func configured(path, key string) (string, error) {
	if !isFile(path) {
		return "", scrapers.NewFault(key, fmt.Errorf("no file %s (%s)", path, key))
	}
	return path, nil
}

// libraryVariables name the library for other programs, W&B's among them.
var libraryVariables = []string{"TPU_LIBRARY_PATH", "WANDB_LIBTPU_PATH", "LIBTPU_PATH"}

// findLibrary is the configured library, else that of the environment, else the first
// that is installed.
func (r *reader) findLibrary() (string, error) {
	if r.library != "" {
		return configured(r.library, "sdk::library_path")
	}
	for _, name := range libraryVariables {
		if path := r.getenv(name); filepath.IsAbs(path) && isFile(path) {
			return path, nil
		}
	}
	for _, pattern := range libraryPatterns(r.getenv("HOME")) {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			continue // a home folder that is no pattern
		}
		for _, path := range paths {
			if isFile(path) {
				return path, nil
			}
		}
	}
	return "", scrapers.NewFault("library path", errors.New("no libtpu.so where it is usually installed; set sdk::library_path"))
}

func libraryPatterns(home string) []string {
	patterns := []string{"/lib/libtpu.so", "/usr/lib/libtpu.so", "/usr/local/lib/libtpu.so"}
	folders := []string{"/usr/local/lib/python*/dist-packages", "/usr/local/lib/python*/site-packages"}
	if filepath.IsAbs(home) {
		folders = append(folders, home+"/.local/lib/python*/site-packages", home+"/.venv/lib/python*/site-packages")
	}
	for _, folder := range folders {
		patterns = append(patterns, folder+"/libtpu/libtpu.so", folder+"/torch_xla/lib/libtpu.so")
	}
	return patterns
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
