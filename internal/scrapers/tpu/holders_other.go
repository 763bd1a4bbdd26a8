// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tpu

import "github.com/wandbsys/otelcol-wandbsys/internal/scrapers"

// knowsHolders is false: only Linux tells which files a process has open.
const knowsHolders = false

func newHolders(scrapers.Settings, *Config) holders { return nil }
