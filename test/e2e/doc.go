// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds tests that drive the built collector as a user would: with
// its real configuration files, over its real endpoints. `make e2e` runs them.
// They are for Linux.
package e2e
