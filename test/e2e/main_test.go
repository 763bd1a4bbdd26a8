// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// binaryKey names the environment variable with the path of the collector.
const binaryKey = "OTELCOL_WANDBSYS"

// TestMain turns the test binary into a helper process where a test asks for
// one.
func TestMain(m *testing.M) {
	if role := os.Getenv(helperKey); role != "" {
		runHelper(role)
		return
	}
	os.Exit(m.Run())
}

// binary returns the collector's path. Below make it must be there.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv(binaryKey)
	if path == "" {
		if os.Getenv("MAKELEVEL") != "" {
			t.Fatal(binaryKey + " is not set: the Makefile's target e2e must name the built collector")
		}
		t.Skip(binaryKey + " is not set; run `make e2e`, or build the collector and name it there")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v; run `make build`", binaryKey, err)
	}
	return path
}

// repo returns a path in the repository.
func repo(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"..", ".."}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
