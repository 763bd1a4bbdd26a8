// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

// Command libtpu-reader reads the metrics of Google's libtpu for the collector, which
// does not open that library itself: it may crash, hang or end its process.
//
// Usage: libtpu-reader LIBRARY. Each line of its input is a request,
//
//	{"metrics": [["tensorcore_util", "tensorcore_utilization"], ["duty_cycle_pct"]]}
//
// with lists of names for the same thing, of which the first that has values is read.
// The answer is a line as well:
//
//	{"tensorcore_util": {"description": "...", "values": ["1.5"]}, "duty_cycle_pct": {"error": "..."}}
//
// It ends with its input. When libtpu cannot be used it says why and exits with 10.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// exitFailed tells the collector that this program knows what is wrong.
	exitFailed = 10
	// maxRequest is the longest line of input, in bytes.
	maxRequest = 64 << 10
)

type request struct {
	Metrics [][]string `json:"metrics"`
}

type answer struct {
	Description string   `json:"description,omitempty"`
	Values      []string `json:"values,omitempty"`
	Error       string   `json:"error,omitempty"`
}

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

func run(args []string, in io.Reader) error {
	if len(args) != 1 {
		return errors.New("usage: libtpu-reader LIBRARY")
	}
	out, err := takeStdout()
	if err != nil {
		return err
	}
	lib, err := open(args[0])
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	defer lib.close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRequest)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("reading the request: %w", err)
		}
		if err := json.NewEncoder(out).Encode(lib.answer(&r)); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
	return lines.Err()
}

// takeStdout keeps the output for answers: what the library prints goes to stderr.
func takeStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keeping the output: %w", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return nil, fmt.Errorf("redirecting the output: %w", err)
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}

// answer reads the metrics of a request.
func (l *library) answer(r *request) map[string]answer {
	all := map[string]answer{}
	for _, names := range r.Metrics {
		for _, name := range names {
			a := l.read(name)
			all[name] = a
			if len(a.Values) > 0 {
				break
			}
		}
	}
	return all
}

func (l *library) read(name string) answer {
	metric, err := l.metric(name)
	if err != nil {
		return answer{Error: err.Error()}
	}
	values, err := l.values(metric)
	if err != nil {
		return answer{Error: err.Error()}
	}
	description, err := l.description(metric)
	if err != nil { // the values stand without it
		description = ""
	}
	return answer{Description: description, Values: values}
}
