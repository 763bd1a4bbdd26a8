// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package wandbfile_test

// cutStep is how many bytes apart long payloads are cut: not at each, for which the race
// detector takes too long.
const cutStep = 61
