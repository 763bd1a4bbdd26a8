// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package tputest makes a stand-in for libtpu and the program that reads it, for tests.
package tputest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/libtpu.c
var source []byte

// exported is the only symbol of libtpu's SDK, with its version.
const exported = "VERS_1.0 { global: GetLibtpuSdkApi; local: *; };\n"

// Metric is what the stand-in says of a metric.
type Metric struct {
	Description string   `json:"description"`
	Values      []string `json:"values"`
	Error       string   `json:"error"`
	// NullAt makes these values NULL in place of texts.
	NullAt []int `json:"-"`
}

// BuildLibrary compiles the stand-in and returns its path. Definitions say what is
// wrong with it, see its source.
func BuildLibrary(t testing.TB, metrics map[string]Metric, definitions ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: ", err)
	}
	folder := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	library := filepath.Join(folder, "libtpu.so")
	args := []string{
		"-w", "-O1", "-shared", "-fPIC", "-o", library, file("libtpu.c", source),
		"-Wl,--version-script," + file("symbols", []byte(exported)),
		"-DMETRICS=" + strconv.Quote(file("metrics.h", []byte(inC(metrics)))),
	}
	for _, d := range definitions {
		args = append(args, "-D"+d)
	}
	out, err := exec.Command(compiler, args...).CombinedOutput() //nolint:gosec // for tests
	require.NoError(t, err, "%s", out)
	return library
}

// inC writes metrics as the table of the stand-in.
func inC(metrics map[string]Metric) string {
	var lists, table strings.Builder
	i := 0
	for name, m := range metrics {
		fmt.Fprintf(&lists, "static const char *values%d[] = {", i)
		for k, v := range m.Values {
			text := quote(v)
			for _, null := range m.NullAt {
				if k == null {
					text = "NULL"
				}
			}
			fmt.Fprintf(&lists, "%s, ", text)
		}
		lists.WriteString("NULL};\n")
		fault := "NULL"
		if m.Error != "" {
			fault = quote(m.Error)
		}
		fmt.Fprintf(&table, "\t{%s, %s, %s, %d, values%d},\n", quote(name), quote(m.Description), fault, len(m.Values), i)
		i++
	}
	return lists.String() + "static const struct metric metrics[] = {\n" + table.String() + "\t{NULL},\n};\n"
}

// quote writes a text of C, with every byte escaped.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	b.WriteByte('"')
	return b.String()
}

var (
	built     sync.Once
	folder    string
	errBuild  error
	readerOut []byte
)

// BuildReader compiles libtpu-reader as it is shipped, once, and returns its path.
// Remove removes it.
func BuildReader(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if folder, errBuild = os.MkdirTemp("", "libtpu-reader"); errBuild != nil { //nolint:usetesting // it outlives the test
			return
		}
		cmd := exec.Command("go", "build", "-o", folder, "github.com/wandbsys/otelcol-wandbsys/cmd/libtpu-reader") //nolint:gosec // for tests
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		readerOut, errBuild = cmd.CombinedOutput()
	})
	require.NoError(t, errBuild, "%s", readerOut)
	return filepath.Join(folder, "libtpu-reader")
}

// Remove removes what outlives tests.
func Remove() {
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
}
