// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package openmetrics

// raced says that the race detector is on, with which everything takes ten times as long.
const raced = false
