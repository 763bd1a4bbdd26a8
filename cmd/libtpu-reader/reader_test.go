// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/tpu/tputest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		tputest.Remove()
		os.Exit(code)
	}))
}

// hungTime is how long a reader is given that does not end.
const hungTime = 2 * time.Second

// outcome is what became of a reader.
type outcome struct {
	stdout, stderr string
	exit           int
	killed         bool
}

func read(t *testing.T, patience time.Duration, input string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, tputest.BuildReader(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = strings.NewReader(input), &stdout, &stderr, []string{}
	_ = cmd.Run() // the state says more
	require.NotNil(t, cmd.ProcessState)
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), status.Signaled()}
}

const oneMetric = `{"metrics": [["duty_cycle_pct"]]}` + "\n"

func duty(values ...string) map[string]tputest.Metric {
	return map[string]tputest.Metric{"duty_cycle_pct": {Description: "of each", Values: values}}
}

func TestAnswers(t *testing.T) {
	library := tputest.BuildLibrary(t, map[string]tputest.Metric{
		"tensorcore_util":        {},
		"tensorcore_utilization": {Description: `with "quotes"`, Values: []string{"1.5", "", "x"}, NullAt: []int{2}},
		"unasked":                {Values: []string{"1"}},
		"hlo_queue_size":         {Description: "sizes", Values: []string{"tensorcore-0: 1"}},
		"broken":                 {Error: "UNAVAILABLE: no chips"},
	}, "PRINT")
	got := read(t, time.Minute, `{"metrics": [["tensorcore_util", "tensorcore_utilization", "unasked"], ["broken"], ["missing"]]}`+"\n"+
		`{"metrics": [["hlo_queue_size"]]}`+"\n", library)
	require.Zero(t, got.exit, got.stderr)
	lines := strings.Split(got.stdout, "\n")
	require.Len(t, lines, 3, "a line for each request, and nothing that the library printed")
	assert.JSONEq(t, `{
		"tensorcore_util": {},
		"tensorcore_utilization": {"description": "with \"quotes\"", "values": ["1.5", "", ""]},
		"broken": {"error": "UNAVAILABLE: no chips"},
		"missing": {"error": "NOT_FOUND: no such metric"}
	}`, lines[0])
	assert.JSONEq(t, `{"hlo_queue_size": {"description": "sizes", "values": ["tensorcore-0: 1"]}}`, lines[1])
	assert.Contains(t, got.stderr, "libtpu was loaded")
}

func TestTroubleOfAMetricIsItsAnswer(t *testing.T) {
	for name, tt := range map[string]struct{ definition, want string }{
		"no handle":      {"NO_HANDLE", `{"duty_cycle_pct": {"error": "no handle"}}`},
		"no values":      {"VALUES_ERROR", `{"duty_cycle_pct": {"error": "no values"}}`},
		"no description": {"DESCRIPTION_ERROR", `{"duty_cycle_pct": {"values": ["1"]}}`},
		"too many":       {"VALUE_COUNT=4097", `{"duty_cycle_pct": {"error": "4097 values, more than 4096"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(t, time.Minute, oneMetric, tputest.BuildLibrary(t, duty("1"), tt.definition))
			require.Zero(t, got.exit, got.stderr)
			assert.JSONEq(t, tt.want, got.stdout)
		})
	}
}

func TestWhatIsNoLibtpuOfAKnownKindIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		definitions []string
		want        string
	}{
		"another first word":  {[]string{"VERSION0=1"}, "its SDK has version 1.1, known is 0.1"},
		"another second word": {[]string{"VERSION1=2"}, "its SDK has version 0.2, known is 0.1"},
		"no table":            {[]string{"NO_TABLE"}, "GetLibtpuSdkApi returned nothing"},
		"no symbol":           {[]string{"NO_SYMBOL"}, "no SDK in it"},
		"no GetMetric":        {[]string{"NULL_SLOT=0x50"}, "its SDK lacks GetMetric"},
		"no ErrorMessage":     {[]string{"NULL_SLOT=0x08"}, "its SDK lacks ErrorMessage"},
		"no DestroyClient":    {[]string{"NULL_SLOT=0x28"}, "its SDK lacks DestroyClient"},
		"no GetMetricValues":  {[]string{"NULL_SLOT=0x60"}, "its SDK lacks GetMetricValues"},
		"no client":           {[]string{`CLIENT_ERROR="the agent is away"`}, "making a client: the agent is away"},
		"error without text":  {[]string{`CLIENT_ERROR="x"`, "NO_MESSAGE"}, "making a client: unknown error"},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(t, time.Minute, oneMetric, tputest.BuildLibrary(t, duty("1"), tt.definitions...))
			assert.Equal(t, exitFailed, got.exit)
			assert.Contains(t, got.stderr, tt.want)
			assert.Contains(t, got.stderr, "libtpu.so: ")
			assert.Empty(t, got.stdout)
		})
	}
}

func TestWrongUse(t *testing.T) {
	library := tputest.BuildLibrary(t, duty("1"))
	noLibrary := filepath.Join(t.TempDir(), "libtpu.so")
	require.NoError(t, os.WriteFile(noLibrary, []byte("text"), 0o600))
	for name, tt := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"no library named":  {"", nil, "usage: libtpu-reader LIBRARY"},
		"no such library":   {"", []string{"/nowhere/libtpu.so"}, "/nowhere/libtpu.so: loading: "},
		"no library at all": {"", []string{noLibrary}, "loading: "},
		"no JSON":           {"what?\n", []string{library}, "reading the request: "},
		"a zero byte":       {`{"metrics": [["a\u0000b"]]}` + "\n" + "{", []string{library}, "reading the request: "},
		"a line too long":   {strings.Repeat(" ", maxRequest+1), []string{library}, "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(t, time.Minute, tt.input, tt.args...)
			assert.Equal(t, exitFailed, got.exit)
			assert.Contains(t, got.stderr, tt.want)
		})
	}
	got := read(t, time.Minute, "", library)
	assert.Zero(t, got.exit, "no request is no error: %s", got.stderr)
}

func TestACrashEndsTheReaderWithoutAnAnswer(t *testing.T) {
	for _, definition := range []string{"CRASH_IN_CALL", "CRASH_IN_CONSTRUCTOR", "EXIT_IN_CONSTRUCTOR=0", "EXIT_IN_CONSTRUCTOR=7"} {
		t.Run(definition, func(t *testing.T) {
			got := read(t, time.Minute, oneMetric, tputest.BuildLibrary(t, duty("1"), definition))
			assert.False(t, got.killed)
			assert.NotEqual(t, exitFailed, got.exit)
			assert.Empty(t, got.stdout)
		})
	}
	for _, definition := range []string{"HANG_IN_CALL", "HANG_IN_CONSTRUCTOR"} {
		t.Run(definition, func(t *testing.T) {
			got := read(t, hungTime, oneMetric, tputest.BuildLibrary(t, duty("1"), definition))
			assert.True(t, got.killed)
			assert.Empty(t, got.stdout)
		})
	}
}

// The collector itself must never be able to open libtpu: what can load libraries is in
// this program alone.
func TestTheCollectorCannotLoadLibraries(t *testing.T) {
	list := func(patterns ...string) []string {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, patterns...)...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	const purego = "github.com/ebitengine/purego"
	assert.NotContains(t, list("./receiver/...", "./internal/..."), purego)
	assert.Contains(t, list("./cmd/libtpu-reader"), purego)
}
