// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

// Package race tells tests of much work whether the race detector is on, with which
// everything takes ten times as long.
package race

// Enabled says that it is not.
const Enabled = false
