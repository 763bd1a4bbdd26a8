// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Package wandbsys holds the definition of every metric (metadata.yaml) and the
// reference made from it (documentation.md). The receiver itself is in
// receiver/wandbsysreceiver.
package wandbsys

//go:generate make -s generate
